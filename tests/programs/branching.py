"""Random models in Python whose forward branches and loops on numbers and tensors; alike for one seed.

`source(seed)` is the text of a module with a class `Model`; `forward(x, k)` takes three floats and an int64.
Every loop ends: it counts. With `unset`, a program may read a variable that has no value. With `anything`, it
may also do what no graph can hold: raise, change a global, jump out of `try` and `with`.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch

HEADER: Final = """
import contextlib

import torch

TOTAL = 0


class Box:
    def __init__(self, count):
        self.count = count

    def bump(self, by):
        self.count = self.count + by
        return self.count


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.size = 2

    def _twice(self, v):
        if v.sum() > 1:
            return v * 2
        return v

    def forward(self, x, k):
        y = x * 0.5
        n = 0
        m = 2
        box = Box(1)
"""

# V: three floats, N: a Python number, K: an int64 of no dimensions.
VECTORS: Final = (
    "{V} + 1",
    "{V} * 0.5 - {V}",
    "{V} + {N}",
    "{V} * {K}",
    "{V}.abs()",
    "-{V}",
    "{V}",
    "torch.where({V} > 0, {V}, {N})",
    "{V} if {T} else {V} * 0.25",
    "self._twice({V})",
    "{V} + box.count",
)
NUMBERS: Final = (
    "{N} + 1",
    "({N} * 2 + 1) % 7",
    "{N} - {N}",
    "{N}",
    "3",
    "0",
    "{N} if {T} else {N}",
    "-{N}",
    "box.count",
    "{N} // 2",
    "len(str(self.size))",
    "({N} and {N})",
    "({N} or {N})",
)
COUNTS: Final = ("{K} + 1", "{K}", "({K} * 3 + {N}) % 5", "{K} - {N}", "{K} if {T} else {K} + 2")
TESTS: Final = (
    "{N} > 1",
    "{N} < {N}",
    "{K} > {N}",
    "{K} == 1",
    "{V}.sum() > {N}",
    "{V}.abs().max() > 1",
    "({V} > 0).all()",
    "0 < {N} < 4",
    "0 <= {K} < 3",
    "{N} <= {K} <= {N} + 2",
    "-2 < {V}.sum() < {N} + 3",
    "not {T}",
    "{T} and {T}",
    "{T} or {T}",
    "({T} and {T}) or {T}",
    "{K}",
    "{N}",
    "{K} % 2",
    "({T}) == ({T})",
)
ANYTHING: Final = ("(w := {N} + 1) > 2", "{T} and (w := {N}) > 1", "any({N} < j for j in range(3))")


class Writer:
    """Writes one forward, statement by statement."""

    header = HEADER
    vectors: tuple[str, ...] = VECTORS
    numbers: tuple[str, ...] = NUMBERS
    tests: tuple[str, ...] = TESTS

    def __init__(self, seed: int, *, anything: bool, unset: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.anything = anything
        # How often a variable that was set in a block may be read after it.
        self.unset = 0.1 if anything else unset
        self.lines: list[str] = []
        self.names = {"V": ["x", "y"], "N": ["n", "m"], "K": ["k"]}
        self.count = 0
        self.left = self.random.randint(5, 14)

    def text(self) -> str:
        self.block(2, loop=False, guarded=False, least=3)
        if not self.lines[-1].startswith("        return"):
            self.result(2)
        tail = "" if not self.anything else "\nmodel = Model()\n"
        return self.header + "\n".join(self.lines) + "\n" + tail

    # Expressions.

    def choose(self, options: tuple[str, ...], depth: int = 2) -> str:
        text = self.random.choice(options)
        while "{" in text:
            at = text.index("{")
            text = text[:at] + self.operand(text[at + 1], depth) + text[at + 3 :]
        return text

    def operand(self, kind: str, depth: int) -> str:
        if kind == "T":
            return f"({self.test(depth - 1)})"
        if depth > 0 and self.random.random() < 0.2:
            return f"({self.choose(self.table(kind), depth - 1)})"
        return self.random.choice(self.names[kind])

    def test(self, depth: int = 2) -> str:
        options = (*self.tests, *ANYTHING) if self.anything else self.tests
        if depth <= 0:
            options = tuple(each for each in options if "{T}" not in each)
        return self.choose(options, depth)

    def value(self, kind: str) -> str:
        return self.choose(self.table(kind))

    def table(self, kind: str) -> tuple[str, ...]:
        return {"V": self.vectors, "N": self.numbers, "K": COUNTS}[kind]

    def kind(self) -> str:
        return self.random.choice("VVNNK")

    def new(self, kind: str) -> str:
        self.count += 1
        return f"{kind.lower()}{self.count}"

    # Statements.

    def put(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    def block(self, indent: int, *, loop: bool, guarded: bool, least: int = 1) -> None:
        """Some statements; what they define is known in this block only."""
        before = {kind: list(names) for kind, names in self.names.items()}
        for _ in range(self.random.randint(least, least + 2)):
            if self.statement(indent, loop=loop, guarded=guarded):
                break
        if not (self.unset and self.random.random() < self.unset) and indent > 2:
            self.names = before

    def result(self, indent: int) -> None:
        vector, number = (self.random.choice(self.names[kind]) for kind in "VN")
        self.put(indent, f"return {vector}, {number} + box.count")

    def statement(self, indent: int, *, loop: bool, guarded: bool) -> bool:
        """One statement; whether nothing after it is reached."""
        self.left -= 1
        jumps = (not guarded or self.anything) and indent > 2
        roll = self.random.random()
        if self.left > 0 and indent < 6 and roll < 0.45:
            self.compound(indent, loop=loop, guarded=guarded)
        elif jumps and roll < 0.52:
            self.result(indent)
            return True
        elif jumps and loop and roll < 0.65:
            self.put(indent, self.random.choice(("break", "continue")))
            return True
        elif self.anything and roll > 0.9:
            self.odd(indent)
        else:
            self.simple(indent)
        return False

    def compound(self, indent: int, *, loop: bool, guarded: bool) -> None:
        options = [self.if_, self.if_, self.while_, self.for_, self.both]
        if self.anything:
            options += [self.try_, self.with_, self.match]
        self.random.choice(options)(indent, loop=loop, guarded=guarded)

    def simple(self, indent: int) -> None:
        kind = self.kind()
        value = self.value(kind)
        target = self.random.choice(self.names[kind])
        roll = self.random.random()
        if roll < 0.3:
            target = self.new(kind)
            self.put(indent, f"{target} = {value}")
            self.names[kind].append(target)
        elif roll < 0.5:
            self.put(indent, f"{target} = {value}")
        elif roll < 0.7:
            operator = self.random.choice(("+=", "-=", "*="))
            operand = self.value("N") if kind == "N" else self.random.choice(self.names["N"])
            if kind == "N" and operator == "*=":
                operand = "-1"  # a number that multiplies itself in nested loops has millions of digits
            self.put(indent, f"{target} {operator} {operand}")
        elif roll < 0.8:
            a, b = self.random.choice(self.names["V"]), self.random.choice(self.names["N"])
            self.put(indent, f"{a}, {b} = {self.value('V')}, {self.value('N')}")
        elif roll < 0.88:
            self.put(indent, f"box.count {self.random.choice(('=', '+='))} {self.value('N')}")
        elif roll < 0.92:
            # A graph does not hold what a method changes.
            if self.anything:
                self.put(indent, f"box.bump({self.random.choice(self.names['N'])})")
            else:
                self.put(indent, f"box.count = {self.value('N')}")
        else:
            self.nested(indent)

    def nested(self, indent: int) -> None:
        """A function that reads, and perhaps sets, what is around it."""
        name = self.new("F")
        shared = self.random.choice(self.names["N"])
        self.put(indent, f"def {name}(v, n=1):")
        if self.random.random() < 0.3 and shared not in ("n", "v"):
            self.put(indent + 1, f"nonlocal {shared}")
            self.put(indent + 1, f"{shared} = {shared} + n")
        self.put(indent + 1, f"if {self.test(1)}:")
        self.put(indent + 2, f"return v + {self.random.choice(self.names['N'])}")
        self.put(indent + 1, "return v * 2")
        target = self.random.choice(self.names["V"])
        self.put(indent, f"{target} = {name}({self.random.choice(self.names['V'])})")

    def odd(self, indent: int) -> None:
        number = self.random.choice(self.names["N"])
        vector = self.random.choice(self.names["V"])
        options = (
            f"{number}: int = {self.value('N')}",
            f"assert {self.test()}, 'assert'",
            f"raise ValueError({number})",
            f"del {number}",
            f"{vector}[{self.random.randint(0, 2)}] += 1",
            f"{vector} = (lambda v: v + {number} if {self.test(1)} else v)({vector})",
            f"{number} = sum([w for j in range(3) if (w := j + {number}) > 1])",
            "import math",
            f"self.size += {number}",
            "pass",
        )
        self.put(indent, self.random.choice(options))

    def if_(self, indent: int, *, loop: bool, guarded: bool) -> None:
        self.put(indent, f"if {self.test()}:")
        self.block(indent + 1, loop=loop, guarded=guarded)
        if self.random.random() < 0.3:
            self.put(indent, f"elif {self.test()}:")
            self.block(indent + 1, loop=loop, guarded=guarded)
        if self.random.random() < 0.5:
            self.put(indent, "else:")
            self.block(indent + 1, loop=loop, guarded=guarded)

    def both(self, indent: int, *, loop: bool, guarded: bool) -> None:
        """A variable that only one path defines, and that only this path reads."""
        kind = self.kind()
        name, test = self.new(kind), self.random.choice(("k > 1", "x.sum() > 0", "n > 1"))
        flag = self.new("T")
        self.put(indent, f"{flag} = {test}")
        self.put(indent, f"if {flag}:")
        self.put(indent + 1, f"{name} = {self.value(kind)}")
        self.block(indent, loop=loop, guarded=True)
        self.put(indent, f"if {flag}:")
        target = self.random.choice(self.names[kind])
        self.put(indent + 1, f"{target} = {name} + 1")

    def while_(self, indent: int, *, loop: bool, guarded: bool) -> None:
        counter = self.new("I")
        self.put(indent, f"{counter} = 0")
        most = self.random.randint(1, 4)
        tests = (f"{counter} < {most}", f"({self.test(1)}) and {counter} < {most}", "True")
        test = self.random.choice(tests)
        self.put(indent, f"while {test}:")
        self.put(indent + 1, f"{counter} += 1")
        if test == "True":
            self.put(indent + 1, f"if {counter} > {most} or {self.test(1)}:")
            leave = self.random.random() < 0.7 or (guarded and not self.anything)
            self.put(indent + 2, "break") if leave else self.result(indent + 2)
        self.block(indent + 1, loop=True, guarded=guarded)
        self.otherwise(indent, loop=loop, guarded=guarded)

    def for_(self, indent: int, *, loop: bool, guarded: bool) -> None:
        number, count, vector = (self.random.choice(self.names[kind]) for kind in "NKV")
        kind, over = self.random.choice(
            (
                ("N", f"range({self.random.randint(0, 3)})"),
                ("N", f"range({number} % 4)"),
                ("N", f"range({count} % 4)"),
                ("N", f"range(1, {count} % 3, 1)"),
                ("N", f"[{number}, 2, {number} + 1]"),
                ("K", f"({count}, {count} + 1)"),
                ("V", f"torch.stack([{vector}, {vector} + 1])"),
            )
        )
        target = self.random.choice((self.new(kind), self.random.choice(self.names[kind])))
        if target in ("x", "n", "m", "y", "k") and self.random.random() < 0.5:
            target = self.new(kind)
        self.put(indent, f"for {target} in {over}:")
        before = {kind: list(names) for kind, names in self.names.items()}
        if target not in self.names[kind]:
            self.names[kind].append(target)
        self.block(indent + 1, loop=True, guarded=guarded)
        self.names = before
        self.otherwise(indent, loop=loop, guarded=guarded)

    def otherwise(self, indent: int, *, loop: bool, guarded: bool) -> None:
        if self.random.random() < 0.25:
            self.put(indent, "else:")
            self.block(indent + 1, loop=loop, guarded=guarded)

    def try_(self, indent: int, *, loop: bool, guarded: bool) -> None:
        self.put(indent, "try:")
        self.block(indent + 1, loop=loop, guarded=True)
        if self.random.random() < 0.5:
            self.put(indent, "except (ValueError, NameError) as error:")
            self.block(indent + 1, loop=loop, guarded=True)
        else:
            self.put(indent, "finally:")
            self.block(indent + 1, loop=False, guarded=True)

    def with_(self, indent: int, *, loop: bool, guarded: bool) -> None:
        self.put(indent, "with contextlib.nullcontext(3) as given:")
        self.block(indent + 1, loop=loop, guarded=True)

    def match(self, indent: int, *, loop: bool, guarded: bool) -> None:
        number = self.random.choice(self.names["N"])
        self.put(indent, f"match ({number}, {{'a': {number}, 'b': 1}}):")
        self.put(indent + 1, "case (0 | 1 as low, _):")
        self.block(indent + 2, loop=loop, guarded=True)
        self.put(indent + 1, "case (_, {'a': seen, **rest}):")
        self.block(indent + 2, loop=loop, guarded=True)


def source(seed: int, *, anything: bool = False, unset: float = 0.0) -> str:
    """The text of a module."""
    return Writer(seed, anything=anything, unset=unset).text()


def load(text: str, path: Path) -> ModuleType:
    """A module of this text, which is also written to a file, as tools read a function's source there."""
    path.write_text(text)
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    exec(compile(text, str(path), "exec"), vars(module))
    return module


def inputs() -> list[tuple[Any, ...]]:
    """Calls that cover signs, sizes, and no, one and several trips."""
    vectors = ([0.5, -1.0, 2.0], [0.0, 0.0, 0.0], [3.0, 1.0, 0.25], [-2.0, -0.5, -0.25], [-1.0, 4.0, -2.5])
    return [
        (torch.tensor(vector), torch.tensor(count))
        for vector, count in zip(vectors, (2, 0, 1, 3, 4), strict=True)
    ]


if __name__ == "__main__":
    print(source(int(sys.argv[1]), anything="anything" in sys.argv))
