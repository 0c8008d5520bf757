"""Keeps the kernels of a program for several devices in executables of their own."""

from aotpipe.backends.iree.fixes.flags import Rule
from aotpipe.core.fixes import Fix

FIX = Fix(
    id="linked-executables",
    fault="IREE links the kernels of one device to an executable that the other devices of a program cannot "
    "load, and loads all of them with the program",
    remedy="kernels are not linked",
    targets=("iree-*",),
    program="two kernels for a CPU and CUDA in one program",
    diagnostic="does not support any variant of executable",
    apply=Rule(
        "--iree-hal-link-executables=false",
        "linked, the kernels of a device are in an executable that the other devices cannot load",
        lambda _, targets: len(targets) > 1,
    ),
)
