"""torch's own samples of its ops, compiled and run beside eager: equal or refused, never wrong.

The default test takes ops that models are made of; the slow one takes every op that torch has samples of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from aotpipe.core.targets import Target
from tests.opinfo.__main__ import earlier, isolated
from tests.opinfo.cases import OPS, cases
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


def test_a_sample_with_a_row_of_the_target_is_not_run_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    first, *left = cases("add", "float32", 2)
    row = Row("add", "float32", first.index, "equal")
    others = [
        replace(row, index=index, target=name) for index, name in ((-1, row.target), (1, "xla-cpu-host"))
    ]
    path.write_text("".join(one.to_json() + "\n" for one in (row, *others)))
    assert earlier(path, Target.parse(row.target)) == [row]
    assert earlier(tmp_path / "none.jsonl", Target.parse(row.target)) == []
    again = cases("add", "float32", 2, done={(row.op, row.dtype, row.index)})
    assert left
    assert [one.index for one in again] == [one.index for one in left]


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
