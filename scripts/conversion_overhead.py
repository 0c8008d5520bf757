"""What aotpipe adds to torch.export on models that need no conversion.

usage: conversion_overhead.py [--rounds N] [MODEL]...

Side by side, in turn: plain `torch.export.export` of the model on the same examples with the same Dims, and
aotpipe's way from the built model to the exported program (`canonicalize` and `export`). The least of each
counts, in CPU seconds of one thread: what else runs on the machine matters little. Beyond that, aotpipe
calls the model once on its examples, which is a column of its own: how long that takes is the model's matter.
`calls` is how many more functions of Python are called, which is the same however busy the machine is.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import gc
import io
import pstats
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from aotpipe.canonicalize import canonicalize, example_call
from aotpipe.core.stages import Canonical
from aotpipe.export import export
from aotpipe.export.strategies import torch_shapes
from aotpipe.model import spec as specs
from aotpipe.model.spec import Spec

LIMIT = 0.15
MODELS = (
    "models/resnet50.py:SPEC",
    "models/efficientnet_lite0.py",
    "models/gpt2.py",
    "models/llama.py",
    "models/mamba.py",
    "models/minilm.py",
    "models/torchcrepe_tiny.py",
    "models/unet3d.py",
)


def plain(canonical: Canonical) -> None:
    for entry in canonical.entries:
        args, kwargs = entry.entry.args, dict(entry.entry.kwargs)
        with torch.no_grad():
            torch.export.export(
                entry.module, args, kwargs, dynamic_shapes=torch_shapes(entry, args, kwargs), strict=False
            )


def seconds(called: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        result = called()
    return time.process_time() - start, result


def function_calls(called: Callable[[], Any]) -> int:
    with cProfile.Profile() as profile:
        called()
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined]


def measure(spec: Spec, rounds: int) -> tuple[float, float, float, float]:
    """The least seconds of torch.export, of aotpipe, of the model's call; the share of functions called."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        model = spec.build()
    spec = replace(spec, build=lambda: model)
    calls: list[float] = []
    original = example_call.again

    def timed(*args: Any) -> Any:
        spent, result = seconds(partial(original, *args))
        calls[-1] += spent
        return result

    canonical = canonicalize(spec)
    found = []
    example_call.again = timed
    try:
        # The first round fills torch's caches.
        for _ in range(rounds + 1):
            gc.collect()
            alone = seconds(partial(plain, canonical))[0]
            calls.append(0.0)
            gc.collect()
            whole = seconds(lambda: export(canonicalize(spec)))[0]
            found.append((alone, whole - calls[-1], calls[-1]))
    finally:
        example_call.again = original
    alone, own, call = map(min, zip(*found[1:], strict=True))
    more = function_calls(lambda: export(canonicalize(spec))) / function_calls(partial(plain, canonical)) - 1
    return alone, own, call, more


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':<28}{'torch.export':>14}{'aotpipe':>10}{'added':>8}{'calls':>8}{'one call':>12}")
    worst = 0.0
    for name in given.models:
        alone, own, call, more = measure(specs.load(name), given.rounds)
        added = own / alone - 1
        worst = max(worst, added)
        print(f"{name:<28}{alone:12.2f} s{own:8.2f} s{added:8.1%}{more:+8.1%}{call:10.2f} s", flush=True)
    print(f"conversion adds at most {worst:.1%} (limit {LIMIT:.0%})")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
