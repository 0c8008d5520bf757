"""Which flags `iree-compile` gets: what every program needs, what a module's content calls for, and retreats.

A flag stands here or in `targets.toml` with the reason it was measured to have. `choose` gives the fast set;
`RETREATS` are the sets to try, in order, where the compiler fails or crashes on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from aotpipe.stages import Dialect
from aotpipe.targets import Target

# Equal models give equal bytes from any folder only without these: paths and generated file names leak into
# the symbols of dispatches, the VM's source map and the executables' sources.
REPRODUCIBLE: Final = (
    "--iree-llvmcpu-debug-symbols=false",
    "--iree-vm-bytecode-module-strip-source-map",
    "--iree-hal-executable-debug-level=0",
)
# Source locations also steer the order of some outlined constants. They are dropped after the input
# conversion, whose diagnostics are those that a user can act on.
STRIP_LOCATIONS: Final = "--iree-preprocessing-pass-pipeline=builtin.module(strip-debuginfo)"

_INPUT_TYPES: Final[dict[Dialect, str]] = {"torch": "torch", "stablehlo": "stablehlo"}
_F64: Final = re.compile(rb"[\[,<x]f64\b|complex<f64>")
_CONV: Final = re.compile(rb"torch\.aten\.(_?convolution|conv\d?d?|conv_transpose\d)|stablehlo\.convolution")


@dataclass(frozen=True, slots=True)
class Rule:
    """A flag that is passed where a module or target calls for it, and why."""

    flag: str
    reason: str
    applies: Callable[[bytes, Target], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retreat:
    """A more cautious set of flags: `drop` are prefixes of flags to leave out, `add` come last.

    Where `needs` is not among the flags, the set stays as it is.
    """

    name: str
    drop: tuple[str, ...]
    add: tuple[str, ...] = ()
    needs: str = ""

    def __call__(self, flags: Sequence[str]) -> tuple[str, ...]:
        """The cautious form of a set of flags; equal to it where nothing of it is dropped or added."""
        if self.needs and self.needs not in flags:
            return tuple(flags)
        kept = [flag for flag in flags if not flag.startswith(self.drop)]
        return (*kept, *(flag for flag in self.add if flag not in kept))


RULES: Final = (
    Rule(
        "--iree-llvmcpu-stack-allocation-limit=262144",
        "wide softmax and norm dispatches need more than the 32 kB default; worker threads have 8 MB",
        lambda _, target: target.device == "cpu",
    ),
    Rule(
        "--iree-input-demote-f64-to-f32=false",
        "float64 tensors would be computed in float32 without a word",
        lambda module, _: bool(_F64.search(module)),
    ),
    Rule(
        "--iree-global-opt-use-im2col-for-convs",
        "a convolution becomes a data-tiled matmul: ResNet-18 runs in a third of the time",
        lambda module, target: _is_tiled(target) and bool(_CONV.search(module)),
    ),
)

RETREATS: Final = (
    Retreat(name="without im2col", drop=("--iree-global-opt-use-im2col-for-convs",)),
    # Tiled after fusion, a producer over two dynamic dims may not compile. Tiled before, an encoder with a dynamic
    # batch and length takes 0.55 of its time without tiling.
    Retreat(
        name="with data tiling before fusion",
        drop=("--iree-global-opt-use-im2col-for-convs", "--iree-opt-data-tiling"),
        add=("--iree-global-opt-data-tiling", "--iree-dispatch-creation-data-tiling=false"),
        needs="--iree-opt-data-tiling",
    ),
    Retreat(
        name="without data tiling",
        drop=("--iree-global-opt-use-im2col-for-convs", "--iree-opt-data-tiling"),
    ),
    Retreat(
        name="without optimization",
        drop=("--iree-global-opt-use-im2col-for-convs", "--iree-opt-data-tiling"),
        add=("--iree-opt-level=O0", "--iree-opt-const-eval=false"),
    ),
)


def choose(module: bytes, dialect: Dialect, target: Target, extra: Sequence[str] = ()) -> tuple[str, ...]:
    """The fast flags for a module, in the order in which they are passed; `extra` come last and win."""
    wanted = (rule.flag for rule in RULES if rule.applies(module, target))
    return (
        f"--iree-input-type={_INPUT_TYPES[dialect]}",
        *target.row.flags,
        *wanted,
        *REPRODUCIBLE,
        *extra,
    )


def _is_tiled(target: Target) -> bool:
    return "--iree-opt-data-tiling" in target.row.flags
