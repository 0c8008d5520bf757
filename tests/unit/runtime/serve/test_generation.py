"""Texts in the slots of a cache: joined at any time, cancelled, too many, and a worker that dies."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from aotpipe.core.signature import Signature, Symbol, TensorSpec
from aotpipe.runtime.serve.generation import Sizes
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
