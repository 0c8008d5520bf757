"""Programs for better CPUs within those of a portable target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aotpipe.build import matrix, variants
from aotpipe.core.stages import Status, Validated
from aotpipe.core.targets import Target, expand
from aotpipe.errors import ParityError
from aotpipe.runtime import toolchain
from tests.unit.build import samples

BASE, V3, V4 = map(Target.parse, ("iree-cpu-x86_64", "iree-cpu-x86_64_v3", "iree-cpu-x86_64_v4"))
HOST = Target.parse("iree-cpu-host")


def on(monkeypatch: pytest.MonkeyPatch, level: Target) -> None:
    monkeypatch.setattr(toolchain, "host_features", lambda: ("x86_64", *level.row.features))


def result(target: Target, status: Status = "executed") -> Validated:
    return Validated(compiled=samples.compiled(str(target)), status=status)


def test_only_what_can_be_run_is_built_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, V4)
    assert variants.beside([V3]) == (V4,)
    assert variants.beside([BASE, V3]) == (V4,)
    assert variants.beside([BASE]) == (V4, V3)
    assert variants.beside([HOST, *expand(["iree-vmvx", "iree-cpu-aarch64"])]) == ()
    on(monkeypatch, V3)
    assert variants.beside([V3]) == ()
    assert variants.beside([BASE]) == (V3,)


def test_what_was_executed_becomes_part_of_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, V4)
    results: dict[Target, matrix.Result] = {each: result(each) for each in (BASE, V3, V4)}
    joined = variants.joined([BASE], results)
    assert joined == {BASE: replace(result(BASE), variants=(result(V4), result(V3)))}
    assert variants.joined([V3, V4], results)[V4] == result(V4)


def test_one_that_fails_is_left_out_and_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, V4)
    joined = variants.joined([V3], {V3: result(V3), V4: ParityError("differs")})
    assert joined == {V3: replace(result(V3), notes=("without a program for iree-cpu-x86_64_v4: differs",))}


def test_one_that_could_not_be_run_is_left_out_and_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, V3)
    for results in ({V3: result(V3)}, {V3: result(V3), V4: result(V4, "compiled")}):
        (joined,) = variants.joined([V3], results).values()
        assert isinstance(joined, Validated)
        assert joined.variants == ()
        (note,) = joined.notes
        assert note.startswith("without a program for iree-cpu-x86_64_v4, which could not be run: this CPU")


def test_an_error_of_the_target_itself_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, V4)
    error = ParityError("differs")
    assert variants.joined([V3], {V3: error, V4: result(V4)}) == {V3: error}
