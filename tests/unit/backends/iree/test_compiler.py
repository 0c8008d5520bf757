"""The compile stage: bytes, errors with the user's line, limits, retreats."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aotpipe.backends import process
from aotpipe.backends.iree import compiler, flags
from aotpipe.errors import (
    CompileFailed,
    CompilerCrashed,
    CompilerOutOfMemory,
    CompileTimeout,
    SourceLine,
)
from aotpipe.schedule import Schedule
from aotpipe.stages import Lowered
from aotpipe.targets import Target

HOST = Target.parse("iree-cpu-host")
_RELU = """\
module {{
  func.func @forward(%arg0: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {{
    %0 = torch.aten.relu %arg0 : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32> loc("{path}":7:0)
    %1 = torch.aten.exp %0 : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32> loc("{path}":8:0)
    return %1 : !torch.vtensor<[2,3],f32>
  }}
}}
"""
_NO_SUCH_OP = """\
module {
  func.func @forward(%arg0: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32> {
    %0 = torch.operator "torch.aten.nonsense"(%arg0) : (!torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32>
      loc(callsite("/env/site-packages/torch/nn/modules/linear.py":134:0 at "/home/u/model.py":9:0))
    return %0 : !torch.vtensor<[2],f32>
  }
}
"""
# An unregistered op with a place of its own makes the compiler segfault while it forms dispatches.
_CRASHES = """\
module {
  func.func @forward(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = "some.op"(%arg0) : (tensor<4xf32>) -> tensor<4xf32> loc("/home/u/model.py":19:0)
    return %0 : tensor<4xf32>
  }
}
"""


def _lowered(text: str) -> Lowered:
    return Lowered(dialect="torch", module=text.encode(), entry_points=("forward",), digest="0" * 64)


RELU = _lowered(_RELU.format(path="/home/u/model.py"))


@pytest.mark.parametrize("target", ["iree-cpu-host", "iree-cpu-x86_64", "iree-vmvx"])
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
        "iree-cpu-x86_64_v3",
        "iree-cpu-aarch64",
        "iree-cpu-riscv64",
        "iree-cuda-sm_80",
        "iree-cuda-sm_90",
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


_WIDENED_SUM = """\
func.func @forward(%a: tensor<480xi32>) -> tensor<i64> {
  %zero = arith.constant 0 : i64
  %limit = arith.constant 479 : i64
  %empty = tensor.empty() : tensor<i64>
  %init = linalg.fill ins(%zero : i64) outs(%empty : tensor<i64>) -> tensor<i64>
  %sum = linalg.reduce ins(%a : tensor<480xi32>) outs(%init : tensor<i64>) dimensions = [0]
    (%x: i32, %y: i64) {
      %wide = arith.extsi %x : i32 to i64
      %fits = arith.cmpi sle, %wide, %limit : i64
      %one = arith.extui %fits : i1 to i64
      %next = arith.addi %one, %y : i64
      linalg.yield %next : i64
    }
  return %sum : tensor<i64>
}
"""


def test_cuda_counts_integers_that_become_wider() -> None:
    compiled = compiler.compile(
        _lowered(_WIDENED_SUM), Target.parse("iree-cuda-sm_80"), extra_flags=("--iree-input-type=none",)
    )
    assert "without reductions over distributed vectors" in compiled.notes[0]


def test_ptx_is_for_the_architecture_that_the_target_names() -> None:
    for arch in (b"sm_80", b"sm_90"):
        compiled = compiler.compile(RELU, Target.parse(f"iree-cuda-{arch.decode()}"))
        assert b".target " + arch in compiled.payload


def test_bytes_do_not_depend_on_the_process_the_folder_or_the_users_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys; from pathlib import Path; from aotpipe.backends.iree import compiler; "
        "from aotpipe.stages import Lowered; from aotpipe.targets import Target; "
        "text = Path(sys.argv[1]).read_bytes(); "
        "lowered = Lowered(dialect='torch', module=text, entry_points=('forward',), digest='0' * 64); "
        "Path(sys.argv[2]).write_bytes(compiler.compile(lowered, Target.parse('iree-cpu-host')).payload)"
    )
    programs = []
    for folder in ("one", "two/deeper"):
        place = tmp_path / folder
        place.mkdir(parents=True)
        (place / "in.mlir").write_text(_RELU.format(path=place / "model.py"))
        monkeypatch.setenv("TMPDIR", str(place))
        command = [sys.executable, "-c", code, "in.mlir", "out.vmfb"]
        subprocess.run(command, cwd=place, check=True)
        programs.append((place / "out.vmfb").read_bytes())
    assert programs[0] == programs[1]
    assert str(tmp_path).encode() not in programs[0]
    assert b"model.py" not in programs[0]


def test_the_digest_covers_target_flags_and_module_and_no_path() -> None:
    base = compiler.digest(RELU, HOST)
    assert base == compiler.digest(_lowered(_RELU.format(path="/elsewhere/model.py")), HOST)
    others = {
        compiler.digest(RELU, Target.parse("iree-vmvx")),
        compiler.digest(RELU, HOST, ("--iree-opt-level=O3",)),
        compiler.digest(replace(RELU, digest="1" * 64), HOST),
    }
    assert len(others | {base}) == 4


def test_a_refused_op_is_reported_with_the_users_line_and_a_log(tmp_path: Path) -> None:
    with pytest.raises(CompileFailed) as caught:
        compiler.compile(_lowered(_NO_SUCH_OP), HOST, log_dir=tmp_path / "logs")
    error = caught.value
    assert error.where == SourceLine("/home/u/model.py", 9)
    assert "`torch.aten.nonsense`" in error.message
    assert "failed to legalize" in error.reason
    log = Path(error.log)
    assert "$ iree-compile" in log.read_text()
    assert "nonsense" in log.with_suffix(".mlir").read_text()


def test_no_other_flags_are_tried_where_the_module_itself_is_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(CompileFailed) as caught:
        compiler.compile(_lowered("module { nonsense }"), HOST, log_dir=tmp_path)
    assert Path(caught.value.log).read_text().count("$ iree-compile") == 1


def test_a_crash_is_typed_and_names_signal_and_pass(tmp_path: Path) -> None:
    with pytest.raises(CompilerCrashed, match="SIGSEGV in FormDispatchRegionsPass") as caught:
        compiler.compile(_lowered(_CRASHES), HOST, log_dir=tmp_path)
    assert Path(caught.value.log).read_text().count("$ iree-compile") == 1 + len(
        {retreat(flags.choose(b"", "torch", HOST)) for retreat in flags.RETREATS if not retreat.after}
        - {flags.choose(b"", "torch", HOST)}
    )


def test_a_crash_on_the_fast_flags_is_survived_with_cautious_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    real = process.run

    def fragile(argv: list[str], **options: object) -> process.Outcome:
        outcome = real(argv, **options)  # type: ignore[arg-type]
        if any("data-tiling" in flag for flag in argv):
            return replace(outcome, ending="signalled", code=11)
        return outcome

    monkeypatch.setattr(process, "run", fragile)
    compiled = compiler.compile(RELU, HOST)
    assert not any("data-tiling" in flag for flag in compiled.flags)
    (note,) = compiled.notes
    assert "without data tiling" in note
    assert "SIGSEGV" in note


def test_float64_functions_without_a_form_of_irees_own_come_from_the_c_library() -> None:
    text = _RELU.format(path="/home/u/model.py").replace("f32", "f64").replace("aten.exp", "aten.sin")
    compiled = compiler.compile(_lowered(text), HOST)
    (note,) = compiled.notes
    assert "C library" in note
    assert "undefined symbol: sin" in note
    again = compiler.compile(_lowered(text.replace("/home/u", "/home/v")), HOST)
    assert again.payload == compiled.payload


def test_the_time_limit_is_typed() -> None:
    with pytest.raises(CompileTimeout, match=r"0\.01 s"):
        compiler.compile(RELU, HOST, timeout_s=0.01)


def test_the_memory_limit_is_typed() -> None:
    with pytest.raises(CompilerOutOfMemory, match="memory limit"):
        compiler.compile(RELU, HOST, memory_limit_bytes=8 << 20)


def test_a_compile_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    compiler.compile(RELU, HOST)
    with pytest.raises(CompileFailed):
        compiler.compile(_lowered(_NO_SUCH_OP), HOST)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_flag_is_the_compilers_own_error() -> None:
    with pytest.raises(CompileFailed, match="nonsense"):
        compiler.compile(RELU, HOST, extra_flags=("--iree-nonsense",))
