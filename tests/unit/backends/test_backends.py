from dataclasses import replace

import pytest

from aotpipe import backends, toolchain
from aotpipe.targets import Target


@pytest.fixture
def on_x86_64(monkeypatch):
    monkeypatch.setattr(toolchain, "host_features", lambda: ("x86_64", "avx2"))


@pytest.mark.parametrize(
    ("target", "needs", "reason"),
    [
        ("iree-cpu-host", ("x86_64", "avx2"), ""),
        ("iree-cpu-host", ("x86_64", "avx2", "avx512f"), "this CPU lacks avx512f"),
        ("iree-cpu-host", ("aarch64",), "this CPU lacks aarch64"),
        ("iree-cpu-x86_64", (), ""),
        ("iree-vmvx", (), ""),
    ],
)
def test_why_a_program_cannot_run_here(on_x86_64, target, needs, reason):
    assert backends.unrunnable(Target.parse(target), needs) == reason


def test_other_architectures_and_devices_are_named(on_x86_64):
    portable = Target.parse("iree-cpu-x86_64")
    assert backends.unrunnable(replace(portable, arch="x86_64_v3")) == ""
    assert backends.unrunnable(replace(portable, arch="aarch64")) == "this machine is x86_64"
    assert backends.unrunnable(replace(portable, device="cuda")) == "this machine has no cuda device"


def test_each_target_has_a_runtime_and_a_compiler():
    target = Target.parse("iree-vmvx")
    assert callable(backends.runtime(target).load)
    assert callable(backends.compiler(target).compile)
