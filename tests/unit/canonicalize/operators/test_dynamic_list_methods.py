"""Lists that branches and loops on tensors append to, against eager."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.operators import dynamic_list_methods
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import slow, sweep
from tests.unit.canonicalize.trace.agree import check

LISTS = tuple(
    (torch.tensor([1.0, 2.0, 3.0]) * scale, torch.tensor(n))
    for scale, n in ((1.0, 2), (-1.0, 0), (0.2, 5), (9.0, 1))
)


def last_of_none(x, n):
    stack = []
    if x.sum() > 0:
        stack = [x, x + n]
    top = stack[-1] if n < 9 else x
    if n > 0:
        empty = {}
        return top + (stack[1] if x.sum() > 0 else empty[3])
    return top


def test_an_index_outside_of_a_list_raises_on_its_own_path() -> None:
    check(last_of_none, *((torch.tensor([v]), torch.tensor(n)) for v in (1.0, -1.0) for n in (1, 0, 9, -1)))


def until_a_break(x, n):
    out = []
    for i in range(6):
        x = torch.tanh(x) + i * 0.1
        out.append(x)
        if x.sum() < 2 + n:
            break
    return torch.stack(out), len(out)


def joined(x, n):
    out = [x[None]]
    for _ in range(3):
        x = x * 0.5
        if x.sum() > n:
            out.append(x[None])
        else:
            out += [x[None] - 1, x[None] + 1]
    return torch.cat(out), torch.cat(out, dim=-2), len(out) * 2


def only_some(x, n):
    kept = []
    for value in x:
        if value > 1:
            kept.append(value)  # noqa: PERF401
    return torch.stack(kept)


def by_a_counter(x, n):
    out, i = [x], 0
    while i < 4 and x.sum() < 20:
        out.append(out[-1] * 2 + n)
        x = x + out[-1]
        i += 2
    return torch.stack(out, dim=1)


def by_its_own_length(x, n):
    out = [x]
    while len(out) < 5 and out[-1].sum() < 30:
        out.append(out[-1] * 2 + 1)
    return torch.stack(out).sum(0), len(out)


def looped_over(x, n):
    out = []
    for i in range(4):
        out.append((x * i, i))
        if i >= n:
            break
    total = torch.zeros(3)
    for row, number in out:
        total = total + row * number
    return total


def summed(x, n):
    out = []
    for i in range(5):
        out.append(x.sum() * i)
        if x[0] * i > n:
            break
    return sum(out), sum(out, 1.5)


def indexed(x, n):
    out = []
    for i in range(4):
        out.append(x + i)
        if i == n:
            break
    return out[0], out[-1], out[n - n], out[len(out) // 2]


def taken_off(x, n):
    stack = [x, x * 2]
    for i in range(3):
        if n > i:
            stack.append(x * i)  # noqa: PERF401
    top = stack.pop()
    return top, len(stack), torch.stack(stack)


def empty_or_not(x, n):
    out = []
    if n > 1:
        out.append(x)
    if out:
        x = x + 1
    return x * 2 if not out else x


def filled_in_a_nested_loop(x, n):
    out = []
    for i in range(2):
        for j in range(2):
            if x[i] > j:
                out.append(x[i] + j)
            if x[0] > 5:
                break
    return torch.stack(out).sum() if len(out) > 0 else x.sum(), len(out)


@pytest.mark.parametrize(
    "model",
    sweep(
        [
            until_a_break,
            joined,
            only_some,
            by_a_counter,
            by_its_own_length,
            looped_over,
            summed,
            indexed,
            taken_off,
            empty_or_not,
            filled_in_a_nested_loop,
        ],
        quick=0,
        always=[
            joined,
            by_a_counter,
            by_its_own_length,
            indexed,
            taken_off,
            empty_or_not,
            filled_in_a_nested_loop,
        ],
    ),
    ids=lambda model: model.__name__,
)
def test_lists_as_in_eager(model: Any) -> None:
    check(model, *LISTS)


def returned(x, n):
    out = []
    if n > 1:
        out.append(x)
    return out


def mixed_up(x, n):
    out = [x]
    if n > 1:
        out.append(x)
    out.remove(x)
    return torch.stack(out)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (returned, "a list, a dict or a set whose length a tensor decides"),
        (mixed_up, "`remove` of a list whose length a tensor decides"),
    ],
)
def test_what_no_graph_can_do_with_it_is_refused_at_its_line(model: Any, said: str) -> None:
    with pytest.raises(ExportFailed) as caught:
        export(canonicalize(as_spec(model, args=LISTS[0])))
    assert said in str(caught.value)
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_dynamic_list_methods.py")


def without_a_bound(x, n):
    out = [x]
    while out[-1].sum() < n:
        out.append(out[-1] + 1)
    return torch.stack(out)


def those_left(x, n):
    order, kept = x.argsort(descending=True), []
    while order.numel() > 0:
        kept.append(order[0])
        order = order[1:][x[order[1:]] < x[order[0]] - n]
    return torch.stack(kept)


@pytest.mark.parametrize("model", [without_a_bound, slow(those_left)], ids=lambda model: model.__name__)
def test_a_list_has_room_where_no_counter_tells_the_iterations(model: Any) -> None:
    check(model, *LISTS)
    found = export(canonicalize(as_spec(model, args=LISTS[0]))).findings
    assert [each.code for each in found].count("list-room-assumed") == 1


INDEXED = tuple((torch.tensor(each),) for each in ([1.0, 2.0, 3.0], [4.0, -2.0, -3.0], [0.1, 5.0, 0.0]))


def elements(x):
    place = int(x.argmax())
    rows = [x, x * 2, x + 3]
    steps = (1, 2.5, 4)
    pairs = [(x, 1), (x * 3, 2), (-x, 3)]
    named = {0: x.sum(), 1: x[0], 2: x[1] * 2}
    row, count = pairs[place]
    return rows[place], steps[place], rows[-1 - place], row, count, named[place], rows[1], steps[x.argmin()]


class Routed(torch.nn.Module):
    """One of several layers for the whole input."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))
        self.acts = [torch.relu, torch.tanh, self.twice]

    def twice(self, x):
        return x * 2 if x.sum() > 0 else x

    def forward(self, x):
        place = x.argmax().item()
        return self.acts[place](self.experts[place](x))


