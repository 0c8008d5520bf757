"""Which features an x86-64 CPU says it has, by LLVM's names, asked by its own instruction.

The kernel's `/proc/cpuinfo` is not this process's CPU under an emulator (qemu-user) or in some sandboxes:
a program that trusts it there dies of an illegal instruction. Neither torch nor a compiler is imported.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
from collections.abc import Callable, Mapping
from typing import Final

Query = Callable[[int, int], tuple[int, int, int, int]]
"""From a leaf and a subleaf to eax, ebx, ecx and edx."""

# (leaf, subleaf, register) -> feature -> bit. Intel's and AMD's manuals, under CPUID.
_BITS: Final[Mapping[tuple[int, int, int], Mapping[str, int]]] = {
    # xsave is the bit of the system's use of it: without, nothing wider than SSE works.
    (1, 0, 2): {
        "sse3": 0, "pclmul": 1, "ssse3": 9, "fma": 12, "cx16": 13, "sse4.1": 19, "sse4.2": 20, "movbe": 22,
        "popcnt": 23, "aes": 25, "xsave": 27, "avx": 28, "f16c": 29,
    },
    (7, 0, 1): {
        "fsgsbase": 0, "bmi": 3, "avx2": 5, "bmi2": 8, "avx512f": 16, "avx512dq": 17, "adx": 19,
        "avx512ifma": 21, "avx512cd": 28, "sha": 29, "avx512bw": 30, "avx512vl": 31,
    },
    (7, 0, 2): {
        "avx512vbmi": 1, "avx512vbmi2": 6, "gfni": 8, "vaes": 9, "vpclmulqdq": 10, "avx512vnni": 11,
        "avx512bitalg": 12, "avx512vpopcntdq": 14,
    },
    (7, 0, 3): {
        "avx512vp2intersect": 8, "amx-bf16": 22, "avx512fp16": 23, "amx-tile": 24, "amx-int8": 25,
    },
    (7, 1, 0): {"avxvnni": 4, "avx512bf16": 5, "amx-fp16": 21, "avxifma": 23},
    (7, 1, 3): {"avxvnniint8": 4, "avxneconvert": 5, "avxvnniint16": 10},
    (0x80000001, 0, 2): {"sahf": 0, "lzcnt": 5, "sse4a": 6, "xop": 11, "fma4": 16},
}  # fmt: skip
KNOWN: Final = frozenset(name for bits in _BITS.values() for name in bits)
"""The features that can be asked for."""

# void query(uint32_t leaf, uint32_t subleaf, uint32_t registers[4]), by the calling convention of Linux.
_CODE: Final = bytes.fromhex("53 89f8 89f1 4989d0 0fa2 418900 41895804 41894808 4189500c 5b c3")


def features(query: Query | None = None) -> frozenset[str] | None:
    """Those of `KNOWN` that the CPU has; None where it cannot be asked.

    Args:
        query: How to ask; the instruction where None.
    """
    ask = query or _instruction()
    if ask is None:
        return None
    most = {start: ask(start, 0)[0] for start in (0, 0x80000000)}
    found: set[str] = set()
    for (leaf, subleaf, register), bits in _BITS.items():
        start = leaf & 0x80000000
        # A leaf that is not there answers with another one's registers.
        if leaf > most[start] or subleaf > (ask(leaf, 0)[0] if subleaf else 0):
            continue
        word = ask(leaf, subleaf)[register]
        found.update(name for name, bit in bits.items() if word >> bit & 1)
    return frozenset(found)


def _instruction() -> Query | None:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return None
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:  # a hardened kernel gives no memory that can be written and executed
        return None
    page.write(_CODE)
    registers = (ctypes.c_uint32 * 4)()
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    call = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(start)

    def query(leaf: int, subleaf: int) -> tuple[int, int, int, int]:
        assert not page.closed
        call(leaf, subleaf, ctypes.addressof(registers))
        eax, ebx, ecx, edx = registers
        return eax, ebx, ecx, edx

    return query
