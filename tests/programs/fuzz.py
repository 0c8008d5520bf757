"""Random programs of nested control flow, as source text, the same for the same seed.

Loops count integers and predicates test integers, so that no rounding decides a branch or a trip.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch._higher_order_ops import map as torch_map
from torch._higher_order_ops import scan as torch_scan

from aotpipe.core.dims import Dim

Env = dict[str, list[str]]

# F: (batch, 3) floats, V: (3,) floats, I: an int64, B: (batch, 3) bools, J: (batch, 3) int64.
ROWS = "FFVIBJ"
ROW = "VVI"
EXPRESSIONS = {
    "F": (
        "torch.tanh({F} + {F})",
        "{F} * 0.5 - {F}.sin()",
        "{F} * {V}.cos()",
        "torch.where({B}, {F}, {F} * 0.25)",
        "{F} * 0.5 + {J} % 3",
        "torch.ones_like({F}) * 0.5",
        "{F}.cos() + {F}.shape[0]",
        "{F} * 0.3 + ({I} % 4)",
        "torch.tanh({F} @ self.w)",
        "{F}.flip(0) * 0.5",
        "{F}.clone()",
    ),
    "V": (
        "torch.tanh({V} + {V})",
        "{V}.sin() * 0.5",
        "{V} * 0.5 + self.b",
        "torch.tanh(self.w @ {V})",
        "{V} * 0.5 + {I} % 2",
        "{V}.clone()",
    ),
    "I": ("({I} * 3 + 1) % 7", "({I} + {I}) % 5", "{I}.clone()"),
    "B": ("~{B}", "{B} ^ ({J} > 1)", "({J} % 2) == 0", "{B} & ({I} > 2)"),
    "J": (
        "({J} * 3 + 2) % 11",
        "{J} + {I}",
        "torch.where({B}, {J}, {J} % 4)",
        "{J}.cumsum(0) % 9",
        "{J}.clone()",
    ),
}
OVER_ROWS = {"V": ("torch.tanh({F}.sum(0))", "{F}[0] * 0.5"), "I": ("{J}.sum() % 6", "{B}.sum()")}
PREDICATES = ("({I} % 2) == 0", "{I} > 2")
PREDICATES_OVER_ROWS = ("{F}.shape[0] > 3", "{J}.sum() % 3 == 0", "{B}.any()")


class Generator:
    """Writes one program; `source` is its forward."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.dtype = self.random.choice([torch.float32, torch.float32, torch.float16])
        self.is_dynamic = self.random.random() < 0.6
        self._budget = self.random.randint(2, 4)
        self._count = 0
        self._lines = ["def forward(self, x, y, v, n, m, j):"]
        start = {"F": ["x", "y"], "V": ["v"], "I": ["n"], "B": ["m"], "J": ["j"]}
        end = self._block(start, 3, "    ", statements=3)
        new = [name for kind in end for name in end[kind] if name not in start[kind]]
        self.random.shuffle(new)
        self._lines.append(f"    return ({', '.join(f'{name}.clone()' for name in new[:5])},)")
        self.source = "\n".join(self._lines)

    def _name(self, stem: str = "t") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def _pick(self, env: Env, kind: str) -> str:
        # What was computed later is likelier, so that less is computed for nothing.
        count = len(env[kind])
        return env[kind][max(self.random.randrange(count), self.random.randrange(count))]

    def _fill(self, env: Env, pattern: str) -> str:
        for kind in EXPRESSIONS:
            while f"{{{kind}}}" in pattern:
                pattern = pattern.replace(f"{{{kind}}}", self._pick(env, kind), 1)
        return pattern

    def _expression(self, env: Env, kind: str) -> str:
        over_rows = OVER_ROWS.get(kind, ()) if env["F"] else ()
        return self._fill(env, self.random.choice([*EXPRESSIONS[kind], *over_rows]))

    def _outputs(self, env: Env, kinds: list[str]) -> list[str]:
        return [f"({self._expression(env, kind)}).clone()" for kind in kinds]

    def _kinds(self, env: Env, most: int) -> list[str]:
        return [self.random.choice(ROWS if env["F"] else ROW) for _ in range(self.random.randint(1, most))]

    def _block(self, env: Env, depth: int, indent: str, statements: int | None = None) -> Env:
        env = {kind: list(names) for kind, names in env.items()}
        for _ in range(statements or self.random.randint(1, 3)):
            if depth and self._budget and self.random.random() < (0.75 if depth == 3 else 0.45):
                self._budget -= 1
                emits = [self._cond, self._while, self._while]
                emits += [self._map, self._scan] if env["F"] else []
                self.random.choice(emits)(env, depth - 1, indent)
            else:
                kind = self.random.choice(ROWS if env["F"] else ROW)
                name = self._name()
                self._lines.append(f"{indent}{name} = {self._expression(env, kind)}")
                env[kind].append(name)
        return env

    def _function(self, stem: str, parameters: list[str], indent: str) -> str:
        name = self._name(stem)
        self._lines.append(f"{indent}def {name}({', '.join(parameters)}):")
        return name

    def _bind(self, env: Env, kinds: list[str], call: str, indent: str, first: list[str]) -> None:
        names = [self._name() for _ in kinds]
        self._lines.append(f"{indent}{', '.join([*first, *names])}, = {call}")
        for kind, name in zip(kinds, names, strict=True):
            env[kind].append(name)

    def _cond(self, env: Env, depth: int, indent: str) -> None:
        kinds, operands = self._kinds(env, 3), self._kinds(env, 2)
        choices = [*PREDICATES, *(PREDICATES_OVER_ROWS if env["F"] else ())]
        predicate = self._fill(env, self.random.choice(choices))
        passed = [self._pick(env, kind) for kind in operands]
        branches = []
        for _ in range(2):
            parameters = [self._name("p") for _ in operands]
            branches.append(self._function("branch", parameters, indent))
            inner = {kind: list(names) for kind, names in env.items()}
            for kind, parameter in zip(operands, parameters, strict=True):
                inner[kind] += [parameter] * 2
            inner = self._block(inner, depth, indent + "    ")
            self._lines.append(f"{indent}    return ({', '.join(self._outputs(inner, kinds))},)")
        call = f"torch.cond({predicate}, {', '.join(branches)}, ({', '.join(passed)},))"
        self._bind(env, kinds, call, indent, [])

    def _while(self, env: Env, depth: int, indent: str) -> None:
        kinds = self._kinds(env, 3)
        inits = [f"{self._pick(env, kind)}.clone()" for kind in kinds]
        is_number = self.random.random() < 0.25
        limit = self._name("limit")
        limits = [str(self.random.randint(0, 4))]
        limits += [] if is_number else [f"({self._pick(env, 'I')} % 5)"] * 2
        limits += [f"{self._pick(env, 'F')}.shape[0]"] if env["F"] else []
        self._lines.append(f"{indent}{limit} = {self.random.choice(limits)}")
        counter, carries = self._name("i"), [self._name("c") for _ in kinds]
        test = self._function("test", [counter, *carries], indent)
        self._lines.append(f"{indent}    return {counter} < {limit}")
        body = self._function("body", [counter, *carries], indent)
        inner = {kind: list(names) for kind, names in env.items()}
        for kind, carry in zip(kinds, carries, strict=True):
            inner[kind] += [carry] * 3
        inner["I"] += [] if is_number else [counter]
        inner = self._block(inner, depth, indent + "    ")
        outputs = self._outputs(inner, kinds)
        if len(kinds) > 1 and kinds[0] == kinds[1] and self.random.random() < 0.3:
            outputs[1] = outputs[0]
        self._lines.append(f"{indent}    return {', '.join([f'{counter} + 1', *outputs])},")
        trips = self._name("k")
        zero = "0" if is_number else "torch.zeros((), dtype=torch.int64)"
        call = f"torch.while_loop({test}, {body}, ({', '.join([zero, *inits])},))"
        self._bind(env, kinds, call, indent, [trips])
        env["I"] += [] if is_number else [trips]

    def _row(self, env: Env, names: list[str], depth: int, indent: str) -> Env:
        inner = {"F": [], "B": [], "J": [], "V": [*env["V"], *names * 2], "I": list(env["I"])}
        return self._block(inner, depth, indent + "    ")

    def _map(self, env: Env, depth: int, indent: str) -> None:
        x, row = self._pick(env, "F"), self._name("row")
        function = self._function("mapped", [row], indent)
        inner = self._row(env, [row], depth, indent)
        self._lines.append(f"{indent}    return ({self._expression(inner, 'V')} + {row}).clone()")
        name = self._name()
        self._lines.append(f"{indent}{name} = torch_map({function}, {x})")
        env["F"].append(name)

    def _scan(self, env: Env, depth: int, indent: str) -> None:
        x, init = self._pick(env, "F"), self._pick(env, "V")
        carry, row = self._name("c"), self._name("row")
        function = self._function("step", [carry, row], indent)
        inner = self._row(env, [carry, row], depth, indent)
        last = f"(torch.tanh({self._expression(inner, 'V')} + {carry})).clone()"
        self._lines.append(f"{indent}    return {last}, ({self._expression(inner, 'V')} + {row}).clone()")
        last, stacked, backwards = self._name(), self._name(), self.random.random() < 0.3
        call = f"torch_scan({function}, {init}.clone(), {x}, dim=0, reverse={backwards})"
        self._lines.append(f"{indent}{last}, {stacked} = {call}")
        env["V"].append(last)
        env["F"].append(stacked)