@pytest.mark.parametrize("model", [elements, slow(Routed().eval())], ids=["elements", "modules"])
def test_what_is_chosen_is_eagers(model):
    check(model, *INDEXED)


def outside(x):
    return [x, x * 2][int(x[0])]


def missing(x):
    return {0: x, 3: x * 2}[int(x[0])]


@pytest.mark.parametrize("model", [outside, missing], ids=lambda model: model.__name__)
def test_what_is_not_there_fails_an_assert(model):
    check(model, *((torch.tensor([each, 0.0]),) for each in (0.0, 1.0, -1.0, -2.0, 3.0)))


def shortest_paths(x):
    count = x.shape[0]
    distances, done = [float("inf")] * count, [False] * count
    distances[0] = 0.0
    for _ in range(count):
        nearest = -1
        for node in range(count):
            if not done[node] and (nearest < 0 or distances[node] < distances[nearest]):
                nearest = node
        done[nearest] = True
        for node in range(count):
            through = distances[nearest] + x[nearest, node].item()
            if through < distances[node]:
                distances[node] = through
    return torch.tensor(distances)


def counted(x):
    counts, rows = {0: 0, 1: 0, 2: 5}, [x, x + 1, x * 2]
    for value in x.argsort(-1).flatten().tolist()[:3]:
        counts[value] += 1
        rows[value] = rows[value - 1] * 2
        rows[-1 - value] = x
    return torch.tensor(list(counts.values())), torch.stack(rows)


@pytest.mark.parametrize(
    ("model", "size"),
    sweep(
        [(shortest_paths, 2), (counted, 3), (shortest_paths, 3)],
        quick=0,
        always=[(shortest_paths, 2), (counted, 3)],
    ),
)
def test_elements_are_stored_where_a_tensor_says(model, size):
    draw = torch.Generator().manual_seed(0)
    check(model, *((torch.rand(size, size, generator=draw),) for _ in range(3)))


def stored_first(x, n):
    out = [i * 2 for i in range(4) if i < n]
    out[0] = 7
    out[-1] += 0.5
    return torch.tensor(out, dtype=torch.float32), 4 in out


def stored_between(x, n):
    out = []
    for i in range(3):
        if i < n:
            out.append(x * i)  # noqa: PERF401
    for i in range(3):
        if 1 <= i < n:
            out[i] = out[i - 1] + x
    out.insert(0, x)
    out[0] = x - 1
    return torch.stack(out)


@pytest.mark.parametrize("model", [stored_first, slow(stored_between)], ids=lambda model: model.__name__)
def test_elements_of_a_list_that_grew_are_stored(model):
    check(model, *((torch.tensor([1.0, 2.0]), torch.tensor(n)) for n in (3, 1, 2, 4)))


def grown(x, n, most=3):
    return [x * i + 1 for i in range(most) if i < n]


def mean(items):
    return torch.stack(items).sum() / len(items)


