"""Modules as devices take them whose memory is the host's own: numbers are read where a kernel wrote them.

`in_place(module)` rewrites what the importer writes for a number that the host reads (`tensor.extract` of a
tensor of one element). For that the compiler (3.13) has the element copied to a buffer which it knows to be
the host's: an allocation and a copy for each trip of a loop whose test reads data. What a CPU's devices
allocate the host can map in any case; what a GPU's do, it cannot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from aotpipe.core.targets import Target

_READ: Final = re.compile(
    r"^(?P<space> *)%(?P<name>\w+) = tensor\.extract (?P<from>%[\w#]+)\[[^]]*\]"
    r" : (?P<type>tensor<(?:1x)*(?P<element>i1|i32|i64)>)(?P<end>[^\n]*)$",
    re.MULTILINE,
)


def can_be_in_place(targets: Iterable[Target]) -> bool:
    """Whether all devices of a program share the host's memory."""
    return all(target.row.driver.startswith("local-") for target in targets)


def in_place(module: bytes) -> bytes:
    """A module of the torch dialect that reads numbers where they are."""
    return _READ.sub(_loaded, module.decode()).encode()


def _loaded(found: re.Match[str]) -> str:
    name, end = found["name"], found["end"]
    lines = (
        f"%at_{name} = arith.constant 0 : index{end}",
        f"%in_{name} = hal.tensor.export {found['from']} : {found['type']} -> !hal.buffer{end}",
        f"%{name} = hal.buffer.load<%in_{name} : !hal.buffer>[%at_{name}] : {found['element']}{end}",
    )
    return "\n".join(found["space"] + line for line in lines)
