"""Which calls run next, and together."""

from __future__ import annotations

import asyncio

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.errors import DeadlinePassed
from aotpipe.runtime.serve.scheduler import Call, Limits, Queue, described
from aotpipe.runtime.serve.tensors import Tensor

LOOP = asyncio.new_event_loop()


def call(rows: int = 1, received: float = 0.0, key: str = "", deadline: float | None = None) -> Call:
    data = np.full((max(rows, 1), 2), rows, np.float32)
    return Call(
        entry="forward",
        inputs=(Tensor("x", "float32", data.shape, data.tobytes()),),
        future=LOOP.create_future(),
        received=received,
        rows=rows,
        key=key,
        deadline=deadline,
    )


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("ab")), max_size=30), st.integers(2, 8))
def test_every_call_runs_once_in_a_batch_that_is_not_too_large(
    calls: list[tuple[int, str]], most: int
) -> None:
    queue = Queue(Limits(max_batch_size=most))
    put = [call(rows if rows <= most else 0, key=key) for rows, key in calls]
    for each in put:
        queue.waiting.append(each)
    ran: list[Call] = []
    while batch := queue.take(0.0):
        assert len({(each.entry, each.key) for each in batch}) == 1
        assert len(batch) == 1 or sum(each.rows for each in batch) <= most
        ran += batch
    assert sorted(map(id, ran)) == sorted(map(id, put))
    for key in "ab":  # those that may be batched with each other keep their order
        same = [each for each in ran if each.key == key and each.rows]
        assert len(same) == len([each for each in put if each.key == key and each.rows])


def test_a_batch_waits_for_others_no_longer_than_the_delay() -> None:
    queue = Queue(Limits(max_batch_size=8, max_queue_delay_s=1.0))
    queue.waiting.append(call(2, received=10.0))
    assert queue.take(10.5) == []
    assert queue.due_in(10.5) == 0.5
    queue.waiting.append(call(3, received=10.6))
    assert len(queue.take(11.0)) == 2


def test_a_preferred_size_and_a_full_batch_run_at_once() -> None:
    limits = Limits(max_batch_size=8, preferred_batch_size=(4, 8), max_queue_delay_s=1.0)
    queue = Queue(limits)
    queue.waiting.append(call(3))
    assert queue.take(0.0) == []
    queue.waiting.append(call(1))
    assert [each.rows for each in queue.take(0.0)] == [3, 1]
    for _ in range(3):
        queue.waiting.append(call(3))
    assert [each.rows for each in queue.take(2.0)] == [3, 3]


def test_a_call_whose_time_is_over_does_not_run() -> None:
    queue = Queue(Limits())
    late, on_time = call(0, deadline=1.0), call(0, deadline=3.0)
    queue.waiting.append(late)
    queue.waiting.append(on_time)
    assert queue.take(2.0) == [on_time]
    assert isinstance(late.future.exception(), DeadlinePassed)


def test_a_batch_is_written_row_after_row() -> None:
    said, places, end = described([call(1), call(2)], 10)
    (name, dtype, shape, offset) = said["inputs"][0]
    assert (name, dtype, shape, offset, said["rows"]) == ("x", "float32", (3, 2), 64, [1, 2])
    assert [place for place, _ in places] == [64, 72]
    assert end == 88
