"""Random models whose sizes depend on data: masks, loops over rows, queues, parts of other sizes on paths.

`source(seed)` gives the text of a model of a vector `x` of three elements and a whole number `k`, as
`branching.source` does. `r` and `s` are rows of as many elements as only a run knows, `t` is a number.
"""

from __future__ import annotations

import random
import sys
from typing import Final

HEADER: Final = """
import torch


class Model(torch.nn.Module):
    def _twice(self, v):
        if len(v) > 1:
            return v[1:] * 2
        return v

    def forward(self, x, k):
        t = x.sum()
        r = x[x > 0]
        s = x * 1
        found = []
"""
ROWS: Final = (
    "x[x > {C}]",
    "r[r > {C}]",
    "s[s > t * 0.1]",
    "r[1:]",
    "s[:-1]",
    "r[:2]",
    "s * 2",
    "r + 1",
    "x[(x > {C}).nonzero().flatten()]",
    "x[(x > {C}).nonzero()[:, 0]]",
    "self._twice(r)",
    "r[:k]",
    "torch.sort(r).values",
    "torch.zeros(0)",
    "(r if {T} else s)",
    "torch.cat([r, s[:1]])[:4]",
)
NUMBERS: Final = (
    "t + r.sum()",
    "t + len(r)",
    "t + s.shape[0] * {C}",
    "t - s.numel()",
    "t + (r.max() if len(r) > 0 else {C})",
    "t + (s[1] if len(s) > 1 else 0.5)",
    "t + sum(v * 2 for v in r)",
    "t + sum([v for v in s if v > {C}])",
    "t + len([v for v in s if v > {C}])",
    "t * 0.5 + (r * r).sum()",
    "t + x[: len(r)].sum()",
    "t + sum(found)",
    "t + len(found)",
)
TESTS: Final = (
    "len(r) > {N}",
    "s.shape[0] == {N}",
    "t > {C}",
    "len(s) > {N} and s[{N}] > {C}",
    "len(r) == 0 or r[0] > {C}",
    "len(r) < len(s)",
    "k > {N}",
    "not len(found)",
    "r.sum() > {C}",
)
STATEMENTS: Final = tuple("rows rows number number if if for enumerate zip while append range".split())


class _Writer:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.lines: list[str] = []

    def _filled(self, text: str) -> str:
        while "{" in text:
            for key, values in (
                ("{T}", TESTS),
                ("{C}", ("0", "0.5", "1.5", "-1")),
                ("{N}", ("0", "1", "2", "3")),
            ):
                text = text.replace(key, self._random.choice(values), 1)
        return text

    def _put(self, depth: int, text: str) -> None:
        self.lines.append("    " * (depth + 2) + self._filled(text))

    def block(self, depth: int, count: int, loops: int = 0, kept: str = "") -> None:
        """Statements, `loops` of the blocks around which are loops; the rows in `kept` are not made anew."""
        for _ in range(count):
            self._statement(depth, loops, kept)

    def _statement(self, depth: int, loops: int, kept: str) -> None:
        kind = self._random.choice(STATEMENTS)
        if depth > 2 or (loops and kind in ("for", "enumerate", "zip", "while", "range") and loops > 1):
            kind = self._random.choice(("rows", "number"))
        name = self._random.choice("rs")
        if name in kept and kind == "rows":
            kind = "number"
        inner = self._random.randint(1, 2)
        if kind == "rows":
            self._put(depth, f"{name} = {self._random.choice(ROWS)}")
        elif kind == "number":
            self._put(depth, f"t = {self._random.choice(NUMBERS)}")
        elif kind == "append":
            self._put(depth, "t = t + 1" if loops else "found.append(t)")
        elif kind == "if":
            self._put(depth, "if {T}:")
            self.block(depth + 1, inner, loops, kept)
            if self._random.random() < 0.6:
                self._put(depth, "else:")
                self.block(depth + 1, inner, loops, kept)
        elif kind == "while":
            self._put(depth, f"while len({name}) > {{N}}" + self._random.choice((":", " and ({T}):")))
            # Each trip takes a row away, so that the loop ends.
            self.block(depth + 1, inner, loops + 1, kept + name)
            self._put(depth + 1, f"{name} = {name}[1:]")
        else:
            over = {
                "for": f"for v in {name}:",
                "enumerate": f"for i, v in enumerate({name}):",
                "zip": "for v, i in zip(r, s):",
                "range": f"for i in range(len({name})):",
            }[kind]
            # What is gone through is not changed inside: `range(len(r))` would be of another `r`.
            self._put(depth, over)
            if self._random.random() < 0.4:
                self._put(depth + 1, "if {T}:")
                self._put(depth + 2, self._random.choice(("break", "continue")))
            used = f"{name}[i]" if kind == "range" else "v"
            self._put(depth + 1, f"t = t * 0.5 + {used}" + (" * i" if kind != "for" else ""))
            if self._random.random() < 0.5:
                self._put(depth + 1, f"t = {self._random.choice(NUMBERS)}")


def source(seed: int) -> str:
    """The text of the module that the model of a seed is in."""
    writer = _Writer(seed)
    writer.block(0, writer._random.randint(3, 6))
    given = writer._random.choice(("t", "t, r", "t, len(s)", "r.sum() + t, s"))
    return "\n".join([HEADER.rstrip("\n"), *writer.lines, f"        return {given}", ""])


if __name__ == "__main__":
    print(source(int(sys.argv[1])))
