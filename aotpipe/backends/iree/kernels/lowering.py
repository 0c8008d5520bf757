"""What an op of `tuning.kernels` becomes for a target: a dispatch of its own, or ops of the torch dialect.

Weights are put into panels by ops that the compiler runs once, when a program is loaded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, Final, NamedTuple

from aotpipe.backends.iree.fixes.rewrites import Rewrite, erase_unread, replace_uses
from aotpipe.backends.iree.kernels import (
    bags,
    batch_matmul,
    convolution,
    recurrence_text,
    row_products,
    softmax,
)
from aotpipe.backends.iree.kernels.batch_matmul import Matmul
from aotpipe.backends.iree.kernels.convolution import Convolution, Registers, Tiling
from aotpipe.backends.iree.kernels.inlining import all_inlined, inlined
from aotpipe.backends.iree.kernels.recurrence import Recurrence
from aotpipe.backends.iree.kernels.recurrence_text import Panels
from aotpipe.backends.iree.kernels.row_products import RowProducts
from aotpipe.backends.iree.kernels.steps import Steps, emitted
from aotpipe.core.targets import Target
from aotpipe.runtime import toolchain

_OP: Final = "torch.aotpipe.convolution_channels_last"
_WITH_STEPS: Final = "torch.aotpipe.convolution_with_steps"
_SOFTMAX: Final = "torch.aten._softmax"
_BMM: Final = "torch.aten.bmm"
_SUM: Final = "torch.aten.sum.dim_IntList"
_MUL: Final = "torch.aten.mul.Tensor"
_LEAST_ROWS: Final = 4
"""Fewer rows are no more work than the reading of what multiplies them."""
_LEAST_PRODUCTS: Final = 1 << 16
_LEAST_SOFTENED: Final = 1 << 12
"""Fewer numbers are softened in less time than one more dispatch takes."""
_RECURRENCE: Final = "torch.aotpipe.recurrence"
_BAGS: Final = "torch.aotpipe.bags"
_SEEN_AS: Final = re.compile(
    rb"torch\.aotpipe\.(?:convolution_|recurrence|bags)|torch\.aten\.(?:_softmax|bmm)"
    # Sums of other ranks and dtypes are many, and stay.
    rb"|torch\.aten\.sum\.dim_IntList [^:\n]*: !torch\.vtensor<\[\d+,[\d?]+,\d+\],f32>"
)
_AVX512: Final = Registers(16, 32)
_AVX: Final = Registers(8, 16)
_SSE: Final = Registers(4, 16)
_NEON: Final = Registers(4, 32)


def rewrite(targets: Sequence[Target]) -> Rewrite:
    """The rewrite of a lowered module for some targets that share a program."""
    return _rewrite_for(registers(targets))


def _rewrite_for(has: Registers | None) -> Rewrite:
    return Rewrite(("torch.operator", _SOFTMAX, _BMM, _SUM), partial(_rewrite, has), seen_as=_SEEN_AS)


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
    if op.name == _SOFTMAX:
        return has is not None and _soften(has, op)
    if op.name == _BMM:
        return has is not None and _multiply(has, op)
    if op.name == _SUM:
        return has is not None and _multiply_rows(has, op)
    if op.attributes["name"].value == _RECURRENCE:
        _recur(has, op)
        return True
    if op.attributes["name"].value == _BAGS:
        bags.lower(has, op)
        return True
    call = _Call.of(op)
    if call is None:
        return False
    replace_uses(op.results[0], partial(_plain, call) if has is None else partial(_kernel, has, call))
    op.erase()
    return True


def _soften(has: Registers, op: Any) -> bool:
    """Have a softmax of enough numbers computed by a kernel."""
    from aotpipe.backends.iree.lower.region_borders import builtin_type, convert, to_builtin

    x, dim, _ = op.operands
    found = builtin_type(x.type)
    rank = found.rank
    sizes: list[Any] = [None if found.is_dynamic_dim(each) else found.shape[each] for each in range(rank)]
    if str(found.element_type) != "f32" or not rank or 0 in sizes:
        return False
    if None not in sizes and prod(sizes) < _LEAST_SOFTENED:
        return False
    at = _numbers(dim)[0] % rank
    if at == rank - 1:
        if sizes[-1] is None or sizes[-1] < has.lanes:
            return False
        text = softmax.text(sizes, has)
    else:
        if None in sizes or not softmax.columns_of_group(prod(sizes[at + 1 :])):
            return False
        text = softmax.text_of_columns(sizes, at, has)
    replace_uses(op.results[0], lambda: convert(inlined(text, [to_builtin(x)]), op.results[0].type))
    op.erase()
    return True


def _multiply(has: Registers, op: Any) -> bool:
    """Have enough products of matrices computed by a kernel."""
    from aotpipe.backends.iree.lower.region_borders import builtin_type, convert

    left, right = (builtin_type(each.type) for each in op.operands)
    if str(left.element_type) != "f32" or any(map(left.is_dynamic_dim, (1, 2))) or right.is_dynamic_dim(2):
        return False
    known = [each.shape[0] for each in (left, right) if not each.is_dynamic_dim(0)]
    matmul = Matmul(known[0] if known else None, left.shape[1], left.shape[2], right.shape[2])
    products = (matmul.batch or 1) * matmul.rows * matmul.reduced * matmul.columns
    if matmul.rows < _LEAST_ROWS or matmul.columns < has.lanes or products < _LEAST_PRODUCTS:
        return False
    text = batch_matmul.text(matmul, batch_matmul.tiling(matmul, has))

    def multiplied() -> Any:
        types = [
            ir.RankedTensorType.get(sizes, left.element_type)
            for sizes in ((first, matmul.rows, matmul.reduced), (first, matmul.reduced, matmul.columns))
        ]
        operands = [convert(each, kind) for each, kind in zip(op.operands, types, strict=True)]
        return convert(inlined(text, operands), op.results[0].type)

    from iree.compiler import ir

    first = ir.ShapedType.get_dynamic_size() if matmul.batch is None else matmul.batch
    replace_uses(op.results[0], multiplied)
    op.erase()
    return True


def _multiply_rows(has: Registers, op: Any) -> bool:
    """Have a kernel sum products of `[batch, rows, reduced]` and `[batch, 1, reduced]` over the last dim."""
    from aotpipe.backends.iree.lower.region_borders import builtin_type, convert, to_builtin

    product, dims, keeps, dtype = op.operands
    factors = product.owner
    if getattr(factors, "name", "") != _MUL or len(list(product.uses)) > 1 or _numbers(keeps)[0]:
        return False
    if dtype.owner.name != "torch.constant.none" or str(builtin_type(product.type).element_type) != "f32":
        return False
    kinds = {value: builtin_type(value.type) for value in factors.operands}
    if any(str(kind.element_type) != "f32" or kind.rank != 3 for kind in kinds.values()):
        return False
    vectors = [value for value, kind in kinds.items() if not kind.is_dynamic_dim(1) and kind.shape[1] == 1]
    if len(vectors) != 1 or len(kinds) != 2 or _numbers(dims) not in ((2,), (-1,)):
        return False
    [vector], [matrix] = vectors, [value for value in kinds if value not in vectors]
    kind = kinds[matrix]
    if not kinds[vector].has_static_shape or kind.is_dynamic_dim(0) or kind.is_dynamic_dim(2):
        return False
    (batch, _, reduced), rows = kind.shape, None if kind.is_dynamic_dim(1) else kind.shape[1]
    sizes = RowProducts(batch, rows, reduced)
    cut = row_products.tile(sizes, has)
    if kinds[vector].shape != [batch, 1, reduced] or cut is None:
        return False
    if 0 in (batch, rows) or (rows and batch * rows * reduced < _LEAST_PRODUCTS):
        return False
    text = row_products.text(sizes, cut)
    operands = [matrix, vector]
    replace_uses(
        op.results[0], lambda: convert(inlined(text, list(map(to_builtin, operands))), op.results[0].type)
    )
    op.erase()
    erase_unread([product])
    return True


def _recur(has: Registers | None, op: Any) -> None:
    """Have a scan computed by a kernel, if there is one, and else by its loop."""
    from iree.compiler import ir

    *lists, steps = op.operands
    results, *tensors = (list(each.owner.operands) for each in lists)
    # The importer takes the list of results apart at once.
    [unpacked] = [use.owner for use in op.result.uses]
    found = results
    if has is not None:
        recurrence = Recurrence.parse(steps.owner.attributes["value"].value)
        with ir.InsertionPoint(op), op.location:
            found = _recurrence(has, recurrence, tensors, [each.type for each in results])
    for own, other in zip(unpacked.results, found, strict=True):
        own.replace_all_uses_with(other)
    unpacked.erase()
    erase_unread([op.result])


def _recurrence(
    has: Registers, recurrence: Recurrence, tensors: list[list[Any]], types: list[Any]
) -> list[Any]:
    """Emit the kernel's call: the tensors that the op has, and the types of its results."""
    from aotpipe.backends.iree.lower.region_borders import convert, dim_size, to_builtin

    carries, rows, vectors, matrices = (list(map(to_builtin, each)) for each in tensors)
    length, batch = (None if rows[0].type.is_dynamic_dim(dim) else rows[0].type.shape[dim] for dim in (0, 1))
    decided = [dim_size(rows[0], dim) for dim, size in enumerate((length, batch)) if size is None]
    sizes = "_".join("x".join(map(str, each)) for each in (recurrence.carries, recurrence.rows) if each)
    digest = hashlib.sha256(f"{recurrence}{length}{batch}".encode()).hexdigest()[:8]
    name = f"scan_{length or 'd'}x{batch or 'd'}_{sizes}_{digest}"
    kernel = recurrence_text.kernel(recurrence, length, batch, has, name)
    for place, panels in kernel.panels.items():
        matrices[place] = inlined(_panels_of_matrix(recurrence.matrices[place], panels), [matrices[place]])
    found = all_inlined(kernel.text, [*carries, *rows, *vectors, *matrices, *decided])
    return [convert(each, kind) for each, kind in zip(found, types, strict=True)]


