"""Rows that positions name are copied and added as vectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.fixes.rewrites import rewritten
from aotpipe.backends.iree.fixes.torch_dialect import row_copies
from aotpipe.backends.iree.lower import importer
from aotpipe.canonicalize.modules import as_module
from aotpipe.core.fixes import active
from aotpipe.core.targets import Target
from aotpipe.model.spec import Dim
from tests.canaries import canary, compile_once
from tests.programs import through

Model = Callable[..., Any]
HOST = Target.parse("iree-cpu-host")


def ids(*shape: int, below: int = 40) -> torch.Tensor:
    return torch.randint(0, below, shape)


def select(table: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return table.index_select(0, at) * 2


def embed(table: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.embedding(at, table)


def add(into: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return into.index_add(0, at, rows)


def add_to_places(into: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return into.index_put((at,), rows, accumulate=True) + into


def put(into: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return into.index_put((at,), rows) + into


def messages_to_themselves(nodes: torch.Tensor, to: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    return nodes.index_add(0, to, nodes.index_select(0, by))


def several(nodes: torch.Tensor, to: torch.Tensor, by: torch.Tensor) -> tuple[torch.Tensor, ...]:
    doubled = nodes * 2
    first = doubled.index_add(0, to, doubled.index_select(0, by))
    second = doubled.index_add(0, by, doubled.index_select(0, to))
    ones = torch.ones(40, 64)
    third = torch.ones(40, 64).index_add(0, to, ones.index_select(0, by))
    return first, second, third, nodes.index_select(0, to), nodes.index_select(0, by), doubled


def messages(nodes: torch.Tensor, to: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(nodes).index_add(0, to, nodes.index_select(0, by))


def read_twice(nodes: torch.Tensor, to: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    rows = nodes.index_select(0, by)
    return torch.zeros_like(nodes).index_add(0, to, rows) + rows.sum(0)


CASES: dict[str, tuple[Model, tuple[torch.Tensor, ...], list[str]]] = {
    "select": (select, (torch.randn(40, 64), ids(90)), ["copy_rows_64xf32"]),
    "select wide rows": (select, (torch.randn(40, 300), ids(90)), ["copy_rows_300xf32"]),
    "select integers": (select, (ids(40, 96, below=9), ids(90)), ["copy_rows_96xi64"]),
    "select halves": (select, (torch.randn(40, 64).half(), ids(90)), ["copy_rows_64xf16"]),
    "select matrices": (select, (torch.randn(40, 4, 24), ids(90)), ["copy_rows_96xf32"]),
    "embed": (embed, (torch.randn(40, 48), ids(3, 40)), ["copy_rows_48xf32"]),
    "add": (add, (torch.randn(40, 50), ids(90), torch.randn(90, 50)), ["add_rows_50xf32"]),
    "add integers": (add, (ids(40, 64), ids(90), ids(90, 64)), ["add_rows_64xi64"]),
    "add one row": (
        add_to_places,
        (torch.randn(20, 50), ids(90, below=20), torch.randn(1, 50)),
        ["add_rows_50xf32"],
    ),
    "messages": (messages, (torch.randn(40, 64), ids(90), ids(90)), ["add_rows_of_table_64xf32"]),
    # A kernel that wrote into the rows that it reads would add what it has added.
    "messages to themselves": (
        messages_to_themselves,
        (torch.randn(40, 64), ids(90), ids(90)),
        ["add_rows_of_table_64xf32"],
    ),
    "several": (
        several,
        (torch.randn(40, 64), ids(90), ids(90)),
        ["add_rows_of_table_64xf32", "copy_rows_64xf32"],
    ),
    "read twice": (
        read_twice,
        (torch.randn(40, 64), ids(90), ids(90)),
        ["add_rows_64xf32", "copy_rows_64xf32"],
    ),
    # Of these the compiler's own form is as fast, or there is no vector.
    "few": (select, (torch.randn(40, 64), ids(9)), []),
    "put": (put, (torch.randn(200, 32), torch.randperm(200)[:150], torch.randn(150, 32)), []),
    "add to many rows": (add, (torch.zeros(900, 64), ids(90), torch.randn(90, 64)), []),
    "narrow rows": (select, (torch.randn(40, 6), ids(900)), []),
    "a width that nothing divides": (select, (torch.randn(40, 97), ids(90)), []),
    "another dim": (lambda x, at: x.index_select(1, at), (torch.randn(64, 64), ids(90)), []),
    "halves are added in single precision": (
        add,
        (torch.zeros(40, 64).half(), ids(90), torch.randn(90, 64).half()),
        [],
    ),
}


def kernels(module: bytes) -> list[str]:
    made = rewritten(module, [row_copies.FIX.apply])
    return sorted(re.findall(r"flow\.executable private @(\w+)", made.decode())) if made else []


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_eager(name: str) -> None:
    function, inputs, expected = CASES[name]
    model = as_module(function)
    program = through.legal(model, inputs)
    low = importer.lower(program)
    assert kernels(low.module) == expected
    if expected:
        payload = compiler.compile(low, HOST).payload
        with through.load_payload(program, payload, "local-sync") as runner:
            through.compare(runner, program, model, inputs)


def test_sizes_that_a_call_decides() -> None:
    def edges(count: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(count, 32), ids(3 * count, below=count), ids(3 * count, below=count)

    nodes, links = Dim("nodes", min=2, max=500), Dim("links", min=0, max=5000)
    model = as_module(messages)
    dims = {"nodes": {0: nodes}, "to": {0: links}, "by": {0: links}}
    program = through.legal(model, edges(40), dynamic_shapes=dims)
    low = importer.lower(program)
    assert kernels(low.module) == ["add_rows_of_table_32xf32"]
    with through.load_payload(program, compiler.compile(low, HOST).payload, "local-sync") as runner:
        for count in (40, 2, 333):
            through.compare(runner, program, model, edges(count))
        through.compare(runner, program, model, (torch.randn(5, 32), ids(0), ids(0)))


class Loop(torch.nn.Module):
    """The loop's blocks and the kernel's are not the same."""

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        while x.sum() < 1000:
            x = x.index_add(0, at, x.index_select(0, at).abs()) + 1
        return x


def test_a_kernel_in_a_loop() -> None:
    inputs = torch.randn(40, 64), ids(90)
    program = through.legal(Loop(), inputs)
    payload = compiler.compile(importer.lower(program), HOST).payload
    with through.load_payload(program, payload, "local-sync") as runner:
        through.compare(runner, program, Loop(), inputs)


def test_other_devices_have_none() -> None:
    stage = "aotpipe.backends.iree.fixes.torch_dialect"
    for names, expected in (
        (["iree-cpu-host"], True),
        (["iree-cpu-aarch64"], True),
        (["iree-vmvx"], False),
        (["iree-cuda-sm_80"], False),
        (["iree-cpu-host", "iree-vulkan"], False),
    ):
        assert (row_copies.FIX in active(stage, [Target.parse(name) for name in names])) == expected


def adds_vectors(folder: Path) -> bool:
    inputs = torch.randn(40, 64), ids(90), torch.randn(90, 64)
    low = importer.lower(through.legal(as_module(add), inputs))
    compile_once(low, "iree-cpu-host", (f"--iree-hal-dump-executable-intermediates-to={folder}",))
    (code,) = folder.glob("*.optimized.ll")
    return re.search(r"fadd [a-z ]*<\d+ x float>", code.read_text()) is not None


def test_rows_are_added_as_vectors(tmp_path: Path) -> None:
    assert adds_vectors(tmp_path)


@canary(row_copies.FIX)
def test_iree_adds_vectors_without(tmp_path: Path) -> None:
    assert adds_vectors(tmp_path)
