"""Effects: what a run does besides tensors, at the line of the model that does it."""

from __future__ import annotations

import gc
import logging
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aotpipe.validate.eager import side_effects

LOG = logging.getLogger("test")
EFFECTS: dict[str, Any] = {
    "output": lambda: LOG.error("hm"),
    "file": lambda: Path("/dev/null").read_text(),
    "random": lambda: random.randint(1, 5),
    "clock": lambda: time.perf_counter(),
    "environment": lambda: __import__("os").environ["PATH"],
}


@pytest.mark.parametrize("kind", EFFECTS)
def test_an_effect_is_noted_once_for_its_line(kind: str):
    with side_effects.recording() as found:
        EFFECTS[kind]()
    assert {(effect.kind, effect.place.path) for effect in found.effects if effect.kind == kind} == {
        (kind, __file__)
    }


def test_a_file_that_numpy_reads_is_the_models_doing(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    with side_effects.recording() as found:
        np.load(tmp_path / "x.npy")
    assert {effect.place.expression for effect in found.effects if effect.kind == "file"} == {
        'np.load(tmp_path / "x.npy")'
    }


def test_what_torch_does_for_itself_is_not_noted():
    with side_effects.recording() as found:
        torch.nn.Linear(2, 2)(torch.ones(2))
    assert not found.effects


def test_a_collection_in_the_middle_of_a_model_is_none_of_its_doing():
    def clock(phase: str, info: dict[str, int]) -> None:
        time.perf_counter()

    gc.callbacks.append(clock)
    try:
        with side_effects.recording() as found:
            kept = [[] for _ in range(100_000)]
    finally:
        gc.callbacks.remove(clock)
    assert len(kept) == 100_000
    assert not found.effects


def test_attributes_and_containers_that_are_written_are_noted():
    module = torch.nn.Linear(2, 2)
    module.seen = []  # type: ignore[assignment]
    with side_effects.recording() as found:
        module.count = 3  # type: ignore[assignment]
        module.seen.append(1)  # type: ignore[operator]
    assert [(effect.name, effect.place.expression) for effect in found.effects] == [
        ("count", "module.count"),
        ("append", "module.seen.append(1)"),
    ]
    assert found.effects[0].owner is module
    assert found.effects[1].owner is module.seen


def test_reached_code_is_the_models_alone():
    def inner() -> None:
        torch.nn.functional.relu(torch.ones(2))

    with side_effects.recording() as found:
        inner()
    assert list(found.reached) == [inner.__code__]


def test_the_profiler_is_as_before():
    before = sys.getprofile()
    with side_effects.recording():
        pass
    assert sys.getprofile() is before


class Box:
    def __init__(self) -> None:
        self.table: dict[str, int] = {}

    def put(self, x: int) -> None:
        self.table["x"] = x
        self.last, other = x, 3
        other += 1


def of(*functions: Callable[..., Any]) -> dict[Any, Any]:
    return {function.__code__: function.__globals__ for function in functions}


def test_attributes_of_self_that_are_written():
    found = list(side_effects.self_writes(of(Box.put)))
    assert [(each.name, each.place.expression) for each in found] == [
        ("table", 'self.table["x"]'),
        ("last", "self.last"),
    ]


def test_draws_of_numpy():
    def call() -> Any:
        return np.random.rand() + np.random.default_rng(3).normal() + np.sin(1.0)

    found = [each.name for each in side_effects.numpy_draws(of(call))]
    assert found == ["np.random.rand", "np.random.default_rng"]