class _Call(NamedTuple):
    """A convolution, and what it is called with: images, weights, and what the steps after it read."""

    conv: Convolution
    after: Steps
    tensors: list[Any]
    result: Any

    @classmethod
    def of(cls, op: Any) -> _Call | None:
        """What an op of ours computes; None of another op."""
        name, operands = op.attributes["name"].value, list(op.operands)
        if name == _OP:
            after, tensors, rest = Steps(), operands[:2], operands[2:]
        elif name == _WITH_STEPS:
            tensors = list(operands[0].owner.operands)
            *rest, channels, text = operands[1:]
            [count] = _numbers(channels)
            after = Steps.parse(text.owner.attributes["value"].value, count, len(tensors) - 2 - count)
        else:
            return None
        return cls(_convolution(*tensors[:2], *rest), after, tensors, op.results[0])


def _convolution(images: Any, weights: Any, *rest: Any) -> Convolution:
    from aotpipe.backends.iree.lower.region_borders import builtin_type

    x, weight = (builtin_type(each.type) for each in (images, weights))
    size: Any = tuple(None if x.is_dynamic_dim(dim) else x.shape[dim] for dim in range(5))
    stride, dilation, [groups] = map(_numbers, rest)
    outputs, _, *kernel = weight.shape
    return Convolution(
        size, outputs, (kernel[0], kernel[1], kernel[2]), stride, dilation, groups, str(x.element_type)
    )


