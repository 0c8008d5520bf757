"""A worker of the server: one program in a process of its own, which its crash ends alone.

The server starts `python -m aotpipe.runtime.serve.worker FD PARENT ARENA...` and sends it messages through
`channel`. The worker loads the bundle's program, runs the recorded calls on it, and says that it is ready;
then it answers one group of calls after another. Calls that were batched are run as one; where that one
fails, each is run on its own, so that one caller's input does not fail another's call.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np

from aotpipe.core.dtypes import Array, numpy_dtype, raw_bytes
from aotpipe.errors import AotpipeError, BundleCorrupt, InputShape, ParityError, ProgramCrashed, UnknownModel
from aotpipe.runtime import process
from aotpipe.runtime.bundle import files
from aotpipe.runtime.bundle.files import Bundle
from aotpipe.runtime.bundle.load import load
from aotpipe.runtime.bundle.recorded import compared
from aotpipe.runtime.goldens import Golden, compare
from aotpipe.runtime.loading import Runner
from aotpipe.runtime.serve.channel import Arena, aligned, open_arenas, packed, receive, received
from aotpipe.runtime.serve.tensors import batch_symbol

_MOST_PROOF_ROWS: Final = 64


class _Worker:
    """The program and the sessions' states."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._sessions: dict[str | int, Mapping[str, Any]] = {}
        self._session: str | int | None = None

    def run(self, call: Mapping[str, Any], memory: memoryview) -> list[dict[str, Array] | AotpipeError]:
        """The outputs of a call, or of each of the calls that it was batched from, or why there are none."""
        inputs = {
            name: np.frombuffer(memory, dtype, int(np.prod(shape, dtype=np.int64)), offset).reshape(shape)
            for name, dtype_name, shape, offset in call["inputs"]
            for dtype in (numpy_dtype(dtype_name),)
        }
        rows = call["rows"]
        session = call["session"]
        try:
            if session is not None:
                self._take_up(session, is_new=call["start"])
            outputs = self._runner.infer(inputs, entry_point=call["entry"])
        except AotpipeError as error:
            if session is not None and (call["end"] or isinstance(error, ProgramCrashed)):
                self.forget(session)  # where it crashed, the state may be changed in part
            if len(rows) < 2:
                return [error]
            return [
                result
                for begin, end in _spans(rows)
                for result in self.run(
                    {**call, "inputs": _rows_of(call["inputs"], begin, end), "rows": [1]}, memory
                )
            ]
        if session is not None and call["end"]:
            self.forget(session)
        if len(rows) < 2:
            return [outputs]
        return [{name: array[begin:end] for name, array in outputs.items()} for begin, end in _spans(rows)]

    def _take_up(self, session: str | int, *, is_new: bool) -> None:
        if self._session != session or is_new:
            if not is_new and session not in self._sessions:
                raise UnknownModel(f"the session {session!r} has no state", hint="begin it anew")
            before = self._runner.exchange_state(None if is_new else self._sessions.pop(session))
            if self._session is not None and self._session != session:
                self._sessions[self._session] = before
            self._session = session

    def forget(self, session: str | int) -> None:
        """Drop a session's state."""
        self._sessions.pop(session, None)
        if self._session == session:
            self._session = None


def _spans(rows: list[int]) -> list[tuple[int, int]]:
    ends = np.cumsum(rows).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _rows_of(inputs: list[Any], begin: int, end: int) -> list[Any]:
    """Where some rows of batched inputs lie."""
    found = []
    for name, dtype, (_, *rest), offset in inputs:
        row = int(np.prod(rest, dtype=np.int64)) * numpy_dtype(dtype).itemsize
        found.append((name, dtype, (end - begin, *rest), offset + begin * row))
    return found


def _prove(runner: Runner, goldens: tuple[Golden, ...], most_rows: int) -> None:
    """Run the recorded calls; where calls are to be batched, find out whether rows depend on each other.

    Raises:
        ParityError: An answer is not the recorded one, or it changes with the other rows of its batch.
    """
    parity = compared(runner, goldens)
    if not parity.passed:
        worst = parity.worst
        raise ParityError(
            "the program does not give the recorded answers on this host",
            reason=f"{worst.entry_point}, {worst.case}, {worst.output}: {worst}" if worst else "",
            hint="`aotpipe selftest` shows each target",
        )
    if most_rows > 1:
        for entry, signature in runner.signatures.items():
            if batch_symbol(signature):
                _prove_rows(runner, [golden for golden in goldens if golden.entry_point == entry], entry)


