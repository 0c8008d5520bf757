"""Programs of many targets, each run on its own: failures stand alone, results are kept."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import aotpipe
from aotpipe.backends.iree.compile import compiler
from aotpipe.build import chain, matrix
from aotpipe.build.cache import Cache
from aotpipe.build.chain import Chain
from aotpipe.build.compile_stage import CompileSettings, Compiling
from aotpipe.build.events import Recorder
from aotpipe.build.prepared import Ready
from aotpipe.build.request import Request
from aotpipe.core.coverage import UNKNOWN, Coverage, Goal
from aotpipe.core.serialization import dumps, loads
from aotpipe.core.stages import Compiled, Legal, Lowered, Parity, ParityCase, Status, Validated
from aotpipe.core.targets import Target, expand
from aotpipe.errors import CompileFailed, LowerFailed, NotCovered, ParityError, SourceLine
from aotpipe.runtime import toolchain
from aotpipe.runtime.store import digest, file_digest
from aotpipe.runtime.worker import Worker
from tests.unit.build import samples
from tests.unit.build.reports import REPORT
from tests.unit.build.samples import Compiler

# A Chain of a request of which nobody asks for the model.
NO_CHAIN = Chain(Request(model="no_such_model.py"), Recorder())
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
    return Ready(prepared=samples.prepared(tmp_path), key=None, chain=NO_CHAIN)


def run(ready: Ready, cache: Cache, recorder: Recorder) -> dict[Target, matrix.Result]:
    return run_for(TARGETS, ready, cache, recorder)


def run_for(
    targets: Sequence[Target], ready: Ready, cache: Cache, recorder: Recorder
) -> dict[Target, matrix.Result]:
    with Compiling(targets, settings=CompileSettings(), cache=cache) as compiling:
        compiling.start(ready.prepared.lowered)
        return matrix.run(ready, compiling, latency=False)


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


def test_a_worker_is_started_while_the_compilers_run(
    ready: Ready, cache: Cache, recorder: Recorder, monkeypatch
):
    """The first program that runs takes it; none is started where nothing is waited for, and none is left."""
    started: list[Worker] = []
    taken: list[Worker | None] = []
    going = threading.Event()

    def start(**options: Any) -> Worker:
        started.append(Worker(**options))
        going.set()
        return started[-1]

    real = Compiler(monkeypatch)

    def compile_slowly(*given: Any, **settings: Any) -> Compiled:
        assert going.wait(60)
        return real.compile(*given, **settings)

    monkeypatch.setattr(compiler, "compile", compile_slowly)
    monkeypatch.setattr(matrix, "Worker", start)

    def judge(program: Compiled, *_: object, worker: Worker | None = None, **__: object) -> Validated:
        taken.append(worker)
        return Validated(compiled=program, status="executed", parity=REPORT.targets[0].parity)

    monkeypatch.setattr(matrix, "validate", judge)
    run(ready, cache, recorder)
    assert taken == [*started, None, None]
    assert [worker._process.poll() is not None for worker in started] == [True]
    monkeypatch.setattr(matrix, "_STORE_S", 60.0)  # on a busy machine the store may take longer than usual
    run(ready, cache, recorder)
    assert len(started) == 1


@pytest.mark.parametrize("mended", [True, False])
def test_wrong_numbers_are_compiled_again_with_care(
    mended: bool, ready: Ready, cache: Cache, recorder: Recorder, monkeypatch
):
    stand_in = Compiler(monkeypatch)
    lowered = replace(ready.prepared.lowered["iree"], module=b"torch.aten.convolution")
    ready = replace(ready, prepared=replace(ready.prepared, lowered={"iree": lowered}))
    fallbacks = compiler.fallbacks_for_numbers(lowered, HOST)
    assert [fallback.name for fallback in fallbacks] == ["with channels first", "without data tiling"]
    judged: list[object] = []

    def judge(program: Compiled, *_: object, **__: object) -> Validated:
        judged.append(stand_in.settings["fallback"])
        if len(judged) < 3 or not mended:
            raise ParityError("differs", parity=REPORT.targets[2].parity)
        return Validated(compiled=program, status="executed", parity=REPORT.targets[0].parity)

    monkeypatch.setattr(matrix, "validate", judge)
    (result,) = run_for([HOST], ready, cache, recorder).values()
    assert judged == [None, *fallbacks]
    if mended:
        assert result.notes == ("compiled without data tiling: with the faster flags differs",)
    else:
        assert isinstance(result, ParityError)


def test_a_program_that_was_changed_in_the_store_is_run_again(
    ready: Ready, cache: Cache, recorder: Recorder, monkeypatch
):
    Compiler(monkeypatch)
    judged: list[bytes] = []

    def judge(program: Compiled, *_: object, **__: object) -> Validated:
        judged.append(program.payload)
        return Validated(compiled=program, status="executed", parity=REPORT.targets[0].parity)

    monkeypatch.setattr(matrix, "validate", judge)
    run_for([HOST], ready, cache, recorder)
    assert cache.store is not None
    [index] = (cache.store.root / "compiled").glob("*/*/entry.json")
    files = json.loads(index.read_text())["files"]
    [program] = [name for name in files if (index.parent / name).read_bytes() == judged[0]]
    (index.parent / program).write_bytes(b"another program")
    files[program] = file_digest(index.parent / program)
    index.write_text(json.dumps({"files": files}))
    run_for([HOST], ready, cache, recorder)
    assert judged[1:] == [b"another program"]


def test_what_failed_to_compile_is_not_run(ready: Ready, cache: Cache, recorder: Recorder, monkeypatch):
    Compiler(monkeypatch).failing = set(TARGETS)
    monkeypatch.setattr(matrix, "validate", lambda *_, **__: pytest.fail("run"))
    assert all(isinstance(result, CompileFailed) for result in run(ready, cache, recorder).values())


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
    cache.put("validated", digest(1), lambda: {"validated.json": dumps(seen)})
    read = cache.load(
        "validated", digest(1), lambda e: loads(Validated, e.text("validated.json"), compiled=program)
    )
    assert read == seen


BASE, V3, V4 = map(Target.parse, ("iree-cpu-x86_64", "iree-cpu-x86_64_v3", "iree-cpu-x86_64_v4"))


def on(monkeypatch: pytest.MonkeyPatch, level: Target) -> None:
    monkeypatch.setattr(toolchain, "host_features", lambda: ("x86_64", *level.row.features))


def result(target: Target, status: Status = "executed") -> Validated:
    return Validated(compiled=samples.compiled(str(target)), status=status)


def test_only_what_can_be_run_is_built_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, V4)
    assert matrix.beside([V3]) == (V4,)
    assert matrix.beside([BASE, V3]) == (V4,)
    assert matrix.beside([BASE]) == (V4, V3)
    assert matrix.beside([HOST, *expand(["iree-vmvx", "iree-cpu-aarch64"])]) == ()
    on(monkeypatch, V3)
    assert matrix.beside([V3]) == ()
    assert matrix.beside([BASE]) == (V3,)


def test_what_was_executed_becomes_part_of_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, V4)
    results: dict[Target, matrix.Result] = {each: result(each) for each in (BASE, V3, V4)}
    joined = matrix.joined([BASE], results)
    assert joined == {BASE: replace(result(BASE), variants=(result(V4), result(V3)))}
    assert matrix.joined([V3, V4], results)[V4] == result(V4)


def test_one_that_fails_is_left_out_and_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, V4)
    joined = matrix.joined([V3], {V3: result(V3), V4: ParityError("differs")})
    assert joined == {V3: replace(result(V3), notes=("without a program for iree-cpu-x86_64_v4: differs",))}


def test_one_that_could_not_be_run_is_left_out_and_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, V3)
    for results in ({V3: result(V3)}, {V3: result(V3), V4: result(V4, "compiled")}):
        (joined,) = matrix.joined([V3], results).values()
        assert isinstance(joined, Validated)
        assert joined.variants == ()
        (note,) = joined.notes
        assert note.startswith("without a program for iree-cpu-x86_64_v4, which could not be run: this CPU")


def test_an_error_of_the_target_itself_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, V4)
    error = ParityError("differs")
    assert matrix.joined([V3], {V3: error, V4: result(V4)}) == {V3: error}


def _validated(target: Target, *, passed: bool = True) -> matrix.Result:
    case = ParityCase(
        entry_point="forward", case="seed 0", output="y", ratio=0.1 if passed else 9.0, got=3.0, want=1.0
    )
    parity = Parity(cases=(case,), calls=1, rule="")
    if not passed:
        return ParityError("differs", reason="1 of 1 outputs of 1 calls differ", parity=parity)
    return Validated(compiled=samples.compiled(str(target)), status="executed", parity=parity)


def test_a_program_is_not_covered_where_less_was_reached_or_nothing_is_known() -> None:
    line = SourceLine("m.py", 3)
    reached = Goal(entry_point="forward", kind="branch", what="is true", where=line, case="seed 0")
    missed = Goal(entry_point="forward", kind="branch", what="is false", where=line, reason="none was found")
    result = _validated(HOST)
    assert matrix.covered(result, Coverage(goals=(reached, missed)), None) is result
    assert matrix.covered(result, Coverage(goals=(reached, missed)), 50.0) is result
    assert matrix.covered(result, Coverage(), 100.0) is result
    error = matrix.covered(result, Coverage(goals=(reached, missed)), 100.0)
    assert isinstance(error, NotCovered)
    assert (error.where, error.reason) == (line, "m.py:3: branch is false: none was found")
    assert isinstance(matrix.covered(result, UNKNOWN, 1.0), NotCovered)
    for_another_machine = replace(result, status="compiled", parity=None)
    assert matrix.covered(for_another_machine, UNKNOWN, 100.0) is for_another_machine
    failed = _validated(HOST, passed=False)
    assert matrix.covered(failed, UNKNOWN, 100.0) is failed


def test_where_several_backends_ran_the_error_names_the_outlier(ready: Ready, cache: Cache) -> None:
    lowered = dict(ready.prepared.lowered)
    lowered["xla"] = replace(lowered["iree"], dialect="stablehlo")
    both = replace(ready, prepared=replace(ready.prepared, lowered=lowered))
    [xla] = expand(["xla-cpu-host"])
    with Compiling([HOST], settings=CompileSettings(), cache=cache) as compiling:
        results = {HOST: _validated(HOST), xla: _validated(xla, passed=False)}
        results = matrix.triangulated(results, both, compiling)
    error = results[xla]
    assert isinstance(error, ParityError)
    assert "the outlier is xla-cpu-host" in error.reason
    assert error.reason.endswith("float64, eager and iree-cpu-host agree")


class Apart(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) - torch.cos(y)


@pytest.mark.parametrize(("asked", "other"), [("torch", "stablehlo"), ("stablehlo", "torch")])
def test_a_wrong_program_of_iree_is_compared_with_one_of_the_other_dialect(
    asked: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower = chain.lower_for_iree

    def wrong(legal: Legal) -> Lowered:
        lowered = lower(legal)
        if legal.dialect != asked:
            return lowered
        module = re.sub(rb"torch\.aten\.sub|stablehlo\.subtract", _added, lowered.module)
        assert module != lowered.module
        return replace(lowered, module=module)

    monkeypatch.setattr(chain, "lower_for_iree", wrong)
    args = (torch.rand(5) + 1, torch.rand(5))
    with pytest.raises(ParityError) as caught:
        aotpipe.build(Apart(), args=args, targets=["iree-vmvx"], dialect=asked, out=tmp_path / "out")
    said = f"float64, eager and iree-vmvx by the {other} dialect agree"
    assert "`output` of forward (example): the outlier is iree-vmvx (iree-vmvx gives" in caught.value.reason
    assert said in caught.value.reason


def _added(found: re.Match[bytes]) -> bytes:
    return {b"torch.aten.sub": b"torch.aten.add", b"stablehlo.subtract": b"stablehlo.add"}[found[0]]


def test_where_the_other_dialect_has_no_program_the_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower = chain.lower_for_iree

    def wrong(legal: Legal) -> Lowered:
        if legal.dialect == "stablehlo":
            raise LowerFailed("there is no form of it")
        lowered = lower(legal)
        return replace(lowered, module=lowered.module.replace(b"torch.aten.sub", b"torch.aten.add"))

    monkeypatch.setattr(chain, "lower_for_iree", wrong)
    args = (torch.rand(5) + 1, torch.rand(5))
    with pytest.raises(ParityError) as caught:
        aotpipe.build(Apart(), args=args, targets=["iree-vmvx"], out=tmp_path / "out")
    assert caught.value.reason.endswith(
        "iree-vmvx by the stablehlo dialect says nothing: there is no form of it"
    )


def test_where_the_model_is_no_longer_there_the_error_of_parity_stays(ready: Ready, cache: Cache) -> None:
    """A model that comes from the store is traced for the other dialect only then."""
    with Compiling([HOST], settings=CompileSettings(), cache=cache) as compiling:
        results = matrix.triangulated({HOST: _validated(HOST, passed=False)}, ready, compiling)
    error = results[HOST]
    assert isinstance(error, ParityError)
    assert f"{HOST} by the stablehlo dialect says nothing: " in error.reason


def test_what_a_program_was_not_compared_on_is_not_covered() -> None:
    """A slow program is not compared on every call, nor is one of buckets."""
    result = _validated(HOST)
    compared = Goal(entry_point="forward", kind="size", what="n=2", case="seed 0")
    left_out = Goal(entry_point="forward", kind="size", what="n=9", case="n=9")
    without_outputs = Goal(entry_point="clear", kind="branch", what="is true", case="example")
    assert matrix.covered(result, Coverage(goals=(compared, without_outputs)), 100.0) is result
    error = matrix.covered(result, Coverage(goals=(compared, left_out)), 100.0)
    assert isinstance(error, NotCovered)
    assert error.reason == "forward: n=9: the program was not compared on n=9, which reaches it"
