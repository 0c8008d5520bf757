"""Keeps slices apart from what reads them, where SPIR-V programs would read other elements.

The compiler (3.13) reads 16 bytes at a time wherever the rows of a buffer are a multiple of that, and rounds
down the place where a slice of such rows begins: `x[:, 1:9] * 2` of 16 columns was `x[:, 0:8] * 2` on Vulkan,
without a word. A slice that is a copy of its own is right; between barriers, or it is joined with what makes
the rows. `apart(module)` takes a module in the compiler's `input` phase; None where no slice begins at such
a place.
"""

from __future__ import annotations

import re
from typing import Final

from aotpipe.backends.iree.fixes.fusion_barriers import kept, sizes

FORM: Final = 1
"""What is written changes with this number, so that no older program is taken from a store."""

# What a slice begins at a multiple of is read right.
_ACCESS_BITS: Final = 128
_SLICE: Final = re.compile(
    r"^(?P<space> *)%(?P<name>\w+) = tensor\.extract_slice %(?P<rows>[\w#]+)"
    r"(?P<place>\[(?P<offsets>[^]]*)\] \[(?P<sizes>[^]]*)\] \[[^]]*\]) "
    r": (?P<source>tensor<(?P<dims>(?:[\d?]+x)+)[a-z]+(?P<bits>\d+)\w*>) "
    r"to (?P<type>tensor<(?:[\d?]+x)*\w+>)(?P<end>[^\n]*)$",
    re.MULTILINE,
)


def apart(module: str) -> str | None:
    """The module with each such slice behind a barrier; None where there is none."""
    changed, count = _SLICE.subn(_barred, module)
    return changed if count and changed != module else None


def _barred(found: re.Match[str]) -> str:
    if _is_aligned(found):
        return found[0]
    name, rows, source, type_ = (found[key] for key in ("name", "rows", "source", "type"))
    lines, varying = sizes(name, f"%{rows}", source)
    lines += kept(f"rows_{name}", f"%{rows}", source, varying)
    lines.append(f"%slice_{name} = tensor.extract_slice %rows_{name}{found['place']} : {source} to {type_}")
    own = [size for size in found["sizes"].split(", ") if size.startswith("%")]
    lines += kept(name, f"%slice_{name}", type_, own)
    return "\n".join(f"{found['space']}{line}{found['end']}" for line in lines)


def _dims(found: re.Match[str]) -> list[str]:
    return found["dims"].removesuffix("x").split("x")


def _is_aligned(found: re.Match[str]) -> bool:
    """Whether a slice begins, in the innermost dims that are read as one, where an access may."""
    offsets, sizes = (found[key].split(", ") for key in ("offsets", "sizes"))
    inner = 1
    for offset, size, dim in zip(reversed(offsets), reversed(sizes), reversed(_dims(found)), strict=True):
        if offset != "0" or size != dim or dim == "?":
            begin = int(offset) if offset.isdecimal() else 1
            return begin * inner * max(8, int(found["bits"])) % _ACCESS_BITS == 0
        inner *= int(dim)
    return True
