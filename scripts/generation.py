"""Times a decoder beside transformers' own decoding with its cache: GPT-2 of 124 M random parameters.

usage: generation.py [--cache N] [--slots N] [--target TARGET] [--threads N] [--int8] [--bundle FOLDER]
                     [--rounds N]

A round is 16 steps of the program in a row, with a token in each slot, as many of eager at batch 1 and at as
many texts as there are slots, a text of `generate` of as many tokens after its first, and as many readings of
all weights, in turns: the first step after other work finds the caches with its numbers. The least of each
counts, as other work on the machine only adds, and beside it the least CPU time, which other work hardly
changes. A step must read every weight once, so that the reading is the limit of memory: the share of it is
printed. `--int8` has the program of `--quantize int8` beside it, whose weights are a quarter.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import aotpipe
from models._vision import make_torchvision_importable

PAST = 100
"""How many tokens a text has before it is timed."""
GENERATED = 16
"""How many steps in a row are timed."""


def gpt2() -> Any:
    make_torchvision_importable()
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config()).eval()


def eager(model: Any, texts: int) -> Callable[[], object]:
    """A step of transformers' decoding, as `generate` makes it."""
    with torch.no_grad():
        cache = model(input_ids=torch.zeros((texts, PAST), dtype=torch.int64), use_cache=True).past_key_values

    @torch.no_grad()
    def step() -> object:
        output = model(input_ids=torch.zeros((texts, 1), dtype=torch.int64), past_key_values=cache)
        return output.logits[:, -1].argmax(-1)

    return step


def generate(model: Any, count: int) -> Callable[[], object]:
    """A text of transformers' `generate`, of so many tokens after its prompt."""
    prompt = torch.zeros((1, PAST), dtype=torch.int64)
    options = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "pad_token_id": 0}
    return lambda: model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)


def program(path: Path, target: str, slots: int, threads: int | None) -> Callable[[], object]:
    """A step of the decoder."""
    runner = aotpipe.load(path, target=target, threads=threads)
    numbers = {name: np.zeros(slots, np.float32) for name in ("temperature", "top_p", "uniform")}
    inputs = {"tokens": np.zeros(slots, np.int64), "positions": np.full(slots, PAST), **numbers}
    return lambda: runner.infer(inputs, entry_point="decode")


def reading(model: Any, part: int = 1) -> Callable[[], object]:
    """Read as many bytes as the weights have that a step needs: all but the positions of the other tokens.

    They lie on huge pages where the host has them, as numpy asks for: memory is read faster so.
    """
    count = sum(each.numel() for each in model.parameters()) - model.transformer.wpe.weight.numel()
    weights = torch.from_numpy(np.ones(count // part, np.float32))
    return weights.sum


def built(model: Any, given: argparse.Namespace, quantize: str | None) -> Path:
    """The bundle of the decoder."""
    path = Path(f"artifacts/generation-{given.slots}{f'-{quantize}' if quantize else ''}")
    sizes = f"cache={given.cache},slots={given.slots}"
    aotpipe.build(model, decoder=sizes, targets=[given.target], out=path, latency=False, quantize=quantize)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=int, default=256)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--target", default="iree-cpu-host")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    model = gpt2()
    torch.set_num_threads(given.threads)
    slots, threads = given.slots, given.threads
    path = given.bundle or built(model, given, None)
    steps = {
        f"program, {slots} slots": (slots, program(path, given.target, slots, threads)),
        "eager, 1 text": (1, eager(model, 1)),
        f"eager, {given.slots} texts": (given.slots, eager(model, given.slots)),
        "generate, 1 token": (1, generate(model, 1)),
        f"generate, {1 + GENERATED} tokens": (1 + GENERATED, generate(model, 1 + GENERATED)),
        "limit of memory": (1, reading(model)),
    }
    if given.int8:
        path = built(model, given, "int8")
        steps |= {
            f"int8, {slots} slots": (slots, program(path, given.target, slots, threads)),
            "limit of int8": (1, reading(model, part=4)),
        }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for _ in range(given.rounds):
        for name, (_, step) in steps.items():
            count = 1 if name.startswith("generate") else GENERATED
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(count):
                step()
            took = time.perf_counter() - wall, time.process_time() - cpu
            times[name].append((took[0] / count, took[1] / count))
    limits = {name: 1e3 * min(wall for wall, _ in times[name]) for name in times if name.startswith("limit")}
    # Of the text with more tokens, those after its first, which is the prompt's.
    first, all_of_it = (times[name] for name in steps if name.startswith("generate"))
    times["generate"] = [
        ((more[0] - one[0]) / GENERATED, (more[1] - one[1]) / GENERATED)
        for one, more in zip(first, all_of_it, strict=True)
    ]
    for name in times:
        texts = steps[name][0] if name in steps else 1
        wall, cpu = (1e3 * min(each) for each in zip(*times[name], strict=True))
        speed, cpu = texts / wall * 1e3, cpu / texts
        limit = limits["limit of int8" if "int8" in name else "limit of memory"]
        print(
            f"{name:20} {wall:8.1f} ms  {speed:8.1f} tokens/s  {cpu:8.1f} ms of CPU a token"
            f"  {limit / wall:5.0%} of the limit"
        )


if __name__ == "__main__":
    main()
