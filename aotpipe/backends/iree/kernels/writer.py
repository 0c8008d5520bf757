"""Writes the body of a dispatch: ops on vectors, and memories that loops hand on.

A memory is a tensor that is changed in place: each write gives the tensor after it, and reads see the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

Sizes = Sequence[int | None]


class Tile(NamedTuple):
    """Some vectors that a trip of a loop computes."""

    lanes: int
    vectors: int

    @property
    def type(self) -> str:
        """A vector's type."""
        return f"vector<{self.lanes}xf32>"

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return self.lanes * self.vectors


class Row(NamedTuple):
    """A row of a memory: all indices but the last."""

    memory: str
    indices: tuple[str, ...] = ()


class Writer:
    """The ops written so far, and which value has each memory's numbers after them."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._constants: dict[int, str] = {}
        self._numbers = count()
        self._memory: dict[str, str] = {}
        self._types: dict[str, str] = {}

    def text(self) -> str:
        """The ops, after the constants that they read."""
        constants = [f"{name} = arith.constant {number} : index" for number, name in self._constants.items()]
        return "\n".join([*constants, *self._lines])

    def emit(self, line: str) -> None:
        """Write an op."""
        self._lines.append(line)

    def new(self) -> str:
        """A name that no value has yet."""
        return f"%n{next(self._numbers)}"

    def op(self, text: str) -> str:
        """Write an op; the name of its result."""
        name = self.new()
        self.emit(f"{name} = {text}")
        return name

    def index(self, number: int) -> str:
        """A constant index."""
        return self._constants.setdefault(number, f"%at{number}")

    def plus(self, index: str, number: int) -> str:
        """An index and a constant added."""
        return self.op(f"arith.addi {index}, {self.index(number)} : index") if number else index

    def part(self, nth: str, count: str, size: int) -> tuple[str, str]:
        """Where a workgroup's rows begin, of so many for each, and how many there are: the last has fewer."""
        first = self.op(f"arith.muli {nth}, {self.index(size)} : index")
        left = self.op(f"arith.subi {count}, {first} : index")
        return first, self.op(f"arith.minsi {left}, {self.index(size)} : index")

    def memory(self, key: str, value: str, kind: str) -> None:
        """Let a value be a memory."""
        self._memory[key], self._types[key] = value, kind

    def allocate(self, key: str, sizes: Sizes, decided: str = "") -> None:
        """A memory of its own; `decided` is the size that is None."""
        kind = tensor_type(sizes)
        self.memory(key, self.op(f"tensor.empty({decided}) : {kind}"), kind)

    def after(self, key: str) -> tuple[str, str]:
        """The value that a memory is after the last write, and its type."""
        return self._memory[key], self._types[key]

    def read(self, row: Row, at: str, tile: Tile) -> str:
        """A vector of a row."""
        value, kind = self.after(row.memory)
        place = listed([*row.indices, at])
        return self.op(
            f"vector.transfer_read {value}[{place}], %zero {{in_bounds = [true]}} : {kind}, {tile.type}"
        )

    def read_number(self, row: Row, at: str, tile: Tile) -> str:
        """A number of a row, in each place of a vector."""
        value, kind = self.after(row.memory)
        number = self.op(f"tensor.extract {value}[{listed([*row.indices, at])}] : {kind}")
        return self.op(f"vector.broadcast {number} : f32 to {tile.type}")

    def product_added(self, left: str, right: str, to: str, tile: Tile) -> str:
        """A product of two vectors and a third added, rounded once where a CPU can.

        A CPU without such an op would call a function for each number of `math.fma`.
        """
        product = self.op(f"arith.mulf {left}, {right} fastmath<contract> : {tile.type}")
        return self.op(f"arith.addf {to}, {product} fastmath<contract> : {tile.type}")

    def write(self, vector: str, row: Row, at: str, tile: Tile) -> None:
        """Put a vector into a row."""
        value, kind = self.after(row.memory)
        place = listed([*row.indices, at])
        self._memory[row.memory] = self.op(
            f"vector.transfer_write {vector}, {value}[{place}] {{in_bounds = [true]}} : {tile.type}, {kind}"
        )

    @contextmanager
    def loop(self, bound: str, step: int, written: Iterable[str]) -> Iterator[str]:
        """A loop up to a bound that writes to some memories; gives its index."""
        with self.sums(bound, step, [], "", written) as (index, _):
            yield index

    @contextmanager
    def sums(
        self, bound: str, step: int, starts: Sequence[str], kind: str, written: Iterable[str] = ()
    ) -> Iterator[tuple[str, list[str]]]:
        """A loop that carries values of a type, too, from some starts; gives its index and the values.

        The caller puts the next values in the list, which has those of the last trip after the loop.
        """
        keys = list(dict.fromkeys(written))
        index, found = self.new(), self.new()
        inner = {key: self.new() for key in keys}
        values = [self.new() for _ in starts]
        begun = [*zip(values, starts, strict=True), *((inner[key], self._memory[key]) for key in keys)]
        types = listed([*(kind for _ in starts), *(self._types[key] for key in keys)])
        self.emit(
            f"{found}:{len(begun)} = scf.for {index} = {self.index(0)} to {bound} step {self.index(step)} "
            f"iter_args({listed(f'{own} = {start}' for own, start in begun)}) -> ({types}) {{"
        )
        self._memory |= inner
        yield index, values
        self.emit(f"scf.yield {listed([*values, *(self._memory[key] for key in keys)])} : {types}\n}}")
        values[:] = [f"{found}#{place}" for place in range(len(starts))]
        self._memory |= {key: f"{found}#{len(starts) + place}" for place, key in enumerate(keys)}

    @contextmanager
    def over(self, size: int, tile: Tile, written: Iterable[str]) -> Iterator[str]:
        """A loop over the tiles of a row; the last one ends where the row does."""
        with self.loop(self.index(size), tile.size, written) as following:
            if size % tile.size:
                last = self.index(size - tile.size)
                yield self.op(f"arith.minsi {following}, {last} : index")
            else:
                yield following


def listed(items: Iterable[str]) -> str:
    """Items with commas between them."""
    return ", ".join(items)


def tensor_type(sizes: Sizes) -> str:
    """A tensor's type; None is a size that a call decides."""
    return f"tensor<{''.join('?x' if size is None else f'{size}x' for size in sizes)}f32>"
