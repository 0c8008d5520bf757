"""Legal programs to StableHLO, by way of jax.

`lower(legal, ladders)` traces each entry point once for every choice of sizes and gives portable StableHLO
for each platform. The modules' arguments are the weights in the order of the index, then the state, then the
inputs; their results are the graph's. Where a program pads, the true sizes follow the inputs, as a vector of
int32; where it does or a size depends on data, the true dims of all outputs follow the results. jax's own
settings are neither read nor changed, no backend of jax is started, and torch is left as it is.

Raises:
    NoBuckets: A Dim may vary and no sizes are declared for it.
    CannotPad: An op would let padding reach what counts.
    MeshError: An array cannot be split as a rule says.
    UnsupportedOps: An op has no entry, or the size of its result depends on data.
    LowerFailed: A fault of aotpipe's own.
    TargetError: jax is not installed.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain, product
from typing import TYPE_CHECKING, Any, Final

from torch.fx import Node

from aotpipe.backends.xla.estimate import chips
from aotpipe.backends.xla.mesh import Placement, annotate, resolve
from aotpipe.backends.xla.transpose_folding import fold_transposes
from aotpipe.core import fixes
from aotpipe.core.signature import Signature, Symbol, dim_symbols, evaluate_dim, nearest_sizes
from aotpipe.core.stages import Legal, LegalEntry, Lowered
from aotpipe.errors import Buffer, CannotPad, LowerFailed, NoBuckets, UnsupportedOps
from aotpipe.passes import hops, unbacked
from aotpipe.passes.source_lines import nearest_line
from aotpipe.runtime import installed
from aotpipe.runtime.xla import container
from aotpipe.runtime.xla.buckets import Buckets, Declared, Ladder, planned, takes
from aotpipe.runtime.xla.mesh import Mesh, Rule

if TYPE_CHECKING:
    from aotpipe.backends.xla.interpreter import Lines

PLATFORMS: Final = ("cpu", "cuda", "tpu")
_FIXES: Final = "aotpipe.backends.xla.fixes.modules"
"""jax lowers a few ops in another way for each."""

Sizes = dict[str, int]


def lower(
    legal: Legal,
    buckets: Mapping[str, Declared | Buckets] | None = None,
    *,
    examples: Mapping[str, Mapping[str, int]] | None = None,
    mesh: Mesh | None = None,
    rules: Sequence[Rule] = (),
) -> Lowered:
    """Lower every entry point.

    Args:
        legal: The program.
        buckets: The sizes of each Dim that there is to be a program for.
        examples: By entry point, sizes that there is to be a program for, whatever the buckets.
        mesh: The devices that each program is for; one where None.
        rules: How arrays are split over them.

    Raises:
        NoBuckets, MeshError: They do not fit the program.
        UnsupportedOps, LowerFailed: An op has no form that XLA takes.
    """
    installed.require()
    from aotpipe.backends.xla.estimate import largest_tensors as tensors

    declared = {name: Buckets.of(name, given) for name, given in (buckets or {}).items()}
    placement = placed(legal, declared, mesh, rules)
    whole = whole_ranges(legal.signatures)
    programs: list[dict[str, Any]] = []
    parts: dict[str, bytes] = {}
    largest: dict[str, tuple[Buffer, ...]] = {}
    for entry in legal.entries:
        for sizes, least in _choices(entry, declared, (examples or {}).get(entry.name), whole):
            bound = bound_of(entry, sizes)
            modules, spread = _modules(entry, bound, sizes, least, placement)
            names = {platform: hashlib.sha256(module).hexdigest() for platform, module in modules.items()}
            parts.update((names[platform], module) for platform, module in modules.items())
            program = {
                "entry_point": entry.name,
                "sizes": sizes,
                "padded": least,
                "cut": is_cut(entry, least),
                "weights": list(entry.weights),
                "asserts": list(entry.asserts),
                "arguments_bytes": tensors.arguments_bytes(entry, bound),
                "modules": names,
                **spread,
            }
            programs.append(program)
            largest[chips.name_of(program)] = tensors.largest(entry, bound)
    index: dict[str, Any] = {"programs": programs}
    if placement is not None:
        used = placement.mesh
        index["mesh"] = {"axes": str(used), "devices": used.devices, "splits": placement.described()}
    module = container.write(index, parts)
    return Lowered(
        dialect="stablehlo",
        module=module,
        entry_points=tuple(entry.name for entry in legal.entries),
        digest=hashlib.sha256(module).hexdigest(),
        largest=largest,
        remarks={key: text for entry in legal.entries for key, text in tensors.remarks(entry).items()},
    )


def placed(
    legal: Legal, buckets: Mapping[str, Buckets], mesh: Mesh | None, rules: Sequence[Rule]
) -> Placement | None:
    """How arrays are split over a mesh; None where there is one device.

    Raises:
        NoBuckets: The buckets are of no Dim, or a Dim that varies has none.
        MeshError: The rules do not fit the arrays.
    """
    _require_known(legal, buckets)
    _require_all(legal, buckets)
    for entry in legal.entries:
        next(_choices(entry, buckets, None, whole_ranges(legal.signatures)), None)
    return resolve(mesh, rules, _ranks(legal)) if mesh else None


def ladders(
    signatures: Mapping[str, Signature], buckets: Mapping[str, Declared | Buckets]
) -> Mapping[str, Ladder]:
    """The sizes that each Dim's programs have.

    Raises:
        NoBuckets: They do not fit the Dim.
    """
    declared = {name: Buckets.of(name, given) for name, given in buckets.items()}
    return planned(tuple(whole_ranges(signatures).values()), declared)


def _require_known(legal: Legal, buckets: Mapping[str, Buckets]) -> None:
    known = sorted({symbol.name for entry in legal.entries for symbol in entry.signature.symbols})
    for name in buckets:
        if name not in known:
            raise NoBuckets(
                f"no Dim is called {name!r}",
                reason=f"the Dims are: {', '.join(known) or 'none'}",
                hint="leave its buckets out" if not known else f"name one of them: --buckets {known[0]}=...",
            )


def _require_all(legal: Legal, buckets: Mapping[str, Buckets]) -> None:
    missing = {
        symbol.name: f"{symbol} of {entry.name!r}"
        for entry in legal.entries
        for symbol in symbols_of(entry)
        if symbol.max != symbol.min and symbol.name not in buckets
    }
    if missing:
        symbols = {symbol.name: symbol for entry in legal.entries for symbol in symbols_of(entry)}
        sizes = {
            name: sorted({symbols[name].min, symbols[name].max or symbols[name].min}) for name in missing
        }
        options = " ".join(f"--buckets {name}={','.join(map(str, ends))}" for name, ends in sizes.items())
        dims = f"Dims {', '.join(missing.values())}" if len(missing) > 1 else f"Dim {missing.popitem()[1]}"
        raise NoBuckets(
            f"the {dims} may vary, and an XLA program has fixed sizes",
            hint=f"declare the sizes that it is built for: {options}",
        )


def symbols_of(entry: LegalEntry) -> list[Symbol]:
    """The symbols of an entry point's inputs; one of outputs alone follows them, or depends on data."""
    given = {name for spec in entry.signature.tensor_inputs for dim in spec.dims for name in dim_symbols(dim)}
    return [symbol for symbol in entry.signature.symbols if symbol.name in given]


