"""What a user asks of a model, read once: from a command line, or from the arguments of a Python function.

    request = Request.of("model.py", ["iree-cpu-host"], dtype="bf16")
    request.load()                     # the Spec, as the options change it

Every function and every command that takes a model takes the same options, by the names of `ModelOptions`;
`FIRST_STAGE` says which stage of a build each of them changes first. Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypedDict, Unpack, cast, get_args

from aotpipe.backends import ModuleKey, Ruleset, module_of, ruleset
from aotpipe.backends import dialect as dialect_of
from aotpipe.backends.xla.estimate import chips
from aotpipe.build.record import front_key
from aotpipe.core.precision import Precision, Quantization, quantization_of
from aotpipe.core.stages import Dialect
from aotpipe.core.targets import Backend, Target, expand
from aotpipe.errors import MeshError, NoBuckets, SpecInvalid, TargetError
from aotpipe.model.recipe import PROMPT_LENGTH, Recipe
from aotpipe.runtime import installed
from aotpipe.runtime.xla.buckets import Buckets, Declared
from aotpipe.runtime.xla.mesh import DeclaredMesh, DeclaredRules, Mesh, Rule, rules

if TYPE_CHECKING:
    from aotpipe.model.spec import EntryPoint, Spec

Until = Literal["canonicalize", "export", "lower"]
_STAGES: Final = get_args(Until)


class ModelOptions(TypedDict, total=False):
    """The options of a model beside `args` and `kwargs`, its example inputs; all have defaults.

    Attributes:
        dynamic_shapes, value_ranges, examples, optional, tensorize: As `model.spec.EntryPoint` takes them.
        entry_points: Several ways to call the model, in place of `args` and its kin.
        name: Names the bundle; by default the Spec's name.
        random: Where the model's random numbers come from: `state`, a generator that the program keeps, or
            `input`, a seed that each call passes as `random_seed`.
        decoder: Make a causal language model of transformers a decoder: `cache=1024,slots=8`
            (`aotpipe.model.recipe`).
        dtype: `bf16` or `f16`: what products of matrices are computed in, and their weights stored in
            (`aotpipe.core.precision`).
        quantize: `int8`: store the weights of linear layers so, and multiply integers (`model.quantization`).
        keep_float32: Ops, and groups of ops, that stay in float32 beside norms, softmax, losses and sums.
        allow_islands: Cut out what cannot be in a program: functions marked by `eager_island`, and ops that
            have no lowering. The bundle then holds a chain of programs and Python.
        buckets: By Dim, the sizes that XLA programs are built for, beside those of the example.
        dialect: What the model is lowered to for IREE: `torch` by default, or `stablehlo`, as for XLA.
        mesh: The devices that each XLA program is for, such as `data=2,model=2`; one where None.
        shard: How arrays are split over them: by a pattern of their names, the axes of each dim.
        samples: A file of calls, which programs are compared on too (`validate.samples`).
        special_values: Compare programs on NaN, infinities, denormals and the ends of integers too.
    """

    dynamic_shapes: Any
    value_ranges: Mapping[str, tuple[float, float]] | None
    examples: Sequence[Any]
    optional: Sequence[str]
    tensorize: Sequence[str]
    entry_points: Mapping[str, EntryPoint] | None
    name: str | None
    random: str | None
    quantize: str | None
    decoder: str | None
    dtype: str | None
    keep_float32: Sequence[str]
    allow_islands: bool
    buckets: Mapping[str, Declared] | None
    dialect: str | None
    mesh: DeclaredMesh | None
    shard: DeclaredRules
    samples: str | None
    special_values: bool


FIRST_STAGE: Final[Mapping[str, Until]] = {
    **dict.fromkeys(("dynamic_shapes", "value_ranges", "examples", "optional", "tensorize"), "canonicalize"),
    **dict.fromkeys(("entry_points", "name", "random", "decoder", "quantize"), "canonicalize"),
    **dict.fromkeys(("dtype", "keep_float32"), "export"),
    **dict.fromkeys(("allow_islands", "buckets", "dialect", "mesh", "shard"), "lower"),
    **dict.fromkeys(("samples", "special_values"), "lower"),
}
"""By option, the first stage of a build that it changes."""
_OF_SPEC: Final = tuple(
    name
    for name, stage in FIRST_STAGE.items()
    if stage == "canonicalize" and name not in ("decoder", "quantize")
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A model, how it is called, and what it is lowered to.

    Attributes:
        model: A reference such as `model.py`, a Spec, an nn.Module, or a function of tensors.
        spec_options: `name`, and for objects the fields of an EntryPoint, as `model.spec.as_spec` takes them.
        backends: The compilers that take part, in a fixed order, with the dialect that each is given.
    """

    model: object
    spec_options: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    backends: Mapping[Backend, Dialect] = field(default_factory=lambda: {"iree": "torch"})
    buckets: Mapping[str, Buckets] = field(default_factory=dict)
    islands: bool = False
    mesh: Mesh | None = None
    rules: tuple[Rule, ...] = ()
    quantization: Quantization | None = None
    precision: Precision | None = None
    samples: Path | None = None
    special_values: bool = False
    decoder: Recipe | None = None

    @classmethod
    def of(
        cls,
        model: object,
        targets: Sequence[str] = (),
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        until: Until = "lower",
        **options: Unpack[ModelOptions],
    ) -> Self:
        """Read what a user asks.

        Without targets, the compilers are those that the options are for: XLA's where there are buckets or a
        mesh, and IREE's. `until` is the last stage that is run for this request; an option that changes a
        later one is refused. The other arguments are those of `build`.

        Raises:
            UnknownTarget: No target of that name.
            NoBuckets: A bucket is no size, or none of the targets has buckets.
            TargetError: Islands are allowed, and a target has no chains; the dialect is none of IREE's, or
                no target is.
            MeshError: It is no mesh, or a target has none of so many devices; arrays are split over no mesh.
            SpecInvalid: Islands are allowed, and another precision is asked for; no such precision or
                quantization; an option that changes a stage which is not run.
        """
        _require_known(options, until)
        chosen = expand(targets)
        islands, iree = options.get("allow_islands", False), _named(options.get("dialect"))
        decoder = Recipe.of(given) if (given := options.get("decoder")) else None
        buckets, mesh = options.get("buckets") or {}, options.get("mesh")
        precision = Precision.of(options.get("dtype"), options.get("keep_float32", ()))
        backends: dict[Backend, Dialect] = {
            each.backend: dialect_of(each, iree or "torch") for each in chosen
        }
        if not chosen:
            backends = {"iree": iree or "torch"}
            if buckets or mesh is not None:
                backends["xla"] = "stablehlo"
        if decoder and "xla" in backends:
            buckets = {PROMPT_LENGTH: "auto", **buckets}
        if islands and "stablehlo" in backends.values():
            raise TargetError(
                "only IREE's programs of the torch dialect run in a chain with islands of Python",
                hint="leave the XLA targets and --dialect out, or --allow-islands",
            )
        if iree and "iree" not in backends:
            raise TargetError(
                f"the dialect {iree} is for IREE targets, and none is built",
                reason="XLA's programs are made of StableHLO always",
                hint="leave it out, or add a target such as iree-cpu-host",
            )
        if islands and precision:
            raise SpecInvalid(
                "islands of Python get the model's own dtypes, and another one is asked for",
                hint="leave --dtype out, or --allow-islands",
            )
        sizes = {name: Buckets.of(name, given) for name, given in sorted(buckets.items())}
        if sizes and "xla" not in backends:
            raise NoBuckets(
                "buckets are for XLA targets, and none is built",
                hint="leave them out, or add a target such as xla-cpu-host",
            )
        devices, splits = _spread(chosen, mesh, options.get("shard", ()))
        of_spec = {"args": args, "kwargs": kwargs, **{name: options.get(name) for name in _OF_SPEC}}
        return cls(
            model=model,
            spec_options={name: value for name, value in of_spec.items() if value},
            targets=chosen,
            backends=dict(sorted(backends.items())),
            buckets=sizes,
            islands=islands,
            mesh=devices,
            rules=splits,
            quantization=quantization_of(options.get("quantize")),
            precision=precision,
            samples=Path(given) if (given := options.get("samples")) else None,
            special_values=options.get("special_values", False),
            decoder=decoder,
        )

    @property
    def modules(self) -> Mapping[ModuleKey, Ruleset]:
        """The modules that programs are compiled from, each with the rules that its legal program follows.

        A model with islands is cut once, so that the parts have one form for all devices.
        """
        found: dict[ModuleKey, Ruleset] = {
            module_of(each): ruleset(module_of(each), self.backends[each.backend]) for each in self.targets
        }
        if not found:
            found = {backend: ruleset(backend, dialect) for backend, dialect in self.backends.items()}
        if self.islands and len(found) > 1:
            return dict.fromkeys(sorted(found), "torch")
        return dict(sorted(found.items()))

    @property
    def rulesets(self) -> tuple[Ruleset, ...]:
        """Each once, in a fixed order."""
        return tuple(each for each in get_args(Ruleset) if each in self.modules.values())

    def require_installed(self) -> None:
        """Look for what building takes beyond what running takes, before any of it is imported.

        Raises:
            TargetError: A package is missing; the hint is the line to copy.
        """
        if "stablehlo" in self.backends.values():
            installed.require()
        installed.require("torch", "jinja2", *(["iree-base-compiler"] if "iree" in self.backends else []))

    def load(self) -> Spec:
        """Find or make the Spec.

        Raises:
            ModelError: There is no model, or nothing says what it is called with.
        """
        from aotpipe.model import spec

        if self.decoder is not None:
            from aotpipe.model import decoder

            return decoder.of(self.model, self.decoder, **self.spec_options)
        found = spec.load(self.model) if isinstance(self.model, str) else self.model
        return spec.as_spec(found, **self.spec_options)

    @cached_property
    def key(self) -> str | None:
        """The digest of what is prepared for the compilers; None where objects are part of the request.

        To be read before `load`, which may add the user's folder to `sys.path`.
        """
        as_text = {"name", "random", "optional", "tensorize", "value_ranges"}
        if not isinstance(self.model, str) or self.spec_options.keys() - as_text:
            return None
        lowering = {
            "modules": dict(self.modules),
            "buckets": {name: own.to_json() for name, own in self.buckets.items()},
            "islands": self.islands,
            "mesh": str(self.mesh or ""),
            "rules": list(map(str, self.rules)),
            "quantization": self.quantization or "",
            "samples": str(self.samples.absolute()) if self.samples else "",
            "special_values": self.special_values,
            "decoder": str(self.decoder or ""),
            "precision": [self.precision.dtype, *self.precision.keep] if self.precision else [],
        }
        options = {
            key: each if key in {"name", "random", "value_ranges"} else list(each)
            for key, each in self.spec_options.items()
        }
        return front_key(self.model, {**options, **lowering})


