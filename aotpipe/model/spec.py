"""What to build: a model, how it is called, and what may vary between calls.

`as_spec` takes what a user has in hand (a Spec, an nn.Module, a function); `load` takes what a user types
(`path.py`, `path.py:NAME`, `package.module:NAME`). Both give a `Spec` and raise a `ModelError`. Importing
this module imports no torch, and a reference to nothing fails without it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

from aotpipe.core.dims import AUTO, Auto, Dim
from aotpipe.core.signature import BUNDLE_NAME
from aotpipe.errors import NoExampleInputs, SpecInvalid
from aotpipe.model import reference, source

__all__ = ["AUTO", "Auto", "Dim", "EntryPoint", "Example", "RandomSource", "Spec", "as_spec", "load"]

RandomSource = Literal["state", "input"]
"""Where random numbers come from: a generator that the program keeps as state, or a seed of each call."""


class Example:
    """One more example call, written as the call is: `Example(x, mask=mask)`."""

    __slots__ = ("args", "kwargs")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs

    @classmethod
    def of(cls, given: object) -> Example:
        """An example from args as a tuple or from kwargs as a dict.

        Raises:
            SpecInvalid: It is neither.
        """
        match given:
            case Example():
                return given
            case tuple():
                return cls(*given)
            case Mapping():
                return cls(**given)
        raise SpecInvalid(
            f"an example is a {type(given).__name__}", hint="write it as the call is: Example(x, mask=mask)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPoint:
    """One way to call the model.

    Attributes:
        args, kwargs: Example inputs; any pytree of tensors, numbers, None, strings, dataclasses.
        dynamic_shapes: Input name (dotted for nested ones, or torch.export's own nested form) -> {dim: Dim}.
        value_ranges: Input name -> (lowest, highest) value that a call may pass.
        method: The model's method to call.
        examples: More example calls: what one of them has and another lacks, a call may leave out.
        optional: Names of further inputs that a call may leave out.
        tensorize: Names of Python numbers that become inputs: arguments, or attributes (`self.scale`).
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    value_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    method: str = "forward"
    examples: tuple[Example, ...] = ()
    optional: tuple[str, ...] = ()
    tensorize: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("optional", "tensorize"):
            given = getattr(self, name)
            if isinstance(given, str):
                raise SpecInvalid(f"{name} is a str, not a tuple", hint=f"write `{name}=({given!r},)`")
            object.__setattr__(self, name, tuple(given))
        object.__setattr__(self, "examples", tuple(map(Example.of, self.examples)))
        if not isinstance(self.args, tuple):
            raise SpecInvalid(
                f"args is a {type(self.args).__name__}, not a tuple", hint="write `args=(x,)` for one input"
            )
        for name, (low, high) in self.value_ranges.items():
            if not low <= high:
                raise SpecInvalid(f"the value range of {name!r} is empty: ({low}, {high})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A model and its entry points.

    Attributes:
        name: Names the bundle.
        build: Makes the model (an nn.Module in eval mode, or a function of tensors); called once per build.
        entry_points: Name -> how to call it; they share weights and state.
        tolerance: The allowed multiple of eager float32's own error against float64.
        seed: Seeds `build`, the parity inputs, and the generator that `random` asks for.
        random: Where the random numbers that the model draws come from; None refuses a model that draws some.
    """

    name: str
    build: Callable[[], Callable[..., Any]]
    entry_points: Mapping[str, EntryPoint]
    tolerance: float | None = None
    seed: int = 0
    random: RandomSource | None = None

    def __post_init__(self) -> None:
        if not BUNDLE_NAME.fullmatch(self.name):
            raise SpecInvalid(
                f"{self.name!r} cannot name a bundle", hint="use letters, digits, `_`, `-` and `.`"
            )
        if self.random not in (None, *get_args(RandomSource)):
            raise SpecInvalid(
                f"random numbers come from no {self.random!r}", hint="write random='state' or random='input'"
            )
        if not self.entry_points:
            raise SpecInvalid(f"the Spec {self.name!r} has no entry point")
        for name in self.entry_points:
            if not name.isidentifier():
                raise SpecInvalid(f"{name!r} cannot name an entry point", hint="use an identifier")


def as_spec(
    model_or_spec: object,
    *,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    value_ranges: Mapping[str, tuple[float, float]] | None = None,
    examples: Sequence[Any] = (),
    optional: Sequence[str] = (),
    tensorize: Sequence[str] = (),
    name: str | None = None,
    entry_points: Mapping[str, EntryPoint] | None = None,
    seed: int = 0,
    random: RandomSource | None = None,
) -> Spec:
    """Make a Spec of a Spec, an nn.Module, a method of one, or a function of tensors.

    Args:
        model_or_spec: What to build. A Spec brings its own inputs; its name and `random` can be replaced, and
            `optional`, `tensorize` and `value_ranges` extended, where an entry point has what they name.
        args: Example inputs of the single entry point; this and the next six are `EntryPoint`'s fields.
        kwargs: Example inputs passed by name.
        dynamic_shapes: What may vary.
        value_ranges: What values may be passed.
        examples: More example calls.
        optional: What a call may leave out.
        tensorize: Which Python numbers become inputs.
        name: Names the bundle; by default the class's or function's name.
        entry_points: Several ways to call it, in place of `args` and its kin.
        seed: Seeds the parity inputs, and the generator that `random` asks for.
        random: Where the model's random numbers come from: `state` or `input`.

    Raises:
        NoExampleInputs: The model needs inputs and none are given.
        SpecInvalid: Not a model, or both `args` and `entry_points`.
    """
    single = bool(args or kwargs or dynamic_shapes is not None or examples)
    if isinstance(model_or_spec, Spec):
        if single or entry_points:
            raise SpecInvalid(
                "a Spec brings its own inputs", hint="put args and dynamic_shapes into its EntryPoint"
            )
        named = replace(model_or_spec, name=name) if name else model_or_spec
        named = replace(named, random=random) if random else named
        return _varied(named, optional, tensorize, value_ranges or {})
    if (single or value_ranges) and entry_points:
        raise SpecInvalid("both args and entry_points are given", hint="put args into an EntryPoint")
    if inspect.isclass(model_or_spec):
        raise SpecInvalid(
            f"{model_or_spec.__name__} is a class, not a model",
            hint=f"make an instance of it: {model_or_spec.__name__}(...).eval()",
            where=source.of_definition(model_or_spec),
        )
    model, method = model_or_spec, "forward"
    if inspect.ismethod(model_or_spec) and reference.is_torch_module(model_or_spec.__self__):
        # The module of a bound method holds the weights.
        model, method = model_or_spec.__self__, model_or_spec.__name__
    if not callable(model):
        raise SpecInvalid(
            f"a {type(model).__name__} is no model", hint="give an nn.Module, a function of tensors or a Spec"
        )
    if not entry_points:
        entry = EntryPoint(
            args=args,
            kwargs=dict(kwargs or {}),
            dynamic_shapes=dynamic_shapes,
            value_ranges=dict(value_ranges or {}),
            method=method,
            examples=tuple(examples),
            optional=tuple(optional),
            tensorize=tuple(tensorize),
        )
        if not args and not kwargs:
            _require_no_inputs(model, method)
        entry_points = {method if method.isidentifier() else "forward": entry}
    elif optional or tensorize:
        raise SpecInvalid(
            "both entry_points and optional or tensorize are given", hint="put them into the EntryPoint"
        )
    return Spec(
        name=name or _default_name(model),
        build=cast("Callable[[], Callable[..., Any]]", lambda: model),
        entry_points=dict(entry_points),
        seed=seed,
        random=random,
    )


def _varied(
    spec: Spec,
    optional: Sequence[str],
    tensorize: Sequence[str],
    value_ranges: Mapping[str, tuple[float, float]],
) -> Spec:
    """The Spec with more optional inputs, tensorized numbers and value ranges in its only entry point."""
    if not optional and not tensorize and not value_ranges:
        return spec
    if len(spec.entry_points) > 1:
        raise SpecInvalid(
            f"{spec.name!r} has several entry points, and which one optional, tensorize or "
            "value_ranges are for is not said",
            hint="put them into the EntryPoint",
        )
    [(name, entry)] = spec.entry_points.items()
    entry = replace(
        entry,
        optional=(*entry.optional, *optional),
        tensorize=(*entry.tensorize, *tensorize),
        value_ranges={**entry.value_ranges, **value_ranges},
    )
    return replace(spec, entry_points={name: entry})


def load(ref: str) -> Spec:
    """Find what a reference names and make a Spec of it.

    `ref` is `path.py`, `path.py:NAME` or `package.module:NAME` and names a Spec, an nn.Module, or a function
    or class that gives one when it is called without arguments. Without NAME the file's `SPEC` is taken, else
    its only Spec, else its only nn.Module, else its only function annotated to return one of these (or called
    `build_model`, `get_model`, `make_model`), else its only nn.Module class.

    A model that is no Spec needs example inputs: `NAME.example_inputs()` where the model has that method,
    else the file's `EXAMPLE_INPUTS` or `example_inputs` (a tuple of args, a dict of kwargs, one tensor, or a
    function that gives one of these). The file's `DYNAMIC_SHAPES`, `VALUE_RANGES`, `MORE_EXAMPLES`,
    `OPTIONAL`, `TENSORIZE` and `RANDOM` are taken where given.

    Two loads of one file give the same weights: torch, numpy and random are seeded first.

    Raises:
        ModelNotFound, ModelImportFailed, AmbiguousModel, NoExampleInputs, SpecInvalid
    """
    found = reference.find(ref, Spec)
    if isinstance(found.value, Spec):
        return found.value
    model, inputs = found.value, reference.example_inputs(found)
    if inputs is None:
        raise NoExampleInputs(
            f"nothing says what {found.name!r} is called with",
            hint=f"add `EXAMPLE_INPUTS = (torch.randn(1, 8),)` to {source.shown(found.path)}",
            where=source.of_definition(model),
        )
    args, kwargs = inputs
    return as_spec(
        model,
        args=args,
        kwargs=kwargs,
        dynamic_shapes=found.setting("DYNAMIC_SHAPES"),
        value_ranges=cast("Mapping[str, tuple[float, float]] | None", found.setting("VALUE_RANGES")),
        examples=found.setting("MORE_EXAMPLES") or (),
        optional=found.setting("OPTIONAL") or (),
        tensorize=found.setting("TENSORIZE") or (),
        name=found.bundle_name,
        random=cast("RandomSource | None", found.setting("RANDOM")),
    )


def _default_name(model: object) -> str:
    while isinstance(model, functools.partial):
        model = model.func
    name = model.__name__ if inspect.isroutine(model) else type(model).__name__
    return name if BUNDLE_NAME.fullmatch(name) else "model"


def _require_no_inputs(model: Callable[..., Any], method: str) -> None:
    call = getattr(model, method, model) if reference.is_torch_module(model) else model
    needed = reference.needed(call)
    if needed:
        raise NoExampleInputs(
            f"{_default_name(model)} needs {', '.join(needed)}, and no example inputs are given",
            hint=f"pass args=({', '.join(needed)},)",
            where=source.of_definition(model),
        )
