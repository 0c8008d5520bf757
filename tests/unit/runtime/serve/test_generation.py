"""Texts in the slots of a cache: joined at any time, cancelled, too many, and a worker that dies."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, closing, contextmanager
from typing import Any

import numpy as np
import pytest

from aotpipe.core.signature import Signature, Symbol, TensorSpec
from aotpipe.errors import DeadlinePassed, NotReady, ProgramCrashed, QueueFull, UnknownModel
from aotpipe.runtime.serve.generation import Choice, Generator, Sizes
from aotpipe.runtime.serve.pool import Pool
from aotpipe.runtime.serve.scheduler import Call, Limits
from aotpipe.runtime.serve.tensors import Tensor
from tests.unit.runtime.serve.conftest import Server, summed

Start = Callable[..., Server]
GENERATE = "/v2/models/sum/generate"


def generated(server: Server, prompt: list[int], most: int, **more: Any) -> tuple[int, Any]:
    status, body = server.ask(GENERATE, {"input_ids": prompt, "parameters": {"max_tokens": most, **more}})
    return status, body["token_ids"] if status == 200 else body["error"]


@contextmanager
def stream(server: Server, prompt: list[int], most: int) -> Iterator[Iterator[Any]]:
    """The events of a text; leaving closes the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    with closing(connection):
        body = {"input_ids": prompt, "parameters": {"max_tokens": most}}
        connection.request("POST", f"{GENERATE}_stream", json.dumps(body))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream"
        yield (json.loads(line.removeprefix(b"data: ")) for line in answer if line.strip())


def used(server: Server) -> int:
    [row] = [
        row
        for row in server.ask("/metrics")[1].splitlines()
        if row.startswith('aotpipe_slots_used{model="sum"')
    ]
    return int(float(row.split()[-1]))


def waited(condition: Callable[[], bool]) -> bool:
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.02)
    return False


def endless() -> list[int]:
    return next([a, b] for a in range(1, 90) for b in range(1, 90) if len(summed([a, b], 20_000)) == 20_000)


def test_each_of_many_texts_is_the_one_that_it_is_alone(served: Server) -> None:
    asks = [([1 + n % 50] * (1 + n % 5), 1 + n * 3 % 40) for n in range(60)]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda ask: generated(served, *ask), asks))
    assert answers == [(200, summed(*ask)) for ask in asks]
    assert used(served) == 0


def test_a_stream_gives_each_token_and_then_how_the_text_ended(served: Server) -> None:
    with stream(served, [5, 6], 7) as events:
        *parts, last = list(events)
    assert [token for part in parts for token in part["token_ids"]] == summed([5, 6], 7)
    assert last["details"] == {"finish_reason": "length"}


def test_equal_seeds_draw_equal_tokens_whatever_else_runs(served: Server) -> None:
    def ask(seed: int) -> Any:
        return generated(served, [3], 20, temperature=1.0, seed=seed)

    alone = {seed: ask(seed) for seed in range(3)}
    with ThreadPoolExecutor(9) as pool:
        beside = list(pool.map(lambda number: ask(number % 3), range(18)))
    assert beside == [alone[number % 3] for number in range(18)]
    assert len({str(each) for each in alone.values()}) == 3


def test_what_has_no_room_is_refused_before_it_waits(served: Server) -> None:
    for prompt, most in (([], 1), ([97], 1), ([-1], 1), ([1] * 65, 1), ([1], 0), ([1], 100_000)):
        assert generated(served, prompt, most)[0] == 400, (prompt, most)
    status, body = served.ask("/v2/models/mlp/generate", {"input_ids": [1]})
    assert (status, "--decoder" in body["error"]) == (400, True)


def test_a_client_that_is_gone_frees_its_slot(served: Server) -> None:
    with stream(served, endless(), 90_000) as events:
        next(events)
        assert used(served) == 1
    assert waited(lambda: used(served) == 0)
    assert generated(served, [5], 3) == (200, summed([5], 3))


def test_more_texts_than_may_wait_are_refused_and_those_that_wait_run(serve: Start) -> None:
    server = serve("sum", options=("--max-queue-size", "2"))
    prompt = endless()
    answers: list[tuple[int, Any]] = []

    def ask() -> None:
        answers.append(generated(server, [7], 5))

    threads = [threading.Thread(target=ask) for _ in range(5)]
    with ExitStack() as held:
        for _ in range(4):
            next(held.enter_context(stream(server, prompt, 90_000)))
        for thread in threads:
            thread.start()
        assert waited(lambda: len(answers) == 3)
    for thread in threads:  # the slots are free again
        thread.join()
    assert sorted(status for status, _ in answers) == [200, 200, 429, 429, 429]
    assert [body for status, body in answers if status == 200] == [summed([7], 5)] * 2


def test_a_text_that_waits_for_too_long_is_told_so(serve: Start) -> None:
    server = serve("sum", options=("--timeout-s", "0.3"))
    prompt = endless()
    with ExitStack() as held:
        for _ in range(4):
            next(held.enter_context(stream(server, prompt, 90_000)))
        assert generated(server, [7], 5)[0] == 504


