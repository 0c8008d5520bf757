"""Legal programs to StableHLO, by way of jax.

`lower(legal, buckets)` traces each entry point once for every choice of sizes and gives portable StableHLO
for each platform. The modules' arguments are the weights in the order of the index, then the state, then the
inputs; their results are the graph's. jax's own settings are neither read nor changed, no backend of jax is
started, and torch is left as it is.

Raises:
    NoBuckets: A Dim may vary and no sizes are declared for it.
    UnsupportedOps: An op has no entry, or the size of its result depends on data.
    LowerFailed: A fault of aotpipe's own.
    TargetError: jax is not installed.
"""

from __future__ import annotations

import hashlib
import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, Final

from torch.fx import Node

from aotpipe.backends.xla import container, installed
from aotpipe.errors import LowerFailed, NoBuckets, UnsupportedOps
from aotpipe.legalize import hops
from aotpipe.legalize.source import nearest_line
from aotpipe.signature import Signature, dim_symbols, evaluate_dim
from aotpipe.stages import Legal, LegalEntry, Lowered

PLATFORMS: Final = ("cpu", "cuda", "tpu")
"""jax lowers a few ops in another way for each."""

Buckets = Mapping[str, Sequence[int]]


def lower(
    legal: Legal, buckets: Buckets | None = None, *, examples: Mapping[str, Mapping[str, int]] | None = None
) -> Lowered:
    """Lower every entry point.

    Args:
        legal: The program.
        buckets: The sizes of each Dim that there is to be a program for.
        examples: By entry point, sizes that there is to be one more program for.
    """
    installed.require()
    _require_known(legal, buckets or {})
    programs: list[dict[str, Any]] = []
    parts: dict[str, bytes] = {}
    for entry in legal.entries:
        for sizes in _choices(entry, buckets or {}, (examples or {}).get(entry.name)):
            modules = _modules(entry, sizes)
            names = {platform: hashlib.sha256(module).hexdigest() for platform, module in modules.items()}
            parts.update((names[platform], module) for platform, module in modules.items())
            programs.append(
                {
                    "entry_point": entry.name,
                    "sizes": dict(sizes),
                    "weights": list(entry.weights),
                    "asserts": list(entry.asserts),
                    "modules": names,
                }
            )
    module = container.write({"programs": programs}, parts)
    return Lowered(
        dialect="stablehlo",
        module=module,
        entry_points=tuple(entry.name for entry in legal.entries),
        digest=hashlib.sha256(module).hexdigest(),
    )


def _require_known(legal: Legal, buckets: Buckets) -> None:
    """Refuse buckets of no Dim."""
    known = sorted({symbol.name for entry in legal.entries for symbol in entry.signature.symbols})
    for name in buckets:
        if name not in known:
            raise NoBuckets(
                f"no Dim is called {name!r}",
                reason=f"the Dims are: {', '.join(known) or 'none'}",
                hint="leave its buckets out" if not known else f"name one of them: --buckets {known[0]}=...",
            )


def _choices(
    entry: LegalEntry, buckets: Buckets, example: Mapping[str, int] | None
) -> Iterator[dict[str, int]]:
    """Every combination of the sizes of an entry point's Dims, and its example's."""
    listed: dict[str, Sequence[int]] = {}
    # A symbol of outputs alone follows the others, or depends on data, which is refused at its op.
    given = {name for spec in entry.signature.tensor_inputs for dim in spec.dims for name in dim_symbols(dim)}
    for symbol in entry.signature.symbols:
        if symbol.name not in given:
            continue
        sizes = buckets.get(symbol.name)
        if sizes is None and symbol.max == symbol.min:
            sizes = [symbol.min]
        if not sizes:
            raise NoBuckets(
                f"the Dim {symbol} of {entry.name!r} may vary, and an XLA program has fixed sizes",
                hint=f"declare the sizes that it is built for: --buckets {symbol.name}={_suggested(symbol)}",
            )
        for size in sizes:
            if size < symbol.min or (symbol.max is not None and size > symbol.max):
                raise NoBuckets(
                    f"the bucket {size} is outside of the Dim {symbol}", hint="name a size within its range"
                )
        listed[symbol.name] = sorted(set(sizes))
    chosen = [dict(zip(listed, sizes, strict=True)) for sizes in itertools.product(*listed.values())]
    if example is not None:
        own = {name: size for name, size in example.items() if name in given}
        chosen += [own] if own not in chosen else []
    fitting = [sizes for sizes in chosen if _is_possible(entry.signature, sizes)]
    if not fitting:
        raise NoBuckets(f"no choice of buckets fits the inputs of {entry.name!r}")
    yield from fitting


def _suggested(symbol: Any) -> str:
    ends = [symbol.min, *([symbol.max] if symbol.max else [])]
    return ",".join(map(str, sorted(set(ends))))


def _is_possible(signature: Signature, sizes: Mapping[str, int]) -> bool:
    return all(evaluate_dim(dim, sizes) >= 0 for spec in signature.tensor_inputs for dim in spec.dims)


def _modules(entry: LegalEntry, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """An entry point's module for each platform."""
    import jax

    from aotpipe.backends.xla.interpreter import Interpreter, Refused
    from aotpipe.backends.xla.sizes import UnknownSize, bind
    from aotpipe.backends.xla.values import dtype_of

    nodes = hops.placeholders(entry.graph)
    inputs = entry.signature.tensor_inputs
    shapes = [tuple(evaluate_dim(dim, sizes) for dim in spec.dims) for spec in inputs]
    try:
        bound = bind(nodes, shapes)
    except UnknownSize as error:
        raise LowerFailed(
            f"the sizes of {entry.name} are not those of its inputs", reason=str(error)
        ) from error
    specs = [
        jax.ShapeDtypeStruct(tuple(map(bound.size, node.meta["val"].shape)), dtype_of(node.meta["val"].dtype))
        for node in nodes
    ]
    interpreter = Interpreter(bound)

    def forward(*values: Any) -> tuple[Any, ...]:
        return tuple(interpreter.run(entry.graph, values))

    with own_settings():
        try:
            traced = jax.jit(forward, keep_unused=True).trace(*specs)
        except Refused as error:
            raise _refusal(entry, error) from error
        return {
            platform: _serialized(traced.lower(lowering_platforms=(platform,)).compiler_ir("stablehlo"))
            for platform in PLATFORMS
        }


def _serialized(module: Any) -> bytes:
    """Portable bytecode, but of CHLO, which has no portable form; without locations of this machine."""
    from jaxlib.mlir.dialects import stablehlo
    from jaxlib.mlir.passmanager import PassManager

    with module.context:
        PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
        return bytes(stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version(), True))


def _refusal(entry: LegalEntry, error: Any) -> UnsupportedOps | LowerFailed:
    node: Node = error.node
    where = nearest_line(node)
    if error.__cause__ is None or "depends on data" in str(error):
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

    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stack.enter_context(jax.enable_x64(True))
        stack.enter_context(jax.numpy_dtype_promotion("standard"))
        stack.enter_context(jax.numpy_rank_promotion("allow"))
        stack.enter_context(jax.debug_nans(False))
        stack.enter_context(jax.disable_jit(False))
        # Without a device of its own, jax would start every backend of this machine to find one.
        stack.enter_context(jax.default_device(_device()))
        yield


@cache
def _device() -> Any:
    from jaxlib import xla_client

    return xla_client.make_cpu_client(asynchronous=False).devices()[0]
