"""Runs of the compiler: more cautious flags where the fast ones fail, and nothing left behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.compile.attempts import Workplace
from aotpipe.backends.iree.fixes.rewrites import Rewrite
from aotpipe.errors import CompileFailed
from aotpipe.runtime import process
from tests.unit.runtime.iree.samples import HOST, NO_SUCH_OP, RELU, RELU_TEXT, lowered


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
    text = RELU_TEXT.format(path="/home/u/model.py").replace("f32", "f64").replace("aten.exp", "aten.sin")
    compiled = compiler.compile(lowered(text), HOST)
    (note,) = compiled.notes
    assert "C library" in note
    assert "undefined symbol: sin" in note
    again = compiler.compile(lowered(text.replace("/home/u", "/home/v")), HOST)
    assert again.payload == compiled.payload


def test_both_steps_of_a_compile_are_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def said(argv: list[str], *, folder: Path, **_: object) -> process.Outcome:
        ran.append(argv)
        (folder / argv[3]).write_bytes(b"made")
        code = int("--compile-from=vm" in argv)
        return process.Outcome(
            ending="exited", code=code, wall_s=1, peak_rss_bytes=1, stderr=f"step {code}\n"
        )

    monkeypatch.setattr(process, "run", said)
    rewrite = Rewrite(("none",), lambda _: False)
    place = Workplace(tmp_path, 1)
    failed = place.attempt("", (), 10, [rewrite])
    assert failed.payload is None
    assert failed.outcome.stderr == "step 0\nstep 1\n"
    ran.clear()
    place.attempt("", ("--compile-to=flow",), 10, [rewrite])  # a user's own
    assert [[flag for flag in argv if "compile-" in flag] for argv in ran] == [["--compile-to=flow"]]


def test_a_compile_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    compiler.compile(RELU, HOST)
    with pytest.raises(CompileFailed):
        compiler.compile(lowered(NO_SUCH_OP), HOST)
    assert list(tmp_path.iterdir()) == []
