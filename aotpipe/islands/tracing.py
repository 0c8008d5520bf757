"""A marked function while a model is traced: one op, `aotpipe::island`, that no target has.

The op takes tensors (numbers as 0-d ones) and the key of its site. What it gives is known from eager calls: a
size of a result that is always the same is fixed, one that goes with the sizes of the arguments is that
expression of them, any other is a size that only the run knows.

`discover(canonical)` makes these calls: at both ends of each Dim and beside the example, and on other values,
which a size may depend on. The model is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize import example_call
from aotpipe.core.dims import Dim
from aotpipe.core.stages import Canonical, CanonicalEntry
from aotpipe.errors import ExportFailed, IslandsNotAllowed
from aotpipe.export import resized_examples
from aotpipe.islands import sites
from aotpipe.model import source
from aotpipe.runtime.islands.chain import Kind, Mark, pack, unpack

_LIBRARY: Final[Any] = torch.library.Library("aotpipe", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("island(Tensor[] tensors, str site) -> Tensor[]")

_NUMBERS: Final = {"int": torch.int64, "float": torch.float64}
_FARTHEST: Final = 2
# The factor and the offset of floats. With the negative one, bools are negated and integers reversed.
_CHANGES: Final = ((-1, 0), (0.1, 0), (3, 1))


def _run(tensors: Sequence[torch.Tensor], site: str) -> list[torch.Tensor]:
    """The op on values: it is run where a traced program is compared with eager."""
    found = sites.SITES[site]
    args, kwargs = unpack(found.arguments, _leaf_of(tensors), found.objects)
    given = pack(sites.run(found.mark, args, kwargs), sites.kind_of)
    # An op gives tensors of its own.
    return [
        leaf.detach().clone() if kind == "tensor" else torch.tensor(leaf, dtype=_NUMBERS[kind])
        for leaf, kind in zip(given.leaves, given.kinds, strict=True)
    ]


def _leaf_of(tensors: Sequence[torch.Tensor]) -> Callable[[Kind, int], Any]:
    return lambda kind, number: tensors[number] if kind == "tensor" else tensors[number].item()


def _fake(tensors: Sequence[torch.Tensor], site: str) -> list[torch.Tensor]:
    found = sites.SITES[site]
    shapes = [tensor.shape for tensor in tensors]
    results = []
    for number, (kind, dtype) in enumerate(zip(found.kinds, found.dtypes, strict=True)):
        if kind != "tensor":
            results.append(torch.empty((), dtype=_NUMBERS[kind]))
            continue
        seen = [(given, made[number]) for given, made in found.records]
        sizes = [size_of(shapes, [(i, out[axis]) for i, out in seen]) for axis in range(len(seen[0][1]))]
        results.append(torch.empty(sizes, dtype=dtype))
    return results


def size_of(shapes: Sequence[Sequence[Any]], seen: Sequence[tuple[Sequence[Sequence[int]], int]]) -> Any:
    """Derive one size of a result from what eager calls showed.

    `shapes` are the arguments', as they are traced; `seen` are eager calls: the shapes of the arguments, and
    this size.
    """
    sizes = [size for _, size in seen]
    dynamic = [
        (argument, axis)
        for argument, shape in enumerate(shapes)
        for axis, size in enumerate(shape)
        if isinstance(size, torch.SymInt)
    ]
    varied = [place for place in dynamic if len({_at(shape, place) for shape, _ in seen}) > 1]
    if len(set(sizes)) == 1 and (not dynamic or varied):
        return sizes[0]
    for place in varied or dynamic:
        law = _line([(_at(shape, place), size) for shape, size in seen])
        if law is not None:
            scale, offset = law
            argument, axis = place
            return shapes[argument][axis] * scale + offset
    # The runner checks it: what is seen once and is no size of the arguments is taken for fixed.
    return sizes[0] if len(set(sizes)) == 1 else torch.library.get_ctx().new_dynamic_size()


def _at(shape: Sequence[Sequence[int]], place: tuple[int, int]) -> int:
    return shape[place[0]][place[1]]


def _line(points: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The integer scale and offset that all points follow, `(1, 0)` where one point has equal coordinates."""
    (x, y), *others = points
    other = next(((a, b) for a, b in others if a != x), None)
    if other is None:
        return (1, 0) if all(a == b for a, b in points) else None
    scale, rest = divmod(other[1] - y, other[0] - x)
    offset = y - scale * x
    if rest or scale < 0 or any(a * scale + offset != b for a, b in points):
        return None
    return scale, offset


