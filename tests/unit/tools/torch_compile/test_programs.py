"""A graph that answers by its program, or by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe.errors import UnsupportedOps
from aotpipe.tools.torch_compile import programs
from aotpipe.tools.torch_compile.programs import Program
from aotpipe.tools.torch_compile.results import Graph, GraphCounter
from aotpipe.tools.torch_compile.settings import Settings
from tests.unit.tools.torch_compile import graph


def program(
    call: Any, *args: Any, dynamic: bool | None = None, **options: Any
) -> tuple[Program, GraphCounter, list[Any]]:
    module, flat = graph.of(call, *args, dynamic=dynamic)
    counter = GraphCounter(Graph(number=1, where=None, ops=1, status="waiting"))
    settings = Settings.of({"target": "iree-vmvx", "cache": False, "verify": False, **options})
    return Program(module, settings, counter), counter, flat


def test_sizes_that_vary_take_one_program() -> None:
    run, counter, [*given] = program(lambda x: x * x.shape[0], torch.ones(3, 2), dynamic=True)
    for size in (3, 5, 2):
        args = [size if isinstance(each, int) else torch.ones(size, 2) for each in given]
        assert torch.equal(run(*args)[0], torch.ones(size, 2) * size)
    assert (counter.graph.status, counter.calls, counter.eager.total()) == ("compiled", 3, 0)
    run.close()


def test_a_weight_that_is_written_is_seen_and_again_and_again_is_an_argument() -> None:
    linear = torch.nn.Linear(2, 2)
    run, counter, args = program(lambda x: linear(x), torch.ones(1, 2))
    for number in range(5):
        with torch.no_grad():
            linear.weight.fill_(number)
            assert torch.allclose(run(*args)[0], linear(torch.ones(1, 2)))
    assert (counter.graph.status, counter.calls, run._builds) == ("compiled", 5, 3)


@pytest.mark.slow
def test_too_many_builds_are_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_MOST_BUILDS", 1)
    linear = torch.nn.Linear(2, 2)
    run, counter, args = program(lambda x: linear(x), torch.ones(1, 2))
    for number in range(3):
        with torch.no_grad():
            linear.weight.fill_(number)
            assert torch.allclose(run(*args)[0], linear(torch.ones(1, 2)))
    assert (counter.graph.status, counter.graph.reason) == ("eager", "its weights are written between calls")


def test_what_no_program_takes_is_eager_or_an_error() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eig(x)[0]

    run, counter, args = program(call, torch.eye(2))
    assert torch.equal(run(*args)[0], call(torch.eye(2)))
    assert (counter.graph.status, counter.eager.total()) == ("eager", 1)
    run, _, args = program(call, torch.eye(2), fallback="error")
    with pytest.raises(UnsupportedOps):
        run(*args)


@pytest.mark.slow
def test_a_closed_program_is_built_again() -> None:
    run, counter, args = program(lambda x: x + 1, torch.ones(2))
    for _ in range(2):
        assert torch.equal(run(*args)[0], torch.full((2,), 2.0))
        run.close()
    assert counter.calls == 2


def test_a_graph_of_another_device_is_eager() -> None:
    run, counter, _ = program(lambda x: x + 1, torch.ones(2))
    assert run(torch.ones(2, device="meta"))[0].device.type == "meta"
    assert "an argument is on meta" in counter.graph.reason
