"""Named arrays in safetensors files, laid out so that a program can use them where they lie.

IREE takes a weight without a copy if it starts at a multiple of 64 bytes. The format allows no gaps, so that
arrays whose size is a multiple of 64 come first, then the (small) rest; the header is padded. Equal arrays
give equal bytes. `read(path)` gives what `write(arrays, path)` was given. `write_shards` spreads arrays over
several files where one would be too large for a registry or a file system; `read_shards` reads them.

Any safetensors reader reads the files. The format has no complex128: such arrays are stored as float64 with
a last axis of 2, and named in the metadata.

Raises ValueError for a file that is not in the format. Torch-free.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aotpipe.core.dtypes import Array, name_of, numpy_dtype, raw_bytes

ALIGNMENT: Final = 64
_LENGTH_BYTES: Final = 8
_METADATA: Final = "__metadata__"
_COMPLEX128: Final = "aotpipe.complex128"
_CHUNK: Final = 64 << 20
# Above 60 000 arrays; JSON takes ten times as much memory when it is read.
_MAX_HEADER_BYTES: Final = 8 << 20

Part = tuple[int, int | None]
"""Where in a file something begins, and how many bytes it has, up to the end where None."""
WHOLE: Final[Part] = (0, None)

SHARD_BYTES: Final = 2_000_000_000
"""The most bytes of arrays in one of several files, unless a single array has more."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of arrays, or the part of a file that is one.

    Attributes:
        sha256: Of its bytes; empty where nobody asks.
    """

    path: Path
    sha256: str = ""
    part: Part = WHOLE

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        begin, size = self.part
        return self.path.stat().st_size - begin if size is None else size


_CODES: Final[Mapping[str, str]] = {
    "bool": "BOOL",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
_NAMES: Final[Mapping[str, str]] = {code: name for name, code in _CODES.items()}


def write(arrays: Mapping[str, Array], path: Path) -> str:
    """Write arrays of any layout in memory; gives the file's SHA-256."""
    digest = hashlib.sha256()
    plain = {name: _plain(array) for name, array in arrays.items()}
    names = sorted(plain, key=lambda name: _rank(name, plain[name]))
    wide = sorted(name for name, array in arrays.items() if array.dtype == np.complex128)
    with path.open("wb") as file:

        def put(data: bytes | memoryview) -> None:
            file.write(data)
            digest.update(data)

        put(_header({name: plain[name] for name in names}, wide))
        for name in names:
            raw = raw_bytes(np.asarray(plain[name], order="C"))
            for start in range(0, raw.size, _CHUNK):
                put(raw[start : start + _CHUNK].data)
    return digest.hexdigest()


def write_shards(
    arrays: Mapping[str, Array], folder: Path, stem: str, *, most_bytes: int = SHARD_BYTES
) -> tuple[Shard, ...]:
    """Write arrays to `STEM.safetensors`, or to `STEM-00001-of-00002.safetensors` and so on.

    Args:
        arrays: In memory, of any layout; they are spread in the order of their names.
        folder: Where the files are written.
        stem: Of their names.
        most_bytes: Above which there is another file.
    """
    groups: list[dict[str, Array]] = [{}]
    size = 0
    for name in sorted(arrays):
        size += arrays[name].nbytes
        if size > most_bytes and groups[-1]:
            groups.append({})
            size = arrays[name].nbytes
        groups[-1][name] = arrays[name]
    names = [f"{stem}-{at:05}-of-{len(groups):05}.safetensors" for at in range(1, len(groups) + 1)]
    paths = [folder / name for name in (names if len(groups) > 1 else [f"{stem}.safetensors"])]
    return tuple(Shard(path, write(group, path)) for path, group in zip(paths, groups, strict=True))


def read_shards(shards: Sequence[Shard], *, verify: bool = False) -> dict[str, Array]:
    """Read what `write_shards` gave.

    Args:
        shards: The files.
        verify: Whether they are read whole and must have their digest; else they are mapped and trusted.

    Raises:
        ValueError: A file is not the one of that digest, or not in the format; or two have the same array.
    """
    return merged(_read_verified(each) if verify else read(each.path, each.part) for each in shards)


