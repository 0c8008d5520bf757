"""Agreement: a program that baked something in is told from one that did not."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest
import torch

import aotpipe
from aotpipe import canonicalize
from aotpipe.core.stages import ExportedEntry
from aotpipe.tools.check.agreement import answers, disagreement
from aotpipe.tools.check.diagnostics import Diagnostic
from tests.unit.tools.check import models
from tests.unit.tools.check.models import X


class Baking(torch.nn.Module):
    """What it takes out of the tensor is hidden from every tracer, as a C extension would hide it."""

    def __init__(self, fixed: float):
        super().__init__()
        self.fixed = fixed

    def forward(self, x):
        return x * self.fixed if torch.compiler.is_exporting() else x * x.sum()


def compared(module: torch.nn.Module, *args: Any) -> str:
    [entry] = canonicalize(module.eval(), args).entries
    program = torch.export.export(entry.module, entry.entry.args, strict=False)
    exported = aotpipe.export(torch.nn.Identity().eval(), (X,)).entries[0]
    found = disagreement(entry, ExportedEntry(name="forward", program=program, signature=exported.signature))
    return found.message if found else ""


def test_a_program_that_baked_a_number_in_is_told():
    assert compared(Baking(3.0), X) == "the exported program gives another 'output' in call 1, the example"
    right_on_the_example = float(X.sum())
    assert compared(Baking(right_on_the_example), X).startswith(
        "the exported program gives another 'output' in call 3, with its numbers turned"
    )


def test_a_program_that_is_right_is_not():
    assert not compared(models.Plain(), X)


class Returning(torch.nn.Module):
    """It returns one thing while it is exported, and another in calls."""

    def __init__(self, exported: Any, called: Any):
        super().__init__()
        self.returned = exported, called

    def forward(self, x):
        exported, called = self.returned
        return exported(x) if torch.compiler.is_exporting() else called(x)


@pytest.mark.parametrize(
    ("exported", "called", "said"),
    [
        (lambda x: [x], lambda x: [x] if x.sum() > 0 else [x, x], "gives 1 results for 2 in call 3"),
        (lambda x: [x, x], lambda x: [x], "gives 2 results for 1 in call 1"),
        (lambda x: [x], lambda x: [x if x.sum() > 0 else None], "gives 'output.0' where eager gives none"),
        (
            lambda x: [x, None],
            lambda x: [x, None if x.sum() > 0 else x],
            "gives no tensor or number for 'output.1'",
        ),
        (lambda x: [x, "a"], lambda x: [x, "a"], ""),
    ],
)
def test_a_program_that_gives_other_results_than_eager(exported: Any, called: Any, said: str):
    assert compared(Returning(exported, called), X).startswith(said and f"the exported program {said}")


def test_a_loop_that_is_rewritten_agrees():
    checked = aotpipe.check(models.Repeated().eval(), (X, torch.tensor(2)))
    assert "differs-from-eager" not in {each.code for each in checked.diagnostics}
    assert checked.ok


def test_a_parameter_that_calls_write_is_as_before():
    class Writing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3), requires_grad=False)

        def forward(self, x):
            self.weight.add_(1)
            return x * self.weight

    model = Writing().eval()
    [entry] = canonicalize(model, (torch.ones(3),)).entries
    first, second = (answers(entry, [torch.clone, torch.clone]) for _ in range(2))
    assert [each["output"].tolist() for each in first] == [[2.0] * 3, [3.0] * 3]
    assert [each["output"].tolist() for each in second] == [[2.0] * 3, [3.0] * 3]
    assert torch.equal(model.weight, torch.ones(3))


def test_a_model_that_draws_is_not_blamed():
    class Noisy(torch.nn.Module):
        def forward(self, x):
            return x + torch.rand(3)

    # What the program has baked in cannot be told from another drawing.
    assert not compared(Returning(lambda x: x, Noisy()), torch.ones(3))
    checked = aotpipe.check(Noisy().eval(), (torch.ones(3),))
    assert "differs-from-eager" not in {each.code for each in checked.diagnostics}


def only(module: torch.nn.Module, *args: Any) -> Diagnostic:
    [found] = aotpipe.check(module.eval(), args).obstacles
    return found


class Numpy(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = x + 1
        return torch.from_numpy(np.exp(x.numpy())) * 2


class Sampled(torch.nn.Module):
    """numpy's function of that name does something else than torch's."""

    def forward(self, x):
        if x.sum() > 0:
            x = x + 1
        return torch.from_numpy(np.std(x.numpy(), keepdims=True)) * 2


def test_numpys_functions_become_torchs():
    before = Numpy.forward.__code__
    found = only(Numpy(), X)
    assert found.code == "tensor-to-numpy"
    assert found.fix is not None
    assert found.fix.verified
    assert found.fix.line.strip() == "return torch.exp(x) * 2"
    assert found.fix.calls == 5
    assert Numpy.forward.__code__ is before
    assert "x.numpy()" in linecache.getline(__file__, before.co_firstlineno + 3)


def test_an_edit_that_answers_otherwise_is_not_shown():
    found = only(Sampled(), X)
    assert found.code == "tensor-to-numpy"
    assert found.fix is None


def test_what_no_edit_helps_has_none():
    class Growing(torch.nn.Module):
        def forward(self, x):
            found = []
            while x.sum() > 1:
                x = x / 2
                found.append(x)
            return sum(found)

    assert only(Growing(), X).fix is None
