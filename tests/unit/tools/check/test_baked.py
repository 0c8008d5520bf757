"""What a program fixes: inputs, keys, effects and attributes, each as seen in a run."""

from __future__ import annotations

import torch

from aotpipe import canonicalize
from aotpipe.core.stages import CanonicalEntry
from aotpipe.tools.check import baked
from aotpipe.tools.check.eager_runs import observe

X = torch.tensor([1.0, 2.0])


def entry(module: torch.nn.Module, *args: object, **kwargs: object) -> CanonicalEntry:
    return canonicalize(module.eval(), args, kwargs).entries[0]


class Scaled(torch.nn.Module):
    def forward(self, x, scale, unused, flag=False, name="a"):
        return x * scale if not flag else x[:1]


def test_an_input_is_baked_where_another_value_changes_the_answer():
    found = list(baked.fixed(entry(Scaled(), X, 2.0, 3, flag=False, name="b")))
    flagged = (
        "the input `flag` is no tensor: it is fixed at False, and with True eager gives the shape "
        "(1,) for (2,)"
    )
    assert [each.message for each in found] == [
        "the input `scale` is no tensor: it is fixed at 2.0, and with 5.0 eager gives another answer",
        flagged,
    ]
    assert [each.place.expression for each in found if each.place] == ["scale", "flag"]


def test_an_input_that_raises_with_another_value_is_baked():
    class Indexed(torch.nn.Module):
        def forward(self, x, k):
            return x * [1.0, 2.0][k]

    [found] = baked.fixed(entry(Indexed(), X, 1))
    assert found.message.endswith("with 2 eager raises IndexError")


def test_attributes_are_fixed_or_kept():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.table = {}

        def forward(self, x):
            self.calls += 1
            self.table["n"] = self.calls
            return x

    one = entry(Counter(), X)
    observed = observe(one)
    found = {each.message.split("`")[1]: each for each in baked.attributes(observed, {"calls": "calls"})}
    assert found["self.calls"].code == "state-becomes-buffer"
    assert "(0 -> 1 -> 2 in two calls)" in found["self.calls"].message
    assert found["self.table"].code == "baked-attribute"
    assert [each.place.expression for each in found.values() if each.place] == [
        "self.calls",
        'self.table["n"]',
    ]


def test_nones_and_keys_are_those_of_the_method_alone():
    class Optional(torch.nn.Module):
        def forward(self, batch, mask=None, scale=None):
            if mask is not None or "y" in batch:
                return batch["x"] * mask
            return batch["x"] if scale is None else batch["x"] * scale

    found = list(baked.fixed(entry(Optional(), {"x": X}, scale=torch.tensor(2.0))))
    assert [(each.code, each.place.expression) for each in found if each.place] == [
        ("baked-none", "mask is not None"),
        ("baked-key", '"y" in batch'),
    ]
