"""The compilers of a build: failures stand alone, programs are kept, whatever ends the build ends them."""

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

from aotpipe.backends.iree.compile import compiler
from aotpipe.build import compile_stage, file_reads
from aotpipe.build.cache import Cache
from aotpipe.build.compile_stage import CompileSettings, Compiling
from aotpipe.build.events import Recorder
from aotpipe.core.stages import Compiled, Lowered
from aotpipe.core.targets import Target, expand
from aotpipe.errors import AotpipeError, CompileFailed, Interrupted
from aotpipe.runtime import process
from tests.unit.build import samples
from tests.unit.build.samples import Compiler

TARGETS = expand(["iree-cpu-host", "iree-cpu-x86_64", "iree-vmvx"])
HOST, PORTABLE, BYTECODE = TARGETS
LOWERED = {"iree": samples.LOWERED}


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def cache(recorder: Recorder) -> Cache:
    return Cache.open(recorder)


def compile_all(cache: Cache, recorder: Recorder, **settings: Any) -> dict[Target, Compiled | AotpipeError]:
    return compile_stage.compile_all(LOWERED, TARGETS, settings=CompileSettings(**settings), cache=cache)


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
        "fallback": None,
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


FAT = expand(["iree-vulkan", "iree-cpu-host", "iree-cpu-x86_64"])


def compile_fat(cache: Cache, recorder: Recorder) -> dict[Target, Compiled | AotpipeError]:
    return compile_stage.compile_all(LOWERED, FAT, settings=CompileSettings(fat=True), cache=cache)


def test_several_devices_share_a_program(cache: Cache, recorder: Recorder, monkeypatch):
    calls: list[tuple[Target, ...]] = []

    def stand_in(lowered: Lowered, target: Target, *, beside: tuple = (), **_: object) -> Compiled:
        calls.append((target, *beside))
        return replace(samples.compiled(str(target)), beside=beside)

    monkeypatch.setattr(compiler, "compile", stand_in)
    vulkan, host, portable = compile_fat(cache, recorder).values()
    assert sorted(calls) == [(HOST, FAT[0]), (PORTABLE,)]
    assert (vulkan.target, vulkan.beside, host.beside) == (FAT[0], (HOST,), (FAT[0],))
    assert vulkan.payload == host.payload != portable.payload
    assert vulkan.file == host.file == "iree-cpu-host+iree-vulkan/program.vmfb"
    assert portable.file == "iree-cpu-x86_64/program.vmfb"
    assert len({vulkan.digest, host.digest, portable.digest}) == 3
    assert host.host_features
    assert not vulkan.host_features
    assert list(compile_fat(cache, recorder).values()) == [vulkan, host, portable]
    assert len(calls) == 2


def test_where_there_is_no_program_for_all_devices_each_has_its_own(
    cache: Cache, recorder: Recorder, monkeypatch
):
    def stand_in(lowered: Lowered, target: Target, *, beside: tuple = (), **_: object) -> Compiled:
        if beside or target == FAT[0]:
            raise CompileFailed(f"no {target}", reason="it lacks a lane")
        return samples.compiled(str(target))

    monkeypatch.setattr(compiler, "compile", stand_in)
    found = compile_fat(cache, recorder)
    assert isinstance(found[FAT[0]], CompileFailed)
    host = found[HOST]
    assert isinstance(host, Compiled)
    assert host.beside == ()
    assert host.notes[-1] == "a program of its own, since there is none for all devices: no iree-cpu-host"


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
@pytest.mark.parametrize("blocked", [set(), {signal.SIGINT}], ids=["any thread", "another thread"])
def test_ctrl_c_ends_every_compiler(
    cache: Cache, recorder: Recorder, tmp_path: Path, ended, blocked: set[signal.Signals]
):
    """A signal that another thread takes, as one just before a lock is waited for, does not end that wait."""

    def interrupt() -> None:
        wait_for_compilers(tmp_path, 2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    begin = time.monotonic()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        with pytest.raises(KeyboardInterrupt):
            compile_all(cache, recorder, jobs=2)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
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


def test_what_ends_the_body_ends_the_compilers(cache: Cache, recorder: Recorder, tmp_path: Path, ended):
    begin = time.monotonic()

    def body() -> None:
        with Compiling(TARGETS, settings=CompileSettings(jobs=2), cache=cache) as running:
            running.start(LOWERED)
            wait_for_compilers(tmp_path, 2)
            assert running.is_running()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    assert len(ended) == 2
    assert time.monotonic() - begin < 30


def test_the_body_goes_on_while_compilers_run(cache: Cache, recorder: Recorder, monkeypatch):
    go_on = threading.Event()

    def patient(lowered: Lowered, target: Target, **_: object) -> Compiled:
        assert go_on.wait(60)
        return samples.compiled(str(target))

    monkeypatch.setattr(compiler, "compile", patient)
    with Compiling(TARGETS, settings=CompileSettings(), cache=cache) as running:
        running.start(LOWERED)
        go_on.set()
        assert list(running.wait()) == list(TARGETS)
        assert not running.is_running()


def test_what_a_compiler_opens_is_not_taken_for_the_models(
    cache: Cache, recorder: Recorder, tmp_path: Path, monkeypatch
):
    def reading(lowered: Lowered, target: Target, **_: object) -> Compiled:
        (tmp_path / "flags.txt").read_text()
        return samples.compiled(str(target))

    monkeypatch.setattr(compiler, "compile", reading)
    (tmp_path / "flags.txt").write_text("")
    with file_reads.recorded_reads(exclude=[]) as seen:
        found = compile_stage.compile_all(LOWERED, [HOST], settings=CompileSettings(), cache=cache)
    assert isinstance(found[HOST], Compiled)
    assert str(tmp_path / "flags.txt") not in seen.read


def test_programs_survive_the_store(cache: Cache, recorder: Recorder, monkeypatch: pytest.MonkeyPatch):
    program = samples.compiled()
    monkeypatch.setattr(compiler, "compile", lambda *_, **__: program)
    for cached in (False, True):
        with Compiling([BYTECODE], settings=CompileSettings(), cache=cache) as compiling:
            assert compiling.compile(LOWERED["iree"], BYTECODE) == program
        assert recorder.finished[-1].cached is cached
