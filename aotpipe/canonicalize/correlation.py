"""Covariances and correlations without a look at the values (`aten/src/ATen/native/Correlation.cpp`).

torch's own kernels ask whether the weights are positive and the norm is, which stops torch.export also where
there are no weights. Here what they refuse is a runtime assert, and a norm that is not positive is 0.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final

import torch
from torch import Tensor

from aotpipe.canonicalize import recurrent_layers

_ATEN: Final = torch.ops.aten


def _require(holds: Tensor, text: str) -> None:
    torch._assert_async(holds, text)  # noqa: SLF001  # the op's own name


def cov(
    x: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """The covariances `(variables, variables)` of rows `(variables, observations)`, squeezed."""
    rows = x.reshape(1, -1) if x.dim() < 2 else x
    weights = None
    for given in (fweights, aweights):
        if given is not None:
            _require((given >= 0).all(), "cov: a weight is negative")
            weights = given if weights is None else weights * given
    weighted = rows if weights is None else rows * weights
    if weights is None:
        total = torch.full((), rows.shape[1], dtype=torch.int64, device=rows.device)
    else:
        total = weights.sum()
        _require(total != 0, "cov: the weights sum to zero")
    norm: Any = total - correction
    if weights is not None and aweights is not None and correction != 0:
        norm = total - correction * (weights * aweights).sum() / total
    norm = torch.where(norm > 0, norm, torch.zeros_like(norm))
    centred = rows - (weighted.sum(1) / total).unsqueeze(1)
    other = centred if weights is None else centred * weights
    found: Tensor = torch.mm(centred, other.t().conj()) / norm
    return found.squeeze()


def corrcoef(x: Tensor) -> Tensor:
    """The correlations `(variables, variables)` of rows `(variables, observations)`; 0-d of one row."""
    c = cov(x)
    if not c.dim():
        return c / c
    diagonal = c.diagonal()
    deviation = (diagonal.real if c.is_complex() else diagonal).sqrt()
    c = c / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    return torch.complex(c.real.clip(-1, 1), c.imag.clip(-1, 1)) if c.is_complex() else c.clip(-1, 1)


KERNELS: Final = {_ATEN.cov.default: cov, _ATEN.corrcoef.default: corrcoef}


def traced() -> AbstractContextManager[None]:
    """Let torch trace these ops so."""
    return recurrent_layers.replaced(KERNELS)
