"""The compile stage: bytes, errors with the user's line, limits, fallbacks."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.kernels import softmax
from aotpipe.core.stages import Schedule
from aotpipe.core.targets import Target
from tests.unit.runtime.iree.samples import HOST, RELU, RELU_TEXT, lowered


@pytest.mark.parametrize(
    "target", ["iree-cpu-host", pytest.param("iree-cpu-x86_64", marks=pytest.mark.slow), "iree-vmvx"]
)
def test_a_program_says_how_it_was_made(target: str) -> None:
    compiled = compiler.compile(RELU, Target.parse(target))
    assert compiled.payload
    assert set(Target.parse(target).row.flags) <= set(compiled.flags)
    assert compiled.toolchain["iree-base-compiler"].startswith("3.13")
    assert bool(compiled.host_features) == (target == "iree-cpu-host")
    assert compiled.notes == ()
    assert compiled.stats.wall_s > 0
    assert compiled.schedule == Schedule(
        dispatches=1, kernels=1, copies=0, fills=0, waits=0, allocated_bytes=24
    )
    assert compiled.stats.peak_rss_bytes > 20 << 20
    assert compiled.digest == compiler.digest(RELU, Target.parse(target))


_ELSEWHERE = [
    "iree-cpu-x86_64_v3",
    "iree-cpu-riscv64",
    "iree-cuda-sm_80",
    "iree-cuda-sm_90",
    "iree-cpu-x86_64_v2",
    "iree-cpu-x86_64_v4",
    "iree-cuda-sm_86",
    "iree-cuda-sm_89",
    "iree-rocm-gfx90a",
    "iree-rocm-gfx1100",
]


@pytest.mark.parametrize(
    "target",
    [
        "iree-cpu-aarch64",
        "iree-rocm-gfx942",
        "iree-vulkan",
        "iree-metal",
        *(pytest.param(each, marks=pytest.mark.slow) for each in _ELSEWHERE),
    ],
)
def test_a_program_for_another_machine(target: str) -> None:
    compiled = compiler.compile(RELU, Target.parse(target))
    assert compiled.notes == ()
    assert compiled.host_features == Target.parse(target).row.features


def test_ptx_is_for_the_architecture_that_the_target_names() -> None:
    for arch in (b"sm_80", b"sm_90"):
        target = Target.parse(f"iree-cuda-{arch.decode()}")
        compiled = compiler.compile(RELU, target)
        assert compiled.notes == ()
        assert compiled.host_features == target.row.features
        assert b".target " + arch in compiled.payload


def test_bytes_do_not_depend_on_the_process_the_folder_or_the_users_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys; from pathlib import Path; from aotpipe.backends.iree.compile import compiler; "
        "from aotpipe.core.stages import Lowered; from aotpipe.core.targets import Target; "
        "text = Path(sys.argv[1]).read_bytes(); "
        "lowered = Lowered(dialect='torch', module=text, entry_points=('forward',), digest='0' * 64); "
        "Path(sys.argv[2]).write_bytes(compiler.compile(lowered, Target.parse('iree-cpu-host')).payload)"
    )
    programs = []
    for folder in ("one", "two/deeper"):
        place = tmp_path / folder
        place.mkdir(parents=True)
        (place / "in.mlir").write_text(RELU_TEXT.format(path=place / "model.py"))
        monkeypatch.setenv("TMPDIR", str(place))
        if folder == "one":
            monkeypatch.chdir(place)
            text = RELU_TEXT.format(path=place / "model.py")
            programs.append(compiler.compile(lowered(text), HOST).payload)
            continue
        command = [sys.executable, "-c", code, "in.mlir", "out.vmfb"]
        subprocess.run(command, cwd=place, check=True)
        programs.append((place / "out.vmfb").read_bytes())
    assert programs[0] == programs[1]
    assert str(tmp_path).encode() not in programs[0]
    assert b"model.py" not in programs[0]


def test_the_digest_covers_target_flags_and_module_and_no_path() -> None:
    base = compiler.digest(RELU, HOST)
    assert base == compiler.digest(lowered(RELU_TEXT.format(path="/elsewhere/model.py")), HOST)
    others = {
        compiler.digest(RELU, Target.parse("iree-vmvx")),
        compiler.digest(RELU, HOST, ("--iree-opt-level=O3",)),
        compiler.digest(replace(RELU, digest="1" * 64), HOST),
    }
    assert len(others | {base}) == 4


SOFTMAX = """\
module {
  func.func @forward(%arg0: !torch.vtensor<[64,128],f32>) -> !torch.vtensor<[64,128],f32> {
    %dim = torch.constant.int -1
    %false = torch.constant.bool false
    %0 = torch.aten._softmax %arg0, %dim, %false : !torch.vtensor<[64,128],f32>, !torch.int, !torch.bool
      -> !torch.vtensor<[64,128],f32> loc("/home/u/model.py":7:0)
    return %0 : !torch.vtensor<[64,128],f32>
  }
}
"""


def test_a_kernel_that_the_compiler_refuses_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = compiler.compile(lowered(SOFTMAX), HOST)
    assert taken.notes == ()
    text = softmax.text

    def on_a_stack_that_is_too_small(*given: Any) -> str:
        """The kernel with a buffer on the stack of more bytes than the compiler allows."""
        large = "memref<100000000xf32>"
        reads = f"""
      %large = memref.alloca() : {large}
      %last = arith.constant 99999999 : index
      %read = memref.load %large[%last] : {large}
      memref.store %read, %large[%last] : {large}
"""
        return text(*given).replace("\n      return\n", f"{reads}      return\n")

    monkeypatch.setattr(softmax, "text", on_a_stack_that_is_too_small)
    compiled = compiler.compile(lowered(SOFTMAX), HOST)
    [note] = compiled.notes
    assert "without aotpipe's kernels: with them the compiler failed" in note
    assert b"softmax_128" in taken.payload
    assert b"softmax_128" not in compiled.payload
