"""The function that torch.compile calls with each graph.

AOTAutograd makes it pure: what the graph writes into its arguments becomes a result that is written back, a
view that it returns is made again of its base. That is torch's own interface for backends, private by name
(`torch._dynamo.backends.common`), as there is no other.

A graph whose results are to be differentiated is not compiled: programs have no backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch import fx
from torch._dynamo.backends.common import aot_autograd

from aotpipe.errors import AotpipeError, TrainingNotSupported
from aotpipe.tools.torch_compile import graphs
from aotpipe.tools.torch_compile.programs import Program
from aotpipe.tools.torch_compile.results import COUNTERS, GraphCounter
from aotpipe.tools.torch_compile.settings import Settings


def aotpipe(
    graph: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph: `torch.compile(model, backend="aotpipe")`.

    Args:
        graph: As Dynamo recorded it.
        example_inputs: What it is called with.
        options: The fields of `Settings`: target, fallback, verify, cache.
        mode: None or `default`.

    Raises:
        SpecInvalid: An option that there is not.
    """
    settings = Settings.of(options, mode)
    counter = COUNTERS.add(graphs.where(graph), graphs.ops(graph))
    if torch.is_grad_enabled() and any(_is_trained(each) for each in example_inputs):
        error = TrainingNotSupported(
            "the graph is differentiated, and programs have no backward pass",
            hint="call the model under torch.no_grad(), or after model.requires_grad_(False)",
            where=graphs.where(graph),
        )
        return _eager(graph, settings, counter, error)

    def compiler(pure: fx.GraphModule, _: Any) -> Callable[..., Any]:
        boxed: Callable[..., Any] = make_boxed_func(Program(pure, settings, counter))
        return boxed

    compiled: Callable[..., Any] = aot_autograd(fw_compiler=compiler, inference_compiler=compiler)(
        graph, example_inputs
    )
    return compiled


def _is_trained(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _eager(
    graph: fx.GraphModule, settings: Settings, counter: GraphCounter, error: AotpipeError
) -> Callable[..., Any]:
    counter.fell_back(error.message, error.hint)

    def run(*args: Any) -> Any:
        if settings.fallback == "error":
            raise error
        counter.eager[error.message] += 1
        return graph(*args)

    return run
