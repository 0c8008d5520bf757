"""A model that decides on its sizes becomes several programs, each for the sizes that its guards name."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import aotpipe
from aotpipe.core.signature import Signature, Symbol, admits, guard_holds, nearest_sizes
from aotpipe.errors import ExportFailed, InputShape, StaticDim
from aotpipe.export.specializations import takes
from aotpipe.model.spec import Dim
from tests.sweep import slow
from tests.unit.export.models import codes, exported

N, M = Dim("n", min=1, max=20), Dim("m", min=4, max=8)


def odd(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] % 2:
        x = F.pad(x, (0, 1))
    if x.shape[0] > 12:
        x = x[-12:] * 2
    return x.reshape(-1, 2).sum(1)


def two(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] == 2 else x - 1


def unequal(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.shape[0] == y.shape[0]:
        return x * 2 + y
    return x.sum() + y if x.shape[0] % 2 else y * x.mean()


def capacity(x: torch.Tensor) -> torch.Tensor:
    kept = min(x.shape[0], int(2.0 * x.shape[0] / 4.0))
    return torch.topk(x, kept).values if kept < x.shape[0] else x


def test_a_size_that_is_an_argument_of_istft_is_followed() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        window = torch.hann_window(16)
        found = torch.stft(x, 16, 4, window=window, return_complex=True)
        return torch.istft(found * 2, 16, 4, window=window, length=x.shape[0])

    (entry,) = exported(model, torch.randn(24), shapes={"x": {0: Dim("n", min=16, max=64)}}).entries
    for size in (16, 37, 64):
        x = torch.randn(size)
        torch.testing.assert_close(entry.program.module()(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "dims", "targets", "buckets"),
    [
        (odd, {"x": N}, ["iree-cpu-host", "xla-cpu-host"], {"n": "auto"}),
        (two, {"x": Dim("n", min=1, max=2)}, ["xla-cpu-host"], {"n": (1, 2)}),
        (unequal, {"x": N, "y": M}, ["iree-cpu-host"], None),
        (capacity, {"x": Dim("n", min=2, max=20)}, ["iree-cpu-host", "xla-cpu-host"], {"n": (20,)}),
    ],
    ids=["odd", "two", "unequal", "capacity"],
)
def test_each_size_runs_the_program_whose_guards_it_fulfils(
    model: Any, dims: dict[str, Dim], targets: list[str], buckets: Any, tmp_path: Path
) -> None:
    built = aotpipe.build(
        model,
        args=tuple(torch.randn(min(7, dim.max or 7) - at) for at, dim in enumerate(dims.values())),
        dynamic_shapes={name: {0: dim} for name, dim in dims.items()},
        buckets=buckets,
        targets=targets,
        out=tmp_path / "bundle",
        latency=False,
    )
    assert {row.status for row in built.report.targets} == {"executed"}
    ranges = [range(dim.min, (dim.max or 0) + 1) for dim in dims.values()]
    for target in targets:
        with aotpipe.load(tmp_path / "bundle", target=target) as program:
            for sizes in list(itertools.product(*ranges))[:: len(dims)]:
                inputs = {
                    name: np.random.default_rng(size).standard_normal(size, np.float32)
                    for name, size in zip(dims, sizes, strict=True)
                }
                wanted = model(*map(torch.from_numpy, inputs.values())).numpy()
                np.testing.assert_allclose(program.infer(inputs)["output"], wanted, rtol=1e-4, atol=1e-5)
            with pytest.raises(InputShape):
                program.infer({name: np.zeros(21, np.float32) for name in dims})


def test_the_guards_say_which_sizes_a_program_takes() -> None:
    found = exported(odd, torch.randn(7), shapes={"x": {0: N}})
    for size in range(1, 21):
        taking = [each.name for each in found.entries if admits(each.signature, {"n": size})]
        assert len(taking) == 1, (size, taking)
    assert [each.name for each in found.canonical.entries] == [each.name for each in found.entries]
    assert codes(found) == ["size-specializations"]


@pytest.mark.parametrize(
    "decides",
    [
        slow(lambda x, y: x.shape[0] < y.shape[0]),
        lambda x, y: x.shape[0] == y.shape[0],
        slow(lambda x, y: x.shape[0] - y.shape[0] + 2 > 0),
    ],
    ids=["less", "equal", "difference"],
)
def test_sizes_that_are_compared_with_each_other_become_guards(decides: Any) -> None:
    """torch.export compares each Dim with its own range alone: the example's path was taken for all."""

    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() + y if decides(x, y) else x.sum() - y

    shapes = {"x": {0: Dim("n", min=2, max=9)}, "y": {0: M}}
    entries = exported(model, torch.ones(6), torch.ones(7), shapes=shapes).entries
    for n, m in itertools.product(range(2, 10), range(4, 9)):
        x, y = torch.randn(n), torch.randn(m)
        program = next(each for each in entries if admits(each.signature, {"n": n, "m": m})).program
        assert torch.equal(program.module()(x, y), model(x, y))