def test_a_worker_that_dies_fails_the_texts_that_it_had_and_no_more(serve: Start) -> None:
    server = serve("sum")
    with stream(server, endless(), 90_000) as events:
        next(events)
        [worker] = server.workers()
        os.kill(worker, signal.SIGKILL)
        *_, last = list(events)
        assert "died by SIGKILL" in last["error"]
    assert generated(server, [5], 9) == (200, summed([5], 9))
    assert used(server) == 0
    assert server.stop() == 0


def test_a_worker_that_dies_while_it_has_no_text_fails_none(serve: Start) -> None:
    server = serve("sum")
    assert generated(server, [5], 9) == (200, summed([5], 9))
    [worker] = server.workers()
    os.kill(worker, signal.SIGKILL)
    assert waited(lambda: server.workers() not in ([], [worker]))
    assert waited(lambda: server.ask("/v2/models/sum/ready")[0] == 200)
    assert generated(server, [5], 9) == (200, summed([5], 9))


class Process:
    """A worker of a pool, in this process: its tokens are 1, and it dies after some calls."""

    def __init__(self, pool: Pool, calls: int = 1 << 30) -> None:
        self.own: deque[Call] = deque()
        self.sent: dict[int, Any] = {}
        self.is_ready = True
        self.is_stopped = False
        self.refusal = None
        self.ran: list[Call] = []
        self._pool, self._calls = pool, calls
        self._open: set[object] = set()
        pool._workers.append(self)  # type: ignore[arg-type]

    def room(self, slots: int) -> bool:
        return not self.is_stopped

    def forget(self, session: object) -> None:
        self._open.discard(session)

    def send(self, batches: list[list[Call]], now: float) -> None:
        for [call] in batches:
            asyncio.get_running_loop().call_later(0.001, self.run, call)

    def run(self, call: Call) -> None:
        assert call.start or call.session in self._open
        self._open.add(call.session)
        self.ran.append(call)
        count = 1 if call.entry == "prefill" else 4
        ones, ends = np.ones(count, np.int64), np.zeros(count, np.bool_)
        tensors = [Tensor("token", "int64", (count,), ones.tobytes())]
        tensors.append(Tensor("is_end", "bool", (count,), ends.tobytes()))
        self._pool.on_result(self, call, None)  # type: ignore[arg-type]
        call.future.set_result(tuple(tensors))
        self._calls -= 1
        if not self._calls:
            self.die()

    def die(self) -> None:
        self._pool.on_lost(self, "died")  # type: ignore[arg-type]


def driven(
    test: Callable[[Pool, Generator], Coroutine[Any, Any, None]], count: int = 1, **limits: Any
) -> None:
    """Run a test of a generator whose workers the test adds, and start no others."""

    async def run() -> None:
        pool = Pool({}, count, Limits(**limits), lambda calls, ns: None, lambda: None)
        pool._replace = lambda how, refusal=None: None  # type: ignore[method-assign]
        generator = Generator(Sizes(4, 100, 10, 10), pool, lambda seconds: None)
        await asyncio.wait_for(test(pool, generator), 10)
        await asyncio.wait_for(generator.close(), 2)

    asyncio.run(run())


async def told(generator: Generator, most: int = 3, timeout_s: float | None = 5) -> list[Any]:
    return [event async for event in generator.tokens((1,), Choice(most=most), timeout_s)]


def test_a_worker_that_dies_between_two_tokens_fails_the_texts_that_it_had() -> None:
    async def test(pool: Pool, generator: Generator) -> None:
        Process(pool, calls=2)
        with pytest.raises(ProgramCrashed):
            await told(generator, 9)
        Process(pool)
        assert await told(generator) == [1, 1, 1, "length"]

    driven(test)


def test_a_worker_that_dies_while_texts_join_fails_none_that_it_did_not_have() -> None:
    async def test(pool: Pool, generator: Generator) -> None:
        Process(pool, calls=1)
        texts = [asyncio.ensure_future(told(generator)) for _ in range(2)]
        await asyncio.sleep(0.1)
        Process(pool)
        first, second = await asyncio.gather(*texts, return_exceptions=True)
        assert isinstance(first, ProgramCrashed)
        assert second == [1, 1, 1, "length"]

    driven(test)


def test_sessions_and_calls_of_others_keep_no_text_from_its_slot() -> None:
    async def test(pool: Pool, generator: Generator) -> None:
        process = Process(pool)
        loop = asyncio.get_running_loop()

        def call(session: str | None, *, start: bool = False) -> Call:
            future = loop.create_future()
            return Call(entry="x", inputs=(), future=future, received=0, session=session, start=start)

        pool.submit(call("a", start=True))
        await asyncio.sleep(0.05)
        assert await told(generator) == [1, 1, 1, "length"]
        with pytest.raises(UnknownModel):  # a client's "0" is not the generator's 0
            pool.submit(call("0"))
        with pytest.raises(QueueFull, match="1 sessions are open"):
            pool.submit(call("b", start=True))
        process.is_stopped = True
        pool.submit(call(None))
        with pytest.raises(DeadlinePassed):
            await told(generator, timeout_s=0.05)
        assert pool.waiting == 2  # that of the text, which goes on once the worker does
        pool.queue.waiting.clear()
        process.is_stopped = False
        pool.dispatch()

    driven(test, max_queue_size=1, max_sessions=1)


