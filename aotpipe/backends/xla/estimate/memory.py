"""Programs that do not fit into a chip's memory: what takes it, and what to do.

`require_room` finds out before any compiler runs whether weights, state and inputs alone are too large.
`overflow` reads from a compiler's words that the whole program is; None where it complains of something else.
Both tell it as a `DeviceMemoryExceeded` that names the largest tensors. Torch-free.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aotpipe.backends.xla.estimate import chips
from aotpipe.core.targets import Target
from aotpipe.core.units import size
from aotpipe.errors import Buffer, DeviceMemoryExceeded

_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE: Final = r"([\d.]+)([KMGT]?)"
# libtpu has said it in both ways.
_OVERFLOWS: Final = (
    re.compile(rf"Ran out of memory on HBM.*?\({_SIZE}\) exceeds available HBM \({_SIZE}\)", re.DOTALL),
    re.compile(rf"Ran out of memory in memory space hbm.*?Used {_SIZE} of {_SIZE} hbm", re.DOTALL),
)


def name_of(program: Mapping[str, Any]) -> str:
    """An entry point and its sizes, as `Lowered.largest` knows them."""
    sizes = (f"{name}={size}" for name, size in sorted(program["sizes"].items()))
    return " ".join([program["entry_point"], *sizes])


def require_room(program: Mapping[str, Any], target: Target, largest: Sequence[Buffer]) -> None:
    """Refuse a program whose arguments alone are more than the chip has.

    Args:
        program: Its entry of the module's index, with `arguments_bytes`.
        target: The chip.
        largest: Its largest tensors.

    Raises:
        DeviceMemoryExceeded: Before anything is compiled.
    """
    chip, needed = chips.chip(target), program["arguments_bytes"]
    if chip is not None and needed > chip.memory:
        held = [each for each in largest if each.kind != "result"]
        raise _error(
            f"the weights, state and inputs of {name_of(program)!r} are {size(needed)}",
            target,
            (needed, chip.memory),
            held,
        )


def overflow(
    words: str, program: Mapping[str, Any], target: Target, largest: Sequence[Buffer], log: str = ""
) -> DeviceMemoryExceeded | None:
    """The compiler's words as an error, where they tell of too little memory.

    Args:
        words: What it said.
        program: The program's entry of the module's index.
        target: The chip.
        largest: Its largest tensors.
        log: Where all of the words are.
    """
    found = next((match for pattern in _OVERFLOWS if (match := pattern.search(words))), None)
    if found is None:
        return None
    number, unit, limit, limit_unit = found.groups()
    needed, available = int(float(number) * _UNITS[unit]), int(float(limit) * _UNITS[limit_unit])
    says = f"the program {name_of(program)!r} takes {size(needed)} of memory"
    return _error(says, target, (needed, available), largest, log)


def _error(
    says: str, target: Target, sizes: tuple[int, int], largest: Sequence[Buffer], log: str = ""
) -> DeviceMemoryExceeded:
    needed, available = sizes
    return DeviceMemoryExceeded(
        f"{says}, and {target} has {size(available)}",
        reason="\n".join(["its largest tensors:", *map(_row, largest)] if largest else []),
        hint=_remedy(target, needed, largest),
        where=next((each.where for each in largest if each.where), None),
        log=log,
        buffers=largest,
    )


def _row(buffer: Buffer) -> str:
    place = f", {buffer.where}" if buffer.where else ""
    return f"{size(buffer.size_bytes):>9}  {buffer.kind} {buffer.name}{place}"


def _remedy(target: Target, needed: int, largest: Sequence[Buffer]) -> str:
    held = sum(each.size_bytes for each in largest if each.kind in {"weight", "state"})
    smaller = (
        "hold the weights in fewer bytes: `model.bfloat16()`"
        if 2 * held > needed
        else "build it for smaller sizes: a smaller example, or smaller --buckets"
    )
    larger = chips.with_memory(target.device, needed)
    return f"{smaller}; or take a chip with more memory: -t {larger}" if larger else smaller
