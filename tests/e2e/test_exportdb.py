"""torch's own examples of what torch.export supports: each is built and at parity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch._export.db.case import SupportLevel
from torch._export.db.examples import all_examples
from torch.utils import _pytree as pytree

import aotpipe
from tests.sweep import sweep

CASES: dict[str, Any] = all_examples()
SUPPORTED = sorted(name for name, case in CASES.items() if case.support_level is SupportLevel.SUPPORTED)
# A size that is rounded from a float: torch calls it unsupported.
BEYOND = ["dynamic_shape_round"]
# These return `torch.zeros`: no call says anything of them.
CONSTANT = ["constrain_as_size_example", "dynamic_shape_constructor"]
# torch's own control flow, and a size that is rounded; tests of their own have states and names.
QUICK = ["cond_closed_over_variable", "dynamic_shape_map", "dynamic_shape_round"]


def test_they_are_all_there() -> None:
    assert len(SUPPORTED) >= 35


@pytest.mark.parametrize("name", sweep([*SUPPORTED, *BEYOND], quick=0, always=QUICK))
def test_a_case_is_at_parity(name: str, tmp_path: Path) -> None:
    check(name, "iree-cpu-host", tmp_path / "bundle")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SUPPORTED, *BEYOND])
def test_a_case_is_at_parity_on_xla(name: str, tmp_path: Path) -> None:
    leaves = pytree.tree_leaves(CASES[name].dynamic_shapes, is_leaf=lambda each: hasattr(each, "__name__"))
    dims = [leaf for leaf in leaves if hasattr(leaf, "__name__")]
    buckets = {dim.__name__: (min(max(dim.min, 8), dim.max),) for dim in dims}
    check(name, "xla-cpu-host", tmp_path / "bundle", buckets=buckets)


def check(name: str, target: str, out: Path, **options: Any) -> None:
    """Build a case and require that its program ran at parity."""
    case = CASES[name]
    bundle = aotpipe.build(
        case.model,
        args=case.example_args,
        kwargs=case.example_kwargs,
        dynamic_shapes=case.dynamic_shapes,
        name=name,
        targets=[target],
        out=out,
        latency=False,
        allow_unproven=name in CONSTANT,
        **options,
    )
    [row] = bundle.report.targets
    assert row.status == ("unproven" if name in CONSTANT else "executed"), row.reason
    assert row.parity is not None
    assert row.parity.passed
    assert row.parity.calls > 0
