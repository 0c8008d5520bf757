"""Keeps reductions over other dims than the last apart from what reads them, for SPIR-V programs.

The compiler (3.13) puts `x / x.sum(1, keepdim=True)` into one kernel, spreads the sums over the threads by
other dims than the quotients, and leaves out the barrier between: a thread reads what another has not
written yet (`x.softmax(1)` of `float32[2, 3, 4, 5]` was infinite on Vulkan). Where the dims that stay come
first, each thread reads its own. `apart(module)` takes a module in the compiler's `input` phase; None where
there is none.
"""

from __future__ import annotations

import re
from typing import Final

from aotpipe.backends.iree.fixes import fusion_barriers

FORM: Final = 1
"""What is written changes with this number, so that no older program is taken from a store."""

_NOT_LAST: Final = re.compile(r'iterator_types = \[[^]]*"reduction"[^]]*"parallel"')


def apart(module: str) -> str | None:
    """The module with each such reduction behind a barrier; None where there is none."""
    return fusion_barriers.apart(module, lambda generic: bool(_NOT_LAST.search(generic.head)))
