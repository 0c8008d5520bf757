import gc
import os
import re
import subprocess
import sys
import threading
import time
import timeit
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from aotpipe.core.dtypes import numpy_dtype
from aotpipe.core.signature import Signature, Symbol, TensorSpec
from aotpipe.errors import (
    AssertionViolated,
    BundleCorrupt,
    IncompatibleHost,
    InputError,
    InputShape,
    InputValue,
    MissingWeight,
    ProgramCrashed,
)
from aotpipe.runtime.iree import runtime
from tests import programs

ROOT = Path(__file__).parents[4]


def load(backend="vmvx", **changes):
    given = {
        "signatures": programs.ACCUMULATE,
        "weights": programs.accumulate_weights(),
        "initial_state": programs.accumulate_state(),
        "asserts": programs.ACCUMULATE_ASSERTS,
        "driver": "local-sync",
    }
    return runtime.load(programs.compiled("accumulate", backend), **{**given, **changes})


def call(batch=2, value=1.0):
    return {"x": np.full((batch, 4), value, np.float32), "ids": np.arange(batch)}


@pytest.fixture
def runner():
    with load() as runner:
        yield runner


@pytest.mark.parametrize("backend", ["vmvx", "llvm-cpu"])
@pytest.mark.parametrize("driver", ["local-sync", "local-task"])
def test_state_is_kept_between_calls_and_entry_points(backend, driver):
    with load(backend, driver=driver) as runner:
        assert runner.device == driver
        first = runner.infer(call(2))
        assert first["y"].tolist() == [[0, 1, 2, 3]] * 2
        assert first["positive"].tolist() == [False, True]
        assert first["positive"].dtype == bool
        second = runner.infer(call(1))
        assert second["y"].tolist() == [[2, 3, 4, 5]]
        answer = runner.infer({"x": np.ones(4, np.float32)}, entry_point="decode")
        assert answer["count"] == 2
        assert answer["count"].shape == ()
        assert runner.infer({"x": np.ones(4, np.float32)}, entry_point="decode")["count"] == 3


def test_reset_brings_the_initial_state_back(runner):
    before = runner.infer(call())
    runner.infer(call())
    runner.reset()
    np.testing.assert_array_equal(runner.infer(call())["y"], before["y"])


def test_initial_state_that_is_not_zero():
    state = {"count": np.array(40), "total": np.array([1, 2, 3, 4], np.float32)}
    with load(initial_state=state) as runner:
        assert runner.infer(call(1))["y"].tolist() == [[1, 3, 5, 7]]
        assert runner.infer({"x": np.ones(4, np.float32)}, entry_point="decode")["count"] == 41
        assert state["count"] == 40


def test_two_runners_share_no_state(runner):
    with load() as other:
        runner.infer(call())
        runner.infer(call())
        assert other.infer(call(1))["y"].tolist() == [[0, 1, 2, 3]]


def test_a_violated_assert_changes_nothing(runner):
    runner.infer(call(1))
    with pytest.raises(AssertionViolated, match="total must stay below 100") as caught:
        runner.infer(call(1, value=99.5))
    assert "'forward'" in caught.value.reason
    assert runner.infer(call(1))["y"].tolist() == [[1, 2, 3, 4]]
    assert runner.infer({"x": np.ones(4, np.float32)}, entry_point="decode")["count"] == 2


def test_a_violated_assert_leaves_the_states_that_are_kept_as_the_program_says():
    signatures = {**programs.ACCUMULATE}
    signatures["forward"] = replace(signatures["forward"], kept_on_raise=("count",))
    with load(signatures=signatures) as runner:
        runner.infer(call(1))
        for _ in range(2):
            with pytest.raises(AssertionViolated, match="total must stay below 100") as caught:
                runner.infer(call(1, value=99.5))
        assert "what eager leaves" in caught.value.reason
        assert runner.infer(call(1))["y"].tolist() == [[1, 2, 3, 4]]
        assert runner.infer({"x": np.ones(4, np.float32)}, entry_point="decode")["count"] == 4


