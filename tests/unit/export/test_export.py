"""The stage as a whole: what torch.export takes comes through, with names, ranges and findings."""

from __future__ import annotations

import contextlib
import copy
import io
from collections import Counter, namedtuple
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.canonicalize import canonicalize, example_call
from aotpipe.core.signature import Constant, Symbol, TensorSpec, evaluate_dim
from aotpipe.errors import ExportFailed, StaticDim
from aotpipe.export import export
from aotpipe.model.spec import AUTO, Dim, EntryPoint, Spec
from tests.unit.export.models import codes, exported, run

B = Dim("b", max=64)
ones = torch.ones
Pair = namedtuple("Pair", "a b")  # noqa: PYI024 the plain form is what users have


@dataclass
class Batch:
    ids: torch.Tensor
    mask: torch.Tensor | None = None


def texts(leaves: Any) -> list[str]:
    return [str(leaf) if isinstance(leaf, TensorSpec) else f"{leaf.name}={leaf.value!r}" for leaf in leaves]


def test_structures_in_and_out_are_flat_and_named() -> None:
    def f(batch: Batch, pair: Pair, *rest: Any, flag: bool = True, **more: Any) -> dict[str, Any]:
        return {"y": batch.ids + pair.a, "pair": Pair(rest[0], None), "n": 3, "l": [more["k"], "s"]}

    x = ones(4)
    found = exported(
        f,
        Batch(x),
        Pair(x, 2),
        x + 1,
        flag=False,
        k=x * 2,
        shapes={"batch.ids": {0: B}, "pair": {"a": {0: B}}},
    )
    signature = found.entries[0].signature
    assert texts(signature.inputs) == [
        "batch.ids: float32[b]",
        "pair.a: float32[b]",
        "pair.b=2",
        "rest.0: float32[4]",
        "flag=False",
        "k: float32[4]",
    ]
    assert texts(signature.outputs) == [
        "y: float32[b]",
        "pair.a: float32[4]",
        "pair.b=None",
        "n=3",
        "l.0: float32[4]",
        "l.1='s'",
    ]
    assert signature.symbols == (Symbol("b", 1, 64),)
    assert codes(found).count("integer-output") == 2


def test_shared_and_derived_dims_keep_their_names() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[Any, ...]:
        return x + y[: x.shape[0]], torch.cat([x, y]), y.shape[0]

    found = exported(f, ones(3), ones(7), shapes={"x": {0: B}, "y": {0: 2 * B + 1}})
    signature = found.entries[0].signature
    assert texts(signature.outputs) == [
        "output.0: float32[b]",
        "output.1: float32[3*b + 1]",
        "output.2: int64[]",
    ]
    assert run(found, ones(1), ones(3))[2] == 3


def test_a_root_that_is_no_size_itself_gets_its_name() -> None:
    found = exported(
        lambda x, y: x.sum() + y.sum(), ones(6), ones(7), shapes={"x": {0: 2 * B}, "y": {0: 2 * B + 1}}
    )
    assert texts(found.entries[0].signature.inputs) == ["x: float32[2*b]", "y: float32[2*b + 1]"]
    assert found.entries[0].signature.symbols == (Symbol("b", 1, 64),)


@pytest.mark.parametrize("size", [0, 1, 2, 3])
@pytest.mark.parametrize("low", [0, 1, 2])
def test_a_range_holds_at_its_ends_whatever_the_example(size: int, low: int) -> None:
    if size < low:
        return
    found = exported(lambda x: x[1:] * 2, ones(size + 1, 4), shapes={"x": {0: Dim("b", low, 64) + 1}})
    assert found.entries[0].signature.symbols == (Symbol("b", low, 64),)
    for value in (low, 64):
        assert run(found, ones(value + 1, 4)).shape == (value, 4)


