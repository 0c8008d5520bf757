"""Which flags `iree-compile` gets: what every program needs, what a module's content calls for, and retreats.

A flag stands here or in `targets.toml` with the reason it was measured to have. `choose` gives the fast set;
`RETREATS` are the sets to try, in order, where the compiler fails or crashes on it; `suspects` are those to
try where it computes wrong numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from aotpipe.backends.iree.compile import fat
from aotpipe.core.stages import Dialect
from aotpipe.core.targets import Target

# Equal models give equal bytes from any folder only without these: paths and generated file names leak into
# the symbols of dispatches, the VM's source map and the executables' sources.
REPRODUCIBLE: Final = (
    "--iree-llvmcpu-debug-symbols=false",
    "--iree-vm-bytecode-module-strip-source-map",
    "--iree-hal-executable-debug-level=0",
)
# Source locations also steer the order of some outlined constants. They are dropped after the input
# conversion, whose diagnostics are those that a user can act on.
# Loops and branches become blocks before IREE schedules them. In an `scf` op it does not follow which weights
# a dispatch waits for, and its canonicalizer then puts that wait in the place of another, so that what was
# computed before a loop may be dropped (`await` of stream.cmd.execute, IREE 3.13).
_PIPELINE: Final = "--iree-preprocessing-pass-pipeline="
PREPROCESS: Final = f"{_PIPELINE}builtin.module(strip-debuginfo,convert-scf-to-cf)"
# With the channels last a convolution's loops multiply vectors of outputs: 64 channels of 56x56 take half the
# time of a matmul of patches (im2col), 32 of 64 images of 32x32 a third, also over a batch that varies.
CHANNELS_LAST: Final = PREPROCESS.replace(
    ",", ",util.func(iree-preprocessing-convert-conv-to-channels-last),", 1
)

_INPUT_TYPES: Final[dict[Dialect, str]] = {"torch": "torch", "stablehlo": "stablehlo"}
_F64: Final = re.compile(rb"[\[,<x]f64\b|complex<f64>")
# An entry point's line, with the types of its arguments and results.
_ENTRY: Final = re.compile(rb"^ *func\.func (?:public )?@.*$", re.MULTILINE)
_WITHOUT_F64: Final = ("metal",)
# What is allocated in a region, or of a size that the call finds out, has no place in a workspace: "alloca
# has no parent in common dominator block", "failed to hoist transient size computations" (IREE 3.13).
_WAITS: Final = re.compile(
    rb"\bscf\.|\btensor\.extract\b|\btorch\.aten\.(Int|Float|Bool|item|nonzero|unique\w*)\b"
)
_CONV: Final = re.compile(rb"torch\.aten\.(_?convolution|conv\d?d?|conv_transpose\d)|stablehlo\.convolution")


# `if` and `case` of StableHLO become `scf.if`.
_BRANCHES: Final = (b"scf.if", b"stablehlo.if", b"stablehlo.case")
_TILING: Final = "--iree-global-opt-data-tiling"
_WORKSPACE: Final = "--iree-torch-externalize-transients"
# For several devices the compiler tiles no matmul (one of 768x768x768 takes 1.2 of the time on AVX-512); a
# workspace has the memory of one device.
_UNSHARED: Final = (_TILING, _WORKSPACE)


@dataclass(frozen=True, slots=True)
class Rule:
    """A flag that is passed where a module or target calls for it, and why.

    Attributes:
        for_all: Whether each target of a fat program has to call for it, or one.
    """

    flag: str
    reason: str
    applies: Callable[[bytes, Target], bool]
    for_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Retreat:
    """A more cautious set of flags, tried where the compiler fails.

    Attributes:
        name: Completes the sentence "compiled ...".
        drop: Prefixes of flags to leave out.
        add: Flags that come last.
        needs: Where this flag is not among them, the set stays as it is.
        after: A pattern of the failed compile's words; the empty one matches all.
        mends_numbers: Whether it leaves out what was seen to give wrong numbers.
    """

    name: str
    drop: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    needs: str = ""
    after: str = ""
    mends_numbers: bool = False

    def __call__(self, flags: Sequence[str]) -> tuple[str, ...]:
        """The cautious form of a set of flags; equal to it where nothing of it is dropped or added."""
        if self.needs and self.needs not in flags:
            return tuple(flags)
        kept = [flag for flag in flags if not (self.drop and flag.startswith(self.drop))]
        return (*kept, *(flag for flag in self.add if flag not in kept))


RULES: Final = (
    Rule(
        "--iree-hal-indirect-command-buffers=false",
        "of several branches, one records a command buffer without a binding of it: the call fails",
        lambda module, _: sum(map(module.count, _BRANCHES)) > 1,
    ),
    Rule(
        "--iree-llvmcpu-stack-allocation-limit=262144",
        "wide softmax and norm dispatches need more than the 32 kB default; worker threads have 8 MB",
        lambda _, target: target.device == "cpu",
    ),
    Rule(
        _WORKSPACE,
        "local-task maps what is larger than 64 MB anew in each call: the page faults took 0.4 of the time",
        lambda module, target: target.device == "cpu" and b"!torch." in module and not _WAITS.search(module),
    ),
    Rule(
        "--iree-input-demote-f64-to-f32=false",
        "float64 tensors would be computed in float32 without a word",
        lambda module, target: bool(_F64.search(module)) and not _narrows(module, target),
        for_all=True,
    ),
)

LINKER: Final = "./lld"
"""Where `compiler` puts the package's linker, as seen from the folder of a compile."""

