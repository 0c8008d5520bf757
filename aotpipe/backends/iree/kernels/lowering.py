"""What an op of `tuning.kernels` becomes for a target: a dispatch of its own, or ops of the torch dialect.

Weights are put into panels by ops that the compiler runs once, when a program is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import Rewrite, replace_uses
from aotpipe.backends.iree.kernels import convolution
from aotpipe.backends.iree.kernels.convolution import Convolution, Registers, Tiling
from aotpipe.backends.iree.kernels.inlining import inlined
from aotpipe.core.targets import Target
from aotpipe.runtime import toolchain

_OP: Final = "torch.aotpipe.convolution_channels_last"
_AVX512: Final = Registers(16, 32)
_AVX: Final = Registers(8, 16)
_SSE: Final = Registers(4, 16)
_NEON: Final = Registers(4, 32)


def rewrite(targets: Sequence[Target]) -> Rewrite:
    """The rewrite of a lowered module for some targets that share a program."""
    return Rewrite(
        ("torch.operator",),
        partial(_rewrite, registers(targets)),
        seen_as=re.compile(re.escape(_OP.encode())),
    )


def registers(targets: Sequence[Target]) -> Registers | None:
    """The vector registers that all targets have; None where one of them takes no kernel of ours."""
    found = [_registers(target) for target in targets]
    return None if None in found else min(each for each in found if each)


def _registers(target: Target) -> Registers | None:
    if target.backend != "iree" or target.device != "cpu":
        return None
    names = toolchain.host_features() if target.is_host else (target.arch, *target.row.features)
    if "avx512f" in names:
        return _AVX512
    if "avx2" in names and "fma" in names:
        return _AVX
    return _NEON if "aarch64" in names else _SSE


def _rewrite(has: Registers | None, op: Any) -> bool:
    if op.attributes["name"].value != _OP:
        return False
    conv = _convolution(op)
    replace_uses(op.results[0], partial(_plain, conv, op) if has is None else partial(_kernel, conv, has, op))
    op.erase()
    return True


def _convolution(op: Any) -> Convolution:
    from aotpipe.backends.iree.lower.region_borders import builtin_type

    x, weight = (builtin_type(operand.type) for operand in list(op.operands)[:2])
    size: Any = tuple(None if x.is_dynamic_dim(dim) else x.shape[dim] for dim in range(5))
    stride, dilation = (_numbers(op.operands[place]) for place in (2, 3))
    outputs, _, *kernel = weight.shape
    [groups] = _numbers(op.operands[4])
    return Convolution(
        size, outputs, (kernel[0], kernel[1], kernel[2]), stride, dilation, groups, str(x.element_type)
    )


def _numbers(value: Any) -> Any:
    """A constant number of torch's or a list of them."""
    if value.owner.name == "torch.prim.ListConstruct":
        return tuple(number for operand in value.owner.operands for number in _numbers(operand))
    return (value.owner.attributes["value"].value,)


def _kernel(conv: Convolution, has: Registers, op: Any) -> Any:
    from aotpipe.backends.iree.lower.region_borders import convert, to_builtin

    tiles = convolution.tiling(conv, has)
    x, weight = (to_builtin(operand) for operand in list(op.operands)[:2])
    panels = inlined(packing(conv, tiles), [weight])
    found = inlined(convolution.text(conv, tiles, _name(conv)), [x, panels])
    return convert(found, op.results[0].type)


def _name(conv: Convolution) -> str:
    parts = (conv.size, (conv.outputs, conv.groups), conv.kernel, conv.stride, conv.dilation)
    return f"convolve_{conv.element}_" + "_".join(
        "x".join("d" if each is None else str(each) for each in part) for part in parts
    )


def packing(conv: Convolution, tiles: Tiling) -> str:
    """Weights `[outputs, channels / groups, *kernel]` as panels `[panels, kernel * channels, outputs]`."""
    groups, outputs, taps = conv.groups, conv.outputs // conv.groups, prod(conv.kernel)
    channels, kernel = conv.reduced // taps, "x".join(map(str, conv.kernel))
    element = conv.element
    whole, panels, width = tiles.panels * tiles.width, tiles.panels, tiles.width
    return f"""
!given = tensor<{conv.outputs}x{channels}x{kernel}x{element}>
!flat = tensor<{conv.outputs}x{channels}x{taps}x{element}>
!groups = tensor<{groups}x{outputs}x{channels}x{taps}x{element}>
!whole = tensor<{groups}x{whole}x{channels}x{taps}x{element}>
!apart = tensor<{groups}x{panels}x{width}x{channels}x{taps}x{element}>
!turned = tensor<{groups}x{panels}x{taps}x{channels}x{width}x{element}>
!panels = tensor<{groups * panels}x{conv.reduced}x{width}x{element}>
util.func private @pack(%given: !given) -> !panels {{
  %flat = tensor.collapse_shape %given [[0], [1], [2, 3, 4]] : !given into !flat
  %groups = tensor.expand_shape %flat [[0, 1], [2], [3]]
      output_shape [{groups}, {outputs}, {channels}, {taps}] : !flat into !groups
  %whole = tensor.pad %groups low[0, 0, 0, 0] high[0, {whole - outputs}, 0, 0] {{
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    %zero = arith.constant 0.0 : {element}
    tensor.yield %zero : {element}
  }} : !groups to !whole
  %apart = tensor.expand_shape %whole [[0], [1, 2], [3], [4]]
      output_shape [{groups}, {panels}, {width}, {channels}, {taps}] : !whole into !apart
  %empty = tensor.empty() : !turned
  %turned = linalg.transpose ins(%apart : !apart) outs(%empty : !turned) permutation = [0, 1, 4, 3, 2]
  %panels = tensor.collapse_shape %turned [[0, 1], [2, 3], [4]] : !turned into !panels
  util.return %panels : !panels
}}
"""


