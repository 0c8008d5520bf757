"""Whether an exported program is right where a Dim is 0 or 1.

torch.export takes these sizes for impossible unless told otherwise, so a model's own branch on them is lost
without a word. The program is run there, beside the model, on the example's values and on others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree  # torch.export's own flattening; see canonicalize.pytrees

from aotpipe.canonicalize import example_call
from aotpipe.canonicalize.inputs import pytrees
from aotpipe.core.stages import CanonicalEntry
from aotpipe.export import resized_examples
from aotpipe.export.quiet import quiet

_SEED = 0


def reached(entry: CanonicalEntry) -> list[tuple[str, int]]:
    """Each Dim whose range admits 0 or 1, with that value."""
    return [
        (n, value)
        for n, dim in resized_examples.roots(entry).items()
        for value in (0, 1)
        if dim.admits(value)
    ]


def agree(entry: CanonicalEntry, program: ExportedProgram) -> bool:
    """Whether program and model agree at every Dim's size 0 and 1 that its range admits."""
    return all(
        _agrees(entry, program, {name: value}, varied=varied)
        for name, value in reached(entry)
        for varied in (False, True)
    )


def _agrees(
    entry: CanonicalEntry, program: ExportedProgram, values: Mapping[str, int], *, varied: bool
) -> bool:
    inputs = resized_examples.resized(entry, values)
    return agrees_on(entry, program, _varied(inputs) if varied else inputs)


def agrees_on(entry: CanonicalEntry, program: ExportedProgram, inputs: Any) -> bool:
    """Whether program and model agree on args and kwargs; what the model refuses says nothing."""
    with example_call.unchanged(entry.module), torch.no_grad(), quiet():
        try:
            args, kwargs = pytrees.clone_tensors(inputs)
            expected = entry.module(*args, **kwargs)
        except Exception:  # noqa: BLE001 a size that the model itself refuses says nothing of the program
            return True
    module = program.module()
    # The program's own state would go on from call to call, while the model begins anew.
    with example_call.unchanged(entry.module), _kept(module), torch.no_grad(), quiet():
        try:
            args, kwargs = pytrees.clone_tensors(inputs)
            given = module(*args, **kwargs)
        except Exception:  # noqa: BLE001 a refusal of a size in range, whatever its type
            return False
    ours, theirs = pytree.tree_leaves(given), pytree.tree_leaves(expected)
    # What is not there in eager is anything in a program, beside a flag that is compared.
    missing = entry.adapter is not None
    return len(ours) == len(theirs) and all(
        (missing and other is None) or _close(one, other) for one, other in zip(ours, theirs, strict=True)
    )


@contextmanager
def _kept(module: torch.nn.Module) -> Iterator[None]:
    """Put back what a call writes into the tensors of a program."""
    before = [(tensor, tensor.detach().clone()) for tensor in module.state_dict(keep_vars=True).values()]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, old in before:
                if not torch.equal(tensor, old):
                    tensor.copy_(old)


def _varied(inputs: Any) -> Any:
    """The same inputs with noise on the floats: ones and zeros hide what a branch computes."""
    generator = torch.Generator().manual_seed(_SEED)

    def vary(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        noise = torch.rand(leaf.shape, generator=generator).to(leaf)
        return leaf * (0.5 + noise)

    return pytree.tree_map(vary, inputs)


def _close(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return bool(one == other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one.double(), other.double(), rtol=1e-3, atol=1e-4, equal_nan=True)
