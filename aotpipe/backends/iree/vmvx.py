"""Modules as IREE's portable bytecode takes them.

`alone(module)` keeps what follows a convolution over a batch that varies out of its kernel: for both in
one, the compiler (3.13) reserves memory for every row that the batch may have, and refuses that
("'memref.alloca' op incorrect number of dynamic sizes, has 1, expected 0").
"""

from __future__ import annotations

import re
from typing import Final

_CONVOLUTION: Final = re.compile(
    r"^(?P<space> *)%(?P<name>\w+) = (?P<op>torch\.aten\.convolution [^\n]*"
    r"-> (?P<type>!torch\.vtensor<\[(?P<sizes>\?(?:,\d+)*)\],(?P<element>f32|f64)>))(?P<end>[^\n]*)$",
    re.MULTILINE,
)


def alone(module: bytes) -> bytes:
    """A module of the torch dialect whose convolutions over a batch that varies are a kernel each."""
    return _CONVOLUTION.sub(_barred, module.decode()).encode()


def _barred(found: re.Match[str]) -> str:
    name, op, type_, end = (found[key] for key in ("name", "op", "type", "end"))
    plain = f"tensor<{found['sizes'].replace(',', 'x')}x{found['element']}>"
    lines = (
        f"%alone_{name} = {op}{end}",
        f"%plain_{name} = torch_c.to_builtin_tensor %alone_{name} : {type_} -> {plain}{end}",
        f"%kept_{name} = util.optimization_barrier %plain_{name} : {plain}{end}",
        # Behind the barrier nothing else tells the batch.
        f"%first_{name} = arith.constant 0 : index{end}",
        f"%batch_{name} = tensor.dim %plain_{name}, %first_{name} : {plain}{end}",
        f"%tied_{name} = flow.tensor.tie_shape %kept_{name} : {plain}{{%batch_{name}}}{end}",
        f"%{name} = torch_c.from_builtin_tensor %tied_{name} : {plain} -> {type_}{end}",
    )
    return "\n".join(found["space"] + line for line in lines)
