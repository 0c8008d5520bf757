"""Compares signed 64-bit integers as unsigned ones, where a Vulkan driver would compare them wrongly.

Mesa's compiler (22.3, Debian 12's lavapipe) turns `int64(a) <= 12`, where `a` is an int32, into a comparison
of 32 bits that is false for each. It knows the pattern by its widened operand: with both sign bits flipped,
the unsigned comparison says the same and the pattern is gone. `unsigned(module)` takes a module in the
compiler's `input` phase and looks at what kernels compute; None where nothing is compared.
"""

from __future__ import annotations

import re
from typing import Final

FORM: Final = 1
"""What is written changes with this number, so that no older program is taken from a store."""

_BODY: Final = re.compile(r"^ *\^bb0\(.*?^ *linalg\.yield ", re.MULTILINE | re.DOTALL)
_SIGNED: Final = re.compile(
    r"^(?P<space> *)%(?P<name>\w+) = arith\.cmpi s(?P<order>lt|le|gt|ge), "
    r"%(?P<left>[\w#-]+), %(?P<right>[\w#-]+) : i64(?P<end>[^\n]*)$",
    re.MULTILINE,
)


def unsigned(module: str) -> str | None:
    """The module with each comparison of a kernel rewritten; None where there is none."""
    changed = _BODY.sub(lambda body: _SIGNED.sub(_flipped, body[0]), module)
    return changed if changed != module else None


def _flipped(found: re.Match[str]) -> str:
    name = found["name"]
    lines = (
        f"%sign_{name} = arith.constant {-(2**63)} : i64",
        f"%left_{name} = arith.xori %{found['left']}, %sign_{name} : i64",
        f"%right_{name} = arith.xori %{found['right']}, %sign_{name} : i64",
        f"%{name} = arith.cmpi u{found['order']}, %left_{name}, %right_{name} : i64",
    )
    return "\n".join(f"{found['space']}{line}{found['end']}" for line in lines)
