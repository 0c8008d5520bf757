"""Integer divisions, remainders, shifts and casts on each target, beside eager: results, and what raises.

Parts by dtype run what `tests/unit/passes/test_integer_division.py` has. Parts by seed draw programs over two
operands: their dtypes, their shapes down to 0-d, an op, and arrays long enough that kernels are vectorized.
Each is called with operands of edges, of zeros and of random bits; where eager raises, the program
must raise, and nothing may stop its process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

WANTED = (
    "500 cases over all integer dtypes, targets that run here, scalars and tensors: 0 signals, 0 wrong, "
    "raises where eager raises"
)
TARGETS = ("iree-cpu-host", "iree-vmvx", "xla-cpu-host")
DTYPES = ("int32", "uint8", "int8", "int16", "int64")
_SEEDS, _EACH = 60, 10
UNITS = [f"{target} {dtype}" for target in TARGETS for dtype in DTYPES] + [
    f"{target} seeds {first}..{first + _EACH - 1}" for target in TARGETS for first in range(0, _SEEDS, _EACH)
]
_LENGTH = 259
Op = Callable[[Any, Any], Any]


def run(unit: str, folder: Path) -> dict[str, float]:
    target, _, rest = unit.partition(" ")
    if not rest.startswith("seeds "):
        import torch

        from tests.unit.passes.test_integer_division import compare_all

        return {"cases": compare_all(target, getattr(torch, rest), folder)}
    first, last = map(int, rest.removeprefix("seeds ").split(".."))
    counts = dict.fromkeys(("cases", "raised", "wrong", "signals_of_programs", "not_built"), 0)
    for seed in range(first, last + 1):
        place = folder / f"{seed}"
        place.mkdir()
        for name, count in _drawn(target, seed, place).items():
            counts[name] += count
    return counts


def judge(counts: Any) -> tuple[str, bool]:
    figure = (
        f"{counts['cases']:.0f} cases, {counts['raised']:.0f} of the drawn ones raise as eager does: "
        f"{counts['signals_of_programs']:.0f} signals, {counts['wrong']:.0f} wrong, "
        f"{counts['not_built']:.0f} programs not built"
    )
    bad = counts["wrong"] + counts["signals_of_programs"] + counts["not_built"]
    return figure, counts["cases"] >= 500 and not bad


def _ops() -> dict[str, Op]:
    import torch

    return {
        "//": lambda a, b: a // b,
        "%": lambda a, b: a % b,
        "floor_divide": torch.floor_divide,
        "remainder": torch.remainder,
        "fmod": torch.fmod,
        "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
        "reversed //": lambda a, b: b // a,
        "<<": lambda a, b: a << b,
        ">>": lambda a, b: a >> b,
        "in place //": lambda a, b: a.clone().floor_divide_(b),
        "in place %": lambda a, b: a.clone().remainder_(b),
        "branch": lambda a, b: torch.where(b != 0, a // torch.where(b != 0, b, 1), a),
        "power": torch.pow,
        "cast": lambda a, b: (a.to(torch.float32) * 3e9).to(b.dtype),
        "cast of quotients": lambda a, b: (a / b).to(torch.int32),
    }


def _drawn(target: str, seed: int, folder: Path) -> dict[str, int]:
    import torch

    from aotpipe.core.targets import Target
    from aotpipe.errors import AotpipeError, AssertionViolated, ProgramCrashed
    from tests.unit.passes.test_integer_division import Process

    draw = np.random.default_rng(seed)
    ops = _ops()
    name = list(ops)[seed % len(ops)]
    left, right = (getattr(torch, DTYPES[int(at)]) for at in draw.integers(len(DTYPES), size=2))
    if "in place" in name or "shift" in name or "<<" in name or ">>" in name:
        right = left
    shapes = [((_LENGTH,), (_LENGTH,)), ((7, 37), (37,)), ((_LENGTH,), ()), ((), ()), ((5, 1), (1, 9))]
    if "in place" in name:
        shapes = shapes[:4]
    first, second = shapes[int(draw.integers(len(shapes)))]

    class Drawn(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return ops[name](a, b)

    described = f"{target}, seed {seed}: {name} of {left} {first} and {right} {second}"
    counts = dict.fromkeys(("cases", "raised", "wrong", "signals_of_programs", "not_built"), 0)
    example = _operand(draw, left, first, "small"), _operand(draw, right, second, "small")
    try:
        made = Process(Drawn(), Target.parse(target), example, folder)
    except AotpipeError as error:
        print(f"{described}: {error}"[:600], file=sys.stderr)
        return counts | {"not_built": 1}
    with made.worker:
        for kind in ("small", "edges", "bits", "zeros", "edges", "bits"):
            call = _operand(draw, left, first, kind), _operand(draw, right, second, kind)
            wanted = _of_eager(ops[name], *call)
            counts["cases"] += 1
            counts["raised"] += isinstance(wanted, Exception)
            try:
                (found,) = made.run(call)
            except AssertionViolated as error:
                found = error
            except ProgramCrashed as error:
                print(f"{described}, {kind}: {error}"[:600], file=sys.stderr)
                return counts | {"signals_of_programs": 1}
            if isinstance(found, Exception) or isinstance(wanted, Exception):
                right_one = isinstance(found, Exception) and isinstance(wanted, Exception)
            else:
                want = wanted.numpy()
                right_one = found.dtype == want.dtype and np.array_equal(
                    found, want, equal_nan=want.dtype.kind == "f"
                )
            if not right_one:
                counts["wrong"] += 1
                print(f"{described}, {kind}: {found!r}, not {wanted!r}"[:900], file=sys.stderr)
    return counts


def _of_eager(op: Op, a: Any, b: Any) -> Any:
    """What eager answers, or the exception that it raises."""
    try:
        return op(a, b)
    except RuntimeError as error:
        return error


def _operand(draw: np.random.Generator, dtype: Any, shape: tuple[int, ...], kind: str) -> Any:
    import torch

    info = torch.iinfo(dtype)
    if kind == "small":
        values = draw.integers(1, 20, shape)
    elif kind == "edges":
        edges = [1, 2, 3, 7, info.max, info.max - 1, info.min or 1, info.min + 1 or 1, -3 if info.min else 3]
        values = draw.choice(np.array(edges, np.int64), shape)
    elif kind == "zeros":
        values = draw.integers(0, 3, shape)
    else:
        values = draw.integers(info.min, info.max, shape, endpoint=True, dtype=np.int64)
    return torch.as_tensor(values).to(dtype)