_LIBRARY.impl("island", _run, "CompositeExplicitAutograd")
torch.library.register_fake("aotpipe::island", _fake, lib=_LIBRARY)
OP: Final[Any] = torch.ops.aotpipe.island.default
# An island may have side effects: it stays where its result is unused.
torch.fx.node.has_side_effect(OP)


def call(mark: Mark, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Write a call of a marked function into the graph that is traced.

    Raises:
        IslandsNotAllowed: Nobody is going to cut the graph at it.
        ExportFailed: No eager call reached it.
    """
    if not sites.is_recording():
        raise IslandsNotAllowed(
            f"the model calls {mark.name}, which stays Python",
            reason=mark.reason,
            hint="pass --allow-islands (allow_islands=True): a chain of programs and Python is built then",
            where=source.of_caller(),
        )
    packed = pack([list(args), kwargs], sites.kind_of)
    key, site = sites.site_of(mark, packed)
    ranks = tuple(map(len, sites.shapes(packed)))
    if site.result is None or ranks not in {tuple(map(len, given)) for given, _ in site.records}:
        raise ExportFailed(
            f"no eager call of the model reached {mark.name} with these arguments",
            reason="what it gives is known from the calls on the example inputs",
            hint="give example inputs that reach it",
            where=source.of_caller(),
        )
    tensors = [
        leaf if kind == "tensor" else torch.scalar_tensor(leaf, dtype=_NUMBERS[kind])
        for leaf, kind in zip(packed.leaves, packed.kinds, strict=True)
    ]
    return unpack(site.result, _leaf_of(OP(tensors, key)))


def discover(canonical: Canonical) -> None:
    """Record what islands give on other inputs; a model without islands is not called."""
    if not sites.SITES:
        return
    for entry in canonical.entries:
        resized = (resized_examples.resized(entry, values) for values in _sizes(entry))
        for args, kwargs in chain(resized, (_varied(entry, *change) for change in _CHANGES)):
            # Inputs that the model refuses tell nothing.
            with example_call.unchanged(entry.module), suppress(Exception):
                example_call.again(entry.module, args, kwargs)


def _sizes(entry: CanonicalEntry) -> Iterator[Mapping[str, int]]:
    known, roots = resized_examples.values(entry), resized_examples.roots(entry)
    for name, dim in roots.items():
        for value in _others(dim, known[name]):
            yield {name: value}
    if len(roots) > 1:
        # Two sizes that are equal in each call could not be told apart.
        yield {name: _others(dim, known[name])[place % 2] for place, (name, dim) in enumerate(roots.items())}


def _others(dim: Dim, value: int) -> list[int]:
    top = _FARTHEST * value + 1
    high = top if dim.max is None else min(dim.max, top)
    beside = value + 1 if dim.admits(value + 1) else value - 1
    return [beside if dim.admits(beside) else value, high, dim.min]


def _varied(entry: CanonicalEntry, factor: float, offset: float) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example with other values, within their ranges."""
    names = iter(entry.input_names)

    def changed(leaf: Any) -> Any:
        name = next(names)
        if not isinstance(leaf, torch.Tensor):
            return leaf
        found = leaf
        if leaf.is_floating_point():
            found = leaf * factor + offset
        elif factor < 0:
            found = ~leaf if leaf.dtype is torch.bool else leaf.flip(0) if leaf.dim() else leaf
        bounds = entry.entry.value_ranges.get(name)
        return found if bounds is None else found.clamp(*bounds)

    args, kwargs = pytree.tree_map(changed, (entry.entry.args, dict(entry.entry.kwargs)))
    return args, kwargs
