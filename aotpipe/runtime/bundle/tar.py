"""The one form that an archive of a bundle has: a tar of the manifest and the files that it names.

The manifest comes first, then the files by name, uncompressed, without owners and times, each from a multiple
of 512 bytes on: a program or weights are read, or mapped, where they lie. Every byte beside the files' own
follows from the manifest, and `read` accepts no other: no path, link, duplicate, padding or compression that
`tar` might make something of can be in one. Torch-free.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Final

from aotpipe.errors import BundleCorrupt, BundleNotFound
from aotpipe.runtime.bundle import limits
from aotpipe.runtime.bundle import manifest as manifests
from aotpipe.runtime.bundle.manifest import Manifest

_BLOCK: Final = 512
_NAME: Final = 100
# A header's field for the size has eleven octal digits.
_MOST_BYTES: Final = 8**11
_SIZE: Final = slice(124, 135)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything of an archive lies.

    Attributes:
        begins: By file, where its bytes begin.
        frames: What stands between the files, in order: where, and the bytes.
    """

    begins: Mapping[str, int]
    frames: tuple[tuple[int, bytes], ...]

    @property
    def size_bytes(self) -> int:
        """Of the whole archive."""
        at, last = self.frames[-1]
        return at + len(last)


def layout(manifest: Manifest, size_bytes: int) -> Layout:
    """The layout for a manifest whose file has so many bytes."""
    at, padding = 0, b""
    begins, frames = {}, []
    sizes = {name: manifest.files[name].size_bytes for name in sorted(manifest.files)}
    for name, size in {manifests.FILE_NAME: size_bytes, **sizes}.items():
        frame = padding + _entry(name, size)
        frames.append((at, frame))
        begins[name] = at + len(frame)
        at = begins[name] + size
        padding = bytes(-size % _BLOCK)
    frames.append((at, padding + bytes(2 * _BLOCK)))
    return Layout(begins, tuple(frames))


def read(file: BufferedReader, path: Path) -> tuple[Manifest, Mapping[str, int]]:
    """The manifest in an archive, and where each file begins; their bytes are not looked at.

    `path` is what errors call the file.

    Raises:
        BundleNotFound: It is no archive of a bundle.
        BundleCorrupt: It has not the bytes that `layout` gives for its manifest.
    """
    head = file.read(_BLOCK)
    digits = head[_SIZE]
    if not head.startswith(manifests.FILE_NAME.encode() + b"\0") or not digits.isdigit():
        raise BundleNotFound(
            f"{path} is no bundle",
            reason="it is a file, and does not begin as an archive of a bundle does",
            hint="pass what `aotpipe build` or `aotpipe archive` wrote",
        )
    size = int(digits, 8) if not digits.strip(b"01234567") else limits.SIZE_BYTES + 1
    if size > limits.SIZE_BYTES:
        raise BundleCorrupt(f"{manifests.FILE_NAME} is not a manifest", reason=f"it has {size} bytes or more")
    manifest = manifests.read(file.read(size))
    found = layout(manifest, size)
    wrong = os.fstat(file.fileno()).st_size != found.size_bytes
    for at, frame in () if wrong else found.frames:
        file.seek(at)
        wrong = wrong or file.read(len(frame)) != frame
    if wrong:
        raise BundleCorrupt(
            f"{path} is not the archive that belongs to its manifest",
            reason="something was added, moved or cut off",
            hint="copy it again, or make it with `aotpipe archive`",
        )
    return manifest, found.begins


def _entry(name: str, size_bytes: int) -> bytes:
    """What stands before a file: a header, after records (pax) of what does not fit one."""
    records = _record("path", name) if len(name) > _NAME else b""
    if size_bytes >= _MOST_BYTES:
        records += _record("size", str(size_bytes))
        size_bytes = 0
    before = _header("pax", len(records), b"x") + records + bytes(-len(records) % _BLOCK) if records else b""
    return before + _header(name[:_NAME], size_bytes, b"0")


def _record(key: str, value: str) -> bytes:
    text = f" {key}={value}\n"
    length = len(text)
    while length != len(f"{length}{text}"):  # it counts its own digits
        length = len(f"{length}{text}")
    return f"{length}{text}".encode()


def _header(name: str, size_bytes: int, kind: bytes) -> bytes:
    mode, zero = b"0000644\0", b"0000000\0"
    before = name.encode().ljust(_NAME, b"\0") + mode + zero * 2 + b"%011o\0%011o\0" % (size_bytes, 0)
    after = kind + bytes(100) + b"ustar\x0000" + bytes(64) + zero * 2
    checksum = sum(before + b" " * 8 + after)
    return (before + b"%06o\0 " % checksum + after).ljust(_BLOCK, b"\0")
