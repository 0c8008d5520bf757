"""What a path demands of sizes stays with that path, also where torch traces an exported program again."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe.backends import legalization
from aotpipe.canonicalize.trace import runtime_asserts
from aotpipe.passes import legalize
from tests.unit.passes.legal import Runner, exported

VALUES = ([1.0, -1.0, 2.0, 3.0], [-1.0, -1.0, -2.0, 3.0], [2.0, 2.0, 3.0, 3.0], [-1.0] * 4)


class Fitting(torch.nn.Module):
    """Adds rows to the input where there are as many."""

    def forward(self, x: Any) -> Any:
        rows = x[x > 0]
        if rows.shape[0] == 4:
            return (rows + x).sum()
        return rows.sum() * 2 + rows.shape[0]


class Second(torch.nn.Module):
    """Takes a row that there may not be, in a loop too."""

    def forward(self, x: Any) -> Any:
        rows = x[x > 0]
        out = x.sum()
        if len(rows) > 1:
            out = out + rows[1]
        while len(rows) > 1 and out < 9:
            out = out + rows[1] * 2
        return out - len(rows)


@pytest.mark.parametrize(
    ("model", "cheap"),
    [
        pytest.param(Fitting(), -1, id="Fitting-branches"),
        pytest.param(Second(), 16384, id="Second-selections"),
        pytest.param(Fitting(), 16384, id="Fitting-selections", marks=pytest.mark.slow),
        pytest.param(Second(), -1, id="Second-branches", marks=pytest.mark.slow),
    ],
)
def test_legal_programs_know_no_more_of_sizes_than_holds_for_every_path(model: Any, cheap: int) -> None:
    run = Runner(legalize(exported(model.eval(), [torch.tensor(VALUES[0])]), legalization(), cheap=cheap))
    for value in VALUES:
        x = torch.tensor(value)
        (got,) = run([x]).values()
        torch.testing.assert_close(got, model(x))


def test_nothing_is_collected_where_nothing_is_traced() -> None:
    with runtime_asserts.sizes_collected() as found:
        pass
    assert found == []
    assert runtime_asserts.environment() is None
