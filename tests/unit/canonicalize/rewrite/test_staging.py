"""Whether a graph is being traced."""

from __future__ import annotations

import torch

from aotpipe.canonicalize.operators import operators as ops
from aotpipe.canonicalize.rewrite import staging
from aotpipe.canonicalize.trace import torch_functions
from aotpipe.canonicalize.values.trace import is_on


def test_it_is_on_for_as_long_as_a_module_is_traced():
    module = torch.nn.Linear(1, 1)
    assert not is_on()
    with staging.staging(module):
        assert is_on()
        with staging.staging(torch.nn.Linear(1, 1)):
            pass
        assert is_on()
        assert "forward" in vars(module)
    assert not is_on()
    assert "forward" not in vars(module)


def test_real_tensors_are_python_values_also_while_staging():
    with staging.staging(torch.nn.Linear(1, 1)):
        assert not torch_functions.is_staged(torch.tensor(True))
        assert ops.and_(lambda: torch.tensor(1), lambda: 5) == 5
