"""Which packages and which CPU take part in a build, found once per process.

Torch-free: versions come from the packages' metadata, so that nothing heavy is imported to read them. Names
of CPU features are LLVM's (`avx512f`, `sse4.1`), and the first of them is always the architecture.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aotpipe.runtime import cpuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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

# The kernel's name of a feature -> LLVM's. Only what a code generator may use is listed: a program that
# names `smep` as a need would be refused on machines that run it well.
_X86_64: Final[Mapping[str, str]] = {
    "pni": "sse3",
    "ssse3": "ssse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "sse4a": "sse4a",
    "abm": "lzcnt",
    "aes": "aes",
    "adx": "adx",
    "avx": "avx",
    "avx2": "avx2",
    "bmi1": "bmi",
    "bmi2": "bmi2",
    "cx16": "cx16",
    "f16c": "f16c",
    "fma": "fma",
    "fma4": "fma4",
    "fsgsbase": "fsgsbase",
    "gfni": "gfni",
    "lahf_lm": "sahf",
    "movbe": "movbe",
    "pclmulqdq": "pclmul",
    "popcnt": "popcnt",
    "sha_ni": "sha",
    "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq",
    "xop": "xop",
    "xsave": "xsave",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_bf16": "avx512bf16",
    "avx512_bitalg": "avx512bitalg",
    "avx512_fp16": "avx512fp16",
    "avx512_vnni": "avx512vnni",
    "avx512_vp2intersect": "avx512vp2intersect",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx_ifma": "avxifma",
    "avx_ne_convert": "avxneconvert",
    "avx_vnni": "avxvnni",
    "avx_vnni_int8": "avxvnniint8",
    "avx_vnni_int16": "avxvnniint16",
    "amx_bf16": "amx-bf16",
    "amx_fp16": "amx-fp16",
    "amx_int8": "amx-int8",
    "amx_tile": "amx-tile",
}
_AARCH64: Final[Mapping[str, str]] = {
    "aes": "aes",
    "asimd": "neon",
    "asimddp": "dotprod",
    "asimdhp": "fullfp16",
    "asimdrdm": "rdm",
    "asimdfhm": "fp16fml",
    "atomics": "lse",
    "bf16": "bf16",
    "crc32": "crc",
    "fcma": "complxnum",
    "fp": "fp-armv8",
    "i8mm": "i8mm",
    "jscvt": "jsconv",
    "lrcpc": "rcpc",
    "sha2": "sha2",
    "sha3": "sha3",
    "sme": "sme",
    "sme2": "sme2",
    "sve": "sve",
    "sve2": "sve2",
}
_TABLES: Final[Mapping[str, Mapping[str, str]]] = {"x86_64": _X86_64, "aarch64": _AARCH64}
_ARCH_ALIASES: Final[Mapping[str, str]] = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Everything besides the model that can change a program's bytes or numbers.

    Attributes:
        versions: Package -> exact version, of aotpipe and of those in `PACKAGES` that are installed.
        source: SHA-256 of aotpipe's own files, so that an edited checkout never reads an older cache.
        host_features: What this CPU can do, the architecture first.
    """

    versions: Mapping[str, str]
    source: str
    host_features: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over the versions and aotpipe's source; the host counts only where a target is `host`."""
        text = json.dumps({"versions": dict(self.versions), "source": self.source}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def host_digest(self) -> str:
        """SHA-256 over the CPU's features, to be mixed into the digest of a `host` program."""
        return hashlib.sha256(json.dumps(self.host_features).encode()).hexdigest()


@cache
def current() -> Toolchain:
    """The toolchain of this process."""
    return Toolchain(
        versions=_versions(), source=source_digest(Path(__file__).parents[1]), host_features=host_features()
    )


@cache
def host_features() -> tuple[str, ...]:
    """What this CPU can do: the architecture, then its features by LLVM's names, sorted.

    Where the kernel does not list features (not Linux), the CPU's own name stands for all of them, so that a
    `host` program is refused on any other CPU rather than killed there by an illegal instruction. What the
    kernel lists and the CPU itself denies (`cpuid`) is not there: an emulator shows its host's kernel.
    """
    arch = _ARCH_ALIASES.get(platform.machine().lower(), platform.machine().lower())
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return (arch, f"cpu:{platform.processor() or platform.node()}")
    listed = parse_cpuinfo(text, arch)
    own = cpuid.features()
    return (arch, *(name for name in listed if own is None or name in own or name not in cpuid.KNOWN))


def parse_cpuinfo(text: str, arch: str) -> tuple[str, ...]:
    """The features that every core of a `/proc/cpuinfo` has, sorted.

    A heterogeneous CPU may run a thread on any core, hence the intersection. On architectures without a
    table the kernel's own words are kept.
    """
    keys = {"flags", "features", "isa"}
    pairs = (line.partition(":") for line in text.splitlines())
    cores = [set(value.split()) for key, _, value in pairs if key.strip().lower() in keys]
    common = set.intersection(*cores) if cores else set()
    table = _TABLES.get(arch)
    return tuple(sorted(common if table is None else {table[name] for name in common & table.keys()}))


def missing_features(required: Iterable[str]) -> tuple[str, ...]:
    """The features of a program's needs that this host lacks; empty where it can run."""
    present = set(host_features())
    return tuple(name for name in required if name not in present)


def version_of(package: str) -> str | None:
    """A package's exact version, None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _versions() -> dict[str, str]:
    from aotpipe import __version__

    found = {name: version for name in PACKAGES if (version := version_of(name)) is not None}
    return {"aotpipe": __version__, **found}


def source_digest(*roots: Path) -> str:
    """SHA-256 of files, and of the `.py` and `.toml` files below folders, with their names."""
    digest = hashlib.sha256()
    for root in roots:
        below = [root] if root.is_file() else root.rglob("*")
        for path in sorted(each for each in below if each.suffix in {".py", ".toml"} and each.is_file()):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(root.parent).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()