def model(generator: Generator) -> torch.nn.Module:
    """The program as a module."""
    scope: dict[str, Any] = {"torch": torch, "torch_map": torch_map, "torch_scan": torch_scan}
    exec(generator.source, scope)
    made = type("Fuzzed", (torch.nn.Module,), {"forward": scope["forward"]})()
    seeded = torch.Generator().manual_seed(1)
    made.w = torch.nn.Parameter((torch.randn(3, 3, generator=seeded) * 0.5).to(generator.dtype))
    made.b = torch.nn.Parameter(torch.randn(3, generator=seeded).to(generator.dtype))
    evaluated: torch.nn.Module = made.eval()
    return evaluated


def call(generator: Generator, batch: int, n: int) -> tuple[torch.Tensor, ...]:
    """Inputs of one call."""
    seeded = torch.Generator().manual_seed(batch * 10 + n)

    def floats(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=seeded).to(generator.dtype)

    mask = torch.randn(batch, 3, generator=seeded) > 0
    numbers = torch.randint(0, 9, (batch, 3), generator=seeded)
    return floats(batch, 3), floats(batch, 3), floats(3), torch.tensor(n), mask, numbers


def dynamic_shapes() -> dict[str, dict[int, Dim]]:
    """The batch varies from 2: torch takes a size of 1 in one branch for a constant of the other."""
    return {name: {0: Dim("batch", min=2, max=8)} for name in "xymj"}