def merged(parts: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
    """The arrays of several files.

    Raises:
        ValueError: Two of them have an array of the same name.
    """
    found: dict[str, Array] = {}
    for part in parts:
        if twice := found.keys() & part.keys():
            raise ValueError(f"two files have an array {min(twice)!r}")
        found |= part
    return found


def _read_verified(shard: Shard) -> dict[str, Array]:
    with shard.path.open("rb") as file:
        content = read_bytes(file, shard.part)
    if hashlib.sha256(content.data).hexdigest() != shard.sha256:
        raise ValueError(f"the SHA-256 of {shard.path.name} is not {shard.sha256}")
    return parse(content)


def read(path: Path, part: Part = WHOLE) -> dict[str, Array]:
    """Map a file: the arrays are read-only, and their pages are loaded when they are used."""
    with path.open("rb") as file:
        return mapped(file, part)


def mapped(file: BufferedReader, part: Part = WHOLE) -> dict[str, Array]:
    """As `read`, of a file that is open."""
    if not file.seek(0, 2):
        raise ValueError("not a safetensors file: it is empty")
    begin, size = part
    content = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    return parse(content[begin:][:size])


def read_bytes(file: BufferedReader, part: Part = WHOLE) -> NDArray[np.uint8]:
    """A file's bytes at an aligned address, read-only: what is hashed is then what is parsed and used."""
    begin, wanted = part
    size = file.seek(0, 2) - begin if wanted is None else wanted
    file.seek(begin)
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    # A file that has shrunk meanwhile gives less.
    content = room[start : start + file.readinto(room[start : start + size].data)]
    content.flags.writeable = False
    return content


def parse(content: NDArray[np.uint8]) -> dict[str, Array]:
    """The arrays in a file's bytes, as views."""
    try:
        header, data = _split(content)
        wide = set(json.loads(header.pop(_METADATA, {}).get(_COMPLEX128, "[]")))
        arrays = {name: _view(data, entry) for name, entry in header.items()}
        for name in wide & arrays.keys():
            arrays[name] = arrays[name].view(np.complex128)[..., 0]
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"not a safetensors file: {error}") from error
    return arrays


def _split(content: NDArray[np.uint8]) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    length = int.from_bytes(content[:_LENGTH_BYTES].tobytes(), "little")
    begin = _LENGTH_BYTES + length
    if length > _MAX_HEADER_BYTES or content.size < begin:
        raise ValueError(f"the header needs {length} bytes")
    return json.loads(content[_LENGTH_BYTES:begin].tobytes()), content[begin:]


def _view(data: NDArray[np.uint8], entry: Mapping[str, Any]) -> Array:
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    dtype = numpy_dtype(_NAMES[entry["dtype"]])
    whole = all(type(size) is int and size >= 0 for size in (begin, end, *shape))
    if not whole or not begin <= end <= data.size or end - begin != prod(shape) * dtype.itemsize:
        raise ValueError(f"an entry does not fit the file: {dict(entry)}")
    return data[begin:end].view(dtype).reshape(shape)


def _plain(array: Array) -> Array:
    if array.dtype == np.complex128:
        return np.asarray(array, order="C")[..., np.newaxis].view(np.float64)
    if name_of(array.dtype) is None:
        raise ValueError(f"no dtype that can be stored: {array.dtype}")
    return array


def _rank(name: str, array: Array) -> tuple[bool, int, str]:
    """Within the rest, wide dtypes first, so that every array is aligned to its own items at least."""
    return bool(array.nbytes % ALIGNMENT), -array.itemsize, name


def _header(plain: Mapping[str, Array], wide: list[str]) -> bytes:
    table: dict[str, Any] = {_METADATA: {_COMPLEX128: json.dumps(wide)}} if wide else {}
    end = 0
    for name, array in plain.items():
        begin, end = end, end + array.nbytes
        code = _CODES[name_of(array.dtype) or ""]
        table[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH_BYTES + len(text)) % ALIGNMENT)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text
