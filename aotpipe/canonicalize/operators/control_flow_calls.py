"""`torch.cond` and `torch.while_loop` of the model's own code: in a staged trace, its `if` and `while`.

torch compiles their bodies by themselves, and refuses where a mode of torch functions is on, as ours is while
a model is staged. What the bodies take from outside, draw and write is found as in any branch and loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._higher_order_ops import utils  # what both hand their compiled bodies to; it has no public form

from aotpipe.canonicalize.operators import conditional, operators
from aotpipe.canonicalize.trace import torch_functions
from aotpipe.canonicalize.values import trace
from aotpipe.canonicalize.values.abstract_values import Variables


def staged() -> AbstractContextManager[None]:
    """Let both be staged while the body runs."""
    compiled = utils._hop_compile_and_call  # noqa: SLF001

    def call(
        function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        match function.__name__:
            case "_cond_op_wrapper":
                return _cond(*args)
            case "_while_loop_op_wrapper":
                return _while_loop(*args)
        return compiled(function, args, kwargs)  # type: ignore[no-untyped-call]

    return trace.assigned(utils, _hop_compile_and_call=call)


def _cond(test: Any, then: Callable[..., Any], other: Callable[..., Any], operands: Sequence[Any]) -> Any:
    if isinstance(test, torch.SymBool):
        test = torch_functions.as_tensor(test)
    return conditional.choose(test, lambda: then(*operands), lambda: other(*operands))


def _while_loop(
    test: Callable[..., Any], body: Callable[..., Any], carried: Sequence[Any], extra: Sequence[Any]
) -> tuple[Any, ...]:
    values = list(carried)

    def step() -> None:
        values[:] = body(*values, *extra)

    names = (f"the carried input {place}" for place in range(len(values)))
    variables = Variables.of_list(values, *names, watched=lambda: (("the test", test), ("the body", body)))
    operators.loop(lambda: test(*values, *extra), step, variables)
    return tuple(values)
