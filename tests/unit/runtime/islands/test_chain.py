"""A chain round-trips through JSON, arguments are taken apart and put together, and functions are found."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aotpipe.core.signature import Signature, Symbol, TensorSpec
from aotpipe.errors import IslandNotFound, SourceLine
from aotpipe.islands.marking import eager_island
from aotpipe.runtime.islands.chain import (
    MARKS,
    Chain,
    Island,
    Kind,
    Parts,
    Segment,
    functions,
    mark_of,
    pack,
    require_chains,
    unpack,
)
from tests.unit.islands import models

X = TensorSpec("x", "float32", ("n", 4))
ISLAND = Island(
    name="net:order",
    kind="function",
    where=SourceLine("net.py", 7),
    reason="numpy's sort",
    arrays="numpy",
    arguments={"list": [{"list": [{"tensor": 0}]}, {"dict": {"k": {"value": 2.5}}}]},
    result={"tensor": 0},
    inputs=("x",),
    outputs=(TensorSpec("island.0", "float32", ("n", 4)),),
)
HERE = replace(ISLAND, name="tests.unit.islands.models:order")
PARTS = Parts(
    signatures={
        "forward_0": Signature(
            inputs=(*ISLAND.outputs, TensorSpec("b_count", "int64", ())),
            outputs=(TensorSpec("y", "float32", ()), TensorSpec("add", "int64", ())),
            symbols=(Symbol("n", 1, 8),),
        )
    },
    asserts={"forward_0": ("positive",)},
    chains={
        "forward": Chain(
            steps=(
                ISLAND,
                Segment(entry_point="forward_0", inputs=("island.0", "b_count"), outputs=("y", "add")),
            ),
            inputs={"x": "x"},
            outputs={"output": "y"},
            state={"count": ("b_count", "add")},
        )
    },
)


def test_json_gives_the_same_parts_back() -> None:
    assert Parts.from_json(json.loads(json.dumps(PARTS.to_json()))) == PARTS


def test_the_islands_are_listed_in_order() -> None:
    assert PARTS.islands == PARTS.chains["forward"].islands == (ISLAND,)


def kind_of(leaf: Any) -> Kind | None:
    if isinstance(leaf, bytearray):
        return "tensor"
    return "int" if type(leaf) is int else None


def no_leaf(kind: Kind, number: int) -> Any:
    raise AssertionError


VALUES = [
    bytearray(b"a"),
    [bytearray(b"a"), 3, {"k": (None, True, "t", 2.5)}],
    ((), [], {}),
    {"a": {"b": [1, 2, bytearray(b"c")]}},
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_what_is_packed_is_unpacked(value: Any) -> None:
    packed = pack(value, kind_of)
    kinds = {}

    def leaf(kind: Kind, number: int) -> Any:
        kinds[number] = kind
        return packed.leaves[number]

    assert unpack(json.loads(json.dumps(packed.template)), leaf) == value
    assert kinds == dict(enumerate(packed.kinds))


def test_what_is_neither_is_an_object() -> None:
    packed = pack([object, {3: 4}], kind_of)
    assert packed.objects == [object, {3: 4}]
    assert unpack(packed.template, no_leaf, packed.objects) == [object, {3: 4}]


def test_what_is_no_template_is_refused() -> None:
    with pytest.raises(ValueError, match="not a part of a template"):
        unpack({"other": 1}, no_leaf)


def test_a_marked_function_is_found_in_the_process_or_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    want = mark_of(models.order)
    assert want is not None
    assert functions([HERE], [HERE.name]) == {HERE.name: want.function}
    monkeypatch.delitem(MARKS, HERE.name)
    for name in (HERE.name, HERE.name.replace(":", ".")):
        assert functions([HERE], [name]) == functions([HERE], name) == {HERE.name: want.function}


def test_what_is_given_comes_first() -> None:
    assert functions([HERE], {HERE.name: len}) == {HERE.name: len}


def test_an_op_is_found_in_torch() -> None:
    island = replace(ISLAND, name="aten.relu.default", kind="op")
    assert functions([island])["aten.relu.default"] is torch.ops.aten.relu.default


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("no_such_module:f", "function", "cannot be imported"),
        ("os:system", "function", "is not marked"),
        ("os:no_such", "function", "no_such"),
        ("aten.nothing.default", "op", "nothing"),
        ("aten.relu", "op", "no op"),
    ],
)
def test_what_a_host_lacks_or_must_not_be_named_is_refused(name: str, kind: str, message: str) -> None:
    with pytest.raises(IslandNotFound, match=message):
        functions([replace(ISLAND, name=name, kind=kind)], [name])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (HERE.name, "function"),  # marked in this process
        ("os:system", "function"),
        *(
            (name, "op")
            for name in (
                "aten.from_file.default",
                "aten.save.default",
                "aten.relu_.default",
                "aten.set_.source_Storage",
                "aten._unsafe_index.Tensor",
                "aten.empty.memory_format",
                "debugprims.load_tensor.default",
                "c10d_functional.wait_tensor.default",
                "aten.relu.__class__",
            )
        ),
    ],
)
def test_only_ops_that_compute_run_without_being_allowed(name: str, kind: str) -> None:
    island = replace(ISLAND, name=name, kind=kind)
    with pytest.raises(IslandNotFound) as caught:
        functions([island])
    assert "not allowed" in caught.value.message or "__class__" in caught.value.message
    assert functions([replace(ISLAND, name="aten.linalg_eigh.default", kind="op")])


def test_an_op_of_another_namespace_runs_where_it_is_named() -> None:
    name = "aten._unsafe_index.Tensor"
    assert functions([replace(ISLAND, name=name, kind="op")], [name])


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module that says that it was run, and that Python finds it."""
    folder = tmp_path / "place"
    folder.mkdir()
    text = f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n"
    text += "import aotpipe\n@aotpipe.eager_island\ndef f(x):\n    return x\n"
    (folder / "island_trap.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("island_trap", None)
    MARKS.pop("island_trap:f", None)


def test_no_module_is_imported_that_was_not_named(trap: Path, tmp_path: Path) -> None:
    island = replace(ISLAND, name="island_trap:f")
    with pytest.raises(IslandNotFound, match="not allowed: island_trap:f") as caught:
        functions([island], ["island_trap:g"])
    assert caught.value.hint.endswith("--island island_trap:f")
    assert not (tmp_path / "ran").exists()
    assert functions([island], ["island_trap:f"])
    assert (tmp_path / "ran").exists()


def test_no_module_is_imported_from_the_working_folder(
    trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trap)
    with pytest.raises(IslandNotFound) as caught:
        functions([replace(ISLAND, name="island_trap:f")], ["island_trap:f"])
    assert "from which no island is imported" in caught.value.reason
    assert not (tmp_path / "ran").exists()


def test_a_chain_of_another_form_is_refused() -> None:
    count = TensorSpec("count", "int64", ())
    signatures = {
        "forward": Signature(inputs=(X,), outputs=(TensorSpec("output", "float32", ()),), state=(count,))
    }
    require_chains(PARTS, signatures)
    chain = PARTS.chains["forward"]
    island, segment = chain.steps
    for changed, message in (
        (replace(chain, steps=(segment, island)), "takes 'island.0', which no step before it gives"),
        (replace(chain, steps=(island, replace(segment, entry_point="f"))), "no program has the segment 'f'"),
        (replace(chain, steps=(island, replace(segment, outputs=("y",)))), "no program has the segment"),
        (replace(chain, steps=(island,)), "lacks an input, an output or a state"),
        (replace(chain, inputs={}), "lacks an input|takes 'x'"),
        (replace(chain, outputs={}), "gives other outputs"),
        (replace(chain, steps=(replace(island, arguments={"tensor": 1}), segment)), "no tensor number 1"),
        (replace(chain, steps=(replace(island, arguments={"f": 1}), segment)), "not a part of a template"),
        (replace(chain, steps=(replace(island, arguments={"list": []}), segment)), "not enough values"),
        (
            replace(chain, steps=(replace(island, arguments={"list": [{"value": 1}] * 2}), segment)),
            "no arguments",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            require_chains(replace(PARTS, chains={"forward": changed}), signatures)
    with pytest.raises(ValueError, match="the chains are of"):
        require_chains(PARTS, {})


def test_a_marked_function_is_found_by_its_name_and_by_itself():
    @eager_island(name="elsewhere:doubled", arrays="numpy", reason="a table")
    def doubled(x):
        return x * 2

    mark = mark_of(doubled)
    assert mark is MARKS["elsewhere:doubled"]
    assert (mark.function(3), mark.arrays, mark.reason) == (6, "numpy", "a table")
    assert mark_of(len) is None
