"""Estimates for people."""

from __future__ import annotations

from dataclasses import replace

from aotpipe.cli.estimates import largest, table
from tests.unit.core.test_estimate import SAMPLE


def test_a_row_says_what_a_program_will_cost() -> None:
    head, row, legend = table([("xla-tpu-v5e", (SAMPLE,))]).splitlines()
    assert head.startswith("estimate for")
    assert row.split() == [
        *("xla-tpu-v5e", "forward", "batch=8", "seq=64", "4.0", "M", "75%", "bfloat16,", "25%", "float32"),
        *("(highest)", "1.0", "MB", "4", "700.0", "kB", "of", "17.2", "GB", "(<1%)", "5.0", "µs", "memory"),
    ]
    assert "estimate" in legend


def test_where_no_chip_is_known_there_is_nothing_to_say() -> None:
    assert table([("iree-cpu-host", ()), ("xla-cpu-host", (replace(SAMPLE, memory_bytes=0),))]) == ""


def test_loops_are_named() -> None:
    assert "(loops of unknown length: 2)" in table([("xla-tpu-v5e", (replace(SAMPLE, loops=2),))])


def test_of_many_sizes_the_one_that_takes_longest_stands_for_all() -> None:
    small = replace(SAMPLE, sizes={"batch": 1}, memory_s=1e-6)
    other = replace(SAMPLE, entry_point="decode")
    assert largest([small, SAMPLE, other]) == [SAMPLE, other]


def test_of_several_devices_each_one_is_meant() -> None:
    assert "xla-tpu-v5e, each of 4  forward" in table([("xla-tpu-v5e", (replace(SAMPLE, devices=4),))])
