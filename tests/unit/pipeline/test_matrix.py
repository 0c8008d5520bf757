"""One model over many targets: failures stand alone, results are kept, Ctrl-C ends every compiler."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aotpipe.backends import process
from aotpipe.backends.iree import compiler
from aotpipe.errors import AotpipeError, CompileFailed, Interrupted, ParityError
from aotpipe.events import Recorder
from aotpipe.pipeline import matrix
from aotpipe.pipeline.cache import Cache
from aotpipe.pipeline.matrix import Settings
from aotpipe.pipeline.source import Ready
from aotpipe.stages import Compiled, Lowered, Validated
from aotpipe.store import digest
from aotpipe.targets import Target, expand
from tests.unit.pipeline import samples
from tests.unit.report.samples import REPORT

TARGETS = expand(["iree-cpu-host", "iree-cpu-x86_64", "iree-vmvx"])
HOST, PORTABLE, BYTECODE = TARGETS


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def cache(recorder: Recorder) -> Cache:
    return Cache.open(recorder)


@pytest.fixture
def ready(tmp_path: Path) -> Ready:
    return Ready(prepared=samples.prepared(tmp_path), key=None, canonical=lambda: pytest.fail("model made"))


class Compiler:
    """Stands in for the real one; counts what it is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.settings: dict[str, Any] = {}
        self.failing: set[Target] = set()
        monkeypatch.setattr(compiler, "compile", self.compile)

    def compile(self, lowered: Lowered, target: Target, **settings: Any) -> Compiled:
        self.calls.append(str(target))
        self.settings = settings
        if target in self.failing:
            raise CompileFailed(f"no {target}")
        return samples.compiled(str(target))


def compile_all(cache: Cache, recorder: Recorder, **settings: Any) -> dict[Target, Compiled | AotpipeError]:
    return matrix.compile_all(
        {"torch": samples.LOWERED}, TARGETS, settings=Settings(**settings), cache=cache, recorder=recorder
    )


def test_every_target_is_compiled_once(cache: Cache, recorder: Recorder, monkeypatch):
    stand_in = Compiler(monkeypatch)
    first = compile_all(cache, recorder)
    assert list(first) == list(TARGETS)
    assert sorted(stand_in.calls) == sorted(map(str, TARGETS))
    second = compile_all(cache, recorder)
    assert second == first
    assert len(stand_in.calls) == len(TARGETS)
    assert [done.cached for done in recorder.finished] == [False] * 3 + [True] * 3
    assert recorder.finished[0].peak_rss_bytes == 1000


def test_flags_are_part_of_the_key_and_limits_are_passed_on(cache: Cache, recorder: Recorder, monkeypatch):
    stand_in = Compiler(monkeypatch)
    compile_all(cache, recorder)
    compile_all(cache, recorder, extra_flags=("--x",), timeout_s=9.0, memory_limit_bytes=5)
    assert len(stand_in.calls) == 2 * len(TARGETS)
    assert stand_in.settings == {
        "extra_flags": ("--x",),
        "timeout_s": 9.0,
        "memory_limit_bytes": 5,
        "log_dir": cache.logs,
        "retreat": None,
    }


def test_a_failure_stands_in_its_targets_place(cache: Cache, recorder: Recorder, monkeypatch):
    stand_in = Compiler(monkeypatch)
    stand_in.failing = {PORTABLE}
    found = compile_all(cache, recorder)
    assert isinstance(found[PORTABLE], CompileFailed)
    assert isinstance(found[HOST], Compiled)
    assert isinstance(found[BYTECODE], Compiled)
    assert [done.target for done in recorder.finished if done.failed] == [str(PORTABLE)]
    compile_all(cache, recorder)
    assert stand_in.calls.count(str(PORTABLE)) == 2
    assert stand_in.calls.count(str(HOST)) == 1


def test_a_fault_of_aotpipe_is_no_failed_target(cache: Cache, recorder: Recorder, monkeypatch):
    def broken(*_: object, **__: object) -> Compiled:
        raise ZeroDivisionError

    monkeypatch.setattr(compiler, "compile", broken)
    with pytest.raises(ZeroDivisionError):
        compile_all(cache, recorder)


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Interrupted]:
    """Compilers that run for a minute, each in a folder of `tmp_path`; the list of those interrupted."""
    ended: list[Interrupted] = []

    def slow(lowered: Lowered, target: Target, **_: object) -> Compiled:
        folder = tmp_path / str(target)
        folder.mkdir()
        try:
            process.run([sys.executable, "-c", "import time; time.sleep(60)"], folder=folder, timeout_s=60)
        except Interrupted as error:
            ended.append(error)
            raise
        raise AssertionError("it ended by itself")

    monkeypatch.setattr(compiler, "compile", slow)
    return ended