def _plain(conv: Convolution, op: Any) -> Any:
    """The convolution by ops of the compiler's own."""
    from aotpipe.backends.iree.lower.region_borders import convert, to_builtin

    is_pointwise = conv.groups == 1 and prod((*conv.kernel, *conv.stride)) == 1
    if is_pointwise:
        x, weight = (to_builtin(operand) for operand in list(op.operands)[:2])
        return convert(inlined(_matmul(conv), [x, weight]), op.results[0].type)
    return _of_torch(conv, op)


def _matmul(conv: Convolution) -> str:
    """A convolution of single pixels as the product of all of them by the weights."""
    *sizes, channels = conv.size
    names = ["?" if size is None else str(size) for size in sizes]
    rows = "?" if None in sizes else str(prod(size or 0 for size in sizes))
    dims = [f"%size{dim}" if size is None else str(size) for dim, size in enumerate(sizes)]
    found = "\n  ".join(
        f"%at{dim} = arith.constant {dim} : index\n  %size{dim} = tensor.dim %x, %at{dim} : !x"
        for dim, size in enumerate(sizes)
        if size is None
    )
    element, outputs = conv.element, conv.outputs
    return f"""
!x = tensor<{"x".join(names)}x{channels}x{element}>
!weight = tensor<{outputs}x{channels}x1x1x1x{element}>
!rows = tensor<{rows}x{channels}x{element}>
!columns = tensor<{outputs}x{channels}x{element}>
!matrix = tensor<{channels}x{outputs}x{element}>
!made = tensor<{rows}x{outputs}x{element}>
!found = tensor<{"x".join(names)}x{outputs}x{element}>
func.func private @call(%x: !x, %weight: !weight) -> !found {{
  %rows = tensor.collapse_shape %x [[0, 1, 2, 3], [4]] : !x into !rows
  %columns = tensor.collapse_shape %weight [[0], [1, 2, 3, 4]] : !weight into !columns
  %turned = tensor.empty() : !matrix
  %matrix = linalg.transpose ins(%columns : !columns) outs(%turned : !matrix) permutation = [1, 0]
  %first = arith.constant 0 : index
  %count = tensor.dim %rows, %first : !rows
  %empty = tensor.empty({"%count" if rows == "?" else ""}) : !made
  %zero = arith.constant 0.0 : {element}
  %zeros = linalg.fill ins(%zero : {element}) outs(%empty : !made) -> !made
  %made = linalg.matmul ins(%rows, %matrix : !rows, !matrix) outs(%zeros : !made) -> !made
  {found}
  %found = tensor.expand_shape %made [[0, 1, 2, 3], [4]]
      output_shape [{", ".join([*dims, str(outputs)])}] : !made into !found
  return %found : !found
}}
"""


def _of_torch(conv: Convolution, op: Any) -> Any:
    """By an op of torch's, with the channels before the sizes."""
    x, weight, found = (str(value.type) for value in (op.operands[0], op.operands[1], op.results[0]))
    moved = _vtensor(conv.element, conv.size[0], conv.size[4], *conv.size[1:4])
    made = _vtensor(conv.element, conv.size[0], conv.outputs, *conv.counts)
    stride, dilation = (
        _list_of(name, each) for name, each in (("stride", conv.stride), ("spread", conv.dilation))
    )
    text = f"""
func.func private @call(%x: {x}, %weight: {weight}) -> {found} {{
  {_list_of("first", (0, 4, 1, 2, 3))}
  {_list_of("last", (0, 2, 3, 4, 1))}
  {stride}
  {dilation}
  {_list_of("padding", (0, 0, 0))}
  %groups = torch.constant.int {conv.groups}
  %false = torch.constant.bool false
  %none = torch.constant.none
  %moved = torch.aten.permute %x, %first : {x}, !torch.list<int> -> {moved}
  %made = torch.aten.convolution %moved, %weight, %none, %stride, %padding, %spread, %false, %padding, %groups
      : {moved}, {weight}, !torch.none, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool,
      !torch.list<int>, !torch.int -> {made}
  %found = torch.aten.permute %made, %last : {made}, !torch.list<int> -> {found}
  return %found : {found}
}}
"""
    return inlined(text, list(op.operands)[:2])


def _vtensor(element: str, *sizes: int | None) -> str:
    return f"!torch.vtensor<[{','.join('?' if size is None else str(size) for size in sizes)}],{element}>"


def _list_of(name: str, numbers: Sequence[int]) -> str:
    """A list of torch's with constants."""
    each = "\n".join(f"%{name}{place} = torch.constant.int {number}" for place, number in enumerate(numbers))
    names, types = (
        ", ".join(parts)
        for parts in ([f"%{name}{place}" for place in range(len(numbers))], ["!torch.int"] * len(numbers))
    )
    return f"{each}\n  %{name} = torch.prim.ListConstruct {names} : ({types}) -> !torch.list<int>"