def _numbers(value: Any) -> Any:
    """A constant number of torch's or a list of them."""
    if value.owner.name == "torch.prim.ListConstruct":
        return tuple(number for operand in value.owner.operands for number in _numbers(operand))
    return (value.owner.attributes["value"].value,)


def _kernel(has: Registers, call: _Call) -> Any:
    from aotpipe.backends.iree.lower.region_borders import convert, to_builtin

    conv, after = call.conv, call.after
    tiles = convolution.tiling(conv, has)
    x, weight, *more = map(to_builtin, call.tensors)
    panels = inlined(packing(conv, tiles), [weight])
    numbers = [inlined(_panels_of_numbers(conv, tiles), [each]) for each in more[: after.channels]]
    text = convolution.text(conv, tiles, _name(conv, after), after)
    found = inlined(text, [x, panels, *numbers, *more[after.channels :]])
    return convert(found, call.result.type)


def _name(conv: Convolution, after: Steps) -> str:
    name = _name_of(conv)
    return f"{name}_{hashlib.sha256(str(after).encode()).hexdigest()[:8]}" if after.each else name


def _name_of(conv: Convolution) -> str:
    parts = (conv.size, (conv.outputs, conv.groups), conv.kernel, conv.stride, conv.dilation)
    return f"convolve_{conv.element}_" + "_".join(
        "x".join("d" if each is None else str(each) for each in part) for part in parts
    )


