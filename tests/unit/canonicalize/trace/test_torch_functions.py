"""What is traced, and what an `if` makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.trace import torch_functions
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check


def a_size_that_only_a_run_knows(x):
    found = x[x > 0]
    if found.shape[0] == 0:
        return x.sum()
    if len(found) > 1:
        return found.sum() * 2
    return found.sum()


def test_a_size_decides():
    check(
        a_size_that_only_a_run_knows, *((torch.tensor(v),) for v in ([1.0, 2.0], [-1.0, -2.0], [1.0, -2.0]))
    )


def test_plain_values_are_not_traced():
    assert not any(map(torch_functions.is_traced, (1, True, None, "a", torch.ones(()), [torch.ones(())])))


def test_a_predicate_is_one_bool():
    assert torch_functions.predicate(torch.tensor([2.0])).item() is True
    with pytest.raises(RuntimeError, match="ambiguous"):
        torch_functions.predicate(torch.ones(2))


class Beside(torch.nn.Module):
    """Decides on tensors that are no buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.flag = torch.tensor(True)
        self.counts = torch.tensor([1, 2])

    def forward(self, x):
        if self.flag:
            x = x + len(self.counts.tolist())
        return x * 2 if x.sum() > 0 else x


def test_a_tensor_beside_the_buffers_is_a_constant():
    check(Beside().eval(), (torch.ones(2),), (-torch.ones(2) * 9,))


class Kept(torch.nn.Module):
    """Writes a tensor that is no buffer, and decides on it."""

    def __init__(self) -> None:
        super().__init__()
        self.started = torch.tensor(False)
        self.first = torch.zeros(2)

    def forward(self, x):
        if not self.started:
            self.first.copy_(x)
            self.started.fill_(True)
        return x - self.first


def test_a_tensor_beside_the_buffers_that_is_written_is_state():
    program = export(canonicalize(as_spec(Kept().eval(), args=(torch.ones(2),)))).entries[0].program.module()
    model = Kept().eval()
    for factor in (1.0, 2.0, -3.0):
        torch.testing.assert_close(program(torch.ones(2) * factor), model(torch.ones(2) * factor))


def test_no_grad_in_no_grad_leaves_branches_whole():
    def model(x):
        with torch.no_grad():
            for each in x:
                if each > 2:
                    return x * each
        return x

    check(model, *((torch.tensor(each),) for each in ([1.0, 3.0], [1.0, 1.0])))


def agreeing(x, y):
    if torch.equal(x, y):
        return x + 1
    if torch.allclose(x, y, atol=0.5) and not x.equal(y[:1]):
        return x * 2
    return x - y if (x.sum() - 3).is_nonzero() else y


def test_answers_of_torchs_that_are_bools_of_pythons():
    pairs = (
        ([1.0, 2.0], [1.0, 2.0]),
        ([1.0, 2.0], [1.0, 2.25]),
        ([4.0, 2.0], [1.0, 2.0]),
        ([1.0, 2.0], [5.0, 5.0]),
    )
    check(agreeing, *((torch.tensor(one), torch.tensor(other)) for one, other in pairs))


class Ungraded(torch.nn.Module):
    @torch.no_grad()
    def clipped(self, x):
        if x.sum() > 3:
            x = x / x.sum()
            while x.max() > 0.1:
                x = x / 2
        return x

    def forward(self, x):
        y = self.clipped(x) + 1
        with torch.no_grad():
            if y.max() > 1.5:
                y = y - 1
        return y * 2


def test_branches_where_no_gradients_are_wanted():
    check(Ungraded().eval(), *((torch.tensor(v),) for v in ([1.0, 2.5], [1.0, 0.1], [0.1, 0.2])))


@pytest.mark.parametrize("iterations", [False, slow(True)])
def test_a_region_may_take_a_shape_or_a_dtype_of_another_tensor(iterations):
    def like(x):
        grid, whole = torch.zeros(2, 3), torch.zeros(1, dtype=torch.int64)
        if x.sum() > 0:
            x = x.view_as(grid).reshape_as(grid).sum(0).expand_as(grid).type_as(whole).to(x).to(whole)
            return x.reshape(-1) * 1.0
        return x

    def looped(x):
        grid = torch.zeros(2, 3)
        while x.sum() < 9:
            x = x.view_as(grid).reshape(-1) + 1
        return x

    check(looped if iterations else like, (torch.arange(6.0),), (torch.arange(6.0) - 9,))


def chosen_by_bytes(x):
    mask = (x > 1).to(torch.uint8) * 2
    found = torch.where(mask, x, -x)
    return found, x.where(mask, x * 0), torch.where(mask)[0].sum()


def chosen_by_bytes_after_a_decision(x):
    mask = torch.ones(3, dtype=torch.uint8)
    if x.sum() > 3:
        mask[1] = 0
    return torch.where(mask, x, -x)


@pytest.mark.filterwarnings("ignore:where received a uint8 condition")
@pytest.mark.parametrize("model", [chosen_by_bytes, chosen_by_bytes_after_a_decision])
def test_bytes_are_a_condition(model: Callable[..., Any]) -> None:
    check(model, (torch.tensor([1.0, 2.0, 3.0]),), (torch.tensor([1.0, 0.0, -3.0]),))


def test_a_row_is_written_with_more_dims_than_it_has():
    """Eager drops the first ones of size 1, which the op that the graph has takes none of."""

    def model(x):
        out, at = torch.zeros(3, 2), 0
        while out.sum() < x.sum():
            out[at % 3, :] = x[0:1] + at
            at = at + 1
        return out

    check(model, *((torch.tensor(each),) for each in ([[1.0, 3.0]], [[4.0, 9.0]], [[-1.0, 0.0]])))


def written_where_a_bool_says(x):
    total, count = x.sum(), (x > 0).sum()
    total[total == 0] = 1e-8
    count[count < 1] = 5
    row = x[0]
    row[total > 1] = torch.tensor([[7.0, 8.0]])
    return x / total, total, count


def test_one_bool_decides_whether_a_tensor_is_written():
    check(
        written_where_a_bool_says,
        *(
            (torch.tensor(v),)
            for v in ([[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]], [[1.0, -1.0], [0.0, 0.0]])
        ),
    )
