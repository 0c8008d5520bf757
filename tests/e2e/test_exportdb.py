"""torch's own examples of what torch.export supports: each is built and at parity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch._export.db.case import SupportLevel
from torch._export.db.examples import all_examples

import aotpipe

CASES: dict[str, Any] = all_examples()
SUPPORTED = sorted(name for name, case in CASES.items() if case.support_level is SupportLevel.SUPPORTED)
# A size that is rounded from a float: torch calls it unsupported.
BEYOND = ["dynamic_shape_round"]


def test_they_are_all_there() -> None:
    assert len(SUPPORTED) >= 35


@pytest.mark.parametrize("name", [*SUPPORTED, *BEYOND])
def test_a_case_is_at_parity(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    bundle = aotpipe.build(
        case.model,
        args=case.example_args,
        kwargs=case.example_kwargs,
        dynamic_shapes=case.dynamic_shapes,
        name=name,
        targets=["iree-cpu-host"],
        out=tmp_path / "bundle",
        latency=False,
    )
    [row] = bundle.report.targets
    assert row.status == "executed", row.reason
    assert row.parity is not None
    assert row.parity.passed
    assert row.parity.calls > 0
