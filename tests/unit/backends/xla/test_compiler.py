"""The compiler's own process: what it records, its limits, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.export import Dim

from aotpipe.backends.xla import compiler, lowering
from aotpipe.core.stages import Lowered
from aotpipe.core.targets import Target
from aotpipe.errors import (
    CompileFailed,
    CompilerOutOfMemory,
    CompileTimeout,
    DeviceMemoryExceeded,
    TargetError,
)
from aotpipe.runtime import installed, toolchain
from aotpipe.runtime.loading import why_not_runnable
from aotpipe.runtime.xla import container
from tests.programs import through

HOST = Target.parse("xla-cpu-host")


@pytest.fixture(scope="module")
def lowered() -> Lowered:
    return lowering.lower(through.legal(torch.nn.Linear(3, 2), (torch.ones(1, 3),), dialect="stablehlo"))


def test_a_program_names_its_version_and_features(lowered: Lowered) -> None:
    first = compiler.compile(lowered, HOST)
    assert first.digest == compiler.digest(lowered, HOST)
    assert first.toolchain == {"jaxlib": toolchain.version_of("jaxlib")}
    assert set(first.host_features) <= set(toolchain.host_features())
    assert first.stats.peak_rss_bytes > 0
    [estimate] = first.estimates
    assert (estimate.entry_point, estimate.memory_bytes, estimate.bound_s) == ("forward", 0, 0.0)
    assert estimate.flops >= sum(each.flops for each in estimate.matmuls) == 2 * 3 * 2
    index, parts = container.read(first.payload)
    assert index["platform"] == "cpu"
    assert len(parts) == 1


def test_avx2_programs_need_nothing_newer(lowered: Lowered) -> None:
    if toolchain.host_features()[0] != "x86_64":
        pytest.skip("not an x86-64 machine")
    made = compiler.compile(lowered, Target.parse("xla-cpu-avx2"))
    assert not [feature for feature in made.host_features if feature.startswith(("avx512", "amx"))]


class Products(torch.nn.Module):
    """libtpu has no product of int64, and emulates those of float64."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x @ x.t(), (n @ n.mT) @ n[0, 0], x.double() @ x.double().t()


@pytest.mark.skipif(toolchain.version_of("libtpu") is None, reason="needs pip install 'aotpipe[tpu]'")
def test_a_tpu_program_is_made_without_a_tpu() -> None:
    target = Target.parse("xla-tpu-v5e")
    inputs = (torch.ones(2, 3), torch.ones(4, 2, 2, dtype=torch.int64))
    made = compiler.compile(lowering.lower(through.legal(Products(), inputs, dialect="stablehlo")), target)
    assert made.toolchain.keys() == {"jaxlib", "libtpu"}
    assert made.host_features == ()
    [estimate] = made.estimates
    assert estimate.matmul_shares == {"float32": 0.5, "float64": 0.5}
    assert estimate.memory_bytes == 16 * 2**30
    assert estimate.peak_bytes >= 4 * 2 * 3 + 8 * 4 * 4
    assert estimate.bound_by == "memory"
    [note] = made.notes
    assert note.startswith("a TPU has no float64: its products are emulated")
    assert "test_compiler.py:" in note
    assert "no tpu device" in why_not_runnable(target, made.host_features)


