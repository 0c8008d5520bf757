"""Every op of the table against eager, over torch's own samples."""

from __future__ import annotations

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

OPS_OF_TABLE = sorted(table(), key=str)
# Any position of equal values may be given as the second result.
TIED = {"aten.topk.default", "aten.sort.default", "aten.argsort.default"}


@cache
def few() -> dict[Any, list[Call]]:
    return written()


@cache
def all_of_them() -> dict[Any, list[Call]]:
    return by_op(sorted(OPS), DTYPES, 8, 60)


def lowered(op: Any, call: Call) -> Any:
    """What the op's entry gives, in the dtypes that the interpreter gives its node."""
    outs = pytree.tree_map(_out, call.result)
    outs = tuple(outs) if isinstance(outs, list) else outs
    leaves, spec = pytree.tree_flatten((call.args, call.kwargs))
    slots = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def function(*arrays: Any) -> Any:
        filled = list(leaves)
        for slot, array in zip(slots, arrays, strict=True):
            filled[slot] = array
        args, kwargs = pytree.tree_unflatten(filled, spec)
        found = pytree.tree_leaves(table()[op](outs, *args, **kwargs))
        wanted = [leaf for leaf in pytree.tree_leaves(outs) if isinstance(leaf, Out)]
        return [cast(one, out.dtype) for one, out in zip(found, wanted, strict=True)]

    with own_settings():
        arrays = jax.jit(function)(*(view_numpy(leaves[slot]) for slot in slots))
    return [from_numpy(jax.device_get(array)) for array in arrays]


def _out(leaf: Any) -> Any:
    return Out(tuple(leaf.shape), dtype_of(leaf.dtype)) if isinstance(leaf, torch.Tensor) else leaf


def check(op: Any, call: Call) -> None:
    got = lowered(op, call)
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
    for call in calls:
        check(op, call)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS_OF_TABLE, ids=str)
def test_equals_eager_on_every_sample(op: Any) -> None:
    for call in all_of_them().get(op, []):
        check(op, call)
