"""What is fixed although eager would vary it is told at a build, with the line."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import torch
from torch import nn

from aotpipe.canonicalize import canonicalize, specialization
from aotpipe.model import spec

X = torch.ones(2, 3)


class Varied(nn.Module):
    def forward(self, x, k=2, unused=3, flag=False, name="a", batch=None, mask=None, bias=None):
        if mask is None and bias is None:
            x = x * k
        if flag:
            x = x + 1
        if batch is not None and "y" in batch:
            x = x + batch["y"]
        return x if name == "a" else -x


def found(*args: Any, **kwargs: Any) -> Any:
    options = {name: kwargs.pop(name) for name in ("optional", "tensorize", "examples") if name in kwargs}
    return canonicalize(spec.as_spec(Varied().eval(), args=args, kwargs=kwargs, **options))


def line_of(mark: str) -> int:
    lines, start = inspect.getsourcelines(Varied)
    return start + next(index for index, line in enumerate(lines) if mark in line)


def test_numbers_that_matter_are_warnings_and_others_are_notes():
    findings = {
        (f.severity, f.code, f.message) for f in found(X, k=2, unused=3, flag=False, name="a").findings
    }
    said = "is no tensor: it is fixed at"
    assert {
        ("warning", "baked-input", f"the input `k` {said} 2, and with 3 eager gives another answer"),
        (
            "warning",
            "baked-input",
            f"the input `flag` {said} False, and with True eager gives another answer",
        ),
        ("note", "constant-input", f"the input 'unused' {said} 3"),
        ("note", "constant-input", f"the input 'name' {said} 'a'"),
    } <= findings


def test_keys_and_all_that_is_none_at_once_are_warnings():
    findings = {f.code: f for f in found(X, batch={"x": X}).findings}
    key, none = findings["baked-key"], findings["baked-none"]
    assert key.message == "`batch` has no key 'y' in the example: the program is for such calls"
    assert key.where is not None
    assert key.where.line == line_of('"y" in batch')
    assert none.message == "the program is for calls without `mask`, `bias`, for which the model asks"
    assert (key.severity, none.severity) == ("warning", "warning")


def test_what_varies_is_not_fixed():
    canonical = found(
        X,
        k=2,
        flag=True,
        batch={"y": X},
        mask=X,
        bias=X,
        optional=("batch.y", "mask", "bias"),
        tensorize=("k",),
    )
    assert [f.message for f in canonical.findings if f.code.startswith("baked")] == [
        "the input `flag` is no tensor: it is fixed at True, and with False eager gives another answer"
    ]


def test_what_there_is_no_time_for_is_said_to_matter():
    [entry] = found(X, k=2, unused=3).entries
    assert [each.name for each in specialization.numbers(entry)] == ["k", "flag"]
    told = list(specialization.numbers(entry, budget_s=-1.0))
    assert [each.name for each in told] == ["k", "unused"]
    assert told[1].message.endswith("eager may give another answer")
    assert told[0].hint == "tensorize=('k',) lets it vary"


def test_a_default_that_is_left_and_matters_is_a_warning():
    messages = {f.message for f in found(X).findings if f.code == "baked-input"}
    assert messages == {
        "the input `k` is left out: it is fixed at 2, and with 3 eager gives another answer",
        "the input `flag` is left out: it is fixed at False, and with True eager gives another answer",
    }


def test_what_is_put_in_the_place_of_none_is_asked_for():
    class Optional(nn.Module):
        def forward(self, x, extra=None):
            extra = extra or {}
            return x + extra.get("bias", 0)

    [finding] = canonicalize(spec.as_spec(Optional().eval(), args=(X,))).findings
    assert finding.code == "baked-none"


def test_the_part_that_is_fixed_is_pointed_at():
    class Part(nn.Module):
        def forward(self, batch):
            return batch["x"] * batch["scale"]

    [entry] = canonicalize(spec.as_spec(Part().eval(), args=({"x": X, "scale": 2.0},))).entries
    [fixed_at] = specialization.numbers(entry)
    assert ast.unparse(fixed_at.node) == "batch['scale']"
