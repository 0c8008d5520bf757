"""Deques whose length only a run knows, and lists with elements between others, against eager."""

from __future__ import annotations

import bisect
from collections import deque

import pytest
import torch

from tests.sweep import sweep
from tests.unit.canonicalize.trace.agree import check

ROWS = (
    [0.3, -0.6, 0.9, 0.1, -0.2, 0.7],
    [-0.9, -0.8, -0.1, -0.7, -0.6, -0.9],
    [0.9, 0.9, 0.2, 0.2, 0.9, 0.2],
    [0.0] * 6,
    [2.6, -1.4, 1.2, 3.4, 0.6, -2.0],
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
)
CASES = [(torch.tensor(row), torch.tensor(n)) for row, n in zip(ROWS, (2, 0, 6, 3, 1, 4), strict=True)]


def breadth_first(x, n):
    q = deque([0])
    order = []
    while q:
        v = q.popleft()
        order.append(v)
        for j in (2 * v + 1, 2 * v + 2):
            if j < 6 and x[j] > 0:
                q.append(j)
    return torch.tensor(order), len(q)


def both_ends(x, n):
    q = deque([x[0]])
    for i in range(1, 6):
        if x[i] > 0:
            q.appendleft(x[i])
        elif x[i] < -0.5 and q:
            q.pop()
        else:
            q.append(x[i])
    total = x[0] * 0
    for v in q:
        total = total * 2 + v
    return total, len(q), bool(q)


def bounded(x, n):
    q = deque(maxlen=3)
    for i in range(6):
        if x[i] > 0:
            q.append(x[i])
    total = x[0] * 0
    for v in q:
        total = total * 2 + v
    first = q[0] if q else x[0] * 0
    return total, len(q), first


def popped_left_of_none(x, n):
    q = deque()
    for i in range(3):
        if i < n:
            q.append(x[i])
    return q.popleft(), q.popleft()


def inserted_where_a_tensor_says(x, n):
    held = []
    for v in x.tolist():
        if v > 0:
            bisect.insort_left(held, v)
    held.insert(n.item(), 9.0)
    held.insert(-1, 8.0)
    return torch.tensor(held)


@pytest.mark.parametrize(
    "model",
    sweep([breadth_first, both_ends, bounded, popped_left_of_none, inserted_where_a_tensor_says], quick=2),
    ids=lambda model: model.__name__,
)
def test_elements_come_and_go_as_in_eager(model):
    check(model, *CASES)


def full_by_other_ways(x, n):
    q = deque(maxlen=3)
    for i in range(4):
        if x[i] > 0:
            q.append(x[i])
    made, added = deque(q, maxlen=2), q + deque([x[4]])
    q += [x[0], x[1]]
    q.extend(made)
    return torch.stack(list(q)), len(made), len(added), added[-1]


def inserted_into_a_full_one(x, n):
    q = deque(maxlen=3)
    for i in range(4):
        if x[i] > 0:
            q.append(x[i])
    q.insert(-1, x[5])
    return torch.stack(list(q))


def inserted_from_the_end(x, n):
    held = [x[0], x[1], x[2]]
    held.insert(-1, n.item())
    held.insert(-10, 7.0)
    return [float(each) for each in held]


@pytest.mark.parametrize("model", [full_by_other_ways, inserted_into_a_full_one, inserted_from_the_end])
def test_what_finds_no_room_is_as_in_eager(model):
    """`+=` and `deque(q, maxlen)` forgot a deque's room, and a place from the end was one from the start."""
    check(model, *CASES[1:], CASES[0])
