"""Messages over a pipe: round-trips, a late and a lost peer."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from aotpipe.core.dtypes import numpy_dtype
from aotpipe.core.signature import DTYPES
from aotpipe.runtime import framing


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        with suppress(OSError):  # a test may have closed it
            os.close(fd)


def test_a_message_arrives_as_it_was_sent(pipe: tuple[int, int]) -> None:
    arrays = {
        dtype: (np.arange(6).reshape(2, 3) % 2).astype(numpy_dtype(dtype))[:, ::-1]
        for dtype in sorted(DTYPES)
    }
    arrays["scalar"], arrays["empty"] = np.array(3.5), np.zeros((0, 4), np.int8)
    framing.send(pipe[1], {"do": "infer", "n": 3}, arrays)
    message, got = framing.receive(pipe[0])
    assert message == {"do": "infer", "n": 3}
    assert list(got) == list(arrays)
    for name, array in arrays.items():
        assert got[name].dtype == array.dtype
        assert got[name].shape == array.shape
        assert got[name].tobytes() == array.tobytes()
        assert got[name].flags.writeable


def test_an_array_larger_than_the_pipe_arrives(pipe: tuple[int, int]) -> None:
    large = np.random.default_rng(0).random(1 << 20)
    sender = threading.Thread(target=framing.send, args=(pipe[1], {}, {"x": large}))
    sender.start()
    _, got = framing.receive(pipe[0], deadline=time.monotonic() + 30)
    sender.join()
    assert np.array_equal(got["x"], large)


def test_a_late_answer_and_a_lost_peer_are_told_apart(pipe: tuple[int, int]) -> None:
    with pytest.raises(TimeoutError):
        framing.receive(pipe[0], deadline=time.monotonic() + 0.05)
    os.write(pipe[1], b"half")
    os.close(pipe[1])
    with pytest.raises(EOFError):
        framing.receive(pipe[0])
