"""Prints how much of torch's core ATen opset the XLA path takes, and what is missing.

usage: core_aten.py

An op is covered where the lowering to StableHLO has an entry for it or a decomposition leads away from it; that
the numbers are right is shown by `python -m tests.opinfo`. Random ops, factorizations and results whose size
depends on data without a bound are not counted, and listed. Exit code 1 where something is missing.
"""

from __future__ import annotations

import sys

import torch
from torch._ops import OpOverload

from aotpipe.backends.xla.ops import table
from aotpipe.legalize import decompositions

# Without a bound, of a size that only data knows.
UNBOUNDED = frozenset({"masked_select", "nonzero", "nonzero_static", "unique", "unique_consecutive"})
# Names of torch's training, which a program has none of.
BACKWARD = "_backward"


def core() -> list[OpOverload]:
    """The ops that torch tags as core."""
    found = set()
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"), None)
        op = getattr(packet, schema.overload_name or "default", None)
        if isinstance(op, OpOverload) and torch.Tag.core in op.tags:
            found.add(op)
    return sorted(found, key=str)


def excused(op: OpOverload) -> str:
    """Why an op is not counted; empty where it is."""
    name = op._schema.name.removeprefix("aten::")
    if torch.Tag.nondeterministic_seeded in op.tags:
        return "random"
    if name in UNBOUNDED or torch.Tag.dynamic_output_shape in op.tags:
        return "its size depends on data"
    return "of training" if name.endswith(BACKWARD) else ""


def main() -> int:
    """Print the table."""
    lowered, decomposed = table(), decompositions.table("stablehlo")
    ops = core()
    counted = [op for op in ops if not excused(op)]
    missing = [op for op in counted if op not in lowered and op not in decomposed]
    own = sum(op in lowered for op in counted)
    for op in ops:
        if why := excused(op):
            print(f"not counted  {op}: {why}")
    for op in missing:
        print(f"missing      {op}")
    print(
        f"{len(counted) - len(missing)} of {len(counted)} core ATen ops: {own} lowered as they are, "
        f"{len(counted) - len(missing) - own} decomposed; {len(ops) - len(counted)} not counted"
    )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
