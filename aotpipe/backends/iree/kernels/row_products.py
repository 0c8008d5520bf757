"""The text of a dispatch of sums of products: each row of a matrix times the vector of its batch.

    [batch, rows, reduced], [batch, 1, reduced] -> [batch, rows]

So a decoder multiplies its keys by the query of one token. The compiler sums a row's products number by
number; here they are added as vectors, and the numbers of the last vector at the end.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aotpipe.backends.iree.kernels.convolution import Registers
from aotpipe.backends.iree.kernels.writer import Row, Tile, Writer, tensor_type

_LEAST_LANES: Final = 4
_HELD: Final = 8
"""Vectors of the batch that stay in registers for all rows; more are read again for each row."""
_SUMS: Final = 2
"""Sums of a row: each waits for the product added before, and so many rows are computed at once."""
_PRODUCTS: Final = 1 << 14
"""Products of a workgroup: it starts in less time than these take."""


class RowProducts(NamedTuple):
    """The sizes of the operands; None for the rows that a call decides."""

    batch: int
    rows: int | None
    reduced: int


def tile(sizes: RowProducts, registers: Registers) -> Tile | None:
    """The vectors that a row is cut into; None where none of a fair length divide it."""
    lanes = registers.lanes
    while sizes.reduced % lanes:
        lanes //= 2
    return None if lanes < _LEAST_LANES else Tile(lanes, sizes.reduced // lanes)


def text(sizes: RowProducts, cut: Tile) -> str:
    """The executable, and a function of the matrices and vectors."""
    batch, rows, reduced = sizes
    name = f"multiply_rows_{batch}x{rows or 'd'}x{reduced}"
    return f"""
!given = {tensor_type((batch, rows, reduced))}
!found = {tensor_type((batch, rows))}
!matrix = {tensor_type((batch, None, reduced))}
!vector = {tensor_type((batch, 1, reduced))}
!out = {tensor_type((batch, None))}
!reads = !iree_tensor_ext.dispatch.tensor<readonly:!matrix>
!reads_vector = !iree_tensor_ext.dispatch.tensor<readonly:!vector>
!writes = !iree_tensor_ext.dispatch.tensor<writeonly:!out>
flow.executable private @{name} {{
  flow.executable.export public @{name} workgroups(%count: index) -> (index, index, index) {{
    %one = arith.constant 1 : index
    %batch = arith.constant {batch} : index
    %group = arith.constant {_group(sizes)} : index
    %groups = arith.ceildivsi %count, %group : index
    flow.return %groups, %batch, %one : index, index, index
  }}
  builtin.module {{
    func.func @{name}(%matrix_in: !reads, %vector_in: !reads_vector, %count_in: index, %out_in: !writes) {{
      {_body(sizes, cut)}
      return
    }}
  }}
}}
util.func private @call(%given: !given, %vector: !vector) -> !found {{
  %one = arith.constant 1 : index
  %count = tensor.dim %given, %one : !given
  %matrix = tensor.cast %given : !given to !matrix
  %made = flow.dispatch @{name}::@{name}[%count](%matrix, %vector, %count)
      : (!matrix{{%count}}, !vector, index) -> !out{{%count}}
  %found = tensor.cast %made : !out to !found
  util.return %found : !found
}}
"""


def _group(sizes: RowProducts) -> int:
    """Rows of a workgroup."""
    return max(1, _PRODUCTS // sizes.reduced)


def _body(sizes: RowProducts, cut: Tile) -> str:
    """What a workgroup does: some rows of one matrix."""
    write = Writer()
    write.emit("%zero = arith.constant 0.0 : f32")
    write.emit("%count = iree_tensor_ext.dispatch.workload.ordinal %count_in, 0 : index")
    matrix = write.op("flow.dispatch.tie_shape %matrix_in : !reads{%count}")
    out = write.op("flow.dispatch.tie_shape %out_in : !writes{%count}")
    batch, reduced = sizes.batch, sizes.reduced
    for key, operand, count, kind, reads in (
        ("matrix", matrix, "%count", "!matrix", "!reads{%count}"),
        ("vector", "%vector_in", "1", "!vector", "!reads_vector"),
    ):
        value = write.op(
            f"iree_tensor_ext.dispatch.tensor.load {operand}, offsets = [0, 0, 0], "
            f"sizes = [{batch}, {count}, {reduced}], strides = [1, 1, 1] : {reads} -> {kind}"
        )
        write.memory(key, value, kind)
    group = write.op("flow.dispatch.workgroup.id[0] : index")
    nth = write.op("flow.dispatch.workgroup.id[1] : index")
    first, here = write.part(group, "%count", _group(sizes))
    write.allocate("out", (None,), here)
    vector = Row("vector", (nth, write.index(0)))
    held = _vectors(write, vector, write.index(0), cut) if cut.vectors <= _HELD else []
    zeros = write.op(f"arith.constant dense<0.0> : {cut.type}")
    one = Tile(1, 1)
    with write.loop(here, 1, ["out"]) as own:
        row = Row("matrix", (nth, write.op(f"arith.addi {first}, {own} : index")))
        sums = [zeros] * _SUMS
        if held:
            _add(write, sums, held, _vectors(write, row, write.index(0), cut), cut)
        else:
            vectors = next(each for each in range(_HELD, 0, -1) if cut.vectors % each == 0)
            some = Tile(cut.lanes, vectors)
            with write.sums(write.index(reduced), some.size, sums, cut.type) as (at, found):
                _add(write, found, _vectors(write, vector, at, some), _vectors(write, row, at, some), some)
            sums = found
        total = write.op(f"arith.addf {sums[0]}, {sums[1]} : {cut.type}")
        number = write.op(f"vector.reduction <add>, {total} fastmath<reassoc> : {cut.type} into f32")
        write.write(write.op(f"vector.broadcast {number} : f32 to {one.type}"), Row("out"), own, one)
    made, kind = write.after("out")
    write.emit(
        f"iree_tensor_ext.dispatch.tensor.store {made}, {out}, offsets = [{nth}, {first}], "
        f"sizes = [1, {here}], strides = [1, 1] : {kind} -> !writes{{%count}}"
    )
    return write.text()


def _vectors(write: Writer, row: Row, at: str, cut: Tile) -> list[str]:
    """The vectors of a row from a place on."""
    return [write.read(row, write.plus(at, place * cut.lanes), cut) for place in range(cut.vectors)]


def _add(write: Writer, sums: list[str], left: list[str], right: list[str], cut: Tile) -> None:
    """Add products of vectors to the sums in turns."""
    for place, (one, other) in enumerate(zip(left, right, strict=True)):
        at = place % len(sums)
        sums[at] = write.product_added(one, other, sums[at], cut)
