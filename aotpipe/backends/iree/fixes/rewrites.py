"""Rewrites of MLIR modules by the compiler's bindings, one op at a time.

`rewritten(module, rewrites)` parses a module, applies rewrites to the ops that they name, and prints it. The
bindings load 200 MB: they are imported where a module has such an op, and not before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

_ERASED: Final = (
    "torch.",
    "torch_c.",
    "tensor.",
    "hal.tensor.",
    "flow.tensor.",
    "util.optimization_barrier",
    "scf.for",
)
"""Ops, by how their names begin, that do nothing where nothing reads their results."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite of single ops.

    Attributes:
        apply: Rewrites one of them in place; gives whether it changed anything.
        made_of: What a lowered module has that becomes such ops in the compiler's first phase.
        seen_as: What the text of a module has in which it changes anything.
    """

    ops: tuple[str, ...]
    apply: Callable[[Any], bool]
    made_of: re.Pattern[bytes] = re.compile(b"")
    seen_as: re.Pattern[bytes] = re.compile(b"")


def rewritten(module: bytes, rewrites: Sequence[Rewrite]) -> bytes | None:
    """The module after some rewrites, with its locations; None where none of them changes it.

    A module that does not parse stays as it is: the compiler says what is wrong with it.
    """
    wanted = [
        rewrite
        for rewrite in rewrites
        if any(name.encode() in module for name in rewrite.ops) and rewrite.seen_as.search(module)
    ]
    if not wanted:
        return None
    from iree.compiler import ir

    with ir.Context(), ir.Location.unknown():
        try:
            parsed = ir.Module.parse(module)
        except ir.MLIRError:
            return None
        changed = [apply_to(parsed.operation, rewrite) for rewrite in wanted]
        if not any(changed):
            return None
        text: str = parsed.operation.get_asm(enable_debug_info=True)
        return text.encode()


def apply_to(root: Any, rewrite: Rewrite) -> bool:
    """Apply a rewrite to what is in an op of IREE's bindings or of jaxlib's; gives whether it changed any."""
    found = [op for op in ops_in(root) if op.name in rewrite.ops]
    changed = [rewrite.apply(op) for op in found]
    return any(changed)


def ops_in(root: Any) -> Iterator[Any]:
    """The ops in the regions of an op of IREE's bindings or of jaxlib's, and it, each after those in it."""
    for region in root.regions:
        for block in region:
            for op in block.operations:
                yield from ops_in(op.operation)
    yield root


def parents(op: Any) -> Iterator[Any]:
    """The ops around an op, from the nearest on."""
    while (op := op.parent) is not None:
        yield op.operation


def maker(value: Any) -> Any:
    """The op that gives a value, or that has the block whose argument it is."""
    from iree.compiler import ir

    return value.owner.owner.operation if isinstance(value.owner, ir.Block) else value.owner.operation


VIEWS: Final = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast", "flow.tensor.tie_shape")
"""What gives the elements of its first operand where they lie."""


def origin(value: Any, through: Collection[str] = VIEWS) -> Any:
    """The value that some ops, such as views, have made a value of, each of its first operand."""
    from iree.compiler import ir

    while not isinstance(value.owner, ir.Block) and maker(value).name in through:
        value = maker(value).operands[0]
    return value


def replace_uses(value: Any, make: Callable[[], Any]) -> None:
    """Have what reads a value read another one, which `make` emits behind it."""
    from iree.compiler import ir

    uses = list(value.uses)
    with ir.InsertionPoint.after(value.owner), value.owner.location:
        other = make()
    for use in uses:
        use.owner.operands[use.operand_number] = other


def erase_unread(values: Sequence[Any]) -> None:
    """Erase the ops of values that nothing reads, and what nothing reads then.

    Loops over buffers and the barriers around these are among them: the compiler would run them.
    """
    waiting = _owners(values)
    while waiting:
        op = waiting.pop()
        if any(list(result.uses) for result in op.results) or not op.name.startswith(_ERASED):
            continue
        inner = list(ops_in(op))
        around = _owners([operand for each in inner for operand in each.operands])
        around = [owner for owner in around if owner not in inner and owner not in waiting]
        op.erase()
        waiting += around


def _owners(values: Sequence[Any]) -> list[Any]:
    """The ops that give some values, each once."""
    found: list[Any] = []
    for value in values:
        # Of a block's argument it is the block.
        owner = getattr(value.owner, "operation", None)
        if owner is not None and owner not in found:
            found.append(owner)
    return found


def fusion_barrier(value: Any, sizes: Sequence[Any]) -> Any:
    """Emit a value behind a fusion barrier: no kernel computes both it and what reads it.

    `sizes` are those of its dims that vary, as indices: behind the barrier nothing else tells them.
    """
    from iree.compiler.dialects import flow, util

    kept = util.optimization_barrier([value.type], [value])
    return flow.tensor_tie_shape(kept, sizes) if sizes else kept


def put_results_behind_barriers(op: Any) -> None:
    """Put each result of an op of linalg behind a fusion barrier."""
    from aotpipe.backends.iree.lower.region_borders import dynamic_dims

    def barred(result: Any, out: Any) -> Any:
        # The sizes are the empty tensor's, which no kernel makes.
        return fusion_barrier(result, dynamic_dims(out))

    for result, out in zip(op.results, list(op.operands)[-len(op.results) :], strict=True):
        replace_uses(result, partial(barred, result, out))
