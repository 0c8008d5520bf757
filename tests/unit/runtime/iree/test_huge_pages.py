"""Memory that a load mapped is moved to huge pages; all else, and what it holds, stays as it was."""

from __future__ import annotations

import mmap
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.runtime.iree import huge_pages

HUGE = 2 << 20
LARGE = 64 << 20
ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def on_huge_pages() -> int:
    """Bytes of this process."""
    [line] = [
        each
        for each in Path("/proc/self/smaps_rollup").read_text().splitlines()
        if each.startswith("AnonHugePages")
    ]
    return 1024 * int(line.split()[1])


def private_memory(size: int) -> mmap.mmap:
    """Filled memory of pages of 4 KB, whatever the host's setting is."""
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    memory[:] = bytes(range(256)) * (size // 256)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


@pytest.mark.skipif(
    not ENABLED.exists() or "[never]" in ENABLED.read_text(), reason="this kernel gives no huge pages"
)
def test_new_memory_is_moved_and_keeps_its_numbers() -> None:
    before = huge_pages.mapped()
    memory = private_memory(LARGE)
    held = on_huge_pages()
    huge_pages.collapse_since(before)
    huge_pages.wait()
    # Before Linux 6.1 there is no such call.
    if tuple(map(int, Path("/proc/sys/kernel/osrelease").read_text().split("-")[0].split(".")[:2])) >= (6, 1):
        assert on_huge_pages() - held >= LARGE // 2
    assert memory[:] == bytes(range(256)) * (LARGE // 256)


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_old_and_small_memory_is_left() -> None:
    old = private_memory(LARGE)
    before = huge_pages.mapped()
    small = private_memory(HUGE)
    held = on_huge_pages()
    huge_pages.collapse_since(before)
    huge_pages.wait()
    assert on_huge_pages() - held < LARGE // 2
    assert len(old) + len(small) == LARGE + HUGE


def test_a_host_without_proc_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert huge_pages.mapped() == []
    huge_pages.collapse_since([])


@st.composite
def ranges(draw: st.DrawFn) -> list[huge_pages.Range]:
    ends = sorted(draw(st.sets(st.integers(0, 40), max_size=8)))
    return [(first << 19, after << 19) for first, after in list(pairwise(ends))[::2]]


@given(ranges(), ranges())
def test_what_was_added_is_whole_huge_pages_of_new_memory_alone(
    before: list[huge_pages.Range], now: list[huge_pages.Range]
) -> None:
    found = list(huge_pages._added(before, now))
    pages = {page for first, after in found for page in range(first, after, HUGE)}
    assert all(page % HUGE == 0 for page in pages)

    def is_in(page: int, places: list[huge_pages.Range], reach: int) -> bool:
        return any(first <= page and page + reach <= after for first, after in places)

    def touches(page: int) -> bool:
        return any(first < page + HUGE and page < after for first, after in before)

    expected = {page for page in range(0, 21 << 20, HUGE) if is_in(page, now, HUGE) and not touches(page)}
    assert pages == expected
