"""What the runners of all backends share: entry points by name, a lock, a state that outlives calls, an end.

`BaseRunner` checks inputs before anything runs and serializes the calls of one runner; how a program is
called and where its state is are its backend's. Torch-free.
"""

from __future__ import annotations

import difflib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

import numpy as np

from aotpipe.core.dtypes import Array, numpy_dtype
from aotpipe.core.signature import Signature
from aotpipe.errors import (
    AssertionViolated,
    BundleCorrupt,
    InputError,
    InputShape,
    MissingWeight,
    ProgramCrashed,
    RunnerClosed,
)
from aotpipe.runtime.input_checks import Checker


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry point, prepared for calls; results are its outputs, its next state and its asserts' flags.

    Attributes:
        state: The names of the states, in the order in which a program takes and gives them.
        outputs: The names of the outputs and their dtypes, in the order in which a program gives them.
        kept: The names of the states whose next values are taken where an assert fails, too.
    """

    name: str
    checker: Checker
    asserts: tuple[str, ...]
    state: tuple[str, ...] = field(init=False)
    outputs: tuple[tuple[str, np.dtype[Any]], ...] = field(init=False)
    kept: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        # Computed once: a call reads them several times.
        signature = self.checker.signature
        outputs = tuple((spec.name, numpy_dtype(spec.dtype)) for spec in signature.tensor_outputs)
        object.__setattr__(self, "state", tuple(spec.name for spec in signature.state))
        object.__setattr__(self, "outputs", outputs)
        object.__setattr__(self, "kept", frozenset(signature.kept_on_raise))

    def require(self, flags: Iterable[bool]) -> None:
        """Check the asserts' flags.

        Raises:
            AssertionViolated: The first that is False.
        """
        for message, holds in zip(self.asserts, flags, strict=True):
            if not holds:
                state = "is what eager leaves" if self.kept else "is unchanged"
                raise AssertionViolated(
                    message or "an assert of the model failed",
                    reason=f"in {self.name!r}; the outputs are withheld and the state {state}",
                )

    def require_results(self, count: int, *, extra: int = 0) -> None:
        """Check how many results a program gave.

        Raises:
            ProgramCrashed: They are not as many as the signature has, and `extra` ones.
        """
        wanted = len(self.outputs) + len(self.state) + len(self.asserts) + extra
        if count != wanted:
            raise ProgramCrashed(
                f"the program gave {count} results in {self.name!r}, its signature has {wanted}"
            )


E = TypeVar("E", bound=Entry)


class BaseRunner(ABC, Generic[E]):
    """A loaded program with its own state."""

    def __init__(self, *, entries: Mapping[str, E], initial_state: Mapping[str, Array], device: str) -> None:
        self.signatures = {name: entry.checker.signature for name, entry in entries.items()}
        self.device = device
        self._entries = entries
        self._named = [name for name, each in entries.items() if not each.checker.signature.specializes]
        named = self._named
        self._default = named[0] if len(named) == 1 else "forward"
        self._others = {
            name: [each for each in entries.values() if each.checker.signature.specializes == name]
            for name in entries
        }
        held = {name for entry in entries.values() for name in entry.state}
        self._initial_state = {name: array for name, array in initial_state.items() if name in held}
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._is_open = True
        self._state: dict[str, Any] = {}
        self.reset()

    @abstractmethod
    def _call(self, entry: E, arrays: list[Array], sizes: Mapping[str, int]) -> dict[str, Array]:
        """The outputs of one call; the state is replaced last, once nothing can fail."""

    @abstractmethod
    def _placed(self, name: str, array: Array) -> Any:
        """A copy of an array where the program takes its state of a name."""

    def _forget(self) -> None:
        """Release the buffers of the present state, before the next state takes their memory."""
        self._state = {}

    @property
    def signature(self) -> Signature:
        """The signature of the entry point that `infer` calls unless told otherwise.

        Raises:
            InputError: There are several and none is called `forward`.
        """
        return self._entry(None).checker.signature

    def infer(self, inputs: Mapping[str, Any], *, entry_point: str | None = None) -> dict[str, Array]:
        """Call an entry point.

        Args:
            inputs: Every tensor input of its signature, by name, or a batch as the model takes it, that may
                lack what is optional (`aotpipe.runtime.input_checks`).
            entry_point: The only one, or `forward`, where None.

        Returns:
            Every tensor output of its signature, by name, but for those that are not there; the arrays are
            the caller's own.
        """
        if self._process != os.getpid():
            self._require_process()
        entry = self._entries.get(self._default) if entry_point is None else None
        if entry is None:
            entry = self._entry(entry_point)
        try:
            arrays, sizes = entry.checker.check(inputs)
        except InputShape as error:
            entry, arrays, sizes = self._specialized(entry, inputs, error)
        with self._lock:
            if not self._is_open:
                self._require_open()
            outputs = self._call(entry, arrays, sizes)
        return entry.checker.unpacked(inputs, outputs)

    def _specialized(
        self, entry: E, inputs: Mapping[str, Any], error: InputShape
    ) -> tuple[E, list[Array], Mapping[str, int]]:
        """The program that specializes an entry point for these sizes, and the inputs as it takes them.

        Raises:
            InputShape: None does; `error` is what the entry point itself says.
        """
        for other in self._others.get(entry.name, ()):
            with suppress(InputShape):
                return other, *other.checker.check(inputs)
        raise error

    def time(
        self,
        inputs: Mapping[str, Any],
        *,
        entry_point: str,
        samples: int,
        reset: bool = False,
        arrivals_s: Sequence[float] = (),
    ) -> list[float]:
        """Microseconds of each of some calls; `reset` goes before each, untimed.

        With `arrivals_s` each call is asked for so many seconds after the first is, at the earliest when the
        one before has ended, and its time counts from when it was asked for.
        """
        durations = []
        begin = time.perf_counter_ns()
        for place in range(samples):
            if reset:
                self.reset()
            start = time.perf_counter_ns()
            if arrivals_s:
                asked = begin + round(arrivals_s[place] * 1e9)
                if asked > start:
                    time.sleep((asked - start) / 1e9)
                start = asked
            self.infer(inputs, entry_point=entry_point)
            durations.append((time.perf_counter_ns() - start) / 1000)
        return durations

    def reset(self) -> None:
        """Go back to the initial state."""
        self._require_process()
        with self._lock:
            self._require_open()
            self._forget()
            self._state = self._initial()

    def exchange_state(self, state: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Go on from another state: one that an earlier exchange gave, or the initial one where None.

        Returns:
            The state that the calls so far left, to be given back to this runner alone.
        """
        self._require_process()
        with self._lock:
            self._require_open()
            before, self._state = self._state, {}
            self._state = dict(state) if state is not None else self._initial()
        return before

    def _initial(self) -> dict[str, Any]:
        return {name: self._placed(name, array) for name, array in self._initial_state.items()}

    def close(self) -> None:
        """Free the program and its state; calls after it are refused.

        Of another process, which forked this one, they are not this one's to free.
        """
        if self._process != os.getpid():
            return
        with self._lock:
            self._is_open = False
            self._forget()
            self._entries = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _entry(self, name: object) -> E:
        entries = self._entries
        if not entries:
            self._require_open()
        known = self._named if name is None else entries
        if name is None:
            name = next(iter(known)) if len(known) == 1 else "forward"
        if not isinstance(name, str) or name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            raise InputError(
                f"no entry point is called {name!r}",
                reason=f"the entry points are: {', '.join(known)}",
                hint=f"pass entry_point={(close or list(known))[0]!r}",
            )
        return entries[name]

    def _require_open(self) -> None:
        if not self._is_open:
            raise RunnerClosed("this runner is closed", hint="load the bundle again")

    def _require_process(self) -> None:
        if self._process != os.getpid():
            # The threads of the device are not there in a forked child, nor one that may hold the lock: a
            # call would wait for ever.
            raise ProgramCrashed(
                "this runner was made before the process forked",
                hint="load the program in the child, or start workers with the method `spawn`",
            )


def require_state(signatures: Mapping[str, Signature], initial_state: Mapping[str, Array]) -> None:
    """Check that every state has its initial value.

    Raises:
        MissingWeight: One has none.
        BundleCorrupt: One has another dtype or shape.
    """
    for entry, signature in signatures.items():
        for spec in signature.state:
            array = initial_state.get(spec.name)
            if array is None:
                raise MissingWeight(
                    f"the initial value of the state {spec.name!r} is missing",
                    reason=f"{entry!r} needs {spec}",
                )
            if array.dtype != numpy_dtype(spec.dtype) or array.shape != spec.dims:
                raise BundleCorrupt(
                    f"the initial value of the state {spec.name!r} is {array.dtype}{list(array.shape)}",
                    reason=f"{entry!r} wants {spec}",
                )


def first_line(error: Exception) -> str:
    """What a runtime says of a failure, in one line."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
