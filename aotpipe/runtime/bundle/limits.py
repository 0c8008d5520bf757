"""What a manifest may hold at most: reading one takes less than a second and 200 MB, whoever wrote it.

    bytes            2 MiB, at most 50 000 JSON values, 64 levels; integers of 64 bits
    names            1000 characters
    programs         256, with variants; of entry points as many, with those of segments
    tensors          10 000, of all signatures together, of at most 64 dims each
    dim expressions  2000 different ones with guards, of 2000 characters each and 100 000 together

`parsed` reads JSON, `require` looks at the signatures. Both raise ValueError. Torch-free.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from itertools import chain
from typing import Any, Final

import numpy as np

from aotpipe.core.signature import MAX_SIZE, Signature, dim_symbols, evaluate_dim, guard_holds

SIZE_BYTES: Final = 2 << 20
_VALUES: Final = 50_000
_DEPTH: Final = 64
_NAME: Final = 1000
_PROGRAMS: Final = 256
_ENTRY_POINTS: Final = 256
_TENSORS: Final = 10_000
_EXPRESSIONS: Final = 2000
_EXPRESSIONS_LENGTH: Final = 100_000
# A string, also one without an end: what is possessive takes linear time.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def parsed(data: bytes) -> Any:
    """The JSON value that a text of UTF-8 is.

    Raises:
        ValueError: It is none, or passes a limit.
    """
    _at_most(SIZE_BYTES, len(data), "bytes")
    # Texts are taken apart, too: dims stand between commas.
    for mark in (b",", b'"'):
        _at_most(4 * _VALUES, data.count(mark), f"characters {mark.decode()}")
    # Counted before json makes objects of them; each value but the first follows a bracket or a comma.
    marks = np.frombuffer(_STRING.sub(b"", data), np.uint8)
    opening = (marks == ord("[")) | (marks == ord("{"))
    closing = (marks == ord("]")) | (marks == ord("}"))
    _at_most(_VALUES, int(np.count_nonzero(opening) + np.count_nonzero(marks == ord(","))), "values")
    depth = np.cumsum(opening.astype(np.int8) - closing.astype(np.int8), dtype=np.int32)
    _at_most(_DEPTH, int(depth.max(initial=0)), "levels")
    return json.loads(data.decode(), parse_int=_integer)


def require(names: Collection[str], signatures: Collection[Signature], *, programs: int) -> None:
    """Check how much there is of each, and that the dims and guards of signatures can be computed.

    Raises:
        ValueError: A limit is passed, or a dim or a guard is no expression of sizes.
    """
    _at_most(_PROGRAMS, programs, "programs")
    _at_most(_ENTRY_POINTS, len(signatures), "entry points")
    parts = (each for s in signatures for each in (s.tensor_inputs, s.tensor_outputs, s.state))
    tensors = list(chain.from_iterable(parts))
    _at_most(_TENSORS, len(tensors), "tensors")
    symbols = [symbol for signature in signatures for symbol in signature.symbols]
    for name in (*names, *(each.name for each in tensors), *(each.name for each in symbols)):
        _at_most(_NAME, len(name), "characters in a name")
    if wide := next((each for each in symbols if max(each.min, each.max or 0) > MAX_SIZE), None):
        raise ValueError(f"a size of the symbol {wide.name!r} is no integer of 64 bits")
    dims = {dim for each in tensors for dim in each.dims if isinstance(dim, str)}
    guards = {guard for signature in signatures for guard in signature.guards}
    _at_most(_EXPRESSIONS, len(dims) + len(guards), "expressions of sizes")
    _at_most(_EXPRESSIONS_LENGTH, sum(map(len, (*dims, *guards))), "characters in expressions of sizes")
    for texts, compute in ((dims, evaluate_dim), (guards, guard_holds)):
        for text in texts:
            try:
                compute(text, dict.fromkeys(dim_symbols(text), 2))
            except ArithmeticError as error:
                if not dim_symbols(text):
                    raise ValueError(f"{text!r} has no value: {error}") from error
                # It may have one at other sizes.


def _at_most(limit: int, count: int, what: str) -> None:
    if count > limit:
        raise ValueError(f"it has more than {limit} {what}")


def _integer(text: str) -> int:
    if not -MAX_SIZE <= (value := int(text)) <= MAX_SIZE:
        raise ValueError(f"{text[:24]} is no integer of 64 bits")
    return value
