"""The toolchain: versions without imports, features by LLVM's names."""

from __future__ import annotations

import subprocess
import sys

from aotpipe.runtime import toolchain

_TWO_CORES = """\
processor : 0
flags     : fpu sse4_1 avx2 avx512f smep
processor : 1
flags     : fpu sse4_1 avx2 smep
"""


def test_versions_are_exact_and_include_the_compiler() -> None:
    versions = toolchain.current().versions
    assert versions["torch"].startswith("2.13")
    assert versions["iree-base-compiler"].startswith("3.13")
    assert versions["aotpipe"]


def test_reading_the_toolchain_imports_neither_torch_nor_the_compiler() -> None:
    code = (
        "import sys; from aotpipe.runtime import toolchain; toolchain.current().digest; "
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


def test_the_digest_is_full_and_stable() -> None:
    one = toolchain.current()
    assert len(one.digest) == 64
    assert (
        one.digest
        == toolchain.Toolchain(
            versions=dict(reversed(one.versions.items())), source=one.source, host_features=()
        ).digest
    )


def test_an_unknown_package_has_no_version() -> None:
    assert toolchain.version_of("no-such-package-anywhere") is None
