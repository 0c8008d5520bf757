"""The workers of one model: started, given calls, watched, and replaced when they die.

All of it runs in the thread of the event loop. A worker that dies fails the calls that it had and no others;
one that dies again and again, with no answer in between, is started ever more rarely, and the model is not
ready meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from aotpipe import errors
from aotpipe.core.dtypes import numpy_dtype
from aotpipe.errors import (
    AotpipeError,
    InputShape,
    NotReady,
    ProgramCrashed,
    QueueFull,
    ServeError,
    UnknownModel,
)
from aotpipe.runtime import process
from aotpipe.runtime.serve.channel import SLOTS, Arena, Unpacker, packed
from aotpipe.runtime.serve.scheduler import (
    MOST_BATCHES,
    Call,
    Limits,
    Queue,
    batches_of_message,
    described,
    mean_after,
    messages_at_once,
    passed,
)
from aotpipe.runtime.serve.tensors import Tensor

_LOAD_TIMEOUT_S: Final = 300.0
_WATCH_S: Final = 0.1
_CRASHES: Final = 3
_FIRST_DELAY_S: Final = 0.25
_LAST_DELAY_S: Final = 30.0


@dataclass(slots=True)
class _Sent:
    """A message that a worker has not answered."""

    batches: list[list[Call]]
    since: float


@dataclass(slots=True, eq=False)
class _Session:
    """A session that is open: whose worker has its state, and when it was last asked for."""

    owner: _Worker
    is_kept: bool
    used: float


class _Worker(asyncio.Protocol):
    """One process; its pool hears of what it says."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._unpacker = Unpacker()
        self._transport: asyncio.WriteTransport | None = None
        self._requests = [Arena.new() for _ in range(SLOTS)]
        self._answers = [Arena.new() for _ in range(SLOTS)]
        self._free = list(range(SLOTS))
        self.sent: dict[int, _Sent] = {}
        self.own: deque[Call] = deque()
        """The calls of sessions whose state this worker has."""
        self.is_ready = False
        self.refusal: AotpipeError | None = None
        """Why the program cannot be loaded."""
        self.since = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._is_hung = False

    async def start(self, config: Mapping[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        fds = [theirs.fileno(), *(arena.fd for arena in (*self._requests, *self._answers))]
        loop = asyncio.get_running_loop()
        self.since = loop.time()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "aotpipe.runtime.serve.worker"),
                *map(str, (fds[0], os.getpid(), *fds[1:])),
            ],
            env={**os.environ, "PYTHONPATH": process.python_path()},
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            pass_fds=fds,
            process_group=0,
        )
        theirs.close()
        await loop.create_connection(lambda: self, sock=ours)
        self._write(config)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        how = self._ended()
        for arena in (*self._requests, *self._answers):
            arena.close()
        self._pool.on_lost(self, how)

    def data_received(self, data: bytes) -> None:
        for message in self._unpacker.feed(data):
            if "ready" in message:
                self.is_ready = message["ready"]
                self.refusal = None if message["ready"] else _error(message)
                self._pool.on_started(self.refusal)
            else:
                self._answered(message)
        self._pool.dispatch()

    def room(self, slots: int) -> bool:
        """Whether a message may be sent."""
        return self.is_ready and len(self.sent) < slots

    def send(self, batches: list[list[Call]], now: float) -> None:
        """Write the tensors of some calls to shared memory and send them off."""
        slot = self._free.pop()
        calls, writes, size = [], [], 0
        for batch in batches:
            said, places, size = described(batch, size)
            calls.append(said)
            writes += places
            for call in batch:
                call.started = now
                if call.spans is not None:
                    call.spans.sent()
        try:
            view = self._requests[slot].reserve(size)
            for offset, tensor in writes:
                view[offset : offset + tensor.nbytes] = memoryview(tensor.data).cast("B")
        except OSError as error:
            self._unsent(slot, batches, QueueFull("there is no memory for the inputs", reason=str(error)))
            return
        except Exception as error:
            # A fault of this server's: the worker and its other calls are to go on.
            self._unsent(slot, batches, ServeError("the inputs cannot be passed on", reason=str(error)))
            raise
        self.sent[slot] = _Sent(batches, now)
        self._write({"slot": slot, "bytes": size, "calls": calls})

    def _unsent(self, slot: int, batches: list[list[Call]], error: AotpipeError) -> None:
        """Give a message's slot back, and fail its calls."""
        self._free.append(slot)
        for call in (each for batch in batches for each in batch):
            if call.is_kept:  # a session that did not begin is not open
                self._pool.on_result(self, call, error)
            call.fail(error)

    def forget(self, session: str | int) -> None:
        """Drop a session's state."""
        self._write({"forget": session})

    def kill(self, *, is_hung: bool = False) -> None:
        """End the process; the end of the connection tells the pool."""
        self._is_hung = is_hung
        if self._process is not None:
            process.kill_group(self._process)

    def _write(self, message: Mapping[str, Any]) -> None:
        if self._transport is not None:
            self._transport.write(packed(message))

    def _answered(self, message: Mapping[str, Any]) -> None:
        slot = message["slot"]
        memory = self._answers[slot].mapped(message["bytes"])
        sent = self.sent.pop(slot)
        self._free.append(slot)
        for batch, answer in zip(sent.batches, message["calls"], strict=True):
            for call, result in zip(batch, answer["results"], strict=True):
                call.run_ns = answer["ns"]
                if call.spans is not None:
                    call.spans.ran(batch, answer["at"], answer["ns"])
                error = _error(result) if "error" in result else None
                self._pool.on_result(self, call, error)
                if error is not None:
                    call.fail(error)
                elif not call.future.done():
                    call.future.set_result(
                        tuple(_copied(memory, *described) for described in result["outputs"])
                    )
            self._pool.on_answered(batch, answer["ns"])

    def _ended(self) -> str:
        if self._process is None:
            return "did not start"
        process.kill_group(self._process)
        code = self._process.wait()
        if self._is_hung:
            return "did not answer in time and was killed"
        return f"died by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


