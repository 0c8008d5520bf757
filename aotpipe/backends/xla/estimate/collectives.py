"""Counts the collectives in a compiled program: what its devices send each other. Torch-free.

    counted(hlo)            {"all-reduce": 2, "all-gather": 1}

The count is of instructions in the program's text: one in the body of a loop counts once. What runs beside
other work is two instructions, of which the start counts.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

KINDS: Final = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
# An instruction is `%name = TYPE KIND(OPERANDS), ...`; its name and metadata may hold a kind's word, too.
_INSTRUCTION: Final = re.compile(
    rf"^\s*(?:ROOT )?%?[\w.-]+ = .*?\s({'|'.join(KINDS)})(?:-start)?\(", re.MULTILINE
)


def counted(hlo: str) -> dict[str, int]:
    """The collectives in a program's HLO text, by kind, in the order of `KINDS`."""
    found = Counter(_INSTRUCTION.findall(hlo))
    return {kind: found[kind] for kind in KINDS if found[kind]}
