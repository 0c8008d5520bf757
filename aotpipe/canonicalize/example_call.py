"""One eager call on the example inputs: what the model returns, with nothing left behind.

The model's buffers, its modules' attributes and the random generators are as before, the inputs are copies.
Raises `SpecInvalid` with the user's line when the model raises.

Outside of torch.compile and torch.export, `torch.cond`, `while_loop`, `map`, `scan` and `associative_scan`
start a compiler on their bodies: that takes seconds, and refuses bodies that torch.export takes. Inside
`uncompiled()` they call the bodies.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import torch
from torch import nn
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.inputs import pytrees
from aotpipe.canonicalize.values import trace
from aotpipe.errors import ExportFailed, SpecInvalid
from aotpipe.model import object_graph, source

_LARGE_BYTES: Final = 2**20


def observed(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], entry: str
) -> tuple[Any, list[object_graph.Root]]:
    """Call the module on copies of its example inputs.

    Gives the result, and the names under which the model then held something else.

    Raises:
        ExportFailed: The model does what no program of it can.
        SpecInvalid: The model raised.
    """
    with unchanged(module) as watch:
        try:
            result = again(module, args, kwargs)
        except ExportFailed:
            raise
        except Exception as error:
            raise SpecInvalid(
                f"{entry} raised {type(error).__name__} on its example inputs",
                reason="\n".join(filter(None, (str(error), source.in_package(error)))),
                hint="call the model in plain PyTorch with these inputs until it works",
                where=source.from_exception(error),
            ) from error
        return result, watch.unregistered()


def again(module: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call the module on copies of inputs, and leave in it what the call leaves."""
    copied_args, copied_kwargs = pytrees.clone_tensors((args, dict(kwargs)))
    with torch.random.fork_rng(devices=[]), torch.no_grad(), uncompiled():
        return module(*copied_args, **copied_kwargs)


def varied(inputs: Any, generator: torch.Generator) -> Any:
    """The same inputs with noise on the floats: ones and zeros hide what a model computes."""

    def vary(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        return leaf * (0.5 + torch.rand(leaf.shape, generator=generator).to(leaf))

    return pytree.tree_map(vary, inputs)


@contextmanager
def unchanged(module: nn.Module, *, traced: bool = False) -> Iterator[object_graph.Watch]:
    """Put back what a call changes in the model: tensors in place, attributes, lists, dicts and objects.

    Where it is `traced` by torch.export, which puts tensors of its own in the place of weights, these are not
    copied.
    """
    watch = object_graph.Watch(module)
    registered = () if traced else (*module.parameters(), *module.buffers())
    tensors = [*registered, *watch.tensors()]
    before = {id(tensor): (tensor, snapshot(tensor)) for tensor in tensors}
    remembered = [(cache, cache.cache_info().misses) for cache in _caches(module)]
    try:
        yield watch
    finally:
        new = [cache for cache, misses in remembered if cache.cache_info().misses > misses]
        # The next call is to change what this one did; what a trace remembers are tensors of the trace.
        if new and (traced or watch.unregistered()):
            for cache in new:
                cache.cache_clear()
        watch.restore()
        with torch.no_grad():
            for tensor, copied in before.values():
                # A weight that was not written may lie in memory that is not to be written.
                if tensor.shape == copied.shape and not _is_unwritten(tensor, copied):
                    tensor.copy_(copied)


def _caches(module: nn.Module) -> list[Any]:
    """The functions with `lru_cache` of a model's classes, of their files and of what those import."""
    kinds = {kind for part in module.modules() for kind in type(part).__mro__}
    files = {id(found): found for kind in kinds if (found := sys.modules.get(kind.__module__)) is not None}
    files |= {
        id(each): each for file in files.values() for each in vars(file).values() if type(each) is ModuleType
    }
    spaces = [
        vars(file) for file in files.values() if source.is_model_code(getattr(file, "__file__", None) or "")
    ]
    held = (each for space in (*map(vars, kinds), *spaces) for each in [*space.values()])
    # By the type alone: an object of a file may run code of its own where it is asked for an attribute.
    held = (each.__func__ if type(each) in (staticmethod, classmethod) else each for each in held)
    return [*{id(each): each for each in held if type(each) is functools._lru_cache_wrapper}.values()]  # noqa: SLF001


@contextmanager
def writing_nothing(module: nn.Module) -> Iterator[Callable[[], bool]]:
    """Tells whether no tensor that the module held at the start was written since.

    `unchanged` puts back what was written, also in the weights and constants of a program made meanwhile.
    """
    watch = object_graph.Watch(module)
    held = [(each, snapshot(each)) for each in (*module.parameters(), *module.buffers(), *watch.tensors())]
    yield lambda: all(_is_unwritten(tensor, before) for tensor, before in held)


def snapshot(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's value now; that of a large weight takes memory only once one of the two is written.

    Private: torch has no other way to copy on write, and copies of all weights are most of a build's memory.
    """
    detached = tensor.detach()
    is_plain = type(detached) is torch.Tensor and detached.layout is torch.strided
    if isinstance(tensor, nn.Parameter) and is_plain and tensor.nbytes >= _LARGE_BYTES:
        # Memory that is not torch's own (a mapped file, an array of numpy) cannot be shared so.
        with suppress(RuntimeError):
            return torch._lazy_clone(detached)  # noqa: SLF001
    return detached.clone()


def _is_unwritten(tensor: torch.Tensor, copied: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided:
        return tensor.layout == copied.layout and torch.equal(tensor.to_dense(), copied.to_dense())
    is_shared = torch._C._is_cow_tensor(tensor)  # type: ignore[attr-defined]  # noqa: SLF001
    # Neither was written where both are views of one memory still; to look at them would take it apart.
    return (is_shared and _place(tensor) == _place(copied)) or torch.equal(tensor, copied)


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    # data_ptr() is taken for a write.
    address = torch._C._data_address(tensor)  # type: ignore[attr-defined]  # noqa: SLF001
    return address, tensor.storage_offset(), tensor.stride()


def is_same(left: Any, right: Any) -> bool:
    """Whether two results are equal to the last bit."""
    ours, theirs = (pytree.tree_leaves(each) for each in (left, right))
    return len(ours) == len(theirs) and all(map(_is_equal, ours, theirs))


def _is_equal(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return object_graph.is_same(one, other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())  # NaN


# The module, whose name in its package is that of the function. It looks this up at each call of `scan`.
_SCANS: Final = import_module("torch._higher_order_ops.scan")


@contextmanager
def uncompiled() -> Iterator[None]:
    """Call the bodies of control-flow ops, and start no compiler."""
    run = trace.assigned(_SCANS, _maybe_compile_and_run_fn=_run_scan)
    with run, torch.compiler.set_stance("force_eager"):
        yield


def _run_scan(
    run: Callable[..., list[torch.Tensor]],
    step: partial[Any],
    carry: list[torch.Tensor],
    xs: list[torch.Tensor],
) -> tuple[Any, Any]:
    """Run a scan whose body was flattened.

    torch 2.13 leaves it to the compiler to give the flat results their structure back, so that without one
    a scan of anything but one carry and one output raises.
    """
    structure: list[pytree.TreeSpec] = []

    def noted(*args: Any) -> Any:
        after, out = step(*args)
        structure[:] = [pytree.tree_structure(out)]
        return after, out

    flat = list(run(noted, carry, xs))
    count = len(carry)
    [of_out] = structure
    return (
        pytree.tree_unflatten(flat[:count], step.keywords["spec_init"]),
        pytree.tree_unflatten(flat[count:], of_out),
    )
