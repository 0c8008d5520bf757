"""The course of a check: every obstacle of a model at its own line, in one go."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

import aotpipe
from aotpipe.errors import SpecInvalid
from tests.sweep import sweep
from tests.unit.tools.check import models
from tests.unit.tools.check.models import X

CASES: list[tuple[type[torch.nn.Module], tuple[Any, ...]]] = [
    (models.Plain, (X,)),
    (models.Conditional, (X,)),
    (models.Repeated, (X, 3)),
    (models.Metadata, ({"x": X, "mask": X > 0},)),
    (models.Talking, (X,)),
    (models.Reading, (X,)),
    (models.Counting, (X,)),
    (models.Chance, (X,)),
    (models.Growing, (X,)),
    (models.Recursive, (X,)),
    (models.Strings, (X, torch.tensor(1))),
    (models.TwoShapes, (X,)),
    (models.Many, (X, torch.tensor(1), 2.0)),
    (models.Raising, (X,)),
    (models.CountingBehind, (X,)),
    (models.Keyed, (X,)),
    (models.Comprehended, (X,)),
    (models.Keeping, (X,)),
    (models.KeepingMore, (X,)),
    (models.KeepingBehind, (X,)),
    (models.Determinant, (torch.eye(4),)),
]


# What is rewritten of these agrees with eager.
REWRITTEN = (models.Conditional, models.Keeping)
# What these hold is in `Many` too, or in another two of the cases.
IN_OTHERS = (
    models.Repeated,
    models.Talking,
    models.Growing,
    models.Strings,
    models.TwoShapes,
    models.CountingBehind,
    models.KeepingBehind,
)


@pytest.mark.parametrize(
    ("model", "args"),
    sweep(CASES, quick=0, always=[case for case in CASES if case[0] not in IN_OTHERS]),
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_each_line_is_named_with_its_code(model: type[torch.nn.Module], args: tuple[Any, ...]):
    checked = aotpipe.check(model().eval(), args)
    said = Counter(
        (each.where.line, each.code)
        for each in checked.diagnostics
        if each.where is not None and each.code not in ("state-in-python", "strict-export")
    )
    assert said == models.marked(model)
    if model in REWRITTEN:
        assert "differs-from-eager" not in {each.code for each in checked.diagnostics}
        assert checked.ok
    assert checked.ok is not any(each.severity == "error" for each in checked.diagnostics)
    assert checked.exit_code == (0 if checked.ok else 22)


def test_a_size_from_data_without_a_bound_keeps_a_model_from_xla_alone():
    def said(**options: Any) -> Counter[Any]:
        found = aotpipe.check(models.Counted().eval(), (X,), **options).diagnostics
        return Counter((each.where.line, each.code) for each in found if each.where is not None)

    assert said(mesh="data=1") == models.marked(models.Counted)
    assert not said()


def test_a_model_in_train_mode_is_checked_all_the_same_and_left_in_it():
    model = models.Trained()
    checked = aotpipe.check(model, (X,))
    assert {(each.where.line, each.code) for each in checked.obstacles if each.where} == set(
        models.marked(models.Trained)
    )
    assert checked.signatures
    assert model.training
    assert model.drop.training


def test_the_model_is_as_before():
    model = models.Conditional().eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    aotpipe.check(model, (X,))
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert "forward" not in vars(model)


def test_what_is_no_model_is_an_error():
    with pytest.raises(SpecInvalid):
        aotpipe.check(3)  # type: ignore[arg-type]


def test_code_without_source_is_named_as_such():
    source = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x
"""
    names: dict[str, Any] = {}
    exec(source, names)
    checked = aotpipe.check(names["Net"]().eval(), (X,))
    [obstacle] = checked.obstacles
    assert obstacle.code == "no-source"
    assert obstacle.where is not None
    assert obstacle.where.line == 5


def test_several_entry_points_are_checked_each():
    class Two(torch.nn.Module):
        def forward(self, x):
            return x + 1

        def other(self, x):
            y = x.flatten()
            if x.sum() > 0:
                y = x[:, :2]
            return y

    checked = aotpipe.check(
        Two().eval(),
        entry_points={
            "forward": aotpipe.EntryPoint(args=(X,)),
            "other": aotpipe.EntryPoint(args=(X,), method="other"),
        },
    )
    assert {each.entry_point for each in checked.obstacles} == {"other"}
    assert "forward" in checked.signatures
