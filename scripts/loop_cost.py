"""Times what a trip of a loop costs over its body, and that a branch not taken costs nothing.

usage: loop_cost.py [--target TARGET] [--json FILE]

A body is `x = relu(x @ w)`. Of a loop the time of a trip is the difference between two calls of one program
with few and with many trips; of the body alone it is the difference between two programs that hold it 16 and
48 times in a row. The overhead is the difference of both, in microseconds, one thread, the least of many
calls. Of a loop whose test reads data it is given twice: over the body alone, as of the others, and over the
body with that test, computed in a row likewise. The branch: a `cond` whose other side multiplies 1024x1024
matrices is timed on both its sides.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import torch

import aotpipe

WIDTH: Final = 64
FEW, MANY = 16, 528
ROUNDS: Final = 40


class Body(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH**0.5)

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weight).relu()


class Unrolled(Body):
    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.times):
            x = self.step(x)
        return x


class Checked(Unrolled):
    """Each body with what the test of `Tested` computes of its result."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        is_going = torch.ones((), dtype=torch.bool)
        for _ in range(self.times):
            x = self.step(x)
            is_going = is_going & (x[0, 0] >= 0)
        return x, is_going


class Counted(Body):
    """Its test is made of whole numbers alone."""

    def forward(self, x: torch.Tensor, trips: torch.Tensor) -> torch.Tensor:
        done = torch.zeros((), dtype=torch.int64)
        while done < trips:
            x = self.step(x)
            done = done + 1
        return x


class Ranged(Body):
    """`for _ in range(tensor)`."""

    def forward(self, x: torch.Tensor, trips: torch.Tensor) -> torch.Tensor:
        for _ in range(trips):
            x = self.step(x)
        return x


class Tested(Body):
    """Its test reads what the body computes."""

    def forward(self, x: torch.Tensor, trips: torch.Tensor) -> torch.Tensor:
        done = torch.zeros((), dtype=torch.int64)
        while (done < trips) & (x[0, 0] >= 0):
            x = self.step(x)
            done = done + 1
        return x


class Branched(torch.nn.Module):
    def forward(self, x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        if flag:
            return x + 1
        return x @ x @ x @ x


class Program:
    """A model's program, as a caller of the runner sees it, in the calling thread."""

    def __init__(self, model: torch.nn.Module, args: tuple[torch.Tensor, ...], target: str, **settings: Any):
        self._folder = tempfile.TemporaryDirectory()
        bundle = Path(self._folder.name) / "bundle"
        aotpipe.build(model.eval(), args=args, targets=[target], out=bundle, latency=False, **settings)
        self._runner = aotpipe.load(bundle, target=target, threads=1)
        self._names = [spec.name for spec in self._runner.signature.inputs]

    def time(self, *args: torch.Tensor) -> float:
        """The least time of a call, in microseconds."""
        inputs = dict(zip(self._names, (each.numpy() for each in args), strict=True))
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter_ns()
            self._runner.infer(inputs)
            times.append(time.perf_counter_ns() - start)
        return min(times) / 1e3


def body_us(kind: type[Unrolled], x: torch.Tensor, target: str) -> float:
    """What a body takes where bodies follow each other."""
    few, many = (Program(kind(times), (x,), target).time(x) for times in (16, 48))
    return (many - few) / 32


def trip_us(model: Body, x: torch.Tensor, target: str) -> float:
    """What a trip of a model's loop takes."""
    ranges = {"trips": (0, 10 * MANY)}
    program = Program(model, (x, torch.tensor(FEW)), target, value_ranges=ranges)
    return (program.time(x, torch.tensor(MANY)) - program.time(x, torch.tensor(FEW))) / (MANY - FEW)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="iree-cpu-host")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    x = torch.rand(4, WIDTH)
    body, checked = (body_us(kind, x, options.target) for kind in (Unrolled, Checked))
    figures: dict[str, float] = {"body_us": body, "body_with_test_us": checked}
    print(f"{'body':<12}{body:10.2f} us")
    print(f"{'with test':<12}{checked:10.2f} us")
    for name, model in {"counted": Counted(), "range": Ranged(), "tested": Tested()}.items():
        figures[f"{name}_us"] = trip = trip_us(model, x, options.target)
        over = f"{trip - body:.2f} us over its body"
        if name == "tested":
            over += f", {trip - checked:.2f} us over its body and its test"
        print(f"{name:<12}{trip:10.2f} us a trip, {over}", flush=True)
    square = torch.rand(1024, 1024) / 1024
    program = Program(Branched(), (square, torch.tensor(True)), options.target)
    for name, flag in {"cheap side": True, "other side": False}.items():
        figures[name.replace(" ", "_") + "_us"] = spent = program.time(square, torch.tensor(flag))
        print(f"{name:<12}{spent:10.2f} us")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
