"""Runs calls through torch.compile and says which programs it made, in which call, and why.

`count(canonical, calls)` gives a `Way`. The model is called as its user would: its own method, compiled, on
the arguments as they are, with its state going on from call to call. It is as before afterwards.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from aotpipe.canonicalize.inputs import pytrees
from aotpipe.core.stages import Canonical, CanonicalEntry
from aotpipe.errors import SourceLine
from aotpipe.model import source
from aotpipe.tools.recompiles.calls import ModelCall
from aotpipe.tools.recompiles.dynamo import Break, Made, counting
from aotpipe.tools.recompiles.results import TORCH_COMPILE, Program, Refused, Way
from aotpipe.validate.eager.swap import Contents


def count(canonical: Canonical, calls: Sequence[ModelCall], *, dynamic: bool | None = None) -> Way:
    """Count the programs of torch.compile.

    Args:
        canonical: The model.
        calls: What it is called with.
        dynamic: As torch.compile has it: None makes a size dynamic when it varies first.
    """
    contents = Contents(
        [entry.module for entry in canonical.entries], parameters=None, others=lambda tensor: tensor
    )
    entries = {entry.name: entry for entry in canonical.entries}
    programs: list[Program] = []
    refused: list[Refused] = []
    so_far: list[int] = []
    of_function: dict[tuple[str, int], list[int]] = {}
    with counting() as counter, torch.random.fork_rng(devices=[]), torch.no_grad():
        compiled = {
            entry.name: torch.compile(_callable(entry), backend=counter.backend, dynamic=dynamic)
            for entry in canonical.entries
        }
        for number, call in enumerate(calls, 1):
            if call.reset:
                contents.reset()
            adapter = entries[call.entry_point].adapter
            given = adapter.called(call.args[0]) if adapter else (call.args, dict(call.kwargs))
            args, kwargs = pytrees.clone_tensors(given)
            with contents:
                try:
                    compiled[call.entry_point](*args, **kwargs)
                except Exception as error:  # noqa: BLE001  # the user's code may refuse a call with anything
                    refused.append(Refused(call=number, reason=f"{type(error).__name__}: {_line(error)}"))
            made, breaks = counter.taken()
            for each in made:
                of_function.setdefault((each.path, each.line), []).append(number)
            programs += _programs(made, breaks, number, len(programs), canonical)
            so_far.append(len(programs))
        limit = counter.limit
    notes = tuple(_given_up(of_function, limit))
    if not programs and len(refused) < len(calls):
        notes = ("nothing was compiled: torch.compile gave the function up, and every call runs eagerly",)
    return Way(
        name=TORCH_COMPILE,
        so_far=tuple(so_far),
        programs=tuple(programs),
        refused=tuple(refused),
        notes=notes,
    )


def _callable(entry: CanonicalEntry) -> Callable[..., Any]:
    """What a user would compile: the module, or the function or method behind a wrapper of aotpipe's."""
    if entry.adapter is not None:
        return entry.adapter.structure.call
    forward = entry.module.forward
    inner: Callable[..., Any] | None = getattr(forward, "__wrapped__", None)
    if inner is None or inspect.signature(forward) != inspect.signature(inner):
        return entry.module
    return inner


def _programs(
    made: Sequence[Made], breaks: Sequence[Break], call: int, before: int, canonical: Canonical
) -> Iterator[Program]:
    at: Mapping[tuple[str, int], Break] = {(each.path, each.line): each for each in breaks}
    for number, each in enumerate(made, before + 1):
        broken = at.get((each.path, each.line))
        if each.guard is not None:
            cause, where = "recompile", each.guard.where
            value, reason = each.guard.value, each.guard.reason
        elif broken is not None:
            cause, value = "break", ""
            where, reason = SourceLine(source.shown(broken.path), broken.line), _broken(broken.reason)
        else:
            cause, value, reason = "first", "", f"the first of {each.function}"
            where = SourceLine(source.shown(each.path), each.line) if each.path else None
        yield Program(
            number=number,
            call=call,
            function=each.function,
            cause=cause,  # type: ignore[arg-type]  # one of its three
            where=_of_user(where, canonical),
            value=value,
            reason=reason,
            ops=each.ops,
        )


def _of_user(where: SourceLine | None, canonical: Canonical) -> SourceLine | None:
    """A line of a wrapper of aotpipe's stands for the method behind it."""
    if where is not None and source.is_model_code(where.path):
        return where
    return source.of_definition(canonical.entries[0].module.forward) or where


def _broken(reason: str) -> str:
    first = reason.splitlines()[0] if reason else ""
    return f"the graph breaks here: {first}"


def _given_up(of_function: Mapping[tuple[str, int], Sequence[int]], limit: int) -> Iterator[str]:
    """Say where torch.compile as it is would stop to compile and run eagerly."""
    for (path, line), calls in of_function.items():
        if len(calls) > limit:
            yield (
                f"{source.shown(path)}:{line} takes {len(calls)} programs: torch.compile stops after {limit} "
                f"(recompile_limit) and runs it eagerly, here from call {calls[limit]}"
            )


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
