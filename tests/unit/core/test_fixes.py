"""Records of workarounds: which a stage applies."""

from __future__ import annotations

import pytest

from aotpipe.core.fixes import active, records, without
from aotpipe.core.targets import expand

_INPUT_PHASE = "aotpipe.backends.iree.fixes.input_phase"
_TORCH_DIALECT = "aotpipe.backends.iree.fixes.torch_dialect"


def names(package: str, targets: list[str]) -> list[str]:
    return [fix.id for fix in active(package, expand(targets))]


@pytest.mark.parametrize(
    ("targets", "wanted"),
    [
        (["iree-vulkan"], ["gpu-widening", "int64-comparisons", "spirv-reductions", "spirv-slices"]),
        (["iree-metal"], ["gpu-widening", "spirv-reductions", "spirv-slices"]),
        (["iree-cpu-host", "iree-cuda-sm_80"], ["gpu-gathers", "gpu-widening"]),
        (["iree-cpu-*", "iree-rocm-*"], ["gpu-gathers"]),
        (["iree-vmvx"], ["vmvx-comparisons"]),
    ],
)
def test_each_target_takes_its_own_after_the_first_phase(targets: list[str], wanted: list[str]) -> None:
    # In the order of their names.
    assert names(_INPUT_PHASE, targets) == sorted(
        [*wanted, "padded-scatters", "reordered-updates", "shared-destinations"]
    )


def test_some_are_for_programs_whose_targets_all_need_them() -> None:
    assert "host-reads" in names(_TORCH_DIALECT, ["iree-cpu-host", "iree-vmvx"])
    assert "host-reads" not in names(_TORCH_DIALECT, ["iree-cpu-host", "iree-vulkan"])
    assert "float64-casts" in names(_TORCH_DIALECT, ["iree-vmvx", "iree-vulkan"])


def test_one_can_be_left_out() -> None:
    first, *others = records(_INPUT_PHASE)
    with without(first):
        assert active(_INPUT_PHASE) == tuple(others)
    assert active(_INPUT_PHASE) == (first, *others)
