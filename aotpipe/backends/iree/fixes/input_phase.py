"""What a module is changed to for GPUs after the compiler's first phase.

`mended(module, targets)` takes a module in the `input` phase and gives the one to go on with, None where it
may stay as it is; `forms(targets)` tells which changes there are, for the digest of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aotpipe.backends.iree.fixes import gpu_widening, int64_comparisons, spirv_reductions, spirv_slices
from aotpipe.core.targets import Target

_Mend = Callable[[str], str | None]
_SLICES: Final = ("slices", spirv_slices.FORM, spirv_slices.apart)
_WIDENINGS: Final = ("widenings", gpu_widening.FORM, gpu_widening.apart)
_REDUCTIONS: Final = ("reductions", spirv_reductions.FORM, spirv_reductions.apart)
_COMPARISONS: Final = ("comparisons", int64_comparisons.FORM, int64_comparisons.unsigned)
_BY_DEVICE: Final[Mapping[str, tuple[tuple[str, int, _Mend], ...]]] = {
    "cuda": (_WIDENINGS,),
    "metal": (_WIDENINGS, _REDUCTIONS, _SLICES),
    "vulkan": (_WIDENINGS, _REDUCTIONS, _SLICES, _COMPARISONS),
}


def forms(targets: Sequence[Target]) -> list[tuple[str, int]]:
    """The changes that a program for these targets takes, and the form of each."""
    return [(name, form) for name, form, _ in _mends(targets)]


def mended(module: str, targets: Sequence[Target]) -> str | None:
    """The module after all of them; None where none changes it."""
    changed = None
    for _, _, mend in _mends(targets):
        changed = mend(changed or module) or changed
    return changed


def _mends(targets: Sequence[Target]) -> list[tuple[str, int, _Mend]]:
    return list(dict.fromkeys(mend for each in targets for mend in _BY_DEVICE.get(each.device, ())))
