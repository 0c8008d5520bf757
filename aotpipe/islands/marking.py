"""`eager_island`: marks a function that stays Python where the model around it becomes programs.

Called eagerly it is the function. Within `sites.recording()` each call is noted, so that it is known what it
gives; while a model is traced the call becomes one opaque op of the graph (`tracing`), at which the graph is
cut. Importing this module and marking a function import no torch.

Raises:
    IslandsNotAllowed: A model that calls it is traced, and nothing said that it may be cut.
    SpecInvalid: It takes or gives what cannot pass between Python and a program.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

from aotpipe.islands import sites
from aotpipe.model import source
from aotpipe.runtime.islands.chain import MARK, MARKS, Arrays, Mark

P = ParamSpec("P")
R = TypeVar("R")


@overload
def eager_island(function: Callable[P, R]) -> Callable[P, R]: ...


@overload
def eager_island(
    *, arrays: Arrays = ..., reason: str = ..., name: str = ...
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def eager_island(
    function: Callable[..., Any] | None = None, *, arrays: Arrays = "torch", reason: str = "", name: str = ""
) -> Any:
    """Mark a function that stays Python.

    Args:
        function: Takes and gives tensors, numbers, and lists, tuples and dicts of them; equal arguments must
            give equal results, and it must not write into its arguments.
        arrays: `numpy` where the function takes and gives numpy's arrays: it then runs without torch.
        reason: Why it is no part of a program, for those who read the listing.
        name: `module:function` by default; how a host finds it.
    """
    if function is None:
        return functools.partial(eager_island, arrays=arrays, reason=reason, name=name)
    mark = Mark(
        function=function,
        name=name or f"{_module(function)}:{function.__qualname__}",
        arrays=arrays,
        reason=reason or "marked as an eager island",
    )

    MARKS[mark.name] = mark

    @functools.wraps(function)
    def island(*args: Any, **kwargs: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None:
            return mark.function(*args, **kwargs)
        if torch.compiler.is_exporting():
            from aotpipe.islands import tracing

            return tracing.call(mark, args, kwargs)
        return sites.call(mark, args, kwargs)

    # Whoever looks behind decorators would find a function that can be rewritten.
    del island.__wrapped__
    setattr(island, MARK, mark)
    if "torch" in sys.modules:
        # torch.compile breaks its graph here.
        return sys.modules["torch"].compiler.disable(island)
    return island


def _module(function: Callable[..., Any]) -> str:
    """The name by which a host imports a function's module: that of the file where it was run by its path."""
    name, code = function.__module__, getattr(function, "__code__", None)
    if code is not None and (name == "__main__" or name.startswith(source.FILE_MODULE)):
        return Path(code.co_filename).stem
    return name
