"""A bundle with islands: built at parity, loaded, listed and timed."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import aotpipe
from aotpipe.errors import BundleError, IslandNotFound, TargetError
from aotpipe.runtime.bundle import open_bundle, selftest, steps
from tests.unit.islands.models import Chained, Factored, Masked, N, Sorted

ORDER = "tests.unit.islands.models:order"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sorted, Path]:
    torch.manual_seed(0)
    model = Sorted().eval()
    out = tmp_path_factory.mktemp("islands") / "sorted"
    built = aotpipe.build(
        model,
        args=(torch.randn(3, 4),),
        dynamic_shapes={"x": {0: N}},
        targets=["iree-vmvx"],
        allow_islands=True,
        out=out,
    )
    [row] = built.report.targets
    assert row.status == "executed"
    assert row.latency
    return model, out


def test_calls_are_eager_s_over_sizes_and_state(bundle: tuple[Sorted, Path]) -> None:
    model, path = bundle
    eager = copy.deepcopy(model)
    with aotpipe.load(path, islands=[ORDER]) as runner:
        for _ in range(2):
            for size in (3, 1, 8, 5, 2):
                x = torch.randn(size, 4)
                with torch.no_grad():
                    want = eager(x).numpy()
                np.testing.assert_allclose(
                    runner.infer({"x": x.numpy()})["output"], want, rtol=1e-5, atol=1e-4
                )
            runner.reset()
            eager = copy.deepcopy(model)


def test_a_bundle_lists_its_islands_and_passes_its_own_test(bundle: tuple[Sorted, Path]) -> None:
    parts = open_bundle(bundle[1]).manifest.parts
    assert parts is not None
    [island] = parts.islands
    assert (island.name, island.reason) == (ORDER, "numpy's sort")
    assert str(island.where).startswith("models.py:")
    assert selftest(bundle[1], islands=[ORDER]).passed


def test_no_island_runs_that_was_not_allowed(bundle: tuple[Sorted, Path]) -> None:
    for run in (aotpipe.load, selftest):
        with pytest.raises(IslandNotFound, match=f"not allowed: {ORDER}"):
            run(bundle[1])
    with aotpipe.load(bundle[1], islands={ORDER: lambda x, width, scale: (x[:, :2], width)}) as runner:
        assert runner.infer({"x": np.ones((2, 4), np.float32)})["output"].shape == (2, 4)


def test_each_step_is_timed(bundle: tuple[Sorted, Path]) -> None:
    found = steps(bundle[1], calls=3, islands=[ORDER])
    assert [(step.kind, step.calls) for step in found] == [("program", 3), ("function", 3), ("program", 3)]
    assert sum(step.share for step in found) == pytest.approx(1)
    assert found[1].to_json()["name"] == ORDER


@pytest.mark.parametrize(
    ("model", "example", "others"),
    [
        pytest.param(
            Masked(), torch.tensor([0.0, 1.0, 2.0]), [torch.tensor([1.0, 0.0, 0.0])], marks=pytest.mark.slow
        ),
        (Factored(), torch.randn(3, 4), [torch.zeros(3, 4)]),
        # How many of them are positive differs among the inputs that a build tries, so that the size varies.
        (Chained(), torch.tensor([2.0, 1.0, 0.5, -0.1]), [torch.ones(4)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_islands(tmp_path: Path, model: torch.nn.Module, example: torch.Tensor, others: list) -> None:
    built = aotpipe.build(
        model.eval(),
        args=(example,),
        targets=["iree-vmvx"],
        allow_islands=True,
        latency=False,
        out=tmp_path / "b",
    )
    names = [island.name for island in built.manifest.parts.islands if island.kind == "function"]
    with aotpipe.load(built, islands=names) as runner:
        for x in (example, *others):
            got = runner.infer({"x": x.numpy()})["output"]
            np.testing.assert_allclose(got, model(x).numpy(), rtol=1e-4, atol=1e-4)


def test_a_bundle_without_islands_has_no_chain(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3).eval()
    built = aotpipe.build(
        model,
        args=(torch.ones(2, 3),),
        targets=["iree-vmvx"],
        allow_islands=True,
        latency=False,
        out=tmp_path / "b",
    )
    assert built.manifest.parts is None
    with pytest.raises(BundleError, match="has no islands"):
        steps(built, calls=1)


def test_xla_programs_have_no_chains(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="only IREE's programs"):
        aotpipe.build(
            Masked(), args=(torch.ones(3),), targets=["xla-cpu-host"], allow_islands=True, out=tmp_path
        )