def test_sizes_at_which_the_model_raises_have_no_program(tmp_path: Path) -> None:
    def of_blocks(x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] == 9:
            raise ValueError("nine columns")
        blocks = x.view(x.shape[0] // 2, 2, x.shape[1])
        return blocks.sum(1) if x.shape[1] < 9 else blocks.amax(1)

    built = aotpipe.build(
        of_blocks,
        args=(torch.randn(6, 7),),
        dynamic_shapes={"x": {0: Dim("n", 2, 9), 1: Dim("m", 4, 12)}},
        targets=["iree-cpu-host"],
        out=tmp_path / "bundle",
        latency=False,
    )
    (told,) = (each for each in built.report.findings if each.code == "sizes-without-program")
    assert "the model raises" in told.message
    assert told.where is not None
    assert told.where.path.endswith("test_specializations.py")
    with aotpipe.load(tmp_path / "bundle") as program:
        for sizes in itertools.product(range(2, 10), range(4, 13)):
            x = torch.randn(sizes)
            try:
                wanted = of_blocks(x)
            except (ValueError, RuntimeError):
                with pytest.raises(InputShape):
                    program.infer({"x": x.numpy()})
            else:
                np.testing.assert_allclose(program.infer({"x": x.numpy()})["output"], wanted, rtol=1e-5)


def windows(x: torch.Tensor) -> torch.Tensor:
    """Sums of windows, with sizes that torch divides by each other where it only knows `n % 4 == 0`."""
    count = x.shape[1] // 4
    parts = x.view(x.shape[0], count, 4, 2)
    width = int(x.shape[1] / count)
    return (parts - parts.mean(2, keepdim=True)).view(-1, width, 2).sum(0)


def test_sizes_that_are_all_multiples_are_traced_as_multiples(tmp_path: Path) -> None:
    """IREE and XLA cannot follow a size such as `n // (n // 4)`, which `4 * m` is free of."""
    n = Dim("n", min=6, max=19)
    found = exported(windows, torch.randn(2, 12, 2), shapes={"x": {1: n}})
    (entry,) = found.entries
    assert entry.signature.guards == ("n % 4 == 0",)
    assert [str(spec.dims) for spec in entry.signature.inputs] == ["(2, 'n', 2)"]
    sizes = {
        str(size) for node in entry.program.graph.nodes for size in getattr(node.meta.get("val"), "shape", ())
    }
    assert not any("//" in size for size in sizes), sizes
    built = aotpipe.build(
        windows,
        args=(torch.randn(2, 12, 2),),
        dynamic_shapes={"x": {1: n}},
        buckets={"n": (8, 19)},
        targets=["iree-cpu-host", "xla-cpu-host"],
        out=tmp_path / "bundle",
        latency=False,
    )
    assert {row.status for row in built.report.targets} == {"executed"}


def heads(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Attention of each position to rows of its own; torch finds whether the length is 1."""
    n = x.shape[1]
    q = x.reshape(2, 2, n, 2, 8).permute(0, 3, 1, 2, 4).reshape(4, 2, n, 8)
    return torch.einsum("bmid,bmijd->bmij", q * 0.5, y.expand(4, 2, n, 4, 8))


def test_a_program_of_one_size_has_a_number_for_it(tmp_path: Path) -> None:
    args, shapes = (torch.randn(2, 5, 32), torch.randn(4, 2, 1, 4, 8)), {"x": {1: Dim("length", max=6)}}
    for entry in exported(heads, *args, shapes=shapes).entries:
        ends = {(symbol.min, symbol.max) for symbol in entry.signature.symbols}
        (x, _) = entry.program.graph.find_nodes(op="placeholder")
        assert isinstance(x.meta["val"].shape[1], int) is (ends == {(1, 1)})
    built = aotpipe.build(
        heads, args=args, dynamic_shapes=shapes, targets=["iree-cpu-host"], out=tmp_path / "b", latency=False
    )
    assert {row.status for row in built.report.targets} == {"executed"}


@pytest.mark.parametrize("block", [slow(16), 64])
def test_multiples_of_two_long_ranges_are_found(block: int) -> None:
    """Of two thousand sizes that were drawn, hardly any was taken: such Dims were refused."""

    def largest(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0] // block, block, x.shape[1] // block, block).amax((1, 3))

    shapes = {"x": {0: Dim("h", min=33, max=1000), 1: Dim("w", min=33, max=1000)}}
    (entry,) = exported(largest, torch.randn(128, 192), shapes=shapes).entries
    assert entry.signature.guards == (f"h % {block} == 0", f"w % {block} == 0")
    assert all(admits(entry.signature, {"h": h, "w": 960}) for h in range(64, 1000, 64))


def padded(x: torch.Tensor) -> torch.Tensor:
    """Pads to whole blocks of blocks, each in a branch of its own."""
    for block in (2, 16):
        rest = -x.shape[0] % block
        if rest:
            x = F.pad(x, (0, rest))
    return x.view(-1, 16).sum(1)


def test_a_size_that_needs_no_padding_is_not_taken_for_typical() -> None:
    """The example and the size next to it had programs of few sizes: the others were not looked for."""
    found = exported(padded, torch.randn(32), shapes={"x": {0: Dim("n", min=16, max=80)}})
    for size in range(16, 81):
        x = torch.randn(size)
        taking = [each for each in found.entries if admits(each.signature, {"n": size})]
        torch.testing.assert_close(taking[0].program.module()(x), padded(x))


def checked(x: torch.Tensor) -> torch.Tensor:
    height, width = x.shape
    if height % 8 != 0 or width % 8 != 0:
        raise RuntimeError(f"{height} x {width} is no multiple of 8: pad to {(height // 8 + 1) * 8}")
    return x.view(height // 8, 8, width).sum(0)


def test_an_example_at_a_bound_that_is_the_only_kind_of_size_taken() -> None:
    """The example is traced with a size inside of the range, at which the model raises."""
    shapes = {"x": {0: Dim("height", min=8, max=32), 1: Dim("width", min=8, max=32)}}
    found = exported(checked, torch.randn(8, 16), shapes=shapes)
    assert [entry.signature.guards for entry in found.entries] == [("height % 8 == 0", "width % 8 == 0")]
    assert "sizes-without-program" in codes(found)


def test_a_size_decides_what_compiled_code_takes_as_a_bool() -> None:
    def causal(x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x, is_causal=x.shape[1] > 1)

    found = exported(causal, torch.randn(1, 5, 4), shapes={"x": {1: Dim("length", min=2, max=9)}})
    x = torch.randn(1, 7, 4)
    torch.testing.assert_close(found.entries[0].program.module()(x), causal(x))


def test_a_dim_of_which_the_model_takes_one_size_is_refused() -> None:
    def of_six(x: torch.Tensor) -> torch.Tensor:
        return x.view(2, 3) * 2

    with pytest.raises(StaticDim, match="n = 6"):
        exported(of_six, torch.randn(6), shapes={"x": {0: N}})


def test_a_program_for_each_of_many_sizes_is_refused() -> None:
    def looked_up(x: torch.Tensor) -> torch.Tensor:
        return x * {size: size + 1 for size in range(30)}[int(str(x.shape[0]))]

    with pytest.raises(ExportFailed):
        exported(looked_up, torch.randn(6), shapes={"x": {0: N}})


def test_legalizing_does_not_assume_the_size_of_the_example() -> None:
    """A part of the input is one element long where the example has the least size of its program."""

    def halves(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 10:
            x = torch.cat([x[:10], x[10:] * 2])
        return x + 1

    from aotpipe.backends import legalization
    from aotpipe.passes import legalize

    found = exported(halves, torch.randn(7), shapes={"x": {0: N}})
    legal = legalize(found, legalization("torch"))
    [long] = [each for each in legal.entries if each.signature.specializes]
    [value] = [node.meta["val"] for node in long.graph.graph.nodes if node.op == "placeholder"]
    assert not isinstance(value.shape[0], int)
    assert not value.shape[0].node.expr.is_Integer


def test_legalizing_does_not_check_guards_with_symbols() -> None:
    """A guard of `min(16, n)` fixed the size at the example's 16, and the program took no other."""
    from aotpipe.backends import legalization
    from aotpipe.passes import legalize

    class Weighted(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            sums = torch.zeros_like(x)
            for start in range(0, x.shape[1], 8):
                sums[:, start : start + 8] += (x[:, start : start + 8] @ y.transpose(1, 2)) @ y
            return sums

    n = Dim("n", min=1, max=24)
    given = torch.randn(2, 16, 4), torch.randn(2, 16, 4)
    found = exported(Weighted(), *given, shapes={"x": {1: n}, "y": {1: n}})
    for each in legalize(found, legalization("torch")).entries:
        if any(symbol.min != symbol.max for symbol in each.signature.symbols):
            sizes = [node.meta["val"].shape[1] for node in each.graph.graph.nodes if node.op == "placeholder"]
            assert not any(str(size).isdecimal() for size in sizes)


class Cached(nn.Module):
    """Keeps a table for the sizes of the last call."""

    def __init__(self, *, of_values: bool) -> None:
        super().__init__()
        self.shape: torch.Size | None = None
        self.of_values = of_values

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.shape != x.shape:
            self.shape = x.shape
            self.table = torch.arange(x.shape[0]).float() + (x.mean() if self.of_values else 0)
        return x + self.table


def test_a_table_of_the_sizes_is_no_state() -> None:
    found = exported(Cached(of_values=False), torch.randn(7), shapes={"x": {0: N}})
    assert "state-recomputed" in codes(found)
    assert not found.entries[0].signature.state


def test_a_table_of_the_values_of_an_earlier_call_is_state_that_is_refused() -> None:
    with pytest.raises(ExportFailed) as caught:
        exported(Cached(of_values=True), torch.randn(7), shapes={"x": {0: N}})
    assert caught.value.code == "state-refused"


@pytest.mark.parametrize(
    ("guard", "sizes", "holds"),
    [
        ("(n % 2) != 0", {"n": 3}, True),
        ("n / 4 == floor(n / 4)", {"n": 6}, False),
        ("trunc(1.5*float(n)) == 10", {"n": 7}, True),
        ("n < 4 or n > 8", {"n": 6}, False),
        ("max(n, m) - min(n, m) >= 2", {"n": 3, "m": 5}, True),
        ("not n == 1", {"n": 1}, False),
    ],
)
def test_guards_are_read(guard: str, sizes: dict[str, int], holds: bool) -> None:
    assert guard_holds(guard, sizes) is holds


@pytest.mark.parametrize("text", ["__import__('os')", "n.real == 1", "'n' == n", "n[0]"])
def test_what_is_no_guard_is_not_run(text: str) -> None:
    with pytest.raises(ValueError, match="not a dim expression or a condition"):
        guard_holds(text, {"n": 1})


def test_the_nearest_size_is_within_a_range_far_away() -> None:
    signature = Signature(inputs=(), outputs=(), symbols=(Symbol("n", 1, 1),))
    assert nearest_sizes(signature, {"n": 1024}) == {"n": 1}


@given(st.integers(1, 40), st.integers(2, 5), st.integers(0, 4))
def test_the_nearest_sizes_are_admitted(size: int, modulus: int, rest: int) -> None:
    symbols = (Symbol("n", 1, 40),)
    signature = Signature(
        inputs=(), outputs=(), symbols=symbols, guards=(f"n % {modulus} == {rest % modulus}",)
    )
    found = nearest_sizes(signature, {"n": size})
    assert found is not None
    assert admits(signature, found)
    assert abs(found["n"] - size) < 2 * modulus


def test_too_many_programs_are_refused_with_how_many_sizes_one_takes() -> None:
    def of_one_size(x: torch.Tensor) -> torch.Tensor:
        return x.sum() + torch.from_numpy(np.ones(np.asarray([x.shape[0]]).astype(np.int64)[0]))

    with pytest.raises(StaticDim, match="one size only") as refused:
        exported(of_one_size, torch.randn(5, 3), shapes={"x": {0: Dim("n", min=2, max=40)}})
    assert "at most 16 programs are made, and one takes about 1 of the 39 sizes" in refused.value.hint
    narrow = exported(of_one_size, torch.randn(3, 3), shapes={"x": {0: Dim("n", min=2, max=4)}})
    assert len(narrow.entries) == 3


def in_chunks(x: torch.Tensor) -> torch.Tensor:
    found = []
    total = x.new_zeros(())
    for start in range(0, x.shape[0], 4):
        end = min(start + 4, x.shape[0])
        part = x[start:end]
        found.append(part.cumsum(0) + total)
        total = total + part.sum()
    return torch.cat(found)


def of_the_largest(x: torch.Tensor) -> torch.Tensor:
    sums = torch.zeros_like(x)
    for start in range(0, x.shape[0], 4):
        if x[start].sum() > 9:
            return sums
        sums[start : start + 4] = x[start : start + 4].sum()
    return sums


@pytest.mark.parametrize("model", [in_chunks, of_the_largest])
def test_a_loop_over_chunks_of_a_size_is_written_out(model: Any) -> None:
    """Its last chunk may be shorter: as one op it was refused, or refused calls of such sizes."""
    x = torch.randn(10)
    found = exported(model, x, shapes={"x": {0: Dim("n", min=1, max=12)}})
    assert "size-specializations" in codes(found)
    for size in range(1, 13):
        entries = zip(found.canonical.entries, found.entries, strict=True)
        taking = next(made for entry, made in entries if takes(entry, made.signature, {"n": size}))
        x = torch.randn(size)
        torch.testing.assert_close(taking.program.module()(x), model(x))


def test_a_loop_over_chunks_of_a_multiple_is_one_program() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        sums = torch.zeros_like(x)
        for start in range(0, x.shape[0], 4):
            if x[start] > 9:
                break
            sums[start : start + 4] = x[start : start + 4].sum()
        return sums

    (entry,) = exported(model, torch.randn(8), shapes={"x": {0: 4 * Dim("n", min=1, max=6)}}).entries
    for size in (4, 16, 24):
        x = torch.randn(size)
        torch.testing.assert_close(entry.program.module()(x), model(x))
