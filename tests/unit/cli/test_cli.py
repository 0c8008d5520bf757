"""The command: its help imports nothing heavy, and every command is there."""

from __future__ import annotations

import subprocess
import sys

import click

from aotpipe.cli import _COMMANDS, cli
from aotpipe.errors import AotpipeError

HEAVY = {
    "torch",
    "numpy",
    "rich",
    "iree",
    "iree.compiler",
    "transformers",
    "pydantic",
    "jinja2",
    "safetensors",
}


def imported_by(calls: list[list[str]]) -> set[str]:
    """What is imported after all calls, each of which has ended by itself."""
    code = f"""
import sys
from aotpipe.cli import cli
for argv in {calls}:
    sys.argv[1:] = argv
    try:
        cli.main()
    except SystemExit as end:
        assert not end.code
    else:
        raise AssertionError(argv)
print("MODULES", *sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    return set(done.stdout.rpartition("MODULES")[2].split())


def test_help_imports_nothing_heavy():
    modules = imported_by([["--version"], ["--help"], *([name, "--help"] for name in _COMMANDS)])
    assert "click" in modules
    assert not modules & HEAVY


def test_every_command_is_there_and_documented():
    context = click.Context(cli)
    for name in _COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        assert command.help
    assert cli.get_command(context, "nope") is None


def test_every_error_class_has_a_code_of_its_own():
    def below(kind: type[AotpipeError]) -> list[type[AotpipeError]]:
        return [kind, *(each for sub in kind.__subclasses__() for each in below(sub))]

    kinds = below(AotpipeError)
    assert len({kind.exit_code for kind in kinds}) == len(kinds)
