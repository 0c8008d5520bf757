"""The model as nn.Modules that torch.export takes: functions wrapped, methods other than forward as forward.

An entry module shares the model's parameters, buffers and submodules under their own names. Raises
`SpecInvalid` for a method that the model lacks and `TrainMode` for a model whose numbers depend on its mode.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType
from typing import Any, cast

from torch import nn

from aotpipe.core.stages import Finding
from aotpipe.errors import SpecInvalid, TrainMode
from aotpipe.model import source
from aotpipe.model.source import signature_of


def as_module(model: Callable[..., Any]) -> nn.Module:
    """The model itself, or a module whose forward calls the function.

    The modules that the function reaches (a closure's, a default's, a partial's, a global's) become
    submodules, so that their weights have names.
    """
    if isinstance(model, nn.Module):
        return model
    wrapper = _with_forward(model, {"__doc__": model.__doc__})
    nn.Module.__init__(wrapper)
    for name, module in _reached(model):
        if all(module is not known for known in wrapper.children()):
            wrapper.add_module(name.replace(".", "_"), module)
    wrapper.training = False
    return wrapper


def is_function(model: nn.Module) -> bool:
    """Whether a model is a function, which `as_module` made a module of."""
    return type(model).__module__ == __name__


def entry_module(
    model: nn.Module,
    method: str,
    bound: Mapping[int | str, Any] | None = None,
    keywords: Iterable[str] | None = None,
) -> nn.Module:
    """A module whose forward is a method of the model.

    Args:
        model: The model.
        method: The method to call.
        bound: Arguments, by position or by name, that torch.export takes neither as tensor nor as constant;
            they are fixed, and left out of the entry's parameters.
        keywords: The names that a call passes by keyword; they become parameters in place of `**kwargs`,
            which torch.export mixes up with their Dims.

    Raises:
        SpecInvalid: The model has no such method.
    """
    call = getattr(model, method, None)
    if not callable(call):
        raise SpecInvalid(
            f"{type(model).__name__} has no method {method!r}", where=source.of_definition(type(model))
        )
    parameters = signature_of(call).parameters
    extra = tuple(name for name in keywords or () if name not in parameters)
    if method == "forward" and not bound and not extra:
        return model
    return view_of(model, _bind(call, bound or {}, extra))


def view_of(model: nn.Module, call: Callable[..., Any]) -> nn.Module:
    """A module whose forward is `call` and that is the model in all else."""
    view = _with_forward(call, {})
    # One __dict__: whatever the method sets on the model is seen here, by torch.export too.
    object.__setattr__(view, "__dict__", model.__dict__)
    if "forward" in model.__dict__:
        # A forward set on the instance would hide the class's own; it cannot hide a property.
        forward = view.__class__.__dict__["forward"].__get__(view)
        type.__setattr__(type(view), "forward", property(lambda _: forward))
    return view


def beside(module: nn.Module, call: Callable[..., Any], children: Mapping[str, nn.Module]) -> nn.Module:
    """A module with the parameters, buffers and submodules of another and some of its own.

    Its forward is `call`, with the parameters of the other module's. It has none of the other's hooks.
    """

    def forward(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    forward.__signature__ = signature_of(module.forward)  # type: ignore[attr-defined]
    forward.__wrapped__ = module.forward  # type: ignore[attr-defined]
    forward.__name__ = type(module).__name__
    view = _with_forward(forward, {})
    nn.Module.__init__(view)
    # The dicts of tensors are the other's own: torch.export exchanges what is in them.
    vars(view).update(
        training=module.training,
        _modules={**vars(module)["_modules"], **children},
        **{key: vars(module)[key] for key in ("_parameters", "_buffers", "_non_persistent_buffers_set")},
    )
    return view


def _bind(
    call: Callable[..., Any], bound: Mapping[int | str, Any], extra: tuple[str, ...]
) -> Callable[..., Any]:
    if not bound and not extra:
        return call
    positions = {key: value for key, value in bound.items() if isinstance(key, int)}
    keywords = {key: value for key, value in bound.items() if isinstance(key, str)}
    signature = signature_of(call)
    fixed = {name for index, name in enumerate(signature.parameters) if index in positions} | keywords.keys()
    kept = [
        p
        for name, p in signature.parameters.items()
        if name not in fixed and not (extra and p.kind is p.VAR_KEYWORD)
    ]
    kept += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in extra if name not in fixed]

    def forward(*args: Any, **kwargs: Any) -> Any:
        rest = iter(args)
        total = len(args) + len(positions)
        merged = [positions[i] if i in positions else next(rest) for i in range(total)]
        return call(*merged, **kwargs, **keywords)

    forward.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    forward.__wrapped__ = call  # type: ignore[attr-defined]
    return forward


def _with_forward(call: Callable[..., Any], namespace: dict[str, Any]) -> nn.Module:
    """An uninitialized nn.Module of a class of its own whose forward is `call`, with the same parameters."""

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG001 the method is bound already
        return call(*args, **kwargs)

    signature = signature_of(call)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    taken = "self" in signature.parameters
    forward.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[itself.replace(name="_self") if taken else itself, *signature.parameters.values()]
    )
    # Whoever looks for the user's line finds it behind the wrapper.
    forward.__wrapped__ = call  # type: ignore[attr-defined]
    # torch.export names things after the class; a lambda's name is no identifier.
    name = getattr(call, "__name__", "")
    cls = type(name if name.isidentifier() else "Function", (nn.Module,), {**namespace, "forward": forward})
    return cast("nn.Module", object.__new__(cls))


def _reached(function: Any) -> Iterator[tuple[str, nn.Module]]:
    if isinstance(function, nn.Module):
        yield "module", function
    elif isinstance(function, functools.partial):
        yield from _reached(function.func)
        values = {**{f"arg{i}": v for i, v in enumerate(function.args)}, **function.keywords}
        yield from ((name, value) for name, value in values.items() if isinstance(value, nn.Module))
    elif inspect.ismethod(function):
        if isinstance(function.__self__, nn.Module):
            yield "module", function.__self__
        yield from _reached(function.__func__)
    elif inspect.isfunction(function):
        try:
            variables = inspect.getclosurevars(function)
        except ValueError:  # a cell that is still empty
            return
        defaults = {name: each.default for name, each in inspect.signature(function).parameters.items()}
        for name, value in {**variables.globals, **variables.nonlocals, **defaults}.items():
            if isinstance(value, nn.Module):
                yield name, value


def check_eval_mode(model: nn.Module, *, may_draw: bool = False) -> list[Finding]:
    """Refuse a model whose numbers depend on its being in train mode; say when it is so without effect.

    Where it `may_draw` random numbers, dropouts do in train mode what they are there for.

    Raises:
        TrainMode: Names the submodules that act otherwise in train mode.
    """
    training = [(name, module) for name, module in model.named_modules() if module.training]
    acting = [(name, module) for name, module in training if _acts_in_training(module, may_draw=may_draw)]
    if acting:
        shown = ", ".join(f"{name or 'the model'} ({type(m).__name__})" for name, m in acting[:8])
        more = f" and {len(acting) - 8} more" if len(acting) > 8 else ""
        raise TrainMode(
            f"{type(model).__name__} is in train mode",
            reason=f"these compute something else in eval mode: {shown}{more}",
            hint="call .eval() on the model before it is built",
            where=source.of_definition(type(model)),
        )
    message = f"{type(model).__name__} is in train mode, in which it computes the same"
    where = source.of_definition(type(model)) if training else None
    return [Finding(severity="note", code="train-mode", message=message, where=where)] if training else []


def _acts_in_training(module: nn.Module, *, may_draw: bool) -> bool:
    """Whether the module's own code reads `self.training` to any effect."""
    if isinstance(module, nn.modules.dropout._DropoutNd):  # noqa: SLF001 the base of all dropouts
        return module.p > 0 and not may_draw
    if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)):
        return module.dropout > 0 and not may_draw
    if isinstance(module, nn.modules.batchnorm._NormBase):  # noqa: SLF001 the base of batch and instance norms
        return module.track_running_stats
    bases = type(module).__mro__
    own = bases[: bases.index(nn.Module)]
    codes = (each for cls in own for method in _method_codes(cls) for each in source.codes_in(method))
    return any("training" in code.co_names for code in codes)


_NOT_CALLED = frozenset({"__init__", "train", "eval", "extra_repr", "__repr__", "__setstate__"})


def _method_codes(cls: type) -> Iterable[CodeType]:
    for name, value in vars(cls).items():
        function = inspect.unwrap(value) if callable(value) else value
        if name not in _NOT_CALLED and inspect.isfunction(function):
            yield function.__code__
