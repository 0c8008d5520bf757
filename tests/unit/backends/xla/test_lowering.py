"""Models through every stage to XLA, compared with eager; what is refused; jax and torch left alone."""

from __future__ import annotations

import subprocess
import sys

import jax
import numpy as np
import pytest
import torch
from torch.export import Dim

from aotpipe.backends.xla import lowering
from aotpipe.backends.xla.estimate.figures import count_products
from aotpipe.backends.xla.mesh import parsed
from aotpipe.backends.xla.ops import blas
from aotpipe.errors import CannotPad, NoBuckets, OutsideBuckets, UnsupportedOps
from aotpipe.runtime.xla import container
from tests.programs import on_xla, through


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.nn.functional.gelu(self.norm(self.conv(x)))
        x = torch.nn.functional.max_pool2d(x, 2).mean((2, 3))
        y = self.head(x)
        return torch.softmax(y, -1), y.argmax(-1)


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros(3, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count += 1
        self.total.add_(x.double() / 3)
        return self.total * self.count, self.count + 2**40


class Wide(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x @ x.t()).exp().sum(), n * 3 + 2**53, n // 7, torch.sin(x), n.sum() + x.size(0)


class Rows(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x.flip(0)], 0).reshape(-1, 2, x.shape[1]).sum(1)


def test_a_convolutional_model_equals_eager() -> None:
    torch.manual_seed(0)
    on_xla.check(Net(), (torch.randn(2, 3, 8, 8),), (torch.randn(2, 3, 8, 8),))