def packing(conv: Convolution, tiles: Tiling) -> str:
    """Weights `[outputs, channels / groups, *kernel]` as panels `[panels, kernel * channels, outputs]`."""
    groups, outputs, taps = conv.parts, conv.outputs // conv.parts, prod(conv.kernel)
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


def _panels_of_numbers(conv: Convolution, tiles: Tiling) -> str:
    """A number for each output as `[panels, outputs]`."""
    groups, outputs = conv.parts, conv.outputs // conv.parts
    whole = tiles.panels * tiles.width
    return f"""
!given = tensor<{conv.outputs}x{conv.element}>
!groups = tensor<{groups}x{outputs}x{conv.element}>
!whole = tensor<{groups}x{whole}x{conv.element}>
!apart = tensor<{groups}x{tiles.panels}x{tiles.width}x{conv.element}>
!panels = tensor<{groups * tiles.panels}x{tiles.width}x{conv.element}>
util.func private @pack(%given: !given) -> !panels {{
  %groups = tensor.expand_shape %given [[0, 1]] output_shape [{groups}, {outputs}] : !given into !groups
  %whole = tensor.pad %groups low[0, 0] high[0, {whole - outputs}] {{
  ^bb0(%a: index, %b: index):
    %zero = arith.constant 0.0 : {conv.element}
    tensor.yield %zero : {conv.element}
  }} : !groups to !whole
  %apart = tensor.expand_shape %whole [[0], [1, 2]] output_shape [{groups}, {tiles.panels}, {tiles.width}]
      : !whole into !apart
  %panels = tensor.collapse_shape %apart [[0, 1], [2]] : !apart into !panels
  util.return %panels : !panels
}}
"""


def _panels_of_matrix(sizes: tuple[int, int], panels: Panels) -> str:
    """A matrix `[rows, parts * columns]` as `[panels, rows, parts * width]`."""
    rows, columns = sizes
    parts, number, width = panels
    return f"""
!given = tensor<{rows}x{columns}xf32>
!apart = tensor<{rows}x{parts}x{number}x{width}xf32>
!turned = tensor<{number}x{rows}x{parts}x{width}xf32>
!panels = tensor<{number}x{rows}x{parts * width}xf32>
util.func private @pack(%given: !given) -> !panels {{
  %apart = tensor.expand_shape %given [[0], [1, 2, 3]] output_shape [{rows}, {parts}, {number}, {width}]
      : !given into !apart
  %empty = tensor.empty() : !turned
  %turned = linalg.transpose ins(%apart : !apart) outs(%empty : !turned) permutation = [2, 0, 1, 3]
  %panels = tensor.collapse_shape %turned [[0], [1], [2, 3]] : !turned into !panels
  util.return %panels : !panels
}}
"""


def _plain(call: _Call) -> Any:
    """The convolution by ops of the compiler's own, and the steps after it as one op of linalg."""
    from aotpipe.backends.iree.lower.region_borders import convert, to_builtin

    conv, (x, weight, *more) = call.conv, call.tensors
    if conv.groups == 1 and prod((*conv.kernel, *conv.stride)) == 1:
        found = inlined(_matmul(conv), [to_builtin(x), to_builtin(weight)])
    elif conv.is_depthwise:
        found = inlined(_depthwise(conv), [to_builtin(x), to_builtin(weight)])
    else:
        found = to_builtin(inlined(_of_torch(conv, x, weight, call.result), [x, weight]))
    if call.after.each:
        found = inlined(_elementwise(conv, call.after), [found, *map(to_builtin, more)])
    return convert(found, call.result.type)


