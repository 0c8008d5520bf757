"""A chain round-trips through JSON."""

from __future__ import annotations

import json

from aotpipe.core.signature import Signature, Symbol, TensorSpec
from aotpipe.errors import SourceLine
from aotpipe.runtime.islands.chain import Chain, Island, Parts, Segment

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
PARTS = Parts(
    signatures={"forward_0": Signature(inputs=(X,), outputs=(X,), symbols=(Symbol("n", 1, 8),))},
    asserts={"forward_0": ("positive",)},
    chains={
        "forward": Chain(
            steps=(ISLAND, Segment(entry_point="forward_0", inputs=("island.0",), outputs=("y",))),
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
