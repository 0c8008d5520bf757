"""Options that several commands share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from aotpipe.build.request import Until

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
STAGES: Final[tuple[Until, ...]] = ("canonicalize", "export", "lower")


class Size(click.ParamType[int]):
    """A number of bytes such as `500MB`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it, or refuse the command line."""
        from aotpipe.errors import StoreError
        from aotpipe.runtime.store import parse_size

        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except StoreError as error:
            self.fail(f"{error.message}; {error.hint}", param, ctx)


def targets(function: F) -> F:
    """`-t`, several times."""
    return click.option(
        "-t",
        "--target",
        "targets",
        multiple=True,
        metavar="TARGET",
        help="What to build for: a target, a shorthand or a glob; may be given several times. "
        "[default: iree-cpu-host]",
    )(function)


def out(function: F) -> F:
    """`-o`."""
    return click.option(
        "-o", "--out", type=click.Path(path_type=Path), metavar="OUT", help="The folder to write."
    )(function)


def as_json(function: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON value on stdout.")(function)


def quiet(function: F) -> F:
    """`-q`."""
    return click.option("-q", "--quiet", is_flag=True, help="Say warnings and errors only.")(function)


class _Buckets(click.ParamType[tuple[str, str]]):
    """A Dim's sizes such as `batch=1,8,64`, as `backends.xla.buckets` reads them."""

    name = "buckets"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Read it, or refuse the command line."""
        from aotpipe.errors import NoBuckets
        from aotpipe.runtime.xla.buckets import Buckets

        if isinstance(value, tuple):
            return value
        name, _, given = str(value).partition("=")
        try:
            Buckets.of(name, given)
        except NoBuckets as error:
            self.fail(f"{value!r}: {error.message}; {error.hint}", param, ctx)
        return name, given


class _ValueRange(click.ParamType[tuple[str, tuple[float, float]]]):
    """The values of an input such as `input_ids=0:30521`."""

    name = "range"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[float, float]]:
        """Read it, or refuse the command line."""
        if isinstance(value, tuple):
            return value
        name, _, given = str(value).rpartition("=")
        try:
            # A whole number stays one: an input of integers has such ends.
            low, high = (float(end) if set(end) & set(".einEIN") else int(end) for end in given.split(":"))
        except ValueError:
            self.fail(f"{value!r} is no range of values; write NAME=LOW:HIGH", param, ctx)
        if not name or not low <= high:
            self.fail(f"{value!r} has no name, or ends below its beginning; write NAME=LOW:HIGH", param, ctx)
        return name, (low, high)


def _as_dict(_: click.Context, __: click.Parameter, values: tuple[tuple[str, T], ...]) -> dict[str, T]:
    return dict(values)


def _checked(read: Callable[[Any, Any], object]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Reads a mesh, or rules, or refuses the command line; the values stay texts."""

    def check(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        from aotpipe.errors import MeshError
        from aotpipe.runtime.xla import mesh as meshes

        try:
            if value:
                read(meshes, value)
        except MeshError as error:
            raise click.BadParameter(f"{error.message}; {error.hint}", ctx, param) from error
        return value

    return check


_MODEL_OPTIONS: Final[tuple[tuple[Until, Callable[[Any], Any]], ...]] = (
    ("canonicalize", click.option("--name", help="Names the bundle. [default: the Spec's name]")),
    (
        "canonicalize",
        click.option(
            "--optional",
            multiple=True,
            metavar="NAME",
            help="An input that a call may leave out, such as batch.mask; may be given several times.",
        ),
    ),
    (
        "canonicalize",
        click.option(
            "--tensorize",
            multiple=True,
            metavar="NAME",
            help="A Python number that is to be an input: an argument, or an attribute such as self.scale; "
            "may be given several times.",
        ),
    ),
    (
        "canonicalize",
        click.option(
            "--value-range",
            "value_ranges",
            multiple=True,
            type=_ValueRange(),
            callback=_as_dict,
            metavar="NAME=LOW:HIGH",
            help="The values that a call may pass for an input, such as input_ids=0:30521; "
            "once for each input.",
        ),
    ),
    (
        "export",
        click.option(
            "--dtype",
            metavar="DTYPE",
            help="Compute products of matrices in bf16 or f16, and store their weights so.",
        ),
    ),
    (
        "export",
        click.option(
            "--keep-float32",
            multiple=True,
            metavar="OP",
            help="With --dtype: an op such as gelu, or a group of ops such as attention, that stays in "
            "float32 beside norms, softmax, losses and sums; may be given several times.",
        ),
    ),
    (
        "lower",
        click.option(
            "--allow-islands",
            is_flag=True,
            help="Cut out what cannot be in a program: the bundle is a chain of programs and Python.",
        ),
    ),
    (
        "lower",
        click.option(
            "--buckets",
            multiple=True,
            type=_Buckets(),
            callback=_as_dict,
            metavar="DIM=SIZES",
            help="The sizes of a Dim that XLA programs are built for, such as batch=1,8,64; calls are padded "
            "to the next. batch=auto plans them, batch=auto:25% to waste less, batch=exact:1,8 pads nothing. "
            "Once for each Dim.",
        ),
    ),
    (
        "lower",
        click.option(
            "--dialect",
            type=click.Choice(["torch", "stablehlo"]),
            help="What the model is lowered to for IREE targets; stablehlo is the way that XLA targets take. "
            "[default: torch]",
        ),
    ),
    (
        "lower",
        click.option(
            "--mesh",
            callback=_checked(lambda meshes, value: meshes.Mesh.of(value)),
            metavar="MESH",
            help="Build each XLA program for several devices: data=2,model=2, or 2x2 with the axes x and y.",
        ),
    ),
    (
        "lower",
        click.option(
            "--shard",
            multiple=True,
            callback=_checked(lambda meshes, value: meshes.rules(value)),
            metavar="PATTERN=(AXES)",
            help="How arrays are split over a mesh: a regular expression for whole names of weights, states "
            "and inputs, and for each dim an axis or None, such as 'fc1\\.weight=(model, None)'; may be "
            "given several times, and the first that matches counts.",
        ),
    ),
)
"""Each with the first stage of a build that it changes, by the names of `build.request.ModelOptions`."""


def model(until: Until = "lower", *, required: bool = True) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """MODEL, and its options up to the last stage that a command runs, which gets them as `options`."""
    chosen = [option for stage, option in _MODEL_OPTIONS if STAGES.index(stage) <= STAGES.index(until)]

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def command(**given: Any) -> T:
            return function(options={name: given.pop(name) for name in names}, **given)

        before = len(getattr(function, "__click_params__", []))
        for option in reversed(chosen):
            option(command)
        names = [parameter.name for parameter in command.__click_params__[before:]]  # type: ignore[attr-defined]
        metavar = "MODEL" if required else "[MODEL]"
        return click.argument("model", metavar=metavar, required=required)(command)

    return decorate


fat = click.option(
    "--fat",
    is_flag=True,
    help="One program for several devices: of IREE's targets, the first of each driver.",
)


variants = click.option(
    "--variants/--no-variants",
    default=True,
    help="Let programs for levels of x86-64 hold those of later levels, taken by CPUs that have them.",
)


def compiling(function: F) -> F:
    """What a compile may use, and whether the cache takes part."""
    for option in reversed(
        (
            click.option(
                "--flag",
                "extra_flags",
                multiple=True,
                metavar="FLAG",
                help="A flag for the compiler, passed last: for XLA where it begins with --xla, else for "
                "iree-compile; may be given several times.",
            ),
            click.option(
                "--jobs",
                type=click.IntRange(min=1),
                help="Compiles at a time. [default: one per core]",
            ),
            click.option(
                "--compile-timeout",
                "timeout_s",
                type=click.FloatRange(min=1),
                metavar="SECONDS",
                help="How long one compile may take. [default: 1800]",
            ),
            click.option(
                "--compile-memory",
                "memory_limit_bytes",
                type=Size(),
                metavar="SIZE",
                help="How much memory one compile may take. [default: 4/5 of this machine's]",
            ),
            click.option(
                "--cache/--no-cache", default=True, help="Keep the results of stages for the next build."
            ),
        )
    ):
        function = option(function)
    return function


def find_in_working_folder() -> None:
    """Let Python find modules there, as `python -m` does: those of a bundle's islands."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
