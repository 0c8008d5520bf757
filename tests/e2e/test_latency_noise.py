"""A bundle measured ten times, five of them beside a busy loop: the same ratio each time, or `noisy`."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aotpipe.build.rerun import measure
from tests.unit.cli.commands import run

NET = """
import torch
torch.manual_seed(0)
layers = [torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.ReLU()]
NET = torch.nn.Sequential(*layers, torch.nn.Linear(1024, 10)).eval()
EXAMPLE_INPUTS = (torch.randn({batch}, 256),)
"""


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Other work on this machine, for as long as the body runs."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "threads"), [(1, 1), (32, 1), (32, 2)])
def test_ratios_are_within_a_tenth_or_marked(batch: int, threads: int, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET.format(batch=batch))
    run("build", "net.py", "-o", "out", "--no-latency", "-q")
    ratios: list[float] = []
    for number in range(10):
        with busy(number % 2):
            (row,) = measure("out", "net.py", threads=threads, budget_s=1.5)
        assert row.latency is not None
        name = "beside a busy loop" if number % 2 else "alone"
        said = f"{row.latency.ratios or 'noisy'}, noise {row.latency.noise:.0%}"
        print(f"batch {batch}, {threads} threads, {name}: {said}")
        ratios += row.latency.ratios.values()
    # Two threads and a busy loop are more than a machine of two cores has.
    assert ratios or threads > 1, "no run gave a ratio: all were noisy"
    if ratios:
        middle = statistics.median(ratios)
        assert all(abs(ratio / middle - 1) <= 0.1 for ratio in ratios), ratios
