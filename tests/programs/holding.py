"""Random models that keep things: lists, dicts, tuples, attributes, generators, parts of tensors.

Beside what `branching` writes, one of `source(seed)` appends to lists, fills dicts and tuples, changes
attributes of the model, loops over generators, leaves `try` by `finally`, and writes rows in place.
"""

from __future__ import annotations

import sys
from typing import Final

from tests.programs.branching import Writer

HEADER: Final = """
import torch


class Box:
    def __init__(self, count):
        self.count = count


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.size = 2
        self.calls = 0
        self.last = None
        self.mean = torch.ones(3)

    def _twice(self, v):
        if v.sum() > 1:
            return v * 2
        return v

    def _perhaps(self, v):
        if v.max() > 1:
            return v + 1
        return None

    def _rising(self, v, most):
        for i in range(most):
            if v.sum() > i + 1:
                return
            v = v + 1
            yield v

    def forward(self, x, k):
        y = x * 0.5
        n = 0
        m = 2
        box = Box(1)
        seen = []
        table = {"v": x, "n": 1}
        pair = (y, n)
        self.calls += 1
"""
VECTORS: Final = ('table["v"]', "pair[0]", "self.mean", "sum(seen, {V})", "seen[-1] if seen else {V}")
NUMBERS: Final = ('table["n"]', "pair[1]", "self.calls", "len(seen)")
TESTS: Final = ("seen", "len(seen) > {N}", 'table["n"] > {N}', "self.last is None", "{K} in (1, 2)")


class Holder(Writer):
    """Writes one forward."""

    header = HEADER
    vectors = (*Writer.vectors, *VECTORS)
    numbers = (*Writer.numbers, *NUMBERS)
    tests = (*Writer.tests, *TESTS)

    def result(self, indent: int) -> None:
        vector, number = (self.random.choice(self.names[kind]) for kind in "VN")
        parts = ["pair[0]", 'table["v"]', "len(seen)", "sum(seen, y)", "self.mean * 1"]
        left = self.random.sample(parts, 2)
        self.put(indent, f"return {vector}, {number} + box.count, {', '.join(left)}")

    def simple(self, indent: int) -> None:
        if self.random.random() < 0.55:
            super().simple(indent)
            return
        vector, number = (self.random.choice(self.names[kind]) for kind in "VN")
        place = self.random.choice(("0", "-1", "1:", "k % 3", "n % 3"))
        lines = (
            f"seen.append({self.value('V')})",
            f"seen.append({vector})",
            f'table["v"] = {self.value("V")}',
            f'table["n"] += {number}',
            f"pair = ({self.value('V')}, {number})",
            f"{vector}, {number} = pair",
            f"self.calls += {number} % 2",
            f"self.mean = {self.value('V')}",
            f"self.mean = self.mean * 0.5 + {vector} * 0.5",
            f"self.last = {number}",
            f"{vector}[{place}] = {number}",
            f"{vector}[{place}] += 1",
            f"{vector} = {vector}.clone()",
        )
        self.put(indent, self.random.choice(lines))

    def compound(self, indent: int, *, loop: bool, guarded: bool) -> None:
        options = (self.perhaps, self.rising, self.finally_, self.over)
        if self.random.random() < 0.7:
            super().compound(indent, loop=loop, guarded=guarded)
        else:
            self.random.choice(options)(indent, loop=loop, guarded=guarded)

    def perhaps(self, indent: int, *, loop: bool, guarded: bool) -> None:
        """A value that may be None."""
        name = self.new("P")
        self.put(indent, f"{name} = self._perhaps({self.random.choice(self.names['V'])})")
        self.put(indent, f"if {name} is not None:")
        self.put(indent + 1, f"{self.random.choice(self.names['V'])} = {name} * 0.5")
        self.block(indent + 1, loop=loop, guarded=guarded)

    def rising(self, indent: int, *, loop: bool, guarded: bool) -> None:
        """A generator that stops where a tensor says so."""
        name, vector = self.new("V"), self.random.choice(self.names["V"])
        self.put(indent, f"for {name} in self._rising({vector}, {self.random.randint(1, 3)}):")
        self.inside(name, indent, guarded=guarded)

    def over(self, indent: int, *, loop: bool, guarded: bool) -> None:
        """A loop over a list of tensors."""
        name, vector = self.new("V"), self.random.choice(self.names["V"])
        items = self.random.choice((f"[{vector}, {vector} * 2]", "list(seen)", f"({vector}, pair[0])"))
        self.put(indent, f"for {name} in {items}:")
        self.inside(name, indent, guarded=guarded)

    def inside(self, name: str, indent: int, *, guarded: bool) -> None:
        before = {kind: list(names) for kind, names in self.names.items()}
        self.names["V"].append(name)
        self.block(indent + 1, loop=True, guarded=guarded)
        self.names = before

    def finally_(self, indent: int, *, loop: bool, guarded: bool) -> None:
        self.put(indent, "try:")
        self.block(indent + 1, loop=loop, guarded=guarded)
        self.put(indent, "finally:")
        self.put(indent + 1, f"{self.random.choice(self.names['N'])} = {self.value('N')}")


def source(seed: int) -> str:
    """The text of a module."""
    return Holder(seed, anything=False).text()


if __name__ == "__main__":
    print(source(int(sys.argv[1])))
