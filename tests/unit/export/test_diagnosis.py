"""One error out of torch's many words."""

from __future__ import annotations

import re

import pytest
import torch

from aotpipe.core.dims import Dim
from aotpipe.errors import ExportFailed, SourceLine, StaticDim
from aotpipe.export import diagnosis
from aotpipe.export.diagnosis import GuardLog
from tests.unit.export.models import exported

LINE = SourceLine("m.py", 3)
LOG = GuardLog(symbols={"L['x'].size()[0]": "s77"}, guards=[("Ne(s5, 1)", None), ("Eq(s77, 4)", LINE)])
ADVICE = "\n\nThe error above occurred when calling torch.export.export. If you would like to view more"


def explain(text: str) -> ExportFailed:
    return diagnosis.explain(RuntimeError(text + ADVICE), LOG, "forward")


def test_what_python_cannot_do_with_a_traced_number_depends_on_data() -> None:
    assert diagnosis.is_data_dependent(TypeError("unsupported format string passed to SymFloat.__format__"))
    assert not diagnosis.is_data_dependent(TypeError("unsupported format string passed to list.__format__"))
    assert not diagnosis.is_data_dependent(ValueError("no SymFloat"))


def test_a_constant_dim_is_a_static_dim() -> None:
    line = (
        "  - You marked L['x'].size()[0] as dynamic but your code specialized it to be a constant (4). If\n"
    )
    error = explain(
        f"Constraints violated (b)! For more information.\n{line}{line}Suggested fixes:\n  b = 4\n"
    )
    assert isinstance(error, StaticDim)
    assert error.where == LINE
    assert error.message.endswith(": x.shape[0] = 4")


def test_a_range_that_does_not_fit_gives_torchs_fix() -> None:
    error = explain(
        "Constraints violated (b)! For more information, run with TORCH_LOGS.\n"
        "  - Not all values of b = L['x']['k'][0].size()[0] in the range b <= 64 satisfy the guard b <= 5.\n"
        "Suggested fixes:\n  b = Dim('b', max=5)\n"
    )
    assert not isinstance(error, StaticDim)
    assert error.hint == "b = aotpipe.Dim('b', max=5)"
    assert "x['k'][0].shape[0]" in error.reason
    assert "draft_export" not in str(error)


def test_a_path_for_size_one_asks_for_min_two() -> None:
    error = explain(
        "Constraints violated (b)!\n  - Not all values of b satisfy the guard L['x'].size()[0] != 1.\n"
    )
    assert "min=2" in error.hint


def test_a_decision_on_a_value_points_to_torch_cond() -> None:
    error = explain(
        "Could not guard on data-dependent expression u0 > 3 (unhinted: u0 > 3).  (Size-like: none)"
    )
    assert "? > 3" in error.reason
    assert "torch.cond" in error.hint


def test_a_check_that_torch_suggests_is_handed_on() -> None:
    error = explain(
        "Could not guard on data-dependent expression u0 > 3 (unhinted: u0 > 3).\n"
        "To fix the error, insert one of the following checks before this call:\n"
        "  1. torch._check(n > 3)\n  2. torch._check(n <= 3)\n"
    )
    assert error.hint.startswith("say before that line which holds: torch._check(n > 3), or torch._check(")


def test_a_check_of_what_has_no_name_in_the_model_is_not() -> None:
    error = explain(
        "Could not guard on data-dependent expression Eq(u0, 0) (unhinted: Eq(u0, 0)).\n"
        "To fix the error, insert one of the following checks before this call:\n"
        "  1. torch._check(args[0].shape[2] == 0)\n  2. torch._check(args[0].shape[2] != 0)\n"
    )
    assert "args" not in error.hint
    assert "torch.where" in error.hint


def test_other_errors_keep_their_first_sentence_and_the_users_line() -> None:
    def model() -> None:
        raise KeyError("no such thing\nmore words")

    with pytest.raises(KeyError) as caught:
        model()
    error = diagnosis.explain(caught.value, LOG, "forward")
    assert error.where is not None
    assert error.where.line == model.__code__.co_firstlineno + 1
    assert error.message == "forward raised KeyError while torch.export traced it"
    assert error.reason.splitlines()[0] == "'no such thing\\nmore words'"


def test_a_reshape_into_parts_names_the_size_and_its_factor() -> None:
    log = GuardLog(symbols={"L['x'].size()[2]": "s53"})
    found = diagnosis.explain(
        RuntimeError("shape '[1, (s53//8), 8, 2, 8, 12]' is invalid for input of size 192*s53"),
        log,
        "forward",
    )
    assert (
        found.reason
        == "shape '[1, (x.shape[2]//8), 8, 2, 8, 12]' is invalid for input of size 192*x.shape[2]"
    )
    assert found.hint == "let x.shape[2] be a multiple of 8: `8 * Dim(...)`"


def test_symbols_of_torch_are_not_named() -> None:
    def longer(x: torch.Tensor) -> torch.Tensor:
        count = int(x.abs().max())
        if x.sum() > 0:
            x = torch.cat([x, x[:count]])
        return x

    with pytest.raises(ExportFailed, match=re.escape("(x.shape[0], 3) and (x.shape[0] + ?, 3)")):
        exported(longer, torch.rand(16, 3), shapes={"x": {0: Dim("n", min=2, max=64)}})


def test_a_range_that_torch_does_not_expect_is_about_sizes() -> None:
    said = "Expected an equality constraint for s27, got (4 <= s27) & (s27 <= 63)"
    assert diagnosis.is_about_sizes(AssertionError(said))


@pytest.mark.parametrize("part", ["residuals", "rank"])
def test_what_only_a_run_knows_of_least_squares_is_refused(part: str) -> None:
    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return getattr(torch.linalg.lstsq(a, b), part) + 1

    with pytest.raises(ExportFailed, match="residuals or the rank") as raised:
        exported(forward, torch.randn(5, 3), torch.randn(5, 2))
    assert raised.value.where is not None
    assert "square().sum" in raised.value.hint


def test_a_size_that_a_branch_fixes_is_the_cause_of_a_refusal() -> None:
    """The branch is part of the graph: torch.cond would not help where an input beside does not vary."""

    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = torch.zeros(x.shape[0], 3)
        if (y > 0.5).any():
            found = torch.where(y > 0.5, x, found)
        return found

    with pytest.raises(StaticDim, match=r"batch was asked to vary, but became the constant 2") as caught:
        exported(model, torch.rand(2, 3), torch.rand(2, 3), shapes={"x": {0: Dim("batch", min=1, max=4)}})
    assert caught.value.hint.startswith("give y the Dim 'batch' too, which is 2 in its dim 0")


class Switching(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        self.now = self.one

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() < 0:
            self.now = self.two
        return self.now(x)


def test_a_module_that_a_tensor_chooses_is_no_child() -> None:
    with pytest.raises(ExportFailed, match=r"`self\.now` is one module or another") as raised:
        exported(Switching(), torch.ones(2))
    assert "getattr(self, self.now_name)(x)" in str(raised.value.hint)
    assert "ChosenObject" not in str(raised.value)