class LogSumExp(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(x, 0, keepdim=True)


def test_a_reduction_of_a_number_equals_eager() -> None:
    on_xla.check(LogSumExp(), (torch.tensor(-8.5),))


def test_state_is_carried_over_five_calls() -> None:
    on_xla.check(Counting(), *[(torch.randn(3),) for _ in range(5)])


def test_int64_and_float64_are_exact() -> None:
    numbers = torch.tensor([2**60, -5, 7])
    on_xla.check(Wide(), (torch.randn(2, 2, dtype=torch.float64), numbers))


def test_a_dim_without_buckets_is_refused_by_name() -> None:
    program = through.legal(
        Rows(),
        (torch.randn(4, 3),),
        dialect="stablehlo",
        dynamic_shapes={"x": {0: Dim("batch", min=1, max=8)}},
    )
    with pytest.raises(NoBuckets, match=r"batch=1\.\.8") as caught:
        lowering.lower(program)
    assert "--buckets batch=1,8" in caught.value.hint
    with pytest.raises(NoBuckets, match="outside"):
        lowering.lower(program, {"batch": (9,)})
    with pytest.raises(NoBuckets, match="no Dim is called 'bath'"):
        lowering.lower(program, {"bath": (1,)})


def test_all_dims_without_buckets_are_named_at_once() -> None:
    dims = {"x": {0: Dim("batch", min=1, max=8), 1: Dim("width", min=2, max=6)}}
    program = through.legal(LogSumExp(), (torch.randn(4, 3),), dialect="stablehlo", dynamic_shapes=dims)
    with pytest.raises(NoBuckets, match=r"Dims batch=1\.\.8 of 'forward', width=2\.\.6 of") as caught:
        lowering.lower(program)
    assert "--buckets batch=1,8 --buckets width=2,6" in caught.value.hint
    with pytest.raises(NoBuckets, match=r"the Dim width=2\.\.6 of 'forward' may vary"):
        lowering.lower(program, {"batch": (8,)})


def test_each_bucket_is_a_program_of_its_size() -> None:
    dims = {"x": {0: Dim("batch", min=1, max=8)}}
    calls = [(torch.randn(size, 3),) for size in (4, 1, 8)]
    on_xla.check(Rows(), *calls, buckets={"batch": (1, 4, 8)}, dynamic_shapes=dims)
    program = through.legal(Rows(), calls[0], dialect="stablehlo", dynamic_shapes=dims)
    lowered = lowering.lower(program, {"batch": "exact:1,8"}, examples={"forward": {"batch": 4}})
    with on_xla.load(program, lowered) as runner:
        assert runner.infer({"x": np.ones((4, 3), np.float32)})["output"].shape == (4, 3)
        with pytest.raises(OutsideBuckets, match="batch=5") as caught:
            runner.infer({"x": np.ones((5, 3), np.float32)})
        assert caught.value.hint == "the nearest is batch=4"


def test_calls_between_buckets_are_padded_and_cut() -> None:
    dims = {"x": {0: Dim("batch", min=1, max=8)}}
    calls = [(torch.randn(size, 3),) for size in (3, 1, 4, 5, 8, 2)]
    lowered = on_xla.check_padded(Rows(), *calls, buckets={"batch": (4, 8)}, dynamic_shapes=dims)
    index, _ = container.read(lowered.module)
    assert [(each["sizes"], each["padded"]) for each in index["programs"]] == [
        ({"batch": 4}, {"batch": 1}),
        ({"batch": 8}, {"batch": 1}),
    ]


def test_an_example_beyond_the_buckets_gets_a_program_of_its_own() -> None:
    dims = {"x": {0: Dim("batch", min=1, max=8)}}
    program = through.legal(Rows(), (torch.randn(6, 3),), dialect="stablehlo", dynamic_shapes=dims)
    index, _ = container.read(
        lowering.lower(program, {"batch": (4,)}, examples={"forward": {"batch": 6}}).module
    )
    assert [(each["sizes"], each["padded"]) for each in index["programs"]] == [
        ({"batch": 6}, {}),
        ({"batch": 4}, {"batch": 1}),
    ]


def test_an_op_that_padding_would_reach_is_refused_with_the_line() -> None:
    class Spectrum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fft.rfft(x).abs()

    dims = {"x": {0: Dim("frames", min=2, max=8192)}}
    program = through.legal(Spectrum(), (torch.randn(4),), dialect="stablehlo", dynamic_shapes=dims)
    with pytest.raises(CannotPad, match=r"frames: aten\._fft_r2c\.default") as caught:
        lowering.lower(program, {"frames": (4, 8192)})
    assert "the Fourier transform of more than 4096 elements" in caught.value.reason
    assert "--buckets frames=exact:" in caught.value.hint
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_lowering.py")
    calls = [(torch.randn(size),) for size in (4, 8)]
    on_xla.check(Spectrum(), *calls, buckets={"frames": "exact:4,8"}, dynamic_shapes=dims)


def test_a_size_that_depends_on_data_is_refused_with_the_line() -> None:
    class Found(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = torch.arange(x.exp().sum().int().item())
            return (found * 2).cumsum(0)

    with pytest.raises(UnsupportedOps, match=r"arange.*\n.*has no bound") as caught:
        through.legal(Found(), (torch.randn(3),), dialect="stablehlo")
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_lowering.py")
    # What goes on with it is refused for the same size, and is not told.
    assert [each.name for each in caught.value.ops] == ["aten.arange.start_step"]


@torch.library.custom_op("aotpipe_tests::ask_the_host", mutates_args=())
def ask_the_host(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@ask_the_host.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Asking(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ask_the_host(x)


def test_calls_of_the_host_are_refused_at_their_line() -> None:
    with pytest.raises(UnsupportedOps, match="ask_the_host") as caught:
        lowering.lower(through.legal(Asking(), (torch.randn(3),), dialect="stablehlo"))
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_lowering.py")


def test_a_tpu_s_products_of_int64_are_exact_and_no_dots() -> None:
    """It has none; libtpu takes the same module's sums."""
    numbers = torch.tensor([[2**61, -3, 5], [7, 2**40 + 1, -(2**33)]])
    program = through.legal(Integers(), (numbers, numbers[0]), dialect="stablehlo")
    index, parts = container.read(lowering.lower(program).module)
    [modules] = [each["modules"] for each in index["programs"]]
    counted = {name: count_products(parsed(parts[module])).total for name, module in modules.items()}
    assert counted["tpu"] == 0
    assert counted["cpu"] > 0
    left, right = numbers.numpy(), numbers.numpy().T.copy()
    with lowering.own_settings():
        single = blas._summed(left, right, 0)
        batched = blas._summed(np.stack([left] * 2), np.stack([right] * 2), 1)
        vector = blas._summed(left, left[0], 0)
    np.testing.assert_array_equal(single, left @ right)
    np.testing.assert_array_equal(batched, np.stack([left @ right] * 2))
    np.testing.assert_array_equal(vector, left @ left[0])


class Integers(torch.nn.Module):
    def forward(self, n: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return n @ n.t(), n @ v, torch.addmm(n.sum(), n, n.t()), v @ v


def test_products_of_int64_equal_eager() -> None:
    numbers = torch.tensor([[2**61, -3, 5], [7, 2**40 + 1, -(2**33)]])
    on_xla.check(Integers(), (numbers, numbers[0]))


def test_equal_models_give_equal_bytes_without_paths() -> None:
    first, second = (
        lowering.lower(through.legal(Rows(), (torch.ones(4, 3),), dialect="stablehlo")) for _ in range(2)
    )
    assert first == second
    assert b"site-packages" not in first.module
    index, parts = container.read(first.module)
    assert set(index["programs"][0]["modules"]) == set(lowering.PLATFORMS)
    assert len(parts) == 1


def test_settings_of_jax_are_left_as_they_are() -> None:
    before = jax.config.jax_enable_x64
    with lowering.own_settings():
        assert jax.config.jax_enable_x64
    assert jax.config.jax_enable_x64 == before


class Branch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def test_lowering_leaves_torch_alone() -> None:
    before = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()
    lowering.lower(through.legal(Branch(), (torch.ones(3),), dialect="stablehlo"))
    assert before == (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads())
    torch.export.export(Branch(), (torch.ones(3),))


def test_lowering_starts_no_backend() -> None:
    """In a process of its own: other tests start one."""
    code = """
import torch
from aotpipe.backends import legalization
from aotpipe.backends.xla import lowering
from aotpipe.canonicalize import canonicalize
from aotpipe.export import export
from aotpipe.model import spec
from aotpipe.passes import legalize
exported = export(canonicalize(spec.as_spec(torch.nn.Linear(3, 2).eval(), args=(torch.ones(1, 3),))))
lowering.lower(legalize(exported, legalization("stablehlo")))
from jax._src import xla_bridge
assert not xla_bridge._backends, xla_bridge._backends
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=through.ROOT)
