"""Whether eager gives the same answer to the same call, as a program does, which fixes numbers and times.

`require_repeatable(eager, asked)` asks eager again, after every generator was seeded otherwise and with the
clock moved on, and again with other values of the environment variables that it reads and of what another
process may be told: its number, its host, the identity of an object, the hash of a string. An answer that
differs is refused with the line that drew the number, or read the clock or the variable; so is a file that
each call reads.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import random
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from numbers import Number
from types import FrameType
from typing import Any, Final

import numpy as np
import torch

from aotpipe.core.stages import Finding
from aotpipe.errors import NotRepeatable
from aotpipe.model import source, source_ranges
from aotpipe.model.source_ranges import Place
from aotpipe.validate.eager import side_effects
from aotpipe.validate.eager.eager import Eager, EagerFailed
from aotpipe.validate.eager.side_effects import Calls, Effect, EffectKind
from aotpipe.validate.inputs import Call

Answer = Mapping[str, np.ndarray]
# Threads add in another order; what is drawn anew differs by more.
_RELATIVE: Final = 1e-3
# A century: float32 tells times of today apart from 128 seconds on.
_LATER_S: Final = 3.2e9
_CLOCKS: Final = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
_SEED: Final = 20_011


def require_repeatable(eager: Eager, asked: Iterable[tuple[Call, Answer]]) -> tuple[Finding, ...]:
    """Ask eager again for the first call of each entry point whose answer is known, from the initial state.

    Returns:
        Warnings: what the model reads while it is traced that another process may give otherwise.

    Raises:
        NotRepeatable: An answer differs from the one before.
    """
    first: dict[str, tuple[Call, Answer]] = {}
    for call, answer in asked:
        if call.reset:
            first.setdefault(call.entry_point, (call, answer))
    findings: dict[str, Finding] = {}
    for call, answer in first.values():
        try:
            effects = _repeated(eager, call, answer)
        except NotRepeatable as error:
            error.where = error.where or eager.definition(call.entry_point)
            raise
        for effect in effects:
            if effect.kind in _FIXED:
                findings.setdefault(effect.place.text, _fixed(effect))
    return tuple(findings.values())


def _repeated(eager: Eager, call: Call, answer: Answer) -> list[Effect]:
    """Ask again for a call; what it does besides tensors.

    Raises:
        NotRepeatable: Its answer differs.
    """
    with _seeded(_SEED), side_effects.recording() as found:
        again = _again(eager, call)
    effects = [
        *found.effects,
        *side_effects.numpy_draws(found.reached),
        *side_effects.argument_reads(found.reached),
    ]
    _compare(call, answer, again, [*(each for each in effects if each.kind != "write"), *_to_globals(found)])
    clocks = [effect for effect in effects if effect.kind == "clock"]
    if clocks:
        with _later(found.reached.values()):
            again = _again(eager, call)
        _compare(call, answer, again, clocks)
    variables = [effect for effect in effects if effect.kind == "environment"]
    if variables:
        with _elsewhere():
            again = _again(eager, call)
        # What raises with another value does not say that the answer depends on it.
        _compare(call, answer, answer if again is None else again, variables)
    elsewhere = [effect for effect in effects if effect.kind in ("process", "identity")]
    if elsewhere:
        with _in_another_process(found.reached.values()):
            again = _again(eager, call)
        _compare(call, answer, answer if again is None else again, elsewhere)
    if any(effect.kind == "file" for effect in effects):
        _require_no_reads(eager, call)
    return effects


def _to_globals(found: Calls) -> Iterator[Effect]:
    """The writes to a part of a global."""
    held = {id(value) for names in found.reached.values() for value in names.values()}
    yield from (each for each in found.effects if each.kind == "write" and id(each.owner) in held)
    yield from side_effects.global_writes(found.reached)


def _again(eager: Eager, call: Call) -> Answer | None:
    eager.reset()
    try:
        return eager.infer(call.inputs, entry_point=call.entry_point)
    except EagerFailed:
        return None


def _require_no_reads(eager: Eager, call: Call) -> None:
    """Refuse a model that reads a file in each call; one that does so once keeps what it read."""
    if _again(eager, call) is None:
        return
    with _read() as places, suppress(EagerFailed):
        eager.infer(call.inputs, entry_point=call.entry_point)
    if places:
        place = places[0]
        raise NotRepeatable(
            f"{call.entry_point} reads files in each call: `{place.expression}`; "
            "a program would keep what there is now",
            hint="read it where the model is made, or pass what it holds as an input",
            where=place.where,
        )


def _compare(call: Call, before: Answer, after: Answer | None, effects: Sequence[Effect]) -> None:
    if (
        after is not None
        and before.keys() == after.keys()
        and all(map(_is_same, before.values(), after.values()))
    ):
        return
    causes = [effect for effect in effects if effect.kind in _DOES]
    said = f"{call.entry_point} gives another answer to the same call"
    if causes:
        said += f": `{causes[0].place.expression or causes[0].name}` {_DOES[causes[0].kind]}"
    raise NotRepeatable(
        f"{said}; a program would give the same one for ever",
        hint=_DRAW if causes and causes[0].kind == "random" else "pass what varies as an input",
        where=causes[0].place.where if causes else None,
    )


def _is_same(before: np.ndarray, after: np.ndarray) -> bool:
    if before.shape != after.shape:
        return False
    if before.dtype.kind in "biu":
        return bool((before == after).all())
    wide = np.complex128 if before.dtype.kind == "c" else np.float64
    one, other = before.astype(wide), after.astype(wide)
    scale = float(np.nanmax(np.abs(one), initial=0.0, where=np.isfinite(one)))
    return bool(np.isclose(one, other, rtol=_RELATIVE, atol=_RELATIVE * scale, equal_nan=True).all())


_DOES: Final[Mapping[EffectKind, str]] = {
    "random": "draws a random number",
    "clock": "reads the clock",
    "environment": "reads the environment",
    "process": "depends on the process, thread or host",
    "identity": "depends on where an object lies in memory, or on how this process hashes strings",
    "write": "changes a global",
}
_DRAW: Final = "draw by torch's functions and build with --random state, or pass the numbers as an input"
_FIXED: Final = ("environment", "file", "clock", "process")


def _fixed(effect: Effect) -> Finding:
    code, message, hint = side_effects.DESCRIPTIONS[effect.kind]
    said = message.format(effect.place.expression or effect.name)
    return Finding(severity="warning", code=code, message=said, hint=hint, where=effect.place.where)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the generators of Python, numpy and torch, and give them their states back."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


def _moved(clock: Callable[[], Any], later: float, thread: int) -> Callable[[], Any]:
    return lambda: clock() + (later if threading.get_ident() == thread else 0)


_CALENDARS: Final[Mapping[Callable[..., Any], int]] = {
    time.localtime: 0,
    time.gmtime: 0,
    time.ctime: 0,
    time.asctime: 0,
    time.strftime: 1,
}
"""What tells the time of now without an argument at this place."""


def _moved_calendar(clock: Callable[..., Any], place: int, thread: int) -> Callable[..., Any]:
    seconds = clock in (time.localtime, time.gmtime, time.ctime)

    def moved(*given: Any) -> Any:
        if len(given) != place or threading.get_ident() != thread:
            return clock(*given)
        now = time.time() + _LATER.total_seconds()
        return clock(*given, now if seconds else time.localtime(now))

    return moved


# Every part of a date and of a time of day differs.
_LATER: Final = dt.timedelta(days=36_934, hours=5, minutes=17, seconds=31, microseconds=456_789)


def _later_datetime(thread: int) -> type[dt.datetime]:
    real = dt.datetime

    class Later(real):  # type: ignore[valid-type, misc]  # a class of C cannot be given another method
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return real.now(tz) + (_LATER if threading.get_ident() == thread else dt.timedelta())

        today = now

        @classmethod
        def utcnow(cls) -> dt.datetime:
            return cls.now(dt.UTC).replace(tzinfo=None)

    return Later


def _later_date(thread: int) -> type[dt.date]:
    real = dt.date

    class Later(real):  # type: ignore[valid-type, misc]
        @classmethod
        def today(cls) -> dt.date:
            return real.today() + (_LATER if threading.get_ident() == thread else dt.timedelta())

    return Later


@contextmanager
def _later(modules: Iterable[Mapping[str, Any]]) -> Iterator[None]:
    """Move the clock on, for those who call it by the module `time` or by a name of their own module."""
    mine = threading.get_ident()  # a compiler that another thread waits for has its time limit
    moved: dict[int, Any] = {}
    for name in _CLOCKS:
        for clock, later in (
            (getattr(time, name), _LATER_S),
            (getattr(time, f"{name}_ns"), int(_LATER_S * 1e9)),
        ):
            moved[id(clock)] = _moved(clock, later, mine)
    for clock, place in _CALENDARS.items():
        moved[id(clock)] = _moved_calendar(clock, place, mine)
    moved |= {id(dt.datetime): _later_datetime(mine), id(dt.date): _later_date(mine)}
    with _replaced(moved, (vars(time), vars(dt), *modules)):
        yield


@contextmanager
def _replaced(others: Mapping[int, Any], modules: Iterable[Mapping[str, Any]]) -> Iterator[None]:
    """Give modules another value for each name of a value whose `id` is in `others`."""
    changed: list[tuple[Any, str, Any]] = []
    for names in ({id(each): each for each in modules}).values():
        for name, value in list(names.items()):
            if id(value) in others:
                changed.append((names, name, value))
                names[name] = others[id(value)]  # type: ignore[index]
    try:
        yield
    finally:
        for names, name, value in changed:
            names[name] = value


def _has_one_hash(value: Any) -> bool:
    """Whether every process hashes a value alike, unlike strings and what is hashed by its identity."""
    if isinstance(value, tuple | frozenset):
        return all(map(_has_one_hash, value))
    return isinstance(value, Number)


def _used(found: Any) -> Any:
    return resource.struct_rusage([number + 10_007 for number in found])


_OF_A_HOST: Final[Mapping[Callable[..., Any], Callable[[Any], Any]]] = {
    os.cpu_count: lambda count: (count or 1) + 10_007,
    os.getloadavg: lambda found: tuple(load + 10_007.0 for load in found),
    os.getcwd: lambda path: f"{path}-2",
    torch.get_num_threads: lambda count: count + 10_007,
    resource.getrusage: _used,
    # macOS has none.
    **({os.sched_getaffinity: lambda cores: {*cores, 10_007}} if hasattr(os, "sched_getaffinity") else {}),
}
"""What another host, or another folder, changes in the answers of functions."""


@contextmanager
def _in_another_process(modules: Iterable[Mapping[str, Any]]) -> Iterator[None]:
    """Answer as another process on another host would, for who asks by a module or by a name of its own."""
    modules = tuple(modules)
    thread = threading.get_ident
    mine = thread()

    def other(real: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
        return lambda *given: change(real(*given)) if thread() == mine else real(*given)

    numbers = (os.getpid, os.getppid, threading.get_ident, threading.get_native_id)
    others = {id(real): other(real, lambda number: number + 10_007) for real in numbers}
    others |= {
        id(real): other(real, lambda name: f"{name}-2") for real in (socket.gethostname, platform.node)
    }
    for real, change in _OF_A_HOST.items():
        others[id(real)] = other(real, change)
    others[id(os.uname)] = other(
        os.uname, lambda found: os.uname_result((found[0], f"{found[1]}-2", *found[2:]))
    )
    # Only the model's own modules: torch keeps what it knows of an object by its identity.
    own = {
        "id": other(id, lambda number: number + 0x5BD1E990),
        "hash": lambda value: hash(value) + (0 if _has_one_hash(value) else 10_007),
    }
    arguments: Any = [f"{each}-2" for each in (*sys.argv, "more")]
    others[id(sys.argv)] = arguments
    added = [(names, name) for names in modules for name in own if name not in names]
    homes = (os, threading, socket, platform, resource, sys, torch)
    with _replaced(others, (*map(vars, homes), *modules)):
        for names, name in added:
            names[name] = own[name]  # type: ignore[index]
        try:
            yield
        finally:
            for names, name in added:
                names.pop(name, None)  # type: ignore[attr-defined]


@contextmanager
def _elsewhere() -> Iterator[None]:
    """Give other values of environment variables to the model's own code."""
    kind, mine = type(os.environ), threading.get_ident()
    real = kind.__getitem__

    def other(self: Any, key: str) -> str:
        if threading.get_ident() != mine or not _is_asked_by_model(sys._getframe(1)):  # noqa: SLF001
            return real(self, key)
        try:
            return _other(real(self, key))
        except KeyError:
            return "1"

    kind.__getitem__ = other  # type: ignore[method-assign]
    try:
        yield
    finally:
        kind.__getitem__ = real  # type: ignore[method-assign]


