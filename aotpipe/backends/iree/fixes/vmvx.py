"""Modules as IREE's portable bytecode takes them.

`portable(module)` mends two things that its compiler (3.13) refuses. What follows a convolution or a pool
over a batch that varies is kept out of its kernel: for both in one, it reserves memory for every row that
the batch may have ("'memref.alloca' op incorrect number of dynamic sizes, has 1, expected 0", or
`RESOURCE_EXHAUSTED` in a call). And float64 is cast to integers by its bits: the bytecode has no such cast
("failed to legalize operation 'arith.fptosi'").
"""

from __future__ import annotations

import re
from typing import Final

FORM: Final = 3
"""What is written changes with this number, so that no older program is taken from a store."""

_WINDOWED: Final = re.compile(
    r"^(?P<space> *)%(?P<name>\w+)(?P<more>, %\w+)? = "
    r"(?P<op>torch\.aten\.(?:convolution|avg_pool[23]d|max_pool[23]d(?:_with_indices)?) [^\n]*"
    r"-> (?P<type>!torch\.vtensor<\[(?P<sizes>\?(?:,\d+)*)\],(?P<element>f32|f64)>)[^\n]*?)"
    r"(?P<end>(?: loc\([^\n]*)?)$",
    re.MULTILINE,
)
_CAST: Final = re.compile(
    r"^(?P<space> *)%(?P<name>\w+) = torch\.aten\._to_copy %(?P<source>\w+), [^\n]*"
    r": (?P<given>!torch\.vtensor<\[(?P<sizes>[\d?,]*)\],f64>), [^\n]*"
    r"-> (?P<type>!torch\.vtensor<\[[\d?,]*\],(?P<sign>[su])i(?P<width>8|16|32|64)>)(?P<end>[^\n]*)$",
    re.MULTILINE,
)
# A float64 is (2**52 + fraction) * 2**(exponent - 1075). What does not fit is the least number, as on x86.
_WHOLE: Final = """\
%bits = arith.bitcast %number : f64 to i64
%fifty_two = arith.constant 52 : i64
%shifted = arith.shrui %bits, %fifty_two : i64
%lowest = arith.constant 2047 : i64
%exponent = arith.andi %shifted, %lowest : i64
%mask = arith.constant 4503599627370495 : i64
%fraction = arith.andi %bits, %mask : i64
%leading = arith.constant 4503599627370496 : i64
%digits = arith.ori %fraction, %leading : i64
%bias = arith.constant 1075 : i64
%down = arith.subi %bias, %exponent : i64
%up = arith.subi %exponent, %bias : i64
%zero = arith.constant 0 : i64
%most = arith.constant 63 : i64
%down_least = arith.maxsi %down, %zero : i64
%down_by = arith.minsi %down_least, %most : i64
%up_least = arith.maxsi %up, %zero : i64
%up_by = arith.minsi %up_least, %most : i64
%cut = arith.shrui %digits, %down_by : i64
%size = arith.shli %cut, %up_by : i64
%below = arith.cmpi slt, %bits, %zero : i64
%negated = arith.subi %zero, %size : i64
%signed = arith.select %below, %negated, %size : i64
%first_beyond = arith.constant 1086 : i64
%beyond = arith.cmpi sge, %exponent, %first_beyond : i64
%least = arith.constant -9223372036854775808 : i64
%whole = arith.select %beyond, %least, %signed : i64
"""


def portable(module: bytes) -> bytes:
    """A module of the torch dialect without what the compiler refuses."""
    return _CAST.sub(_by_bits, _WINDOWED.sub(_barred, module.decode())).encode()


def _by_bits(found: re.Match[str]) -> str:
    name, end, width = found["name"], found["end"], found["width"]
    sizes = found["sizes"].split(",") if found["sizes"] else []
    plain, made = (f"tensor<{''.join(f'{size}x' for size in sizes)}{of}>" for of in ("f64", f"i{width}"))
    dims = ", ".join(f"d{dim}" for dim in range(len(sizes)))
    varying = [dim for dim, size in enumerate(sizes) if size == "?"]
    parallel = ", ".join(['"parallel"'] * len(sizes))
    same = f"affine_map<({dims}) -> ({dims})>"
    lines = [
        f"%plain_{name} = torch_c.to_builtin_tensor %{found['source']} : {found['given']} -> {plain}{end}"
    ]
    for dim in varying:
        lines += [
            f"%at{dim}_{name} = arith.constant {dim} : index{end}",
            f"%size{dim}_{name} = tensor.dim %plain_{name}, %at{dim}_{name} : {plain}{end}",
        ]
    result = "%whole" if width == "64" else "%narrow"
    lines += [
        f"%empty_{name} = tensor.empty({', '.join(f'%size{dim}_{name}' for dim in varying)}) : {made}{end}",
        f"%cast_{name} = linalg.generic {{indexing_maps = [{same}, {same}], iterator_types = [{parallel}]}}",
        f"  ins(%plain_{name} : {plain}) outs(%empty_{name} : {made}) {{",
        f"^bb0(%number: f64, %unused: i{width}):",
        *_WHOLE.splitlines(),
        *([] if width == "64" else [f"%narrow = arith.trunci %whole : i64 to i{width}"]),
        f"linalg.yield {result} : i{width}",
        f"}} -> {made}{end}",
        f"%{name} = torch_c.from_builtin_tensor %cast_{name} : {made} -> {found['type']}{end}",
    ]
    return "\n".join(found["space"] + line for line in lines)


def _barred(found: re.Match[str]) -> str:
    name, op, type_, end = (found[key] for key in ("name", "op", "type", "end"))
    plain = f"tensor<{found['sizes'].replace(',', 'x')}x{found['element']}>"
    lines = (
        f"%alone_{name}{found['more'] or ''} = {op}{end}",
        f"%plain_{name} = torch_c.to_builtin_tensor %alone_{name} : {type_} -> {plain}{end}",
        f"%kept_{name} = util.optimization_barrier %plain_{name} : {plain}{end}",
        # Behind the barrier nothing else tells the batch.
        f"%first_{name} = arith.constant 0 : index{end}",
        f"%batch_{name} = tensor.dim %plain_{name}, %first_{name} : {plain}{end}",
        f"%tied_{name} = flow.tensor.tie_shape %kept_{name} : {plain}{{%batch_{name}}}{end}",
        f"%{name} = torch_c.from_builtin_tensor %tied_{name} : {plain} -> {type_}{end}",
    )
    return "\n".join(found["space"] + line for line in lines)
