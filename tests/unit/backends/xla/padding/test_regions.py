import pytest

from tests.unit.backends.xla.padding.cases import CASES
from tests.unit.backends.xla.padding.test_rules import check


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scan from the back", "map", "branch", "loop"])
def test_control_flow_sees_true_sizes(name: str):
    check(CASES[name])
