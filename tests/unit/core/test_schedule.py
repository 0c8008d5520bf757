"""What a program does on its device, as JSON."""

from __future__ import annotations

from aotpipe.core.schedule import Schedule


def test_it_survives_json() -> None:
    found = Schedule(dispatches=7, kernels=6, copies=1, fills=0, waits=2, allocated_bytes=4096)
    assert Schedule.from_json(found.to_json()) == found
