"""Models with obstacles: `# ! CODE` marks each line that `check` has to name, and the code."""

from __future__ import annotations

import os
import random
import re
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import nn

X = torch.linspace(-1.0, 2.0, 12).reshape(3, 4)
CALLS = 0
CACHE: dict[str, int] = {}
SEEN: list[int] = []
_MARK = re.compile(r"#.*! ([\w -]+)$")


def marked(model: type) -> Counter[tuple[int, str]]:
    """The marked lines of a class, with their codes."""
    text = Path(__file__).read_text(encoding="utf-8").splitlines()
    first = next(n for n, line in enumerate(text, 1) if line.startswith(f"class {model.__name__}("))
    found: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate(text[first - 1 :], first):
        if number > first and line.startswith("class "):
            break
        if mark := _MARK.search(line):
            found.update((number, code) for code in mark[1].split())
    return found


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu()


class Conditional(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 5)

    def forward(self, x):
        output = self.linear(x)
        if torch.sum(output) > 0:
            return torch.relu(output)
        else:  # noqa: RET505
            return torch.sigmoid(output)


class Repeated(nn.Module):
    def forward(self, x, reps):
        res = x
        for _ in range(reps):  # ! baked-input
            res = res + x
        return res


class Metadata(nn.Module):
    def forward(self, batch, bias=None):
        h = batch["x"] * 2
        if "doc_ids" in batch:  # ! baked-key
            h = h + batch["doc_ids"]
        if bias is not None:  # ! baked-none
            h = h + bias
        mask = batch.get("mask")  # ! baked-key
        return h if mask is None else h * mask


class Talking(nn.Module):
    def forward(self, x):
        print("mean", x.mean())  # ! output-dropped
        return x + 1


class Reading(nn.Module):
    def forward(self, x):
        with open(os.devnull) as file:  # noqa: PTH123 ! file-at-build
            text = file.read()
        return x + len(text) + len(os.environ["PATH"])  # ! baked-environment


class Counting(nn.Module):
    def forward(self, x):
        global CALLS
        CALLS += 1  # ! global-changed
        CACHE["last"] = CALLS  # ! global-changed
        SEEN.append(1)  # ! global-changed
        return x + 1


class Chance(nn.Module):
    def forward(self, x):
        x = x * random.random()  # ! baked-random
        x = x + np.random.rand()  # ! baked-random
        return x * time.time()  # ! baked-time


class Growing(nn.Module):
    def forward(self, x):
        found = []
        while x.sum() > 1:
            x = x / 2
            found.append(x)  # ! list-room-assumed
        return torch.stack(found[::2])  # ! list-grows


def halve(x):
    if x.abs().max() > 0.5:
        return halve(x / 2)
    return x


class Recursive(nn.Module):
    def halve(self, x):
        if x.abs().max() > 0.5:  # ! recursion-on-data
            return self.halve(x / 2)
        return x

    def forward(self, x):
        return self.halve(x)


class Strings(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = {"1": 1.0, "2": 2.0}

    def forward(self, x, k):
        return x * self.table[f"{k.item()}"]  # ! text-from-tensor


class TwoShapes(nn.Module):
    def forward(self, x):
        y = x.flatten()
        if x.sum() > 0:  # ! paths-differ
            y = x[:, :2]
        return y


class Many(nn.Module):
    """Several obstacles, each behind the one before it, also on paths that the example does not take."""

    def __init__(self):
        super().__init__()
        self.table = {"1": 1.0, "2": 2.0}

    def forward(self, x, k, scale=2.0):
        if x.sum() < -100:
            x = x + torch.from_numpy(x.numpy() * 2)  # ! tensor-to-numpy
        y = x.flatten()
        if x.mean() > 0:
            y = x[:, :2]
        found = []
        while x.abs().max() > 0.1:  # ! list-room-assumed
            x = x / 2
            found.append(x)
        y = y.sum() + sum(found)
        print(y)  # ! output-dropped
        return y * scale * self.table[f"{k.item()}"]  # ! baked-input text-from-tensor


class Trained(nn.Module):  # ! train-mode
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(x)


class Raising(nn.Module):
    def part(self, x):
        return x @ x  # ! model-raises

    def forward(self, x):
        return self.part(x)


class Determinant(nn.Module):
    def forward(self, x):
        y = torch.linalg.eig(x)[0].real  # ! op-without-lowering
        return y + torch.linalg.ldl_factor_ex(x)[0].sum()  # ! op-without-lowering


class Keeping(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.total = 0
        self.cache = None

    def forward(self, x):
        self.calls += 1  # ! state-becomes-buffer
        self.total += int((x > 0).sum().item())  # ! state-becomes-buffer
        self.cache = x if self.cache is None else self.cache + x  # ! state-becomes-buffer
        return x * self.calls + self.total + self.cache


class KeepingMore(nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = None

    def forward(self, x):
        self.cache = x if self.cache is None else torch.cat([self.cache, x])  # ! state-refused
        return self.cache.sum()


class KeepingBehind(nn.Module):
    """An obstacle in a model that keeps something."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1  # ! state-becomes-buffer
        y = x.flatten()
        if x.sum() > 0:  # ! paths-differ
            y = x[:, :2]
        return y * self.calls


class Keyed(nn.Module):
    def forward(self, x):
        found = {}
        for i, v in enumerate(x[:, 0].tolist()):
            found[round(v)] = i
        return x * len(found)


class Counted(nn.Module):
    def forward(self, x):
        return x.long().clamp_min(0).flatten().bincount()  # ! size-from-data


class Comprehended(nn.Module):
    def forward(self, x):
        return sum({n: row for n, row in enumerate(x) if row.sum() > 0}.values())


class CountingBehind(nn.Module):
    def forward(self, x):
        global CALLS
        CALLS += 1  # ! global-changed
        y = x.flatten()
        if x.sum() > 0:  # ! paths-differ
            y = x[:, :2]
        return y
