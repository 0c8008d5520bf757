"""A graph goes through the stages and answers by its program, or by itself; the options of the backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from aotpipe.errors import AotpipeError, SpecInvalid, TargetError, UnknownTarget, UnsupportedOps
from aotpipe.tools.torch_compile import graphs, programs
from aotpipe.tools.torch_compile.programs import Program, Settings
from aotpipe.tools.torch_compile.results import Graph
from tests.unit.tools.torch_compile import graph


def program(
    call: Any, *args: Any, dynamic: bool | None = None, **options: Any
) -> tuple[Program, Graph, list[Any]]:
    module, flat = graph.of(call, *args, dynamic=dynamic)
    counter = Graph(number=1, where=None, ops=1)
    settings = Settings.of({"target": "iree-vmvx", "cache": False, "verify": False, **options})
    return Program(module, settings, counter), counter, flat


def test_sizes_that_vary_take_one_program() -> None:
    run, counter, [*given] = program(lambda x: x * x.shape[0], torch.ones(3, 2), dynamic=True)
    for size in (3, 5, 2):
        args = [size if isinstance(each, int) else torch.ones(size, 2) for each in given]
        assert torch.equal(run(*args)[0], torch.ones(size, 2) * size)
    assert (counter.status, counter.calls, counter.eager_calls) == ("compiled", 3, 0)
    run.close()


def test_a_weight_that_is_written_is_seen_and_again_and_again_is_an_argument() -> None:
    linear = torch.nn.Linear(2, 2)
    run, counter, args = program(lambda x: linear(x), torch.ones(1, 2))
    for number in range(5):
        with torch.no_grad():
            linear.weight.fill_(number)
            assert torch.allclose(run(*args)[0], linear(torch.ones(1, 2)))
    assert (counter.status, counter.calls, run._builds) == ("compiled", 5, 3)


@pytest.mark.slow
def test_too_many_builds_are_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_MOST_BUILDS", 1)
    linear = torch.nn.Linear(2, 2)
    run, counter, args = program(lambda x: linear(x), torch.ones(1, 2))
    for number in range(3):
        with torch.no_grad():
            linear.weight.fill_(number)
            assert torch.allclose(run(*args)[0], linear(torch.ones(1, 2)))
    assert (counter.status, counter.reason) == ("eager", "its weights are written between calls")


def test_what_no_program_takes_is_eager_or_an_error() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eig(x)[0]

    run, counter, args = program(call, torch.eye(2))
    assert torch.equal(run(*args)[0], call(torch.eye(2)))
    assert (counter.status, counter.eager_calls) == ("eager", 1)
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
    assert "an argument is on meta" in counter.reason


SETTINGS = Settings.of({"target": "iree-vmvx", "cache": False})


def closed(call: object, *args: object) -> graphs.Closed:
    module, flat = graph.of(call, *args)
    return graphs.closed(module, graphs.arguments(module), flat)


def test_a_program_is_at_parity() -> None:
    built = programs.build(closed(lambda x: x * 2 + 1, torch.ones(3)), SETTINGS)
    [name] = [leaf.name for leaf in built.signature.tensor_inputs]
    [answer] = built.runner.infer({name: np.full(3, 4, np.float32)}).values()
    assert np.array_equal(answer, np.full(3, 9, np.float32))
    assert built.ratio <= 1


def test_a_program_has_the_precision_of_the_settings() -> None:
    settings = Settings.of({"target": "iree-vmvx", "cache": False, "dtype": "bf16"})
    given = torch.linspace(-1, 1, 64).reshape(8, 8)
    built = programs.build(closed(lambda x: x @ x, given), settings)
    [name] = [leaf.name for leaf in built.signature.tensor_inputs]
    [answer] = built.runner.infer({name: given.numpy()}).values()
    assert built.ratio <= 1
    assert 1e-4 < np.abs(answer - (given @ given).numpy()).max() < 0.1


def test_a_stage_refuses_with_its_own_error() -> None:
    with pytest.raises(UnsupportedOps):
        programs.build(closed(lambda x: torch.linalg.eig(x)[0], torch.eye(3)), SETTINGS)


def test_a_target_that_cannot_run_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "why_not_runnable", lambda _: "this machine is another")
    with pytest.raises(TargetError, match="cannot run here"):
        programs.build(closed(lambda x: x + 1, torch.ones(3)), SETTINGS)


def test_a_fault_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(programs, "_build", fail)
    with pytest.raises(AotpipeError, match="ZeroDivisionError: oh"):
        programs.build(closed(lambda x: x + 1, torch.ones(3)), SETTINGS)


def test_what_is_left_out_has_its_default() -> None:
    settings = Settings.of()
    assert (str(settings.target), settings.fallback, settings.verify, settings.cache) == (
        "iree-cpu-host",
        "eager",
        True,
        True,
    )
    assert Settings.of({"target": "iree-vmvx", "fallback": "error"}, "default").fallback == "error"


@pytest.mark.parametrize(
    ("options", "mode", "message"),
    [
        ({"targets": "iree-vmvx"}, None, "no option 'targets'"),
        ({"fallback": "inductor"}, None, "fallback is 'inductor'"),
        ({"target": "xla-cpu-host"}, None, "one IREE target"),
        ({}, "max-autotune", "no mode 'max-autotune'"),
        ({"dtype": "f8"}, None, "no dtype"),
        ({"keep_float32": ["gelu"]}, None, "nothing is computed in another dtype"),
    ],
)
def test_what_is_no_option_is_refused(options: dict[str, object], mode: str | None, message: str) -> None:
    with pytest.raises(SpecInvalid, match=message):
        Settings.of(options, mode)


def test_an_unknown_target() -> None:
    with pytest.raises(UnknownTarget):
        Settings.of({"target": "iree-abacus"})


def test_parts_of_a_graph_run_eagerly_where_programs_are_ires_own_in_the_models_dtypes() -> None:
    assert Settings.of().model_options["allow_islands"]
    for options in ({"dtype": "bf16", "keep_float32": ["gelu"]}, {"dialect": "stablehlo"}):
        found = Settings.of(options).model_options
        assert options.items() <= found.items()
        assert not found["allow_islands"]
    with pytest.raises(TargetError, match="no dialect 'tosa'"):
        Settings.of({"dialect": "tosa"})
