"""Subclasses of `torch.Tensor` that a model makes or keeps, in a trace.

torch.export calls a model with tensors of a class of its own, which `as_subclass` refuses, and puts plain
ones in the place of parameters: methods, operators and attributes of a subclass are gone. `kept(module)`
gives a traced tensor both classes, and what stands for a parameter the attributes of that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from types import MethodType
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensor  # what torch.export calls the model with
from torch.fx.experimental import proxy_tensor  # it has no public name for the classes that it takes
from torch.nn.parameter import is_lazy

from aotpipe.canonicalize.values import trace
from aotpipe.errors import ExportFailed
from aotpipe.model import object_graph, source

# What torch keeps on a traced tensor.
_TORCHS: Final = frozenset(
    ("_fake_device", "constant", "dispatch_keys", "fake_mode", "pytype", "real_tensor")
)
_PLAIN: Final = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def require_own_elements(module: torch.nn.Module) -> None:
    """Refuse parameters and buffers that have no elements yet, or another tensor's in place of their own.

    Raises:
        ExportFailed: A program has the elements of a parameter alone.
    """
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        kind = type(tensor)
        if is_lazy(tensor):
            raise ExportFailed(
                f"`{name}` has no elements yet: a lazy module makes them in the first call",
                hint="call the model once on an example before the build: what it draws is then the model's",
                where=source.of_definition(module.forward),
            )
        if tensor.is_meta:
            raise ExportFailed(
                f"`{name}` has no elements: it is on the meta device",
                hint="load the weights before the build, on the CPU: "
                "load_state_dict(weights, assign=True), or to_empty(device='cpu') and then load_state_dict",
                where=source.of_definition(module.forward),
            )
        if kind not in _PLAIN and kind.detach is not torch.Tensor.detach:
            raise ExportFailed(
                f"`{name}` is a {kind.__name__}, which answers as another tensor than its own elements",
                reason=f"{kind.__name__} has a `detach` of its own",
                hint="register the tensor that it holds, and make the object of it in forward",
                where=source.of_definition(module.forward),
            )


@contextmanager
def kept(module: torch.nn.Module) -> Iterator[None]:
    """Let tensors of a trace be of the subclasses that they are of in eager, while the body runs."""
    as_subclass: Any = torch.Tensor.as_subclass
    make_subclass: Any = torch.Tensor._make_subclass  # noqa: SLF001  # which subclasses call in `__new__`

    def traced_as(tensor: torch.Tensor, kind: type) -> torch.Tensor:
        if not isinstance(tensor, FakeTensor):
            found: torch.Tensor = as_subclass(tensor, _own(kind))
            return found
        return _of_class(_aliased(tensor), kind)

    def made(kind: type, data: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not isinstance(data, FakeTensor):
            found: torch.Tensor = make_subclass(_own(kind), data, *args, **kwargs)
            return found
        return _of_class(_aliased(data), kind)

    def constructed(kind: type, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], FakeTensor) and not kwargs and kind not in _PLAIN:
            return _of_class(_aliased(args[0]), kind)
        return torch._C.TensorBase.__new__(kind, *args, **kwargs)  # noqa: SLF001

    with (
        trace.assigned(proxy_tensor, HANDLED_TYPES=_Handled(proxy_tensor.HANDLED_TYPES)),
        trace.assigned(
            torch.Tensor,
            as_subclass=traced_as,
            _make_subclass=staticmethod(made),
            __new__=staticmethod(constructed),
        ),
        _parameters_kept(module),
    ):
        yield


class _Handled(tuple[type, ...]):
    """The classes of tensors that a trace takes; a region takes a tensor from outside by its class."""

    __slots__ = ()

    def __contains__(self, kind: object) -> bool:
        return super().__contains__(kind) or (isinstance(kind, type) and issubclass(kind, FakeTensor))


@dataclass(frozen=True, eq=False)
class Subclass:
    """The class that a tensor is of, and the attributes that it has beside its elements."""

    kind: type
    attributes: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Subclass) or self.kind is not other.kind:
            return False
        same = self.attributes.keys() == other.attributes.keys()
        return same and all(value is other.attributes[name] for name, value in self.attributes.items())

    def __hash__(self) -> int:
        return hash(self.kind)

    def __str__(self) -> str:
        return f"a {self.kind.__name__}" + (f" with {', '.join(self.attributes)}" if self.attributes else "")

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Make a traced tensor that was just computed one of this class."""
        vars(tensor).update(self.attributes)
        return _of_class(tensor, self.kind)


