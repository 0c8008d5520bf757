"""A model with a generator of random numbers of its own, which is state of the program or an input.

`drawing(model, methods, source)` gives a model whose methods draw from it; the model itself is left as it is.
The other has its tensors and submodules, and a class made of the model's, so that its code runs unchanged.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import nn

from aotpipe.canonicalize.trace import random_draws
from aotpipe.canonicalize.values.philox import HIGHEST_SEED
from aotpipe.errors import SpecInvalid
from aotpipe.model import source
from aotpipe.model.source import signature_of
from aotpipe.model.spec import EntryPoint, Example, RandomSource

SEED: Final = "random_seed"
"""The input that a call passes its seed by."""

_MARK: Final = "_aotpipe_random"


class Generator(nn.Module):
    """A seed, and how many numbers were drawn from it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.register_buffer("state", torch.tensor([seed, 0]))


def drawing(model: nn.Module, methods: Iterable[str], kind: RandomSource, seed: int) -> nn.Module:
    """The model with a generator of its own.

    Raises:
        SpecInvalid: The seed has more than 32 bits, or a method has a parameter of the seed's name.
    """
    if hasattr(model, _MARK):
        return model
    if not 0 <= seed <= HIGHEST_SEED:
        raise SpecInvalid(f"the seed {seed} is not within 0 and {HIGHEST_SEED}", hint="take one of 32 bits")
    owner = type(model)
    name = "generator"
    while hasattr(model, name):
        name = f"{name}_"
    calls = {each: _drawn(owner, model, each, name if kind == "state" else None) for each in set(methods)}
    names = {"__module__": owner.__module__, "__qualname__": owner.__qualname__, "__doc__": owner.__doc__}
    made: nn.Module = object.__new__(type(owner.__name__, (owner,), {**names, **calls, _MARK: kind}))
    own = {key: value for key, value in vars(model).items() if key not in calls}
    object.__setattr__(made, "__dict__", own)
    own["_modules"] = dict(own["_modules"])
    if kind == "state":
        own["_modules"][name] = Generator(seed).eval()
    return made


def _drawn(owner: type, model: nn.Module, method: str, generator: str | None) -> Callable[..., Any]:
    """A method that draws from the module's generator, or from the seed that it is passed."""
    held = vars(model).get(method)  # a method that was set on the model itself
    call = held if held is not None else getattr(owner, method, None)
    if not callable(call):
        raise SpecInvalid(f"{owner.__name__} has no method {method!r}", where=source.of_definition(owner))

    def state_of(module: nn.Module, seed: torch.Tensor | None) -> torch.Tensor:
        if generator is not None:
            found: torch.Tensor = getattr(module, generator).state
            return found
        if seed is None:
            raise TypeError(f"{method}() missing 1 required keyword-only argument: {SEED!r}")
        key = seed.reshape(()).to(torch.int64)
        return torch.stack([key, torch.zeros_like(key)])

    def drawn(self: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        seed = kwargs.pop(SEED, None) if generator is None else None
        bound = args if held is not None else (self, *args)
        # torch.compile, which programs are counted beside, cannot follow a mode of torch functions; nor can
        # strict export, whose program draws from torch's generator and is refused for that.
        if torch.compiler.is_dynamo_compiling() or (seed is None and random_draws.is_on()):
            return call(*bound, **kwargs)  # the model calls itself, or is compiled
        with random_draws.drawn_from(state_of(self, seed)):
            return call(*bound, **kwargs)

    functools.update_wrapper(drawn, call)
    signature = signature_of(call)
    parameters = list(signature.parameters.values())
    if held is not None:
        parameters.insert(0, inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY))
    if generator is None:
        if SEED in signature.parameters:
            raise SpecInvalid(
                f"{owner.__name__}.{method} has a parameter {SEED!r} of its own",
                hint="give it another name, or keep the generator as state: `random='state'`",
                where=source.of_definition(call),
            )
        last = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
        place = len(parameters) - 1 if last else len(parameters)
        parameters.insert(place, inspect.Parameter(SEED, inspect.Parameter.KEYWORD_ONLY))
    drawn.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return drawn


def seeded(entry: EntryPoint, seed: int) -> EntryPoint:
    """An entry point whose calls pass the seed of their random numbers."""
    given = {SEED: torch.tensor(seed)}
    return replace(
        entry,
        kwargs={**entry.kwargs, **given},
        examples=tuple(Example(*each.args, **{**each.kwargs, **given}) for each in entry.examples),
        value_ranges={**entry.value_ranges, SEED: (0, HIGHEST_SEED)},
    )
