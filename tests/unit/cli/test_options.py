"""Options that several commands share."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from aotpipe.build.request import FIRST_STAGE
from aotpipe.cli import cli, options

OF_PYTHON = {"dynamic_shapes", "examples", "entry_points"}
"""Those of a model's options that are objects: a file that is named on a command line holds them itself."""


def taken(name: str) -> set[str]:
    """The options of a model that a command takes."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return {parameter.name or "" for parameter in command.params} & FIRST_STAGE.keys()


@pytest.mark.parametrize("name", ["build", "compile", "bisect", "check", "recompiles"])
def test_a_command_that_makes_programs_takes_every_option_of_a_model(name: str):
    assert taken(name) == FIRST_STAGE.keys() - OF_PYTHON


@pytest.mark.parametrize(
    ("name", "until"),
    [
        ("export", {"canonicalize", "export"}),
        *((name, {"canonicalize"}) for name in ("canonicalize", "validate", "bench")),
    ],
)
def test_other_commands_take_those_of_the_stages_that_they_run(name: str, until: set[str]):
    assert taken(name) == {each for each, stage in FIRST_STAGE.items() if stage in until} - OF_PYTHON


def test_a_command_gets_the_options_of_its_model_in_one_dict():
    @click.command()
    @options.model("export")
    @click.option("--own")
    def command(model: str, options: dict[str, object], own: str) -> None:
        click.echo(f"{model} {own} {options}")

    out = CliRunner().invoke(command, ["m.py", "--own=x", "--dtype", "bf16", "--optional=a", "--optional=b"])
    assert out.stdout.startswith("m.py x {")
    assert "'dtype': 'bf16'" in out.stdout
    assert "'optional': ('a', 'b')" in out.stdout
    assert CliRunner().invoke(command, ["m.py", "--mesh", "2x2"]).exit_code == 2


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("ids=0:30521", {"ids": (0, 30521)}),
        ("x=-1.5:2e3", {"x": (-1.5, 2000.0)}),
        ("a=b=0:1", {"a=b": (0, 1)}),
    ],
)
def test_a_range_of_values(text: str, want: dict[str, tuple[float, float]]):
    @click.command()
    @options.model("canonicalize")
    def command(model: str, options: dict[str, object]) -> None:
        assert options["value_ranges"] == want

    CliRunner().invoke(command, ["m.py", "--value-range", text], catch_exceptions=False)
    for wrong in ("ids", "ids=1", "ids=2:1", "=0:1", "ids=0:x", "ids=0:nan"):
        assert CliRunner().invoke(command, ["m.py", "--value-range", wrong]).exit_code == 2, wrong


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
