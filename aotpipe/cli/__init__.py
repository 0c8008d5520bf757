"""The command `aotpipe`: the only code that prints or exits.

stdout is data (tables for people, one JSON value with `--json`), stderr is talk. The module of a command is
imported when it is called, so that `--help` costs what click costs.

Exit codes: 0, 2 for a wrong command line, one per class of `aotpipe.errors`, 70 for a fault of aotpipe's own.
A typed error goes to stderr, or to stdout as JSON under `--json`. Ctrl-C and SIGTERM raise `Interrupted`. For
any other exception the command prints one short notice, and writes the traceback to a log file.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import click

from aotpipe import __version__
from aotpipe.cli import text
from aotpipe.errors import BUG, AotpipeError, Interrupted

_COMMANDS: Final = {
    "build": ("build", "Build a verified bundle from a model: all steps below in one."),
    "check": ("tools", "List all that keeps a model from becoming one program, and what becomes of it."),
    "canonicalize": (
        "tools",
        "Write a model as PyTorch with explicit branches, loops and state, and prove it.",
    ),
    "recompiles": ("tools", "Count the programs that varied calls take, and name the line that caused each."),
    "export": ("build", "Export a model; say what it takes and gives, and what was found."),
    "compile": ("build", "Compile a model's programs without running them."),
    "validate": ("bundles", "Compare a bundle's programs with its model in PyTorch."),
    "bisect": (
        "tools",
        "Find the op that makes a program's numbers wrong, and write the smallest program with it.",
    ),
    "bench": ("bundles", "Time a bundle's programs, beside eager where a model is given."),
    "diff": ("ci", "Compare two builds by their reports; a regression fails."),
    "replay": ("ci", "Compile a bundle's model with this toolchain, and run the bundle's recorded calls."),
    "inspect": ("bundles", "Show what a bundle holds."),
    "islands": ("bundles", "Show and time the chain of a bundle of which a part is Python."),
    "selftest": ("bundles", "Run a bundle's recorded calls on this host; needs no torch."),
    "serve": ("serve", "Answer requests over HTTP with the programs of bundles; needs no torch."),
    "plan": ("plan", "Say how many servers, cores and how much memory answer a rate of requests in time."),
    "archive": ("bundles", "Write a bundle as one file."),
    "push": ("registries", "Push a bundle to an OCI registry."),
    "pull": ("registries", "Pull a bundle from an OCI registry."),
    "package": ("registries", "Write what Triton, KServe or MLflow loads a bundle by."),
    "sign": ("bundles", "Sign a bundle with a private key."),
    "attest": ("bundles", "Write what a bundle was made of: SLSA provenance and a CycloneDX ML-BOM."),
    "verify": ("bundles", "Check every file of a bundle, and its signature."),
    "targets": ("host", "List the targets, and which can run here."),
    "cache": ("host", "Look at or empty the cache of stage results."),
    "doctor": ("host", "Say what is installed, what can run here, and what to install."),
}
"""The module of each command, and its line in `--help`."""


class _Lazy(click.Group):
    """A group that imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        return _command(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


@cache
def _command(name: str) -> click.Command:
    """A command that has stdout for itself."""
    module, _ = _COMMANDS[name]
    command: click.Command = copy(getattr(import_module(f"aotpipe.cli.{module}"), name))
    run = command.callback
    assert run is not None

    def callback(**given: Any) -> Any:
        text.take_stdout()
        return run(**given)

    command.callback = callback
    return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="aotpipe")
def cli() -> None:
    """Turn a PyTorch model into verified programs that run without torch.

    MODEL is `path.py`, `path.py:NAME` or `package.module:NAME`, naming a Spec, an nn.Module, or a function
    that returns one.
    """


def main() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    leave(guarded(cli, sys.argv[1:]))


def guarded(command: click.Command, argv: Sequence[str]) -> int:
    """Run a command line; returns its exit code and raises nothing."""
    with text.own_stdout():
        return _guarded(command, argv)


def _guarded(command: click.Command, argv: Sequence[str]) -> int:
    try:
        with _sigterm_interrupts():
            code = command.main(args=list(argv), prog_name="aotpipe", standalone_mode=False)
            text.stdout().flush()
            return code if isinstance(code, int) else 0
    except click.ClickException as error:
        if "--json" not in argv:
            error.show()
            return error.exit_code
        return _tell_json(
            {
                "error": "Usage",
                "stage": "aotpipe",
                "exit_code": error.exit_code,
                "message": error.format_message(),
            }
        )
    except (KeyboardInterrupt, click.Abort):
        return _tell(Interrupted("interrupted", reason="no result was written"), argv)
    except AotpipeError as error:
        return _tell(error, argv)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1  # click's answer to a closed stdout
    except BrokenPipeError:
        # The reader of stdout is gone; Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), text.stdout().fileno())
        return 128 + signal.SIGPIPE
    except BaseException as error:  # noqa: BLE001  # the outermost frame: everything else is a bug of aotpipe
        return _tell_bug(error, argv)


def leave(code: int) -> NoReturn:
    """End this process; what was registered to run at its end has run.

    Python would take apart every module and object first, which takes 1.3 s once torch and a model are there.
    """
    atexit._run_exitfuncs()  # noqa: SLF001  # nothing public runs them without what follows
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # its reader is gone, or it is closed
            stream.flush()
    os._exit(code)


def _tell(error: AotpipeError, argv: Sequence[str]) -> int:
    text.annotate(error)
    if "--json" in argv:
        return _tell_json(error.to_json())
    text.say(str(error))
    return error.exit_code


def _tell_json(error: dict[str, Any]) -> int:
    text.echo_json(error)
    code: int = error["exit_code"]
    return code


def _tell_bug(error: BaseException, argv: Sequence[str]) -> int:
    path = _write_traceback(argv)
    message = f"{type(error).__name__}: {error}".splitlines()[0]
    if "--json" in argv:
        return _tell_json(
            {"error": "Bug", "stage": "aotpipe", "exit_code": BUG, "message": message, "log": path or None}
        )
    text.say(f"error[bug]: aotpipe failed where it should not: {message}")
    if path:
        text.say(f"  log: {path}\n  hint: please report it, with this file")
    else:
        traceback.print_exc()
    return BUG


def _write_traceback(argv: Sequence[str]) -> str:
    """Put the traceback in the logs' folder; empty where that cannot be written."""
    from aotpipe.runtime.store import Store

    with suppress(OSError, AotpipeError):
        folder: Path = Store.default().logs
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"bug-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        command = " ".join(["aotpipe", *argv])
        path.write_text(f"aotpipe {__version__}\n$ {command}\n\n{traceback.format_exc()}", encoding="utf-8")
        return str(path)
    return ""


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM unwind like Ctrl-C, so that children are killed and temporary files removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_signum: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def again(unraisable: Any) -> None:
        # Python drops what is raised in a finalizer or in a callback of a weak reference.
        if unraisable.exc_type is KeyboardInterrupt:
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            hook(unraisable)

    hook, sys.unraisablehook = sys.unraisablehook, again
    # A background job of a shell script inherits an ignored SIGINT.
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
