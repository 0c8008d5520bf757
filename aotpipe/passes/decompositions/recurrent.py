"""Recurrent layers: a scan over time, as torch's own entries write out every time step."""

from __future__ import annotations

from aotpipe.canonicalize import recurrent_layers
from aotpipe.passes.decompositions.entries import Table

DECOMPOSITIONS: Table = recurrent_layers.KERNELS