def test_inputs_are_checked_before_anything_runs(runner):
    with pytest.raises(InputShape):
        runner.infer(call(9))
    with pytest.raises(InputValue):
        runner.infer({**call(), "ids": np.array([3, 10])})
    assert runner.infer({"x": np.ones(4, np.float32)}, entry_point="decode")["count"] == 0


def test_what_the_checks_let_through_is_still_the_runtimes_error():
    """A signature that does not describe its program."""
    lying = Signature(
        inputs=(TensorSpec.parse("x: float32[b, 5]"), TensorSpec.parse("ids: int64[b]")),
        outputs=programs.ACCUMULATE["forward"].outputs,
        state=programs.ACCUMULATE["forward"].state,
        symbols=(Symbol.parse("b=0.."),),
    )
    with load(signatures={"forward": lying}) as runner:
        with pytest.raises(ProgramCrashed, match="failed in 'forward'") as caught:
            runner.infer({"x": np.ones((2, 5), np.float32), "ids": np.zeros(2, np.int64)})
        assert "expected 4 but have 5" in caught.value.reason


def test_results_that_do_not_fit_the_signature_are_an_error():
    with load(asserts={}) as runner, pytest.raises(ProgramCrashed, match="gave 5 results"):
        runner.infer(call())
    wide = Signature(
        inputs=(TensorSpec.parse("x: float32[4]"),),
        outputs=(TensorSpec.parse("count: int64[]"), TensorSpec.parse("same: float64[4]")),
        state=programs.ACCUMULATE["decode"].state,
    )
    with load(signatures={"decode": wide}) as runner, pytest.raises(ProgramCrashed, match="'same'"):
        runner.infer({"x": np.ones(4, np.float32)})


def test_the_entry_point_has_a_default():
    with load(signatures={"decode": programs.ACCUMULATE["decode"]}) as runner:
        assert runner.infer({"x": np.ones(4, np.float32)})["count"] == 0
        assert runner.signature is runner.signatures["decode"]
    with load() as runner:
        assert runner.signature is runner.signatures["forward"]
        with pytest.raises(InputError, match="no entry point is called 'decod'") as caught:
            runner.infer(call(), entry_point="decod")
        assert caught.value.hint == "pass entry_point='decode'"


def test_a_closed_runner_refuses_calls(runner):
    runner.close()
    runner.close()
    with pytest.raises(RuntimeError, match="closed"):
        runner.infer(call())
    with pytest.raises(RuntimeError, match="closed"):
        runner.reset()


def test_threads_of_one_runner_lose_no_update(runner):
    def step(_):
        return int(runner.infer({"x": np.ones(4, np.float32)}, entry_point="decode")["count"])

    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(step, range(400)))
    assert sorted(counts) == list(range(400))


def test_a_reset_among_calls_of_other_threads_is_safe(runner):
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            runner.reset()

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        for _ in range(200):
            assert runner.infer(call(1, value=1e-3))["y"].shape == (1, 4)
    finally:
        stop.set()
        thread.join()


DTYPES = {
    "bool": "i1",
    "uint8": "ui8",
    "int8": "si8",
    "int16": "si16",
    "int32": "si32",
    "int64": "si64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "complex<f32>",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e5m2": "f8E5M2",
}


def dtypes_program():
    entry = """
      func.func @pass_NAME(%x: !torch.vtensor<[?,3],T>, %y: !torch.vtensor<[],T>)
          -> (!torch.vtensor<[?,3],T>, !torch.vtensor<[],T>, !torch.vtensor<[?,3],T>)
          attributes {torch.assume_strict_symbolic_shapes} {
        %list = torch.prim.ListConstruct %x, %x
            : (!torch.vtensor<[?,3],T>, !torch.vtensor<[?,3],T>) -> !torch.list<vtensor>
        %dim = torch.constant.int 0
        %twice = torch.aten.cat %list, %dim : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[?,3],T>
        return %x, %y, %twice : !torch.vtensor<[?,3],T>, !torch.vtensor<[],T>, !torch.vtensor<[?,3],T>
      }"""
    body = "".join(entry.replace("NAME", name).replace(",T>", f",{kind}>") for name, kind in DTYPES.items())
    return programs.compile_text(f"module @dtypes {{{body}\n}}\n")