_FLAGS: Final = {"true": "false", "false": "true", "yes": "no", "no": "yes", "on": "off", "off": "on"}


def _other(value: str) -> str:
    """Another value of the same kind: a number, a flag or a word; a path stays."""
    if value.lower() in _FLAGS:
        return _FLAGS[value.lower()]
    if value.lstrip("+-").isdecimal():
        return str(int(value) + 1)
    try:
        return str(float(value) + 1)
    except ValueError:
        return value if os.sep in value else f"{value}_"


def _is_asked_by_model(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename in side_effects.FROZEN:
        frame = frame.f_back
    return frame is not None and source_ranges.is_model(frame)


@contextmanager
def _read() -> Iterator[list[Place]]:
    """Note where the model's code reads files, or asks the file system for them."""
    places: list[Place] = []
    _install()
    before = _reads.set(places)
    try:
        with side_effects.recording() as found:
            yield places
    finally:
        _reads.reset(before)
    asked = (each for each in found.effects if each.kind == "file" and each.name in side_effects.QUESTIONS)
    places += [each.place for each in asked]


_reads: ContextVar[list[Place] | None] = ContextVar("reads", default=None)
_WRITES: Final = os.O_WRONLY | os.O_RDWR


@cache
def _install() -> None:
    """Listen to Python's audit events, of which a listener cannot be taken back."""
    sys.addaudithook(_audited)


def _audited(event: str, given: tuple[Any, ...]) -> None:
    if event != "open" or (places := _reads.get()) is None:
        return
    path, mode, flags = given
    is_write = bool(set(mode) & set("wax+")) if mode else bool(flags & _WRITES)
    # An import reads code, and so does who shows a line of it; an installed package's tables are part of it.
    if is_write or (isinstance(path, str) and (path.endswith((".py", ".pyc")) or source.is_installed(path))):
        return
    frame = side_effects.asker("file", sys._getframe(1))  # noqa: SLF001
    if frame is not None:
        places.append(source_ranges.of_frame(frame))
