"""Text of the compiler's `input` phase that keeps a value apart from the kernels that read it."""

from __future__ import annotations

import re
from collections.abc import Sequence


def kept(name: str, value: str, type_: str, sizes: Sequence[str]) -> list[str]:
    """Lines that make `name` a value behind a barrier.

    Args:
        name: Of the result, without its sign.
        value: What is kept apart.
        type_: Of both.
        sizes: Of the dims that vary: behind a barrier nothing else tells them.
    """
    if not sizes:
        return [f"%{name} = util.optimization_barrier {value} : {type_}"]
    return [
        f"%kept_{name} = util.optimization_barrier {value} : {type_}",
        f"%{name} = flow.tensor.tie_shape %kept_{name} : {type_}{{{', '.join(sizes)}}}",
    ]


def sizes(name: str, value: str, type_: str) -> tuple[list[str], list[str]]:
    """Lines that read the sizes of a value that vary, and what they are called."""
    dims = re.findall(r"(\d+|\?)x", type_)
    varying = [place for place, size in enumerate(dims) if size == "?"]
    lines = [
        line
        for place in varying
        for line in (
            f"%at{place}_{name} = arith.constant {place} : index",
            f"%size{place}_{name} = tensor.dim {value}, %at{place}_{name} : {type_}",
        )
    ]
    return lines, [f"%size{place}_{name}" for place in varying]
