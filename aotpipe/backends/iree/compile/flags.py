"""Which flags `iree-compile` gets: what each program needs, what a module's content calls for, and fallbacks.

A flag stands here or in `targets.toml` with the reason it was measured to have. `choose` gives the fast set;
`fallbacks` gives the sets to try, in order, where the compiler fails or crashes on it, and
`fallbacks_for_numbers` those to try where it computes wrong numbers.

A fat program is for the devices of several targets: each finds its part of it when the program is loaded.
The weights are outside of every program, so that the devices share them as separate programs do; what is
written once is what surrounds the kernels. A runtime tells devices apart by their drivers, so that a fat
program holds one target of each. Torch-free, compiler-free.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeVar

from aotpipe.backends.iree.fixes.flags import Fallback, Rule
from aotpipe.core import fixes
from aotpipe.core.stages import Dialect
from aotpipe.core.targets import Target
from aotpipe.errors import TargetError

_Form = TypeVar("_Form", Rule, Fallback)
_FIXES: Final = "aotpipe.backends.iree.fixes.flags"

_DEVICE: Final = "--iree-hal-target-device="
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
# computed before a loop may be dropped (`await` of stream.cmd.execute, IREE 3.13). Those of a kernel stay.
_PIPELINE: Final = "--iree-preprocessing-pass-pipeline="
PREPROCESS: Final = f"{_PIPELINE}builtin.module(strip-debuginfo,util.func(convert-scf-to-cf))"
# With the channels last a convolution's loops multiply vectors of outputs: 64 channels of 56x56 take half the
# time of a matmul of patches (im2col), 32 of 64 images of 32x32 a third, also over a batch that varies.
CHANNELS_LAST: Final = PREPROCESS.replace(
    ",", ",util.func(iree-preprocessing-convert-conv-to-channels-last),", 1
)

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


RULES: Final = (
    Rule(
        "--iree-hal-indirect-command-buffers=false",
        "of several branches, one records a command buffer without a binding of it: the call fails",
        lambda module, _: sum(map(module.count, _BRANCHES)) > 1,
    ),
    Rule(
        "--iree-llvmcpu-stack-allocation-limit=262144",
        "wide softmax and norm dispatches need more than the 32 kB default; worker threads have 8 MB",
        lambda _, targets: _is_for_a_cpu(targets),
    ),
    Rule(
        _WORKSPACE,
        "local-task maps what is larger than 64 MB anew in each call: the page faults took 0.4 of the time",
        lambda module, targets: _is_for_a_cpu(targets) and b"!torch." in module and not _WAITS.search(module),
    ),
    Rule(
        "--iree-input-demote-f64-to-f32=false",
        "float64 tensors would be computed in float32 without a word",
        lambda module, targets: (
            bool(_F64.search(module)) and not any(_narrows(module, target) for target in targets)
        ),
    ),
)

FALLBACKS: Final = (
    # The importer's asserts that sizes agree cut what runs at once, and the canonicalizer leaves sums of
    # offsets in such a part (IREE 3.13, e3nn's linear layers over Dims). A module with a workspace finds out
    # no size in the call: torch.export has derived all from the Dims, which the runner compares with inputs.
    # Indices are clamped, or results of the program say whether they are in range.
    Fallback(
        name="without asserts of sizes that the signature implies",
        add=("--iree-opt-strip-assertions",),
        needs=_WORKSPACE,
        after=r"explicit execution regions",
    ),
    # Not every size of a workspace can be known before the call.
    Fallback(
        name="without a workspace",
        drop=(_WORKSPACE,),
        after=r"transient|size computation|dominator block|pack operation|outside the region",
        fixes_numbers=True,
    ),
    Fallback(
        name="with channels first", drop=(CHANNELS_LAST, _WORKSPACE), add=(PREPROCESS,), fixes_numbers=True
    ),
    Fallback(
        name="with data tiling after fusion",
        drop=(CHANNELS_LAST, _TILING, _WORKSPACE),
        add=(PREPROCESS, "--iree-dispatch-creation-data-tiling"),
        needs=_TILING,
    ),
    Fallback(
        name="without data tiling",
        drop=(CHANNELS_LAST, _TILING, _WORKSPACE),
        add=(PREPROCESS,),
        fixes_numbers=True,
    ),
    Fallback(
        name="without optimization",
        drop=(CHANNELS_LAST, _TILING, _WORKSPACE),
        add=(PREPROCESS, "--iree-opt-level=O0", "--iree-opt-const-eval=false"),
    ),
)


def fallbacks() -> tuple[Fallback, ...]:
    """What to try, in order, where the compiler fails: what the failure's words call for first."""
    return (*_of_fixes(Fallback), *FALLBACKS)