def dtypes_signature(name):
    return Signature(
        inputs=(TensorSpec.parse(f"x: {name}[n, 3]"), TensorSpec.parse(f"y: {name}[]")),
        outputs=(
            TensorSpec.parse(f"x: {name}[n, 3]"),
            TensorSpec.parse(f"y: {name}[]"),
            TensorSpec.parse(f"twice: {name}[2*n, 3]"),
        ),
        symbols=(Symbol.parse("n=0.."),),
    )


@pytest.fixture(scope="module")
def of_all_dtypes():
    signatures = {f"pass_{name}": dtypes_signature(name) for name in DTYPES}
    with runtime.load(dtypes_program(), signatures=signatures, weights={}, initial_state={}) as runner:
        yield runner


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_goes_in_and_out(of_all_dtypes, name, rows):
    dtype = numpy_dtype(name)
    patterns = np.array([0, 1, 0x3C, 0xBC, 0x7F, 0xFF], np.uint8)
    raw = np.resize(patterns[:2] if name == "bool" else patterns, rows * 3 * dtype.itemsize)
    x, y = raw.view(dtype).reshape(rows, 3), np.ones((), np.uint8).astype(dtype)
    answer = of_all_dtypes.infer({"x": x, "y": y}, entry_point=f"pass_{name}")
    assert {array.dtype for array in answer.values()} == {dtype}
    assert answer["x"].tobytes() == x.tobytes()
    assert answer["x"].shape == (rows, 3)
    assert answer["y"].tobytes() == y.tobytes()
    assert answer["y"].shape == ()
    assert answer["twice"].tobytes() == x.tobytes() * 2
    assert answer["twice"].shape == (2 * rows, 3)


def test_strided_and_read_only_inputs(of_all_dtypes):
    x = np.arange(12, dtype=np.float32).reshape(3, 4).T[:2]
    x.flags.writeable = False
    answer = of_all_dtypes.infer({"x": x, "y": np.float32(1)}, entry_point="pass_float32")
    np.testing.assert_array_equal(answer["x"], x)


def test_outputs_are_the_callers_own(of_all_dtypes):
    x = np.ones((2, 3), np.float32)
    answer = of_all_dtypes.infer({"x": x, "y": np.float32(1)}, entry_point="pass_float32")
    answer["x"][:] = 7
    assert answer["y"].flags.owndata
    assert answer["x"].flags.writeable
    again = of_all_dtypes.infer({"x": x, "y": np.float32(1)}, entry_point="pass_float32")
    assert again["x"].tolist() == [[1, 1, 1]] * 2


SURVIVAL = """
import gc, sys
import numpy as np
from tests.unit.runtime.iree.test_runtime import call, load
runner = load()
kept = [runner.infer(call(8, value=v)) for v in (0.5, 0.25)]
runner.close()
del runner
gc.collect()
churn = [np.full(n, 7, np.float32) for n in (8, 32, 64) for _ in range(64)]
assert kept[0]["y"].tolist() == [[0, 0.5, 1, 1.5]] * 8, kept
assert kept[1]["y"].tolist() == [[4, 4.25, 4.5, 4.75]] * 8, kept
"""


def test_outputs_survive_their_runner():
    """glibc overwrites what is freed, so that a view of freed memory shows."""
    load().close()  # compiles the program for both
    environment = {**os.environ, "MALLOC_PERTURB_": "165", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SURVIVAL], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_weights_are_held_by_the_runner():
    def aligned():
        raw = np.zeros(16 + 64, np.uint8)
        start = -raw.ctypes.data % 64
        array = raw[start : start + 16].view(np.float32)
        array[:] = [3, 3, 3, 3]
        return array

    with load(weights={"weight": aligned()}) as runner:
        gc.collect()
        churn = [np.full(4, 9, np.float32) for _ in range(1000)]
        assert runner.infer(call(1))["y"].tolist() == [[3, 3, 3, 3]]
        del churn


