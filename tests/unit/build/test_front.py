"""From a Spec to what every compiler and judge takes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from aotpipe.build import front
from aotpipe.build.events import Event, Found, Recorder, StageFinished
from aotpipe.core.stages import Lowered
from aotpipe.core.targets import Backend
from aotpipe.errors import SpecInvalid
from aotpipe.model import spec
from aotpipe.runtime import tensor_file
from aotpipe.runtime.store import file_digest


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, unused: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.linear(x) * self.count


def test_a_model_is_prepared_stage_by_stage(tmp_path: Path):
    heard: list[Event] = []
    args = (torch.randn(3, 4), torch.ones(1))
    made = front.prepare(
        lambda: spec.as_spec(Counter().eval(), args=args, name="counter"), Recorder(heard.append), tmp_path
    )
    stages = [event.stage for event in heard if isinstance(event, StageFinished)]
    assert [stage for stage in stages if stage != "weights"] == [
        *("load", "canonicalize", "export", "legalize", "lower", "reference")
    ]
    assert stages.index("weights") > stages.index("legalize")  # beside what follows
    assert "unused-input" in [event.finding.code for event in heard if isinstance(event, Found)]
    prepared = made.prepared
    assert prepared.name == "counter"
    assert [leaf.name for leaf in prepared.signatures["forward"].state] == ["count"]
    assert sorted(tensor_file.read(prepared.weights)) == ["linear.bias", "linear.weight", "state/count"]
    assert file_digest(prepared.weights) == prepared.weights_sha256
    assert prepared.goldens
    assert b"@forward" in prepared.lowered["iree"].module
    assert {finding.code for finding in prepared.findings} >= {"unused-input"}


def test_the_modules_are_told_before_eager_is_asked(tmp_path: Path):
    heard: list[str] = []
    recorder = Recorder(lambda event: heard.append(f"{type(event).__name__} {getattr(event, 'stage', '')}"))

    def told(lowered: Mapping[Backend, Lowered]) -> int:
        heard.extend(lowered)
        return 1

    front.prepare(
        lambda: spec.as_spec(torch.nn.Linear(2, 2).eval(), args=(torch.ones(1, 2),)),
        recorder,
        tmp_path,
        on_lowered=told,
    )
    assert heard.index("StageFinished lower") < heard.index("iree") < heard.index("StageStarted reference")


def test_eager_leaves_cores_to_the_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from aotpipe.validate import reference

    seen: list[int] = []
    real = reference.reference

    def counted(*args: Any, **kwargs: Any) -> reference.Reference:
        seen.append(torch.get_num_threads())
        return real(*args, **kwargs)

    monkeypatch.setattr(reference, "reference", counted)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        for busy in (0, 3, 6, 9):
            front.prepare(
                lambda: spec.as_spec(torch.nn.Linear(2, 2).eval(), args=(torch.ones(1, 2),)),
                Recorder(),
                tmp_path,
                on_lowered=lambda _, busy=busy: busy,
            )
            assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)
    assert seen == [4, 4, 2, 1]


def test_a_model_that_refuses_its_own_example_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from aotpipe.validate import reference
    from aotpipe.validate.eager.eager import EagerFailed

    def refuse(*_: object, **__: object) -> None:
        raise EagerFailed("ValueError: too small")

    monkeypatch.setattr(reference, "reference", refuse)
    with pytest.raises(SpecInvalid, match="raises on its own example inputs") as caught:
        front.prepare(
            lambda: spec.as_spec(torch.nn.Linear(2, 2).eval(), args=(torch.ones(1, 2),)), Recorder(), tmp_path
        )
    assert "too small" in caught.value.reason
