"""Which calls are made, and which a file of each kind holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aotpipe.errors import ModelNotFound, SpecInvalid
from aotpipe.tools.recompiles import calls
from aotpipe.tools.recompiles.calls import ModelCall
from tests.unit.tools.recompiles.models import Counting, Scaled, canonical


def sizes(given: tuple[ModelCall, ...]) -> list[int]:
    return [call.args[0].shape[0] for call in given]


def inputs(given: tuple[ModelCall, ...]) -> list[torch.Tensor]:
    return [call.args[0] for call in given]


def planned(module: torch.nn.Module, *args: Any, **settings: Any) -> tuple[ModelCall, ...]:
    model = canonical(module, *args)
    return calls.planned(model, calls.signatures_of(model), **settings)


def test_drawn_calls_reach_both_ends() -> None:
    found = planned(Scaled(), torch.ones(3, 2))
    assert {1, 3, 8} <= set(sizes(found))
    assert found[0].case == "example"


def test_as_many_as_are_asked_for_and_the_same_for_one_seed() -> None:
    many = planned(Scaled(), torch.ones(3, 2), count=30)
    again = planned(Scaled(), torch.ones(3, 2), count=30)
    other = planned(Scaled(), torch.ones(3, 2), count=30, seed=9)
    assert len(many) == 30
    assert all(torch.equal(*pair) for pair in zip(inputs(many), inputs(again), strict=True))
    assert not torch.equal(inputs(many)[1], inputs(other)[1])
    assert len(planned(Scaled(), torch.ones(3, 2), count=2)) == 2


def test_state_in_python_goes_on_over_calls() -> None:
    found = planned(Counting(), torch.ones(3, 2))
    assert [call.reset for call in found[:4]] == [True, False, False, False]


def test_given_calls_are_args_kwargs_or_values() -> None:
    model = canonical(Scaled(), torch.ones(3, 2), 2)
    x = torch.ones(4, 2)
    found = calls.given(model, [(x, 3), {"x": x, "k": 3}, x])
    assert [calls.leaves(model.entries[0], call).keys() for call in found] == [{"x", "k"}, {"x", "k"}, {"x"}]


def test_what_is_no_call_is_refused() -> None:
    model = canonical(Scaled(), torch.ones(3, 2))
    with pytest.raises(SpecInvalid, match="no call is given"):
        calls.given(model, [])
    with pytest.raises(SpecInvalid, match="entry point 'other'"):
        calls.given(model, [ModelCall(entry_point="other", case="a")])
    with pytest.raises(SpecInvalid, match="do not fit"):
        calls.given(model, [(1, 2, 3, 4)])
    with pytest.raises(SpecInvalid, match="'z', which is no input"):
        calls.filled(model.entries[0], {"z": 1})


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
    one, four, example = calls.read(path, model)
    assert torch.equal(one.args[0], torch.tensor([[1.0, 2.0]]))
    assert one.args[1] == 5
    assert (four.args[0].shape, four.case, four.reset) == ((4, 2), "four", True)
    assert torch.equal(four.args[0], calls.read(path, model)[1].args[0])
    assert example.args[0].shape == (3, 2)


def test_npz(model, tmp_path: Path) -> None:
    path = tmp_path / "calls.npz"
    np.savez(path, **{f"{n}/x": np.full((n + 1, 2), n, np.float64) for n in range(11)})
    found = calls.read(path, model)
    assert [call.args[0].shape[0] for call in found] == list(range(1, 12))
    assert found[2].args[0].dtype == torch.float32


@pytest.mark.parametrize(
    "text", ["CALLS = [(torch.ones(2, 2), 3)]", "def calls():\n    yield torch.ones(2, 2), 3"]
)
def test_python(model, tmp_path: Path, text: str) -> None:
    path = tmp_path / "given.py"
    path.write_text(f"import torch\n{text}\n")
    [call] = calls.read(path, model)
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
        calls.read(path, model)


def test_no_file(model, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        calls.read(tmp_path / "calls.json", model)
