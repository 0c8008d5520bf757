"""The queue of one model: which calls run next, and which of them run as one batch.

The names and their meaning are those of Triton's dynamic batcher. Calls are batched if they have the same
entry point, inputs and sizes but for the first; a batch runs when it has a preferred size or is full, or when
its oldest call has waited for `max_queue_delay_s`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from aotpipe.errors import DeadlinePassed
from aotpipe.runtime.serve.channel import SLOTS, aligned
from aotpipe.runtime.serve.tensors import Tensor

MOST_BATCHES: Final = 16
"""Of one message to a worker."""
# Batches that together run for as long are sent in one message: waking a process costs tens of microseconds.
_MESSAGE_NS: Final = 1_000_000


def messages_at_once(mean_ns: float) -> int:
    """How many messages a worker has at once, where a batch runs for `mean_ns`: more where it is short."""
    return SLOTS if mean_ns < _MESSAGE_NS else 1


def batches_of_message(mean_ns: float, waiting: int, workers: int) -> int:
    """How many batches at most a message has, where as many calls wait for as many workers with room."""
    return min(MOST_BATCHES, waiting // workers + 1, int(_MESSAGE_NS / max(mean_ns, 1.0)) + 1)


def mean_after(mean_ns: float, ns: float) -> float:
    """The mean time of a batch once another one ran; the latest count most."""
    return mean_ns + (ns - mean_ns) * (0.1 if mean_ns else 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may wait, and what is batched.

    Attributes:
        max_batch_size: Rows of a batch; nothing is batched where it is below 2.
        preferred_batch_size: Rows of a batch that runs at once; `max_batch_size` alone where it is empty.
        max_queue_delay_s: How long a call waits for others to be batched with.
        max_queue_size: How many calls may wait.
        max_sessions: How many sessions may be open.
        session_idle_s: After how long without a call a session is closed.
        call_timeout_s: How long a call may run before its worker is killed.
    """

    max_batch_size: int = 0
    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_s: float = 0.0
    max_queue_size: int = 1024
    max_sessions: int = 64
    session_idle_s: float = 300.0
    call_timeout_s: float = 60.0


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """One request's call.

    Attributes:
        future: Its outputs, as tensors of their own memory.
        received: When it came, in the time of the event loop.
        deadline: When its caller no longer waits; None where it always does.
        session: Whose state it reads and writes; None where the model has none. A client names a session by a
            text; a number is one of the server's own.
        start: Whether the session begins with it.
        end: Whether the session ends with it.
        is_kept: Whether the session is one of a generator: it is never closed for being idle, no limit counts
            it, and each worker has one at most.
        opened: What the pool knows of the session.
        rows: How many rows of a batch it is; 0 where it is to run alone.
        key: Equal for calls that may be batched with each other.
        started: When it was sent to a worker.
        run_ns: How long the program ran, with the calls that it was batched with.
        spans: Where its time is traced; None where it is not.
    """

    entry: str
    inputs: tuple[Tensor, ...]
    future: asyncio.Future[tuple[Tensor, ...]]
    received: float
    deadline: float | None = None
    session: str | int | None = None
    start: bool = False
    end: bool = False
    is_kept: bool = False
    opened: Any = None
    rows: int = 0
    key: object = None
    started: float = 0.0
    run_ns: int = 0
    spans: Any = None

    def is_late(self, now: float) -> bool:
        """Whether its caller no longer waits."""
        return self.deadline is not None and self.deadline <= now

    def fail(self, error: Exception) -> None:
        """Give the caller an error; nothing is done where it is gone."""
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True)
class Queue:
    """The calls that wait for any worker."""

    limits: Limits
    waiting: deque[Call] = field(default_factory=deque)

    def take(self, now: float) -> list[Call]:
        """The calls that are to run as one, next and now; none where they still wait for others."""
        while self.waiting and self.waiting[0].is_late(now):
            call = self.waiting.popleft()
            call.fail(passed(call, now))
        if not self.waiting:
            return []
        first = self.waiting[0]
        if not first.rows:
            return [self.waiting.popleft()]
        limits = self.limits
        batch, rows = [], 0
        for call in self.waiting:
            fits = call.key == first.key and rows + call.rows <= limits.max_batch_size
            if fits and not call.is_late(now):
                batch.append(call)
                rows += call.rows
                if rows == limits.max_batch_size:
                    break
        preferred = limits.preferred_batch_size or (limits.max_batch_size,)
        if (
            rows not in preferred
            and rows < max(preferred)
            and now < first.received + limits.max_queue_delay_s
        ):
            return []
        taken = set(map(id, batch))
        self.waiting = deque(call for call in self.waiting if id(call) not in taken)
        return batch

    def expire(self, now: float) -> None:
        """Fail the calls whose callers no longer wait."""
        late = [call for call in self.waiting if call.is_late(now)]
        for call in late:
            self.waiting.remove(call)
            call.fail(passed(call, now))

    def due_in(self, now: float) -> float | None:
        """Seconds until the first call has waited for long enough to be batched with fewer."""
        if not self.waiting or not self.waiting[0].rows:
            return None
        return max(0.0, self.waiting[0].received + self.limits.max_queue_delay_s - now)

    def fail(self, error: Exception) -> None:
        """Fail all that wait."""
        while self.waiting:
            self.waiting.popleft().fail(error)


def passed(call: Call, now: float) -> DeadlinePassed:
    """The error of a call whose time is over."""
    return DeadlinePassed(
        f"the call waited for {now - call.received:.3f} s, longer than its timeout",
        hint="ask again later, with a longer timeout",
    )


def described(batch: list[Call], offset: int) -> tuple[dict[str, Any], list[tuple[int, Tensor]], int]:
    """A batch as a message says it, where each tensor is to be written, and where they end."""
    first = batch[0]
    inputs, places = [], []
    rows = [call.rows for call in batch]
    for number, tensor in enumerate(first.inputs):
        offset = aligned(offset)
        shape = (sum(rows), *tensor.shape[1:]) if len(batch) > 1 else tensor.shape
        inputs.append((tensor.name, tensor.dtype, shape, offset))
        for call in batch:
            places.append((offset, call.inputs[number]))
            offset += call.inputs[number].nbytes
    said = {
        "entry": first.entry,
        "inputs": inputs,
        "rows": rows,
        "session": first.session,
        "start": first.start,
        "end": first.end,
    }
    return said, places, offset
