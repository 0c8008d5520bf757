"""Calls of each op of the table: those that torch's own samples make of it, and some written by hand.

Making all of torch's samples takes minutes, so that the quick tests read a few calls from `calls.json`, with
the values of whole numbers; floats are drawn anew. `python -m tests.unit.backends.xla.ops.calls` writes it.
"""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from aotpipe.backends.xla.ops import table
from tests.opinfo.cases import OPS, cases

aten = torch.ops.aten


@dataclass(frozen=True)
class Call:
    """One call of an op, and what eager gave."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    def __str__(self) -> str:
        return str(pytree.tree_map(_described, (self.args, self.kwargs)))


def _described(leaf: object) -> object:
    return f"{leaf.dtype}{list(leaf.shape)}" if isinstance(leaf, torch.Tensor) else leaf


class Captured(TorchDispatchMode):
    """Keeps every call of an op of the table while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Call]] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kept = pytree.tree_map(_copy, (args, dict(kwargs or {})))
        result = op(*args, **(kwargs or {}))
        if op in table():
            self.calls.append((op, Call(*kept, pytree.tree_map(_copy, result))))
        return result


def _copy(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def of_samples(names: Iterable[str], dtypes: Iterable[str], count: int) -> Iterator[tuple[Any, Call]]:
    """The calls that samples of op_db make."""
    for name in names:
        for dtype in dtypes:
            for case in cases(name, dtype, count):
                with Captured() as captured, torch.no_grad():
                    case.module(*(tensor.clone() for tensor in case.tensors))
                yield from captured.calls


def by_op(names: Iterable[str], dtypes: Iterable[str], count: int, most: int) -> dict[Any, list[Call]]:
    """For each op up to so many calls, of different dtypes and arguments first."""
    found: dict[Any, dict[str, Call]] = defaultdict(dict)
    with warnings.catch_warnings():
        # Of torch's samples: some call what torch itself calls deprecated.
        warnings.simplefilter("ignore")
        for op, call in (*by_hand(), *of_samples(names, dtypes, count)):
            found[op].setdefault(str(call), call)
    return {op: _spread(list(calls.values()), most) for op, calls in found.items()}


def _spread(calls: list[Call], most: int) -> list[Call]:
    if len(calls) <= most:
        return calls
    return [calls[round(step * (len(calls) - 1) / (most - 1))] for step in range(most)]


def by_hand() -> Iterator[tuple[Any, Call]]:
    """Calls of what eager decomposes before it is seen, and of overloads that samples never take."""
    for op, *args in _WRITTEN():
        kwargs = args.pop() if args and isinstance(args[-1], dict) else {}
        yield op, Call(tuple(args), kwargs, op(*args, **kwargs))


def _WRITTEN() -> Iterator[tuple[Any, ...]]:  # noqa: N802
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, generator=generator)
    whole = torch.randint(-9, 9, (3, 4), generator=generator)
    count = torch.randint(1, 9, (3, 4), generator=generator)
    places = torch.tensor([2, 0, 1])
    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.5, -2.5])
    for mode in ("floor", "trunc"):
        for value in (x, whole):
            yield aten.div.Scalar_mode, value, 3, {"rounding_mode": mode}
        yield aten.div.Tensor_mode, whole, count, {"rounding_mode": mode}
    yield aten.true_divide.Tensor, x, x[:, :1]
    yield aten.true_divide.Scalar, x, 49.0
    yield aten.floor_divide.Scalar, whole, -4
    yield aten.add.Tensor, whole > 0, whole < 4, {"alpha": False}
    yield aten.remainder.Scalar_Tensor, 7, count
    yield aten.remainder.Tensor, whole, -count
    lowest = torch.tensor([-(2**63), 2**63 - 1, -12, 0])
    yield aten.gcd.default, lowest[:3], torch.tensor([3, 3, 18])
    yield aten.lcm.default, lowest[1:], torch.tensor([1, 18, 0])
    small = torch.tensor([12, 255, 18], dtype=torch.uint8)
    yield aten.gcd.default, small, small.flip(0)
    yield aten.nonzero.default, whole > 0
    yield aten.nonzero.default, whole.reshape(3, 2, 2)
    yield aten.nonzero.default, torch.zeros(2, 3)
    yield aten.nonzero.default, x[0, 0]
    yield aten.fmod.Scalar, x, 0.7
    yield aten.fmod.Scalar, whole, -4
    yield aten.pow.Scalar, 2, count
    yield aten.pow.Scalar, 2.5, x
    yield aten.pow.Tensor_Tensor, whole, count
    for scalar in (aten.gt.Scalar, aten.ge.Scalar, aten.lt.Scalar, aten.eq.Scalar):
        yield scalar, whole, 1.5
        yield scalar, x, 0
        yield scalar, odd, float("inf")
        yield scalar, whole > 0, -1
        yield scalar, whole.to(torch.uint8), -1
        yield scalar, whole.to(torch.int8), 300
        yield scalar, whole.to(torch.int32), 2**31
    for packet in (aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor):
        yield packet.Scalar, whole, 6
        yield packet.Scalar_Tensor, 6, whole
    for packet in (aten.bitwise_left_shift, aten.bitwise_right_shift):
        yield packet.Tensor_Scalar, whole, 3
        yield packet.Scalar_Tensor, 6, count
        yield packet.Tensor, whole, torch.tensor([[1], [63], [64]])
    yield aten.copysign.Scalar, x, -0.0
    for value in (x, odd, whole):
        yield aten.clamp.default, value, -1, 2
        yield aten.clamp_max.default, value, 1
    for unary in (
        aten.isfinite.default,
        aten.isnan.default,
        aten.isinf.default,
        aten.sign.default,
        aten.signbit.default,
        aten.relu.default,
        aten.round.default,
        aten.trunc.default,
        aten.amax.default,
        aten.argmax.default,
        aten.positive.default,
        aten.real.default,
        aten.conj_physical.default,
        aten.contiguous.default,
        aten.resolve_conj.default,
        aten.resolve_neg.default,
        aten.lift_fresh_copy.default,
    ):
        yield unary, odd
    yield aten.select.int, x, -1, -2
    # Dims counted from the end, in each op that has dims of its own.
    deep = torch.randn(3, 4, 5, generator=generator)
    yield aten.permute.default, deep, [-1, 0, -2]
    yield aten.transpose.int, deep, -1, -3
    yield aten.diagonal.default, deep, 1, -2, -1
    yield aten.diagonal_scatter.default, deep, torch.ones(5, 3), 0, -3, -2
    yield aten.unfold.default, deep, -2, 2, 1
    yield aten.unbind.int, deep, -2
    yield aten.split_with_sizes.default, deep, [1, 3], -2
    yield aten.split.Tensor, deep, 2, -1
    yield aten.roll.default, deep, [1, 2], [-1, -3]
    yield aten.flip.default, deep, [-2]
    yield aten.view_as_real.default, torch.complex(x, x.exp())
    yield aten.imag.default, torch.complex(x, x.exp())
    yield aten._int_mm.default, torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 8, dtype=torch.int8)
    yield aten._int_mm.default, torch.arange(16, dtype=torch.int8)[None], torch.ones(16, 8, dtype=torch.int8)
    yield aten.fill.Tensor, x, torch.tensor(2)
    yield aten.eye.m, 3, 5
    yield aten._unsafe_index.Tensor, x, [None, places]
    yield aten._unsafe_index_put.default, x, [places, places], torch.ones(3)
    yield aten.index_put.default, x, [torch.tensor([0, 0, -1])], torch.ones(3, 4), True
    for descending in (False, True):
        yield aten.sort.stable, torch.tensor([2, 1, 2, 0]), {"stable": True, "descending": descending}
        yield aten.sort.default, odd, -1, descending
        yield aten.argsort.default, x, 0, descending
    yield aten.prod.dim_int, whole, -1, True
    yield aten.any.dims, whole > 3, [0, 1], True
    yield aten.all.dims, whole > -9, [-1], False
    yield aten.all.dim, whole, 1, True
    yield aten.scatter.value, x, -1, torch.tensor([[0], [3], [1]]), 2
    yield aten.slice_scatter.default, x, x[:, :2], 1, -3, None, 2
    yield aten.reshape.default, x, [2, -1]
    yield aten._reshape_copy.default, x, [2, -1]
    yield aten.copy.default, x, whole[:1]
    yield aten.reflection_pad2d.default, x[None, None], [1, 2, 2, 1]
    yield aten.reflection_pad3d.default, x.reshape(1, 1, 3, 2, 2), [1, 0, 0, 1, 2, 1]
    yield aten.replication_pad3d.default, x.reshape(1, 1, 3, 2, 2), [1, 0, 2, 1, 0, 3]
    for dtype in (torch.int32, torch.uint8, torch.float64, torch.complex64):
        yield aten.view.dtype, x, dtype
    yield aten.max_pool2d_with_indices.default, odd[:6].reshape(1, 2, 3), [2, 2], [1, 1], [1, 1]
    yield aten.avg_pool1d.default, x[None], [2], [1], [1], False, False
    yield aten.avg_pool1d.default, x, [3], [], [1], True
    yield aten.avg_pool2d.default, x[None], [2, 3], [2, 2], [1, 1], True, False
    for transposed in (False, True):
        for groups in (1, 2):
            weight = torch.randn(4, 4 // groups, 3, generator=generator)
            sizes = [2], [1], [2], transposed, [1] if transposed else [0], groups
            signal = torch.randn(2, 4, 9, generator=generator)
            yield aten.convolution.default, signal, weight, None, *sizes
            gradient = aten.convolution(signal, weight, None, *sizes) + 1
            for mask in ([True, True, True], [False, True, False]):
                yield aten.convolution_backward.default, gradient, signal, weight, None, *sizes, mask
    big = torch.tensor([2**53 + 1, -(2**62) - 3])
    yield aten.add.Tensor, big, big
    yield aten.sum.dim_IntList, big, [0]
    yield aten.sum.dim_IntList, whole, [-1], False, {"dtype": torch.bool}
    yield aten._to_copy.default, torch.tensor([1e300, 0.1], dtype=torch.float64), {"dtype": torch.float64}
    yield aten.mm.default, x.double(), x.double().t()
    for dtype in (torch.uint8, torch.int8, torch.int32, torch.bool, torch.float16):
        yield aten._to_copy.default, torch.tensor([-1.5, 0.0, 2.5, 3.7]), {"dtype": dtype}


FILE = Path(__file__).with_name("calls.json")
_TYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
_MOST_ELEMENTS = 4096


def written() -> dict[Any, list[Call]]:
    """The calls by hand, and those of the file."""
    found: dict[Any, list[Call]] = defaultdict(list)
    for op, call in by_hand():
        found[op].append(call)
    generator = torch.Generator().manual_seed(0)
    for name, calls in json.loads(FILE.read_text(encoding="utf-8")).items():
        packet, overload = name.split(".")
        op = getattr(getattr(aten, packet), overload)
        for args, kwargs in calls:
            given = _decoded(args, generator), _decoded(kwargs, generator)
            found[op].append(Call(*given, op(*given[0], **given[1])))
    return found


def _encoded(value: Any) -> Any:
    match value:
        case torch.Tensor():
            whole = not value.is_floating_point() and not value.is_complex()
            return {
                "tensor": str(value.dtype),
                "shape": list(value.shape),
                "data": value.flatten().tolist() if whole else None,
            }
        case torch.dtype() | torch.device() | torch.layout() | torch.memory_format():
            return {"torch": str(value)}
        case complex():
            return {"complex": [value.real, value.imag]}
        case list() | tuple():
            return [_encoded(each) for each in value]
        case dict():
            return {"dict": {key: _encoded(each) for key, each in value.items()}}
        case _:
            return value


def _decoded(value: Any, generator: torch.Generator) -> Any:
    match value:
        case {"tensor": dtype, "shape": shape, "data": None}:
            drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
            if _TYPES[dtype].is_complex:
                drawn = torch.complex(drawn, torch.randn(shape, generator=generator, dtype=torch.float64))
            return drawn.to(_TYPES[dtype])
        case {"tensor": dtype, "shape": shape, "data": data}:
            return torch.tensor(data, dtype=_TYPES[dtype]).reshape(shape)
        case {"torch": name}:
            return torch.device(name) if name == "cpu" else getattr(torch, name.removeprefix("torch."))
        case {"complex": [real, imaginary]}:
            return complex(real, imaginary)
        case {"dict": items}:
            return {key: _decoded(each, generator) for key, each in items.items()}
        case list():
            return [_decoded(each, generator) for each in value]
        case _:
            return value


def _is_small(call: Call) -> bool:
    leaves = pytree.tree_leaves((call.args, call.kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    whole = [each for each in tensors if not each.is_floating_point() and not each.is_complex()]
    return sum(each.numel() for each in tensors) < _MOST_ELEMENTS and sum(each.numel() for each in whole) < 40


def main() -> None:
    """Write the file: two calls of each op, of different arguments."""
    found: dict[str, list[Any]] = {}
    dtypes = ("float32", "int64", "bfloat16", "complex64", "bool")
    calls = [(op, call) for op, call in of_samples(sorted(OPS), dtypes, 1) if _is_small(call)]
    by_name: dict[str, dict[str, Call]] = defaultdict(dict)
    for op, call in calls:
        by_name[str(op).removeprefix("aten.")].setdefault(str(call), call)
    for name, each in sorted(by_name.items()):
        found[name] = [
            [_encoded(call.args), _encoded(call.kwargs)] for call in _spread(list(each.values()), 2)
        ]
    lines = [f"{json.dumps(name)}: {json.dumps(listed)}" for name, listed in found.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
