"""Has a tensor that is updated and used again be copied first, in programs whose host reads a number.

The compiler writes an update into the tensor itself where it is the last in the program that uses it. What
the host reads divides the program into parts, and the compiler then moves what uses the tensor into the part
that needs it, which may be one behind the update. It takes several concatenations for updates of one tensor
where they begin with the same operands.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from typing import Any, Final

from aotpipe.backends.iree.fixes import opaque_zero
from aotpipe.backends.iree.fixes.rewrites import VIEWS, Rewrite, maker, ops_in, origin
from aotpipe.core.fixes import Fix

_UPDATES: Final = {"tensor.insert_slice": 1, "iree_linalg_ext.scatter": -1}
"""The place among an update's operands of the tensor that it is of."""
_OWN_BUFFERS: Final = ("linalg.fill", "tensor.empty", "arith.constant")
"""What the compiler makes anew for each use."""
_DIVIDES: Final = ("tensor.extract", "hal.buffer.load", "scf.", "cf.", "util.call", "func.call")
_KERNELS: Final = ("linalg.", "iree_linalg_ext.")


def _separate(function: Any) -> bool:
    """Copy what is updated and used again, and the first operands of concatenations that begin alike."""
    from iree.compiler import ir

    ops = list(_outside_of_kernels(function))
    if not any(op.name.startswith(_DIVIDES) for op in ops):
        return False
    keys = _Keys()
    users: dict[int, set[Any]] = {}
    concatenations: dict[Hashable, list[Any]] = {}
    for op in ops:
        if op.name in VIEWS or op.name == "tensor.dim":
            continue
        for operand in _read(op):
            users.setdefault(keys.of(operand), set()).add(op)
        if op.name == "tensor.concat":
            begins = (str(op.result.type), str(op.attributes["dim"]), keys.of(op.operands[0]))
            concatenations.setdefault(begins, []).append(op)
    found = [
        (op, _UPDATES[op.name] % len(op.operands))
        for op in ops
        if op.name in _UPDATES and _is_used_again(op, users, keys)
    ]
    found += [(op, 0) for alike in concatenations.values() for op in alike[1:]]
    for number, (op, place) in enumerate(found, 1):
        opaque_zero.define(op)
        with ir.InsertionPoint(op), op.location:
            op.operands[place] = opaque_zero.copied(op.operands[place], number)
    return bool(found)


def _is_used_again(update: Any, users: dict[int, set[Any]], keys: _Keys) -> bool:
    target = update.operands[_UPDATES[update.name]]
    return maker(origin(target)).name not in _OWN_BUFFERS and len(users[keys.of(target)]) > 1


class _Keys:
    """Numbers of what values are: two that are computed alike, which the compiler may make one, have one."""

    def __init__(self) -> None:
        self._of_values: dict[Any, int] = {}
        self._numbers: dict[Hashable, int] = {}

    def of(self, value: Any) -> int:
        """The number of a value; a view of it has the same."""
        waiting = [origin(value)]
        while waiting:
            each = waiting[-1]
            missing = [given for given in map(origin, self._given(each)) if given not in self._of_values]
            if missing:
                waiting += missing
            else:
                waiting.pop()
                self._of_values[each] = self._numbers.setdefault(self._made(each), len(self._numbers))
        return self._of_values[origin(value)]

    @staticmethod
    def _given(value: Any) -> list[Any]:
        op = maker(value)
        return list(op.operands) if op.name.startswith(_COMPUTED) and not _is_argument(value) else []

    def _made(self, value: Any) -> Hashable:
        op = maker(value)
        if _is_argument(value) or not op.name.startswith(_COMPUTED):
            made: Hashable = value
            return made
        at = next(place for place, result in enumerate(op.results) if result == value)
        inside = "".join(str(block) for region in op.regions for block in region)
        attributes = tuple((str(name), op.attributes[name]) for name in op.attributes)
        given = tuple(self._of_values[origin(each)] for each in op.operands)
        return op.name, at, value.type, attributes, inside, given


_COMPUTED: Final = ("linalg.", "tensor.", "iree_linalg_ext.", "arith.", "math.", "flow.tensor.")


def _outside_of_kernels(op: Any) -> Iterator[Any]:
    """The ops in an op's regions, but for those of a kernel's body."""
    for region in op.regions:
        for block in region:
            for each in block.operations:
                inner = each.operation
                yield inner
                if not inner.name.startswith(_KERNELS):
                    yield from _outside_of_kernels(inner)


def _read(op: Any) -> Iterator[Any]:
    """The tensors that an op uses, also in a kernel's body."""
    for inner in ops_in(op) if op.name.startswith(_KERNELS) else (op,):
        for operand in inner.operands:
            if str(operand.type).startswith("tensor<"):
                yield operand


def _is_argument(value: Any) -> bool:
    from iree.compiler import ir

    return isinstance(value.owner, ir.Block)


_READS: Final = rb"nonzero|aten\.(item|Int|Bool|Float)|tensor\.extract|scf\.|prim\.(If|Loop)|hal\.buffer"
_WRITES: Final = rb"cat|scatter|index_put|dynamic_update_slice"

FIX: Final = Fix(
    id="reordered-updates",
    fault="IREE writes an update into a tensor before what uses the tensor reads it, where a number that the "
    "host reads stands between them",
    remedy="a tensor that is updated and used again is copied first by a kernel that no other is merged with",
    targets=("iree-*",),
    program="`y = x @ x; a = torch.cat([y, x]) * 2; b = torch.cat([y, -x]); return a, b[b > 0]`",
    apply=Rewrite(
        ("util.func", "func.func"),
        _separate,
        re.compile(rb"\A(?=.*(%b))(?=.*(%b))" % (_READS, _WRITES), re.DOTALL),
    ),
)
