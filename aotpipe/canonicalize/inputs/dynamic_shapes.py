"""What may vary: from a user's dynamic_shapes to `leaf name -> axis -> Dim or AUTO`, checked.

Takes aotpipe's flat form (`{"batch.mask": {0: dim}}`), torch.export's nested form, and torch's own Dims.
Raises `SpecInvalid` for a name or an axis that does not exist, an example outside its Dim's range, and Dims
that disagree with each other or with the example.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from aotpipe.core.dims import Auto, Dim
from aotpipe.errors import SpecInvalid
from aotpipe.model.spec import EntryPoint

Leaf = tuple[tuple[str, ...], Any]
Shapes = dict[str, dict[int, Dim | Auto]]
_TORCH_UNBOUNDED: Final = 2**62


def resolve(entry: EntryPoint, leaves: Sequence[Leaf], names: Sequence[str]) -> Shapes:
    """Find the Dims of every leaf.

    Returns:
        Leaf name -> axis -> Dim or Auto, for what varies. A number's only axis is 0.

    Raises:
        SpecInvalid: See the module.
    """
    given = entry.dynamic_shapes
    if callable(getattr(given, "dynamic_shapes", None)):
        # torch.export.ShapesCollection and AdditionalInputs; both read nothing of the module but its forward.
        raise SpecInvalid(
            f"dynamic_shapes is a {type(given).__name__}",
            hint="pass what its dynamic_shapes(module, args, kwargs) method returns",
        )
    found: Shapes = {}
    _walk(given, [(path, name, leaf) for (path, leaf), name in zip(leaves, names, strict=True)], (), found)
    examples = {name: leaf for (_, leaf), name in zip(leaves, names, strict=True)}
    _check(found, examples)
    return found


Named = list[tuple[tuple[str, ...], str, Any]]


def _walk(given: Any, below: Named, prefix: tuple[str, ...], found: Shapes) -> None:
    if given is None or (not below and not given):
        return
    if len(below) == 1 and below[0][0] == prefix and prefix:
        _, name, leaf = below[0]
        dims = _leaf_dims(given, name, leaf)
        if dims:
            found[name] = dims
    elif isinstance(given, (list, tuple)):
        children = list(dict.fromkeys(path[len(prefix)] for path, _, _ in below))
        if len(given) != len(children):
            raise SpecInvalid(
                f"dynamic_shapes of {_shown(prefix)} has {len(given)} parts for {len(children)} inputs",
                reason=f"the inputs are {', '.join(children)}",
                hint="write a dict: {name: {axis: Dim}}",
            )
        _walk(dict(zip(children, given, strict=True)), below, prefix, found)
    elif isinstance(given, Mapping):
        for key, inner in given.items():
            _walk(inner, *_below(str(key), below, prefix), found)
    else:
        raise SpecInvalid(
            f"dynamic_shapes of {_shown(prefix)} is a {type(given).__name__}", hint="write {axis: Dim}"
        )


def _shown(prefix: tuple[str, ...]) -> str:
    return ".".join(prefix) or "the inputs"


def _below(key: str, below: Named, prefix: tuple[str, ...]) -> tuple[Named, tuple[str, ...]]:
    """The leaves that a key names; the key may be dotted, or the whole name of a leaf."""
    for path, name, leaf in below:
        if name == key and not prefix:
            return [(path, name, leaf)], path
    longest = max((len(path) for path, _, _ in below), default=0)
    for end in range(len(prefix) + 1, longest + 1):
        inner = [
            item for item in below if len(item[0]) >= end and ".".join(item[0][len(prefix) : end]) == key
        ]
        if inner:
            return inner, inner[0][0][:end]
    names = [name for _, name, _ in below]
    close = difflib.get_close_matches(".".join((*prefix, key)), names, n=1, cutoff=0.5)
    raise SpecInvalid(
        f"dynamic_shapes names {'.'.join((*prefix, key))!r}, which is no input",
        hint=f"did you mean {close[0]!r}?" if close else f"the inputs are {', '.join(names)}",
    )


def _leaf_dims(given: Any, name: str, leaf: Any) -> dict[int, Dim | Auto]:
    if not isinstance(leaf, torch.Tensor):
        return _number_dim(given, name, leaf)
    if isinstance(given, Mapping):
        items = list(given.items())
    elif isinstance(given, (list, tuple)):
        if len(given) != leaf.dim():
            raise SpecInvalid(f"dynamic_shapes of {name} has {len(given)} axes, the example {leaf.dim()}")
        items = list(enumerate(given))
    else:
        raise SpecInvalid(f"dynamic_shapes of {name} is a {type(given).__name__}", hint="write {axis: Dim}")
    dims: dict[int, Dim | Auto] = {}
    for axis, value in items:
        if not isinstance(axis, int) or not -leaf.dim() <= axis < leaf.dim():
            raise SpecInvalid(f"dynamic_shapes of {name} names axis {axis!r}; the example has {leaf.dim()}")
        at = axis % leaf.dim()
        dim = _dim(value, f"{name}_{at}", leaf.shape[at])
        if dim is not None:
            dims[at] = dim
    return dims


def _number_dim(given: Any, name: str, leaf: Any) -> dict[int, Dim | Auto]:
    """A Python int may vary too: torch.export makes it an input."""
    inner = given.get(0) if isinstance(given, Mapping) else given
    if type(leaf) is not int or (isinstance(given, Mapping) and set(given) - {0}):
        raise SpecInvalid(
            f"dynamic_shapes gives {name} Dims, but the example is a {type(leaf).__name__}",
            hint="only tensors and ints vary; the rest is fixed at export",
        )
    dim = _dim(inner, name, leaf)
    return {} if dim is None else {0: dim}


def _dim(value: Any, name: str, size: int) -> Dim | Auto | None:
    """The Dim of one axis, of aotpipe's form, torch's form or a fixed size; None for a fixed size."""
    if value is None or isinstance(value, (Dim, Auto)):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if value != size:
            raise SpecInvalid(f"dynamic_shapes fixes {name} at {value}, but the example has {size}")
        return None
    kind = getattr(getattr(value, "type", None), "name", None)
    if kind == "STATIC":
        return None
    if kind == "AUTO":
        return Auto(value.min, value.max)
    if kind == "DYNAMIC":
        return Dim(re.sub(r"[.-]", "_", name), min=1 if value.min is None else value.min, max=value.max)
    if isinstance(value, torch.export.Dim):
        return _from_torch(value)
    raise SpecInvalid(
        f"dynamic_shapes of {name} holds a {type(value).__name__}", hint="use an aotpipe.Dim or aotpipe.AUTO"
    )


def _from_torch(dim: Any) -> Dim:
    """Convert torch's Dim; its default min of 0 becomes 1, since nobody means empty batches by it."""
    root = getattr(dim, "root", dim)
    high = int(root.max) if root.max < _TORCH_UNBOUNDED else None
    ours = Dim(root.__name__, min=max(1, int(root.min)), max=high)
    if root is dim:
        return ours
    offset = int(dim.fn(0))
    return ours * (int(dim.fn(1)) - offset) + offset


