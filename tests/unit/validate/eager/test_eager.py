"""Eager on named arrays: precision, state, mutated inputs, numbers, noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from aotpipe.core.signature import Constant, Signature, TensorSpec
from aotpipe.core.stages import CanonicalEntry
from aotpipe.model.spec import EntryPoint
from aotpipe.model.torch_arrays import from_numpy
from aotpipe.validate.eager import eager
from aotpipe.validate.eager.eager import Eager, EagerFailed, FixedResult


def _entry(
    module: torch.nn.Module,
    *args: Any,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    name: str = "forward",
) -> CanonicalEntry:
    return CanonicalEntry(
        name=name,
        entry=EntryPoint(args=args),
        module=module.eval(),
        input_names=inputs,
        constants={},
        output_names=outputs,
    )


class _Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        self.count += 1
        self.calls += 1
        return x + self.count, self.calls


class _Affine(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, scale: float) -> dict[str, torch.Tensor]:
        return {"y": self.linear(x).float() * scale}


def test_names_in_names_out_and_constants_are_the_examples() -> None:
    module = _Affine()
    x = torch.randn(2, 4)
    eager = Eager([_entry(module, x, 2.0, inputs=("x", "scale"), outputs=("y",))])
    out = eager.infer({"x": x.numpy()})
    np.testing.assert_array_equal(out["y"], module(x, 2.0)["y"].detach().numpy())


class _Counting(torch.nn.Module):
    """Gives the number of calls, of which no program hears."""

    calls: list[int] = []  # noqa: RUF012

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int, str]:
        self.calls.append(1)
        return x * 2, len(self.calls), "text"


def test_what_is_fixed_in_the_programs_is_fixed_in_eager() -> None:
    x = torch.ones(2)
    entry = _entry(_Counting(), x, inputs=("x",), outputs=("y", "count", "text"))
    spec = TensorSpec("x", "float32", (2,))
    outputs = (replace(spec, name="y"), Constant("count", 1), Constant("text", "text"))
    eager = Eager([entry], {"forward": Signature(inputs=(spec,), outputs=outputs)})
    eager.infer({"x": x.numpy()})
    with pytest.raises(FixedResult, match="`count` is 2 in eager on some inputs, and 1 in every call"):
        eager.infer({"x": x.numpy()})


def test_float64_is_exact_through_a_cast_inside_the_model() -> None:
    module = _Affine()
    x = torch.randn(2, 4)
    entry = _entry(module, x, 2.0, inputs=("x", "scale"), outputs=("y",))
    wide = Eager([entry], precision="float64").infer({"x": x.numpy()})["y"]
    weight, bias = (p.detach().double() for p in module.linear.parameters())
    np.testing.assert_allclose(wide, ((x.double() @ weight.T + bias) * 2).numpy(), rtol=1e-15)
    assert module.linear.weight.dtype == torch.float32


@pytest.mark.parametrize("precision", ["model", "float64"])
def test_state_is_kept_between_calls_and_reset_brings_all_of_it_back(precision: Any) -> None:
    module = _Counter()
    eager = Eager(
        [_entry(module, torch.zeros(2), inputs=("x",), outputs=("y", "calls"))], precision=precision
    )
    x = np.zeros(2, np.float32)
    assert [eager.infer({"x": x})["y"][0] for _ in range(2)] == [1, 2]
    assert eager.infer({"x": x})["calls"] == 3
    eager.reset()
    first = eager.infer({"x": x})
    assert (first["y"][0], first["calls"]) == (1, 1)
    assert (module.count.item(), module.calls) == (0, 0)


def test_entry_points_share_state_and_reset_together() -> None:
    counter = _Counter()

    class Peek(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.counter = counter

        def forward(self) -> torch.Tensor:
            return self.counter.count + 0

    eager = Eager(
        [
            _entry(counter, torch.zeros(1), inputs=("x",), outputs=("y", "calls"), name="step"),
            _entry(Peek(), inputs=(), outputs=("count",), name="peek"),
        ]
    )
    eager.infer({"x": np.zeros(1, np.float32)}, entry_point="step")
    assert eager.infer({}, entry_point="peek")["count"] == 1
    eager.reset()
    assert eager.infer({}, entry_point="peek")["count"] == 0


def test_a_module_that_cannot_be_copied_still_resets_its_buffers() -> None:
    module = _Counter()
    module.lock = __import__("threading").Lock()
    eager = Eager([_entry(module, torch.zeros(2), inputs=("x",), outputs=("y", "calls"))])
    x = np.zeros(2, np.float32)
    eager.infer({"x": x})
    eager.reset()
    assert eager.infer({"x": x})["y"][0] == 1


def test_a_mutated_input_is_an_output_and_the_callers_array_is_untouched() -> None:
    class Shift(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return x * 2

    entry = _entry(Shift(), torch.zeros(2), inputs=("x",), outputs=("y",))
    x = np.zeros(2, np.float32)
    signature = Signature(inputs=(), outputs=(TensorSpec("mutated.x", "float32", (2,)),))
    out = Eager([entry], {"forward": signature}).infer({"x": x})
    assert out["mutated.x"].tolist() == [1, 1]
    assert out["y"].tolist() == [2, 2]
    assert x.tolist() == [0, 0]


def test_outputs_do_not_share_memory_with_the_model() -> None:
    class Cache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.cache.add_(x)
            return self.cache

    eager = Eager([_entry(Cache(), torch.zeros(2), inputs=("x",), outputs=("y",))])
    one = np.ones(2, np.float32)
    first = eager.infer({"x": one})["y"]
    eager.infer({"x": one})
    assert first.tolist() == [1, 1]


def test_small_floats_pass_bit_for_bit() -> None:
    class Same(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float16, np.complex64, np.bool_, np.uint8):
        array = np.array([[0, 1, 1]]).astype(dtype)
        entry = _entry(Same(), from_numpy(array), inputs=("x",), outputs=("y",))
        out = Eager([entry]).infer({"x": array})["y"]
        assert out.dtype == array.dtype
        assert out.shape == array.shape
        assert out.tobytes() == array.tobytes()


def test_a_tied_weight_stays_tied_in_the_copies() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = torch.nn.Linear(2, 2, bias=False)
            self.b = torch.nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x) - self.b(x)

    entry = _entry(Tied(), torch.ones(1, 2), inputs=("x",), outputs=("y",))
    x = np.ones((1, 2), np.float32)
    assert Eager([entry], noise=3).infer({"x": x})["y"].tolist() == [[0, 0]]


def test_frugal_float64_is_the_same_and_holds_no_wide_parameters() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)
            self.written = torch.nn.Parameter(torch.full((8,), 0.1))
            self.register_buffer("total", torch.zeros(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.written.mul_(1.1)
            self.total += self.linear(x).sum(0)
            return self.total * self.written + self.linear.weight.t()[0]

    torch.manual_seed(0)
    x = torch.randn(3, 8)
    model = Model()
    answers = []
    for frugal in (False, True):
        runner = Eager(
            [_entry(model, x, inputs=("x",), outputs=("y",))],
            {"forward": Signature(inputs=(), outputs=(), state=(TensorSpec("written", "float32", (8,)),))},
            precision="float64",
            frugal=frugal,
        )
        answers.append([runner.infer({"x": x.numpy()})["y"] for _ in range(2)])
    for held, converted in zip(*answers, strict=True):
        assert held.dtype == converted.dtype == np.float64
        np.testing.assert_array_equal(held, converted)


def test_noise_moves_numbers_by_some_units_in_the_last_place_and_spares_flags() -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.full((100,), 1.5))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.w + 0, x + 0

    entry = _entry(Two(), torch.ones(2), inputs=("x",), outputs=("w", "x"))
    eager = Eager([entry], noise=1)
    out = eager.infer({"x": np.array([1.0, 0.3], np.float32)})
    assert 0 < np.abs(out["w"] - 1.5).max() < 1.5 * 17 * 2**-23
    assert out["x"][0] == 1.0
    assert 0 < abs(out["x"][1] - np.float32(0.3)) < 1e-6


def test_an_old_weight_norm_can_be_copied() -> None:
    module = torch.nn.Linear(3, 2)
    module.weight = None
    module._parameters.pop("weight")
    source = torch.nn.Parameter(torch.ones(2, 3))
    module.source = source
    module.__dict__["weight"] = source * 2
    eager = Eager([_entry(module, torch.ones(1, 3), inputs=("x",), outputs=("y",))])
    assert eager.infer({"x": np.ones((1, 3), np.float32)})["y"].shape == (1, 2)


def test_what_the_model_raises_is_told_apart() -> None:
    entry = _entry(_Affine(), torch.ones(1, 4), 1.0, inputs=("x", "scale"), outputs=("y",))
    with pytest.raises(EagerFailed, match="RuntimeError"):
        Eager([entry]).infer({"x": np.ones((1, 5), np.float32)})


def test_a_whole_number_that_no_program_holds_is_told_as_an_error() -> None:
    class Power(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> int:
            return 10 ** int(x)

    entry = _entry(Power(), torch.tensor(3), inputs=("x",), outputs=("y",))
    signature = Signature(inputs=(TensorSpec.parse("x: int64[]"),), outputs=(TensorSpec.parse("y: int64[]"),))
    eager = Eager([entry], {entry.name: signature})
    assert eager.infer({"x": np.array(18)})["y"] == 10**18
    with pytest.raises(EagerFailed, match="OverflowError: int64 does not hold the result 10000"):
        eager.infer({"x": np.array(19)})


def test_control_flow_runs_its_branches_without_a_compiler() -> None:
    sums = []

    class Cond(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def plus(a: torch.Tensor) -> torch.Tensor:
                sums.append(a.sum().item())  # no compiler could take this
                return a + 1

            return torch.cond(x.sum() > 0, plus, lambda a: a - 1, (x,))

    eager = Eager([_entry(Cond(), torch.ones(2), inputs=("x",), outputs=("y",))])
    assert eager.infer({"x": np.ones(2, np.float32)})["y"].tolist() == [2, 2]
    assert eager.infer({"x": -np.ones(2, np.float32)})["y"].tolist() == [-2, -2]
    assert sums == [2.0]


@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (2, 2**15 + 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_noise_is_small_and_everywhere(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = torch.full(shape, 1.5, dtype=dtype).expand(shape)
    moved = eager._noisy(tensor, torch.Generator().manual_seed(0), spare_whole=False)
    error = (moved.double() / 1.5 - 1).abs()
    limit = (eager.NOISE_ULPS + 1) * torch.finfo(dtype).eps
    assert (moved.shape, moved.dtype) == (tensor.shape, dtype)
    assert (error <= limit).all()
    assert (tensor == 1.5).all()
    if tensor.numel() > 10:
        assert (error > 0).float().mean() > 0.8


def test_noise_moves_both_parts_of_complex_numbers() -> None:
    tensor = torch.full((64,), 1.5 - 0.3j)
    moved = eager._noisy(tensor.conj(), torch.Generator().manual_seed(0), spare_whole=True)
    error = torch.view_as_real(moved) / torch.tensor([1.5, 0.3]) - 1
    assert (error.abs() <= (eager.NOISE_ULPS + 1) * torch.finfo(torch.float32).eps).all()
    assert ((error != 0).float().mean(0) > 0.8).all()
