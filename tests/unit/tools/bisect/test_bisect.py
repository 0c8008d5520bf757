"""The op that a compiler gets wrong is found, alone and in company: the fault is put into the lowering."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import aotpipe
from aotpipe.backends.iree.lower import importer
from aotpipe.build.chain import Chain
from aotpipe.build.compile_stage import CompileSettings
from aotpipe.build.events import Recorder
from aotpipe.build.request import Request
from aotpipe.core.stages import Legal, LegalEntry, Lowered
from aotpipe.errors import SpecInvalid
from aotpipe.islands.marking import eager_island
from aotpipe.model import spec
from aotpipe.runtime.xla import container
from aotpipe.tools.bisect import bisect, lower
from aotpipe.tools.bisect.probes import Probes
from tests.sweep import sweep

ATEN = torch.ops.aten
ROOT = Path(__file__).resolve().parents[4]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(8, 8)
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).relu()
        self.total += y.sum(0)
        z = torch.sqrt(y + 2)
        low, high = z.min(1), z.max(1)
        return (high.values - low.values) * self.total.sum()


class Few(torch.nn.Module):
    """The ops of a model that a fault in company takes, with a state and a value behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.relu()
        self.total += y[0]
        return torch.sqrt(y + 3).max(1).values * self.total[0]


def line(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, each in enumerate(lines, 1) if text in each)


def miscompile(monkeypatch: pytest.MonkeyPatch, is_hit: Callable[[torch.fx.Graph], bool]) -> None:
    """Lower `sqrt` as `rsqrt` in the graphs that are hit."""
    lower = importer.lower

    def wrong(legal: Legal) -> Lowered:
        return lower(replace(legal, entries=tuple(map(changed, legal.entries))))

    def changed(entry: LegalEntry) -> LegalEntry:
        module = copy.deepcopy(entry.graph)
        if is_hit(module.graph):
            for node in module.graph.find_nodes(op="call_function", target=ATEN.sqrt.default):
                node.target = ATEN.rsqrt.default
            module.recompile()
        return replace(entry, graph=module)

    monkeypatch.setattr(importer, "lower", wrong)


def spec_of(batch: int = 3) -> object:
    return spec.as_spec(Model().eval(), args=(torch.randn(batch, 8),), name="model")


@pytest.mark.slow
def test_an_op_that_is_wrong_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The example of the documentation, as it stands there."""
    page = (ROOT / "docs" / "bisect.md").read_text(encoding="utf-8")
    (tmp_path / "similarity.py").write_text(page.split("```python\n")[1].split("```")[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    flags = [word.removeprefix("--flag=") for word in page.split() if word.startswith("--flag=")]
    fault = bisect(
        "similarity.py",
        target="iree-cpu-host",
        settings=CompileSettings(extra_flags=tuple(flags)),
        cache=False,
    )
    assert fault is not None
    assert f"op        {fault.place}" in page
    assert fault.alone is not None
    assert fault.alone.ratio > 100
    assert fault.failed.output == "output"
    assert fault.to_json()["alone"]["output"] == fault.place.name
    fault.reproducer.save(tmp_path / "out")
    assert b"torch.aten.mm" in (tmp_path / "out" / "module.mlir").read_bytes()
    given = np.load(tmp_path / "out" / "inputs.npz")
    [wanted] = np.load(tmp_path / "out" / "wanted.npz").values()
    x, weight = (given[name] for name in sorted(given, key=lambda name: given[name].size))
    np.testing.assert_allclose(x @ weight, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("model", "target"), sweep([(Few, "iree-vmvx"), (Model, "iree-cpu-host")], quick=1))
def test_an_op_that_is_wrong_in_company_only(
    model: type[torch.nn.Module], target: str, monkeypatch: pytest.MonkeyPatch
):
    miscompile(
        monkeypatch, lambda graph: bool(graph.find_nodes(op="call_function", target=ATEN.relu.default))
    )
    fault = bisect(model().eval(), (torch.randn(3, 8),), target=target, cache=False)
    assert fault is not None
    assert fault.place.op == "aten.sqrt.default"
    assert fault.place.where is not None
    assert fault.place.where.line == line("torch.sqrt(y" + (" + 2)" if model is Model else " + 3)"))
    assert fault.alone is None
    assert b"relu" in fault.reproducer.lowered.module


@pytest.mark.slow
def test_a_right_program_has_no_fault():
    assert bisect(spec_of(), target="iree-cpu-host", cache=False) is None


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, k: float = 2.0) -> torch.Tensor:
        y = x if mask is None else x * mask
        return torch.sqrt(y.abs() + 2) * k


SCALED = {"args": (torch.ones(3), torch.ones(3)), "kwargs": {"k": 3.0}}


@pytest.mark.parametrize(("option", "name"), sweep([("optional", "mask"), ("tensorize", "k")], quick=1))
def test_the_program_has_the_inputs_of_the_build(option: str, name: str, monkeypatch: pytest.MonkeyPatch):
    """The fault is in the program with one more input, which the option makes."""
    found = len(aotpipe.export(Scaled().eval(), **SCALED).entries[0].signature.tensor_inputs)
    miscompile(
        monkeypatch,
        lambda graph: (
            len(graph.find_nodes(op="placeholder")) > found
            and bool(graph.find_nodes(op="call_function", target=ATEN.abs.default))
        ),
    )
    # Islands are allowed where a model has none.
    assert bisect(Scaled().eval(), **SCALED, target="iree-vmvx", allow_islands=True, cache=False) is None
    fault = bisect(Scaled().eval(), **SCALED, target="iree-vmvx", cache=False, **{option: (name,)})
    assert fault is not None
    assert fault.failed.output == "output"


@pytest.mark.slow
def test_the_program_has_the_precision_of_the_build(monkeypatch: pytest.MonkeyPatch):
    miscompile(
        monkeypatch, lambda graph: bool(graph.find_nodes(op="call_function", target=ATEN.relu.default))
    )
    fault = bisect(spec_of(), target="iree-cpu-host", dtype="bf16", cache=False)
    assert fault is not None
    assert fault.place.op == "aten.sqrt.default"
    assert b"bf16" in fault.reproducer.lowered.module


def test_a_probe_is_over_the_mesh_of_the_program():
    options = {"mesh": "x=2", "shard": ["linear.weight=(x, None)", "x=(x, None)"]}
    request = Request.of(spec_of(4), ["xla-cpu-host"], **options)
    chain = Chain(request, Recorder())
    probes = Probes(chain.legal, chain.reference().goldens[:1])
    for names, splits in (([probes.order[-1]], {"linear.weight", "x"}), (["sqrt"], {"linear.weight", "x"})):
        index, _ = container.read(lower(probes.program(names), request).module)
        assert index["mesh"]["devices"] == 2
        assert set(index["mesh"]["splits"]) == splits
    index, _ = container.read(lower(probes.alone("sqrt"), request).module)
    assert (index["mesh"]["devices"], index["mesh"]["splits"]) == (2, {})


def test_a_chain_with_islands_is_refused():
    @eager_island
    def outside(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def model(x: torch.Tensor) -> torch.Tensor:
        return outside(x * 2) * 3

    with pytest.raises(SpecInvalid, match="chain with islands") as caught:
        bisect(model, (torch.ones(3),), target="iree-cpu-host", allow_islands=True, cache=False)
    assert "outside" in caught.value.reason
