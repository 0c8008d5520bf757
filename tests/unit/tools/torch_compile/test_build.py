"""A graph through the stages."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotpipe.errors import AotpipeError, TargetError, UnsupportedOps
from aotpipe.tools.torch_compile import build, graphs
from aotpipe.tools.torch_compile.settings import Settings
from tests.unit.tools.torch_compile import graph

SETTINGS = Settings.of({"target": "iree-vmvx", "cache": False})


def closed(call: object, *args: object) -> graphs.Closed:
    module, flat = graph.of(call, *args)
    return graphs.closed(module, graphs.arguments(module), flat)


def test_a_program_is_at_parity() -> None:
    built = build.build(closed(lambda x: x * 2 + 1, torch.ones(3)), SETTINGS)
    [name] = [leaf.name for leaf in built.signature.tensor_inputs]
    [answer] = built.runner.infer({name: np.full(3, 4, np.float32)}).values()
    assert np.array_equal(answer, np.full(3, 9, np.float32))
    assert built.ratio <= 1


def test_a_program_has_the_precision_of_the_settings() -> None:
    settings = Settings.of({"target": "iree-vmvx", "cache": False, "dtype": "bf16"})
    given = torch.linspace(-1, 1, 64).reshape(8, 8)
    built = build.build(closed(lambda x: x @ x, given), settings)
    [name] = [leaf.name for leaf in built.signature.tensor_inputs]
    [answer] = built.runner.infer({name: given.numpy()}).values()
    assert built.ratio <= 1
    assert 1e-4 < np.abs(answer - (given @ given).numpy()).max() < 0.1


def test_a_stage_refuses_with_its_own_error() -> None:
    with pytest.raises(UnsupportedOps):
        build.build(closed(lambda x: torch.linalg.eig(x)[0], torch.eye(3)), SETTINGS)


def test_a_target_that_cannot_run_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "why_not_runnable", lambda _: "this machine is another")
    with pytest.raises(TargetError, match="cannot run here"):
        build.build(closed(lambda x: x + 1, torch.ones(3)), SETTINGS)


def test_a_fault_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(build, "_build", fail)
    with pytest.raises(AotpipeError, match="ZeroDivisionError: oh"):
        build.build(closed(lambda x: x + 1, torch.ones(3)), SETTINGS)
