"""Several files as one: a JSON header, then the bytes of each. Equal contents give equal bytes. Torch-free.

Raises `BundleCorrupt` where the bytes are not what `write` gave.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from aotpipe.errors import BundleCorrupt

_MAGIC: Final = b"aotpipe-xla-1\n"
_LENGTH_BYTES: Final = 8


def write(index: Mapping[str, Any], parts: Mapping[str, bytes]) -> bytes:
    """Some bytes under their names, and an index of JSON values."""
    listed = {name: [len(part), hashlib.sha256(part).hexdigest()] for name, part in parts.items()}
    header = json.dumps({"index": dict(index), "parts": listed}, sort_keys=True).encode()
    ordered = [parts[name] for name in sorted(parts)]
    return b"".join([_MAGIC, len(header).to_bytes(_LENGTH_BYTES, "little"), header, *ordered])


def is_one(data: bytes) -> bool:
    """Whether some bytes begin with the magic number that `write` puts first."""
    return data.startswith(_MAGIC)


def read(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read what `write` gave: the index and the parts.

    Raises:
        BundleCorrupt: It is something else, or was changed.
    """
    start = len(_MAGIC) + _LENGTH_BYTES
    end = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    try:
        header = json.loads(data[start:end])
        parts: dict[str, bytes] = {}
        intact = data.startswith(_MAGIC)
        for name, (size, sha256) in sorted(header["parts"].items()):
            parts[name] = bytes(data[end : end + size])
            end += size
            intact = intact and hashlib.sha256(parts[name]).hexdigest() == sha256
        index = dict(header["index"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BundleCorrupt("the bytes are no XLA program of aotpipe", reason=str(error)) from error
    if not intact:
        raise BundleCorrupt("the bytes are no XLA program of aotpipe", reason="they are not as written")
    return index, parts
