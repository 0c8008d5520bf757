"""A backend of torch.compile: graphs run as IREE programs, and what cannot is run eagerly and counted.

    compiled = torch.compile(model, backend="aotpipe")
    print(aotpipe.dynamo.counts())

Each graph goes through the stages of a build at its first call, sizes that vary as such, and its first answer
is compared with eager's. Importing this package registers the backend where the installed entry point has
not. The backend is for inference: a graph whose results are to be differentiated is not compiled, since
programs have no backward pass.

AOTAutograd makes a graph pure: what the graph writes into its arguments becomes a result that is written
back, a view that it returns is made again of its base. That is torch's own interface for backends, private by
name (`torch._dynamo.backends.common`), as there is no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Final

import torch
from functorch.compile import make_boxed_func
from torch import fx
from torch._dynamo.backends import registry  # public as torch._dynamo.register_backend alone
from torch._dynamo.backends.common import aot_autograd

from aotpipe.errors import TrainingNotSupported
from aotpipe.tools.torch_compile import graphs
from aotpipe.tools.torch_compile.programs import Program, Settings
from aotpipe.tools.torch_compile.results import COUNTERS, Counts, Graph

__all__ = ["NAME", "Counts", "Graph", "aotpipe", "counts", "reset"]

NAME: Final = "aotpipe"
counts, reset = COUNTERS.counts, COUNTERS.reset


def aotpipe(
    graph: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph: `torch.compile(model, backend="aotpipe")`.

    `options` are the fields of `Settings`; the mode is None or `default`.

    Raises:
        SpecInvalid: An option that there is not.
    """
    settings = Settings.of(options, mode)
    counter = COUNTERS.add(graphs.where(graph), graphs.ops(graph))
    if torch.is_grad_enabled() and any(
        isinstance(each, torch.Tensor) and each.requires_grad for each in example_inputs
    ):
        error = TrainingNotSupported(
            "the graph is differentiated, and programs have no backward pass",
            hint="call the model under torch.no_grad(), or after model.requires_grad_(False)",
            where=graphs.where(graph),
        )
        return Program(graph, settings, counter, failed=error)

    def compiler(pure: fx.GraphModule, _: Any) -> Callable[..., Any]:
        boxed: Callable[..., Any] = make_boxed_func(Program(pure, settings, counter))
        return boxed

    compiled: Callable[..., Any] = aot_autograd(fw_compiler=compiler, inference_compiler=compiler)(
        graph, example_inputs
    )
    return compiled


# torch takes a name once, and registers what an entry point names by itself.
if not entry_points(group="torch_dynamo_backends", name=NAME) and NAME not in registry.list_backends(()):
    registry.register_backend(aotpipe, name=NAME)
