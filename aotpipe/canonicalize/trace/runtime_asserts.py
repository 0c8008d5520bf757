"""Where a graph would have to raise: an assert of the program says what eager raises.

`raised(error)` marks the exceptions of the user's own `raise`; `require` puts an assert into the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from aotpipe.canonicalize.trace import torch_functions
from aotpipe.canonicalize.values import trace
from aotpipe.canonicalize.values.trace import message, refusal

Assert = tuple[torch.Tensor, str]
"""What must hold, and what is said where it does not."""


@dataclass(slots=True)
class _Asserts:
    """What a trace knows of exceptions and of asserts.

    Attributes:
        raised: The user's own exceptions by identity, kept alive, so that no other one takes it.
        caught: What the bodies of `try` that run now have handlers for.
        collected: The asserts of each region that runs now; None of one that puts them into its graph.
    """

    raised: dict[int, object] = field(default_factory=dict)
    caught: list[Callable[[], Any]] = field(default_factory=list)
    collected: list[list[Assert] | None] = field(default_factory=list)


def raised(make: Callable[[], Any]) -> Any:
    """The exception that `make` gives, as one of the user's own; its text may be made of traced tensors."""
    with message():
        error = make()
        if isinstance(error, type) and issubclass(error, BaseException):
            error = error()
    trace.part(_Asserts).raised[id(error)] = error
    return error


def is_raised(error: BaseException) -> bool:
    """Whether the user's own `raise` raised this."""
    return id(error) in trace.part(_Asserts).raised


def catching(kinds: Callable[[], Any]) -> AbstractContextManager[Any]:
    """Run the body of a `try` that has handlers for these exceptions; `kinds` gives a tuple."""
    return trace.pushed(trace.part(_Asserts).caught, kinds)


def require(test: Any, error: BaseException, *, holds: bool) -> None:
    """Assert that a test that decides between going on and raising `error` has a certain truth.

    Raises:
        ExportFailed: Eager would go on in a handler.
    """
    if any(isinstance(error, kinds()) for kinds in trace.part(_Asserts).caught):
        raise refusal(
            f"{type(error).__name__} is raised where a tensor decides, and caught",
            "decide with `if` and `else` in place of `try` and `except`",
            "paths-differ",
        )
    truth = torch_functions.predicate(test)
    add_assert(truth if holds else truth.logical_not(), f"{type(error).__name__}: {error}".rstrip(": "))


def add_assert(truth: torch.Tensor, said: str) -> bool:
    """Put an assert into the graph; whether it holds for all that comes after it."""
    stack = trace.part(_Asserts).collected
    if stack and (asserts := stack[-1]) is not None:
        asserts.append((truth, said))
    else:
        torch._assert_async(truth, said)  # noqa: SLF001  # what torch.export keeps
    return not stack


def padded(asserts: list[Assert], wanted: int) -> list[torch.Tensor]:
    """The truths of as many asserts as the run that saw a path has found.

    What that run asked of a number that it had asked for before, this one may ask inside: then it makes other
    asserts.
    """
    truths = [truth for truth, _ in asserts]
    if wanted and len(truths) > wanted:
        truths = [*truths[: wanted - 1], torch.stack(truths[wanted - 1 :]).all()]
    if not wanted:
        for truth, said in asserts:
            torch._assert_async(truth, said)  # noqa: SLF001  # what torch.export keeps
    return [*truths[:wanted], *(torch.full((), True) for _ in range(wanted - len(truths)))]


def collected() -> AbstractContextManager[list[Assert]]:
    """Inside, asserts are collected: torch drops a branch that gives no result, with its asserts."""
    asserts: list[Assert] = []
    return trace.pushed(trace.part(_Asserts).collected, asserts)


def in_place() -> AbstractContextManager[object]:
    """Inside, asserts go into the graph that is traced."""
    return trace.pushed(trace.part(_Asserts).collected, None)
