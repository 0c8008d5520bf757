"""Leaves out what torch does over and over while it traces branches and loops, and nobody reads.

A graph of each branch and loop is traced by itself, inside of those around it. torch writes Python code for
every such graph, and again for all graphs inside of one, each time that one changes; and for every node it
looks up the source line of every function that is running, most of them its own.

Private: torch has public ways to neither.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torch.fx._lazy_graph_module import _use_lazy_graph_module  # what torch.compile itself traces with
from torch.utils import _traceback


@contextmanager
def traced() -> Iterator[None]:
    """Inside, code is written when a graph is first run, and lines are looked up when they are shown."""
    with _use_lazy_graph_module(True), mock.patch.object(_traceback, "_extract_symbolized_tb", _summary):
        yield


def _summary(frames: list[dict[str, Any]], skip: int) -> traceback.StackSummary:
    """What torch makes of the running functions, without their lines."""
    summary = traceback.StackSummary()
    for frame in reversed(frames[skip:]):
        summary.append(
            traceback.FrameSummary(frame["filename"], frame["line"], frame["name"], lookup_line=False)
        )
    return summary
