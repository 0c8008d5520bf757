"""Names of inputs and outputs: one per flattened leaf, unique, without blanks.

Inputs are named by the parameters of the called method, nested ones dotted (`batch.mask`); `*args` as
`args.0`, `**kwargs` by key. Outputs are named by dict keys and fields, else `output`, `output.0`, `output.1`.
Raises `SpecInvalid` when the example inputs do not fit the method's parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aotpipe.canonicalize.inputs import pytrees
from aotpipe.errors import SpecInvalid
from aotpipe.model import source


def check_call(
    call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], entry: str
) -> None:
    """Check that the example inputs fit the parameters.

    Raises:
        SpecInvalid: One is missing, or is not a parameter.
    """
    signature = source.signature_of(call)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise SpecInvalid(
            f"the example inputs do not fit {entry}{signature}",
            reason=str(error),
            where=source.of_definition(call),
        ) from None


def input_leaves(
    call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[tuple[tuple[str, ...], Any]]:
    """Every leaf of `(args, kwargs)` with its path of names, in torch's flattening order."""
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in [*zip(positional_names(call, len(args)), args, strict=True), *_keywords(kwargs)]:
        found += [((*name, *(key.text for key in path)), leaf) for path, leaf in pytrees.leaves(value)]
    return found


def _keywords(kwargs: Mapping[str, Any]) -> list[tuple[tuple[str, ...], Any]]:
    return [((key,), value) for key, value in kwargs.items()]


def positional_names(call: Callable[..., Any], count: int) -> list[tuple[str, ...]]:
    """The names of the first `count` positional arguments."""
    names: list[tuple[str, ...]] = []
    for parameter in source.signature_of(call).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [(parameter.name, str(index)) for index in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append((parameter.name,))
    return names[:count]


def output_names(result: Any) -> tuple[str, ...]:
    """A name for every leaf of a result, in torch's flattening order."""
    return unique(output_name(path) for path, _ in pytrees.leaves(result))


def output_name(path: pytrees.Path) -> str:
    """The name of one leaf of a result."""
    if not path:
        return "output"
    return pytrees.dotted(path) if path[0].named else f"output.{pytrees.dotted(path)}"


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Names without blanks, brackets or colons; a second `x` becomes `x_1`."""
    taken: dict[str, None] = {}
    for name in names:
        clean = re.sub(r"[^\w.\-]+", "_", name) or "_"
        free, count = clean, 0
        while free in taken:
            count += 1
            free = f"{clean}_{count}"
        taken[free] = None
    return tuple(taken)
