"""Random models that raise and catch: in their own code, in methods that they call, by indices and divisors.

Beside what `holding` writes, one of `source(seed)` raises where tensors decide, always inside of a `try` that
catches it in the end: what a call that raises leaves in the model is another matter.
"""

from __future__ import annotations

import sys
from typing import Final

from tests.programs import holding

METHODS: Final = """
    def _checked(self, v, n):
        if v.sum() > n:
            raise ValueError("large")
        return v - 1

    def _counted(self, v):
        self.calls += 1
        if v.max() > 2:
            self.last = 7
            raise RuntimeError("high")
        self.calls += 10
        return v * 2

    def _tried(self, v, n):
        try:
            return self._checked(v, n)
        except KeyError:
            return v * 3
        finally:
            self.calls += 3

    def forward(self, x, k):"""
RAISING: Final = (
    "{v} = self._checked({v}, {n})",
    "{v} = self._counted({v})",
    "{v} = self._tried({v}, {n})",
    "{n} = 6 // {n}",
    "{v} = {v} + [1, 2, 3][{n}]",
    "{n} = {{0: 1, 2: 5}}[{n}]",
    "{v} = {v} + {v}[{n}]",
    "assert {test}, 'asserted'",
)
KINDS: Final = (
    "ValueError",
    "RuntimeError",
    "LookupError",
    "(ValueError, ArithmeticError)",
    "AssertionError",
)


class Raiser(holding.Holder):
    """Writes one forward."""

    header = holding.HEADER.replace("\n    def forward(self, x, k):", METHODS)

    def __init__(self, seed: int, *, anything: bool) -> None:
        super().__init__(seed, anything=anything)
        self.caught = 0

    def compound(self, indent: int, *, loop: bool, guarded: bool) -> None:
        # Each of three nested ones is run for each way through the others, which takes minutes.
        if self.caught < 2 and self.random.random() < (0.3 if self.caught else 0.6):
            self.try_(indent, loop=loop, guarded=guarded)
        else:
            super().compound(indent, loop=loop, guarded=guarded)

    def simple(self, indent: int) -> None:
        if not self.caught or self.random.random() < 0.5:
            super().simple(indent)
            return
        vector, number = (self.random.choice(self.names[kind]) for kind in "VN")
        if self.random.random() < 0.4:
            self.put(indent, f"if {self.test(1)}:")
            self.put(indent + 1, f"raise {self.random.choice(('ValueError', 'KeyError'))}({number})")
        else:
            line = self.random.choice(RAISING)
            self.put(indent, line.format(v=vector, n=number, test=self.test(1)))

    def try_(self, indent: int, *, loop: bool, guarded: bool) -> None:
        kinds = self.random.sample(KINDS, self.random.randint(0, 2))
        if not self.caught:
            kinds.append("Exception")
        self.put(indent, "try:")
        self.caught += 1
        self.block(indent + 1, loop=loop, guarded=guarded)
        if len(kinds) > 1 or not kinds:
            self.simple(indent + 1)
        self.caught -= 1
        for number, kind in enumerate(kinds):
            self.put(indent, f"except {kind} as error{number}:")
            self.block(indent + 1, loop=loop, guarded=guarded)
            if self.caught and self.random.random() < 0.3:
                self.put(indent + 1, "raise")
        if kinds and self.random.random() < 0.3:
            self.put(indent, "else:")
            self.block(indent + 1, loop=loop, guarded=guarded)
        if not kinds or self.random.random() < 0.3:
            self.put(indent, "finally:")
            self.put(indent + 1, f"{self.random.choice(self.names['N'])} = {self.value('N')}")


def source(seed: int) -> str:
    """The text of a module."""
    return Raiser(seed, anything=False).text()


if __name__ == "__main__":
    print(source(int(sys.argv[1])))
