"""Elements of Python's lists, dicts and ModuleLists at places that a tensor decides."""

from __future__ import annotations

import pytest
import torch

from aotpipe.canonicalize.operators import dynamic_getitem
from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.trace.agree import check

CASES = tuple((torch.tensor(each),) for each in ([1.0, 2.0, 3.0], [4.0, -2.0, -3.0], [0.1, 5.0, 0.0]))


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


@pytest.mark.parametrize("model", [elements, Routed().eval()], ids=["elements", "modules"])
def test_what_is_chosen_is_eagers(model):
    check(model, *CASES)


def outside(x):
    return [x, x * 2][int(x[0])]


def missing(x):
    return {0: x, 3: x * 2}[int(x[0])]


@pytest.mark.parametrize("model", [outside, missing], ids=lambda model: model.__name__)
def test_what_is_not_there_fails_an_assert(model):
    check(model, *((torch.tensor([each, 0.0]),) for each in (0.0, 1.0, -1.0, -2.0, 3.0)))


def written(x):
    rows = [x.clone(), x * 2]
    row = rows[int(x[0] > 0)]
    row += 1
    return rows[0]


def test_a_write_to_what_is_chosen_is_refused():
    with pytest.raises(ExportFailed, match="second name"):
        check(written, CASES[0])


def test_elements_of_several_forms_are_refused_at_their_line():
    with pytest.raises(ExportFailed, match="is indexed by what a tensor decides") as caught:
        check(lambda x: [x, x[:1]][int(x.argmax() > 0)], CASES[0])
    assert caught.value.where is not None


def test_only_pythons_own_containers_are_indexed_so():
    assert dynamic_getitem.is_indexed([1])
    assert not dynamic_getitem.is_indexed([])
    assert not dynamic_getitem.is_indexed("text")
