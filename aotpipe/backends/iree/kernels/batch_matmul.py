"""The text of a dispatch of products of matrices, of which neither is a weight: `[batch, rows, columns]`.

The compiler packs both operands into tiles in each call, number by number where these do not divide a size.
Here the rows of the second are read as vectors where they lie, and each number of the first is multiplied by
them; the sums of some rows and vectors stay in registers. The last tile of a dim ends where it does, and
computes some sums again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aotpipe.backends.iree.kernels.convolution import Registers
from aotpipe.backends.iree.kernels.writer import Row, Tile, Writer, tensor_type

_VECTORS: Final = 4
_WORK: Final = 1 << 18
"""Products that a workgroup has at least: it starts in less time than these take."""


@dataclass(frozen=True, slots=True)
class Matmul:
    """The sizes of `[batch, rows, reduced]` by `[batch, reduced, columns]`; a batch of None is a call's."""

    batch: int | None
    rows: int
    reduced: int
    columns: int


@dataclass(frozen=True, slots=True)
class Tiling:
    """How many rows and vectors of columns are summed at once, and how many rows a workgroup computes."""

    rows: int
    columns: Tile
    rows_of_group: int


def tiling(matmul: Matmul, registers: Registers) -> Tiling:
    """The tiles that are computed in the fewest cycles, as far as the registers tell."""
    lanes = registers.lanes
    while lanes > matmul.columns:
        lanes //= 2
    least = None
    for vectors in range(1, min(_VECTORS, matmul.columns // lanes) + 1):
        for rows in range(1, min((registers.number - 1 - vectors) // vectors, matmul.rows) + 1):
            tiles = -(-matmul.rows // rows) * -(-matmul.columns // (vectors * lanes))
            # Two products a cycle, and not quite two reads; a sum takes four.
            cycles = 2 + max(rows * vectors / 2, 0.6 * (rows + vectors), 4)
            if least is None or tiles * cycles < least[0]:
                least = (tiles * cycles, rows, vectors)
    assert least is not None
    _, rows, vectors = least
    wanted = -(-_WORK // (matmul.reduced * matmul.columns))
    # Workgroups have whole tiles, the last one, too.
    fitting = (
        each
        for each in range(rows * -(-wanted // rows), matmul.rows, rows)
        if not 0 < matmul.rows % each < rows
    )
    return Tiling(rows, Tile(lanes, vectors), next(fitting, matmul.rows))


def text(matmul: Matmul, tiles: Tiling) -> str:
    """The executable, and a function of both operands."""
    sizes = (matmul.rows, matmul.reduced, matmul.columns)
    name = f"multiply_{'x'.join(str(each) for each in (matmul.batch or 'd', *sizes))}"
    left, right, out = (
        tensor_type((matmul.batch, *each)) for each in ((sizes[0], sizes[1]), sizes[1:], (sizes[0], sizes[2]))
    )
    decided = matmul.batch is None
    dims, workload = ("{%batch}", "[%batch]") if decided else ("", "")
    size = "%first = arith.constant 0 : index\n  %batch = tensor.dim %x, %first : !left" if decided else ""
    return f"""
!left = {left}
!right = {right}
!out = {out}
!part = {tensor_type((None, matmul.columns))}
!reads_left = !iree_tensor_ext.dispatch.tensor<readonly:!left>
!reads_right = !iree_tensor_ext.dispatch.tensor<readonly:!right>
!writes = !iree_tensor_ext.dispatch.tensor<writeonly:!out>
flow.executable private @{name} {{
  flow.executable.export public @{name} workgroups({"%batch: index" if decided else ""})
      -> (index, index, index) {{
    %one = arith.constant 1 : index
    %groups = arith.constant {-(-matmul.rows // tiles.rows_of_group)} : index
    {"" if decided else f"%batch = arith.constant {matmul.batch} : index"}
    flow.return %groups, %batch, %one : index, index, index
  }}
  builtin.module {{
    func.func @{name}(%x_in: !reads_left, %y_in: !reads_right{", %batch_in: index" if decided else ""},
        %out_in: !writes) {{
      {_body(matmul, tiles)}
      return
    }}
  }}
}}
util.func private @call(%x: !left, %y: !right) -> !out {{
  {size}
  %made = flow.dispatch @{name}::@{name}{workload}(%x, %y{", %batch" if decided else ""})
      : (!left{dims}, !right{dims}{", index" if decided else ""}) -> !out{dims}
  util.return %made : !out
}}
"""


def _body(matmul: Matmul, tiles: Tiling) -> str:
    """What a workgroup does: some rows of one product."""
    write, tile = Writer(), tiles.columns
    write.emit("%zero = arith.constant 0.0 : f32")
    batch, dims = str(matmul.batch), ""
    operands = {"x": "%x_in", "y": "%y_in", "out": "%out_in"}
    kinds = {"x": "!reads_left", "y": "!reads_right", "out": "!writes"}
    if matmul.batch is None:
        write.emit("%batch = iree_tensor_ext.dispatch.workload.ordinal %batch_in, 0 : index")
        batch, dims = "%batch", "{%batch}"
        operands = {
            key: write.op(f"flow.dispatch.tie_shape {name} : {kinds[key]}{dims}")
            for key, name in operands.items()
        }
    for key, kind, sizes in (
        ("x", "!left", (matmul.rows, matmul.reduced)),
        ("y", "!right", (matmul.reduced, matmul.columns)),
    ):
        value = write.op(
            f"iree_tensor_ext.dispatch.tensor.load {operands[key]}, offsets = [0, 0, 0], "
            f"sizes = [{batch}, {sizes[0]}, {sizes[1]}], strides = [1, 1, 1] : {kinds[key]}{dims} -> {kind}"
        )
        write.memory(key, value, kind)
    group = write.op("flow.dispatch.workgroup.id[0] : index")
    nth = write.op("flow.dispatch.workgroup.id[1] : index")
    first, here = write.part(group, write.index(matmul.rows), tiles.rows_of_group)
    last = write.op(f"arith.subi {here}, {write.index(tiles.rows)} : index")
    empty = write.op(f"tensor.empty({here}) : !part")
    write.memory("out", empty, "!part")
    with (
        write.loop(here, tiles.rows, ["out"]) as following,
        write.over(matmul.columns, tile, ["out"]) as column,
    ):
        row = write.op(f"arith.minsi {following}, {last} : index")
        own = [write.plus(row, each) for each in range(tiles.rows)]
        rows = [write.op(f"arith.addi {first}, {each} : index") for each in own]
        columns = [write.plus(column, vector * tile.lanes) for vector in range(tile.vectors)]
        zeros = write.op(f"arith.constant dense<0.0> : {tile.type}")
        starts = [zeros] * (tiles.rows * tile.vectors)
        with write.sums(write.index(matmul.reduced), 1, starts, tile.type) as (at, sums):
            vectors = [write.read(Row("y", (nth, at)), each, tile) for each in columns]
            for place, each in enumerate(rows):
                number = write.read_number(Row("x", (nth, each)), at, tile)
                for vector, values in enumerate(vectors):
                    own_sum = place * tile.vectors + vector
                    sums[own_sum] = write.product_added(number, values, sums[own_sum], tile)
        for place, value in enumerate(sums):
            at_row, vector = divmod(place, tile.vectors)
            write.write(value, Row("out", (own[at_row],)), columns[vector], tile)
    made, kind = write.after("out")
    write.emit(
        f"iree_tensor_ext.dispatch.tensor.store {made}, {operands['out']}, offsets = [{nth}, {first}, 0], "
        f"sizes = [1, {here}, {matmul.columns}], strides = [1, 1, 1] : {kind} -> !writes{dims}"
    )
    return write.text()
