"""A fault as JSON, and its files."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np

from aotpipe.errors import SourceLine
from aotpipe.tools.bisect.fault import Fault, GraphValue, Reproducer
from tests.unit.build.reports import BAD
from tests.unit.build.samples import LOWERED

FAULT = Fault(
    target="iree-cpu-host",
    failed=BAD,
    place=GraphValue("exp", "aten.exp.default", SourceLine("model.py", 12)),
    case=BAD,
    operands=("mul: float32[2]",),
    alone=None,
    cures=(GraphValue("mul", "aten.mul.Tensor", None),),
    programs=4,
    reproducer=Reproducer(
        lowered=LOWERED,
        flags=("--a=b",),
        inputs={"mul": np.ones(2, ml_dtypes.bfloat16)},
        weights={},
        wanted={"exp": np.ones(2, np.float32)},
    ),
)


def test_json_names_places_and_keeps_errors_that_are_no_numbers():
    data = json.loads(json.dumps(FAULT.to_json(), allow_nan=False))
    assert data["place"] == {"name": "exp", "op": "aten.exp.default", "where": "model.py:12"}
    assert data["cures"] == [{"name": "mul", "op": "aten.mul.Tensor", "where": None}]
    assert data["alone"] is None


def test_files_are_read_by_numpy_alone(tmp_path: Path):
    FAULT.reproducer.save(tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert (folder / "module.mlir").read_bytes() == LOWERED.module
    assert json.loads((folder / "flags.json").read_text()) == ["--a=b"]
    given = np.load(folder / "inputs.npz")["mul"]
    assert given.view(ml_dtypes.bfloat16).astype(float).tolist() == [1.0, 1.0]
    assert np.load(folder / "wanted.npz")["exp"].dtype == np.float32
