"""The stage as a whole: a Spec in, a Canonical out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.canonicalize import canonicalize
from aotpipe.errors import ModelImportFailed, SpecInvalid, TrainMode
from aotpipe.model.spec import AUTO, Dim, EntryPoint, Spec, as_spec

X = torch.ones(4, 3)


@dataclass
class Batch:
    ids: torch.Tensor
    mask: torch.Tensor | None = None
    size: int = 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, batch: Batch, scale: float = 1.0, dtype: Any = None, **more: Any) -> dict[str, Any]:
        return {"y": self.linear(batch.ids).to(dtype or torch.float32) * scale, "n": batch.size, "none": None}

    def decode(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.linear(x), x


def test_inputs_outputs_and_constants_have_names() -> None:
    canonical = canonicalize(
        as_spec(Net().eval(), args=(Batch(X), 2.0), kwargs={"dtype": torch.float64, "extra": X})
    )
    [entry] = canonical.entries
    assert entry.input_names == ("batch.ids", "batch.size", "scale", "extra")
    assert entry.constants == {"batch.size": 3, "scale": 2.0, "dtype": torch.float64}
    assert entry.output_names == ("y", "n", "none")
    assert {f.code for f in canonical.findings} == {"constant-input", "baked-input"}
    assert entry.module(*entry.entry.args, **entry.entry.kwargs)["y"].dtype is torch.float64


def test_entry_points_share_one_model() -> None:
    built = []

    def build() -> nn.Module:
        built.append(Net().eval())
        return built[-1]

    spec = Spec(
        name="two",
        build=build,
        entry_points={
            "forward": EntryPoint(args=(Batch(X),)),
            "decode": EntryPoint(method="decode", args=(X,), dynamic_shapes={"x": {0: Dim("b")}}),
        },
    )
    canonical = canonicalize(spec)
    assert len(built) == 1
    first, second = (dict(entry.module.named_parameters()) for entry in canonical.entries)
    assert first.keys() == second.keys()
    assert first["linear.weight"] is second["linear.weight"]
    assert canonical.entries[1].output_names == ("output.0", "output.1")
    assert canonical.entries[1].dims == {"x": {0: Dim("b")}}


def test_the_build_is_seeded_and_leaves_the_generator_alone() -> None:
    def weights(seed: int) -> torch.Tensor:
        spec = Spec(
            name="n",
            build=lambda: nn.Linear(3, 3).eval(),
            entry_points={"forward": EntryPoint(args=(X,))},
            seed=seed,
        )
        return canonicalize(spec).model.weight.detach()  # type: ignore[return-value, operator]

    before = torch.random.get_rng_state()
    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_numbers_given_a_dim_are_no_constants() -> None:
    def f(x: torch.Tensor, n: int, m: int) -> torch.Tensor:
        return x[:n] * m

    canonical = canonicalize(as_spec(f, args=(X, 2, 3), dynamic_shapes={"n": AUTO}))
    assert canonical.entries[0].constants == {"m": 3}
    [finding] = canonical.findings
    assert "`m`" in finding.message
    assert finding.where is not None


def test_none_is_a_constant_without_a_finding() -> None:
    def f(x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        return x

    canonical = canonicalize(as_spec(f, args=(X,), kwargs={"mask": None}))
    assert canonical.entries[0].constants == {"mask": None}
    assert not canonical.findings


def test_train_mode_stops_the_build() -> None:
    with pytest.raises(TrainMode):
        canonicalize(as_spec(nn.Sequential(nn.Dropout()), args=(X,)))


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"y": (0, 1)}, "names 'y', which is no tensor input"),
        ({"x": (2, 3)}, "outside its range 2..3"),
        ({"flag": (0, 1)}, "names 'flag', which is no tensor input"),
        ({"mask": (0, 1)}, "but it is torch.bool"),
    ],
)
def test_value_ranges_are_checked(ranges: dict[str, tuple[float, float]], message: str) -> None:
    def f(x: torch.Tensor, mask: torch.Tensor, flag: bool) -> torch.Tensor:
        return x

    with pytest.raises(SpecInvalid, match=message):
        canonicalize(as_spec(f, args=(X, X > 0, True), value_ranges=ranges))


def test_a_build_that_raises_shows_its_line() -> None:
    def build() -> nn.Module:
        raise OSError("no weights")

    spec = Spec(name="n", build=build, entry_points={"forward": EntryPoint(args=(X,))})
    with pytest.raises(ModelImportFailed) as caught:
        canonicalize(spec)
    assert caught.value.where is not None
    assert caught.value.where.line == build.__code__.co_firstlineno + 1
    assert isinstance(caught.value.__cause__, OSError)


def test_a_build_that_gives_no_model_is_refused() -> None:
    spec = Spec(name="n", build=lambda: 3, entry_points={"forward": EntryPoint()})  # type: ignore[arg-type, return-value]
    with pytest.raises(SpecInvalid, match="build gave a int"):
        canonicalize(spec)


def test_outputs_that_are_no_tensors_are_refused() -> None:
    def f(x: torch.Tensor) -> Any:
        return {"y": x, "config": object()}

    with pytest.raises(SpecInvalid, match="the output config is a object"):
        canonicalize(as_spec(f, args=(X,)))


def test_a_foreign_value_beside_tensors_is_refused() -> None:
    with pytest.raises(SpecInvalid, match=r"the input 0.device is a device"):
        canonicalize(as_spec(lambda d: d["x"], args=({"x": X, "device": torch.device("cpu")},)))


def test_torchscript_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "scripted.pt"
    traced = torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(2))
    traced.save(str(path))
    inner = torch.nn.Sequential(torch.nn.ReLU(), torch.jit.load(str(path)))
    with pytest.raises(SpecInvalid, match="TorchScript is no Python that can be traced: 1"):
        canonicalize(as_spec(inner.eval(), args=(torch.ones(2),)))
