"""What the variables of a loop stay from iteration to iteration, and how often that is found out."""

from __future__ import annotations

import pytest
import torch

from aotpipe.canonicalize.trace import dry_run, fixpoint
from aotpipe.canonicalize.values.abstract_values import Leaf, Undefined
from aotpipe.errors import ExportFailed
from tests.sweep import slow
from tests.unit.canonicalize.trace.test_regions import check, exported

X = torch.ones(3)


def test_a_form_fits_the_values_of_all_paths():
    fixed, number, wide, late = fixpoint.join_paths(
        ("a", "b", "c", "d"), [(1, 1, X, Undefined()), (1, 2, X * 2, X)]
    )
    assert fixed.is_constant
    assert number.leaves == (Leaf(torch.int64, (), torch.device("cpu"), number=True),)
    assert [leaf.shape for leaf in (*wide.leaves, *late.leaves) if isinstance(leaf, Leaf)] == [(3,), (3,)]


def nested(x, n):
    """Each loop widens a number that the loops around it begin with; the last one shares tensors too."""
    a = b = c = 0
    kept = y = x
    while a < n:
        a = a + 1
        while b < 2 * n:
            b = b + 1
            while c < 3 * n:
                c = c + a
                y, kept = y + c, y
            y = y * 0.5
        y = y + kept
    return y, kept, c


def test_loops_in_loops_are_settled_once(monkeypatch):
    runs: list[object] = []
    summarize = dry_run.summarize

    def counted(*args, **kwargs):
        runs.append(None)
        return summarize(*args, **kwargs)

    monkeypatch.setattr(dry_run, "summarize", counted)
    exported(nested, X, torch.tensor(2))
    # Anew in every run of the loops around it, the innermost one alone would be run some 30 times.
    assert len(runs) < 24


def test_loops_in_loops_do_the_same():
    check(nested, *((X, torch.tensor(n)) for n in (2, 0, 1, 3)))


class Collecting(torch.nn.Module):
    """What a region changes in place is found where it is run again, in lists that are made anew."""

    def forward(self, x, n):
        total = x
        while n > 0:
            held = {"best": x, "count": 0}
            if total.sum() > 1:
                held["best"] = total * 0.5
                held["count"] += 1
            if held["best"].max() > 0:
                held["count"] += 2
            total = held["best"] + held["count"]
            n = n - 1
        return total


def test_changes_in_place_inside_of_a_loop():
    check(Collecting().eval(), *((X * sign, torch.tensor(n)) for n in (2, 0, 3) for sign in (1, -1)))


def test_a_dtype_that_differs_is_said():
    def model(x):
        kind = x > 1 if x.sum() > 0 else x.long()
        scale = 2 if x[0] > 0 else 0.5
        total = 0
        for each in x:
            if each > 0:
                total = total + each.item()
        return kind * scale, total

    findings = exported(model, X).findings
    found = [note.message for note in findings if note.code == "dtype-promoted"]
    assert [each.partition(" in the program ")[2] for each in found] == [
        "it is torch.int64 on all of them",
        "it is torch.float32 on all of them",
    ]


def test_a_tensor_that_the_second_run_changes_is_refused():
    (abstract,) = fixpoint.join_paths(("y",), [(X,), (X,)])
    assert fixpoint.tensors_of([abstract], ["y"], (X,)) == []
    with pytest.raises(ExportFailed, match="another tensor each time"):
        fixpoint.tensors_of([abstract], ["y"], (X * 2,))


def test_a_number_that_the_second_run_changes_is_refused():
    """The program would have that of the first run."""
    abstracts = fixpoint.join_paths(("n",), [(1,), (1,)])
    assert fixpoint.tensors_of(abstracts, ["n"], (1,)) == []
    with pytest.raises(ExportFailed, match="`n` is another value each time"):
        fixpoint.tensors_of(abstracts, ["n"], (2,))


def queue(x):
    q = (x > 0).nonzero().flatten()
    total = x.sum()
    while len(q) > 0:
        total = total + x[q[0]]
        q = q[1:]
    return total


def suppressed(x):
    order = x.argsort(descending=True)
    values = x[order]
    total = x.sum()
    while order.numel() > 0:
        kept = values[1:] < x[order[0]] - 0.5
        total = total * 2 + values[0]
        order, values = order[1:][kept], values[1:][kept]
    return total


def stripped(x):
    while len(x) > 0 and x[0] < 0:
        x = x[1:]
    return x.sum() + len(x), x


def shorter_on_a_path(x):
    rows = torch.outer(x, x)
    y = rows[:, :2] if x.sum() > 0 else rows
    z = torch.zeros(0) if x[0] > 1 else x[x > 0]
    return y.softmax(-1), y @ torch.ones(4, 3)[: y.shape[1]], z, z.sum()


def returned_from_a_path(x):
    def half(v):
        if v.sum() > 0:
            return v[:2], {"all": v * 2}
        return v, {"all": v[1:]}

    left, right = half(x)
    return left.sum() + right["all"].mean(), left


def written_afterwards(x):
    y = x.clone()[:3] if x.sum() > 0 else x.clone()
    y[0] = 5
    y += 1
    return y


def joined_up_to_a_number(x):
    y = x[:1]
    for _ in range(4):
        if y.sum() > 9:
            break
        y = torch.cat([y, x[:1] + 2])
    return y.sum(), y


@pytest.mark.parametrize(
    "model",
    [
        slow(queue),
        pytest.param(suppressed, marks=pytest.mark.slow),
        pytest.param(stripped, marks=pytest.mark.slow),
        slow(shorter_on_a_path),
        slow(returned_from_a_path),
        written_afterwards,
        slow(joined_up_to_a_number),
    ],
    ids=lambda model: model.__name__,
)
def test_sizes_that_differ_on_paths_as_in_eager(model):
    values = ([1.0, -1.0, 2.0, 3.0], [-1.0, -1.0, -2.0, 3.0], [2.0, 2.0, 3.0, 3.0], [-1.0] * 4)
    check(model, *((torch.tensor(value),) for value in values))


def broadcast_by_the_first(x):
    state = torch.zeros(1)
    for row in x:
        state = torch.tanh(row + state)
    return state


def broadcast_before_a_break(x):
    state, last = torch.zeros(2, 1), torch.zeros(())
    for row in x:
        state = state * 0.5 + row
        last = state.sum()
        if last > 6:
            break
    return state, last


@pytest.mark.parametrize("model", [broadcast_by_the_first, broadcast_before_a_break])
def test_a_variable_of_one_element_that_the_first_iteration_broadcasts(model):
    values = (torch.ones(3, 2), torch.ones(1, 2) * 4, torch.linspace(-1, 1, 8).reshape(4, 2))
    check(
        model, *((value,) for value in values), dynamic_shapes={"x": {0: torch.export.Dim("n", min=1, max=9)}}
    )


def broadcast_in_a_while(x):
    state = torch.zeros(1)
    while state.sum() < x.sum():
        state = state + x
    return state


def test_a_variable_that_is_broadcast_in_an_iteration_that_may_be_none_is_refused():
    with pytest.raises(ExportFailed) as caught:
        exported(broadcast_in_a_while, torch.ones(3))
    assert "`state` has the shape (1,) before a loop" in str(caught.value)
    assert "give it the shape" in str(caught.value)