class Kept(torch.nn.Module):
    """Reads a list that grew where no caller is rewritten: in a method, a property and a special method."""

    @property
    def size(self):
        return len(self.out)

    def __len__(self):
        return len(self.out) + 1

    def last(self):
        return self.out[-1]

    def forward(self, x, n):
        self.out = grown(x, n)
        first, *_ = [mean(self.out), n]
        return first, torch.tensor(self.size), torch.tensor(len(self)), self.last()


def of_two(x, n):
    out = grown(x, n)
    if len(out) == 2:
        first, second = out
        x = first + second
    return x * (lambda items: len(items))(out)


@pytest.mark.parametrize("model", [slow(Kept()), of_two], ids=["kept", "unpacked"])
def test_code_that_decides_on_nothing_knows_its_length(model):
    check(model, *((torch.tensor(1.5), torch.tensor(n)) for n in (3, 2, 1, 4)))


@pytest.mark.parametrize(
    "use",
    sweep(
        [
            lambda out: len(tuple(out)),
            lambda out: len(set(out)),
            lambda out: max(*out),
            lambda out: len(collections.deque(out, 3) * 2),
        ],
        quick=4,
    ),
)
def test_what_would_take_its_parts_for_elements_is_refused(use):
    def used(x, n):
        out = grown(x, n, 2)
        use(out)
        return torch.stack(out)

    with pytest.raises(
        ExportFailed, match=r"whose length a tensor decides|other than by a `for`|keys that a tensor decides"
    ):
        check(used, (torch.tensor(1.0), torch.tensor(2)))


def test_statements_that_would_take_parts_for_elements_are_refused():
    def sliced(x, n):
        out = grown(x, n, 2)
        out[1:] = [x]
        return torch.stack(out)

    def deleted(x, n):
        out = grown(x, n, 2)
        del out[0]
        return torch.stack(out)

    with pytest.raises(ExportFailed, match="a list whose length a tensor decides"):
        check(sliced, (torch.tensor(1.0), torch.tensor(2)))
    check(deleted, *((torch.tensor(1.0), torch.tensor(n)) for n in (2, 4)))


def parts_of_a_grown_list(x, n):
    out = grown(x, n)
    turned = [*out, x]
    turned.reverse()
    return torch.stack(out[:2]), torch.stack(out[-2:]), len(out[1:]), torch.stack(turned), len(out[3:1])


def parts_where_a_tensor_says(x, n):
    rows = [x, x + 1, x * 2, x - 3]
    count = n.item()
    last = [0, *(index for index, row in enumerate(rows[:count]) if row > 0)][-1]
    back = rows[:count][::-1]
    return torch.stack(rows[:count]), len(rows[count:]), torch.stack(rows[-count:]), torch.stack(back), last


@pytest.mark.parametrize(
    "model", [slow(parts_of_a_grown_list), parts_where_a_tensor_says], ids=lambda model: model.__name__
)
def test_slices(model):
    check(model, *((torch.tensor(1.5), torch.tensor(n)) for n in (3, 1, 2, 4)))


def written(x):
    rows = [x.clone(), x * 2]
    row = rows[int(x[0] > 0)]
    row += 1
    return rows[0]


def test_a_write_to_what_is_chosen_is_refused():
    with pytest.raises(ExportFailed, match="second name"):
        check(written, INDEXED[0])


def test_elements_of_several_forms_are_refused_at_their_line():
    with pytest.raises(ExportFailed, match="is indexed by what a tensor decides") as caught:
        check(lambda x: [x, x[:1]][int(x.argmax() > 0)], INDEXED[0])
    assert caught.value.where is not None


def stored_beside_none(x):
    found = [None, None, None]
    found[int(x.argmax())] = x[0]
    return x[0] if found[0] is None else found[0]


def test_a_tensor_is_stored_beside_none():
    check(stored_beside_none, *INDEXED)


def test_only_pythons_own_containers_are_indexed_so():
    assert dynamic_list_methods.is_indexed([1])
    assert not dynamic_list_methods.is_indexed([])
    assert not dynamic_list_methods.is_indexed("text")


def written_where_a_tensor_says(x, n):
    y = x * 1
    rows = [y[0], y[1], y[0], y[2]]
    if x[0] > 0:
        rows[n] += 10
    table = {0: y[3], 1: rows[1], 2: y[4], 3: y[5]}
    table[n.item()] *= 2
    sums = [torch.zeros(()) for _ in range(4)]
    for i in range(2):
        sums[(n + i) % 4] += x[i]
    return y, rows, sums


