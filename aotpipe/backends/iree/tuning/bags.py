"""Sums and means of the rows of a table by bags, as an op that a dispatch of ours computes (`kernels.bags`).

As ops of the torch dialect they take ten dispatches: the starts of bags are counted, the counts summed to the
number of each index's bag, and the rows added to that (IREE 3.13, AVX-512, one thread: 4,096 indices in 256
bags of 64 floats 36 us, and 20 us so). The op has their results, which are read where a target has no kernel.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from aotpipe.passes.decompositions import norm
from aotpipe.passes.decompositions.entries import static

_LIBRARY: Final[Any] = torch.library.Library("aotpipe", "FRAGMENT")
_LIBRARY.define(
    "bags(Tensor results, Tensor table, Tensor indices, Tensor offsets, bool is_mean, bool with_end)"
    " -> Tensor"
)


def _run(results: Tensor, *_: object) -> Tensor:
    """The results, which a kernel may compute of the other operands instead."""
    return results.clone()


_LIBRARY.impl("bags", _run, "CompositeExplicitAutograd")
torch.library.register_fake("aotpipe::bags", _run, lib=_LIBRARY)
OP: Final[Any] = torch.ops.aotpipe.bags.default
_SUM: Final = 0
_MEAN: Final = 1


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> norm.Bags:
    """The results of the neutral decomposition, of which the sums or means may be a kernel's."""
    factors = per_sample_weights
    found, bag, sizes, largest = norm.embedding_bag(
        weight, indices, offsets, scale_grad_by_freq, mode, sparse, factors, include_last_offset, padding_idx
    )
    is_plain = mode in (_SUM, _MEAN) and factors is None and padding_idx < 0
    if is_plain and weight.dtype is torch.float32 and all(map(static, weight.shape)) and weight.shape[0]:
        whole = (each.to(torch.int64) for each in (indices, offsets))
        found = OP(found, weight, *whole, mode == _MEAN, include_last_offset)
    return found, bag, sizes, largest
