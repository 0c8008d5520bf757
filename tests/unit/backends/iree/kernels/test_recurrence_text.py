"""The dispatch of a scan: it computes what its steps say, for any sizes, on any registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.backends.iree.kernels import recurrence_text
from aotpipe.backends.iree.kernels.convolution import Registers
from aotpipe.backends.iree.kernels.recurrence import Recurrence, Step
from tests.sweep import examples
from tests.unit.backends.iree.kernels.running import computed

REGISTERS = [Registers(16, 32), Registers(8, 16), Registers(4, 16)]
SIZES = [1, 2, 3, 5, 8, 16, 17, 24, 33, 64]
Draw = Any


@st.composite
def recurrences(draw: Draw) -> Recurrence:
    """Steps of every kind on values of a few sizes."""
    sizes = draw(st.lists(st.sampled_from(SIZES), min_size=2, max_size=3))
    size = st.sampled_from(sizes)
    carries, rows, vectors = (tuple(draw(st.lists(size, min_size=least, max_size=3))) for least in (1, 1, 0))
    values = [
        (f"{letter}{place}", number)
        for letter, numbers in (("h", carries), ("x", rows), ("c", vectors))
        for place, number in enumerate(numbers)
    ]
    matrices: list[tuple[int, int]] = []
    steps: list[Step] = []
    for kind in draw(st.lists(st.sampled_from("matmul slice concat spread two one".split()), max_size=12)):
        value, own = draw(st.sampled_from(values))
        same = [each for each, number in values if number == own]
        if kind == "matmul":
            step = Step("matmul", (value, f"m{len(matrices)}"), draw(size) * draw(st.sampled_from([1, 2, 4])))
            matrices.append((own, step.size))
        elif kind == "slice":
            first = draw(st.integers(0, own - 1))
            step = Step("slice", (value, first), draw(st.integers(1, own - first)))
        elif kind == "concat":
            other, more = draw(st.sampled_from(values))
            step = Step("concat", (value, other), own + more)
        elif kind == "spread":
            single = [each for each, number in values if number == 1]
            if not single:
                continue
            step = Step("spread", (draw(st.sampled_from(single)),), draw(size))
        elif kind == "two":
            op = draw(st.sampled_from(["add", "sub", "mul", "maximum"]))
            step = Step(op, (value, draw(st.sampled_from([*same, 0.5]))), own)
        else:
            step = Step(draw(st.sampled_from(["tanh", "sigmoid", "relu", "abs", "neg"])), (value,), own)
        values.append((f"v{len(steps)}", step.size))
        steps.append(step)
    following = tuple(
        draw(st.sampled_from([each for each, number in values if number == carry][-4:])) for carry in carries
    )
    outputs = tuple(each for each, _ in draw(st.lists(st.sampled_from(values), max_size=2)))
    return Recurrence(carries, rows, vectors, tuple(matrices), tuple(steps), following, outputs)


@given(
    recurrence=recurrences(),
    length=st.integers(1, 5),
    batch=st.sampled_from([1, 1, 2, 3, 4, 6]),
    decided=st.tuples(st.booleans(), st.booleans()),
    registers=st.sampled_from(REGISTERS),
)
@examples(quick=6, nightly=150)
def test_a_kernel_computes_its_steps(
    recurrence: Recurrence, length: int, batch: int, decided: tuple[bool, bool], registers: Registers
) -> None:
    assert Recurrence.parse(str(recurrence)) == recurrence
    _compare(recurrence, length, batch, decided, registers)


LSTM = Recurrence(
    (24, 24),
    (96,),
    (),
    ((24, 96),),
    (
        Step("matmul", ("h0", "m0"), 96),
        Step("add", ("x0", "v0"), 96),
        *(Step("slice", ("v1", 24 * gate), 24) for gate in range(4)),
        *(Step("sigmoid", (f"v{gate}",), 24) for gate in (2, 3, 5)),
        Step("tanh", ("v4",), 24),
        Step("mul", ("v7", "h1"), 24),
        Step("mul", ("v6", "v9"), 24),
        Step("add", ("v10", "v11"), 24),
        Step("tanh", ("v12",), 24),
        Step("mul", ("v8", "v13"), 24),
    ),
    ("v14", "v12"),
    ("v14",),
)


@pytest.mark.parametrize("batch", [1, 4])
def test_a_recurrent_layer(batch: int) -> None:
    _compare(LSTM, 7, batch, (False, False), REGISTERS[0])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_products_of_a_value_and_of_a_part_of_it(order: tuple[int, int]) -> None:
    """Both begin at its first number, and end apart."""
    products = [Step("matmul", ("v0", "m0"), 24), Step("matmul", ("h0", "m1"), 24)]
    steps = (Step("slice", ("h0", 0), 8), *(products[each] for each in order), Step("add", ("v1", "v2"), 24))
    found = Recurrence((24,), (24,), (), ((8, 24), (24, 24)), steps, ("v3",), ())
    _compare(found, 3, 2, (False, False), REGISTERS[0])


def test_the_columns_of_all_gates_lie_together() -> None:
    kernel = recurrence_text.kernel(LSTM, 7, 1, REGISTERS[1], "scan")
    assert kernel.panels == {0: recurrence_text.Panels(4, 1, 24)}
    # A matrix that two products read stays as it is.
    steps = (Step("matmul", ("h0", "m0"), 8), Step("matmul", ("v0", "m0"), 8))
    twice = Recurrence((8,), (8,), (), ((8, 8),), steps, ("v1",), ())
    assert not recurrence_text.kernel(twice, 7, 1, REGISTERS[1], "scan").panels


def _compare(
    recurrence: Recurrence, length: int, batch: int, decided: tuple[bool, bool], registers: Registers
) -> None:
    torch.manual_seed(0)
    known = [None if is_decided else size for size, is_decided in zip((length, batch), decided, strict=True)]
    kernel = recurrence_text.kernel(recurrence, *known, registers, "scan")
    carries = [torch.randn(batch, size) / 2 for size in recurrence.carries]
    rows = [torch.randn(length, batch, size) for size in recurrence.rows]
    vectors = [torch.randn(size) for size in recurrence.vectors]
    matrices = [torch.randn(sizes) / sizes[0] ** 0.5 / 2 for sizes in recurrence.matrices]
    given_matrices = list(matrices)
    for place, (parts, number, width) in kernel.panels.items():
        apart = matrices[place].reshape(-1, parts, number, width).permute(2, 0, 1, 3)
        given_matrices[place] = apart.reshape(number, -1, parts * width)
    wanted = _trips(recurrence, carries, rows, vectors, matrices)
    tensors = [np.ascontiguousarray(each) for each in (*carries, *rows, *vectors, *given_matrices)]
    [found] = computed(_with_sizes(kernel.text, decided), [tensors])
    for own, other in zip(found if isinstance(found, list) else [found], wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-4)


def _with_sizes(text: str, decided: tuple[bool, bool]) -> str:
    """The text with what a call decides read from the first input."""
    before, function = text.split("util.func private @call")
    kind = function.split("%x0: ")[1].split(">")[0] + ">"
    names = [name for name, is_decided in zip(("length", "batch"), decided, strict=True) if is_decided]
    for name in names:
        function = function.replace(f", %{name}: index", "")
    sizes = "".join(
        f"\n%dim_{name} = arith.constant {('length', 'batch').index(name)} : index"
        f"\n%{name} = tensor.dim %x0, %dim_{name} : {kind}"
        for name in names
    )
    first, rest = function.split("{\n", 1)
    return f"{before}util.func private @call{first}{{{sizes}\n{rest}"


def _trips(
    recurrence: Recurrence,
    carries: list[torch.Tensor],
    rows: list[torch.Tensor],
    vectors: list[torch.Tensor],
    matrices: list[torch.Tensor],
) -> list[torch.Tensor]:
    """What the steps give by torch: the last carries, and the outputs."""
    stacked: list[list[torch.Tensor]] = [[] for _ in recurrence.outputs]
    batch = len(carries[0])
    for trip in range(len(rows[0])):
        known: dict[Any, Any] = {f"h{place}": each for place, each in enumerate(carries)}
        known |= {f"x{place}": each[trip] for place, each in enumerate(rows)}
        known |= {f"c{place}": each.expand(batch, -1) for place, each in enumerate(vectors)}
        known |= {f"m{place}": each for place, each in enumerate(matrices)}
        for place, step in enumerate(recurrence.steps):
            x, *more = (known.get(operand, operand) for operand in step.operands)
            forms: dict[str, Any] = {
                "slice": lambda x, first, size=step.size: x[:, first : first + size],
                "concat": lambda *each: torch.cat(each, 1),
                "spread": lambda x, size=step.size: x.expand(batch, size),
                "maximum": lambda x, y: torch.maximum(x, torch.as_tensor(y)),
            }
            known[f"v{place}"] = forms.get(step.op, getattr(torch, step.op, None))(x, *more)
        carries = [known[each] for each in recurrence.following]
        for rows_of, value in zip(stacked, recurrence.outputs, strict=True):
            rows_of.append(known[value])
    return [*carries, *map(torch.stack, stacked)]
