"""The text of a scan's dispatch: all trips in one loop, their values in registers or in the cache.

A workgroup computes some sequences of a batch from the first trip to the last. Each trip has a loop over
vectors for each of its stages (`recurrence.stages`): products by a matrix are summed in registers, number by
number of what is multiplied, and the elementwise steps read the sums there. A carry has two rows, of which a
trip reads one and writes the other. The last vectors of a size end where it does: they compute some numbers
again.
"""

from __future__ import annotations

from itertools import groupby
from typing import Final, NamedTuple

from aotpipe.backends.iree.kernels import recurrence as stage_order
from aotpipe.backends.iree.kernels import steps
from aotpipe.backends.iree.kernels.convolution import Registers
from aotpipe.backends.iree.kernels.recurrence import Products, Recurrence, Stage
from aotpipe.backends.iree.kernels.steps import Operand, Steps
from aotpipe.backends.iree.kernels.writer import Row, Tile, Writer, listed, tensor_type

_SEQUENCES: Final = 4
"""Sequences of a batch that a workgroup computes at most: they share what is read of a matrix."""
_SUMS: Final = 16
"""Vectors that a loop sums: a sum waits four cycles for the one before, and two are added in each."""
_VECTORS: Final = 4
"""Vectors of a value that a loop computes at once, at most: each has a copy of the elementwise steps."""


class Panels(NamedTuple):
    """How a matrix is given: `[number, rows, parts * width]`, of columns in `parts` parts.

    A panel has some columns of each part, which a loop reads one after another.
    """

    parts: int
    number: int
    width: int


class Kernel(NamedTuple):
    """The text of a module, and which of its matrices are given in panels.

    The module has an executable, and a function that calls it. This is given the initial carries
    `[batch, size]`, the inputs `[length, batch, size]`, the vectors, the matrices, and then the length and
    the batch, as far as a call decides them. It returns the last carries, and the outputs
    `[length, batch, size]`.
    """

    text: str
    panels: dict[int, Panels]


def kernel(
    recurrence: Recurrence, length: int | None, batch: int | None, registers: Registers, name: str
) -> Kernel:
    """The kernel of a recurrence; a length or batch of None is one that a call decides."""
    writer = _Kernel(recurrence, length, batch, registers)
    return Kernel(writer.module(name), writer.panels)


class _Tensor(NamedTuple):
    """What the dispatch reads or writes."""

    name: str
    sizes: tuple[int | None, ...]

    @property
    def type(self) -> str:
        return tensor_type(self.sizes)

    @property
    def names(self) -> list[str]:
        """Its sizes as the text has them: a size that a call decides is a value."""
        decided = ("%length", "%batch", "")[-len(self.sizes) :]
        return [name if size is None else str(size) for size, name in zip(self.sizes, decided, strict=True)]

    @property
    def tied(self) -> str:
        """Its type, and the sizes that a call decides."""
        return self.type + self._dims

    def of_dispatch(self, access: str) -> str:
        """Its type among a dispatch's operands."""
        return f"!iree_tensor_ext.dispatch.tensor<{access}:{self.type}>"

    def operand(self, access: str) -> str:
        """That type, and the sizes that a call decides."""
        return self.of_dispatch(access) + self._dims

    @property
    def _dims(self) -> str:
        names = [name for name in self.names if name.startswith("%")]
        return f"{{{listed(names)}}}" if names else ""