def _prove_rows(runner: Runner, goldens: list[Golden], entry: str) -> None:
    is_proved = False
    for golden in goldens:
        rows = len(next(iter(golden.inputs.values())))
        # Other rows before the recorded ones, and the recorded ones without their first.
        for before, after in (((-1,), 0), ((), 1)):
            kept = [*before, *range(after, rows)]
            if not 0 < len(kept) - len(before) <= _MOST_PROOF_ROWS:
                continue
            with suppress(InputShape):  # the program takes no batch of this size
                inputs = {name: np.ascontiguousarray(array[kept]) for name, array in golden.inputs.items()}
                _require_rows(golden, runner.infer(inputs, entry_point=entry), len(before), after)
                is_proved = True
    if not is_proved:
        raise ParityError(
            f"no recorded call of {entry!r} shows that the rows of a batch do not depend on each other",
            hint="serve it without --max-batch-size",
        )


def _require_rows(golden: Golden, got: Mapping[str, Array], before: int, after: int) -> None:
    for name, want in golden.outputs.items():
        unsure = golden.unsure.get(name)
        found = compare(
            got[name][before:],
            want[after:],
            *golden.allowed.get(name, (0.0, 0.0)),
            None if unsure is None else unsure[after:],
        )
        if found.ratio > 1.0:
            raise ParityError(
                f"output {name!r} of {golden.entry_point!r} changes with the other rows of its batch",
                reason=f"{golden.case}: {found.message or f'off by {found.max_abs_error:.3g}'}",
                hint="serve it without --max-batch-size",
            )


def _written(
    results: list[dict[str, Array] | AotpipeError], answer: Arena, offset: int
) -> tuple[list[Any], int]:
    """Copy outputs to shared memory; returns what the message says of them, and where they end."""
    said: list[Any] = []
    for result in results:
        if isinstance(result, AotpipeError):
            said.append(_said(result))
            continue
        outputs = []
        for name, array in result.items():
            offset = aligned(offset)
            view = answer.reserve(offset + array.nbytes)
            view[offset : offset + array.nbytes] = raw_bytes(np.ascontiguousarray(array)).data
            outputs.append((name, array.dtype.name, array.shape, offset))
            offset += array.nbytes
        said.append({"outputs": outputs})
    return said, offset


def main() -> None:
    """Load the program that the first message names, and answer the messages after it."""
    fd, parent, *arenas = map(int, sys.argv[1:])
    if not process.become_child(parent):
        return
    channel = socket.socket(fileno=fd)
    requests, answers = open_arenas(arenas)
    try:
        config = receive(channel)
        try:
            runner = _loaded(config)
        except AotpipeError as error:
            channel.sendall(packed({"ready": False, **_said(error)}))
            return
        channel.sendall(packed({"ready": True}))
        _serve(channel, _Worker(runner), requests, answers)
    except EOFError:
        return


def _loaded(config: Mapping[str, Any]) -> Runner:
    """A program that was proved to give the recorded answers, in its initial state."""
    bundle = received(config["bundle"])
    _require_in_place(bundle)
    runner = load(bundle, **config["load"])
    _require_in_place(bundle)  # also after it was read
    _prove(runner, files.goldens(bundle), config["max_batch_size"])
    runner.reset()
    return runner


def _require_in_place(bundle: Bundle) -> None:
    if not files.is_in_place(bundle):
        raise BundleCorrupt(
            f"the bundle at {bundle.path} is not the one that is served",
            reason="it was replaced since, and a worker that takes another's place needs the old one",
            hint="load the model again",
        )


def _serve(channel: socket.socket, worker: _Worker, requests: list[Arena], answers: list[Arena]) -> None:
    while True:
        message = receive(channel)
        if "forget" in message:
            worker.forget(message["forget"])
            continue
        slot = message["slot"]
        memory = requests[slot].mapped(message["bytes"])
        said, offset = [], 0
        for call in message["calls"]:
            start = time.perf_counter_ns()
            results = worker.run(call, memory)
            spent = time.perf_counter_ns() - start
            written, offset = _written(results, answers[slot], offset)
            said.append({"results": written, "at": start, "ns": spent})
        channel.sendall(packed({"slot": slot, "bytes": offset, "calls": said}))


def _said(error: AotpipeError) -> dict[str, str]:
    fields = {"message": error.message, "reason": error.reason, "hint": error.hint}
    return {"error": type(error).__name__, **fields}


if __name__ == "__main__":
    main()