def test_an_example_at_a_bound_is_exported_with_another_size() -> None:
    found = exported(lambda x: x.view(-1, 4, 8), ones(16, 2), shapes={"x": {0: 16 * B}})
    assert texts(found.entries[0].signature.outputs) == ["output: float32[b, 4, 8]"]
    [finding] = found.findings
    assert finding.code == "example-at-bound"
    assert "b is 1" in finding.message


def branches(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] == 1:  # the line
        return x * 2
    return x + 1


BRANCH_LINE = branches.__code__.co_firstlineno + 1


def test_a_branch_on_size_one_is_not_lost() -> None:
    found = exported(branches, ones(3, 4), shapes={"x": {0: B}})
    assert [each.signature.specializes for each in found.entries] == ["", "forward"]
    assert found.entries[0].signature.symbols == (Symbol("b", 2, 64),)
    assert found.entries[1].signature.symbols == (Symbol("b", 1, 1),)
    [finding] = found.findings
    assert finding.code == "size-specializations"
    assert finding.where is not None
    assert finding.where.line == BRANCH_LINE
    found = exported(branches, ones(3, 4), shapes={"x": {0: Dim("b", 2, 64)}})
    assert found.entries[0].signature.symbols == (Symbol("b", 2, 64),)


def test_a_branch_on_size_one_without_effect_is_compared_and_taken() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] == 1 else x + x

    found = exported(f, torch.randn(3, 4), shapes={"x": {0: B}})
    assert codes(found) == ["small-sizes-compared"]
    assert found.entries[0].signature.symbols == (Symbol("b", 1, 64),)


def test_a_dim_that_is_a_constant_stops_the_build_with_the_line() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + ones(4, 8)  # the line

    with pytest.raises(StaticDim) as caught:
        exported(f, ones(4, 8), shapes={"x": {0: B}})
    assert caught.value.where is not None
    assert caught.value.where.line == f.__code__.co_firstlineno + 1
    assert "b = 4" in str(caught.value)


def test_sizes_that_the_model_does_not_take_are_told_with_torchs_fix() -> None:
    found = exported(lambda x: x.view(-1, 4, 8), ones(32, 2), shapes={"x": {0: B}})
    (told,) = (each for each in found.findings if each.code == "sizes-without-program")
    assert told.severity == "warning"
    assert "b = 16*_b" in told.hint
    assert "aotpipe.Dim" in told.hint


def test_numbers_that_vary_are_inputs() -> None:
    found = exported(
        lambda x, n: (x[:n], n + 1, n / 2, n > 3), ones(8), 3, shapes={"x": {0: B}, "n": Dim("n", 1, 7)}
    )
    signature = found.entries[0].signature
    assert texts(signature.inputs) == ["x: float32[b]", "n: int64[] in [1, 7]"]
    assert [leaf.dtype for leaf in signature.tensor_outputs] == ["float32", "int64", "float64", "bool"]
    assert codes(found).count("integer-output") == 3


def test_sizes_that_depend_on_values_have_names_and_ranges() -> None:
    found = exported(lambda x: x.nonzero(), ones(8), shapes={"x": {0: B}})
    signature = found.entries[0].signature
    assert texts(signature.outputs) == ["output: int64[output_0, 1]"]
    assert signature.symbols == (Symbol("b", 1, 64), Symbol("output_0", 0, 64))


def test_unused_inputs_are_found() -> None:
    found = exported(lambda x, y, z: (x + 1, z), ones(2), ones(2), ones(2))
    [finding] = [f for f in found.findings if f.code == "unused-input"]
    assert "'y'" in finding.message


