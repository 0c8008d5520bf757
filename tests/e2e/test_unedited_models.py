"""Models as people write them, Python deciding on tensors: one program each, with eager's answers."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import aotpipe
from aotpipe.canonicalize.example_call import uncompiled
from tests.programs import generating, seeds, unedited
from tests.programs.cases import Models, case

TABLES: dict[str, Models] = {
    "unedited": unedited.MODELS,
    "seeds": seeds.MODELS,
    "generating": generating.MODELS,
}
QUICK = {"beam_search"}
BUCKETS = {
    "iterative_addition": {"batch": (3,)},
    "my_exportable_model": {"batch_size_x": (10, 32, 1), "output_dim_y": (20, 3, 1)},
}
# What a call may lack, and Python's numbers that vary.
OPTIONS: dict[str, dict[str, Any]] = {
    "enriched_batch": {"optional": ("batch.doc_ids", "batch.fim_boundaries", "batch.valid_token_counts")},
    "iterative_addition_of_an_int": {"tensorize": ("reps",), "value_ranges": {"reps": (0, 9)}},
}
CASES = [
    pytest.param(table, name, id=name, marks=() if name in QUICK else pytest.mark.slow)
    for table, models in TABLES.items()
    for name in models
]


def compare(table: str, name: str, target: str, out: Path, **options: Any) -> None:
    """Build a model, and make its calls in turn: what it keeps is kept in both."""
    model, calls, shapes = case(TABLES[table], name)
    options |= OPTIONS.get(name, {})
    bundle = aotpipe.build(
        model, kwargs=calls[0], dynamic_shapes=shapes, targets=[target], out=out, latency=False, **options
    )
    [row] = bundle.report.targets
    assert row.status == "executed", row.reason
    with aotpipe.load(bundle.path, target=target) as runner, torch.no_grad(), uncompiled():
        for call in calls:
            want = pytree.tree_leaves(model(**call))
            got = runner.infer(pytree.tree_map_only(torch.Tensor, torch.Tensor.numpy, call)).values()
            for mine, other in zip(want, got, strict=True):
                np.testing.assert_allclose(other, np.asarray(mine), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("table", "name"), CASES)
def test_an_unedited_model_has_eagers_answers(table: str, name: str, tmp_path: Path):
    compare(table, name, "iree-cpu-host", tmp_path / "bundle")


@pytest.mark.slow
@pytest.mark.parametrize(("table", "name"), CASES, ids=lambda value: value)
def test_an_unedited_model_has_eagers_answers_on_xla(table: str, name: str, tmp_path: Path):
    options = {"buckets": BUCKETS[name]} if name in BUCKETS else {}
    compare(table, name, "xla-cpu-host", tmp_path / "bundle", **options)


def test_what_eager_raises_the_program_refuses(tmp_path: Path):
    model, calls, _ = case(unedited.MODELS, "validated")
    bundle = aotpipe.build(
        model, kwargs=calls[0], targets=["iree-cpu-host"], out=tmp_path / "bundle", latency=False
    )
    assert "talk-left-out" in {finding.code for finding in bundle.report.findings}
    with aotpipe.load(bundle.path, target="iree-cpu-host") as runner:
        with pytest.raises(aotpipe.errors.AssertionViolated, match=r"ValueError: not finite: \.\.\."):
            runner.infer({"x": np.full(3, np.inf, np.float32), "mode": np.array(1)})
        runner.infer({"x": np.ones(3, np.float32), "mode": np.array(1)})


class GrowingCache(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = None

    def forward(self, x):
        self.cache = x if self.cache is None else torch.cat([self.cache, x])  # here
        return self.cache.sum(0)


class GrowingText(torch.nn.Module):
    def forward(self, x):
        while x.sum() < 9:  # here
            x = torch.cat([x, x[:1]])
        return x


class Recursive(torch.nn.Module):
    def halved(self, x):
        if x.abs().max() < 1:
            return x
        return self.halved(x / 2)  # here

    def forward(self, x):
        return self.halved(x)


class Labelled(torch.nn.Module):
    def forward(self, x):  # here
        label = "negative"
        if x.sum() > 0:
            label = "positive"
        return x, label


class Spoken(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = {"0": torch.zeros(3), "1": torch.ones(3)}

    def forward(self, x):
        return x + self.words.get(str(x.sum().item()), x)  # here


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (GrowingCache, "`cache` grows in every call"),
        (GrowingText, "`x` gets longer in every iteration of a loop on a tensor"),
        (Recursive, "calls itself without end"),
        (Labelled, "where a tensor decides which: 'positive' or 'negative'"),
        (Spoken, "a text is made of a value"),
    ],
)
def test_what_no_program_holds_is_refused_at_its_line(model: type[torch.nn.Module], said: str):
    with pytest.raises(aotpipe.errors.ExportFailed, match=said) as caught:
        aotpipe.export(model().eval(), args=(torch.full((2, 3), 0.1),))
    lines, first = inspect.getsourcelines(model)
    [wanted] = [number for number, line in enumerate(lines, first) if line.rstrip().endswith("# here")]
    assert caught.value.where is not None
    assert caught.value.where.line == wanted
