"""What the CPU says of itself, by its own instruction."""

from __future__ import annotations

import mmap
import platform
from pathlib import Path

import pytest

from aotpipe.runtime import cpuid, toolchain

LINUX_X86 = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="the instruction is x86-64's"
)


def nehalem(leaf: int, subleaf: int) -> tuple[int, int, int, int]:
    """A CPU whose last leaf is 1; what lies beyond answers as leaf 1 does."""
    if leaf in {0, 0x80000000}:
        return (1 if leaf == 0 else 0x80000001, 0, 0, 0)
    return (0, 0, 1 if leaf == 0x80000001 else (1 << 0 | 1 << 9 | 1 << 19 | 1 << 20 | 1 << 23), 0)


def test_bits_have_llvms_names_and_absent_leaves_say_nothing() -> None:
    assert cpuid.features(nehalem) == {"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "sahf"}


@LINUX_X86
def test_this_cpu_has_what_its_kernel_lists() -> None:
    own = cpuid.features()
    assert own is not None
    listed = toolchain.parse_cpuinfo(Path("/proc/cpuinfo").read_text(), "x86_64")
    assert set(listed) & cpuid.KNOWN <= own | {"xsave"}
    assert set(toolchain.host_features()[1:]) & cpuid.KNOWN <= own


def test_every_feature_of_the_kernels_table_can_be_asked() -> None:
    assert set(toolchain._X86_64.values()) >= cpuid.KNOWN


def test_where_the_cpu_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **options: object) -> None:
        raise PermissionError

    monkeypatch.setattr(mmap, "mmap", refused)
    assert cpuid.features() is None
    toolchain.host_features.cache_clear()
    try:
        assert toolchain.host_features()[0]
    finally:
        toolchain.host_features.cache_clear()


@LINUX_X86
def test_a_feature_that_the_cpu_denies_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpuid, "features", lambda: frozenset({"sse3"}))
    toolchain.host_features.cache_clear()
    try:
        assert set(toolchain.host_features()) & cpuid.KNOWN == {"sse3"}
    finally:
        toolchain.host_features.cache_clear()