@dataclass(eq=False)
class Pool:
    """The workers and the queue of one loaded model.

    Attributes:
        config: What each worker is told to load.
        count: How many workers there are.
        on_ran: Told of each batch that ran, and its nanoseconds.
        on_restart: Told of each worker that died.
    """

    config: Mapping[str, Any] = field(repr=False)
    count: int
    limits: Limits
    on_ran: Callable[[list[Call], int], None]
    on_restart: Callable[[], None]
    crashes: int = 0
    reason: str = "it is being loaded"
    _workers: list[_Worker] = field(default_factory=list)
    _sessions: dict[str | int, _Session] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _mean_ns: float = 0.0
    _is_closing: bool = False
    _is_closed: bool = False
    _is_scheduled: bool = False
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.queue = Queue(self.limits)
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_ready(self) -> bool:
        """Whether a call would run."""
        return not self._is_closing and any(worker.is_ready for worker in self._workers)

    @property
    def has_given_up(self) -> bool:
        """Whether no program runs, and none is about to."""
        return not self.is_ready and self.crashes >= _CRASHES

    @property
    def waiting(self) -> int:
        """How many calls no worker has."""
        return len(self.queue.waiting) + sum(len(worker.own) for worker in self._workers)

    @property
    def running(self) -> int:
        """How many calls a worker has."""
        sent = (batch for worker in self._workers for each in worker.sent.values() for batch in each.batches)
        return sum(map(len, sent))

    @property
    def sessions(self) -> int:
        """How many sessions are open."""
        return len(self._sessions)

    async def start(self) -> None:
        """Start the workers and wait until the first is ready.

        Raises:
            AotpipeError: The program cannot be loaded, or does not give the recorded answers.
        """
        self._spawn(self._watch())
        for _ in range(self.count):
            self._spawn(self._start())
        try:
            await self._started
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Let what waits and runs end, then end the workers."""
        self._is_closing = True
        while self.waiting or self.running:
            if not self._workers:
                self.queue.fail(NotReady("the model is being unloaded"))
                break
            await asyncio.sleep(0.005)
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        for worker in list(self._workers):
            worker.kill()
        await asyncio.sleep(0)

    def is_open(self, session: str | int) -> bool:
        """Whether a call can go on with a session."""
        return session in self._sessions

    def keeps(self, session: int) -> bool:
        """Whether a call of a kept session would run: it is open, or a worker has none."""
        return session in self._sessions or bool(self._without_kept())

    def submit(self, call: Call) -> None:
        """Let a call run; its future will have the outputs.

        Raises:
            QueueFull: As many calls wait as may, or as many sessions are open.
            NotReady: No program runs, and none is about to.
            UnknownModel: The call goes on with a session that is not open.
            InputShape: It has more rows than a batch may have, as in Triton.
        """
        if call.rows > self.limits.max_batch_size:
            raise InputShape(
                f"the call has {call.rows} rows, and a batch has {self.limits.max_batch_size} at most",
                hint="send it in parts, or serve with a larger --max-batch-size",
            )
        if self._is_closed:
            raise NotReady("the model is being unloaded", hint="ask again later")
        if self.has_given_up:
            raise NotReady("the model is not ready", reason=self.reason, hint="ask again later")
        if not call.is_kept and self.waiting >= self.limits.max_queue_size:
            raise QueueFull(f"{self.waiting} calls wait already", hint="ask again later")
        if call.session is None:
            self.queue.waiting.append(call)
        else:
            call.opened = self._opened(call.session, is_new=call.start, is_kept=call.is_kept)
            call.opened.owner.own.append(call)
        if not self._is_scheduled:
            # What comes in the same turn of the loop goes in one message.
            self._is_scheduled = True
            self._loop.call_soon(self.dispatch)

    def dispatch(self) -> None:
        """Send what may run to the workers that have room."""
        self._is_scheduled = False
        now = self._loop.time()
        slots = messages_at_once(self._mean_ns)
        ready = sorted((each for each in self._workers if each.room(slots)), key=lambda each: len(each.sent))
        for place, worker in enumerate(ready):
            most = batches_of_message(self._mean_ns, len(self.queue.waiting), len(ready) - place)
            batches: list[list[Call]] = []
            while worker.own and len(batches) < MOST_BATCHES:
                call = worker.own.popleft()
                if call.is_late(now):
                    call.fail(passed(call, now))
                else:
                    batches.append([call])
            while len(batches) < most and (batch := self.queue.take(now)):
                batches.append(batch)
            if batches:
                worker.send(batches, now)
        if ready and self._timer is None and (due := self.queue.due_in(now)) is not None:
            self._timer = self._loop.call_later(max(due, 0.0001), self._due)

    def on_started(self, error: AotpipeError | None) -> None:
        """Hear that a worker has loaded its program, or could not."""
        if error is None:
            self.reason = ""
        if self._started.done():
            return
        if error is None:
            self._started.set_result(None)
        else:
            self._started.set_exception(error)

    def on_answered(self, batch: list[Call], ns: int) -> None:
        """Hear that a batch ran, and for how long."""
        self.on_ran(batch, ns)
        self.crashes = 0
        self._mean_ns = mean_after(self._mean_ns, ns)

    def on_result(self, worker: _Worker, call: Call, error: AotpipeError | None) -> None:
        """Hear that a call of a session is over, and close the session where nothing can go on from it."""
        if call.session is None or self._sessions.get(call.session) is not call.opened:
            return  # it is closed, or begun anew by a later call
        is_lost = isinstance(error, ProgramCrashed | UnknownModel) or (error is not None and call.start)
        if is_lost or call.end:
            del self._sessions[call.session]
        if is_lost:
            worker.forget(call.session)

    def on_lost(self, worker: _Worker, how: str) -> None:
        """Hear that a worker is gone: its calls fail, and another one takes its place."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        error = ProgramCrashed(f"the program {how}", hint="ask again: another worker takes its place")
        lost = [call for sent in worker.sent.values() for batch in sent.batches for call in batch]
        for call in (*lost, *worker.own):
            call.fail(error)
        self._sessions = {name: each for name, each in self._sessions.items() if each.owner is not worker}
        if not self._is_closing:
            self._replace(how, worker.refusal)

    def _replace(self, how: str, refusal: AotpipeError | None = None) -> None:
        """Start another worker for one that is gone, or that refused to load its program."""
        self.crashes += 1
        self.on_restart()
        self.reason = refusal.message if refusal else f"its program {how}, {self.crashes} times in a row"
        if not self._started.done():
            self._started.set_exception(ProgramCrashed(f"the program {how} while it was loaded"))
            return
        if self.crashes >= _CRASHES and not self.is_ready:
            self.queue.fail(NotReady("the model is not ready", reason=self.reason, hint="ask again later"))
        delay = min(_FIRST_DELAY_S * 2.0 ** (self.crashes - 2), _LAST_DELAY_S) if self.crashes > 1 else 0.0
        self._spawn(self._start(delay))

    def _due(self) -> None:
        self._timer = None
        self.dispatch()

    def _without_kept(self) -> list[_Worker]:
        """The workers that run and have no kept session."""
        kept = [each.owner for each in self._sessions.values() if each.is_kept]
        return [worker for worker in self._workers if worker.is_ready and worker not in kept]

    def _opened(self, name: str | int, *, is_new: bool, is_kept: bool) -> _Session:
        """The session of a call, which it opens where it `is_new`."""
        found = self._sessions.get(name)
        if not is_new:
            if found is None:
                raise UnknownModel(
                    f"no session is called {name!r}",
                    reason="it was not started, has ended, was idle for too long, or its worker died",
                    hint='begin one with "sequence_start": true',
                )
            found.used = self._loop.time()
            return found
        ready = self._without_kept() if is_kept else [each for each in self._workers if each.is_ready]
        if not ready:
            raise NotReady("the model is not ready", reason=self.reason, hint="ask again later")
        counted = sum(not each.is_kept for each in self._sessions.values())
        if found is None and not is_kept and counted >= self.limits.max_sessions:
            raise QueueFull(f"{counted} sessions are open", hint="end some, or ask again later")
        held = [each.owner for each in self._sessions.values()]
        owner = found.owner if found else min(ready, key=held.count)
        session = _Session(owner, is_kept, self._loop.time())
        self._sessions[name] = session
        return session

    async def _start(self, delay_s: float = 0.0) -> None:
        await asyncio.sleep(delay_s)
        worker: _Worker | None = None
        try:
            worker = _Worker(self)
            self._workers.append(worker)
            await worker.start(self.config)
        except OSError as error:  # too many processes or files, or no memory
            if worker in self._workers:
                self._workers.remove(worker)
            self._replace(f"could not be started ({error.strerror or error})")

    async def _watch(self) -> None:
        """Kill what hangs, close sessions that are idle, fail what waited for too long."""
        while True:
            await asyncio.sleep(_WATCH_S)
            now, limits = self._loop.time(), self.limits
            self.queue.expire(now)
            for worker in self._workers:
                for call in [each for each in worker.own if each.is_late(now)]:
                    worker.own.remove(call)
                    call.fail(passed(call, now))
                oldest = min((sent.since for sent in worker.sent.values()), default=now)
                late = now - oldest > limits.call_timeout_s
                if late or (not worker.is_ready and now - worker.since > _LOAD_TIMEOUT_S):
                    worker.kill(is_hung=True)
            for name, session in list(self._sessions.items()):
                is_asked = any(call.session == name for call in session.owner.own)
                if not session.is_kept and now - session.used > limits.session_idle_s and not is_asked:
                    del self._sessions[name]
                    session.owner.forget(name)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _copied(memory: memoryview, name: str, dtype: str, shape: list[int], offset: int) -> Tensor:
    count = numpy_dtype(dtype).itemsize
    for size in shape:
        count *= size
    return Tensor(name, dtype, tuple(shape), bytes(memory[offset : offset + count]))


def _error(said: Mapping[str, Any]) -> AotpipeError:
    kind: type[AotpipeError] = getattr(errors, said["error"], AotpipeError)
    return kind(said["message"], reason=said["reason"], hint=said["hint"])
