"""Runs the samples of an op and gives a verdict per sample."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import torch
from iree.compiler import ir

from tests.opinfo.cases import Case, cases
from tests.opinfo.execution import compile_module, run_all
from tests.opinfo.lowering import Stopped, check_legal, legal_program, merged, torch_dialect

# Values these ops leave open: only shape and dtype are compared.
UNSPECIFIED = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
)
# Ops that may give any position of equal values, as their second output.
TIED = frozenset({"sort", "topk", "kthvalue", "mode", "median", "nanmedian", "max", "min"})
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

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def sweep(op: str, dtypes: Sequence[str], count: int) -> list[Row]:
    """Verdicts on up to about `count` samples of an op for each dtype."""
    return sweep_together([op], dict.fromkeys(dtypes, count))


def sweep_together(ops: Sequence[str], counts: Mapping[str, int]) -> list[Row]:
    """Verdicts on samples of ops, so many for each dtype, all compiled as one module where that succeeds."""
    context = ir.Context()
    context.enable_multithreading(False)
    rows: list[Row] = []
    ready: list[tuple[Case, Any]] = []
    for op, (dtype, count) in product(ops, counts.items()):
        for case in cases(op, dtype, count):
            try:
                program = legal_program(case.module, case.tensors)
                module = torch_dialect(context, program, case.name)
                text = _reparsed(context, module)
                check_legal(context, module)
                ready.append((case, text))
            except Stopped as stopped:
                rows.append(_row(case, stopped.verdict, stopped.reason))
    rows += _run(context, ready)
    return sorted(rows, key=lambda row: (row.op, row.dtype, row.index))


def _reparsed(context: ir.Context, module: ir.Module) -> str:
    text = str(module)
    try:
        ir.Module.parse(text, context=context)
    except ir.MLIRError as error:
        raise Stopped("failed", f"not well formed: {str(error)[:200]}") from None
    return text


def _run(context: ir.Context, ready: list[tuple[Case, str]]) -> list[Row]:
    if not ready:
        return []
    modules = [ir.Module.parse(text, context=context) for _, text in ready]
    vmfb = compile_module(str(merged(context, modules)))
    if isinstance(vmfb, str):
        if len(ready) == 1:
            return [_row(ready[0][0], "failed", vmfb)]
        middle = len(ready) // 2
        return _run(context, ready[:middle]) + _run(context, ready[middle:])
    results = run_all(vmfb, [(case.name, case.tensors, case.expected) for case, _ in ready])
    return [judge(case, results[case.name]) for case, _ in ready]


def judge(case: Case, got: Any) -> Row:
    """Compare what a program gave with what eager gave."""
    if isinstance(got, str):
        return _row(case, "crashed" if got.startswith("crashed") else "failed", got)
    for number, (have, want) in enumerate(zip(got, case.expected, strict=True)):
        tied = number == 1 and case.op.removesuffix("_reduction_with_dim") in TIED
        problem = _misplaced(case, have, want) if tied else _difference(case, have, want)
        if problem:
            return _row(case, "WRONG", f"output {number}: {problem}")
    return _row(case, "equal")


def _misplaced(case: Case, have: Any, want: torch.Tensor) -> str:
    """What is wrong with positions, of which any may be given where values are equal."""
    places, values = torch.as_tensor(have), case.tensors[0]
    if places.shape != want.shape:
        return f"shape {tuple(places.shape)} for {tuple(want.shape)}"
    dims = range(max(values.dim(), 1))
    dim = next(dim for dim in dims if _same(_taken(values, dim, want), case.expected[0]))
    return "" if _same(_taken(values, dim, places), case.expected[0]) else "positions of other values"


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


def _difference(case: Case, have: Any, want: Any) -> str:
    if not isinstance(want, torch.Tensor):
        return "" if have == want else f"{have!r} for {want!r}"
    if isinstance(have, tuple):
        have = torch.from_numpy(have[1]).view(torch.bfloat16)
    else:
        have = torch.from_numpy(have) if have.shape else torch.tensor(have)
    want = want.detach().resolve_conj().resolve_neg()
    if have.shape != want.shape:
        return f"shape {tuple(have.shape)} for {tuple(want.shape)}"
    if case.op in UNSPECIFIED:
        return ""
    rtol, atol = TOLERANCE.get(want.dtype, (0.0, 0.0))
    try:
        torch.testing.assert_close(have, want, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""


def _row(case: Case, verdict: str, reason: str = "") -> Row:
    return Row(case.op, case.dtype, case.index, verdict, reason)
