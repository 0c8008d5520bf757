"""Has Linux keep the weights of a loaded program on huge pages.

A program that reads its weights once a call is as fast as memory is, and memory in pages of 4 KB is slower:
the TLB has room for some megabytes of them, and the CPU's prefetcher stops at the end of each. Where the
kernel gives huge pages only to memory that asks for them (`transparent_hugepage/enabled` is `madvise`, the
default of most distributions), what IREE's allocator takes has none.

`madvise(MADV_COLLAPSE)` moves memory that is in use already; kernels before 6.1 refuse it, and nothing
changes then. It takes 1 to 3 s per GB, in a thread of its own beside the first calls.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_THREAD: Final = "aotpipe-huge-pages"
_MADV_COLLAPSE: Final = 25
_HUGE_BYTES: Final = 2 << 20
_LEAST_BYTES: Final = 32 << 20
"""What is smaller mostly stays in the caches, or is read in less time than a call takes besides."""
_STEP_BYTES: Final = 16 << 20
"""What one call moves: what a closed program's memory has become since is found soon."""

Range = tuple[int, int]


def mapped() -> list[Range]:
    """The private writable memory of this process that is no file's: the first address, and that after it."""
    if sys.platform != "linux":
        return []
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:  # a sandbox may hide it
        return []
    fields = [line.split(maxsplit=5) for line in lines]
    # The heap and the stacks have names.
    ranges = [
        each[0].split("-") for each in fields if each[1] == "rw-p" and each[4] == "0" and len(each) == 5
    ]
    return [(int(first, 16), int(after, 16)) for first, after in ranges]


def collapse_since(before: Sequence[Range]) -> None:
    """Start to move what was mapped after `before` was seen and is large."""
    found = [each for each in _added(before, mapped()) if each[1] - each[0] >= _LEAST_BYTES]
    if found:
        threading.Thread(target=_collapse, args=(found,), name=_THREAD, daemon=True).start()


def wait() -> None:
    """Return when what was started has ended: calls that are timed sooner take longer than later ones."""
    for thread in threading.enumerate():
        if thread.name == _THREAD:
            thread.join()


def _added(before: Sequence[Range], now: Sequence[Range]) -> Iterator[Range]:
    """Whole huge pages of the parts of `now` that are not in `before`; both are sorted by address."""
    for first, after in now:
        held = [each for each in before if each[0] < after and each[1] > first]
        starts, ends = [first, *(end for _, end in held)], [*(start for start, _ in held), after]
        for start, end in zip(starts, ends, strict=True):
            whole = -(-start // _HUGE_BYTES) * _HUGE_BYTES, end // _HUGE_BYTES * _HUGE_BYTES
            if whole[0] < whole[1]:
                yield whole


def _collapse(ranges: Sequence[Range]) -> None:
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for first, after in ranges:
        for start in range(first, after, _STEP_BYTES):
            # A refusal leaves pages as they are: where memory was freed since, or where no huge page is free.
            madvise(start, min(_STEP_BYTES, after - start), _MADV_COLLAPSE)
