"""Puts the object files in a serialized executable of XLA's CPU compiler in one order.

XLA compiles kernels on several threads and lists their object files as they are done, so that two compiles of
one module differ. Which is where means nothing to who loads them: each is found by the names of its symbols.

What is not laid out as this jaxlib does it is given back as it is. Torch-free, jax-free.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

# The fields of jaxlib's protobuf messages: ExecutableAndOptionsProto.serialized_executable, and of
# CompilationResultProto the object files.
_EXECUTABLE: Final = 1
_OBJECT_FILE: Final = 8
_VARINT, _BYTES = 0, 2
_FIXED: Final = {1: 8, 5: 4}


class _Field(NamedTuple):
    number: int
    begin: int
    value: int
    """Where the value begins, after the tag and the length."""
    end: int


def sorted_object_files(executable: bytes) -> bytes:
    """The same executable with its object files in the order of their bytes."""
    try:
        # A header of the array runtime goes before the message, after its length.
        length, begin = _varint(executable, 0)
        outer = list(_fields(executable, begin + length, len(executable)))
        (inner,) = (field for field in outer if field.number == _EXECUTABLE)
        objects = [
            field for field in _fields(executable, inner.value, inner.end) if field.number == _OBJECT_FILE
        ]
    except (ValueError, IndexError):
        return executable
    if not objects:
        return executable
    first, last = objects[0].begin, objects[-1].end
    entries = [executable[field.begin : field.end] for field in objects]
    if sum(map(len, entries)) != last - first:  # something else lies between them
        return executable
    return b"".join([executable[:first], *sorted(entries), executable[last:]])


def _fields(data: bytes, at: int, end: int) -> Iterator[_Field]:
    """The fields of a protobuf message.

    Raises:
        ValueError, IndexError: It is none.
    """
    while at < end:
        begin = at
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        size = 0
        if kind == _VARINT:
            _, at = _varint(data, at)
        elif kind == _BYTES:
            size, at = _varint(data, at)
        else:
            size = _FIXED.get(kind, -1)
        if number == 0 or size < 0 or at + size > end:
            raise ValueError(f"no field of a message: {tag}")
        yield _Field(number, begin, at, at + size)
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
