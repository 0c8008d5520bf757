"""Keeps numbers that become 64 bits wide apart from the GPU kernels that read them.

The compiler (3.13) makes a widening anew in each kernel that reads it, and where that kernel reduces numbers
of 64 bits it does not fuse the two: the widened row goes to the memory that a workgroup shares. SPIR-V
programs are refused for it ("uses 64000 bytes of shared memory; exceeded the limit of 32768 bytes"), CUDA's
cannot be distributed ("op failed to distribute"). Behind a barrier it is made once. `apart(module)`
takes a module in the compiler's `input` phase; None where nothing that is read more than once becomes wider.
"""

from __future__ import annotations

import re
from typing import Final

from aotpipe.backends.iree.barriers import kept, sizes

FORM: Final = 1
"""What is written changes with this number, so that no older program is taken from a store."""

_FUNCTION: Final = re.compile(r"^  util\.func .*?^  }", re.MULTILINE | re.DOTALL)
_WIDENING: Final = re.compile(
    r"^(?P<space> *)%(?P<name>\d+) = (?P<op>linalg\.generic [^\n]*ins\(%\w+ : tensor<[^>]*>\) "
    r"outs\(%(?P<out>[\w#]+) : tensor<[^>]*>\) \{\n"
    r" *\^bb0\(%(?P<read>\w+): [^\n]*\n"
    r" *%(?P<wide>\w+) = arith\.(?:ext[su]i|extf|[su]itofp) %(?P=read) : \w+ to [if]64[^\n]*\n"
    r" *linalg\.yield %(?P=wide) : [^\n]*\n"
    r" *\} -> (?P<type>tensor<[^>]*>))(?P<end>[^\n]*)$",
    re.MULTILINE,
)


def apart(module: str) -> str | None:
    """The module with each such widening behind a barrier; None where there is none."""
    changed = _FUNCTION.sub(lambda function: _WIDENING.sub(_barred, function[0]), module)
    return changed if changed != module else None


def _barred(found: re.Match[str]) -> str:
    name = found["name"]
    if len(re.findall(rf"%{name}\b", found.string)) <= 2:
        return found[0]
    wide = f"wide_{name}"
    # The sizes are the empty tensor's, which no kernel makes.
    before, varying = sizes(name, f"%{found['out']}", found["type"])
    lines = [f"%{wide} = {found['op']}", *before, *kept(name, f"%{wide}", found["type"], varying)]
    return "\n".join(f"{found['space']}{line}{found['end']}" for line in lines)
