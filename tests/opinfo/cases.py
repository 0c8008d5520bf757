"""Which samples are run: a few of OpInfo's per op and dtype, the odd ones (0-d, empty, strided) too."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.trace import random_draws

DTYPES = {
    "float32": torch.float32,
    "int64": torch.int64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "bool": torch.bool,
    "int32": torch.int32,
    "uint8": torch.uint8,
    "float64": torch.float64,
    "complex64": torch.complex64,
}
# torch asks which unittest.TestCase draws samples, and reads the source of the whole stack for it: none does.
core.extract_test_fn = common_utils.extract_test_fn = lambda: None
_SEED = 3
OPS = {op.formatted_name: op for op in op_db}


class Call(torch.nn.Module):
    """One call of an op whose tensors are the forward's arguments and whose other arguments are constants.

    Where the op `draws` random numbers, the last argument is the seed of a generator of its own.
    """

    draws = False

    def __init__(self, function: Any, leaves: Sequence[Any], spec: pytree.TreeSpec) -> None:
        super().__init__()
        self.function = function
        self.leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.slots = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.spec = spec

    def forward(self, *tensors: torch.Tensor) -> Any:
        if not self.draws:
            return self._called(tensors)
        *given, seed = tensors
        with random_draws.drawn_from(torch.stack([seed, torch.zeros_like(seed)])):
            return self._called(given)

    def _called(self, tensors: Sequence[torch.Tensor]) -> Any:
        leaves = list(self.leaves)
        for slot, tensor in zip(self.slots, tensors, strict=True):
            leaves[slot] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


@dataclass(frozen=True)
class Case:
    """A module, its tensor arguments and what eager gives for them."""

    op: str
    dtype: str
    index: int
    module: Call
    tensors: tuple[torch.Tensor, ...]
    expected: tuple[Any, ...]

    @property
    def name(self) -> str:
        """A function name."""
        return f"{self.op}_{self.dtype}_{self.index}".replace(".", "_").replace("-", "_")


Sample = tuple[str, str, int]
"""A sample's op and dtype, and its number among the op's samples of that dtype."""


def cases(op_name: str, dtype_name: str, count: int, done: Collection[Sample] = ()) -> Iterator[Case]:
    """Up to about `count` samples of an op for a dtype, always the same ones, without those that are done."""
    op, dtype = OPS[op_name], DTYPES[dtype_name]
    if dtype not in op.dtypes:
        return
    torch.manual_seed(zlib.crc32(f"{op_name} {dtype_name}".encode()))
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=False))
    for index in _chosen(samples, count):
        if (op_name, dtype_name, index) in done:
            continue
        sample = samples[index]
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        module = Call(op.op, leaves, spec).eval()
        tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        if any(tensor.layout != torch.strided or tensor.device.type != "cpu" for tensor in tensors):
            continue
        state = torch.tensor([_SEED, 0])
        try:
            with random_draws.drawn_from(state):
                result = module(*(tensor.clone() for tensor in tensors))
        except Exception:  # eager itself refuses the sample: there is nothing to compare with
            continue
        if state._version:  # also by no numbers, of an empty tensor
            module.draws, tensors = True, (*tensors, torch.tensor(_SEED))
        outputs = tuple(pytree.tree_leaves(result))
        yield Case(op_name, dtype_name, index, module, tensors, outputs)


def _chosen(samples: Sequence[Any], count: int) -> list[int]:
    if len(samples) <= count:
        return list(range(len(samples)))
    chosen = {round(step * (len(samples) - 1) / (count - 1)) for step in range(count)} if count > 1 else {0}
    for odd in (_scalar, _empty, _strided):
        found = next((index for index, sample in enumerate(samples) if odd(sample.input)), None)
        if found is not None and count > 1:
            chosen.add(found)
    return sorted(chosen)


def _scalar(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0


def _empty(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 0


def _strided(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_contiguous()
