"""The text of a softmax's dispatch: over the last dim, row by row, or over another, some columns at once.

A row's largest number is found, the powers are written and summed, and what was written is scaled. The last
vector of a row ends where it does: it reads and writes some numbers again, and counts the others alone. Of
columns the last vectors end where the columns do, and some are computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from aotpipe.backends.iree.kernels.convolution import Registers
from aotpipe.backends.iree.kernels.writer import Row, Tile, Writer, listed, tensor_type

_VECTORS: Final = 4
"""Vectors of a trip of a loop: the largest, or a sum, waits for the one before."""
_COLUMNS: Final = 512
"""Columns of a workgroup at most."""
_LEAST_LANES: Final = 4
_NUMBERS: Final = 1 << 13
"""Numbers of a workgroup: it starts in less time than their powers take."""


def text(sizes: Sequence[int | None], registers: Registers) -> str:
    """The executable, and a function of a tensor of these sizes; None is one that a call decides.

    The last size is known.
    """
    *before, last = sizes
    assert last is not None
    name, whole = f"softmax_{last}", tensor_type(sizes)
    return f"""
!rows = {tensor_type((None, last))}
!reads = !iree_tensor_ext.dispatch.tensor<readonly:!rows>
!writes = !iree_tensor_ext.dispatch.tensor<writeonly:!rows>
flow.executable private @{name} {{
  flow.executable.export public @{name} workgroups(%count: index) -> (index, index, index) {{
    %one = arith.constant 1 : index
    %group = arith.constant {_group(last)} : index
    %groups = arith.ceildivsi %count, %group : index
    flow.return %groups, %one, %one : index, index, index
  }}
  builtin.module {{
    func.func @{name}(%x_in: !reads, %count_in: index, %out_in: !writes) {{
      {_Kernel(last, registers).body()}
      return
    }}
  }}
}}
util.func private @call(%x: {whole}) -> {whole} {{
  {_as_rows(before, last)}
  %first = arith.constant 0 : index
  %count = tensor.dim %rows, %first : !rows
  %made = flow.dispatch @{name}::@{name}[%count](%rows, %count) : (!rows{{%count}}, index) -> !rows{{%count}}
  {_as_before(before, last)}
  util.return %found : {whole}
}}
"""


def _group(last: int) -> int:
    return max(1, _NUMBERS // last)


def _as_rows(before: Sequence[int | None], last: int) -> str:
    """`%rows` of `%x`."""
    whole, counted = tensor_type((*before, last)), _counted(before)
    dims = [*range(len(before))]
    if len(before) == 1:
        flat = f"%flat = tensor.cast %x : {whole} to {tensor_type((counted, last))}"
    elif before:
        flat = f"%flat = tensor.collapse_shape %x [{dims}, [{len(before)}]] : {whole} into "
        flat += tensor_type((counted, last))
    else:
        flat = f"%flat = tensor.expand_shape %x [[0, 1]] output_shape [1, {last}] : {whole} into "
        flat += tensor_type((counted, last))
    return f"{flat}\n  %rows = tensor.cast %flat : {tensor_type((counted, last))} to !rows"


def _as_before(before: Sequence[int | None], last: int) -> str:
    """`%found` of `%made`, with the sizes of `%x`."""
    whole, counted = tensor_type((*before, last)), tensor_type((_counted(before), last))
    cast = f"%counted = tensor.cast %made : !rows to {counted}\n  "
    if len(before) == 1:
        return f"{cast}%found = tensor.cast %counted : {counted} to {whole}"
    if not before:
        return f"{cast}%found = tensor.collapse_shape %counted [[0, 1]] : {counted} into {whole}"
    sizes = "".join(
        f"%at{dim} = arith.constant {dim} : index\n  %size{dim} = tensor.dim %x, %at{dim} : {whole}\n  "
        for dim, size in enumerate(before)
        if size is None
    )
    shape = listed(f"%size{dim}" if size is None else str(size) for dim, size in enumerate((*before, last)))
    dims = [*range(len(before))]
    return (
        f"{cast}{sizes}%found = tensor.expand_shape %counted [{dims}, [{len(before)}]] "
        f"output_shape [{shape}] : {counted} into {whole}"
    )


def _counted(before: Sequence[int | None]) -> int | None:
    """How many rows there are, where that is known."""
    known = [size for size in before if size is not None]
    return prod(known) if len(known) == len(before) else None


class _Kernel:
    """Writes what a workgroup does."""

    def __init__(self, last: int, registers: Registers) -> None:
        self._write, self._size = Writer(), last
        lanes = registers.lanes
        while lanes > last:
            lanes //= 2
        count, self._left = divmod(last, lanes)
        self._whole = last - self._left
        self._tile = Tile(lanes, next(each for each in range(_VECTORS, 0, -1) if count % each == 0))

    def body(self) -> str:
        """The text of it."""
        write = self._write
        write.emit("%zero = arith.constant 0.0 : f32")
        write.emit("%count = iree_tensor_ext.dispatch.workload.ordinal %count_in, 0 : index")
        x = write.op("flow.dispatch.tie_shape %x_in : !reads{%count}")
        out = write.op("flow.dispatch.tie_shape %out_in : !writes{%count}")
        whole = write.op(
            f"iree_tensor_ext.dispatch.tensor.load {x}, offsets = [0, 0], sizes = [%count, {self._size}], "
            "strides = [1, 1] : !reads{%count} -> !rows"
        )
        write.memory("x", whole, "!rows")
        group = write.op("flow.dispatch.workgroup.id[0] : index")
        first, here = write.part(group, "%count", _group(self._size))
        write.allocate("out", (None, self._size), here)
        with write.loop(here, 1, ["out"]) as row:
            self._row(Row("x", (write.op(f"arith.addi {first}, {row} : index"),)), Row("out", (row,)))
        made, kind = write.after("out")
        write.emit(
            f"iree_tensor_ext.dispatch.tensor.store {made}, {out}, offsets = [{first}, 0], "
            f"sizes = [{here}, {self._size}], strides = [1, 1] : {kind} -> !writes{{%count}}"
        )
        return write.text()

    def _row(self, x: Row, out: Row) -> None:
        write, kind = self._write, self._tile.type
        largest = self._reduced("maximumf", self._largest(x))
        total = self._reduced(
            "add", self._powers(x, out, write.op(f"vector.broadcast {largest} : f32 to {kind}"))
        )
        one = write.op("arith.constant 1.0 : f32")
        part = write.op(f"arith.divf {one}, {total} : f32")
        self._scale(out, write.op(f"vector.broadcast {part} : f32 to {kind}"))

    def _reduced(self, kind: str, vectors: Sequence[str]) -> str:
        """A number of all numbers of some vectors."""
        write, op = self._write, {"maximumf": "arith.maximumf", "add": "arith.addf"}[kind]
        first, *rest = vectors
        for each in rest:
            first = write.op(f"{op} {first}, {each} : {self._tile.type}")
        return write.op(f"vector.reduction <{kind}>, {first} : {self._tile.type} into f32")

    def _largest(self, x: Row) -> list[str]:
        write, tile = self._write, self._tile
        # The bits of minus infinity.
        least = write.op(f"arith.constant dense<0xFF800000> : {tile.type}")
        with write.sums(write.index(self._whole), tile.size, [least] * tile.vectors, tile.type) as (
            at,
            found,
        ):
            for place, value in enumerate(self._vectors_at(x, at)):
                found[place] = write.op(f"arith.maximumf {found[place]}, {value} : {tile.type}")
        return [*found, write.read(x, self._rest(), tile)] if self._left else found

    def _powers(self, x: Row, out: Row, shift: str) -> list[str]:
        """Write the powers; their sums."""
        write, tile = self._write, self._tile

        def power(value: str) -> str:
            shifted = write.op(f"arith.subf {value}, {shift} : {tile.type}")
            return write.op(f"math.exp {shifted} : {tile.type}")

        zeros = write.op(f"arith.constant dense<0.0> : {tile.type}")
        starts = [zeros] * tile.vectors
        with write.sums(write.index(self._whole), tile.size, starts, tile.type, [out.memory]) as (at, found):
            for place, value in enumerate(self._vectors_at(x, at)):
                made = power(value)
                write.write(made, out, write.plus(at, place * tile.lanes), tile)
                found[place] = write.op(f"arith.addf {found[place]}, {made} : {tile.type}")
        if not self._left:
            return found
        made = power(write.read(x, self._rest(), tile))
        write.write(made, out, self._rest(), tile)
        bools = f"vector<{tile.lanes}xi1>"
        new = listed("true" if place >= tile.lanes - self._left else "false" for place in range(tile.lanes))
        counted = write.op(f"arith.constant dense<[{new}]> : {bools}")
        return [*found, write.op(f"arith.select {counted}, {made}, {zeros} : {bools}, {tile.type}")]

    def _scale(self, out: Row, by: str) -> None:
        write, tile = self._write, self._tile
        # Before the loop changes some of it.
        rest = write.read(out, self._rest(), tile) if self._left else None
        with write.loop(write.index(self._whole), tile.size, [out.memory]) as at:
            for place, value in enumerate(self._vectors_at(out, at)):
                made = write.op(f"arith.mulf {value}, {by} : {tile.type}")
                write.write(made, out, write.plus(at, place * tile.lanes), tile)
        if rest is not None:
            write.write(write.op(f"arith.mulf {rest}, {by} : {tile.type}"), out, self._rest(), tile)

    def _vectors_at(self, row: Row, at: str) -> list[str]:
        write, tile = self._write, self._tile
        places = [write.plus(at, place * tile.lanes) for place in range(tile.vectors)]
        return [write.read(row, place, tile) for place in places]

    def _rest(self) -> str:
        """Where the last vector begins."""
        return self._write.index(self._size - self._tile.lanes)


def columns_of_group(columns: int) -> int:
    """How many columns a workgroup has, all as many; 0 where there are too few, or nothing divides them."""
    if columns <= _COLUMNS:
        return columns if columns >= _LEAST_LANES else 0
    return next((each for each in range(_COLUMNS, _COLUMNS // 8, -1) if columns % each == 0), 0)


def text_of_columns(sizes: Sequence[int], dim: int, registers: Registers) -> str:
    """The executable, and a function of a tensor of these sizes, over a dim that is not the last."""
    outer, summed, columns = prod(sizes[:dim]), sizes[dim], prod(sizes[dim + 1 :])
    whole, flat, dims = tensor_type(sizes), tensor_type((prod(sizes),)), [[*range(len(sizes))]]
    name = f"softmax_{outer}x{summed}x{columns}"
    group = columns_of_group(columns)
    return f"""
