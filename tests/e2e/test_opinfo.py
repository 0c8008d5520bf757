"""torch's own samples of its ops, compiled and run beside eager: equal or refused, never wrong.

The default test takes ops that models are made of; the slow one takes every op that torch has samples of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from tests.opinfo.__main__ import isolated
from tests.opinfo.cases import OPS
from tests.opinfo.known import FAILING
from tests.opinfo.sweep import Row, sweep_together
from tests.opinfo.table import render

# What the models of other default tests are not made of: no add, where, matmul, softmax, layer_norm or topk.
IMPORTANT = ("remainder pow gather index_put nn_functional_pad_constant argmax cumsum").split()


def test_important_ops_are_equal(print_table: Callable[[str], None]) -> None:
    rows = sweep_together(IMPORTANT, {"float32": 1, "int64": 1})
    print_table(render(rows))
    equal = Counter(row.op for row in rows if row.verdict == "equal")
    assert not [row for row in rows if row.verdict not in {"equal", "export"}]
    assert set(equal) == set(IMPORTANT)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "int64", "float16", "bool"])
def test_every_op_is_equal_or_refused(dtype: str, print_table: Callable[[str], None]) -> None:
    rows = [row for op in OPS for row in isolated(op, [dtype], 3)]
    print_table(render(rows))
    _check(rows)


def _check(rows: Iterable[Row]) -> None:
    bad = [row for row in rows if row.verdict not in {"equal", "refused", "export"}]
    assert not [row for row in bad if row.verdict == "WRONG"]
    assert not [row for row in bad if row.op not in FAILING]