RETREATS: Final = (
    # IREE has no float64 form of sin, tanh and their kin: they come from the host's C library, which an
    # embedded ELF cannot reach.
    Retreat(
        name="against the C library's math functions",
        add=("--iree-llvmcpu-link-embedded=false", f"--iree-llvmcpu-system-linker-path={LINKER}"),
        after=r"undefined symbol: \w+",
    ),
    # A reduction over integers that become wider on the way is refused (CUDA, IREE 3.13): docs/targets.md.
    Retreat(
        name="without reductions over distributed vectors",
        add=("--iree-codegen-llvmgpu-use-reduction-vector-distribution=false",),
        after=r"failed to distribute",
    ),
    # Not every size of a workspace can be known before the call.
    Retreat(
        name="without a workspace",
        drop=(_WORKSPACE,),
        after=r"transient|size computation|dominator block|pack operation|outside the region",
        mends_numbers=True,
    ),
    Retreat(
        name="with channels first", drop=(CHANNELS_LAST, _WORKSPACE), add=(PREPROCESS,), mends_numbers=True
    ),
    Retreat(
        name="with data tiling after fusion",
        drop=(CHANNELS_LAST, _TILING, _WORKSPACE),
        add=(PREPROCESS, "--iree-dispatch-creation-data-tiling"),
        needs=_TILING,
    ),
    Retreat(
        name="without data tiling",
        drop=(CHANNELS_LAST, _TILING, _WORKSPACE),
        add=(PREPROCESS,),
        mends_numbers=True,
    ),
    Retreat(
        name="without optimization",
        drop=(CHANNELS_LAST, _TILING, _WORKSPACE),
        add=(PREPROCESS, "--iree-opt-level=O0", "--iree-opt-const-eval=false"),
    ),
)


def suspects(fast: Sequence[str]) -> tuple[Retreat, ...]:
    """The retreats to try where the program of the fast flags computes wrong numbers; each changes them."""
    found: dict[tuple[str, ...], Retreat] = {}
    for retreat in RETREATS:
        chosen = retreat(fast)
        if retreat.mends_numbers and chosen != tuple(fast):
            found.setdefault(chosen, retreat)
    return tuple(found.values())


def choose(
    module: bytes,
    dialect: Dialect,
    target: Target,
    extra: Sequence[str] = (),
    beside: Sequence[Target] = (),
) -> tuple[str, ...]:
    """The fast flags for a module, in the order in which they are passed; `extra` come last and win.

    Args:
        module: What is compiled.
        dialect: Its dialect.
        target: What for.
        extra: The user's.
        beside: The other targets of a fat program.
    """
    targets = sorted((target, *beside))
    wanted = (
        rule.flag
        for rule in RULES
        if (all if rule.for_all else any)(rule.applies(module, each) for each in targets)
    )
    own = [flag for flag in (*fat.flags(targets), *wanted) if not (beside and flag in _UNSHARED)]
    return (
        f"--iree-input-type={_INPUT_TYPES[dialect]}",
        *own,
        *REPRODUCIBLE,
        CHANNELS_LAST
        if _CONV.search(module) and all(each.device == "cpu" for each in targets)
        else PREPROCESS,
        *extra,
    )


def remarks(module: bytes, targets: Sequence[Target]) -> tuple[str, ...]:
    """What a user should know of what the flags do to this module."""
    found = [
        f"float64 inside of the model is computed in float32: {target.device} has none"
        for target in targets
        if _F64.search(module) and _narrows(module, target)
    ]
    if len(targets) > 1:
        found.append(f"one program for {', '.join(map(str, targets))}")
    return tuple(found)


def _narrows(module: bytes, target: Target) -> bool:
    """Whether what is float64 inside of the model has to become float32; at its borders it cannot."""
    return target.device in _WITHOUT_F64 and not any(map(_F64.search, _ENTRY.findall(module)))


def located(chosen: Sequence[str]) -> tuple[str, ...]:
    """Flags that leave source locations in the module, for a diagnostic that names the user's line."""
    return tuple(flag for flag in chosen if not flag.startswith(_PIPELINE))
