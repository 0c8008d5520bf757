"""The worker: answers, state, times, and how a program's death is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

import numpy as np
import pytest

from aotpipe.backends.iree.compile import compiler
from aotpipe.core.dtypes import numpy_dtype
from aotpipe.core.signature import DTYPES, Signature, TensorSpec
from aotpipe.core.stages import Lowered
from aotpipe.core.targets import Target
from aotpipe.errors import InputShape, MissingWeight, ProgramCrashed
from aotpipe.runtime import tensor_file
from aotpipe.runtime import worker as worker_module
from aotpipe.runtime.worker import Worker

HOST = Target.parse("iree-cpu-host")
# Gives the sum of x, w and a count of its calls.
_COUNTER = b"""\
module {
  util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<4xf32>
  func.func @step(%count: !torch.vtensor<[4],f32>, %x: !torch.vtensor<[4],f32>)
      -> (!torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>) {
    %one = torch.constant.int 1
    %raw = util.global.load @w : tensor<4xf32>
    %w = torch_c.from_builtin_tensor %raw : tensor<4xf32> -> !torch.vtensor<[4],f32>
    %0 = torch.aten.add.Tensor %x, %w, %one
      : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.int -> !torch.vtensor<[4],f32>
    %1 = torch.aten.add.Tensor %0, %count, %one
      : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.int -> !torch.vtensor<[4],f32>
    %2 = torch.aten.add.Scalar %count, %one, %one
      : !torch.vtensor<[4],f32>, !torch.int, !torch.int -> !torch.vtensor<[4],f32>
    return %1, %2 : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>
  }
}
"""
_SIGNATURE = Signature(
    inputs=(TensorSpec.parse("x: float32[4]"),),
    outputs=(TensorSpec.parse("y: float32[4]"),),
    state=(TensorSpec.parse("count: float32[4]"),),
)
_X = np.arange(4, dtype=np.float32)


@pytest.fixture(scope="module")
def payload() -> bytes:
    lowered = Lowered(dialect="torch", module=_COUNTER, entry_points=("step",), digest="0" * 64)
    return compiler.compile(lowered, HOST).payload


@pytest.fixture
def worker(payload: bytes, tmp_path: Path) -> Iterator[Worker]:
    with Worker(timeout_s=30) as started:
        _load(started, payload, tmp_path, {"w": np.full(4, 10, np.float32)})
        yield started


def _load(
    worker: Worker, payload: bytes, folder: Path, weights: dict[str, np.ndarray], target: Target = HOST
) -> None:
    worker.load(
        target,
        payload,
        signatures={"step": _SIGNATURE},
        weights=tensor_file.write_shards(weights, folder, "weights"),
        initial_state={"count": np.zeros(4, np.float32)},
        asserts={},
    )


def test_calls_share_state_until_a_reset(worker: Worker) -> None:
    answers = [worker.infer({"x": _X}, entry_point="step")["y"] for _ in range(2)]
    assert [answer.tolist() for answer in answers] == [[10, 11, 12, 13], [11, 12, 13, 14]]
    worker.reset()
    assert worker.infer({"x": _X}, entry_point="step")["y"].tolist() == [10, 11, 12, 13]


def test_times_are_microseconds_of_single_calls(worker: Worker) -> None:
    started = time.perf_counter()
    samples = worker.time({"x": _X}, entry_point="step", samples=20, reset=True)
    whole_us = (time.perf_counter() - started) * 1e6
    assert len(samples) == 20
    assert min(samples) > 0.5
    assert sum(samples) < whole_us


def test_an_error_of_the_runtime_arrives_as_itself_and_the_worker_lives(worker: Worker) -> None:
    with pytest.raises(InputShape, match="'x'"):
        worker.infer({"x": np.zeros(5, np.float32)}, entry_point="step")
    assert worker.infer({"x": _X}, entry_point="step")["y"].tolist() == [10, 11, 12, 13]


def test_a_missing_weight_is_typed(payload: bytes, tmp_path: Path) -> None:
    with Worker() as started, pytest.raises(MissingWeight, match="'w'"):
        _load(started, payload, tmp_path, {"v": np.zeros(4, np.float32)})


@pytest.mark.parametrize(
    "number", [signal.SIGSEGV, pytest.param(signal.SIGABRT, marks=pytest.mark.slow), signal.SIGKILL]
)
def test_a_death_by_a_signal_is_typed(worker: Worker, number: signal.Signals) -> None:
    os.kill(worker._process.pid, number)
    with pytest.raises(ProgramCrashed, match=rf"{number.name} \(infer step\)"):
        worker.infer({"x": _X}, entry_point="step")
    with pytest.raises(ProgramCrashed):
        worker.reset()


def test_a_death_during_a_call_is_typed(worker: Worker) -> None:
    killer = threading.Timer(0.3, os.kill, (worker._process.pid, signal.SIGSEGV))
    killer.start()
    with pytest.raises(ProgramCrashed, match=r"SIGSEGV \(time step\)"):
        worker.time({"x": _X}, entry_point="step", samples=1_000_000)


@pytest.mark.parametrize(("target", "limit_s"), [("iree-vmvx", 3600), ("iree-cpu-host", 300)])
def test_bytecode_gets_more_time(
    target: str, limit_s: float, payload: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    class Watchdog(threading.Timer):
        def __init__(self, limit_s: float, end: Callable[[], None]) -> None:
            limits.append(limit_s)
            super().__init__(limit_s, end)

    monkeypatch.setattr(threading, "Timer", Watchdog)
    monkeypatch.setattr(worker_module, "receive", lambda _: ({}, {}))
    with Worker() as started:
        _load(started, payload, tmp_path, {"w": np.zeros(4, np.float32)}, Target.parse(target))
        started.infer({"x": _X}, entry_point="step")
    assert limits[1] == limit_s


def test_a_hang_ends_at_the_limit(payload: bytes, tmp_path: Path) -> None:
    with Worker(timeout_s=0.5) as started:
        _load(started, payload, tmp_path, {"w": np.zeros(4, np.float32)})
        pid = started._process.pid
        _stop(pid)
        with pytest.raises(ProgramCrashed, match=r"did not answer within 0\.5 s"):
            started.infer({"x": _X}, entry_point="step")
        assert started._process.returncode == -signal.SIGKILL


def _stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    # Until then it goes on: it may end an answer that it was about to block in.
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


@contextmanager
def _killed_after(seconds: float, pid: int) -> Iterator[None]:
    rescue = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
    rescue.start()
    try:
        yield
    finally:
        rescue.cancel()


def test_a_hang_in_the_middle_of_an_answer_ends_at_the_limit(
    payload: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Worker(timeout_s=0.5) as started:
        _load(started, payload, tmp_path, {"w": np.zeros(4, np.float32)})
        # More numbers than a socket holds, of which the worker stops after the first.
        worker_module.send(
            started._connection,
            {"do": "time", "entry_point": "step", "samples": 40_000, "reset": False},
            {"x": _X},
        )
        assert started._connection.poll(60)
        time.sleep(0.1)
        _stop(started._process.pid)
        monkeypatch.setattr(worker_module, "send", lambda *_: None)
        with (
            _killed_after(20, started._process.pid),
            pytest.raises(ProgramCrashed, match=r"did not answer within 0\.5 s"),
        ):
            started.infer({"x": _X}, entry_point="step")


def test_a_hang_while_a_message_is_sent_ends_at_the_limit() -> None:
    with Worker(timeout_s=0.5) as started:
        _stop(started._process.pid)
        with (
            _killed_after(20, started._process.pid),
            pytest.raises(ProgramCrashed, match=r"did not answer within 0\.5 s"),
        ):
            started.infer({"x": np.zeros(1 << 20)}, entry_point="step")


def test_a_worker_ends_with_its_block() -> None:
    with Worker() as started:
        pid = started._process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_worker_ends_with_its_parent() -> None:
    code = (
        "import os; from aotpipe.runtime.worker import Worker; "
        "worker = Worker(); print(worker._process.pid, flush=True); os._exit(1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    for _ in range(500):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail("the worker outlived its parent")


# A process of its own, as one with threads cannot fork.
_PARENT = """
import os, sys, time
from pathlib import Path
import numpy as np
from tests.unit.runtime import test_worker as tests

