"""How the command ends: exit codes, and what goes to stdout and what to stderr."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from aotpipe.cli import cli, guarded
from aotpipe.errors import Interrupted, ReadOnly, SourceLine


def failing(error: BaseException) -> click.Command:
    @click.command()
    @click.option("--json", is_flag=True)
    def command(json: bool) -> None:
        raise error

    return command


ERROR = ReadOnly("no", reason="because", hint="do this", where=SourceLine("m.py", 3))


def test_a_typed_error_goes_to_stderr_with_its_code(capsys: pytest.CaptureFixture[str]):
    assert guarded(failing(ERROR), []) == ReadOnly.exit_code
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error[store]: m.py:3: no\n  because\n  hint: do this\n"


def test_the_end_flushes_and_runs_what_was_registered_and_takes_nothing_apart():
    code = (
        "import atexit, sys; from aotpipe.cli import leave\n"
        "class Kept:\n    def __del__(self): print('taken apart')\n"
        "kept = Kept(); atexit.register(print, 'registered'); sys.stdout.write('said\\n'); leave(7)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.split() == ["said", "registered"]


def test_under_json_a_typed_error_is_json_on_stdout(capsys: pytest.CaptureFixture[str]):
    assert guarded(failing(ERROR), ["--json"]) == ReadOnly.exit_code
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out)["error"] == "ReadOnly"
    assert json.loads(out)["exit_code"] == ReadOnly.exit_code


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted("x")])
def test_ctrl_c_is_interrupted(error: BaseException, capsys: pytest.CaptureFixture[str]):
    assert guarded(failing(error), []) == Interrupted.exit_code == 130
    assert "error[aotpipe]:" in capsys.readouterr().err


def test_a_wrong_command_line_is_2(capsys: pytest.CaptureFixture[str]):
    assert guarded(cli, ["build"]) == 2
    assert "MODEL" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["--json"]])
def test_a_bug_leaves_its_traceback_in_a_file(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("AOTPIPE_CACHE", str(tmp_path))
    assert guarded(failing(ZeroDivisionError("oops")), argv) == 70
    out, err = capsys.readouterr()
    (log,) = (tmp_path / "logs").iterdir()
    assert str(log) in (out if argv else err)
    assert "Traceback" not in out + err
    assert "ZeroDivisionError: oops" in log.read_text()
    if argv:
        assert json.loads(out)["error"] == "Bug"


def test_a_bug_without_a_place_for_logs_says_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AOTPIPE_CACHE", str(tmp_path / "file" / "cache"))
    assert guarded(failing(ZeroDivisionError("oops")), []) == 70
    assert "Traceback" in capsys.readouterr().err


def test_a_wrong_command_line_is_json_too(capsys: pytest.CaptureFixture[str]):
    assert guarded(cli, ["inspect", "--json"]) == 2
    out, err = capsys.readouterr()
    assert (json.loads(out)["error"], json.loads(out)["exit_code"], err) == ("Usage", 2, "")


@pytest.mark.parametrize("error", [GeneratorExit(), type("Own", (BaseException,), {})()], ids=repr)
def test_what_is_no_exception_is_a_bug_with_its_json(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("AOTPIPE_CACHE", str(tmp_path))
    assert guarded(failing(error), ["--json"]) == 70
    assert json.loads(capsys.readouterr().out)["error"] == "Bug"


PRINTS = """
import atexit, ctypes, os, threading, time
import torch
print("printed"); os.write(1, b"written\\n"); os.system("echo of a shell"); ctypes.CDLL(None).puts(b"of C")
ctypes.CDLL(None).fflush(None)
atexit.register(print, "at the end")
def go():
    while True:
        print("thread"); time.sleep(0.01)
threading.Thread(target=go, daemon=True).start()
model = torch.nn.Linear(2, 2).eval()
EXAMPLE_INPUTS = (torch.ones(1, 2),)
"""


def test_stdout_is_one_value_whatever_the_model_prints(tmp_path: Path):
    (tmp_path / "prints.py").write_text(PRINTS)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    argv = [sys.executable, "-P", "-m", "aotpipe", "export", "prints.py", "--json"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["name"] == "prints"
    for said in ("printed", "written", "of a shell", "of C", "at the end", "thread"):
        assert said in done.stderr


def test_a_reader_that_goes_away_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "aotpipe", "targets"],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert "error" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode in (1, 128 + signal.SIGPIPE)


def test_an_exit_is_its_code():
    assert guarded(failing(SystemExit(3)), []) == 3


def test_ctrl_c_is_not_lost_in_a_finalizer() -> None:
    class Signalling:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.001)

    @click.command()
    def command() -> None:
        Signalling()
        time.sleep(20)

    hook = sys.unraisablehook
    assert guarded(command, []) == Interrupted.exit_code
    assert sys.unraisablehook is hook
