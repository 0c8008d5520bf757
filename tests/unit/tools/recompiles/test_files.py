"""Calls in files of each kind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from aotpipe.errors import ModelNotFound, SpecInvalid
from aotpipe.tools.recompiles import files
from tests.unit.tools.recompiles.models import Scaled, canonical


@pytest.fixture
def model():
    return canonical(Scaled(), torch.ones(3, 2), 2)


def test_json(model, tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    path.write_text(
        json.dumps(
            [
                {"inputs": {"x": [[1, 2]], "k": 5}},
                {"inputs": {"x": {"shape": [4, 2]}}, "case": "four", "reset": True},
                {"inputs": {}},
            ]
        )
    )
    one, four, example = files.read(path, model)
    assert torch.equal(one.args[0], torch.tensor([[1.0, 2.0]]))
    assert one.args[1] == 5
    assert (four.args[0].shape, four.case, four.reset) == ((4, 2), "four", True)
    assert torch.equal(four.args[0], files.read(path, model)[1].args[0])
    assert example.args[0].shape == (3, 2)


def test_npz(model, tmp_path: Path) -> None:
    path = tmp_path / "calls.npz"
    np.savez(path, **{f"{n}/x": np.full((n + 1, 2), n, np.float64) for n in range(11)})
    found = files.read(path, model)
    assert [call.args[0].shape[0] for call in found] == list(range(1, 12))
    assert found[2].args[0].dtype == torch.float32


@pytest.mark.parametrize(
    "text", ["CALLS = [(torch.ones(2, 2), 3)]", "def calls():\n    yield torch.ones(2, 2), 3"]
)
def test_python(model, tmp_path: Path, text: str) -> None:
    path = tmp_path / "given.py"
    path.write_text(f"import torch\n{text}\n")
    [call] = files.read(path, model)
    assert call.args[1] == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("calls.json", "[1", "no JSON"),
        ("calls.json", '{"inputs": {}}', "no list of calls"),
        ("calls.json", '[{"inputs": {"x": {"sizes": [1]}}}]', "'x' is given as"),
        ("calls.json", '[{"inputs": {"x": "a"}}]', "no array"),
        ("calls.npz", "text", "no file of calls"),
        ("calls.py", "x = 1", "has no calls"),
        ("calls.txt", "", "no file of calls"),
    ],
)
def test_what_says_no_calls_is_refused(model, tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(SpecInvalid, match=message):
        files.read(path, model)


def test_no_file(model, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        files.read(tmp_path / "calls.json", model)
