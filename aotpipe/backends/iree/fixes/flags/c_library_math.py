"""Links programs against the C library where they call its float64 functions."""

from aotpipe.backends.iree.fixes.flags import Fallback
from aotpipe.core.fixes import Fix

LINKER = "./lld"
"""Where `attempts` puts the package's linker, as seen from the folder of a compile."""

FIX = Fix(
    id="c-library-math",
    fault="IREE calls the host's C library for float64 sin, tanh and their kin, which an embedded ELF "
    "cannot reach",
    remedy="the program is linked as a shared library of the system; the notes say so",
    targets=("iree-cpu-*",),
    program="`math.tanh` of a `tensor<4xf64>`",
    diagnostic="undefined symbol",
    apply=Fallback(
        name="against the C library's math functions",
        add=(
            "--iree-llvmcpu-link-embedded=false",
            f"--iree-llvmcpu-system-linker-path={LINKER}",
            # What the compiler itself runs, to fold constants, is an embedded ELF all the same.
            "--iree-opt-const-eval=false",
        ),
        after=r"undefined symbol: \w+",
    ),
)
