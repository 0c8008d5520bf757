"""The seeded faults fit today's code: `scripts/seeded_faults` can put each of them in."""

from __future__ import annotations

import pytest

from tests.faults.faults import ROOT
from tests.seeded_faults.faults import MODELS, SeededFault, load

FAULTS = load()
LEAST = 60


def test_there_are_enough_of_them_and_each_has_a_name_of_its_own() -> None:
    assert len(FAULTS) >= LEAST
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_can_be_put_in(fault: SeededFault) -> None:
    for path, text in fault.changed(ROOT).items():
        compile(text, str(path), "exec")
    assert (MODELS / f"{fault.model}.py").is_file()