def test_aligned_weights_are_not_copied():
    raw = np.zeros(16 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    weight = raw[start : start + 16].view(np.float32)
    weight[:] = 1
    with load(weights={"weight": weight}) as runner:
        weight[:] = 5
        assert runner.infer(call(1))["y"].tolist() == [[5, 5, 5, 5]]


@pytest.mark.parametrize("offset", [1, 4, 16])
def test_weights_at_any_address(offset):
    raw = np.zeros(16 + 64 + offset, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    weight = raw[start : start + 16].view(np.float32)
    weight[:] = [1, 2, 3, 4]
    weight.flags.writeable = False
    with load(weights={"weight": weight}) as runner:
        assert runner.infer(call(1))["y"].tolist() == [[1, 2, 3, 4]]


def test_a_missing_weight_is_named():
    with pytest.raises(MissingWeight, match="the weight 'weight'"):
        load(weights={})
    with pytest.raises(MissingWeight, match="the state 'total'"):
        load(initial_state={"count": np.zeros((), np.int64)})


def test_a_weight_that_does_not_fit_is_named():
    with pytest.raises(BundleCorrupt, match="the weight 'weight' is smaller"):
        load(weights={"weight": np.zeros(3, np.float32)})
    with pytest.raises(BundleCorrupt, match="the state 'total'"):
        load(initial_state={**programs.accumulate_state(), "total": np.zeros(5, np.float32)})


def test_bytes_that_are_no_program():
    payload = programs.compiled("accumulate")
    for broken in (b"", b"\0" * 4096, payload[:3000], b"PK\3\4" + payload[4:2000]):
        with pytest.raises(BundleCorrupt):
            runtime.load(broken, signatures={}, weights={}, initial_state={})


def test_an_entry_point_that_the_program_lacks():
    with pytest.raises(BundleCorrupt, match="no entry point 'encode'") as caught:
        load(signatures={"encode": programs.ACCUMULATE["decode"]})
    assert caught.value.reason == "it has: forward, decode"


def test_a_program_of_another_architecture():
    with pytest.raises(IncompatibleHost, match=re.escape("llvm-cpu embedded-elf-arm_64")):
        load("aarch64")


def test_a_driver_that_is_not_there():
    with pytest.raises(IncompatibleHost, match="'local-nothing' does not work") as caught:
        load(driver="local-nothing")
    assert "local-sync" in caught.value.hint


def test_a_call_costs_little_more_than_the_runtime_itself(runner):
    x = {"x": np.ones(4, np.float32)}
    call = partial(runner.infer, x, entry_point="decode")
    # Of the processor's time: others may have it meanwhile.
    seconds = min(timeit.repeat(call, timer=time.process_time, number=200, repeat=7)) / 200
    assert seconds < 100e-6  # about 8 us


FORKED = """
import os, sys
from aotpipe.errors import ProgramCrashed
from tests.unit.runtime.iree.test_runtime import call, load
DRIVER = sys.argv[1]
runner = load(driver=DRIVER)
runner.infer(call())
child = os.fork()
if child == 0:
    try:
        runner.infer(call())
    except ProgramCrashed as error:
        assert "forked" in str(error)
    else:
        sys.exit(3)
    with load(driver=DRIVER) as own:
        assert own.infer(call(1))["y"].tolist() == [[0, 1, 2, 3]]
    sys.exit(0)
_, status = os.waitpid(child, 0)
runner.infer(call())
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("driver", ["local-sync", "local-task"])
def test_a_forked_child_is_told_to_load_its_own(driver):
    load().close()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", FORKED, driver], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_it_imports_neither_torch_nor_a_compiler():
    code = (
        "import sys, aotpipe.runtime.iree.runtime;"
        "assert not {'torch', 'iree.compiler', 'pydantic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
