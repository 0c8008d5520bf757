"""Several devices in one program."""

from __future__ import annotations

import pytest

from aotpipe.backends.iree.compile import fat
from aotpipe.core.targets import expand
from aotpipe.errors import TargetError

V3, V4, SM, VULKAN, METAL, XLA = expand(
    [
        "iree-cpu-x86_64_v3",
        "iree-cpu-x86_64_v4",
        "iree-cuda-sm_80",
        "iree-vulkan",
        "iree-metal",
        "xla-cpu-host",
    ]
)


def test_the_first_target_of_each_driver_is_in_it() -> None:
    assert fat.groups((XLA, V4, VULKAN, V3, SM)) == ((V4, SM, VULKAN), (XLA,), (V3,))


@pytest.mark.parametrize("targets", [(V3,), (V3, V4), (XLA, SM)])
def test_one_device_is_refused(targets: tuple) -> None:
    with pytest.raises(TargetError, match="several devices") as caught:
        fat.groups(targets)
    assert "--fat" in caught.value.hint
    assert str(targets[0]) in caught.value.reason


def test_the_devices_become_one_choice_and_other_flags_stay() -> None:
    select, *rest = fat.flags((V3, SM, VULKAN))
    assert select.startswith('--iree-hal-target-device=#hal.device.select<[#hal.device.alias<"local">')
    assert '#hal.device.alias<"cuda"> : !hal.device, #hal.device.target<"vulkan"' in select
    assert select.endswith("]> : !hal.device")
    assert {"--iree-cuda-target=sm_80", "--iree-llvmcpu-target-cpu=x86-64-v3"} <= set(rest)
    assert not any("target-device=" in flag for flag in rest)


def test_a_target_alone_has_its_own_flags() -> None:
    assert fat.flags((METAL,)) == METAL.row.flags
