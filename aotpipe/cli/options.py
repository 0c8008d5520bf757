"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from aotpipe.errors import AotpipeError
from aotpipe.runtime.store import parse_size

if TYPE_CHECKING:
    from aotpipe.build.request import Until

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

targets = click.option(
    "-t",
    "--target",
    "targets",
    multiple=True,
    metavar="TARGET",
    help="What to build for: a target, a shorthand or a glob; may be given several times. "
    "[default: iree-cpu-host]",
)
bundle_path = click.argument("bundle", type=click.Path(path_type=Path), metavar="BUNDLE")
signature = click.option(
    "--signature",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The signature's file. [default: BUNDLE.sig]",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON value on stdout.")
quiet = click.option("-q", "--quiet", is_flag=True, help="Print warnings and errors only.")
fat = click.option(
    "--fat",
    is_flag=True,
    help="Compile one program for several devices: of IREE's targets, the first of each driver.",
)
variants = click.option(
    "--variants/--no-variants",
    default=True,
    help="Add programs for later levels of x86-64 to those of earlier ones; a CPU takes the best it can run.",
)


def out(help_text: str = "The folder to write.", *, is_file: bool = False) -> Callable[[F], F]:
    """Where a command writes: a folder, or a file."""
    path = click.Path(path_type=Path, dir_okay=not is_file)
    return click.option("-o", "--out", type=path, metavar="FILE" if is_file else "OUT", help=help_text)


def bundle(function: Callable[..., T]) -> Callable[..., T]:
    """BUNDLE, and the key that it must be signed with; a command gets its path, or what `trusted` gave."""

    @bundle_path
    @click.option(
        "--require-signature",
        "key",
        type=click.Path(path_type=Path),
        metavar="PUBLIC_KEY",
        help="Refuse BUNDLE unless it was signed with the private key of this one.",
    )
    @signature
    @functools.wraps(function)
    def command(*, bundle: Path, key: Path | None, signature: Path | None, **given: Any) -> T:
        if key is None:
            return function(bundle=bundle, **given)
        from aotpipe.runtime.bundle import trusted

        return function(bundle=trusted(bundle, key, signature=signature), **given)

    return command


class _Read(click.ParamType[Any]):
    """A value that a function reads from its text; what the function raises refuses the command line."""

    name = "text"

    def __init__(self, read: Callable[[str], Any]) -> None:
        self.read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a text; what was read already stays."""
        try:
            return self.read(value) if isinstance(value, str) else value
        except AotpipeError as error:
            place = "" if value in error.message else f"{value!r}: "
            self.fail(f"{place}{error.message}; {error.hint}", param, ctx)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


def _buckets(text: str) -> tuple[str, str]:
    """A Dim's sizes such as `batch=1,8,64`; they stay a text."""
    from aotpipe.runtime.xla.buckets import Buckets

    name, _, given = text.partition("=")
    Buckets.of(name, given)
    return name, given


def _value_range(text: str) -> tuple[str, tuple[float, float]]:
    """The values of an input such as `input_ids=0:30521`."""
    name, _, given = text.rpartition("=")
    try:
        # A whole number stays one: an input of integers has such ends.
        low, high = (float(end) if set(end) & set(".einEIN") else int(end) for end in given.split(":"))
    except ValueError:
        raise ValueError("is no range of values; write NAME=LOW:HIGH") from None
    if not name or not low <= high:
        raise ValueError("has no name, or ends below its beginning; write NAME=LOW:HIGH")
    return name, (low, high)


def _recipe(text: str) -> str:
    from aotpipe.model.recipe import Recipe

    return str(Recipe.of(text))


def _mesh(text: str) -> str:
    from aotpipe.runtime.xla.mesh import Mesh

    Mesh.of(text)
    return text


def _rule(text: str) -> str:
    from aotpipe.runtime.xla.mesh import rules

    rules([text])
    return text


def _as_dict(_: click.Context, __: click.Parameter, values: tuple[tuple[str, T], ...]) -> dict[str, T]:
    return dict(values)


_MODEL_OPTIONS: Final[Mapping[Until, tuple[Callable[[Any], Any], ...]]] = {
    "canonicalize": (
        click.option("--name", help="Names the bundle. [default: the Spec's name]"),
        click.option(
            "--decoder",
            type=_Read(_recipe),
            metavar="SIZES",
            help="Make a causal language model of transformers a decoder that `aotpipe serve` generates text "
            "with, such as cache=1024,slots=8: texts of 1024 tokens, 8 at once; prompt=512 allows shorter "
            "prompts only.",
        ),
        click.option(
            "--optional",
            multiple=True,
            metavar="NAME",
            help="An input that a call may leave out, such as batch.mask; may be given several times.",
        ),
        click.option(
            "--tensorize",
            multiple=True,
            metavar="NAME",
            help="A Python number that becomes an input: an argument, or an attribute such as self.scale; "
            "may be given several times.",
        ),
        click.option(
            "--value-range",
            "value_ranges",
            multiple=True,
            type=_Read(_value_range),
            callback=_as_dict,
            metavar="NAME=LOW:HIGH",
            help="The values that a call may pass for an input, such as input_ids=0:30521; "
            "once for each input.",
        ),
        click.option(
            "--random",
            type=click.Choice(["state", "input"]),
            help="Where the random numbers that the model draws come from: a generator that the program "
            "keeps as state, or a seed that each call passes as random_seed. "
            "[default: such a model is refused]",
        ),
        click.option(
            "--quantize",
            metavar="SCHEME",
            help="int8: store the weights of linear layers in 8 bits, and multiply integers.",
        ),
    ),
    "export": (
        click.option(
            "--dtype",
            metavar="DTYPE",
            help="Compute products of matrices in bf16 or f16, and store their weights in it.",
        ),
        click.option(
            "--keep-float32",
            multiple=True,
            metavar="OP",
            help="With --dtype: an op such as gelu, or a group of ops such as attention, that stays in "
            "float32 beside norms, softmax, losses and sums; may be given several times.",
        ),
    ),
    "lower": (
        click.option(
            "--allow-islands",
            is_flag=True,
            help="Cut out what cannot be in a program: the bundle is a chain of programs and Python.",
        ),
        click.option(
            "--buckets",
            multiple=True,
            type=_Read(_buckets),
            callback=_as_dict,
            metavar="DIM=SIZES",
            help="The sizes of a Dim that XLA programs are built for, such as batch=1,8,64; calls are padded "
            "to the next. batch=auto plans them, batch=auto:25% to waste less, batch=exact:1,8 pads nothing. "
            "Once for each Dim.",
        ),
        click.option(
            "--dialect",
            type=click.Choice(["torch", "stablehlo"]),
            help="The dialect that the model is lowered to for IREE targets; XLA targets take stablehlo. "
            "[default: torch]",
        ),
        click.option(
            "--mesh",
            type=_Read(_mesh),
            metavar="MESH",
            help="Build each XLA program for several devices: data=2,model=2, or 2x2 with the axes x and y.",
        ),
        click.option(
            "--shard",
            multiple=True,
            type=_Read(_rule),
            metavar="PATTERN=(AXES)",
            help="How arrays are split over a mesh: a regular expression for whole names of weights, states "
            "and inputs, and for each dim an axis or None, such as 'fc1\\.weight=(model, None)'; may be "
            "given several times, and the first that matches counts.",
        ),
        click.option(
            "--samples",
            type=click.Path(dir_okay=False),
            metavar="FILE",
            help="Calls of your own that programs are compared on too: a .npz or .safetensors file "
            "with arrays by the names of inputs.",
        ),
        click.option(
            "--special-values",
            is_flag=True,
            help="Compare programs on NaN, infinities, denormals and the ends of integers too.",
        ),
    ),
}
"""By the first stage of a build that they change, with the names of `build.request.ModelOptions`."""


def model(until: Until = "lower", *, required: bool = True) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """MODEL, and its options up to the last stage that a command runs, which gets them as `options`."""
    stages = tuple(_MODEL_OPTIONS)
    chosen = [option for stage in stages[: stages.index(until) + 1] for option in _MODEL_OPTIONS[stage]]

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def command(**given: Any) -> T:
            return function(options={name: given.pop(name) for name in names}, **given)

        before = len(getattr(function, "__click_params__", []))
        _all(*chosen)(command)
        names = [parameter.name for parameter in command.__click_params__[before:]]  # type: ignore[attr-defined]
        metavar = "MODEL" if required else "[MODEL]"
        return click.argument("model", metavar=metavar, required=required)(command)

    return decorate


def _all(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    return lambda function: functools.reduce(lambda found, option: option(found), reversed(options), function)


batching = _all(
    click.option(
        "--max-batch-size",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Rows of calls that are run as one; 0 runs each call on its own.",
    ),
    click.option(
        "--preferred-batch-size",
        type=click.IntRange(1),
        multiple=True,
        help="Rows that are run at once; may be given several times. [default: --max-batch-size]",
    ),
    click.option(
        "--max-queue-delay-us",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="How long a call waits for others to be batched with.",
    ),
    click.option(
        "--max-queue-size",
        type=click.IntRange(1),
        default=1024,
        show_default=True,
        help="Calls that may wait.",
    ),
)
compiling = _all(
    click.option(
        "--flag",
        "extra_flags",
        multiple=True,
        metavar="FLAG",
        help="A flag for the compiler, passed last: for XLA where it begins with --xla, else for "
        "iree-compile; may be given several times.",
    ),
    click.option("--jobs", type=click.IntRange(min=1), help="Compiles at a time. [default: one per core]"),
    click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="What runs compilers: this host, or tasks of Ray on the cluster that RAY_ADDRESS names.",
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
        type=_Read(parse_size),
        metavar="SIZE",
        help="How much memory one compile may take. [default: 4/5 of this machine's]",
    ),
    click.option("--cache/--no-cache", default=True, help="Keep the results of stages for the next build."),
)
"""What a compile may use, and whether the cache takes part."""


def _limit(text: str) -> Any:
    from aotpipe.build.budgets import Limit

    return Limit.parse(text)


budgets = click.option(
    "--budget",
    "budgets",
    multiple=True,
    type=_Read(_limit),
    metavar="[TARGET:]NAME=LIMIT",
    help="Fail where a program takes more: parity=50%, p50='0.8 eager', p90, size=2MB, memory, compile=60s, "
    "programs, coverage; may be given several times. pyproject.toml has them as [tool.aotpipe.budgets].",
)

islands = click.option(
    "--island",
    "islands",
    multiple=True,
    metavar="NAME",
    help="Python that BUNDLE may run, by the name that `aotpipe inspect` lists; may be repeated. It comes "
    "from an installed module, not from BUNDLE or the working folder. [default: none]",
)

check = click.option(
    "--check",
    type=click.Choice(["goldens"]),
    help="Before BUNDLE's program is loaded, run the recorded calls in a process of their own, and refuse a "
    "program that dies or answers otherwise. [default: none]",
)