def fallbacks_for_numbers(fast: Sequence[str]) -> tuple[Fallback, ...]:
    """What to try where the program of the fast flags computes wrong numbers; each changes the flags."""
    found: dict[tuple[str, ...], Fallback] = {}
    for fallback in fallbacks():
        chosen = fallback(fast)
        if fallback.fixes_numbers and chosen != tuple(fast):
            found.setdefault(chosen, fallback)
    return tuple(found.values())


def _of_fixes(form: type[_Form]) -> list[_Form]:
    return [fix.apply for fix in fixes.active(_FIXES) if isinstance(fix.apply, form)]


def choose(
    module: bytes, dialect: Dialect, target: Target, extra: Sequence[str] = (), beside: Sequence[Target] = ()
) -> tuple[str, ...]:
    """The fast flags for a module, in the order in which they are passed; `extra` come last and win.

    `beside` are the other targets of a fat program.
    """
    targets = sorted((target, *beside))
    wanted = [rule.flag for rule in (*RULES, *_of_fixes(Rule)) if rule.applies(module, targets)]
    own = [flag for flag in (*target_flags(targets), *wanted) if not (beside and flag in _UNSHARED)]
    is_for_cpus = all(each.device == "cpu" for each in targets)
    return (
        f"--iree-input-type={dialect}",
        *own,
        *REPRODUCIBLE,
        CHANNELS_LAST if is_for_cpus and _CONV.search(module) else PREPROCESS,
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


def _is_for_a_cpu(targets: Sequence[Target]) -> bool:
    return any(target.device == "cpu" for target in targets)


def _narrows(module: bytes, target: Target) -> bool:
    """Whether what is float64 inside of the model has to become float32; at its borders it cannot."""
    return target.device in _WITHOUT_F64 and not any(map(_F64.search, _ENTRY.findall(module)))


def located(chosen: Sequence[str]) -> tuple[str, ...]:
    """Flags that leave source locations in the module, for a diagnostic that names the user's line."""
    return tuple(flag for flag in chosen if not flag.startswith(_PIPELINE))


def fat_groups(targets: Sequence[Target]) -> tuple[tuple[Target, ...], ...]:
    """Which targets get one program: the first of each of IREE's drivers together, every other alone.

    Raises:
        TargetError: There are no two drivers.
    """
    first: dict[str, Target] = {}
    for target in targets:
        if target.backend == "iree":
            first.setdefault(target.row.driver, target)
    together = tuple(sorted(first.values()))
    if len(together) < 2:
        raise TargetError(
            "a fat program is for several devices",
            reason=f"there are no two of IREE's in {', '.join(map(str, targets))}",
            hint="name a target of another device, such as `-t iree-vulkan`, or leave out `--fat`",
        )
    return (together, *((target,) for target in targets if target not in together))


def target_flags(targets: Sequence[Target]) -> tuple[str, ...]:
    """The flags of the targets' rows as those of one compile; of one target its own."""
    if len(targets) == 1:
        return targets[0].row.flags
    found = [flag for target in targets for flag in target.row.flags]
    devices = [flag.removeprefix(_DEVICE) for flag in found if flag.startswith(_DEVICE)]
    spelled = [each if each[:1] == "#" else f'#hal.device.alias<"{each}"> : !hal.device' for each in devices]
    select = f"{_DEVICE}#hal.device.select<[{', '.join(spelled)}]> : !hal.device"
    return (select, *dict.fromkeys(flag for flag in found if not flag.startswith(_DEVICE)))
