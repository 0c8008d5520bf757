"""Random models with lists in lists, in dicts and in objects, that are changed under several names.

`source(seed)` gives the text of one, for the inputs of `branching`: a list gets a second name, becomes an
element or a value, and is changed by any of its names, in branches and in loops.
"""

from __future__ import annotations

import random
import sys
from typing import Final

HEADER: Final = """
import torch


class Box:
    def __init__(self, items):
        self.items = items


class Model(torch.nn.Module):
    def forward(self, x, k):
        a, b, rows, table, box = [1.0], [2.0], [], {"k": [3.0]}, Box([4.0])
        n = 0
"""
STATEMENTS: Final = (
    *(
        "{A}.append({V})",
        "{A}.append({V})",
        "{A}[0] = {V}",
        "{A}.clear()",
        "{A}.extend({B})",
        "{A}.reverse()",
    ),
    *("{L} = {A}", "{L} = {A}", "{L} = list({A})", "{L} = [{V}]", "{L} = {A} + {B}", "{L}, {M} = {M}, {L}"),
    *(
        "rows.append({A})",
        "rows.append({A})",
        "rows = [*rows, {A}]",
        "rows = list(rows)",
        "rows.append(list({A}))",
    ),
    *("rows.insert(0, {A})", "rows.reverse()", 'table["k"] = {A}', 'table["j"] = {A}', "table = dict(table)"),
    *("box.items = {A}", "box = Box({A})", "rows = [{A}, {B}]"),
)
GUARDED: Final = (
    *("rows[-1].append({V})", "rows[0][0] = {V}", "{L} = rows[-1]", "{L} = rows.pop()", "rows[0] = {A}"),
    *("rows[-1].clear()", "rows[-1] = list(rows[0])"),
)
LISTS: Final = ("a", "b", 'table["k"]', "box.items")
VALUES: Final = ("x[0].item()", "x.sum().item()", "float(n)", "0.5", "len(a) * 1.0")
TESTS: Final = ("x.sum() > 0", "k > 1", "x[0] < 0", "len(a) > 1", "sum(b) > 2")


class Writer:
    """Writes one model."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.made = 0

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def text(self, template: str) -> str:
        one, other = self.random.sample(LISTS, 2)
        name, second = self.random.sample(("a", "b"), 2)
        return template.format(A=one, B=other, L=name, M=second, V=self.random.choice(VALUES))

    def statement(self, depth: int, deeper: int) -> None:
        choice = self.random.random()
        if deeper and choice < 0.25:
            self.line(depth, f"if {self.random.choice(TESTS)}:")
            self.block(depth + 1, deeper - 1)
            if self.random.random() < 0.4:
                self.line(depth, "else:")
                self.block(depth + 1, deeper - 1)
        elif deeper and choice < 0.35:
            self.line(depth, "for v in x:")
            self.line(depth + 1, "n = n + 1")
            self.line(depth + 1, "if v > 0:")
            self.block(depth + 2, 0)
        elif deeper and choice < 0.42:
            self.made += 1
            self.line(depth, f"n{self.made} = 0")
            self.line(depth, f"while n{self.made} < k:")
            self.line(depth + 1, f"n{self.made} += 1")
            self.block(depth + 1, 0)
        elif choice < 0.65:
            self.line(depth, "if rows and rows[0] and rows[-1]:")
            self.line(depth + 1, self.text(self.random.choice(GUARDED)))
        else:
            template = self.random.choice(STATEMENTS)
            if "[0] =" in template:
                text = self.text(template)
                self.line(depth, f"if {text.partition('[0] =')[0]}:")
                self.line(depth + 1, text)
            else:
                self.line(depth, self.text(template))

    def block(self, depth: int, deeper: int) -> None:
        for _ in range(self.random.randrange(1, 3)):
            self.statement(depth, deeper)

    def model(self) -> str:
        for _ in range(self.random.randrange(3, 7)):
            self.statement(2, 2)
        self.line(2, 'found = [a, b, table["k"], box.items, *rows]')
        self.line(2, "total = 0.0")
        self.line(2, "for at, items in enumerate(found):")
        self.line(3, "total = total + (at + 1) * (sum(items) + 100 * len(items))")
        self.line(2, "return x * 1, total, len(rows)")
        return HEADER + "\n".join(self.lines) + "\n"


def source(seed: int) -> str:
    """The text of a model."""
    return Writer(seed).model()


if __name__ == "__main__":
    print(source(int(sys.argv[1])))