def wait_for_compilers(folder: Path, count: int) -> None:
    while len(list(folder.glob("*/stderr.txt"))) < count:
        time.sleep(0.01)


@pytest.mark.usefixtures("ctrl_c_is_heeded")
def test_ctrl_c_ends_every_compiler(cache: Cache, recorder: Recorder, tmp_path: Path, ended):
    def interrupt() -> None:
        wait_for_compilers(tmp_path, 2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compile_all(cache, recorder, jobs=2)
    thread.join()
    assert len(ended) == 2
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize("count", [1, 2])
def test_ctrl_c_while_a_thread_is_started(
    cache: Cache, recorder: Recorder, tmp_path: Path, ended, monkeypatch, count: int
):
    """The pool does not wait for a thread that it was starting: it does not know of it yet."""
    start_thread, started = threading.Thread.start, []

    def interrupted(thread: threading.Thread) -> None:
        start_thread(thread)
        started.append(thread)
        if len(started) == count:
            wait_for_compilers(tmp_path, count)
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compile_all(cache, recorder, jobs=2)
    assert len(ended) == count
    assert time.monotonic() - begin < 30


def run(ready: Ready, cache: Cache, recorder: Recorder) -> dict[Target, matrix.Result]:
    return matrix.run(ready, TARGETS, settings=Settings(), latency=False, cache=cache, recorder=recorder)


def test_programs_that_passed_are_not_run_again(ready: Ready, cache: Cache, recorder: Recorder, monkeypatch):
    Compiler(monkeypatch)
    judged: list[str] = []

    def judge(program: Compiled, *_: object, **__: object) -> Validated:
        judged.append(str(program.target))
        if program.target == BYTECODE:
            raise ParityError("differs", parity=REPORT.targets[2].parity)
        row = REPORT.targets[0]
        return Validated(
            compiled=program, status="executed", parity=row.parity, latency=row.latency, notes=("so",)
        )

    monkeypatch.setattr(matrix, "validate", judge)
    first = run(ready, cache, recorder)
    second = run(ready, cache, recorder)
    assert judged == [*map(str, TARGETS), str(BYTECODE)]
    assert first[HOST] == second[HOST]
    assert isinstance(second[BYTECODE], ParityError)


@pytest.mark.parametrize("mended", [True, False])
def test_wrong_numbers_are_compiled_again_with_care(
    mended: bool, ready: Ready, cache: Cache, recorder: Recorder, monkeypatch
):
    stand_in = Compiler(monkeypatch)
    lowered = replace(ready.prepared.lowered["torch"], module=b"torch.aten.convolution")
    ready = replace(ready, prepared=replace(ready.prepared, lowered={"torch": lowered}))
    retreats = compiler.suspects(lowered, HOST)
    assert [retreat.name for retreat in retreats] == ["without im2col", "without data tiling"]
    judged: list[object] = []

    def judge(program: Compiled, *_: object, **__: object) -> Validated:
        judged.append(stand_in.settings["retreat"])
        if len(judged) < 3 or not mended:
            raise ParityError("differs", parity=REPORT.targets[2].parity)
        return Validated(compiled=program, status="executed", parity=REPORT.targets[0].parity)

    monkeypatch.setattr(matrix, "validate", judge)
    (result,) = matrix.run(
        ready, [HOST], settings=Settings(), latency=False, cache=cache, recorder=recorder
    ).values()
    assert judged == [None, *retreats]
    if mended:
        assert result.notes == ("compiled without data tiling: with the faster flags differs",)
    else:
        assert isinstance(result, ParityError)


def test_what_failed_to_compile_is_not_run(ready: Ready, cache: Cache, recorder: Recorder, monkeypatch):
    Compiler(monkeypatch).failing = set(TARGETS)
    monkeypatch.setattr(matrix, "validate", lambda *_, **__: pytest.fail("run"))
    assert all(isinstance(result, CompileFailed) for result in run(ready, cache, recorder).values())


def test_programs_survive_the_store(cache: Cache):
    program = samples.compiled()
    cache.put("compiled", digest(1), lambda: matrix.write_compiled(program))
    read = cache.load("compiled", digest(1), lambda entry: matrix.read_compiled(entry, BYTECODE))
    assert read == program


@pytest.mark.parametrize("row", REPORT.targets[:2], ids=["executed", "compiled"])
def test_validations_survive_the_store(cache: Cache, row):
    program = samples.compiled()
    seen = Validated(
        compiled=program,
        status=row.status,
        reason=row.reason,
        parity=row.parity,
        latency=row.latency,
        notes=("n",),
    )
    cache.put("validated", digest(1), lambda: matrix.write_validated(seen))
    assert cache.load("validated", digest(1), lambda entry: matrix.read_validated(entry, program)) == seen
