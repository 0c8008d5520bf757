"""torch's own examples of what torch.export supports: each is built and at parity.

The default test takes those whose form no other default test builds; the slow one takes them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from torch._export.db.case import SupportLevel
from torch._export.db.examples import all_examples

import aotpipe
from aotpipe.errors import AotpipeError

FORMS = (
    "assume_constant_result autograd_function class_method cond_closed_over_variable cond_operands decorator "
    "dictionary fn_with_kwargs list_contains list_unpack null_context_manager pytree_flatten scalar_output "
    "tensor_setattr type_reflection_method unsupported_operator"
).split()


def _build(case: Any, out: Path) -> tuple[bool, str]:
    try:
        bundle = aotpipe.build(
            case.model,
            args=case.example_args,
            kwargs=case.example_kwargs,
            dynamic_shapes=case.dynamic_shapes,
            name=case.name,
            targets=["iree-cpu-host"],
            out=out,
            latency=False,
        )
    except AotpipeError as error:
        return False, str(error)
    [row] = bundle.report.targets
    passed = row.status == "executed" and row.parity is not None and row.parity.passed
    return passed, row.reason or f"{row.parity.calls} calls, worst {row.parity.worst.ratio:.3f}"


def _check(names: Iterable[str], folder: Path, print_table: Callable[[str], None]) -> None:
    results = {name: _build(all_examples()[name], folder / name) for name in names}
    passed = sum(ok for ok, _ in results.values())
    rows = [f"{name:36} {'equal' if ok else 'FAILED':7} {note}" for name, (ok, note) in results.items()]
    print_table("\n".join([*rows, f"{passed} of {len(results)} are at parity"]))
    assert not [name for name, (ok, _) in results.items() if not ok]


def test_each_form_is_at_parity(tmp_path: Path, print_table: Callable[[str], None]) -> None:
    _check(FORMS, tmp_path, print_table)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_supported_case_is_at_parity(tmp_path: Path, print_table: Callable[[str], None]) -> None:
    examples = sorted(all_examples().items())
    supported = [name for name, case in examples if case.support_level is SupportLevel.SUPPORTED]
    assert len(supported) >= 35
    _check(supported, tmp_path, print_table)


def test_a_case_that_torch_calls_unsupported_is_at_parity_too(tmp_path: Path) -> None:
    # A size that is rounded from a float.
    case = all_examples()["dynamic_shape_round"]
    bundle = aotpipe.build(
        case.model,
        args=case.example_args,
        dynamic_shapes=case.dynamic_shapes,
        targets=["iree-cpu-host"],
        out=tmp_path / "bundle",
        latency=False,
    )
    assert [row.status for row in bundle.report.targets] == ["executed"]
