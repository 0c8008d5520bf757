"""The command `aotpipe`: the only code that prints or exits.

stdout is data (tables for people, one JSON value with `--json`), stderr is talk. The module of a command is
imported when it is called, so that `--help` costs what click costs.

Exit codes: 0, 2 for a wrong command line, one per class of `aotpipe.errors`, 70 for a fault of aotpipe's own.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final, NoReturn

import click

from aotpipe import __version__

_COMMANDS: Final = {
    "build": "Build a verified bundle from a model: all steps below in one.",
    "check": "List all that keeps a model from becoming one program, and what becomes of it.",
    "canonicalize": "Write a model as PyTorch with explicit branches, loops and state, and prove it.",
    "recompiles": "Count the programs that varied calls take, and name the line that caused each.",
    "export": "Export a model; say what it takes and gives, and what was found.",
    "compile": "Compile a model's programs without running them.",
    "validate": "Compare a bundle's programs with its model in PyTorch.",
    "bisect": "Find the op that makes a program's numbers wrong, and write the smallest program with it.",
    "bench": "Time a bundle's programs, beside eager where a model is given.",
    "inspect": "Show what a bundle holds.",
    "islands": "Show and time the chain of a bundle of which a part is Python.",
    "selftest": "Run a bundle's recorded calls on this host; needs no torch.",
    "targets": "List the targets, and which can run here.",
    "cache": "Look at or empty the cache of stage results.",
    "doctor": "Say what is installed, what can run here, and what to install.",
}
"""The line in `--help` of each command."""
_MODULES: Final = {
    "build": ("build", "export", "compile"),
    "tools": ("check", "canonicalize", "recompiles", "bisect"),
    "bundles": ("inspect", "selftest", "validate", "bench", "islands"),
    "host": ("targets", "doctor", "cache"),
}
"""The commands of each module."""


class _Lazy(click.Group):
    """A group that imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module = next(module for module, names in _MODULES.items() if cmd_name in names)
        command: click.Command = getattr(import_module(f"aotpipe.cli.{module}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="aotpipe")
def cli() -> None:
    """Turn a PyTorch model into verified programs that run without torch.

    MODEL is `path.py`, `path.py:NAME` or `package.module:NAME`, naming a Spec, an nn.Module, or a function
    that returns one.
    """


def main() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    from aotpipe.cli.guard import guarded, leave

    leave(guarded(cli, sys.argv[1:]))
