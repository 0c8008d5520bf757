"""Programs of Python's lists, counters and comparisons as engineers write them, against eager."""

from __future__ import annotations

import bisect
from typing import Any

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import sweep
from tests.unit.canonicalize.trace.agree import check

N = torch.tensor


def worklist(x):
    """The test reads a list that the body changes in place."""
    n = 0
    stack = [1]
    while stack:
        a = stack.pop()
        if a + x[0] > 3:
            continue
        n += 1
        stack.append(a + 1)
        stack.append(a + 2)
    return n


def merged(x, y):
    i = j = 0
    out = []
    while i < len(x) and j < len(y):
        if x[i] <= y[j]:
            out.append(x[i].item())
            i += 1
        else:
            out.append(y[j].item())
            j += 1
    return torch.tensor(out), i


def path_back(best):
    """Counters that go down from a branch's result on."""
    i, j = best.shape
    path = []
    while i > 0 and j > 0:
        path.append((i - 1, j))
        if best[i - 1, j - 1] > 0:
            i -= 1
        else:
            j -= 1
    return torch.tensor(path)


def counted_by_a_mask(mask, scores):
    back = []
    for t in range(1, int(mask.sum())):
        best = scores[t].argmax()
        back.append(best)
    return torch.stack(back) if back else scores[0, :1].long()


def tails(ids, stop):
    out: list[Any] = []
    for at in range(4):
        out.append(ids[at].item())
        if out[-2:] == stop.tolist():
            break
    pair = [ids[0].item(), 2]
    return len(out), pair == ids[:2].tolist(), pair != (1, 2), out == [1], tuple(pair) == (1, 2)


def impossible_on_a_path(code):
    stack: list[Any] = []
    for op in code:
        if op == 1 and len(stack) >= 2:
            stack[-2:] = [stack.pop() + stack[-1]]
        elif op == 0 or len(stack) >= 0:
            code = code + 1
    return code


def beams(scores):
    """Beams sorted by a traced key."""
    kept: list[Any] = [([0], 0.0)]
    for row in scores:
        new = []
        for tokens, total in kept:
            for token, gain in enumerate(row.tolist()):
                new.append(([*tokens, token], total + gain))
        kept = sorted(new, key=lambda beam: beam[1], reverse=True)[:2]
    return torch.tensor(kept[0][0]), kept[0][1]


def ordered(x):
    """Stable in both directions; tuples by their parts; of a list that grows, too."""
    pairs = [(v, i) for i, v in enumerate(x.tolist())]
    up, down = sorted(pairs, key=lambda each: each[0]), sorted(pairs, key=lambda each: each[0], reverse=True)
    grown = [v for v in x.tolist() if v > 0]
    grown.sort(reverse=True)
    by_key = sorted(grown, key=lambda v: (v - 2) ** 2)
    first = (grown[0], by_key[0]) if grown else (0.0, 0.0)
    return *(torch.tensor([i for _, i in each]) for each in (up, down, sorted(pairs))), len(grown), first


def queue(x):
    """Taken out at the front, in the middle and by value, and looked for."""
    kept = [v for v in x.tolist() if v > 0]
    first = kept.pop(0)
    if len(kept) > 1:
        kept.pop(1)
    kept.append(first)
    kept.remove(first)
    found = x.tolist().index(first), x.tolist().count(first)
    return (
        found,
        bisect.bisect_left([1.0, 2.0, 2.0], first),
        bisect.bisect(sorted(kept), first + 1),
        len(kept),
    )


def longest_increasing(x):
    """A store at an index that a path without elements does not have."""
    tails: list[Any] = []
    for v in x.tolist():
        at = bisect.bisect_left(tails, v)
        if at == len(tails):
            tails.append(v)
        else:
            tails[at] = v
    return len(tails), torch.tensor(tails)


PROGRAMS = {
    beams: [(N(s),) for s in ([[0.1, 2.0], [3.0, 0.5]], [[1.0, 1.0], [1.0, 1.0]], [[5.0, -1.0], [0.0, 9.0]])],
    ordered: [
        (N(x),) for x in ([2.0, 1.0, 2.0], [-1.0, 0.0, -0.0], [1.0, 1.0, 1.0], [float("inf"), 1.0, -3.0])
    ],
    queue: [
        (N(x),) for x in ([2.0, -1.0, 4.0, 3.0], [-1.0] * 4, [1.0, 1.0, 1.0, 5.0], [-1.0, -1.0, 3.0, -2.0])
    ],
    longest_increasing: [(N(x),) for x in ([3.0, 1.0, 2.0], [3.0, 2.0, 1.0], [1.0, 2.0, 3.0])],
    worklist: [(N([v]),) for v in (1.0, -1.0, 9.0)],
    merged: [(N([1.0, 3.0, 5.0]), N(y)) for y in ([2.0, 4.0], [9.0, 9.0], [0.0, 0.0])],
    path_back: [(N(b),) for b in ([[1, 0], [0, 1]], [[0, 0], [0, 0]], [[1, 1], [1, 1]])],
    counted_by_a_mask: [(N(m), torch.eye(3)) for m in ([True] * 3, [True, False, False], [False] * 3)],
    tails: [(N(i), N([1, 2])) for i in ([1, 2, 3, 4], [3, 1, 2, 0], [0, 0, 0, 0])],
    impossible_on_a_path: [(N(c),) for c in ([0, 1], [1, 1], [3, 0])],
}


@pytest.mark.parametrize(
    ("model", "calls"),
    sweep(
        PROGRAMS.items(),
        quick=0,
        always=[(each, PROGRAMS[each]) for each in (worklist, merged, tails, beams, ordered, queue)],
    ),
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_programs_as_in_eager(model: Any, calls: Any) -> None:
    check(model, *calls)


def test_room_that_nothing_proves_is_asserted():
    """A list that needs more room than its loop is taken to need fails an assert, and drops nothing."""

    def deep(x):
        stack = [x]
        while stack:
            stack.append(stack[-1] + 1)
            if stack[-1].sum() > 400:
                break
        return stack[-1]

    made = export(canonicalize(as_spec(deep, args=(N([390.0]),))))
    exported = made.entries[0]
    notes = [each for each in made.findings if each.code == "list-room-assumed"]
    assert len(notes) == 1
    assert "room for" in notes[0].message
    check(deep, (N([390.0]),))
    with pytest.raises(RuntimeError, match=r"`stack` grows in a loop .* it has room for"):
        exported.program.module()(N([1.0]))


def other_keys(x):
    return {"y": x, "norm": x.norm()} if x[0] > 0 else {"y": -x}


@pytest.mark.parametrize(("model", "said"), [(other_keys, "a dict with the key 'norm' on some paths only")])
def test_what_no_graph_can_do_is_refused_at_its_line(model: Any, said: str) -> None:
    with pytest.raises(ExportFailed, match=said) as caught:
        export(canonicalize(as_spec(model, args=(N([1.0, 2.0]),))))
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_plain_python.py")