class Pairwise(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        near = x @ x.t()
        return torch.softmax(near, 0) @ x


@pytest.mark.slow
@pytest.mark.skipif(toolchain.version_of("libtpu") is None, reason="needs pip install 'aotpipe[tpu]'")
def test_a_program_that_a_chip_has_no_room_for_is_told_with_its_line() -> None:
    """By libtpu's own words: 65536 rows have 2**32 pairs, of 4 bytes each."""
    rows = {"x": {0: Dim("rows", max=65536)}}
    program = through.legal(Pairwise(), (torch.ones(4, 8),), dialect="stablehlo", dynamic_shapes=rows)
    lowered = lowering.lower(program, {"rows": "exact:65536"})
    with pytest.raises(DeviceMemoryExceeded, match=r"xla-tpu-v5e has 16\.9 GB") as caught:
        compiler.compile(lowered, Target.parse("xla-tpu-v5e"))
    error = caught.value
    assert error.buffers[0].size_bytes == 2**34
    assert error.buffers[0].name.startswith("float32[65536, 65536] of aten.")
    assert str(error.where).rpartition("/")[2].startswith("test_compiler.py:")
    assert "-t xla-tpu-v4" in error.hint


def test_weights_that_a_chip_has_no_room_for_need_no_compiler(
    lowered: Lowered, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, parts = container.read(lowered.module)
    [program] = index["programs"]
    module = container.write({"programs": [{**program, "arguments_bytes": 2**40}]}, parts)
    monkeypatch.setattr(installed, "require", lambda *_: None)
    with pytest.raises(DeviceMemoryExceeded, match=r"are 1099\.5 GB, and xla-tpu-v5e has 17\.2 GB") as caught:
        compiler.compile(replace(lowered, module=module), Target.parse("xla-tpu-v5e"))
    assert {(each.kind, each.name) for each in caught.value.buffers} >= {("weight", "weight")}


@pytest.mark.slow
@pytest.mark.skipif(toolchain.version_of("libtpu") is None, reason="needs aotpipe[tpu]")
def test_a_convolution_of_float32_is_compiled_for_a_tpu_with_the_least_effort() -> None:
    program = through.legal(torch.nn.Conv2d(8, 8, 3), (torch.ones(1, 8, 9, 9),), dialect="stablehlo")
    made = compiler.compile(lowering.lower(program), Target.parse("xla-tpu-v5e"))
    assert [note for note in made.notes if note.startswith("compiled with the least effort")]


def test_tpu_targets_name_what_to_install(lowered: Lowered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda name: None if name == "libtpu" else object())
    with pytest.raises(TargetError, match="libtpu is not installed") as caught:
        compiler.compile(lowered, Target.parse("xla-tpu-v5e"))
    assert caught.value.hint == "pip install 'aotpipe[tpu]'"


@pytest.mark.slow
@pytest.mark.skipif(
    toolchain.version_of("jax-cuda12-pjrt") is None, reason="needs pip install 'aotpipe[cuda]'"
)
@pytest.mark.parametrize("arch", ["t4", "a100", "h100"])
def test_a_cuda_program_is_made_without_a_gpu(lowered: Lowered, arch: str) -> None:
    target = Target.parse(f"xla-cuda-{arch}")
    made = compiler.compile(lowered, target)
    assert {"jaxlib", "jax-cuda12-pjrt"} < made.toolchain.keys()
    [estimate] = made.estimates
    assert estimate.matmuls_text == "100% float32 (highest)"
    assert estimate.bound_s > 0
    assert "no cuda device" in why_not_runnable(target, made.host_features)


def test_cuda_targets_name_what_to_install(lowered: Lowered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        installed, "find_spec", lambda name: None if name.startswith("jax_plugins") else object()
    )
    with pytest.raises(TargetError, match="jax-cuda12-pjrt is not installed") as caught:
        compiler.compile(lowered, Target.parse("xla-cuda-h100"))
    assert caught.value.hint == "pip install 'aotpipe[cuda]'"


def test_a_module_that_xla_refuses_is_told_in_its_words(lowered: Lowered, tmp_path: Path) -> None:
    index, parts = container.read(lowered.module)
    broken = Lowered(
        dialect="stablehlo",
        module=container.write(index, dict.fromkeys(parts, b"module { nothing }")),
        entry_points=("forward",),
        digest="0" * 64,
    )
    with pytest.raises(CompileFailed, match="XLA refused") as caught:
        compiler.compile(broken, HOST, log_dir=tmp_path)
    assert caught.value.reason
    assert Path(caught.value.log).read_text()


def test_limits_are_typed(lowered: Lowered) -> None:
    with pytest.raises(CompileTimeout):
        compiler.compile(lowered, HOST, timeout_s=0.01)
    with pytest.raises(CompilerOutOfMemory):
        compiler.compile(lowered, HOST, memory_limit_bytes=20_000_000)


def test_a_missing_package_is_named_with_the_line_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    with pytest.raises(TargetError, match="jax is not installed") as caught:
        installed.require()
    assert caught.value.hint == "pip install 'aotpipe[xla]'"
