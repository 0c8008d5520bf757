"""The channel between a server and a worker."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from aotpipe.runtime.serve.channel import Arena, Unpacker, aligned, packed


@given(st.lists(st.dictionaries(st.text(max_size=3), st.integers(0, 99), max_size=3), max_size=5), st.data())
def test_messages_come_back_however_their_bytes_are_split(
    messages: list[dict[str, int]], data: st.DataObject
) -> None:
    stream = b"".join(map(packed, messages))
    unpacker, found, start = Unpacker(), [], 0
    while start < len(stream):
        end = data.draw(st.integers(start + 1, len(stream)))
        found += unpacker.feed(stream[start:end])
        start = end
    assert found == messages


def test_what_the_writer_lets_grow_the_reader_sees() -> None:
    writer = Arena.new()
    reader = Arena(os.dup(writer.fd))
    writer.reserve(0)[0:0] = memoryview(b"")
    assert len(reader.mapped(0)) == 0
    for size in (10, 100_000, 3_000_000, 5):
        writer.reserve(size)[size - 1] = 7
        assert reader.mapped(size)[size - 1] == 7
    writer.close()
    reader.close()


@given(st.integers(0, 1 << 40))
def test_a_tensor_begins_at_a_multiple_of_64(offset: int) -> None:
    assert aligned(offset) % 64 == 0
    assert 0 <= aligned(offset) - offset < 64
