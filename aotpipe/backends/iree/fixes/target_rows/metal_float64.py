"""Computes what is float64 inside of a model in float32 for Metal."""

from aotpipe.core.fixes import Fix

FIX = Fix(
    id="metal-float64",
    fault="Apple's GPUs have no float64",
    remedy="what is float64 inside of a model only is computed in float32, and the notes say so "
    "(`backends/iree/compile/flags.py`); float64 inputs and outputs are refused",
    package="metal",
    versions="",
    targets=("iree-metal",),
    program="`x.item() + 480.0` of an integer",
    diagnostic="failed to legalize operation 'arith.constant'",
)