worker = tests.Worker()
folder = Path(sys.argv[1])
tests._load(worker, (folder / "payload").read_bytes(), folder, {"w": np.zeros(4, np.float32)})
message = {"do": "time", "entry_point": "step", "samples": 1 << 40, "reset": False}
tests.worker_module.send(worker._connection, message, {"x": tests._X})
time.sleep(0.2)
print(worker._process.pid, flush=True)
os._exit(0)
"""


def test_a_worker_ends_with_its_parent_in_a_call(payload: bytes, tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(payload)
    command = [sys.executable, "-c", _PARENT, str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.wait(10)
    with _killed_after(20, pid):
        start = time.monotonic()
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() - start < 10
            time.sleep(0.02)


def test_a_file_of_the_users_folder_stands_in_for_nothing(
    payload: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    with Worker() as started:
        _load(started, payload, tmp_path, {"w": np.zeros(4, np.float32)})


def test_the_worker_imports_neither_torch_nor_the_compiler() -> None:
    code = (
        "import json, sys; import aotpipe.runtime.worker, aotpipe.runtime.iree.runtime; "
        "print(json.dumps([m for m in ('torch', 'iree.compiler') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.fixture
def pipe() -> Iterator[tuple[Connection, Connection]]:
    first, second = Pipe()
    with first, second:
        yield first, second


def test_a_message_arrives_as_it_was_sent(pipe: tuple[Connection, Connection]) -> None:
    arrays = {
        dtype: (np.arange(6).reshape(2, 3) % 2).astype(numpy_dtype(dtype))[:, ::-1]
        for dtype in sorted(DTYPES)
    }
    arrays["scalar"], arrays["empty"] = np.array(3.5), np.zeros((0, 4), np.int8)
    worker_module.send(pipe[1], {"do": "infer", "n": 3}, arrays)
    message, got = worker_module.receive(pipe[0])
    assert message == {"do": "infer", "n": 3}
    assert list(got) == list(arrays)
    for name, array in arrays.items():
        assert got[name].dtype == array.dtype
        assert got[name].shape == array.shape
        assert got[name].tobytes() == array.tobytes()
        assert got[name].flags.writeable


def test_an_array_larger_than_the_pipe_arrives(pipe: tuple[Connection, Connection]) -> None:
    large = np.random.default_rng(0).random(1 << 20)
    sender = threading.Thread(target=worker_module.send, args=(pipe[1], {}, {"x": large}))
    sender.start()
    _, got = worker_module.receive(pipe[0])
    sender.join()
    assert np.array_equal(got["x"], large)


def test_a_peer_that_is_lost_in_a_message_is_an_error(pipe: tuple[Connection, Connection]) -> None:
    os.write(pipe[1].fileno(), b"half")
    pipe[1].close()
    with pytest.raises((EOFError, OSError)):
        worker_module.receive(pipe[0])


@pytest.mark.parametrize(
    "written",
    [
        b"no json",
        b"[]",
        b"{}",
        b'{"__arrays__": [["y", "float32"]]}',
        b'{"__arrays__": [["y", "none", [1]]]}',
        b'{"__arrays__": [["y", "float32", [-1]]]}',
        b'{"__arrays__": [["y", "float32", ["1"]]]}',
        b'{"__arrays__": [["y", "float32", [1099511627776, 1024]]]}',
        b'{"__arrays__": [], "error": 1}',
        b'{"__arrays__": [], "error": {"kind": "SourceLine", "message": "x"}}',
        b'{"__arrays__": [], "error": {"kind": "__name__"}}',
    ],
)
def test_what_a_program_writes_in_place_of_an_answer_is_refused(monkeypatch, written):
    """One that took its process over can write anything to the connection."""
    ours, theirs = Pipe()
    with Worker() as worker:
        monkeypatch.setattr(worker, "_connection", ours)
        theirs.send_bytes(written)
        with pytest.raises(ProgramCrashed):
            worker.infer({}, entry_point="forward")


def test_an_answer_longer_than_it_says_is_not_taken(monkeypatch):
    ours, theirs = Pipe()
    with Worker() as worker:
        monkeypatch.setattr(worker, "_connection", ours)
        theirs.send_bytes(b'{"__arrays__": [["y", "uint8", [1]]]}')
        theirs.send_bytes(b"12")
        threading.Timer(0.2, worker._process.kill).start()
        with pytest.raises(ProgramCrashed):
            worker.infer({}, entry_point="forward")
