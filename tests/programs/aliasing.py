"""Random models that write in place through views, in branches and loops, and read other names of the memory.

`source(seed)` gives the text of one, for the inputs of `branching`: every tensor of the model is returned, so
that a write which a name does not see is a difference.
"""

from __future__ import annotations

import random
import sys
from typing import Final

HEADER: Final = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, k):
        y = x * 0.5
        z = torch.outer(x, x)
        s = torch.zeros(())
        i = k.clamp(0, 2)
"""
OF_VECTOR: Final = ("{V}[{I}:]", "{V}[:{I}]", "{V}.view(-1)", "{V}[::2]", "{V}.detach()", "{V}", "{V}[None]")
OF_MATRIX: Final = (
    *("{M}[{I}]", "{M}[{I}:]", "{M}[:{I}]", "{M}.t()", "{M}.view(-1)", "{M}[:, {I}]", "{M}[::2]", "{M}[i]"),
    *("{M}.T[{I}]", "{M}.transpose(0, 1)[{I}:]", "{M}.unsqueeze(0)", "{M}.diagonal()", "{M}.view(9)[1:7]"),
)
WRITES: Final = (
    *(
        "{V}.mul_(2)",
        "{V}.add_({I})",
        "{V}[0] = {W}.sum()",
        "{V} += {I}",
        "{V}.copy_({V} * 0.5)",
        "{V}.zero_()",
    ),
    *("{V}[...] = {I}", "{V}.sub_({W}.sum())", "{V}.clamp_(-{I}, {I})", "{V}[i % {V}.shape[0]] = {I}"),
)
TESTS: Final = ("x.sum() > 0", "k > 1", "s > 3", "y.max() < 1", "{V}.sum() > 1")


class Writer:
    """Writes one model."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.names = ["x", "y", "z"]
        self.matrices = ["z"]
        self.made = 0

    def text(self, template: str) -> str:
        return template.format(
            V=self.random.choice(self.names),
            W=self.random.choice(self.names),
            M=self.random.choice(self.matrices),
            I=self.random.choice((1, 2)),
        )

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def view(self, depth: int) -> None:
        self.made += 1
        if self.random.random() < 0.7:
            self.line(depth, f"v{self.made} = {self.text(self.random.choice(OF_MATRIX))}")
        else:
            name = self.random.choice(["x", "y"])
            template = self.random.choice(OF_VECTOR)
            self.line(depth, f"v{self.made} = {template.format(V=name, I=self.random.choice((1, 2)))}")
        self.names.append(f"v{self.made}")

    def statement(self, depth: int, deeper: int) -> None:
        choice = self.random.random()
        if choice < 0.2:
            self.view(depth)
        elif choice < 0.5:
            self.line(depth, self.text(self.random.choice(WRITES)))
        elif choice < 0.65:
            self.line(depth, self.text("s = s + {V}.sum() * 0.5"))
        elif choice < 0.72:
            name = self.random.choice(self.names)
            self.line(depth, f"{name} = {name}{self.random.choice(['.clone()', ' + 1'])}")
        elif not deeper:
            self.line(depth, self.text("s = s + {V}.sum()"))
        elif choice < 0.88:
            self.line(depth, f"if {self.text(self.random.choice(TESTS))}:")
            self.block(depth + 1, deeper - 1)
            if self.random.random() < 0.5:
                self.line(depth, "else:")
                self.block(depth + 1, deeper - 1)
        else:
            self.made += 1
            count = f"n{self.made}"
            self.line(depth, f"{count} = 0")
            self.line(depth, f"while {count} < k:")
            self.block(depth + 1, deeper - 1)
            self.line(depth + 1, f"{count} = {count} + 1")

    def block(self, depth: int, deeper: int) -> None:
        known, matrices = list(self.names), list(self.matrices)
        self.line(depth, self.text(self.random.choice(WRITES)))
        for _ in range(self.random.randrange(1, 4)):
            self.statement(depth, deeper)
        self.names, self.matrices = known, matrices

    def model(self) -> str:
        for _ in range(self.random.randrange(1, 4)):
            self.view(2)
        for _ in range(self.random.randrange(2, 6)):
            self.statement(2, 2)
        self.line(2, f"if {self.random.choice(TESTS[:3])}:")
        self.block(3, 1)
        self.line(2, f"return s, {', '.join(self.names)}")
        return HEADER + "\n".join(self.lines) + "\n"


def source(seed: int) -> str:
    """The text of a model."""
    return Writer(seed).model()


if __name__ == "__main__":
    print(source(int(sys.argv[1])))
