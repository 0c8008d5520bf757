"""The coverage of a model's calls: what the planned ones reach, and the calls that a search adds.

`search(exported, ...)` observes planned runs and looks for what they do not reach; `coverage(found, ...)`
says what the calls that eager answered have reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from aotpipe.core.coverage import Coverage, Goal
from aotpipe.core.dtypes import Array
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Exported
from aotpipe.validate.coverage import goals
from aotpipe.validate.coverage.interpreter import Interpreter
from aotpipe.validate.coverage.search import Run, Search, Seen
from aotpipe.validate.inputs import Call, bound, runs_unlike, size_goals

_WITHOUT_END: Final = "no input was found that reaches it"
_NOT_KNOWN: Final = "nobody knows: not every planned run was looked at to its end"
_NO_SIZE: Final = "no call of these sizes was made: it is too dear, or eager raises"


def search(
    exported: Exported,
    signatures: Mapping[str, Signature],
    examples: Mapping[str, Mapping[str, Array]],
    planned: Iterable[Run],
    seed: int,
    accept: Callable[[Seen], bool],
    products: Callable[[Call], float],
) -> Search | None:
    """Observe planned runs and look for what they do not reach; None where there is nothing to reach.

    `planned` are runs that eager takes; `accept` says so of one that was found, which is then compared too.
    `products` says how many multiply-adds a call takes.
    """
    targets = goals.targets(exported)
    if not targets:
        return None
    found = Search(Interpreter(exported), targets, signatures, seed, accept=accept, products=products)
    for run in planned:
        found.observe(run)
    unlike = (
        map(tuple, runs_unlike(name, signature, examples[name], seed))
        for name, signature in signatures.items()
    )
    found.look(chain.from_iterable(unlike))
    return found


def coverage(
    found: Search | None,
    answered: Sequence[Call],
    signatures: Mapping[str, Signature],
    examples: Mapping[str, Mapping[str, Array]],
    seed: int,
) -> Coverage:
    """What calls have reached.

    Args:
        found: What was observed of branches and loops.
        answered: The calls that programs are compared on.
        signatures: By entry point.
        examples: By entry point.
        seed: Of the plan.
    """
    listed: list[Goal] = []
    notes = _notes(found) if found else ()
    for key, target in found.targets.items() if found else ():
        call = found.by.get(key) if found else None
        listed.append(
            Goal(
                entry_point=target.entry_point,
                kind=target.kind,
                what=target.what if not target.bound else f"{target.what}, {target.bound} trips",
                where=target.where,
                case=call.case if call else "",
                optional=target.optional,
                reason="" if call else _NOT_KNOWN if notes else _WITHOUT_END,
            )
        )
    for name, signature in signatures.items():
        calls = [(call.case, bound(signature, call.inputs)) for call in answered if call.entry_point == name]
        for what, wanted in size_goals(signature, examples[name], seed):
            case = next((case for case, sizes in calls if sizes and wanted.items() <= sizes.items()), "")
            reason = "" if case else _NO_SIZE
            listed.append(Goal(entry_point=name, kind="size", what=what, case=case, reason=reason))
    return Coverage(goals=tuple(listed), notes=notes)


def _notes(found: Search) -> tuple[str, ...]:
    """Why it is not known what planned runs reach, where something may be reached that was not seen."""
    is_open = any(not found.targets[key].optional for key in found.open)
    unseen = [f"{found.unseen} planned runs were too dear to look at"] if found.unseen and is_open else []
    return (*found.notes, *unseen)
