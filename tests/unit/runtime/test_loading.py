import pytest

from aotpipe import backends
from aotpipe.core.targets import Target
from aotpipe.runtime import loading, toolchain
from aotpipe.runtime.iree import devices


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
    assert loading.why_not_runnable(Target.parse(target), needs) == reason


def test_other_architectures_and_devices_are_named(on_x86_64, monkeypatch):
    def reason(target):
        return loading.why_not_runnable(Target.parse(target))

    assert reason("iree-cpu-aarch64") == "it runs on aarch64, and this machine is x86_64"
    assert reason("iree-cpu-x86_64_v3").startswith("this CPU lacks avx, bmi, ")
    assert reason("xla-tpu-v4") == "this machine has no tpu device"
    monkeypatch.setattr(devices, "why_unavailable", lambda driver, arch: f"no {driver} {arch}")
    assert reason("iree-cuda-sm_90") == "no cuda sm_90"
    assert reason("iree-rocm-gfx942") == "no hip gfx942"


@pytest.mark.parametrize(
    ("missing", "target", "remedy"),
    [
        ("", "iree-metal", ""),
        ("", "xla-tpu-v4", ""),
        ("iree-base-compiler", "iree-metal", "aotpipe[build]"),
        ("jax", "xla-cpu-host", "aotpipe[xla]"),
        ("libtpu", "xla-tpu-v4", "aotpipe[tpu]"),
        ("libtpu", "xla-cpu-host", ""),
    ],
)
def test_what_to_install_to_compile(monkeypatch, missing, target, remedy):
    monkeypatch.setattr(toolchain, "version_of", lambda package: None if package == missing else "1")
    found = backends.why_not_compilable(Target.parse(target))
    assert remedy in found
    assert bool(found) == bool(remedy)


def test_a_gpus_program_has_its_driver():
    assert loading.driver(Target.parse("iree-rocm-gfx942")) == "hip"
    assert loading.driver(Target.parse("iree-cpu-host")) == "auto"
    assert loading.driver(Target.parse("xla-tpu-v4")) == "auto"


def test_each_target_has_a_runtime_and_a_compiler():
    target = Target.parse("iree-vmvx")
    assert callable(loading.runtime(target.backend).load)
    assert callable(backends.compiler(target).compile)
