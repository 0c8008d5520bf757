"""A program on several devices, for people and as JSON."""

from __future__ import annotations

from aotpipe.core.partition import Partition

PAIR = Partition(
    mesh="data=2,model=2",
    devices=4,
    splits={"w": "(model, None)", "x": "(data,)"},
    collectives={"all-reduce": 2, "all-gather": 1},
)


def test_it_reads_as_a_line_and_survives_json() -> None:
    assert str(PAIR) == "4 devices (data=2,model=2), 2 arrays are split; 2 all-reduce, 1 all-gather"
    assert str(Partition(mesh="x=2", devices=2, splits={"x": "(x,)"})).endswith(
        "1 array is split; no collectives"
    )
    assert Partition.from_json(PAIR.to_json()) == PAIR