def test_a_cache_that_did_not_begin_for_want_of_memory_begins_with_the_next_text() -> None:
    async def test(pool: Pool, generator: Generator) -> None:
        from aotpipe.runtime.serve import pool as module

        process = Process(pool)
        full = module._Worker(pool)
        pool._workers[:] = [full]
        full.is_ready = True
        for arena in full._requests:
            arena.reserve = _no_memory  # type: ignore[method-assign]
        with pytest.raises(QueueFull, match="no memory"):
            await told(generator)
        pool._workers[:] = [process]  # type: ignore[list-item]
        assert await told(generator) == [1, 1, 1, "length"]

    driven(test)


def _no_memory(size: int) -> memoryview:
    raise OSError(12, "Cannot allocate memory")


def test_each_worker_has_one_cache() -> None:
    async def test(pool: Pool, generator: Generator) -> None:
        first = Process(pool)
        texts = [asyncio.ensure_future(told(generator, 80)) for _ in range(8)]
        await asyncio.sleep(0.05)
        assert (generator.used, generator.waiting) == (4, 4)
        second = Process(pool)
        await asyncio.gather(*texts)
        assert [len({call.session for call in each.ran}) for each in (first, second)] == [1, 1]

    driven(test, count=2)


def test_a_text_that_is_over_waits_no_longer() -> None:
    async def test(_: Pool, generator: Generator) -> None:
        for _ in range(3):
            with pytest.raises(DeadlinePassed):
                await told(generator, timeout_s=0.01)
        assert not generator._waiting

    driven(test)


def test_a_text_that_comes_after_its_model_was_unloaded_is_refused() -> None:
    async def test(pool: Pool, generator: Generator) -> None:
        Process(pool)
        async with aclosing(generator.tokens((1,), Choice(most=9), None)) as tokens:
            closing = asyncio.ensure_future(generator.close())
            assert await anext(tokens) == 1
        await closing
        with pytest.raises(NotReady, match="unloaded"):
            await told(generator, timeout_s=1)

    driven(test)


def test_a_text_is_ended_before_the_server_is(serve: Start) -> None:
    server = serve("sum")
    with stream(server, [5, 6], 3000) as events:
        first = next(events)
        server.process.send_signal(signal.SIGTERM)
        rest = list(events)
    tokens = [token for part in (first, *rest) for token in part["token_ids"]]
    assert tokens == summed([5, 6], 3000)
    assert server.process.wait(30) == 0


def test_a_text_goes_on_while_its_model_is_loaded_anew(serve: Start) -> None:
    server = serve("sum", options=("--model-control",))
    with stream(server, [5, 6], 3000) as events:
        first = next(events)
        assert server.ask("/v2/repository/models/sum/load", b"")[0] == 200
        rest = list(events)
    tokens = [token for part in (first, *rest) for token in part["token_ids"]]
    assert tokens == summed([5, 6], 3000)
    assert generated(server, [5], 4) == (200, summed([5], 4))
    assert waited(lambda: len(server.workers()) == 1)


def test_a_session_that_nobody_asks_for_stays_open(serve: Start) -> None:
    server = serve("sum", options=("--session-idle-s", "0.1"))
    assert generated(server, [5], 2)[0] == 200
    time.sleep(0.5)
    assert generated(server, [5], 4) == (200, summed([5], 4))


def test_only_a_model_with_the_entry_points_of_a_decoder_is_one() -> None:
    numbers = tuple(TensorSpec(name, "float32", (2,)) for name in ("temperature", "top_p", "uniform"))
    out = (TensorSpec("token", "int64", (2,)), TensorSpec("is_end", "bool", (2,)))
    state = (TensorSpec("keys_0", "float32", (2, 8)),)
    prefill = Signature(
        inputs=(
            TensorSpec("tokens", "int64", (1, "length"), (0, 9)),
            TensorSpec("slot", "int64", (1,), (0, 1)),
            *numbers,
        ),
        outputs=out,
        state=state,
        symbols=(Symbol("length", 1, 6),),
    )
    decode = Signature(
        inputs=(
            TensorSpec("tokens", "int64", (2,), (0, 9)),
            TensorSpec("positions", "int64", (2,), (0, 7)),
            *numbers,
        ),
        outputs=out,
        state=state,
    )
    assert Sizes.of({"prefill": prefill, "decode": decode}) == Sizes(2, 8, 6, 10)
    assert Sizes.of({"decode": decode}) is None
    assert Sizes.of({"prefill": prefill, "decode": prefill}) is None
