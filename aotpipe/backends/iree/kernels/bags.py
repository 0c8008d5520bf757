"""The text of a dispatch of bags: sums or means of the rows of a table that the indices of each bag name.

    [rows, width], [indices], [offsets] -> [bags, width]

A bag has the indices from its offset up to the next one's, or up to the end. The sums of a bag stay in
registers while its rows are added, in the order of its indices. What is no place in an operand, which an
assert of the program refuses, is not read: the nearest place is.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from aotpipe.backends.iree.fixes.rewrites import erase_unread, replace_uses
from aotpipe.backends.iree.kernels.convolution import Registers
from aotpipe.backends.iree.kernels.inlining import inlined
from aotpipe.backends.iree.kernels.writer import Row, Tile, Writer, tensor_type

_LEAST_LANES: Final = 4
_MOST_SUMS: Final = 8
"""Vectors of a bag that are added at once; the columns of a wider table are gone through in parts."""
_BAGS: Final = 32
"""Bags of a workgroup: it starts in less time than these take."""


class Bags(NamedTuple):
    """What bags are made of.

    Attributes:
        rows: Of the table.
        width: Of a row.
        is_mean: Whether a sum is divided by how many rows the bag has.
        with_end: Whether the last offset is where the last bag ends, and no bag's start.
    """

    rows: int
    width: int
    is_mean: bool
    with_end: bool


def tile(width: int, registers: Registers) -> Tile | None:
    """The vectors of a row that are added at once; None where none of a fair length divide it."""
    lanes = registers.lanes
    while width % lanes:
        lanes //= 2
    vectors = width // lanes
    most = next(each for each in range(min(vectors, _MOST_SUMS), 0, -1) if vectors % each == 0)
    return None if lanes < _LEAST_LANES else Tile(lanes, most)


def lower(registers: Registers | None, op: Any) -> None:
    """Have bags computed by a kernel, if there is one for the table, and else by what stands in its place."""
    from aotpipe.backends.iree.lower.region_borders import builtin_type, convert

    results, table, indices, offsets, *flags = op.operands
    rows, width = builtin_type(table.type).shape
    cut = tile(width, registers) if registers else None
    if cut is None:
        op.results[0].replace_all_uses_with(results)
        op.erase()
        return
    is_mean, with_end = (bool(each.owner.attributes["value"].value) for each in flags)
    made = text(Bags(rows, width, is_mean, with_end), cut)

    def added() -> Any:
        operands = [convert(table, builtin_type(table.type)), _of_any_size(indices), _of_any_size(offsets)]
        return convert(inlined(made, operands), op.results[0].type)

    replace_uses(op.results[0], added)
    op.erase()
    erase_unread([results])


def text(bags: Bags, cut: Tile) -> str:
    """The executable, and a function of the table, the indices and the offsets."""
    name = f"sum_bags_{bags.rows}x{bags.width}_{'mean' if bags.is_mean else 'sum'}{'_ends' * bags.with_end}"
    table, out = tensor_type((bags.rows, bags.width)), tensor_type((None, bags.width))
    return f"""
