"""Random models that keep lists, objects, tensors and buffers, some of them under two names for a while.

`source(seed)` gives the text of one, for the inputs of `branching`: calls assign one name what another has,
give it something else, and change what it has in place, also in branches.
"""

from __future__ import annotations

import random
import sys
from typing import Final

HEADER: Final = """
import torch


class Box:
    def __init__(self, value):
        self.value = value


class Model(torch.nn.Module):
"""
MADE: Final = {
    "list": "[torch.zeros(()), torch.ones(())]",
    "box": "Box(torch.ones(()))",
    "tensor": "torch.ones(3)",
    "buffer": "torch.zeros(3)",
}
STATEMENTS: Final = {
    "list": (
        *("{A}[{I}] = {A}[{J}] + x.sum()", "{A}[{I}] = {B}[{J}] * 0.5", "{A}[{I}] = x.max()"),
        *("{A} = {B}", "{A} = {B}", "{A} = list({B})", "{A} = [x.sum(), {B}[{I}] + 1]"),
        *("{A}, {B} = {B}, {A}", "{A}.reverse()", "y = y + {A}[{I}]", "y = y * {A}[{I}] + {B}[{J}]"),
    ),
    "box": (
        *("{A}.value = {A}.value + x.sum()", "{A}.value = {B}.value * 0.5", "{A} = {B}", "{A} = {B}"),
        *("{A} = Box(x.sum())", "{A}, {B} = {B}, {A}", "y = y + {A}.value", "y = y * {A}.value"),
    ),
    "tensor": (
        *("{A}.add_(x)", "{A} += 1", "{A}[{I}] = x[{J}]", "{A} = {A} * 0.5 + x", "{A} = {B}"),
        *(
            "{A} = {B}.clone()",
            "{A}, {B} = {B}, {A}",
            "{A}.copy_({B})",
            "y = y + {A}.sum()",
            "y = y + {A}[{I}]",
        ),
    ),
}
TESTS: Final = ("x.sum() > 0", "k > 1", "y > 3", "x[0] < 0")


class Writer:
    """Writes one model."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        kinds = self.random.sample(sorted(MADE), self.random.choice((1, 1, 2)))
        self.names = {
            kind: [f"self.{kind}_{at}" for at in range(self.random.choice((2, 2, 3)))] for kind in kinds
        }
        self.lines = ["    def __init__(self):", "        super().__init__()"]

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def make(self, kind: str, names: list[str]) -> None:
        for at, name in enumerate(names):
            held = self.random.choice(names[:at]) if at and self.random.random() < 0.3 else MADE[kind]
            if kind == "buffer":
                self.line(2, f"self.register_buffer({name.removeprefix('self.')!r}, {held})")
            else:
                self.line(2, f"{name} = {held}")

    def statement(self, depth: int, deeper: int) -> None:
        if deeper and self.random.random() < 0.35:
            self.line(depth, f"if {self.random.choice(TESTS)}:")
            for _ in range(self.random.randrange(1, 3)):
                self.statement(depth + 1, deeper - 1)
            if self.random.random() < 0.4:
                self.line(depth, "else:")
                self.statement(depth + 1, deeper - 1)
            return
        kind = self.random.choice(sorted(self.names))
        one, other = self.random.sample(self.names[kind], 2)
        template = self.random.choice(STATEMENTS["tensor" if kind == "buffer" else kind])
        chosen = {"I": self.random.choice((0, 1)), "J": self.random.choice((0, 1))}
        self.line(depth, template.format(A=one, B=other, **chosen))

    def model(self) -> str:
        for kind, names in self.names.items():
            self.make(kind, names)
        self.lines += ["", "    def forward(self, x, k):", "        y = x.sum()"]
        for _ in range(self.random.randrange(2, 7)):
            self.statement(2, 2)
        read = {
            "list": "{0}[0] + {0}[1] * 2",
            "box": "{0}.value",
            "tensor": "{0}.sum()",
            "buffer": "{0}.sum()",
        }
        for kind, names in self.names.items():
            for name in names:
                if self.random.random() < 0.6:
                    self.line(2, f"y = y + {read[kind].format(name)}")
        self.line(2, "return y")
        return HEADER + "\n".join(self.lines) + "\n"


def source(seed: int) -> str:
    """The text of a model."""
    return Writer(seed).model()


if __name__ == "__main__":
    print(source(int(sys.argv[1])))