def test_a_write_in_place_to_what_is_chosen_reaches_its_other_names():
    """The element was replaced, and `y` was not written."""
    check(written_where_a_tensor_says, *((torch.arange(6.0) - 1 + k, torch.tensor(k)) for k in range(4)))


def written_beside_a_name(x, n):
    y, rows = x * 1, []
    for k in range(4):
        if x[k] > -5:
            rows.append(y[k])  # noqa: PERF401  # what is tested
    rows[n] += 10
    return y, torch.stack(rows)


def written_among_numbers(x, n):
    rows = [x[0], 1.0]
    rows[n] += 1
    return rows[0]


@pytest.mark.parametrize(
    ("model", "said"),
    sweep(
        [(written_beside_a_name, "may have a second name"), (written_among_numbers, "tensors and numbers")],
        quick=2,
    ),
)
def test_a_write_in_place_that_a_name_would_lose_is_refused(model, said):
    with pytest.raises(ExportFailed, match=said):
        check(model, (torch.arange(6.0), torch.tensor(1)))


TREE = {1: {2: {3: {}}, 4: {}}, 2: {3: {}}, 5: {0: {1: {}}}}


def down_a_tree(x, n):
    node, out = TREE, []
    for v in x.tolist():
        if not node:
            break
        best = None
        for key in node:
            if best is None or abs(key - v) < abs(best - v):
                best = key
        out.append(best)
        node = node[best]
    return torch.tensor(out + [-1] * (3 - len(out)))


def one_of_other_forms(x, n):
    rows = [(1, [x, x + 1]), (2, [x]), (3, [])]
    number, held = rows[n]
    held.append(x * 2)
    return number, sum(held), [len(each) for _, each in rows]


@pytest.mark.parametrize("model", [slow(down_a_tree), one_of_other_forms])
def test_elements_of_other_structures_are_chosen_on_paths_of_their_own(model):
    """They were refused."""
    check(model, *LISTS)


def deleted_where_a_tensor_says(x, n):
    items, table, window = x.tolist(), {"a": x[0], "b": x[1]}, []
    if x[0] < 0:
        del table["a"], items[1]
    for v in x.tolist():
        if v > -2:
            window.append(v)
        del window[:-2]
    while len(items) > 1 and items[0] > 1.5:
        del items[int(items[0]) % len(items)]
    return "a" in table, sum(items), len(items), sum(window)


def test_what_a_branch_or_a_loop_deletes():
    """`del x[i]` kept a statement from being rewritten."""
    check(deleted_where_a_tensor_says, *LISTS)


def made_of_its_parts(x, n):
    items = x.tolist()
    while len(items) > 1:
        place = int(items[0]) % 2
        items = items[:place] + items[place + 1 :]
        if items[0] > 2:
            break
    return sum(items)


def test_a_list_that_a_loop_makes_of_its_own_parts_is_refused_at_its_line():
    with pytest.raises(ExportFailed, match="`items` is made of its own parts in each iteration"):
        export(canonicalize(as_spec(made_of_its_parts, args=LISTS[0])))


def counted_by_bools(x, n):
    there, counts = [], {}
    for v in x.tolist():
        if v > -2:
            there.append(v)
        counts[v] = v > n
    return sum(v < 1 for v in there), sum([v > 0 for v in there], 1), sum(counts.values())


def test_a_sum_counts_the_bools_of_a_list_that_grows():
    check(counted_by_bools, *LISTS)


_ENDS = ((None, None), (1, None), (None, -1), (-2, None), (None, 1), (3, 0), (-9, 9), (0, -9), (-1, 1))


@pytest.mark.parametrize("step", [2, -1, -2])
def test_slices_with_a_step_are_pythons(step):
    """They were refused, but for `[::-1]`."""

    def sliced(x):
        items = [v for v in x.tolist() if v > 0]
        parts = [items[start:stop:step] for start, stop in _ENDS]
        return [len(each) * 1000 + sum(i * v for i, v in enumerate(each, 1)) for each in parts]

    check(
        sliced,
        *((torch.tensor(each),) for each in ([1, 2, -3, 4], [0, 0, 0, 0], [5, 6, 7, 8], [-1, -1, 3, -1])),
    )


def test_a_step_that_a_tensor_decides_is_refused_with_what_to_do():
    def stepped(x):
        items = [v for v in x.tolist() if v > 0]
        return sum(items[:: max(1, x[0].item())])

    with pytest.raises(ExportFailed, match="sliced with one that a tensor decides") as caught:
        check(stepped, (torch.tensor([1, 2, -3, 4]),))
    assert "for i in range(len(items))" in caught.value.hint
