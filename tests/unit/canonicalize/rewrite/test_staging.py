"""Whether a graph is being traced."""

from __future__ import annotations

import torch

from aotpipe.canonicalize.operators import operators as ops
from aotpipe.canonicalize.rewrite import staging
from aotpipe.canonicalize.trace import torch_functions
from aotpipe.canonicalize.values.trace import is_on
from tests.unit.canonicalize.trace.agree import check


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


CASES = tuple((torch.tensor(each),) for each in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0]))


class Hooked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3, 3)
        self.layer.register_forward_pre_hook(self.before)
        self.layer.register_forward_pre_hook(self.before_with_kwargs, with_kwargs=True)
        self.layer.register_forward_hook(self.after)
        self.calls = 0

    def before(self, module, args):
        if args[0].sum() > 0:
            return args[0] * 2
        return None

    def before_with_kwargs(self, module, args, kwargs):
        if args[0].sum() > 1:
            return (args[0] + 1,), kwargs
        return None

    def after(self, module, args, out):
        self.calls += 1
        if out.sum() > 0:
            return out * 3
        return None

    def forward(self, x):
        return self.layer(x) + 1, self.calls


def test_what_they_leave_is_what_they_were_given():
    check(Hooked().eval(), *CASES)


def test_the_hooks_are_put_back():
    model = Hooked()
    before = [dict(table) for table in (model.layer._forward_pre_hooks, model.layer._forward_hooks)]
    with staging.hooks_joined(model):
        assert dict(model.layer._forward_hooks) != before[1]
    assert [model.layer._forward_pre_hooks, model.layer._forward_hooks] == before
