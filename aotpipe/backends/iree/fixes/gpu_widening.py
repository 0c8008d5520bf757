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

from aotpipe.backends.iree.fixes import fusion_barriers

FORM: Final = 2
"""What is written changes with this number, so that no older program is taken from a store."""

_WIDENING: Final = re.compile(
    r" *\^bb0\(%(?P<read>\w+): [^\n]*\n"
    r" *%(?P<wide>\w+) = arith\.(?:ext[su]i|extf|[su]itofp) %(?P=read) : \w+ to [if]64[^\n]*\n"
    r" *linalg\.yield %(?P=wide) : [^\n]*\n"
)


def apart(module: str) -> str | None:
    """The module with each such widening behind a barrier; None where there is none."""
    return fusion_barriers.apart(
        module, lambda generic: generic.reads > 1 and bool(_WIDENING.fullmatch(generic.body))
    )
