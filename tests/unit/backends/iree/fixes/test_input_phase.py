"""Which changes a module takes for which targets."""

from __future__ import annotations

import pytest

from aotpipe.backends.iree.fixes import input_phase
from aotpipe.core.targets import expand

_SLICE = "  %s = tensor.extract_slice %x[0, 1] [8, 8] [1, 1] : tensor<8x16xf32> to tensor<8x8xf32>\n"
_COMPARED = """\
  ^bb0(%in: i64, %out: i1):
    %7 = arith.cmpi slt, %in, %c : i64
    linalg.yield %7 : i1
"""


@pytest.mark.parametrize(
    ("targets", "changes"),
    [
        (["iree-vulkan"], ["widenings", "reductions", "slices", "comparisons"]),
        (["iree-metal"], ["widenings", "reductions", "slices"]),
        (["iree-metal", "iree-vulkan"], ["widenings", "reductions", "slices", "comparisons"]),
        (["iree-cpu-host", "iree-cuda-sm_80"], ["widenings"]),
        (["iree-cpu-*", "iree-vmvx", "iree-rocm-*"], []),
    ],
)
def test_each_target_takes_its_own(targets: list[str], changes: list[str]) -> None:
    chosen = expand(targets)
    assert [name for name, _ in input_phase.forms(chosen)] == changes
    both = input_phase.mended(_SLICE + _COMPARED, chosen) or ""
    assert ("optimization_barrier" in both) == ("slices" in changes)
    assert ("arith.cmpi ult" in both) == ("comparisons" in changes)


def test_what_needs_none_stays() -> None:
    assert input_phase.mended("module {}", expand(["iree-vulkan"])) is None
