"""Vacuous models are found out, or further inputs make them say something; ordinary ones are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from aotpipe.backends import legalization
from aotpipe.canonicalize import canonicalize
from aotpipe.export import export
from aotpipe.model.spec import Dim, as_spec
from aotpipe.passes import legalize
from aotpipe.validate import reference as references
from aotpipe.validate.informative import uninformative
from aotpipe.validate.reference import Reference, reference

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
WEIGHT = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))


class _Model(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("total", torch.zeros(()))
        self.register_buffer("table", WEIGHT[0].clone())

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def _reference(function: Callable[..., Any], x: torch.Tensor = X, **options: Any) -> Reference:
    canonical = canonicalize(as_spec(_Model(function).eval(), args=(x,), name="model", **options))
    return reference(canonical, legalize(export(canonical), legalization()))


def _count(model: _Model, x: torch.Tensor) -> torch.Tensor:
    model.total.add_(1)
    return model.total * 2


def _keep(model: _Model, x: torch.Tensor) -> torch.Tensor:
    model.total.add_(x.sum())
    return torch.zeros(3)


def _reach(model: _Model, x: torch.Tensor) -> torch.Tensor:
    model.total.add_(x.sum())
    return model.total > 50


def _write(model: _Model, x: torch.Tensor) -> torch.Tensor:
    return x.add_(1)[:0].clone()


def _loop(model: _Model, x: torch.Tensor) -> torch.Tensor:
    y = x * 0
    while y < x - 2:
        y = y + 1
    return y


VACUOUS: dict[str, Callable[[_Model, torch.Tensor], Any]] = {
    "zeros": lambda model, x: torch.zeros(4),
    "argmax": lambda model, x: (x.tanh() + torch.eye(8)[3] * 9).argmax(-1),
    "nan": lambda model, x: (x.abs() + 2).acos() * WEIGHT[0],
    "clamp": lambda model, x: (x.abs() + 1).clamp(0, 1),
    "integer": lambda model, x: (x.abs() > -1).sum(),
    "state": _keep,
    "buffer": lambda model, x: torch.where(x.sum() > 1e9, x[0], model.table),
    "dropout": lambda model, x: torch.nn.functional.dropout(x, 1.0, training=False) * 0,
    "softmax": lambda model, x: x.clamp(-3, 3).softmax(-1).sum(-1),
}
FOUND: dict[str, tuple[Callable[[_Model, torch.Tensor], Any], torch.Tensor]] = {
    "nonzero": (lambda model, x: (x > 50).nonzero(), X),
    "mask": (lambda model, x: x @ WEIGHT > 1e3, X),
    "threshold": (lambda model, x: torch.where(x.mean() > 2.5, x @ WEIGHT, torch.zeros(4, 8)), X),
    "saturated": (lambda model, x: (x + 3).clamp(0, 1), X.abs()),
    "root": (lambda model, x: (x - 5).sqrt(), X),
    "trips": (_loop, torch.tensor(1)),
    "flag": (lambda model, x: ~x[0], torch.ones(3, dtype=torch.bool)),
    "state": (_reach, X[:1, :1]),
}
ORDINARY: dict[str, Callable[[_Model, torch.Tensor], Any]] = {
    "bools": lambda model, x: x > 0,
    "bool": lambda model, x: x[0, 0] > 0,
    "number": lambda model, x: x.sum(),
    "beside": lambda model, x: (x * 2, torch.zeros(3)),
    "counter": _count,
    "product": lambda model, x: x @ WEIGHT,
    "softmax": lambda model, x: x.softmax(-1),
    "argmax": lambda model, x: x.argmax(-1),
    "written": _write,
    "sign": lambda model, x: x.sign() / 0,
}


def _says_nothing(found: Reference) -> bool:
    outputs = {(golden.entry_point, name) for golden in found.goldens for name in golden.outputs}
    return outputs == uninformative(found.goldens).keys()


@pytest.mark.parametrize("name", VACUOUS)
def test_a_vacuous_model_stays_so_and_its_outputs_are_named(name: str) -> None:
    found = _reference(VACUOUS[name])
    assert _says_nothing(found)
    [finding] = (each for each in found.findings if each.code == "uninformative-output")
    assert finding.message.startswith("`output` is ")


@pytest.mark.parametrize("name", FOUND)
def test_further_inputs_reach_the_other_branch(name: str) -> None:
    function, x = FOUND[name]
    found = _reference(function, x)
    assert not _says_nothing(found)
    assert any(golden.case.startswith("search ") for golden in found.goldens)
    assert any("no planned call says anything" in each.message for each in found.findings)


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_model_is_searched_for_nothing(name: str) -> None:
    found = _reference(ORDINARY[name])
    assert not _says_nothing(found)
    assert not any(golden.case.startswith("search ") for golden in found.goldens)


def test_only_what_says_nothing_is_named() -> None:
    messages = [each.message for each in _reference(ORDINARY["beside"]).findings]
    assert messages == ["`output.1` is 0.0 in every call, so that comparing it proves nothing"]


def test_sizes_alone_make_no_zeros_say_something() -> None:
    rows = {"x": {0: Dim("rows", min=1, max=9)}}
    assert _says_nothing(_reference(lambda model, x: torch.zeros(x.shape[0]), dynamic_shapes=rows))
    assert not _says_nothing(_reference(lambda model, x: torch.arange(x.shape[0]), dynamic_shapes=rows))


def test_a_search_keeps_to_declared_ranges_and_to_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bright: Callable[..., Any] = lambda model, x: x.float().mean() > 200  # noqa: E731
    image = torch.full((4, 4), 100, dtype=torch.uint8)
    found = _reference(bright, image, value_ranges={"x": (90, 250)})
    assert not _says_nothing(found)
    for golden in found.goldens:
        assert 90 <= golden.inputs["x"].min() <= golden.inputs["x"].max() <= 250
    assert _says_nothing(_reference(bright, image, value_ranges={"x": (90, 150)}))
    monkeypatch.setattr(references, "_SEARCH_S", -1.0)
    mask = FOUND["mask"][0]
    assert _says_nothing(_reference(mask))


def test_a_search_is_the_same_each_time() -> None:
    one, other = (_reference(*FOUND["mask"]).goldens for _ in range(2))
    for mine, its in zip(one, other, strict=True):
        assert mine.case == its.case
        assert np.array_equal(mine.inputs["x"], its.inputs["x"])
