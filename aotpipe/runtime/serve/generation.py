"""Generates tokens with a decoder: texts join and leave one batch of cache slots between its steps.

A decoder is a model whose entry points `prefill` and `decode` are those of `aotpipe build --decoder`. Each
worker has its cache as a session of its own, which one `_Batch` owns: it reads the prompt of a waiting text
into a free slot, runs `decode` for all slots at once, and frees the slot of a text that has ended or whose
caller is gone. A worker that dies fails the texts that it had, and no others.

All of it runs in the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

import numpy as np

from aotpipe.core.signature import Signature
from aotpipe.errors import (
    AotpipeError,
    DeadlinePassed,
    NotReady,
    ProgramCrashed,
    QueueFull,
    RequestInvalid,
    UnknownModel,
)
from aotpipe.runtime.serve.pool import Pool
from aotpipe.runtime.serve.scheduler import Call
from aotpipe.runtime.serve.tensors import Tensor

_CHOICE: Final = ("temperature", "top_p", "uniform")
_INPUTS: Final[Mapping[str, tuple[str, ...]]] = {
    "prefill": ("tokens", "slot", *_CHOICE),
    "decode": ("tokens", "positions", *_CHOICE),
}
_OUTPUTS: Final = ("token", "is_end")
_POLL_S: Final = 0.02

Finish = Literal["stop", "length"]
"""How a text ended: the model or a stop text ended it, or it has as many tokens as it may have."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a decoder takes: texts at once, tokens of a text, of a prompt, and of the vocabulary."""

    slots: int
    cache: int
    prompt: int
    vocabulary: int

    @classmethod
    def of(cls, signatures: Mapping[str, Signature]) -> Self | None:
        """The sizes of a model with these signatures; None where it is no decoder."""
        for entry, names in _INPUTS.items():
            signature = signatures.get(entry)
            if signature is None or not signature.state:
                return None
            if tuple(spec.name for spec in signature.tensor_inputs) != names:
                return None
            if tuple(spec.name for spec in signature.tensor_outputs) != _OUTPUTS:
                return None
        inputs = {spec.name: spec for spec in signatures["decode"].tensor_inputs}
        tokens, positions = inputs["tokens"], inputs["positions"]
        lengths = signatures["prefill"].symbols
        if tokens.value_range is None or positions.value_range is None or len(lengths) != 1:
            return None
        cache, slots = int(positions.value_range[1]) + 1, tokens.dims[0]
        if not isinstance(slots, int):
            return None
        return cls(slots, cache, min(lengths[0].max or cache, cache), int(tokens.value_range[1]) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How tokens are chosen, and how many.

    Attributes:
        most: Tokens after the prompt, at most.
        temperature: 0 takes the most probable token.
        top_p: The probability of the most probable tokens, of which one is drawn.
        seed: Of the numbers by which tokens are drawn: equal ones give equal tokens, whatever else runs.
    """

    most: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


@dataclass(eq=False, slots=True)
class _Text:
    """A text that waits for a slot, or has one."""

    prompt: tuple[int, ...]
    choice: Choice
    events: asyncio.Queue[int | Finish | AotpipeError] = field(default_factory=asyncio.Queue)
    """Tokens, and after them how the text ended, or why there are no more."""
    numbers: np.random.Generator = field(init=False)
    made: int = 0
    last: int = 0
    is_over: bool = False

    def __post_init__(self) -> None:
        self.numbers = np.random.Generator(np.random.Philox(self.choice.seed))

    def take(self, token: int, *, is_end: bool) -> None:
        """Hear of the next token."""
        self.made += 1
        self.last = token
        if is_end:
            self.finish("stop")
            return
        self.events.put_nowait(token)
        if self.made >= self.choice.most:
            self.finish("length")

    def finish(self, event: Finish | AotpipeError) -> None:
        """End the text, and say how."""
        if not self.is_over:
            self.is_over = True
            self.events.put_nowait(event)


class Generator:
    """The decoder of one loaded model.

    Args:
        on_token: Told of each token, and of the seconds until a text's first one.
    """

    def __init__(self, sizes: Sizes, pool: Pool, on_token: Callable[[float | None], None]) -> None:
        self.sizes = sizes
        self._pool = pool
        self._on_token = on_token
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Text] = deque()
        self._is_closed = False
        self._wake = asyncio.Event()
        self._batches = [_Batch(self, pool, number) for number in range(pool.count)]
        self._tasks = [self._loop.create_task(batch.run()) for batch in self._batches]

    @property
    def waiting(self) -> int:
        """How many texts have no slot."""
        return len(self._waiting)

    @property
    def used(self) -> int:
        """How many slots have a text."""
        return sum(text is not None for batch in self._batches for text in batch.slots)

    async def close(self) -> None:
        """Let the texts end that are there, then end."""
        while self.waiting or self.used:
            await asyncio.sleep(_POLL_S)
        self._is_closed = True
        for task in self._tasks:
            task.cancel()

    def require(self, prompt: tuple[int, ...], most: int) -> None:
        """Check that a text has room.

        Raises:
            RequestInvalid: It has no tokens, others than the model's, or too many.
        """
        sizes = self.sizes
        if not prompt:
            raise RequestInvalid("the prompt has no tokens")
        if len(prompt) > sizes.prompt or most < 1 or len(prompt) + most > sizes.cache:
            raise RequestInvalid(
                f"the prompt has {len(prompt)} tokens, and {most} are asked for",
                reason=f"a prompt may have {sizes.prompt}, and a text {sizes.cache} with it",
                hint="shorten it, or ask for fewer by max_tokens",
            )
        if not all(type(token) is int and 0 <= token < sizes.vocabulary for token in prompt):
            raise RequestInvalid(f"a token of the prompt is none of 0..{sizes.vocabulary - 1}")

    async def tokens(
        self, prompt: tuple[int, ...], choice: Choice, timeout_s: float | None
    ) -> AsyncGenerator[int | Finish]:
        """The tokens after a prompt, and then how the text ended; the token of its end is left out.

        Raises:
            RequestInvalid: There is no room for the text.
            QueueFull, NotReady: Too many wait; the model is not ready.
            DeadlinePassed: The first token did not come in time.
            ProgramCrashed: The worker died that had the text.
        """
        self.require(prompt, choice.most)
        if self._is_closed:
            raise NotReady("the model is being unloaded", hint="ask again later")
        if self.waiting >= self._pool.limits.max_queue_size:
            raise QueueFull(f"{self.waiting} texts wait already", hint="ask again later")
        if self._pool.has_given_up:
            raise NotReady("the model is not ready", reason=self._pool.reason, hint="ask again later")
        text = _Text(prompt, choice)
        self._waiting.append(text)
        self._wake.set()
        start, wait_s = self._loop.time(), timeout_s
        try:
            while True:
                try:
                    event = await asyncio.wait_for(text.events.get(), wait_s)
                except TimeoutError:
                    raise DeadlinePassed(
                        f"no token came in {timeout_s} s", hint="ask again later, with a longer timeout"
                    ) from None
                if isinstance(event, AotpipeError):
                    raise event
                if isinstance(event, int):
                    self._on_token(self._loop.time() - start if start else None)
                    start, wait_s = 0.0, None
                yield event
                if not isinstance(event, int):
                    return
        finally:
            text.is_over = True
            with suppress(ValueError):
                self._waiting.remove(text)

    def take(self) -> _Text | None:
        """The text that has waited for longest."""
        return self._waiting.popleft() if self._waiting else None

    async def work(self, session: int) -> None:
        """Wait until a text waits and a program runs that has a session's cache, or none."""
        while not self.waiting or not self._pool.keeps(session):
            if self._pool.has_given_up:
                while text := self.take():
                    text.finish(NotReady("the model is not ready", reason=self._pool.reason))
            self._wake.clear()
            if self.waiting:
                await asyncio.sleep(_POLL_S)
            else:
                await self._wake.wait()


class _Batch:
    """The slots of one worker's cache."""

    def __init__(self, generator: Generator, pool: Pool, session: int) -> None:
        self.slots: list[_Text | None] = [None] * generator.sizes.slots
        self._generator = generator
        self._pool = pool
        self._session = session

    async def run(self) -> None:
        while True:
            try:
                await self._step()
            except AotpipeError as error:
                self._fail(error)
            except Exception:  # noqa: BLE001  # the texts' callers would wait for ever
                traceback.print_exc(file=sys.stderr)
                self._fail(ProgramCrashed("a fault of the server's own; its log has the traceback"))

    async def _step(self) -> None:
        """Fill free slots with the texts that wait, then give each text its next token."""
        self._require_cache()
        if not any(self.slots):
            await self._generator.work(self._session)
        for slot, text in enumerate(self.slots):
            self._require_cache()
            if not self._pool.keeps(self._session):
                break
            if text is None and (new := self._generator.take()):
                self.slots[slot] = new
                try:
                    await self._prefill(slot, new)
                except AotpipeError as error:
                    new.finish(error)
                    if isinstance(error, ProgramCrashed):
                        raise  # the cache is lost, with the texts in it
        self._require_cache()
        if any(self.slots):
            await self._decode()

    def _require_cache(self) -> None:
        """Check that the worker still has the texts that are not over.

        Raises:
            ProgramCrashed: It died since they had their last tokens.
        """
        self._free()
        if any(self.slots) and not self._pool.is_open(self._session):
            raise ProgramCrashed("the program died", hint="ask again: another worker takes its place")

    def _free(self) -> None:
        self.slots = [text if text and not text.is_over else None for text in self.slots]

    def _fail(self, error: AotpipeError) -> None:
        """End the texts that have a slot."""
        for text in self.slots:
            if text is not None:
                text.finish(error)
        self._free()

    async def _prefill(self, slot: int, text: _Text) -> None:
        tokens = np.array([text.prompt], np.int64)
        given = {"tokens": tokens, "slot": np.array([slot], np.int64), **_choice([text])}
        [token], [is_end] = await self._call("prefill", given)
        text.take(int(token), is_end=bool(is_end))

    async def _decode(self) -> None:
        tokens = [text.last if text else 0 for text in self.slots]
        # A slot without a text writes to its first position, which the next prompt overwrites.
        positions = [len(text.prompt) + text.made - 1 if text else 0 for text in self.slots]
        given = {"tokens": np.array(tokens, np.int64), "positions": np.array(positions, np.int64)}
        found = await self._call("decode", {**given, **_choice(self.slots)})
        for text, token, is_end in zip(self.slots, *found, strict=True):
            if text is not None and not text.is_over:
                text.take(int(token), is_end=bool(is_end))

    async def _call(self, entry: str, inputs: Mapping[str, Any]) -> tuple[list[int], list[bool]]:
        loop = asyncio.get_running_loop()
        given = tuple(
            Tensor(name, array.dtype.name, array.shape, array.tobytes()) for name, array in inputs.items()
        )
        call = Call(
            entry=entry,
            inputs=given,
            future=loop.create_future(),
            received=loop.time(),
            session=self._session,
            start=not self._pool.is_open(self._session),
            is_kept=True,
        )
        self._pool.submit(call)
        try:
            outputs = {tensor.name: tensor.array() for tensor in await call.future}
        except UnknownModel as error:  # names the session, of which no client knows
            raise ProgramCrashed("the cache is lost", hint="ask again") from error
        return outputs["token"].tolist(), outputs["is_end"].tolist()


def _choice(texts: list[_Text | None] | list[_Text]) -> dict[str, Any]:
    """How the next token of each is chosen."""
    rows = [
        (text.choice.temperature, text.choice.top_p, text.numbers.random(dtype=np.float32))
        if text
        else (0.0, 1.0, 0.0)
        for text in texts
    ]
    return {
        name: np.array(row, np.float32) for name, row in zip(_CHOICE, zip(*rows, strict=True), strict=True)
    }