def _elementwise(conv: Convolution, after: Steps) -> str:
    """The steps on each number of a result."""
    sizes = [conv.size[0], *conv.counts]
    shape = "x".join("?" if size is None else str(size) for size in sizes)
    decided = [dim for dim, size in enumerate(sizes) if size is None]
    found = "\n  ".join(
        f"%at{dim} = arith.constant {dim} : index\n  %size{dim} = tensor.dim %v0, %at{dim} : !found"
        for dim in decided
    )
    names = [
        "v0",
        *(f"c{each}" for each in range(after.channels)),
        *(f"i{each}" for each in range(after.images)),
    ]
    types = ["!numbers" if name.startswith("c") else "!found" for name in names]
    maps = ["#of_outputs" if name.startswith("c") else "#whole" for name in names]
    given = {name: f"%{name}_in" for name in names}
    lines, last = emitted(after, given, conv.element, conv.element, "s")
    body = "\n    ".join(lines)
    return f"""
#whole = affine_map<(a, b, c, d, e) -> (a, b, c, d, e)>
#of_outputs = affine_map<(a, b, c, d, e) -> (e)>
!found = tensor<{shape}x{conv.outputs}x{conv.element}>
!numbers = tensor<{conv.outputs}x{conv.element}>
func.func private @call({", ".join(f"%{name}: {kind}" for name, kind in zip(names, types, strict=True))})
    -> !found {{
  {found}
  %empty = tensor.empty({", ".join(f"%size{dim}" for dim in decided)}) : !found
  %found = linalg.generic {{indexing_maps = [{", ".join(maps)}, #whole], iterator_types = ["parallel",
      "parallel", "parallel", "parallel", "parallel"]}}
      ins({", ".join(f"%{name}" for name in names)} : {", ".join(types)}) outs(%empty : !found) {{
  ^bb0({", ".join(f"%{name}_in: {conv.element}" for name in names)}, %out: {conv.element}):
    {body}
    linalg.yield {last} : {conv.element}
  }} -> !found
  return %found : !found
}}
"""


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


def _depthwise(conv: Convolution) -> str:
    """A depthwise convolution of images of known sizes, by the compiler's own loops."""
    made = (conv.size[0], *conv.counts)
    element, kernel = conv.element, "x".join(map(str, conv.kernel))
    places = ", ".join(
        f"{at} * {step} + {tap} * {spread}"
        for at, tap, step, spread in zip("dhw", "ijk", conv.stride, conv.dilation, strict=True)
    )
    x, found = (
        "x".join(map(str, sizes)) for sizes in ((*conv.size[:4], conv.outputs), (*made, conv.outputs))
    )
    return f"""
!x = tensor<{x}x{element}>
!weight = tensor<{conv.outputs}x1x{kernel}x{element}>
!flat = tensor<{conv.outputs}x{kernel}x{element}>
!taps = tensor<{kernel}x{conv.outputs}x{element}>
!found = tensor<{found}x{element}>
func.func private @call(%x: !x, %weight: !weight) -> !found {{
  %flat = tensor.collapse_shape %weight [[0, 1], [2], [3], [4]] : !weight into !flat
  %turned = tensor.empty() : !taps
  %taps = linalg.transpose ins(%flat : !flat) outs(%turned : !taps) permutation = [1, 2, 3, 0]
  %zero = arith.constant 0.0 : {element}
  %empty = tensor.empty() : !found
  %zeros = linalg.fill ins(%zero : {element}) outs(%empty : !found) -> !found
  %found = linalg.generic {{indexing_maps = [
      affine_map<(b, d, h, w, c, i, j, k) -> (b, {places}, c)>,
      affine_map<(b, d, h, w, c, i, j, k) -> (i, j, k, c)>,
      affine_map<(b, d, h, w, c, i, j, k) -> (b, d, h, w, c)>], iterator_types = ["parallel", "parallel",
      "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}}
      ins(%x, %taps : !x, !taps) outs(%zeros : !found) {{
  ^bb0(%pixel: {element}, %tap: {element}, %sum: {element}):
    %product = arith.mulf %pixel, %tap : {element}
    %added = arith.addf %sum, %product : {element}
    linalg.yield %added : {element}
  }} -> !found
  return %found : !found
}}
"""


def _of_torch(conv: Convolution, *values: Any) -> str:
    """By an op of torch's, with the channels before the sizes, of images and weights to a result."""
    x, weight, found = (str(value.type) for value in values)
    moved = _vtensor(conv.element, conv.size[0], conv.size[4], *conv.size[1:4])
    made = _vtensor(conv.element, conv.size[0], conv.outputs, *conv.counts)
    stride, dilation = (
        _list_of(name, each) for name, each in (("stride", conv.stride), ("spread", conv.dilation))
    )
    return f"""
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


PLAIN: Final = _rewrite_for(None)
"""The rewrite of a lowered module that has no kernel of ours."""
