"""The op whose value is wrong is found in any graph; a fault is JSON, and its reproducer files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.errors import SourceLine
from aotpipe.tools.bisect.fault import Fault, GraphValue, Reproducer, search
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
    saved = np.load(folder / "inputs.npz")["mul"]
    assert saved.view(ml_dtypes.bfloat16).astype(float).tolist() == [1.0, 1.0]
    assert np.load(folder / "wanted.npz")["exp"].dtype == np.float32


@st.composite
def graphs(draw: st.DrawFn) -> dict[int, list[int]]:
    """Up to 60 values, each computed from some before it; the last is the result."""
    count = draw(st.integers(2, 60))
    return {
        value: draw(st.lists(st.integers(0, value - 1), min_size=1, max_size=3, unique=True)) if value else []
        for value in range(count)
    }


def tainted(parents: Mapping[int, Sequence[int]], faults: set[int]) -> set[int]:
    """What is wrong where some values are computed wrong: they, and all that comes of them."""
    found: set[int] = set()
    for value in sorted(parents):
        if value in faults or found & set(parents[value]):
            found.add(value)
    return found


@given(graphs(), st.data(), st.integers(1, 8))
def test_a_faulty_value_is_found_that_no_other_made_wrong(
    parents: dict[int, list[int]], data: st.DataObject, width: int
):
    faults = set(data.draw(st.lists(st.sampled_from(sorted(parents)), min_size=1, max_size=3)))
    wrong = tainted(parents, faults)
    result = max(wrong)
    found = search(
        sorted(parents), parents, result, lambda asked: {each: each in wrong for each in asked}, width=width
    )
    assert found.culprit in faults
    assert not wrong & set(parents[found.culprit])
    assert found.cures == ()


def test_a_chain_takes_few_programs():
    parents = {value: [value - 1] if value else [] for value in range(1000)}
    found = search(range(1000), parents, 999, lambda asked: {each: each >= 417 for each in asked}, width=24)
    assert found.culprit == 417
    assert found.trials <= 5


@pytest.mark.parametrize("fails", [False, True], ids=["right", "no program"])
def test_what_cures_the_fault_or_cannot_be_asked_is_passed_by(fails: bool):
    """A fault of fusing 30 with 31 is seen only where 30 is no result."""
    parents = {value: [value - 1] if value else [] for value in range(60)}

    def trial(asked: Sequence[int]) -> dict[int, bool] | None:
        if 30 in asked:
            return None if fails else dict.fromkeys(asked, False)
        return {each: each >= 31 for each in asked}

    found = search(range(60), parents, 59, trial, width=8)
    assert found.culprit == 31
    assert found.cures == (() if fails else (30,))