class Cached(nn.Module):
    """A toy decoder: prefill writes the cache, decode adds a row."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.register_buffer("cache", torch.zeros(8, 4))
        self.register_buffer("length", torch.zeros((), dtype=torch.long))
        self.register_buffer("scale", ones(4))

    def prefill(self, ids: torch.Tensor) -> torch.Tensor:
        self.cache[: ids.shape[0]] = self.embed(ids)
        self.length.fill_(ids.shape[0])
        return self.cache.sum(0) * self.scale

    def decode(self, token: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(0, self.length[None], self.embed(token))
        self.length += 1
        return self.cache.sum(0) * self.scale


def test_entry_points_share_weights_and_state() -> None:
    ids = torch.arange(3)
    spec = Spec(
        name="cached",
        build=lambda: Cached().eval(),
        entry_points={
            "prefill": EntryPoint(method="prefill", args=(ids,), dynamic_shapes={"ids": {0: Dim("n", 1, 8)}}),
            "decode": EntryPoint(method="decode", args=(ids[:1],)),
        },
    )
    found = export(canonicalize(spec))
    prefill, decode = found.entries
    assert prefill.signature.state == ()  # known once the program is functional
    assert prefill.program.state_dict.keys() == decode.program.state_dict.keys()
    assert prefill.program.state_dict["embed.weight"] is decode.program.state_dict["embed.weight"]
    assert texts(prefill.signature.inputs) == ["ids: int64[n] in [0, 9]"]
    model = found.canonical.model
    assert not model.get_buffer("cache").any()
    assert not model.get_buffer("length")


def test_python_decisions_on_values_show_the_line() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * range(1, 4)[int(x.sum() > 0)]  # the line

    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(ExportFailed) as caught, redirect_stdout(out), redirect_stderr(err):
        exported(f, ones(3))
    assert caught.value.where is not None
    assert caught.value.where.line == f.__code__.co_firstlineno + 1
    assert "torch.cond" in caught.value.hint
    assert not out.getvalue() + err.getvalue()
    assert caught.value.__cause__ is not None


def test_strict_mode_takes_what_plain_tracing_does_not() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() + 1)

    found = exported(f, ones(3))
    assert codes(found) == ["strict-export"]
    assert torch.equal(run(found, ones(3)), ones(3) + 1)


def test_one_tensor_passed_twice_stays_two_inputs() -> None:
    x = ones(3)
    found = exported(lambda a, b: a * 2 + b, x, x, shapes={"a": {0: B}, "b": {0: B}})
    assert torch.equal(run(found, ones(2), ones(2) * 5), ones(2) * 7)


def test_a_dtype_that_no_target_has_is_refused() -> None:
    with pytest.raises(ExportFailed, match="float8_e4m3fnuz"):
        exported(lambda x: x.to(torch.float8_e4m3fnuz), ones(2))


@pytest.mark.parametrize("scale", [2.0, 1.5])
def test_sizes_through_floats_have_an_expression_or_a_name(scale: float) -> None:
    found = exported(
        lambda x: nn.functional.interpolate(x, scale_factor=scale), ones(2, 3, 8, 8), shapes={"x": {2: AUTO}}
    )
    [output] = found.entries[0].signature.tensor_outputs
    if scale == 2.0:
        assert evaluate_dim(output.dims[2], {"x_2": 5}) == 10
    else:
        assert output.dims[2] in {symbol.name for symbol in found.entries[0].signature.symbols}


def test_constants_that_are_no_json_are_written_out() -> None:
    found = exported(lambda x, f, d: x.to(d) * 1, ones(2), float("inf"), torch.float64)
    assert found.entries[0].signature.inputs[1:] == (Constant("f", "inf"), Constant("d", "torch.float64"))


def test_a_model_without_decisions_is_called_once_and_exported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    count(torch.export, "export")
    count(example_call, "again")
    exported(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), ones(2, 4))
    assert counts == {"again": 1, "export": 1}


def test_an_export_leaves_weights_that_the_model_writes() -> None:
    class Writing(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.data.mul_(2)
            return super().forward(x)

    model = Writing(2, 2).eval()
    before = copy.deepcopy(model.state_dict())
    with contextlib.suppress(ExportFailed):
        exported(model, ones(1, 2))
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
