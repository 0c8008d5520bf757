"""What a call works in, besides inputs and results: kept from call to call, of the size that it takes."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from aotpipe.backends.iree.compile import compiler, flags
from aotpipe.core.signature import Signature, Symbol, TensorSpec
from aotpipe.core.stages import Lowered
from aotpipe.core.targets import Target
from aotpipe.runtime.iree import runtime

ROOT = Path(__file__).parents[4]
HOST = Target.parse("iree-cpu-host")
WORKSPACE = "--iree-torch-externalize-transients"

_ENTRY = """
  func.func @{name}(%x: !torch.vtensor<[?,16],f32>, %w: !torch.vtensor<[16,1024],f32>)
      -> !torch.vtensor<[?,16],f32> attributes {{torch.assume_strict_symbolic_shapes}} {{
    %zero = torch.constant.int 0
    %one = torch.constant.int 1
    %wide = torch.aten.mm %x, %w
      : !torch.vtensor<[?,16],f32>, !torch.vtensor<[16,1024],f32> -> !torch.vtensor<[?,1024],f32>
    %turned = torch.aten.transpose.int %w, %zero, %one
      : !torch.vtensor<[16,1024],f32>, !torch.int, !torch.int -> !torch.vtensor<[1024,16],f32>
    %result = torch.aten.mm %wide, %turned
      : !torch.vtensor<[?,1024],f32>, !torch.vtensor<[1024,16],f32> -> !torch.vtensor<[?,16],f32>
    return %result : !torch.vtensor<[?,16],f32>
  }}"""
TEXT = f"module {{{_ENTRY.format(name='forward')}{_ENTRY.format(name='again')}\n}}\n"
LARGE = 20_000  # 82 MB between the matmuls: more than the pools of local-task have in one piece


@pytest.fixture(scope="module")
def program() -> bytes:
    lowered = Lowered(
        dialect="torch", module=TEXT.encode(), entry_points=("forward", "again"), digest="0" * 64
    )
    compiled = compiler.compile(lowered, HOST)
    assert WORKSPACE in compiled.flags
    return compiled.payload


def load(program: bytes, driver: str) -> runtime.Runner:
    signature = Signature(
        inputs=(TensorSpec.parse("x: float32[n, 16]"), TensorSpec.parse("w: float32[16, 1024]")),
        outputs=(TensorSpec.parse("y: float32[n, 16]"),),
        symbols=(Symbol.parse("n=1.."),),
    )
    signatures = {"forward": signature, "again": signature}
    return runtime.load(program, signatures=signatures, weights={}, initial_state={}, driver=driver)


def inputs(rows: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(rows)
    return {
        name: random.random(shape, np.float32) for name, shape in {"x": (rows, 16), "w": (16, 1024)}.items()
    }


def check(runner: runtime.Runner, rows: int, entry_point: str = "forward") -> None:
    given = inputs(rows)
    got = runner.infer(given, entry_point=entry_point)["y"]
    np.testing.assert_allclose(got, given["x"] @ given["w"] @ given["w"].T, rtol=1e-3)


_MEASURED = """
import resource, sys
from pathlib import Path
from tests.unit.runtime.iree.test_workspace import LARGE, check, inputs, load

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

def faulted_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt * resource.getpagesize()

given = inputs(LARGE)
with load(Path(sys.argv[1]).read_bytes(), sys.argv[2]) as runner:
    check(runner, LARGE)
    before = faulted_bytes()
    runner.infer(given)
    assert faulted_bytes() - before < LARGE * 1024 * 4 / 8
    resident = resident_bytes()
    check(runner, 2)
    assert resident - resident_bytes() > LARGE * 1024 * 4 / 2
