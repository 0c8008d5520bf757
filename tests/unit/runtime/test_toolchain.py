"""The toolchain: versions without imports, features by LLVM's names, and what the CPU says of itself."""

from __future__ import annotations

import mmap
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from aotpipe.runtime import toolchain

LINUX_X86 = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="the instruction is x86-64's"
)
_TWO_CORES = """\
processor : 0
flags     : fpu sse4_1 avx2 avx512f smep
processor : 1
flags     : fpu sse4_1 avx2 smep
"""


def test_versions_are_exact_and_include_the_compiler() -> None:
    versions = toolchain.versions()
    assert versions["torch"].startswith("2.13")
    assert versions["iree-base-compiler"].startswith("3.13")
    assert versions["aotpipe"]


def test_reading_the_toolchain_imports_neither_torch_nor_the_compiler() -> None:
    code = (
        "import sys; from aotpipe.runtime import toolchain; toolchain.tools_digest(); "
        "print([m for m in ('torch', 'iree.compiler', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_features_are_those_of_every_core_in_llvms_words() -> None:
    assert toolchain.parse_cpuinfo(_TWO_CORES, "x86_64") == ("avx2", "sse4.1")


def test_an_architecture_without_a_table_keeps_the_kernels_words() -> None:
    assert toolchain.parse_cpuinfo("isa\t: rv64imafdc_zicsr\n", "riscv64") == ("rv64imafdc_zicsr",)


def test_the_host_has_its_own_features_and_no_invented_one() -> None:
    features = toolchain.host_features()
    assert toolchain.missing_features(features) == ()
    assert toolchain.missing_features((*features, "warp-drive")) == ("warp-drive",)


def test_a_program_of_another_architecture_does_not_fit() -> None:
    assert toolchain.missing_features(("z80",)) == ("z80",)


def test_the_digest_is_full_and_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    one = toolchain.tools_digest()
    assert len(one) == 64
    reversed_ = dict(reversed(toolchain.versions().items()))
    monkeypatch.setattr(toolchain, "versions", lambda: reversed_)
    assert toolchain.tools_digest.__wrapped__() == one


def test_an_unknown_package_has_no_version() -> None:
    assert toolchain.version_of("no-such-package-anywhere") is None


def nehalem(leaf: int, subleaf: int) -> tuple[int, int, int, int]:
    """A CPU whose last leaf is 1; what lies beyond answers as leaf 1 does."""
    if leaf in {0, 0x80000000}:
        return (1 if leaf == 0 else 0x80000001, 0, 0, 0)
    return (0, 0, 1 if leaf == 0x80000001 else (1 << 0 | 1 << 9 | 1 << 19 | 1 << 20 | 1 << 23), 0)


def test_bits_have_llvms_names_and_absent_leaves_say_nothing() -> None:
    assert toolchain.cpuid(nehalem) == {"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "sahf"}


@LINUX_X86
def test_this_cpu_has_what_its_kernel_lists() -> None:
    own = toolchain.cpuid()
    assert own is not None
    listed = toolchain.parse_cpuinfo(Path("/proc/cpuinfo").read_text(), "x86_64")
    assert set(listed) <= own | {"xsave"}
    assert set(toolchain.host_features()[1:]) <= own


@pytest.mark.parametrize(
    ("kernel", "llvm"),
    [
        ("pni abm bmi1 lahf_lm pclmulqdq sha_ni", ("bmi", "lzcnt", "pclmul", "sahf", "sha", "sse3")),
        ("sse4_1 sse4a avx512_vnni avx512vl", ("avx512vl", "avx512vnni", "sse4.1", "sse4a")),
        ("amx_tile avx_vnni_int8 vpclmulqdq", ("amx-tile", "avxvnniint8", "vpclmulqdq")),
        ("smep xsaveopt avx512_unheard_of", ()),
    ],
)
def test_the_kernels_words_for_x86_features(kernel: str, llvm: tuple[str, ...]) -> None:
    assert toolchain.parse_cpuinfo(f"flags : {kernel}\n", "x86_64") == llvm


def test_where_the_cpu_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **options: object) -> None:
        raise PermissionError

    monkeypatch.setattr(mmap, "mmap", refused)
    assert toolchain.cpuid() is None
    toolchain.host_features.cache_clear()
    try:
        assert toolchain.host_features()[0]
    finally:
        toolchain.host_features.cache_clear()


@LINUX_X86
def test_a_feature_that_the_cpu_denies_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "cpuid", lambda: frozenset({"sse3"}))
    toolchain.host_features.cache_clear()
    try:
        assert toolchain.host_features() == ("x86_64", "sse3")
    finally:
        toolchain.host_features.cache_clear()
