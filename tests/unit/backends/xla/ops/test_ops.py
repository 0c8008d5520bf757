"""Every op of the table against eager, over torch's own samples."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import pytest
import torch
from torch.utils import _pytree as pytree

from aotpipe.backends.xla.lowering import own_settings
from aotpipe.backends.xla.ops import table
from aotpipe.backends.xla.values import Out, cast, dtype_of
from aotpipe.model.torch_arrays import from_numpy, view_numpy
from tests.opinfo.cases import DTYPES, OPS
from tests.opinfo.sweep import TOLERANCE, UNSPECIFIED
from tests.unit.backends.xla.ops.calls import Call, by_op, written

aten = torch.ops.aten
OPS_OF_TABLE = sorted(table(), key=str)
GROUP = 24
# Any position of equal values may be given as the second result.
TIED = {"aten.topk.default", "aten.sort.default", "aten.argsort.default"}


@cache
def few() -> dict[Any, list[Call]]:
    return written()


@cache
def all_of_them() -> dict[Any, list[Call]]:
    return by_op(sorted(OPS), DTYPES, 8, 60)


def entry(op: Any, call: Call, arrays: Sequence[Any]) -> list[Any]:
    """What the op's entry gives for arrays, in the dtypes that the interpreter gives its node."""
    outs = pytree.tree_map(_out, call.result)
    outs = tuple(outs) if isinstance(outs, list) else outs
    leaves, spec = pytree.tree_flatten((call.args, call.kwargs))
    given = iter(arrays)
    filled = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    args, kwargs = pytree.tree_unflatten(filled, spec)
    made = pytree.tree_leaves(table()[op].lower(outs, *args, **kwargs))
    found = [leaf for leaf in made if leaf is not None]
    wanted = [leaf for leaf in pytree.tree_leaves(outs) if isinstance(leaf, Out)]
    return [cast(one, out.dtype) for one, out in zip(found, wanted, strict=True)]


def compiled(calls: Sequence[tuple[Any, Call]]) -> list[list[torch.Tensor] | Exception]:
    """The results of calls by one program, which takes less to compile than one for each of them.

    A call that cannot be traced has its exception instead.
    """
    failed: dict[int, Exception] = {}

    def program(arrays: Sequence[Sequence[Any]]) -> list[list[Any]]:
        made: list[list[Any]] = []
        for number, ((op, call), given) in enumerate(zip(calls, arrays, strict=True)):
            try:
                made.append(entry(op, call, given))
            except Exception as error:  # the test of this op raises it
                failed[number] = error
                made.append([])
        return made

    leaves = [pytree.tree_leaves((call.args, call.kwargs)) for _, call in calls]
    arrays = [[view_numpy(leaf) for leaf in each if isinstance(leaf, torch.Tensor)] for each in leaves]
    with own_settings():
        results = jax.device_get(jax.jit(program)(arrays))
    return [failed.get(number, [*map(from_numpy, each)]) for number, each in enumerate(results)]


@cache
def results_of_group(first: int) -> dict[Any, list[list[torch.Tensor] | Exception]]:
    """The results of every call of a group of ops."""
    calls = [(op, call) for op in OPS_OF_TABLE[first : first + GROUP] for call in few().get(op, [])]
    try:
        results = compiled(calls)
    except jax.errors.JaxRuntimeError:  # the compiler fails on one of them
        results = [result for each in calls for result in compiled_alone(each)]
    found = defaultdict(list)
    for (op, _), result in zip(calls, results, strict=True):
        found[op].append(result)
    return found


def compiled_alone(call: tuple[Any, Call]) -> list[list[torch.Tensor] | Exception]:
    try:
        return compiled([call])
    except jax.errors.JaxRuntimeError as error:
        return [error]


def _out(leaf: Any) -> Any:
    return Out(tuple(leaf.shape), dtype_of(leaf.dtype)) if isinstance(leaf, torch.Tensor) else leaf


def check(op: Any, call: Call, got: list[torch.Tensor] | Exception) -> None:
    if isinstance(got, Exception):
        raise got
    wanted = [leaf for leaf in pytree.tree_leaves(call.result) if isinstance(leaf, torch.Tensor)]
    for number, (have, want) in enumerate(zip(got, wanted, strict=True)):
        assert have.shape == want.shape, call
        assert have.dtype == want.dtype, call
        name = str(op).split(".")[1]
        tied = str(op) in TIED and want.dtype == torch.int64 and number == len(wanted) - 1
        if name in UNSPECIFIED or tied:
            continue
        rtol, atol = TOLERANCE.get(want.dtype, (0.0, 0.0))
        torch.testing.assert_close(
            have,
            want.resolve_conj().resolve_neg(),
            rtol=rtol,
            atol=atol,
            equal_nan=True,
            msg=lambda text, call=call: f"{call}\n{text}",
        )


@pytest.mark.parametrize("op", OPS_OF_TABLE, ids=str)
def test_equals_eager(op: Any) -> None:
    calls = few().get(op, [])
    assert calls, "no sample calls it"
    index = OPS_OF_TABLE.index(op)
    for call, got in zip(calls, results_of_group(index - index % GROUP)[op], strict=True):
        check(op, call, got)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS_OF_TABLE, ids=str)
def test_equals_eager_on_every_sample(op: Any) -> None:
    for call in all_of_them().get(op, []):
        [got] = compiled([(op, call)])
        check(op, call, got)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_zeros_have_the_sign_that_eager_gives_them(dtype: torch.dtype) -> None:
    zeros = torch.tensor([0.0, -0.0], dtype=dtype)
    calls = [
        (op, Call(args, {}, op(*args)))
        for op, *args in (
            (aten.leaky_relu.default, zeros, -0.5),
            (aten.leaky_relu.default, zeros, math.inf),
            (aten.fmax.default, zeros, -zeros),
            (aten.fmin.default, zeros, -zeros),
        )
    ]
    for (op, call), got in zip(calls, compiled(calls), strict=True):
        check(op, call, got)
        if not call.result.isnan().any():
            assert torch.equal(got[0].signbit(), call.result.signbit()), call
