"""One program for the devices of several targets: each finds its part of it when the program is loaded.

The weights are outside of every program, so that the devices share them as separate programs do; what is
written once is what surrounds the kernels. A runtime tells devices apart by their drivers, so that a fat
program holds one target of each. Torch-free, compiler-free.

Raises `TargetError` where there is nothing to join.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aotpipe.core.targets import Target
from aotpipe.errors import TargetError

_DEVICE: Final = "--iree-hal-target-device="


def groups(targets: Sequence[Target]) -> tuple[tuple[Target, ...], ...]:
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


def flags(targets: Sequence[Target]) -> tuple[str, ...]:
    """The flags of the targets' rows as those of one compile; of one target its own.

    Args:
        targets: Each of another driver.
    """
    if len(targets) == 1:
        return targets[0].row.flags
    found = [flag for target in targets for flag in target.row.flags]
    devices = [flag.removeprefix(_DEVICE) for flag in found if flag.startswith(_DEVICE)]
    select = f"{_DEVICE}#hal.device.select<[{', '.join(map(_spelled, devices))}]> : !hal.device"
    return (select, *dict.fromkeys(flag for flag in found if not flag.startswith(_DEVICE)))


def _spelled(device: str) -> str:
    return device if device.startswith("#") else f'#hal.device.alias<"{device}"> : !hal.device'