class _Kernel:
    """Writes the module of one kernel."""

    def __init__(
        self, recurrence: Recurrence, length: int | None, batch: int | None, registers: Registers
    ) -> None:
        self.recurrence, self._length, self._batch = recurrence, length, batch
        self._lanes, self._most_sums = registers.lanes, min(_SUMS, registers.number - 4)
        self._stages = stage_order.stages(recurrence)
        self.kept = stage_order.kept_values(recurrence)
        sums = [len(stage_order.products(recurrence, stage, self.kept)) for stage in self._stages]
        fitting = [each for each in range(1, _SEQUENCES + 1) if batch is not None and batch % each == 0]
        self.sequences = max((each for each in fitting if each * max(sums) <= self._most_sums), default=1)
        self.panels = self._packed(self._stages)
        self._decided = [key for key, size in (("length", length), ("batch", batch)) if size is None]
        outputs = map(recurrence.size, recurrence.outputs)
        self._reads = [
            *(_Tensor(f"h{place}", (batch, size)) for place, size in enumerate(recurrence.carries)),
            *(_Tensor(f"x{place}", (length, batch, size)) for place, size in enumerate(recurrence.rows)),
            *(_Tensor(f"c{place}", (size,)) for place, size in enumerate(recurrence.vectors)),
            *(_Tensor(f"m{place}", self._matrix_sizes(place)) for place in range(len(recurrence.matrices))),
        ]
        self._writes = [
            *(_Tensor(f"last{place}", (batch, size)) for place, size in enumerate(recurrence.carries)),
            *(_Tensor(f"y{place}", (length, batch, size)) for place, size in enumerate(outputs)),
        ]
        self.writer = Writer()

    def _matrix_sizes(self, place: int) -> tuple[int, ...]:
        rows, columns = self.recurrence.matrices[place]
        panels = self.panels.get(place)
        return (panels.number, rows, panels.parts * panels.width) if panels else (rows, columns)

    def module(self, name: str) -> str:
        """The text of the module."""
        self._body()
        sizes = [f"%{key}" for key in self._decided]
        indices = [f"{size}: index" for size in sizes]
        arguments = [
            *(f"%in_{each.name}: {each.of_dispatch('readonly')}" for each in self._reads),
            *(f"%in_{key}: index" for key in self._decided),
            *(f"%out_{each.name}: {each.of_dispatch('writeonly')}" for each in self._writes),
        ]
        results = listed(each.type for each in self._writes)
        return f"""
flow.executable private @{name} {{
  flow.executable.export public @{name} workgroups({listed(indices)}) -> (index, index, index) {{
    %one = arith.constant 1 : index
    %groups = arith.constant {(self._batch or 1) // self.sequences} : index
    flow.return {"%batch" if self._batch is None else "%groups"}, %one, %one : index, index, index
  }}
  builtin.module {{
    func.func @{name}({listed(arguments)}) {{
      {self.writer.text()}
      return
    }}
  }}
}}
util.func private @call({listed([*(f"%{each.name}: {each.type}" for each in self._reads), *indices])})
    -> ({results}) {{
  %found:{len(self._writes)} = flow.dispatch @{name}::@{name}{f"[{listed(sizes)}]" if sizes else ""}(
      {listed([*(f"%{each.name}" for each in self._reads), *sizes])})
      : ({listed([*(each.tied for each in self._reads), *("index" for _ in sizes)])})
      -> ({listed(each.tied for each in self._writes)})
  util.return {listed(f"%found#{place}" for place in range(len(self._writes)))} : {results}
}}
"""

    def _body(self) -> None:
        """What a workgroup does."""
        write = self.writer
        for place, key in enumerate(self._decided):
            write.emit(f"%{key} = iree_tensor_ext.dispatch.workload.ordinal %in_{key}, {place} : index")
        write.emit("%zero = arith.constant 0.0 : f32")
        for each in self._reads:
            self._load(each)
        group = write.op("flow.dispatch.workgroup.id[0] : index")
        self._first = write.op(f"arith.muli {group}, {write.index(self.sequences)} : index")
        self.at = [write.plus(self._first, each) for each in range(self.sequences)]
        self._run()
        for each in self._writes:
            self._store(each)

    def _tied(self, name: str, access: str, each: _Tensor) -> str:
        kind = each.operand(access)
        return self.writer.op(f"flow.dispatch.tie_shape {name} : {kind}") if kind.endswith("}") else name

    def _load(self, each: _Tensor) -> None:
        tied = self._tied(f"%in_{each.name}", "readonly", each)
        offsets, strides = (listed(number for _ in each.sizes) for number in "01")
        value = self.writer.op(
            f"iree_tensor_ext.dispatch.tensor.load {tied}, offsets = [{offsets}], "
            f"sizes = [{listed(each.names)}], strides = [{strides}] : "
            f"{each.operand('readonly')} -> {each.type}"
        )
        self.writer.memory(f"in_{each.name}", value, each.type)

    def _store(self, each: _Tensor) -> None:
        tied = self._tied(f"%out_{each.name}", "writeonly", each)
        value, kind = self.writer.after(each.name)
        *before, _, size = each.names
        offsets = listed([*("0" for _ in before), self._first, "0"])
        self.writer.emit(
            f"iree_tensor_ext.dispatch.tensor.store {value}, {tied}, offsets = [{offsets}], "
            f"sizes = [{listed([*before, str(self.sequences), size])}], "
            f"strides = [{listed('1' for _ in each.sizes)}] : {kind} -> {each.operand('writeonly')}"
        )

    def _run(self) -> None:
        """All trips."""
        write, r = self.writer, self.recurrence
        length = "%length" if self._length is None else write.index(self._length)
        none, one, two = map(write.index, range(3))
        for place, size in enumerate(r.carries):
            write.allocate(f"h{place}", (2, self.sequences, size))
            write.allocate(f"last{place}", (self.sequences, size))
        for key in self.kept:
            write.allocate(key, (self.sequences, r.size(key)))
        for place, value in enumerate(r.outputs):
            sizes = (self._length, self.sequences, r.size(value))
            write.allocate(f"y{place}", sizes, "%length" if self._length is None else "")
        for place in range(len(r.carries)):
            for sequence, at in enumerate(self.at):
                first = Row(f"h{place}", (none, write.index(sequence)))
                self._copy(place, Row(f"in_h{place}", (at,)), first)
        written = [part.memory for stage in self._stages for part in stage.parts]
        with write.loop(length, 1, written) as self.trip:
            self.old = write.op(f"arith.remui {self.trip}, {two} : index")
            self._next = write.op(f"arith.subi {one}, {self.old} : index")
            for stage in self._stages:
                self._stage(stage)
        last = write.op(f"arith.remui {length}, {two} : index")
        for place in range(len(r.carries)):
            for sequence in range(self.sequences):
                own = write.index(sequence)
                self._copy(place, Row(f"h{place}", (last, own)), Row(f"last{place}", (own,)))

    def _copy(self, place: int, read: Row, into: Row) -> None:
        """Copy a carry of one sequence."""
        size = self.recurrence.carries[place]
        tile = self._tile(size, 0)
        with self.writer.over(size, tile, [into.memory]) as first:
            for vector in range(tile.vectors):
                at = self.writer.plus(first, vector * tile.lanes)
                self.writer.write(self.writer.read(read, at, tile), into, at, tile)

    def _packed(self, stages: list[Stage]) -> dict[int, Panels]:
        """The matrices that are read as panels: those whose columns one stage reads, each once."""
        found: dict[int, Panels] = {}
        for stage in stages:
            tile = self._stage_tile(stage)
            summed = stage_order.products(self.recurrence, stage, self.kept)
            for step in {each.step for each in summed}:
                place, parts = self.matrix(step), sorted(each.first for each in summed if each.step == step)
                columns = self.recurrence.matrices[place][1]
                readers = [each for each in self.recurrence.steps if f"m{place}" in each.operands]
                is_whole = parts == list(range(0, columns, stage.size)) and len(parts) * stage.size == columns
                if is_whole and stage.size % tile.size == 0 and len(readers) == 1:
                    found[place] = Panels(len(parts), stage.size // tile.size, tile.size)
        return found

    def _stage_tile(self, stage: Stage) -> Tile:
        """The tile of a stage's loop."""
        return self._tile(stage.size, max(map(len, self._together(stage)), default=0))

    def _together(self, stage: Stage) -> list[list[Products]]:
        """The products of a stage, those that multiply the same value together."""
        found = stage_order.products(self.recurrence, stage, self.kept)
        return [list(each) for _, each in groupby(sorted(found, key=self.multiplied), self.multiplied)]

    def matrix(self, step: str) -> int:
        """The place of the matrix of a product."""
        found = self.recurrence.step(step)
        assert found is not None
        return int(str(found.operands[1])[1:])

    def _tile(self, size: int, sums: int) -> Tile:
        """The vectors that a loop computes at once, where each of them has some sums."""
        lanes = self._lanes
        while lanes > size:
            lanes //= 2
        most = max(1, self._most_sums // max(sums * self.sequences, 1))
        fitting = range(1, min(most, size // lanes, _VECTORS) + 1)
        return min(
            (Tile(lanes, vectors) for vectors in fitting),
            key=lambda tile: (-(-size // tile.size) * tile.size, -tile.vectors),
        )

    def _stage(self, stage: Stage) -> None:
        """The loop of a stage."""
        tile = self._stage_tile(stage)
        with self.writer.over(stage.size, tile, [part.memory for part in stage.parts]) as first:
            values = _Values(self, tile, first)
            for summed in self._together(stage):
                values.sum(summed)
            for part in stage.parts:
                for sequence in range(self.sequences):
                    for vector in range(tile.vectors):
                        value = values.of(part.value, 0, vector, sequence, is_own=part.is_own)
                        at = self.writer.plus(first, part.first + vector * tile.lanes)
                        self.writer.write(value, self._target(part.memory, sequence), at, tile)

    def multiplied(self, summed: Products) -> tuple[str, int, int]:
        """What a product multiplies: the value, from which place on, and how many of its numbers."""
        step = self.recurrence.step(summed.step)
        assert step is not None
        value, first = stage_order.source(self.recurrence, step.operands[0])
        return str(value), first, self.recurrence.size(step.operands[0])

    def _target(self, memory: str, sequence: int) -> Row:
        own = self.writer.index(sequence)
        before = {"h": (self._next,), "y": (self.trip,)}.get(memory[0], ())
        return Row(memory, (*before, own))

    def row(self, value: Operand, sequence: int) -> Row:
        """Where a value is read, which a carry, an input, a vector or an earlier stage has."""
        own = self.writer.index(sequence)
        kind = str(value)[0]
        if kind == "h":
            return Row(str(value), (self.old, own))
        if kind == "x":
            return Row(f"in_{value}", (self.trip, self.at[sequence]))
        return Row(f"in_{value}") if kind == "c" else Row(str(value), (own,))


class _Values:
    """The values of one tile of a stage, each computed once."""

    def __init__(self, kernel: _Kernel, tile: Tile, first: str) -> None:
        self._kernel, self._tile, self._first = kernel, tile, first
        self._write, self._recurrence = kernel.writer, kernel.recurrence
        self._known: dict[tuple[Operand, int, int, int], str] = {}

    def sum(self, summed: list[Products]) -> None:
        """Sum products that multiply the same value."""
        kernel, write, tile = self._kernel, self._write, self._tile
        sequences, vectors = range(kernel.sequences), range(tile.vectors)
        value, first, reduced = kernel.multiplied(summed[0])
        keys = [
            (each.step, each.first, vector, sequence)
            for each in summed
            for vector in vectors
            for sequence in sequences
        ]
        zeros = write.op(f"arith.constant dense<0.0> : {tile.type}")
        with write.sums(write.index(reduced), 1, [zeros] * len(keys), tile.type) as (index, values):
            sums = dict(zip(keys, values, strict=True))
            factors = [
                write.read_number(kernel.row(value, sequence), write.plus(index, first), tile)
                for sequence in sequences
            ]
            for each in summed:
                for vector in vectors:
                    weights = self._weights(each, index, vector)
                    for sequence in sequences:
                        key = (each.step, each.first, vector, sequence)
                        sums[key] = write.product_added(factors[sequence], weights, sums[key], tile)
            values[:] = sums.values()
        self._known |= dict(zip(keys, values, strict=True))

    def _weights(self, summed: Products, index: str, vector: int) -> str:
        """The numbers of a matrix that a number is multiplied by."""
        write, tile, place = self._write, self._tile, self._kernel.matrix(summed.step)
        matrix, panels = f"in_m{place}", self._kernel.panels.get(place)
        if panels is None:
            at = write.plus(self._first, summed.first + vector * tile.lanes)
            return write.read(Row(matrix, (index,)), at, tile)
        panel = write.op(f"arith.divui {self._first}, {write.index(tile.size)} : index")
        part = summed.first // (panels.number * panels.width)
        at = write.index(part * panels.width + vector * tile.lanes)
        return write.read(Row(matrix, (panel, index)), at, tile)

    def of(self, value: Operand, first: int, vector: int, sequence: int, *, is_own: bool = False) -> str:
        """A vector of a value: `first` is the place in it where the tile's first number is."""
        key = (value, first, vector, sequence)
        if is_own or key not in self._known:
            found = self._computed(value, first, vector, sequence, is_own=is_own)
            if is_own:
                return found
            self._known[key] = found
        return self._known[key]

    def _computed(self, value: Operand, first: int, vector: int, sequence: int, *, is_own: bool) -> str:
        write, tile = self._write, self._tile
        if not isinstance(value, str):
            return write.op(f"arith.constant dense<{float(value):.17e}> : {tile.type}")
        step = self._recurrence.step(value)
        if step is None or (value in self._kernel.kept and not is_own):
            at = write.plus(self._first, first + vector * tile.lanes)
            return write.read(self._kernel.row(value, sequence), at, tile)
        if step.op == "matmul":
            return self._known[value, first, vector, sequence]
        if step.op == "slice":
            return self.of(step.operands[0], first + int(step.operands[1]), vector, sequence)
        if step.op == "spread":
            source, place = stage_order.source(self._recurrence, step.operands[0])
            return write.read_number(self._kernel.row(source, sequence), write.index(place), tile)
        names = {"v0": ""} | {
            f"a{place}": self.of(operand, first, vector, sequence)
            for place, operand in enumerate(step.operands)
            if isinstance(operand, str)
        }
        operands = tuple(
            f"a{place}" if isinstance(operand, str) else operand
            for place, operand in enumerate(step.operands)
        )
        own = write.new().removeprefix("%")
        lines, found = steps.emitted(Steps((steps.Step(step.op, operands),)), names, tile.type, "f32", own)
        for line in lines:
            write.emit(line)
        return found
