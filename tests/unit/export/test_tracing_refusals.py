"""Models that catch all exceptions, those of the trace too."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from aotpipe.errors import ExportFailed
from aotpipe.export import tracing
from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check

CASES = tuple((torch.tensor(each),) for each in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [1.0, -2.0, 0.5]))


def chosen(x):
    try:
        y = x if x.sum() > 0 else x * 3
    except:  # noqa: E722  # as people write it
        y = x * 100
    return y


def collected(x):
    def positive(values):
        found = []
        for each in values:
            if each > 0:
                found.append(each)  # noqa: PERF401
        return len(found), sum(found)

    try:
        count, total = positive(x)
        x = x + total
    except Exception:
        count, x = -1, x * 100
    return x, count


def compared(x):
    try:
        y = x if torch.equal(x, x.abs()) else x * 3
    except Exception:
        y = x * 100
    return y


def shown(x):
    try:
        label = f"{x.sum() > 0}"
    except Exception:
        label = ""
    return x * len(label)


def test_a_text_of_a_tensor_that_a_handler_catches_is_refused():
    with pytest.raises(ExportFailed, match="a text is made of"):
        check(shown, *CASES)


@pytest.mark.parametrize("model", [chosen, slow(collected), compared], ids=lambda model: model.__name__)
def test_the_handler_is_for_what_eager_raises(model):
    check(model, *CASES)


def test_what_a_library_catches_is_its_own():
    with tracing.refusals_are_raised():
        assert not torch.fx.experimental.symbolic_shapes.statically_known_true(False)
    before = GuardOnDataDependentSymNode.__init__
    with pytest.raises(KeyError), tracing.refusals_are_raised():
        raise KeyError
    assert GuardOnDataDependentSymNode.__init__ is before
