"""Which packages and which CPU take part in a build, found once per process.

Torch-free: versions come from the packages' metadata, so that nothing heavy is imported to read them. Names
of CPU features are LLVM's (`avx512f`, `sse4.1`), and the first of them is always the architecture.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

from aotpipe.runtime.store import digest

PACKAGES: Final = (
    "iree-base-compiler",
    "iree-base-runtime",
    "jax",
    "jaxlib",
    "libtpu",
    "ml-dtypes",
    "numpy",
    "torch",
)

# What CPUID says on x86-64: (leaf, subleaf, register) -> feature -> bit, by the manuals of Intel and AMD.
# Only what a code generator may use is listed: a program that needs `smep` would be refused where it
# runs well.
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
# void query(uint32_t leaf, uint32_t subleaf, uint32_t registers[4]), by the calling convention of Linux.
_CODE: Final = bytes.fromhex("53 89f8 89f1 4989d0 0fa2 418900 41895804 41894808 4189500c 5b c3")
Query = Callable[[int, int], tuple[int, int, int, int]]
"""From a leaf and a subleaf to eax, ebx, ecx and edx."""

# The kernel's name of a feature -> LLVM's. On x86-64 most differ in punctuation only (`avx512_vnni`).
_X86_64: Final[Mapping[str, str]] = {
    "pni": "sse3",
    "abm": "lzcnt",
    "bmi1": "bmi",
    "lahf_lm": "sahf",
    "pclmulqdq": "pclmul",
    "sha_ni": "sha",
    **{re.sub(r"\W", "", name): name for bits in _BITS.values() for name in bits},
}
_AARCH64: Final[Mapping[str, str]] = {
    **{name: name for name in ("aes", "bf16", "i8mm", "sha2", "sha3", "sme", "sme2", "sve", "sve2")},
    "asimd": "neon",
    "asimddp": "dotprod",
    "asimdhp": "fullfp16",
    "asimdrdm": "rdm",
    "asimdfhm": "fp16fml",
    "atomics": "lse",
    "crc32": "crc",
    "fcma": "complxnum",
    "fp": "fp-armv8",
    "jscvt": "jsconv",
    "lrcpc": "rcpc",
}
_ARCH_ALIASES: Final[Mapping[str, str]] = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}


@cache
def versions() -> Mapping[str, str]:
    """Package -> exact version, of aotpipe and of those in `PACKAGES` that are installed."""
    from aotpipe import __version__

    found = {name: version for name in PACKAGES if (version := version_of(name)) is not None}
    return {"aotpipe": __version__, **found}


@cache
def tools_digest() -> str:
    """SHA-256 of what besides the model and the host can change a program's bytes or numbers.

    It is over the versions and aotpipe's own files, so that an edited checkout never reads an older cache.
    """
    return digest({"versions": dict(versions()), "source": source_digest(Path(__file__).parents[1])})


def host_digest() -> str:
    """SHA-256 over the CPU's features, to be mixed into the digest of a `host` program."""
    return digest(host_features())


@cache
def host_features() -> tuple[str, ...]:
    """What this CPU can do: the architecture, then its features by LLVM's names, sorted.

    Where the kernel does not list features (not Linux), the CPU's own name stands for all of them, so that a
    `host` program is refused on any other CPU rather than killed there by an illegal instruction. What the
    kernel lists and the CPU itself denies (`cpuid`) is not there: an emulator (qemu-user) and some sandboxes
    show the kernel of their host.
    """
    arch = _ARCH_ALIASES.get(platform.machine().lower(), platform.machine().lower())
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return (arch, f"cpu:{platform.processor() or platform.node()}")
    listed = parse_cpuinfo(text, arch)
    own = cpuid()
    return (arch, *(name for name in listed if own is None or name in own))


def parse_cpuinfo(text: str, arch: str) -> tuple[str, ...]:
    """The features that every core of a `/proc/cpuinfo` has, sorted.

    A heterogeneous CPU may run a thread on any core, hence the intersection. On architectures without a
    table the kernel's own words are kept.
    """
    keys = {"flags", "features", "isa"}
    pairs = (line.partition(":") for line in text.splitlines())
    cores = [set(value.split()) for key, _, value in pairs if key.strip().lower() in keys]
    common = set.intersection(*cores) if cores else set()
    if arch == "x86_64":
        plain = (name if name in _X86_64 else name.replace("_", "") for name in common)
        common = {_X86_64[name] for name in plain if name in _X86_64}
    elif arch == "aarch64":
        common = {_AARCH64[name] for name in common & _AARCH64.keys()}
    return tuple(sorted(common))


def cpuid(query: Query | None = None) -> frozenset[str] | None:
    """The features that an x86-64 CPU says it has, by its own instruction; None where it cannot be asked."""
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


def missing_features(required: Iterable[str]) -> tuple[str, ...]:
    """The features of a program's needs that this host lacks; empty where it can run."""
    present = set(host_features())
    return tuple(name for name in required if name not in present)


def version_of(package: str) -> str | None:
    """A package's exact version, None where it is not installed."""
    try:
        return metadata.version(package)
    except (metadata.PackageNotFoundError, ValueError):  # ValueError: no name at all
        return None


def source_digest(*roots: Path) -> str:
    """SHA-256 of files, and of the `.py` and `.toml` files below folders, with their names."""
    digest = hashlib.sha256()
    for root in roots:
        below = [root] if root.is_file() else root.rglob("*")
        for path in sorted(each for each in below if each.suffix in {".py", ".toml"} and each.is_file()):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(root.parent).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()
