"""Prints how much of torch's core ATen opset the XLA path takes, and what is missing.

usage: core_aten.py

An op is covered where the lowering to StableHLO has an entry for it or a decomposition leads away from it;
that the numbers are right is shown by `python -m tests.opinfo`. Not counted, and listed: random ops, those of
training, results whose size depends on data without a bound, and ops that change an operand, which no
exported graph holds. Exit code 1 where something is missing.
"""

from __future__ import annotations

import sys

import torch
from torch._ops import OpOverload

from aotpipe.backends import legalization
from aotpipe.backends.xla.ops import table

# Without a bound, of a size that only data knows.
UNBOUNDED = frozenset({"masked_select", "nonzero", "nonzero_static", "unique", "unique_consecutive"})
# Of a tensor's size, or the number that it holds: the interpreter's own.
NUMBERS = frozenset({"_local_scalar_dense", "sym_numel", "sym_size", "sym_storage_offset", "sym_stride"})
# Names of torch's training, which a program has none of.
BACKWARD = "_backward"


def core() -> list[OpOverload]:
    """The ops that torch tags as core."""
    found = set()
    for schema in torch._C._jit_get_all_schemas():  # noqa: SLF001  # the dispatcher's list has no public name
        if not schema.name.startswith("aten::"):
            continue
        packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"), None)
        op = getattr(packet, schema.overload_name or "default", None)
        if isinstance(op, OpOverload) and torch.Tag.core in op.tags:
            found.add(op)
    return sorted(found, key=str)


def excused(op: OpOverload) -> str:
    """Why an op is not counted; empty where it is."""
    schema = op._schema  # noqa: SLF001  # an op has no public one
    name = schema.name.removeprefix("aten::")
    if schema.is_mutable:
        return "changes an operand"
    if torch.Tag.nondeterministic_seeded in op.tags:
        return "random"
    if name in UNBOUNDED or torch.Tag.dynamic_output_shape in op.tags:
        return "its size depends on data"
    return "of training" if name.endswith(BACKWARD) else ""


def main() -> int:
    """Print the table."""
    lowered, decomposed = table(), legalization("stablehlo").decompositions()
    ops = core()
    numbers = {op for op in ops if str(op).split(".")[1] in NUMBERS}
    covered = {op for op in ops if op in lowered or op in decomposed} | numbers
    counted = [op for op in ops if op in covered or not excused(op)]
    missing = [op for op in counted if op not in covered]
    own = sum(op in lowered or op in numbers for op in counted)
    for op in ops:
        if op not in counted:
            print(f"not counted  {op}: {excused(op)}")
    for op in missing:
        print(f"missing      {op}")
    print(
        f"{len(counted) - len(missing)} of {len(counted)} core ATen ops: {own} lowered as they are, "
        f"{len(counted) - len(missing) - own} decomposed; {len(ops) - len(counted)} not counted"
    )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