def subclass_of(value: object) -> Subclass | None:
    """The subclass that a value is of; None where it is no tensor, or a plain one."""
    if type(value) is FakeTensor or not isinstance(value, torch.Tensor):
        return None
    kind = _own(type(value))
    if kind in _PLAIN:
        return None
    is_traced = isinstance(value, FakeTensor)
    own = {name: each for name, each in vars(value).items() if not (is_traced and _is_torchs(name))}
    return Subclass(kind, own)


def _is_torchs(name: str) -> bool:
    return name in _TORCHS or name.endswith(("_memo", "_memo_vc", "_memo_epoch"))


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as one of no subclass, whose operators are torch's."""
    is_plain = type(tensor) is FakeTensor or type(tensor) in _PLAIN
    return tensor if is_plain else tensor.as_subclass(torch.Tensor)


def _aliased(tensor: torch.Tensor) -> torch.Tensor:
    # Another object of the same memory, as in eager.
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001  # no public name
        return tensor.detach()


def _of_class(tensor: torch.Tensor, kind: type) -> torch.Tensor:
    tensor.__class__ = FakeTensor if kind in _PLAIN else _traced_class(kind)
    return tensor


@functools.cache
def _traced_class(kind: type) -> Any:
    """A class that is both the subclass and that of a traced tensor."""
    if issubclass(kind, FakeTensor):
        return kind
    made: Any = type(kind.__name__, (kind, FakeTensor), {"__module__": kind.__module__})
    if isinstance(own := kind.__torch_function__, MethodType):  # type: ignore[attr-defined]
        # torch turns it off in a class that dispatches. It may compare the classes with its own.
        def called(_: type, func: Any, types: Iterable[type], *args: Any, **kwargs: Any) -> Any:
            return own.__func__(kind, func, tuple(map(_own, types)), *args, **kwargs)

        made.__torch_function__ = classmethod(called)
    return made


def _own(kind: type) -> type:
    """The subclass of which a class is that of traced tensors."""
    return kind.__bases__[0] if issubclass(kind, FakeTensor) and kind is not FakeTensor else kind


@contextmanager
def _parameters_kept(module: torch.nn.Module) -> Iterator[None]:
    """Give what stands for a parameter or a buffer in a trace its class and attributes."""
    named = (*module.named_parameters(), *module.named_buffers())
    of_subclasses = {name: tensor for name, tensor in named if type(tensor) not in _PLAIN}
    if not of_subclasses:
        yield
        return
    forward = module.forward
    held = {name: object_graph.Record[str]().add(name, vars(each)) for name, each in of_subclasses.items()}

    @wraps(forward)
    def called(*args: Any, **kwargs: Any) -> Any:
        for name, tensor in of_subclasses.items():
            _dress(_registered(module, name), tensor)
        result = forward(*args, **kwargs)
        for name, tensor in of_subclasses.items():
            _require_unchanged(name, _registered(module, name), tensor, held[name], forward)
        return result

    called.__signature__ = source.signature_of(forward)  # type: ignore[attr-defined]
    with trace.assigned(module, forward=called):
        yield


def _registered(module: torch.nn.Module, name: str) -> torch.Tensor | None:
    path, _, attribute = name.rpartition(".")
    part = vars(module.get_submodule(path))
    found: torch.Tensor | None = part["_parameters"].get(attribute)
    return part["_buffers"].get(attribute) if found is None else found


def _dress(standing: torch.Tensor | None, tensor: torch.Tensor) -> None:
    if isinstance(standing, FakeTensor):
        _of_class(standing, type(tensor))
        vars(standing).update(vars(tensor))


def _require_unchanged(
    name: str,
    standing: torch.Tensor | None,
    tensor: torch.Tensor,
    before: object_graph.Record[str],
    forward: Callable[..., Any],
) -> None:
    """Refuse what a call changes in the attributes of a parameter: no program keeps it."""
    if not isinstance(standing, FakeTensor):
        return
    now: Mapping[str, Any] = vars(standing)
    same = all(now.get(key) is value for key, value in vars(tensor).items())
    if not same or object_graph.Record[str]().add(name, vars(tensor)) != before:
        raise ExportFailed(
            f"a call changes an attribute of `{name}`, a {type(tensor).__name__}",
            reason="what a tensor holds beside its elements is fixed in a program",
            hint="keep it in an attribute of the module: that becomes state of the program",
            code="global-changed",
            where=source.of_definition(forward),
        )
