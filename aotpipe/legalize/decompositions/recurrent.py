"""Recurrent layers: a scan over time, as torch's own entries write out every time step."""

from __future__ import annotations

from aotpipe import recurrent
from aotpipe.legalize.decompositions.entries import Table

DECOMPOSITIONS: Table = recurrent.KERNELS
