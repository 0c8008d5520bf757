"""Random programs of updates, compiled as builds compile them, compute what eager computes."""

from __future__ import annotations

import pytest

from aotpipe.backends.xla import lowering
from tests.canaries import check_compiled
from tests.programs import on_xla, updating
from tests.programs.through import compare, forget_traces, legal
from tests.sweep import sweep

_SEEDS = range(200)


@pytest.mark.parametrize("seed", sweep(_SEEDS, quick=2))
def test_a_program_of_updates_computes_what_eager_computes(seed: int) -> None:
    forget_traces()
    check_compiled(updating.model(seed), *updating.calls(seed))


@pytest.mark.parametrize("seed", sweep(_SEEDS, quick=1))
def test_xlas_program_does_too(seed: int) -> None:
    forget_traces()
    model, calls = updating.model(seed), updating.calls(seed)
    program = legal(model, calls[0], dialect="stablehlo")
    with on_xla.load(program, lowering.lower(program)) as runner:
        for call in calls:
            compare(runner, program, model, call)