"""


# The pools that a large piece does not fit are those of local-task.
@pytest.mark.parametrize("driver", [pytest.param("local-sync", marks=pytest.mark.slow), "local-task"])
def test_a_large_workspace_is_kept_for_calls_of_the_same_sizes(
    program: bytes, driver: str, tmp_path: Path
) -> None:
    """In a process of its own, whose resident memory and page faults nothing else changes."""
    (tmp_path / "program").write_bytes(program)
    command = [sys.executable, "-c", _MEASURED, tmp_path / "program", driver]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("driver", ["local-sync", "local-task"])
def test_each_call_has_the_workspace_of_its_sizes(program: bytes, driver: str) -> None:
    with load(program, driver) as runner:
        for rows in (3, 700, 1, 64, 701):
            check(runner, rows)
            check(runner, rows, "again")


@pytest.mark.parametrize("driver", ["local-sync", "local-task"])
def test_what_gives_back_its_input_needs_none(driver: str) -> None:
    text = """
module {
  func.func @forward(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
    return %x : !torch.vtensor<[4],f32>
  }
}"""
    lowered = Lowered(dialect="torch", module=text.encode(), entry_points=("forward",), digest="0" * 64)
    compiled = compiler.compile(lowered, HOST)
    assert WORKSPACE in compiled.flags
    signature = Signature(
        inputs=(TensorSpec.parse("x: float32[4]"),), outputs=(TensorSpec.parse("y: float32[4]"),), symbols=()
    )
    given = {"signatures": {"forward": signature}, "weights": {}, "initial_state": {}, "driver": driver}
    with runtime.load(compiled.payload, **given) as runner:
        x = np.arange(4, dtype=np.float32)
        assert runner.infer({"x": x})["y"].tolist() == x.tolist()


def test_calls_at_a_time_do_not_share_it(program: bytes) -> None:
    with (
        load(program, "local-task") as one,
        load(program, "local-task") as two,
        ThreadPoolExecutor(4) as pool,
    ):
        calls = [pool.submit(check, runner, rows) for rows in (5, 90, 5, 300) for runner in (one, two)]
        for call in calls:
            call.result()


@pytest.mark.parametrize(
    ("target", "dialect", "text", "beside", "wanted"),
    [
        ("iree-cpu-host", "torch", b"!torch.vtensor", (), True),
        ("iree-cpu-aarch64", "torch", b"!torch.vtensor", (), True),
        ("iree-cpu-host", "torch", b"!torch.vtensor scf.while", (), False),
        ("iree-cpu-host", "torch", b"!torch.vtensor torch.aten.Int.Tensor", (), False),
        ("iree-cpu-host", "torch", b"!torch.vtensor torch.aten.nonzero", (), False),
        ("iree-cpu-host", "torch", b"!torch.vtensor tensor.extract", (), False),
        ("iree-cpu-host", "stablehlo", b"stablehlo.add", (), False),
        ("iree-vmvx", "torch", b"!torch.vtensor", (), False),
        ("iree-cuda-sm_80", "torch", b"!torch.vtensor", (), False),
        ("iree-cpu-x86_64_v3", "torch", b"!torch.vtensor", ("iree-vulkan",), False),
    ],
)
def test_programs_of_one_cpu_that_wait_for_nothing_have_a_workspace(
    target: str, dialect: flags.Dialect, text: bytes, beside: tuple[str, ...], wanted: bool
) -> None:
    chosen = flags.choose(text, dialect, Target.parse(target), beside=tuple(map(Target.parse, beside)))
    assert (WORKSPACE in chosen) is wanted


@pytest.mark.parametrize("target", ["iree-cpu-host", "iree-vmvx"])
def test_a_program_of_no_inputs_has_one_where_it_was_asked_for(target: str) -> None:
    text = """
      func.func @forward() -> !torch.vtensor<[2],si64> {
        %0 = torch.vtensor.literal(dense<[3, 5]> : tensor<2xsi64>) : !torch.vtensor<[2],si64>
        return %0 : !torch.vtensor<[2],si64>
      }"""
    lowered = Lowered(dialect="torch", module=text.encode(), entry_points=("forward",), digest="0" * 64)
    signatures = {"forward": Signature(inputs=(), outputs=(TensorSpec.parse("y: int64[2]"),))}
    program = compiler.compile(lowered, Target.parse(target))
    assert (WORKSPACE in program.flags) == (target == "iree-cpu-host")
    with runtime.load(program.payload, signatures=signatures, weights={}, initial_state={}) as runner:
        assert runner.infer({})["y"].tolist() == [3, 5]
