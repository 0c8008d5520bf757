"""What a build refuses before any work, where its bundle goes, and what it keeps where a target fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import aotpipe
from aotpipe import validate
from aotpipe.backends.iree.compile import compiler
from aotpipe.build import build as build_module
from aotpipe.build import matrix, report_folder
from aotpipe.build.build import Settings, run
from aotpipe.build.cache import Cache
from aotpipe.build.draft import Draft
from aotpipe.build.events import Event, Planned, Recorder, StageFinished
from aotpipe.build.record import Record, Snapshot
from aotpipe.build.request import Request
from aotpipe.core.stages import Compiled, Lowered
from aotpipe.core.targets import Target
from aotpipe.errors import BundleError, CompileFailed, ModelNotFound, ReadOnly, SpecInvalid, UnknownTarget
from aotpipe.runtime.store import digest
from tests.unit.build.reports import REPORT

ARGS = (torch.randn(2, 4),)


def model() -> torch.nn.Module:
    return torch.nn.Linear(4, 3).eval()


def test_targets_and_places_are_checked_before_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build_module, "prepare", lambda *_, **__: pytest.fail("work was done"))
    with pytest.raises(UnknownTarget):
        aotpipe.build("no_such_file.py", targets=["iree-cpu-hots"])
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError):
        aotpipe.build(model(), args=ARGS, out=tmp_path / "file")
    with pytest.raises(ReadOnly):
        aotpipe.build(model(), args=ARGS, out="/sys/deep/out")


def test_a_model_that_is_not_there_leaves_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFound):
        aotpipe.build("no_such_file.py")
    assert [path.name for path in (tmp_path / "artifacts").iterdir()] == ["no_such_file.report"]
    report = report_folder.read(tmp_path / "artifacts" / "no_such_file.report")
    assert report is not None
    assert report.failure is not None
    assert (report.failure.error, report.exit_code) == ("ModelNotFound", ModelNotFound.exit_code)


def test_a_bundle_goes_to_artifacts_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    heard: list[Event] = []
    built = aotpipe.build(
        model(), args=ARGS, name="line", targets=["iree-vmvx"], latency=False, on_event=heard.append
    )
    assert built.path == tmp_path / "artifacts" / "line"
    assert sorted(path.name for path in (tmp_path / "artifacts").iterdir()) == ["line", "line.report"]
    assert built.report.bundle == str(built.path)
    finished = [event.stage for event in heard if isinstance(event, StageFinished)]
    assert finished[-4:] == ["compile", "validate", "pack", "report"]
    assert sum(isinstance(event, Planned) for event in heard) == 2


def test_a_failed_target_raises_and_leaves_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise CompileFailed("no")

    monkeypatch.setattr(compiler, "compile", refuse)
    for keep_going in (False, True):  # with nothing left to pack, both are the same
        with pytest.raises(CompileFailed):
            aotpipe.build(
                model(), args=ARGS, out=tmp_path / "out", targets=["iree-vmvx"], keep_going=keep_going
            )
    assert [path.name for path in tmp_path.iterdir()] == ["out.report"]


def test_what_a_compiler_refuses_for_another_machine_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = compiler.compile

    def refuse(lowered: Lowered, target: Target, **settings: Any) -> Compiled:
        if target.device == "metal":
            raise CompileFailed("no")
        return real(lowered, target, **settings)

    monkeypatch.setattr(compiler, "compile", refuse)
    targets = ["iree-metal", "iree-vmvx"]
    settings = Settings(out=tmp_path / "out", latency=False)
    outcome = run(Request.of(model(), targets, ARGS), settings)
    assert outcome.report.exit_code == CompileFailed.exit_code
    assert [row.status for row in outcome.report.targets] == ["failed", "executed"]
    assert aotpipe.load(tmp_path / "out").infer({"input": ARGS[0].numpy()})["output"].shape == (2, 3)


def test_a_portable_target_holds_programs_for_better_cpus(tmp_path: Path):
    target = "iree-cpu-x86_64"
    settings: dict[str, Any] = {"args": ARGS, "out": tmp_path / "out", "targets": [target], "latency": False}
    built = aotpipe.build(model(), **settings)
    (row,), (program,) = built.report.targets, built.manifest.programs
    assert (row.target, row.status) == (target, "executed")
    wanted = list(map(str, matrix.beside([Target.parse(target)])))
    assert [each.target for each in program.variants] == wanted
    assert all(each.status == "executed" for each in program.variants)
    assert {name.split("/")[1] for name in built.manifest.files if "/" in name} == {target, *wanted}
    for option in (True, False):
        with aotpipe.load(built, target=target, variants=option) as runner:
            assert runner.infer({"input": ARGS[0].numpy()})["output"].shape == (2, 3)
    (alone,) = aotpipe.build(model(), variants=False, **settings).manifest.programs
    assert alone.variants == ()


def test_a_failed_build_leaves_the_bundle_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    settings = {"args": ARGS, "out": tmp_path / "out", "targets": ["iree-vmvx"], "latency": False}
    before = aotpipe.build(model(), **settings)

    def refuse(*_: object, **__: object) -> None:
        raise CompileFailed("no")

    monkeypatch.setattr(compiler, "compile", refuse)
    with pytest.raises(CompileFailed):
        aotpipe.build(torch.nn.Sequential(model(), torch.nn.ReLU()).eval(), **settings)
    assert aotpipe.load(before).infer({"input": ARGS[0].numpy()})["output"].shape == (2, 3)


def test_the_same_object_is_not_compiled_twice(tmp_path: Path):
    one = model()
    settings = {"args": ARGS, "out": tmp_path / "out", "targets": ["iree-vmvx"], "latency": False}
    aotpipe.build(one, **settings)
    again = aotpipe.build(one, **settings)
    cached = {cost.stage for cost in again.report.stages if cost.cached}
    assert cached == {"compile", "validate"}
    assert not again.report.up_to_date


def test_what_could_not_run_is_run_once_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one = model()

    def built() -> str:
        settings = Settings(out=tmp_path / "out", latency=False)
        outcome = run(Request.of(one, ["iree-vmvx"], ARGS), settings)
        return outcome.report.targets[0].status

    with monkeypatch.context() as without:
        for module in (build_module, matrix, validate):
            without.setattr(module, "why_not_runnable", lambda *_: "it has no driver")
        assert built() == "compiled"
    assert built() == "executed"


def test_a_bundle_of_another_prepared_model_is_not_up_to_date(tmp_path: Path):
    request = Request.of("m.py", ["iree-vmvx"])
    settings, draft = Settings(out=tmp_path / "out"), Draft.of("m.py", None, tmp_path / "out")
    work = build_module._Work(request, settings, Cache.open(Recorder()), draft)
    report_folder.write(REPORT, report_folder.folder_of(tmp_path / "out"))
    front, key = request.key, work.key("tiny")
    assert front is not None
    assert key is not None
    one = Record(name="tiny", snapshot=Snapshot(files={}, folders={}, variables={}), prepared=digest("one"))
    one.save(work.cache, front)
    one.save(work.cache, key)
    assert build_module._unchanged(work) is not None
    replace(one, prepared=digest("other")).save(work.cache, key)
    assert build_module._unchanged(work) is None


def test_a_tokenizer_that_cannot_be_read_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(SpecInvalid, match="cannot be read"):
        aotpipe.build(
            torch.nn.Linear(2, 2).eval(), args=(torch.ones(2),), tokenizer=tmp_path / "tokenizer.json"
        )
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    settings = Settings(tokenizer=tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_bytes(b"[]")
    assert settings.tokenizer_files == {"tokenizer.json": b"{}", "tokenizer_config.json": b"[]"}