def whole_ranges(signatures: Mapping[str, Signature]) -> dict[str, Symbol]:
    """The range of each symbol, of which an entry point for a part of the sizes has a part."""
    found: dict[str, Symbol] = {}
    parts = [symbol for signature in signatures.values() for symbol in signature.symbols]
    for each in [*parts, *_constants(signatures)]:
        other = found.get(each.name, each)
        ends = None if each.max is None or other.max is None else max(each.max, other.max)
        found[each.name] = Symbol(each.name, min(each.min, other.min), ends)
    return found


def _constants(signatures: Mapping[str, Signature]) -> Iterator[Symbol]:
    """What a Dim is in programs for one size of it, whose inputs have that size in place of the Dim."""
    for name, first in signatures.items():
        programs = [first, *(each for each in signatures.values() if each.specializes == name)]
        inputs = zip(*(each.inputs for each in programs), strict=True)
        axes = (zip(*(getattr(leaf, "dims", ()) for leaf in leaves), strict=False) for leaves in inputs)
        for dims in chain.from_iterable(axes):
            fixed = [dim for dim in dims if isinstance(dim, int)]
            for dim in (dim for dim in dims if fixed and len(dim_symbols(dim)) == 1):
                (symbol,) = dim_symbols(dim)
                start, after = (evaluate_dim(dim, {symbol: size}) for size in (0, 1))
                for size in fixed:
                    yield Symbol(symbol, *[(size - start) // (after - start)] * 2)


def _choices(
    entry: LegalEntry,
    declared: Mapping[str, Buckets],
    example: Mapping[str, int] | None,
    whole: Mapping[str, Symbol],
) -> Iterator[tuple[Sizes, Sizes]]:
    """Every combination of the sizes of an entry point's Dims, and its example's where no program takes it.

    With each come the Dims of which calls are padded, and the smallest size of these. Where the entry point
    takes a part of the sizes, the next that it takes stands for one that it does not.
    """
    dims = [dim for spec in entry.signature.tensor_inputs for dim in spec.dims]
    symbols = {symbol.name: symbol for symbol in symbols_of(entry)}
    found = _ladders_of([whole[name] for name in symbols], declared)
    choices: list[tuple[Sizes, Sizes]] = []
    for chosen in product(*(found[name].sizes for name in symbols)):
        wanted = dict(zip(symbols, chosen, strict=True))
        sizes = nearest_sizes(entry.signature, wanted)
        if sizes is None or (sizes != wanted and any(ladder.exact for ladder in found.values())):
            continue
        # As the index lists them, which is the order of the program's true sizes.
        padded = [
            name for name, size in sorted(sizes.items()) if not found[name].exact and size > symbols[name].min
        ]
        choice = dict(sizes), {name: symbols[name].min for name in padded}
        if choice not in choices and all(evaluate_dim(dim, sizes) >= 0 for dim in dims):
            choices.append(choice)
    own = {name: size for name, size in (example or {}).items() if name in symbols}
    if own and not any(takes(sizes, least, own) for sizes, least in choices):
        yield own, {}
    elif not choices:
        raise NoBuckets(f"no choice of buckets fits the inputs of {entry.name!r}")
    yield from choices


def _ladders_of(symbols: Sequence[Symbol], declared: Mapping[str, Buckets]) -> dict[str, Ladder]:
    """The sizes of each Dim; one that does not vary has its own."""
    fixed = {symbol.name: Ladder((symbol.min,), exact=True) for symbol in symbols if symbol.max == symbol.min}
    return {**fixed, **planned(symbols, declared)}


def bound_of(entry: LegalEntry, sizes: Sizes) -> Any:
    """What the symbols of an entry point's graph are under the sizes of its Dims.

    Raises:
        LowerFailed: The sizes do not determine the symbols.
    """
    from aotpipe.backends.xla import values

    shapes = [tuple(evaluate_dim(dim, sizes) for dim in spec.dims) for spec in entry.signature.tensor_inputs]
    try:
        return values.Sizes(values.relations(hops.placeholders(entry.graph), shapes))
    except values.UnknownSize as error:
        raise LowerFailed(
            f"the sizes of {entry.name} are not those of its inputs", reason=str(error)
        ) from error


def _modules(
    entry: LegalEntry, bound: Any, sizes: Sizes, least: Sizes, placement: Placement | None
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """An entry point's module for each platform, and where the parts of its arrays are."""
    modules: dict[str, bytes] = {}
    spread: dict[str, Any] = {}
    with own_settings():
        traced = trace(entry, bound, sizes, least)
        for platform in PLATFORMS:
            module = module_of(traced, platform)
            if platform == "cpu":
                for fix in fixes.active(_FIXES):
                    fix.apply(module)
            fold_transposes(module)
            if placement is not None:
                spread = {"spread": annotate(module, *_names(entry, least), placement)}
            modules[platform] = _serialized(module)
    return modules, spread


def _names(entry: LegalEntry, least: Sizes) -> tuple[list[str | None], list[str | None]]:
    """The names of a module's arguments, and of those of its results that have a place already."""
    state = [spec.name for spec in entry.signature.state]
    inputs = [spec.name for spec in entry.signature.tensor_inputs]
    sizes = [None] if least else []
    given = len(entry.signature.tensor_outputs)
    dims = [None] if is_cut(entry, least) else []
    # The next state takes the place of this one.
    results = [*[None] * given, *state, *[None] * len(entry.asserts), *dims]
    return [*entry.weights, *state, *inputs, *sizes], results


def is_cut(entry: LegalEntry, least: Sizes) -> bool:
    """Whether a program has more than counts: of a smaller call, or of sizes that depend on data.

    `least` are the Dims of which calls are padded.
    """
    return bool(least) or bool(unbacked.sizes(entry.graph))


def _ranks(legal: Legal) -> dict[str, int]:
    """How many dims each array has that can be split, by name."""
    ranks = {name: weight.dim() for name, weight in legal.weights.items()}
    for entry in legal.entries:
        given = (*entry.signature.state, *entry.signature.tensor_inputs)
        ranks.update((spec.name, len(spec.dims)) for spec in given)
    return ranks


def module_of(traced: Any, platform: str) -> Any:
    """What was traced, as a module of jaxlib's in the form that suits a platform."""
    return traced.lower(lowering_platforms=(platform,)).compiler_ir("stablehlo")


def trace(entry: LegalEntry, bound: Any, sizes: Sizes, least: Sizes, lines: Lines | None = None) -> Any:
    """Trace an entry point by jax, under `own_settings`.

    Args:
        entry: The entry point.
        bound: What its symbols are, as `bound_of` gives it.
        sizes: Of each of its Dims.
        least: The Dims of which calls are padded, and the smallest size of each.
        lines: Told of the user's line of each op.

    Raises:
        CannotPad, UnsupportedOps, LowerFailed
    """
    import jax

    from aotpipe.backends.xla.interpreter import Interpreter, Refused
    from aotpipe.backends.xla.padding.sizes import extents_of
    from aotpipe.backends.xla.values import INT32, dtype_of

    nodes = hops.placeholders(entry.graph)
    specs = [
        jax.ShapeDtypeStruct(tuple(map(bound.size, node.meta["val"].shape)), dtype_of(node.meta["val"].dtype))
        for node in nodes
    ]

    def forward(*values: Any) -> tuple[Any, ...]:
        operands, true = (values[:-1], values[-1]) if least else (values, None)
        extents = extents_of(entry, bound, sizes, least, true)
        results = Interpreter(extents, lines).run(entry.graph, operands)
        if not is_cut(entry, least):
            return tuple(results)
        nodes = hops.output_values(entry.graph)[: len(entry.signature.tensor_outputs)]
        dims = [extents.true(extents.of(size)) for node in nodes for size in node.meta["val"].shape]
        return (*results, jax.numpy.array(dims, INT32))

    if least:
        specs.append(jax.ShapeDtypeStruct((len(least),), INT32))
    try:
        return jax.jit(forward, keep_unused=True).trace(*specs)
    except Refused as error:
        raise _refusal(entry, error, least) from error


def _serialized(module: Any) -> bytes:
    """Portable bytecode, but of CHLO, which has no portable form; without locations of this machine."""
    from jaxlib.mlir.dialects import stablehlo
    from jaxlib.mlir.passmanager import PassManager

    with module.context:
        PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
        return bytes(stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version(), True))


def _refusal(entry: LegalEntry, error: Any, least: Sizes) -> CannotPad | UnsupportedOps | LowerFailed:
    node: Node = error.node
    where = nearest_line(node)
    depends_on_data = "depends on data" in str(error)
    if least and not depends_on_data and "no lowering" not in str(error):
        return CannotPad(
            f"calls of {entry.name!r} cannot be padded along {', '.join(least)}: {node.target}",
            reason=f"{node.target}: {error}",
            hint=f"let no call be padded: --buckets {next(iter(least))}=exact:... with all sizes of calls",
            where=where,
        )
    if depends_on_data or error.__cause__ is None:
        return UnsupportedOps(
            f"1 op has no lowering: {node.target}",
            reason=f"{node.target}: {error}",
            hint="write the named line with other ops, or take it out of the exported part of the model",
            where=where,
        )
    return LowerFailed(
        f"no lowering to StableHLO for `{node.target}` (node {node.name}) of {entry.name}",
        reason=str(error),
        hint="please report it with the model: it is a fault of aotpipe",
        where=where,
    )


@contextmanager
def own_settings() -> Iterator[None]:
    """Jax as the lowering needs it, in this thread and for as long as the body runs."""
    import jax

    with (
        warnings.catch_warnings(action="ignore"),
        jax.enable_x64(True),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        jax.debug_nans(False),
        jax.disable_jit(False),
        # Without a device of its own, jax would start every backend of this machine to find one.
        jax.default_device(_device()),
    ):
        yield


@cache
def _device() -> Any:
    from jaxlib import xla_client

    return xla_client.make_cpu_client(asynchronous=False).devices()[0]
