"""Runs the samples of an op and gives a verdict per sample."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, Final

import torch
from iree.compiler import ir
from torch.utils import _pytree as pytree

from aotpipe.core.signature import Constant
from aotpipe.core.targets import Target
from aotpipe.model.torch_arrays import from_numpy
from tests.opinfo.cases import Case, Sample, cases
from tests.opinfo.execution import compile_alone, compile_fast, run_all
from tests.opinfo.lowering import Ready, Stopped, check_legal, lowered, merged

IREE: Final = Target.parse("iree-cpu-host")
# Values these ops leave open: only shape and dtype are compared.
UNSPECIFIED = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
)
# Ops that may give any position of equal values, as their second output.
TIED = frozenset({"sort", "topk", "kthvalue", "mode", "median", "nanmedian", "max", "min"})
# What begins the names of ops whose rounding is that of sums of products, and not of each result.
SUMS_OF_PRODUCTS = "nn_functional_conv"
# Ops that may give a vector or its negative, and any basis of the vectors of one value: which outputs.
VECTORS = {"linalg_eigh": (1,), "svd": (0, 2), "linalg_svd": (0, 2)}
TOLERANCE = {  # dtype: (rtol, atol), a few ulps more than torch.testing's
    torch.float16: (3e-3, 2e-3),
    torch.bfloat16: (2e-2, 2e-2),
    torch.float32: (2e-5, 2e-5),
    torch.float64: (1e-6, 1e-6),
    torch.complex64: (5e-5, 5e-5),
    torch.complex128: (1e-6, 1e-6),
}


@dataclass(frozen=True)
class Row:
    """The verdict on one sample."""

    op: str
    dtype: str
    index: int
    verdict: str
    reason: str = ""
    target: str = str(IREE)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Row:
        return cls(**json.loads(line))


def sweep(
    op: str, dtypes: Sequence[str], count: int, target: Target = IREE, done: Collection[Sample] = ()
) -> list[Row]:
    """Verdicts on up to about `count` samples of an op for each dtype, without those that are done."""
    return sweep_together([op], dict.fromkeys(dtypes, count), target, done)


def sweep_together(
    ops: Sequence[str], counts: Mapping[str, int], target: Target = IREE, done: Collection[Sample] = ()
) -> list[Row]:
    """Verdicts on samples of ops, so many for each dtype, all compiled as one module where that succeeds."""
    context = ir.Context()
    context.enable_multithreading(False)
    rows: list[Row] = []
    ready: list[Ready] = []
    for op, (dtype, count) in product(ops, counts.items()):
        for case in cases(op, dtype, count, done):
            try:
                found = lowered(case, target)
                check_legal(context, found.program)
                ready.append(found)
            except Stopped as stopped:
                rows.append(_row(case, stopped.verdict, stopped.reason))
    # Weights have no names of their own, so that a program with some shares its module with no other.
    rows += _run(context, target, [one for one in ready if not one.weights])
    rows += [row for one in ready if one.weights for row in _run(context, target, [one])]
    rows.sort(key=lambda row: (row.op, row.dtype, row.index))
    return [replace(row, target=str(target)) for row in rows]


def _run(context: ir.Context, target: Target, ready: list[Ready]) -> list[Row]:
    if not ready:
        return []
    note = ""
    if len(ready) == 1:
        payload, note = compile_alone(ready[0].program, target)
        if payload is None:
            return [_row(ready[0].case, "failed", note)]
    else:
        payload = compile_fast(merged(context, [one.program for one in ready]), target)
        if payload is None:
            middle = len(ready) // 2
            return _run(context, target, ready[:middle]) + _run(context, target, ready[middle:])
    results = run_all(payload, target, ready)
    return [judge(one, results[one.case.name], note) for one in ready]


def judge(ready: Ready, got: Any, note: str = "") -> Row:
    """Compare what a program gave with what eager gave."""
    case = ready.case
    if isinstance(got, str):
        verdict = next((word for word in ("WRONG", "crashed") if got.startswith(word)), "failed")
        return _row(case, verdict, got)
    vectors = VECTORS.get(case.op, ())
    for number, (leaf, want) in enumerate(zip(ready.signature.outputs, case.expected, strict=False)):
        if number in vectors:
            problem = _misfactored(case, [from_numpy(got[each.name]) for each in ready.signature.outputs])
        elif isinstance(leaf, Constant):
            problem = "" if leaf.value == want else f"{leaf.value!r} for {want!r}"
        elif not isinstance(want, torch.Tensor):
            problem = "" if got[leaf.name] == want else f"{got[leaf.name]!r} for {want!r}"
        else:
            have = from_numpy(got[leaf.name])
            tied = number == 1 and case.op.removesuffix("_reduction_with_dim") in TIED
            problem = _misplaced(case, have, want) if tied else _difference(case, number, have, want)
        if problem:
            return _row(case, "WRONG", f"output {number}: {problem}")
    return _row(case, "equal", note)


def _misplaced(case: Case, have: torch.Tensor, want: torch.Tensor) -> str:
    """What is wrong with positions, of which any may be given where values are equal."""
    places, values = have, case.tensors[0]
    if places.shape != want.shape:
        return f"shape {tuple(places.shape)} for {tuple(want.shape)}"
    dims = range(max(values.dim(), 1))
    dim = next(dim for dim in dims if _same(_taken(values, dim, want), case.expected[0]))
    return "" if _same(_taken(values, dim, places), case.expected[0]) else "positions of other values"


def _misfactored(case: Case, found: Sequence[torch.Tensor]) -> str:
    """What is wrong with the factors of a matrix: other sizes, no unit vectors, or another product."""
    if [one.shape for one in found] != [one.shape for one in case.expected]:
        return "shapes of factors"
    for number in VECTORS[case.op]:
        x = found[number]
        x = x if x.shape[-2] >= x.shape[-1] else x.mT
        eye = torch.eye(x.shape[-1], dtype=x.dtype).expand(*x.shape[:-2], -1, -1)
        if not torch.allclose(x.mH @ x, eye, rtol=0, atol=TOLERANCE[x.dtype][1]):
            return "vectors that are not orthogonal"
    rtol, atol = TOLERANCE[found[0].dtype]
    have, want = _product(case.op, found), _product(case.op, case.expected)
    scale = float(want.abs().max()) if want.numel() else 0.0
    return "" if torch.allclose(have, want, rtol=rtol, atol=atol * max(scale, 1.0)) else "another product"


def _product(op: str, factors: Sequence[torch.Tensor]) -> torch.Tensor:
    if op == "linalg_eigh":
        values, vectors = factors
        return vectors * values.unsqueeze(-2) @ vectors.mH
    u, values, v = factors
    v = v.mH if op == "svd" else v
    count = values.shape[-1]
    return u[..., :count] * values.unsqueeze(-2) @ v[..., :count, :]


def _taken(values: torch.Tensor, dim: int, places: torch.Tensor) -> torch.Tensor | None:
    """The values at positions along a dim, which the positions may lack."""
    if not values.dim():
        return values.reshape(places.shape)
    index = places if places.dim() == values.dim() else places.unsqueeze(dim)
    sizes = zip(index.shape, values.shape, strict=True)
    if any(size != whole for axis, (size, whole) in enumerate(sizes) if axis != dim):
        return None
    return values.gather(dim, index).reshape(places.shape)


def _same(got: torch.Tensor | None, want: torch.Tensor) -> bool:
    return got is not None and got.shape == want.shape and torch.allclose(got, want, equal_nan=True)


def _difference(case: Case, number: int, have: torch.Tensor, want: torch.Tensor) -> str:
    want = want.detach().resolve_conj().resolve_neg()
    if have.shape != want.shape:
        return f"shape {tuple(have.shape)} for {tuple(want.shape)}"
    if case.op in UNSPECIFIED:
        return ""
    rtol, atol = TOLERANCE.get(want.dtype, (0.0, 0.0))
    try:
        torch.testing.assert_close(have, want, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        if rtol and _as_exact(case, number, have, want):
            return ""
        return " ".join(str(error).split())[:200]
    return ""


def _as_exact(case: Case, number: int, have: torch.Tensor, want: torch.Tensor) -> bool:
    """Whether eager itself is off: no element is further from float64 than twice eager's own error."""
    tensors = (tensor.double() if tensor.is_floating_point() else tensor for tensor in case.tensors)
    try:
        exact = pytree.tree_leaves(case.module(*tensors))[number]
    except (RuntimeError, TypeError, ValueError):  # there is no such op of float64
        return False
    if have.dtype != want.dtype or not have.is_floating_point() or exact.shape != want.shape:
        return False
    rtol, atol = TOLERANCE[want.dtype]
    wide, eager, program = exact.double(), want.double(), have.double()
    allowed = 2 * (eager - wide).abs() + atol + rtol * wide.abs()
    if case.op.startswith(SUMS_OF_PRODUCTS) and wide.numel():
        # Each is a sum of many products, of which the result is a small rest where they cancel.
        allowed = allowed.clamp(min=float(2 * (eager - wide).abs().max()))
    near = (program - wide).abs() <= allowed
    return bool((near | (program == eager) | (program.isnan() & eager.isnan())).all())


def _row(case: Case, verdict: str, reason: str = "") -> Row:
    return Row(case.op, case.dtype, case.index, verdict, reason)