!table = {table}
!numbers = tensor<?xi64>
!out = {out}
!reads_table = !iree_tensor_ext.dispatch.tensor<readonly:!table>
!reads = !iree_tensor_ext.dispatch.tensor<readonly:!numbers>
!writes = !iree_tensor_ext.dispatch.tensor<writeonly:!out>
flow.executable private @{name} {{
  flow.executable.export public @{name} workgroups(%indices: index, %offsets: index, %bags: index)
      -> (index, index, index) {{
    %one = arith.constant 1 : index
    %group = arith.constant {_BAGS} : index
    %groups = arith.ceildivsi %bags, %group : index
    flow.return %groups, %one, %one : index, index, index
  }}
  builtin.module {{
    func.func @{name}(%table_in: !reads_table, %indices_in: !reads, %offsets_in: !reads, %n: index, %m: index,
        %k: index, %out_in: !writes) {{
      {_body(bags, cut)}
      return
    }}
  }}
}}
util.func private @call(%table: !table, %indices: !numbers, %offsets: !numbers) -> !out {{
  %zero = arith.constant 0 : index
  %ends = arith.constant {int(bags.with_end)} : index
  %n = tensor.dim %indices, %zero : !numbers
  %m = tensor.dim %offsets, %zero : !numbers
  %k = arith.subi %m, %ends : index
  %found = flow.dispatch @{name}::@{name}[%n, %m, %k](%table, %indices, %offsets, %n, %m, %k)
      : (!table, !numbers{{%n}}, !numbers{{%m}}, index, index, index) -> !out{{%k}}
  util.return %found : !out
}}
"""


def _body(bags: Bags, cut: Tile) -> str:
    """What a workgroup does: some bags."""
    write = Writer()
    write.emit("%zero = arith.constant 0.0 : f32")
    count, starts, number = (
        write.op(f"iree_tensor_ext.dispatch.workload.ordinal {size}, {place} : index")
        for place, size in enumerate(("%n", "%m", "%k"))
    )
    table = write.op(
        f"iree_tensor_ext.dispatch.tensor.load %table_in, offsets = [0, 0], "
        f"sizes = [{bags.rows}, {bags.width}], strides = [1, 1] : !reads_table -> !table"
    )
    write.memory("table", table, "!table")
    indices, offsets = _numbers(write, "%indices_in", count), _numbers(write, "%offsets_in", starts)
    out = write.op(f"flow.dispatch.tie_shape %out_in : !writes{{{number}}}")
    group = write.op("flow.dispatch.workgroup.id[0] : index")
    first, here = write.part(group, number, _BAGS)
    write.allocate("out", (None, bags.width), here)
    last_start = write.op(f"arith.subi {starts}, {write.index(1)} : index")
    last_row = write.index(bags.rows - 1)
    zeros = write.op(f"arith.constant dense<0.0> : {cut.type}")
    with write.loop(here, 1, ["out"]) as own:
        bag = write.op(f"arith.addi {first}, {own} : index")
        begin = _place(write, offsets, bag, count)
        following = write.plus(bag, 1)
        is_last = write.op(f"arith.cmpi sge, {following}, {starts} : index")
        held = write.op(f"arith.minsi {following}, {last_start} : index")
        end = write.op(f"arith.select {is_last}, {count}, {_place(write, offsets, held, count)} : index")
        length = write.op(f"arith.subi {end}, {begin} : index")
        counted = length
        if bags.with_end:
            # Eager leaves out what comes after the last offset, and counts it for the mean of the last bag.
            rest = write.op(f"arith.subi {count}, {begin} : index")
            is_end = write.op(f"arith.cmpi eq, {following}, {number} : index")
            counted = write.op(f"arith.select {is_end}, {rest}, {length} : index")
        divisor = _divisor(write, cut, counted) if bags.is_mean else ""
        with write.over(bags.width, cut, ["out"]) as column:
            with write.sums(length, 1, [zeros] * cut.vectors, cut.type) as (nth, sums):
                at = write.op(f"arith.addi {begin}, {nth} : index")
                row = Row("table", (_place(write, indices, at, last_row),))
                for place, before in enumerate(sums):
                    vector = write.read(row, write.plus(column, place * cut.lanes), cut)
                    sums[place] = write.op(f"arith.addf {before}, {vector} : {cut.type}")
            for place, found in enumerate(sums):
                mean = write.op(f"arith.divf {found}, {divisor} : {cut.type}") if divisor else found
                write.write(mean, Row("out", (own,)), write.plus(column, place * cut.lanes), cut)
    made, kind = write.after("out")
    write.emit(
        f"iree_tensor_ext.dispatch.tensor.store {made}, {out}, offsets = [{first}, 0], "
        f"sizes = [{here}, {bags.width}], strides = [1, 1] : {kind} -> !writes{{{number}}}"
    )
    return write.text()


def _numbers(write: Writer, operand: str, size: str) -> str:
    """All numbers of an operand."""
    tied = write.op(f"flow.dispatch.tie_shape {operand} : !reads{{{size}}}")
    return write.op(
        f"iree_tensor_ext.dispatch.tensor.load {tied}, offsets = [0], sizes = [{size}], strides = [1] "
        f": !reads{{{size}}} -> !numbers"
    )


def _place(write: Writer, numbers: str, at: str, most: str) -> str:
    """A number of an operand as a place, up to the last that there is."""
    number = write.op(f"tensor.extract {numbers}[{at}] : !numbers")
    place = write.op(f"arith.index_cast {number} : i64 to index")
    held = write.op(f"arith.minsi {place}, {most} : index")
    return write.op(f"arith.maxsi {held}, {write.index(0)} : index")


def _divisor(write: Writer, cut: Tile, rows: str) -> str:
    """How many rows a bag has, at least one, in each place of a vector."""
    some = write.op(f"arith.maxsi {rows}, {write.index(1)} : index")
    whole = write.op(f"arith.index_cast {some} : index to i64")
    number = write.op(f"arith.sitofp {whole} : i64 to f32")
    return write.op(f"vector.broadcast {number} : f32 to {cut.type}")


def _of_any_size(value: Any) -> Any:
    """Emit a tensor of a dim whose size the type does not say."""
    from iree.compiler import ir

    from aotpipe.backends.iree.lower.region_borders import convert, to_builtin

    found = to_builtin(value)
    size = ir.ShapedType.get_dynamic_size()
    return convert(found, ir.RankedTensorType.get([size], found.type.element_type))
