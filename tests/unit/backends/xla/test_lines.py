"""The user's line of an op, by the name that jax gives it."""

from __future__ import annotations

from pathlib import Path

import torch

from aotpipe.backends.xla import lowering
from aotpipe.backends.xla.lines import Lines
from tests.programs import through


class Looping(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.exp()

        def body(v: torch.Tensor) -> tuple[torch.Tensor]:
            return (v.sin() + 1,)

        return torch.while_loop(lambda v: v.sum() > 5, body, (y,))[0]


def test_ops_are_found_in_loops_by_the_line_of_the_loop() -> None:
    program = through.legal(Looping(), (torch.ones(3),), dialect="stablehlo")
    lines = Lines()
    with lowering.own_settings():
        entry = program.entries[0]
        traced = lowering.trace(entry, lowering.bound_of(entry, {}), {}, {}, lines)
        text = lowering.module_of(traced, "cpu").operation.get_asm(enable_debug_info=True)
    own = Path(__file__).read_text(encoding="utf-8").splitlines()
    found = {}
    for line in text.splitlines():
        for op in ("exponential", "sine"):
            if f"stablehlo.{op}" in line:
                mark = line.rpartition("loc(#")[2].rstrip(")")
                name = next(each for each in text.splitlines() if each.startswith(f"#{mark} = "))
                where = lines.find(name)
                assert where is not None
                found[op] = own[where.line - 1].strip()
    assert found == {
        "exponential": "y = x.exp()",
        "sine": "return torch.while_loop(lambda v: v.sum() > 5, body, (y,))[0]",
    }


def test_a_name_without_a_mark_has_no_line() -> None:
    assert Lines().find('loc("jit(forward)/add")') is None
