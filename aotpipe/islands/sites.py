"""What marked functions were called with, one site for all calls that look alike. Imports no torch.

Within `recording()` `call` records what each call takes and gives, and `tracing` reads it to trace a model.

Raises:
    SpecInvalid: A function takes or gives what cannot pass between Python and a program.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from aotpipe.errors import SpecInvalid
from aotpipe.model import source
from aotpipe.runtime.islands.chain import Kind, Mark, Packed, Template, pack

Shapes = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class Site:
    """All calls of one marked function that look alike: what is not a tensor or a number is the same.

    Attributes:
        arguments, objects: How leaves become arguments.
        result, dtypes: How a result becomes leaves, and the dtype of each; None before the first eager call.
        records: The shapes that went into an eager call and came out, each choice once.
    """

    mark: Mark
    arguments: Template
    objects: tuple[Any, ...]
    result: Template | None = None
    kinds: tuple[Kind, ...] = ()
    dtypes: tuple[Any, ...] = ()
    records: dict[tuple[Shapes, Shapes], None] = field(default_factory=dict)


SITES: Final[dict[str, Site]] = {}
"""By key: a graph holds no functions, and an exported program may be run after the recording."""

_recording: Final[ContextVar[bool]] = ContextVar("recording", default=False)


@contextmanager
def recording(*, go_on: bool = False) -> Iterator[None]:
    """Record what marked functions are called with, and let models that call them be traced.

    What was recorded before is dropped, unless `go_on` keeps it; records stay until the next recording.
    """
    if not _recording.get() and not go_on:
        SITES.clear()
    token = _recording.set(True)
    try:
        yield
    finally:
        _recording.reset(token)


def is_recording() -> bool:
    """Whether models that call marked functions may be traced."""
    return _recording.get()


def call(mark: Mark, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a marked function eagerly; within `recording()` record what it takes and gives.

    Raises:
        SpecInvalid: The function writes into an argument, or gives what cannot pass to a program.
    """
    if not is_recording():
        return run(mark, args, kwargs)
    packed = pack([list(args), kwargs], kind_of)
    tensors = [leaf for leaf in packed.leaves if hasattr(leaf, "_version")]
    before = [tensor._version for tensor in tensors]  # noqa: SLF001  # counts writes
    result = run(mark, args, kwargs)
    if before != [tensor._version for tensor in tensors]:  # noqa: SLF001  # as above
        raise SpecInvalid(
            f"{mark.name} writes into its argument",
            hint="let it return a new tensor",
            where=source.of_definition(mark.function),
        )
    given = pack(result, kind_of)
    if given.objects:
        raise SpecInvalid(
            f"{mark.name} returns a {type(given.objects[0]).__name__}",
            hint="return tensors and numbers; arrays='numpy' is for functions of numpy's arrays",
            where=source.of_definition(mark.function),
        )
    _, site = site_of(mark, packed)
    site.result, site.kinds = given.template, tuple(given.kinds)
    site.dtypes = tuple(getattr(leaf, "dtype", None) for leaf in given.leaves)
    site.records[shapes(packed), shapes(given)] = None
    return result


def site_of(mark: Mark, packed: Packed) -> tuple[str, Site]:
    """Find the site of a call, and its key; a new site where no call before looked like this one."""
    names = [f"{type(each).__module__}.{type(each).__qualname__}" for each in packed.objects]
    ids = [id(each) for each in packed.objects]
    text = json.dumps([mark.name, packed.template, names, ids, id(mark.function)], sort_keys=True)
    key = f"{mark.name}#{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if key not in SITES:
        SITES[key] = Site(mark=mark, arguments=packed.template, objects=tuple(packed.objects))
    return key, SITES[key]


def kind_of(leaf: Any) -> Kind | None:
    """Whether a value is a tensor or a number, also while it is traced."""
    torch = sys.modules["torch"]
    if isinstance(leaf, torch.Tensor):
        return "tensor"
    if isinstance(leaf, torch.SymInt) or type(leaf) is int:
        return "int"
    return "float" if isinstance(leaf, torch.SymFloat) or type(leaf) is float else None


def shapes(packed: Packed) -> Shapes:
    """The shape of each leaf; a number has no dims."""
    return tuple(tuple(getattr(leaf, "shape", ())) for leaf in packed.leaves)


def run(mark: Mark, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a marked function on tensors, whatever it takes itself."""
    if mark.arrays == "torch":
        return mark.function(*args, **kwargs)
    import numpy as np
    from torch.utils import _pytree as pytree

    from aotpipe.model.torch_arrays import from_numpy, view_numpy

    def to_numpy(leaf: Any) -> Any:
        return view_numpy(leaf) if kind_of(leaf) == "tensor" else leaf

    def to_torch(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            return from_numpy(leaf)
        return leaf.item() if isinstance(leaf, np.generic) else leaf

    args, kwargs = pytree.tree_map(to_numpy, (tuple(args), kwargs))
    return pytree.tree_map(to_torch, mark.function(*args, **kwargs))
