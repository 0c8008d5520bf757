"""Options that several commands share."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from aotpipe.cli import options


@click.command()
@options.targets
@options.compiling
def command(targets: tuple[str, ...], **settings: object) -> None:
    click.echo(f"{targets} {settings}")


def test_defaults():
    out = CliRunner().invoke(command, [], catch_exceptions=False).stdout
    assert out.startswith("() ")
    assert "'cache': True" in out
    assert "'memory_limit_bytes': None" in out


@pytest.mark.parametrize(("text", "size"), [("500MB", 500_000_000), ("1.5 GB", 1_500_000_000)])
def test_sizes(text: str, size: int):
    out = CliRunner().invoke(command, ["--compile-memory", text, "-t", "cpu", "-t", "iree-vmvx"]).stdout
    assert f"'memory_limit_bytes': {size}" in out
    assert out.startswith("('cpu', 'iree-vmvx') ")


def test_what_is_no_size_is_a_wrong_command_line():
    result = CliRunner().invoke(command, ["--compile-memory", "lots"])
    assert result.exit_code == 2
    assert "write it as 500MB or 20GB" in result.stderr
