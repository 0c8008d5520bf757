"""Graphs as torch.compile hands them over, with the arguments of their first call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch import fx
from torch._dynamo.backends.common import aot_autograd


def of(call: Callable[..., Any], *args: Any, dynamic: bool | None = None) -> tuple[fx.GraphModule, list[Any]]:
    """The one graph of a call, and its flat arguments."""
    graphs: list[fx.GraphModule] = []
    given: list[list[Any]] = []

    def compiler(graph: fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)

        def run(*flat: Any) -> Any:
            given.append(list(flat))
            return graph(*flat)

        return make_boxed_func(run)

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=compiler)
    with torch.no_grad():
        torch.compile(call, backend=backend, dynamic=dynamic)(*args)
    [graph], [flat] = graphs, given
    return graph, flat