!x = {tensor_type((outer, summed, columns))}
!reads = !iree_tensor_ext.dispatch.tensor<readonly:!x>
!writes = !iree_tensor_ext.dispatch.tensor<writeonly:!x>
flow.executable private @{name} {{
  flow.executable.export public @{name} workgroups() -> (index, index, index) {{
    %one = arith.constant 1 : index
    %groups = arith.constant {columns // group} : index
    %outer = arith.constant {outer} : index
    flow.return %groups, %outer, %one : index, index, index
  }}
  builtin.module {{
    func.func @{name}(%x_in: !reads, %out_in: !writes) {{
      {_body_of_columns((outer, summed, columns), group, registers)}
      return
    }}
  }}
}}
util.func private @call(%given: {whole}) -> {whole} {{
  %flat = tensor.collapse_shape %given {dims} : {whole} into {flat}
  %x = tensor.expand_shape %flat [[0, 1, 2]] output_shape [{outer}, {summed}, {columns}] : {flat} into !x
  %made = flow.dispatch @{name}::@{name}(%x) : (!x) -> !x
  %made_flat = tensor.collapse_shape %made [[0, 1, 2]] : !x into {flat}
  %found = tensor.expand_shape %made_flat {dims} output_shape [{listed(map(str, sizes))}]
      : {flat} into {whole}
  util.return %found : {whole}
}}
"""


def _body_of_columns(sizes: tuple[int, int, int], group: int, registers: Registers) -> str:
    """What a workgroup does: some columns, all rows of them."""
    write, (outer, summed, columns) = Writer(), sizes
    lanes = registers.lanes
    while lanes > group:
        lanes //= 2
    tile = Tile(lanes, min(_VECTORS, group // lanes))
    write.emit("%zero = arith.constant 0.0 : f32")
    whole = write.op(
        f"iree_tensor_ext.dispatch.tensor.load %x_in, offsets = [0, 0, 0], "
        f"sizes = [{outer}, {summed}, {columns}], strides = [1, 1, 1] : !reads -> !x"
    )
    write.memory("x", whole, "!x")
    nth = write.op("flow.dispatch.workgroup.id[1] : index")
    here = write.op("flow.dispatch.workgroup.id[0] : index")
    first = write.op(f"arith.muli {here}, {write.index(group)} : index")
    write.allocate("out", (summed, group))
    least = write.op(f"arith.constant dense<0xFF800000> : {tile.type}")
    zeros = write.op(f"arith.constant dense<0.0> : {tile.type}")
    ones = write.op(f"arith.constant dense<1.0> : {tile.type}")
    rows = write.index(summed)
    with write.over(group, tile, ["out"]) as own:
        places = [write.plus(own, each * lanes) for each in range(tile.vectors)]
        columns_of = [write.op(f"arith.addi {first}, {each} : index") for each in places]
        with write.sums(rows, 1, [least] * tile.vectors, tile.type) as (at, largest):
            for place, column in enumerate(columns_of):
                value = write.read(Row("x", (nth, at)), column, tile)
                largest[place] = write.op(f"arith.maximumf {largest[place]}, {value} : {tile.type}")
        with write.sums(rows, 1, [zeros] * tile.vectors, tile.type, ["out"]) as (at, totals):
            for place, column in enumerate(columns_of):
                value = write.read(Row("x", (nth, at)), column, tile)
                shifted = write.op(f"arith.subf {value}, {largest[place]} : {tile.type}")
                power = write.op(f"math.exp {shifted} : {tile.type}")
                write.write(power, Row("out", (at,)), places[place], tile)
                totals[place] = write.op(f"arith.addf {totals[place]}, {power} : {tile.type}")
        parts = [write.op(f"arith.divf {ones}, {each} : {tile.type}") for each in totals]
        with write.loop(rows, 1, ["out"]) as at:
            for column, part in zip(places, parts, strict=True):
                value = write.read(Row("out", (at,)), column, tile)
                scaled = write.op(f"arith.mulf {value}, {part} : {tile.type}")
                write.write(scaled, Row("out", (at,)), column, tile)
    made, kind = write.after("out")
    write.emit(
        f"iree_tensor_ext.dispatch.tensor.store {made}, %out_in, offsets = [{nth}, 0, {first}], "
        f"sizes = [1, {summed}, {group}], strides = [1, 1, 1] : {kind} -> !writes"
    )
    return write.text()
