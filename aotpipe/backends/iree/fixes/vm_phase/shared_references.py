"""Has a branch of the bytecode hand one reference to one block argument alone.

A branch moves a reference into the argument that it hands it to. Where it hands it to two, one of them is
null. The compiler makes such branches itself, where it merges the equal ends of nested branches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import Rewrite
from aotpipe.core.fixes import Fix

_REFERENCE: Final = "!vm.ref<"
# The flag of a conditional branch stands before what its two blocks are handed.
_FLAGS: Final = 1


def _separate(branch: Any) -> bool:
    """Have each further argument of a block take another value, which is the same reference."""
    changed = False
    for places in _handed(branch):
        seen: list[Any] = []
        for place in places:
            value = branch.operands[place]
            if not str(value.type).startswith(_REFERENCE):
                continue
            if any(value == other for other in seen):
                branch.operands[place] = _again(branch, value)
                changed = True
            seen.append(value)
    return changed


def _handed(branch: Any) -> Iterator[range]:
    """The places among a branch's operands of what each block is handed."""
    start, counts = 0, [len(branch.operands)]
    if branch.name == "vm.cond_br":
        sizes = branch.attributes["operandSegmentSizes"]
        start, counts = _FLAGS, list(sizes)[_FLAGS:]
    for count in counts:
        yield range(start, start + count)
        start += count


def _again(branch: Any, value: Any) -> Any:
    """Emit a value that is a reference, or null where that is: no pass knows it to be the same."""
    from iree.compiler import ir

    def emit(name: str, kind: Any, *operands: Any) -> Any:
        return ir.Operation.create(name, results=[kind], operands=operands).result

    with ir.InsertionPoint(branch), branch.location:
        null = emit("vm.const.ref.zero", value.type)
        is_there = emit("vm.cmp.nz.ref", ir.IntegerType.get_signless(32), value)
        return emit("vm.select.ref", value.type, is_there, value, null)


FIX: Final = Fix(
    id="shared-references",
    fault="a branch of IREE's bytecode that hands one reference to two block arguments leaves one of them "
    "null, and the compiler makes such branches where it merges the equal ends of nested branches",
    remedy="a branch hands on each reference once, and beside it one that a `vm.select.ref` gives",
    targets=("iree-*",),
    program="a state machine of three phases that keeps a count, of nested `if`s on a tensor",
    diagnostic="ref is null",
    apply=Rewrite(
        ("vm.br", "vm.cond_br"),
        _separate,
        # A module of several branches or loops; no other was seen to have ends that are merged.
        re.compile(rb"scf\.(if|while)\b.*scf\.(if|while)\b", re.DOTALL),
        # A block that is handed one value twice.
        re.compile(rb"\^bb\d+\([^:)]*?(%\w+(?:#\d+)?), [^:)]*?\1[, ]"),
    ),
)
