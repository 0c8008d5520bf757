"""Runs a command in this process."""

from __future__ import annotations

from click.testing import CliRunner

from aotpipe.cli import cli


def run(*argv: str) -> str:
    """The command's stdout; it must succeed."""
    result = CliRunner().invoke(cli, list(argv), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout
