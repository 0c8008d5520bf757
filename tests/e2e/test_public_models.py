"""At least 98 of 100 public models that torch.export takes are at parity, with no edit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e import public_cases, public_models


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize(("library", "at_least"), [("timm", 30), ("transformers", 40)])
def test_public_models_are_at_parity(library: str, at_least: int, print_table: Callable[[str], None]) -> None:
    rows = list(public_models.build_all(case for case in public_cases.cases() if case.startswith(library)))
    built, taken = public_models.summary(rows)
    print_table("\n".join([*map(str, rows), f"{built} of {taken} are at parity"]))
    assert taken >= at_least
    assert built / taken >= 0.98