def _require_known(options: Mapping[str, Any], until: Until) -> None:
    for name, value in options.items():
        if name not in FIRST_STAGE:
            raise TypeError(f"there is no option {name!r}; the options are: {', '.join(FIRST_STAGE)}")
        stage = FIRST_STAGE[name]
        if value and _STAGES.index(stage) > _STAGES.index(until):
            raise SpecInvalid(
                f"the option {name} is given, and nothing that it changes is made",
                reason=f"it changes the stage {stage}, and this ends with the stage {until}",
                hint="leave it out",
            )


def _spread(
    targets: Iterable[Target], mesh: DeclaredMesh | None, shard: DeclaredRules
) -> tuple[Mesh | None, tuple[Rule, ...]]:
    splits = rules(shard)
    if mesh is None:
        if splits:
            raise MeshError(
                f"--shard {splits[0]} splits an array over no mesh",
                hint="name the devices: --mesh data=2,model=2",
            )
        return None, ()
    devices = Mesh.of(mesh)
    for target in targets:
        chips.require_topology(target, devices)
    return devices, splits


def _named(iree: str | None) -> Dialect | None:
    if iree is not None and iree not in get_args(Dialect):
        raise TargetError(
            f"IREE's programs are made of no dialect {iree!r}",
            hint=f"take one of: {', '.join(get_args(Dialect))}",
        )
    return cast("Dialect | None", iree)