def _check(shapes: Shapes, examples: Mapping[str, Any]) -> None:
    """Require that Dims of one name agree on range and value, and that examples lie within the ranges."""
    known: dict[str, tuple[Dim, int, str]] = {}
    for name, dims in shapes.items():
        for axis, dim in dims.items():
            if not isinstance(dim, Dim):
                continue
            size, place = examples[name], name
            if isinstance(size, torch.Tensor):
                size, place = size.shape[axis], f"{name}.shape[{axis}]"
            value = dim.value(size)
            if value is None or not dim.root.admits(value):
                upper = "" if dim.max is None else dim.size(dim.max)
                raise SpecInvalid(
                    f"the example's {place} is {size}, but `{dim}` admits {dim.size(dim.min)}..{upper}"
                    + (f" in steps of {dim.scale}" if dim.scale > 1 else ""),
                    hint="give another example or another range",
                )
            root, first, at = known.setdefault(dim.name, (dim.root, value, place))
            if root != dim.root:
                raise SpecInvalid(
                    f"two Dims are called {dim.name!r} and differ: "
                    f"{_range(root)} at {at}, {_range(dim.root)} at {place}",
                    hint="use one Dim, or two names",
                )
            if first != value:
                raise SpecInvalid(
                    f"the example gives {dim.name!r} two values: {first} at {at}, {value} at {place}",
                    hint="give sizes that agree, or two Dims",
                )


def _range(dim: Dim) -> str:
    return f"{dim.min}..{'' if dim.max is None else dim.max}"
