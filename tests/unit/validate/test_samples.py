"""The user's own calls are read from a file, or refused with what is wrong of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from aotpipe.core.signature import Signature, Symbol, TensorSpec
from aotpipe.errors import SpecInvalid
from aotpipe.validate.samples import calls

X = TensorSpec("x", "float32", ("n", 2), (-1.0, 1.0))
SIGNATURE = Signature(inputs=(X,), outputs=(), symbols=(Symbol("n", 1, 4),))
STATEFUL = Signature(inputs=(X,), outputs=(), symbols=(Symbol("n", 1, 4),), state=(X,))
ONE = np.zeros((3, 2), np.float32)


def saved(folder: Path, **arrays: np.ndarray) -> Path:
    np.savez(folder / "s.npz", **arrays)
    return folder / "s.npz"


def test_one_sample_and_several(tmp_path: Path):
    [one] = calls(saved(tmp_path, x=ONE), {"forward": SIGNATURE})
    assert (one.case, one.reset, one.inputs["x"].shape) == ("sample 0", True, (3, 2))
    assert [each.case for each in calls(saved(tmp_path, x=np.stack([ONE] * 3)), {"forward": SIGNATURE})] == [
        "sample 0",
        "sample 1",
        "sample 2",
    ]


def test_samples_of_a_model_with_state_are_one_session(tmp_path: Path):
    found = calls(saved(tmp_path, x=np.stack([ONE] * 2)), {"forward": STATEFUL})
    assert [(each.case, each.reset) for each in found] == [("session/0", True), ("session/1", False)]


def test_entry_points_by_name_and_safetensors(tmp_path: Path):
    save_file({"b/x": ONE}, tmp_path / "s.safetensors")
    [one] = calls(tmp_path / "s.safetensors", {"a": SIGNATURE, "b": SIGNATURE})
    assert one.entry_point == "b"


def test_a_sample_is_a_call_of_the_program_for_its_sizes(tmp_path: Path):
    small = Signature(inputs=(X,), outputs=(), symbols=(Symbol("n", 1, 2),))
    other = Signature(inputs=(X,), outputs=(), symbols=(Symbol("n", 3, 4),), specializes="forward")
    [one] = calls(saved(tmp_path, x=ONE), {"forward": small, "forward__2": other})
    assert one.entry_point == "forward__2"


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"y": ONE}, "lacks x and has y"),
        ({"x": ONE.astype(np.float64)}, "float64, not float32"),
        ({"x": np.zeros((9, 2), np.float32)}, "no program takes"),
        ({"x": ONE + 5}, "from 5.0 to 5.0"),
        ({"x": np.full((3, 2), np.nan, np.float32)}, "values from nan"),
    ],
)
def test_what_is_no_call_is_refused(tmp_path: Path, arrays: dict[str, np.ndarray], said: str):
    with pytest.raises(SpecInvalid, match=said):
        calls(saved(tmp_path, **arrays), {"forward": SIGNATURE})


def test_a_file_that_holds_no_arrays_is_refused(tmp_path: Path):
    (tmp_path / "s.npz").write_bytes(b"nothing")
    np.save(tmp_path / "one.npy", ONE)
    (tmp_path / "empty.npz").write_bytes(b"")
    np.savez(tmp_path / "cut.npz", x=ONE)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:-30])
    for name in ("s.npz", "one.npy", "lacking.npz", "empty.npz", "cut.npz"):
        with pytest.raises(SpecInvalid, match="no samples can be read"):
            calls(tmp_path / name, {"forward": SIGNATURE})


def test_a_file_without_a_sample_is_refused(tmp_path: Path):
    for arrays in ({}, {"x": np.zeros((0, 3, 2), np.float32)}):
        with pytest.raises(SpecInvalid, match="holds no sample"):
            calls(saved(tmp_path, **arrays), {"forward": SIGNATURE})
