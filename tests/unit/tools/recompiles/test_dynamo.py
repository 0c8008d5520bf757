"""torch's own ways to learn of programs: they are there, and put back."""

from __future__ import annotations

import torch
from torch._dynamo import config, convert_frame, utils

from aotpipe.tools.recompiles.dynamo import counting


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def test_each_program_is_told_once_with_its_function_and_guard() -> None:
    with counting() as counter:
        compiled = torch.compile(double, backend=counter.backend)
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
        [first], breaks = counter.taken()
        compiled(torch.ones(2))
        assert counter.taken() == ([], [])
        compiled(torch.ones(2, dtype=torch.float64))
        [second], _ = counter.taken()
    assert (first.function, first.path, first.ops, first.guard, breaks) == ("double", __file__, 2, None, [])
    assert second.guard is not None
    assert second.guard.value == "x.dtype: Float -> Double"


def test_torch_is_as_before() -> None:
    before = convert_frame.get_and_maybe_log_recompilation_reasons, config.recompile_limit
    with counting():
        assert config.recompile_limit > before[1]
    assert before == (convert_frame.get_and_maybe_log_recompilation_reasons, config.recompile_limit)
    assert utils._compilation_metrics.maxlen == utils.DEFAULT_COMPILATION_METRICS_LIMIT
