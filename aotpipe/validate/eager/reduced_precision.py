"""Runs a model under a precision policy, op by op: what its programs' numbers are judged beside.

Inside `with Narrow(policy):` products get operands in the lower dtype, islands in float32, and all other ops
the widest that they are given; `legalize.precision` writes the same into programs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import torch
from torch._ops import HigherOrderOperator
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

# Both imports are private: as in `widen`, a dispatch mode is the one place that sees every op.
from torch.utils._python_dispatch import TorchDispatchMode

from aotpipe.core.precision import Precision
from aotpipe.passes.autocast import Cast, Casting, is_mutable, name_of

_NO_DEVICE: Final = "xla"


class Narrow:
    """A context in which a policy decides what each op is computed in."""

    def __init__(self, policy: Precision) -> None:
        self._policy = policy
        self._stack = ExitStack()

    def __enter__(self) -> None:
        # torch's recurrent layers compare the dtypes of input and weights, unless some autocast is on: that
        # of a device without tensors changes nothing else.
        torch.set_autocast_enabled(_NO_DEVICE, True)
        self._stack.callback(torch.set_autocast_enabled, _NO_DEVICE, False)
        self._stack.enter_context(_Functions(self._policy))
        self._stack.enter_context(_Ops(self._policy))

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()


class _Functions(TorchFunctionMode):
    """Sees functions that torch takes apart, and which refuse operands of different dtypes before."""

    def __init__(self, policy: Precision) -> None:
        super().__init__()
        self._casting = Casting(policy)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one function."""
        name = str(getattr(func, "__name__", ""))
        mutable = name.startswith("__") or name.endswith("_")
        return _run(self._casting, name, func, args, kwargs or {}, mutable=mutable)


class _Ops(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every op, within torch's functions too."""

    supports_higher_order_operators = True

    def __init__(self, policy: Precision) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._casting = Casting(policy)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one op."""
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            # Its branches run while the mode is off, so each turns it on again; all carry float32.
            args, kwargs = pytree.tree_map(self._inside, (args, kwargs))
            return func(*args, **kwargs)
        return _run(self._casting, name_of(func), func, args, kwargs, mutable=is_mutable(func))

    def _inside(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return _cast(value, self._casting.up)
        if not callable(value) or isinstance(value, torch.dtype):
            return value
        body: Callable[..., Any] = value

        def run(*args: Any) -> Any:
            with self:
                return _cast(body(*args), self._casting.up)

        return run


def _run(
    casting: Casting, name: str, function: Any, args: Any, kwargs: dict[str, Any], *, mutable: bool
) -> Any:
    """Call a function on cast operands, in the first way that it takes."""
    leaves = pytree.tree_leaves((args, kwargs))
    dtypes = [leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if casting.lower not in dtypes and (torch.float32 not in dtypes or casting.policy.kind(name) == "other"):
        return function(*args, **kwargs)
    asked = any(isinstance(leaf, torch.dtype) for leaf in leaves)
    trials = list(casting.trials(name, dtypes, mutable=mutable))
    for number, (before, after) in enumerate(trials):
        try:
            found = function(*_cast(args, before), **_cast(kwargs, before))
        except (RuntimeError, NotImplementedError):
            if number + 1 == len(trials):
                raise
            continue
        return found if asked else _cast(found, after)
    raise AssertionError(name)


def _cast(values: Any, cast: Cast) -> Any:
    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        wanted = cast(value.dtype)
        return value if wanted is value.dtype else value.to(wanted)

    return pytree.tree_map(one, values)
