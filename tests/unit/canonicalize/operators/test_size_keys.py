"""Sizes that vary as keys of dicts, and functions that remember what they gave for a size."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from torch import nn

from aotpipe.core.dims import Dim
from aotpipe.errors import ExportFailed
from aotpipe.export.specializations import takes
from tests.sweep import slow
from tests.unit.export.models import exported

N, M = Dim("n", min=2, max=9), Dim("m", min=2, max=9)


class Masks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.masks: dict[object, torch.Tensor] = {}

    def mask(self, size: int) -> torch.Tensor:
        if (size, "mask") not in self.masks:
            self.masks[size, "mask"] = torch.ones(size, size).tril()
        return self.masks[size, "mask"]

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (self.mask(x.shape[0]) @ x).sum() + (self.mask(y.shape[0]) @ y).sum()


@functools.cache
def positions(size: int) -> torch.Tensor:
    return torch.arange(size) / size


def remembered(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * positions(x.shape[0])).sum() + positions(len(y)).sum()


def one_table(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As many entries as there are different sizes."""
    table = {}
    table[x.shape[0]] = x.sum()
    table[y.shape[0]] = y.sum()
    table.setdefault(x.shape[0], y.sum() * 100)
    return sum(table.values()) + table.get(3, 0.5)


def of_ints(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sum() * {4: 2.0, 6: 3.0}.get(x.shape[0], 1.0) + y.sum() * (y.shape[0] in {5: 1})


def new_tables(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n, m = x.shape[0], y.shape[0]
    return {n: x.sum()}[n] * len({m, m}) + {(m, 1): y.sum()}[m, 1]


@pytest.mark.parametrize("model", [slow(Masks()), remembered, slow(one_table), of_ints, new_tables])
def test_keys_are_equal_where_the_sizes_are(model):
    found = exported(model, torch.ones(8), torch.ones(7), shapes={"x": {0: N}, "y": {0: M}})
    for n, m in itertools.product(range(2, 10), range(2, 10)):
        x, y = torch.randn(n), torch.randn(m)
        pairs = zip(found.canonical.entries, found.entries, strict=True)
        program = next(
            each.program for entry, each in pairs if takes(entry, each.signature, {"n": n, "m": m})
        )
        torch.testing.assert_close(program.module()(x, y), model(x, y))


def test_a_count_of_each_size_is_refused():
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: dict[int, int] = {}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen[x.shape[0]] = self.seen.get(x.shape[0], 0) + 1
            return x * self.seen[x.shape[0]]

    with pytest.raises(ExportFailed):
        exported(Counts(), torch.ones(8), shapes={"x": {0: N}})


# A library that remembers shapes, as einops does, which falls back where they have no hash.
_LIBRARY = """
import functools

@functools.lru_cache
def remembered(shape):
    return shape

def shape_of(x):
    try:
        return remembered(tuple(x.shape))
    except TypeError:
        return tuple(x.shape)
"""


def test_no_library_hands_the_sizes_of_one_trace_to_another():
    """Such a size is equal to the next trace's by its name, and what is assumed of it would not be known."""
    library: dict[str, object] = {"__name__": "library"}
    exec(compile(_LIBRARY, "/usr/lib/python3/site-packages/library.py", "exec"), library)

    def model(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            x = x * 2
        parts = x.reshape(*library["shape_of"](x), 1).split(4)
        total = sum(part.sum() * (place + 1) for place, part in enumerate(parts))
        while total > 50:
            total = total / 2
        return total

    found = exported(model, torch.ones(7), shapes={"x": {0: N}})
    for size in range(2, 10):
        x = torch.randn(size)
        pairs = zip(found.canonical.entries, found.entries, strict=True)
        programs = [each.program for entry, each in pairs if takes(entry, each.signature, {"n": size})]
        torch.testing.assert_close(programs[0].module()(x), model(x))


class Shaped:
    """A key that holds sizes, as a library's record of a tensor."""

    def __init__(self, x: torch.Tensor) -> None:
        self.shape = tuple(x.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shaped) and self.shape == other.shape

    def __hash__(self) -> int:
        return hash(self.shape)


@functools.cache
def _flat(shaped: Shaped) -> int:
    return shaped.shape[0] * shaped.shape[1]


def _frozen(function):
    @functools.wraps(function)
    def called(*args):
        return function(*args)

    return called


def test_a_cache_of_objects_that_hold_sizes_is_passed_by():
    """The hash of a size is asked for in a method of the key, which C calls for the cache."""
    flat = _frozen(_flat)

    def model(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(flat(Shaped(x))) * 2

    x = torch.ones(5, 3)
    program = exported(model, x, shapes={"x": {0: N}}).entries[0].program
    for size in range(2, 10):
        x = torch.randn(size, 3)
        torch.testing.assert_close(program.module()(x), model(x))


class Remembering(torch.nn.Module):
    """A method and a function that remember their results, of which only a branch asks."""

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def scale(self, number: int) -> torch.Tensor:
        return torch.tensor(float(number)) * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ _mask(x.shape[1])
        if x.sum() > 0:
            y = y * self.scale(3)
        return y


@functools.cache
def _mask(size: int) -> torch.Tensor:
    return torch.ones(size, size).tril()


def test_a_function_of_the_model_that_remembers_is_computed():
    x = torch.ones(2, 2)
    [found] = exported(Remembering(), -x).entries
    for call in (-x, x):
        torch.testing.assert_close(found.program.module()(call), Remembering()(call))
    # What it remembers of the trace would be a tensor of the trace.
    assert type(_mask(2)) is torch.Tensor


class Noting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

        @functools.cache
        def note(number: int) -> int:
            self.seen.append(number)
            return number * 2

        self.note = note

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        if x.sum() > 0:
            x = x + self.note(3)
        return x, len(self.seen)


def test_one_that_changes_something_is_refused():
    with pytest.raises(
        ExportFailed, match=r"`note` remembers its results and changes Noting\.seen"
    ) as refused:
        exported(Noting(), -torch.ones(3))
    assert refused.value.where is not None
