"""Copies and adds the rows which positions name, as vectors: embeddings, `index_select`, `index_add`.

Each becomes a dispatch that is written out here. Rows that are read for an update alone, such as those of a
bag or the messages of a graph, are not stored in between. Positions are not checked: `passes.index_bounds`
keeps them within the table. Rows are added in the order of their positions, as eager adds them.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import Rewrite, replace_uses
from aotpipe.backends.iree.kernels.inlining import inlined
from aotpipe.core.fixes import Fix

_LONGEST: Final = 64
"""Elements of a row that one vector has at most: four registers of AVX-512 hold as many floats."""
_SHORTEST: Final = 8
_LEAST_ELEMENTS: Final = 4096
"""Fewer are read in less time than one more dispatch takes."""
_COPIED: Final = 1 << 14
"""Elements that a workgroup copies."""
_MOVED: Final = frozenset("f64 f32 f16 bf16 i64 i32 i16 i8".split())
_ADDED: Final = {"f64": "arith.addf", "f32": "arith.addf", "i64": "arith.addi", "i32": "arith.addi"}
_READS: Final = {"torch.aten.index_select": 2, "torch.aten.embedding": 1}
"""The operand of a read that has the positions; the table is the first."""
_UPDATE: Final = "torch.aten.index_put"

_FILLS: Final = ("torch.aten.full", "torch.aten.full_like")

_TYPES: Final = """
!rows = tensor<?x{width}x{element}>
!places = tensor<?xi64>
!vector = vector<{lanes}x{element}>
!reads = !iree_tensor_ext.dispatch.tensor<readonly:!rows>
!reads_places = !iree_tensor_ext.dispatch.tensor<readonly:!places>
!writes = !iree_tensor_ext.dispatch.tensor<writeonly:!rows>
"""
# The results of both kernels are buffers of their own: in that of an operand, which another one may share, a
# kernel would read what it has written.
_COPY: Final = """
flow.executable private @{name} {{
  flow.executable.export public @{name} workgroups(%size: index, %count: index) -> (index, index, index) {{
    %c1 = arith.constant 1 : index
    %group = arith.constant {group} : index
    %groups = arith.ceildivsi %count, %group : index
    flow.return %groups, %c1, %c1 : index, index, index
  }}
  builtin.module {{
    func.func @{name}(%table_in: !reads, %ids_in: !reads_places, %n: index, %m: index, %out: !writes) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %lanes = arith.constant {lanes} : index
      %width = arith.constant {width} : index
      %group = arith.constant {group} : index
      %pad = arith.constant {zero} : {element}
      %size = iree_tensor_ext.dispatch.workload.ordinal %n, 0 : index
      %count = iree_tensor_ext.dispatch.workload.ordinal %m, 1 : index
      %table_tied = flow.dispatch.tie_shape %table_in : !reads{{%size}}
      %ids_tied = flow.dispatch.tie_shape %ids_in : !reads_places{{%count}}
      %out_tied = flow.dispatch.tie_shape %out : !writes{{%count}}
      %table = iree_tensor_ext.dispatch.tensor.load %table_tied, offsets = [0, 0], sizes = [%size, {width}],
          strides = [1, 1] : !reads{{%size}} -> !rows
      %ids = iree_tensor_ext.dispatch.tensor.load %ids_tied, offsets = [0], sizes = [%count],
          strides = [1] : !reads_places{{%count}} -> !places
      %id = flow.dispatch.workgroup.id[0] : index
      %first = arith.muli %id, %group : index
      %left = arith.subi %count, %first : index
      %here = arith.minsi %left, %group : index
      %empty = tensor.empty(%here) : !rows
      %made = scf.for %i = %c0 to %here step %c1 iter_args(%all = %empty) -> (!rows) {{
        %nth = arith.addi %first, %i : index
        %place = tensor.extract %ids[%nth] : !places
        %row = arith.index_cast %place : i64 to index
        %written = scf.for %column = %c0 to %width step %lanes iter_args(%some = %all) -> (!rows) {{
          %value = vector.transfer_read %table[%row, %column], %pad {{in_bounds = [true]}} : !rows, !vector
          %next = vector.transfer_write %value, %some[%i, %column] {{in_bounds = [true]}} : !vector, !rows
          scf.yield %next : !rows
        }}
        scf.yield %written : !rows
      }}
      iree_tensor_ext.dispatch.tensor.store %made, %out_tied, offsets = [%first, 0], sizes = [%here, {width}],
          strides = [1, 1] : !rows -> !writes{{%count}}
      return
    }}
  }}
}}
util.func private @call(%table: !rows, %ids: !places) -> !rows {{
  %zero = arith.constant 0 : index
  %n = tensor.dim %table, %zero : !rows
  %m = tensor.dim %ids, %zero : !places
  %copied = flow.dispatch @{name}::@{name}[%n, %m](%table, %ids, %n, %m)
      : (!rows{{%n}}, !places{{%m}}, index, index) -> !rows{{%m}}
  util.return %copied : !rows
}}
"""
# A workgroup has a vector's columns and goes through all rows: no two of them write to one element. Where
# the rows are a table's, `ids` says which; else it is not read. One row is for all places, as in eager.
_ADD: Final = """
!part = tensor<?x{lanes}x{element}>
flow.executable private @{name} {{
  flow.executable.export public @{name} workgroups(%size: index, %many: index, %count: index, %rows: index)
      -> (index, index, index) {{
    %c1 = arith.constant 1 : index
    %groups = arith.constant {groups} : index
    flow.return %groups, %c1, %c1 : index, index, index
  }}
  builtin.module {{
    func.func @{name}(%table_in: !reads, %ids_in: !reads_places, %at_in: !reads_places, %into_in: !reads,
        %n: index, %l: index, %m: index, %k: index, %out: !writes) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %lanes = arith.constant {lanes} : index
      %pad = arith.constant {zero} : {element}
      %size = iree_tensor_ext.dispatch.workload.ordinal %n, 0 : index
      %many = iree_tensor_ext.dispatch.workload.ordinal %l, 1 : index
      %count = iree_tensor_ext.dispatch.workload.ordinal %m, 2 : index
      %rows = iree_tensor_ext.dispatch.workload.ordinal %k, 3 : index
      %table_tied = flow.dispatch.tie_shape %table_in : !reads{{%size}}
      %ids_tied = flow.dispatch.tie_shape %ids_in : !reads_places{{%many}}
      %at_tied = flow.dispatch.tie_shape %at_in : !reads_places{{%count}}
      %into_tied = flow.dispatch.tie_shape %into_in : !reads{{%rows}}
      %out_tied = flow.dispatch.tie_shape %out : !writes{{%rows}}
      %table = iree_tensor_ext.dispatch.tensor.load %table_tied, offsets = [0, 0], sizes = [%size, {width}],
          strides = [1, 1] : !reads{{%size}} -> !rows
      %ids = iree_tensor_ext.dispatch.tensor.load %ids_tied, offsets = [0], sizes = [%many],
          strides = [1] : !reads_places{{%many}} -> !places
      %at = iree_tensor_ext.dispatch.tensor.load %at_tied, offsets = [0], sizes = [%count],
          strides = [1] : !reads_places{{%count}} -> !places
      %into = iree_tensor_ext.dispatch.tensor.load %into_tied, offsets = [0, 0], sizes = [%rows, {width}],
          strides = [1, 1] : !reads{{%rows}} -> !rows
      %id = flow.dispatch.workgroup.id[0] : index
      %column = arith.muli %id, %lanes : index
      %last = arith.subi {sources}, %c1 : index
      %empty = tensor.empty(%rows) : !part
      %begun = scf.for %i = %c0 to %rows step %c1 iter_args(%all = %empty) -> (!part) {{
        %value = vector.transfer_read %into[%i, %column], %pad {{in_bounds = [true]}} : !rows, !vector
        %next = vector.transfer_write %value, %all[%i, %c0] {{in_bounds = [true]}} : !vector, !part
        scf.yield %next : !part
      }}
      %none = arith.constant -1 : index
      %zeros = arith.constant dense<{zero}> : !vector
      %made, %last_row, %last_sum = scf.for %i = %c0 to %count step %c1
          iter_args(%all = %begun, %before = %none, %sum = %zeros) -> (!part, index, !vector) {{
        %nth = arith.minsi %i, %last : index
        {read}
        %place = tensor.extract %at[%i] : !places
        %row = arith.index_cast %place : i64 to index
        %value = vector.transfer_read %table[{source}, %column], %pad {{in_bounds = [true]}} : !rows, !vector
        %again = arith.cmpi eq, %row, %before : index
        %old = scf.if %again -> (!vector) {{
          scf.yield %sum : !vector
        }} else {{
          %stored = vector.transfer_read %all[%row, %c0], %pad {{in_bounds = [true]}} : !part, !vector
          scf.yield %stored : !vector
        }}
        %new = {add} %old, %value : !vector
        %next = vector.transfer_write %new, %all[%row, %c0] {{in_bounds = [true]}} : !vector, !part
        scf.yield %next, %row, %new : !part, index, !vector
      }}
      iree_tensor_ext.dispatch.tensor.store %made, %out_tied, offsets = [0, %column],
          sizes = [%rows, {lanes}], strides = [1, 1] : !part -> !writes{{%rows}}
      return
    }}
  }}
}}
util.func private @call(%table: !rows, %ids: !places, %at: !places, %into: !rows) -> !rows {{
  %zero = arith.constant 0 : index
  %n = tensor.dim %table, %zero : !rows
  %l = tensor.dim %ids, %zero : !places
  %m = tensor.dim %at, %zero : !places
  %k = tensor.dim %into, %zero : !rows
  %added = flow.dispatch @{name}::@{name}[%n, %l, %m, %k](%table, %ids, %at, %into, %n, %l, %m, %k)
      : (!rows{{%n}}, !places{{%l}}, !places{{%m}}, !rows{{%k}}, index, index, index, index) -> !rows{{%k}}
  util.return %added : !rows
}}
"""
_FROM_TABLE: Final = """%chosen = tensor.extract %ids[%nth] : !places
        %source = arith.index_cast %chosen : i64 to index"""
_PLACES: Final = {_COPY: (False, True), _ADD: (False, True, True, False)}
"""Which tensors of a kernel are positions."""


def _rewrite(op: Any) -> bool:
    if op.name == _UPDATE:
        return _can_add(op) and _add(op)
    # An update that reads these rows does so itself.
    return _is_read(op) and not _is_added(op) and _copy(op)


def _copy(op: Any) -> bool:
    table, ids = op.operands[0], op.operands[_READS[op.name]]

    def copied() -> Any:
        return _shaped(_called(_COPY, "copy_rows", [table, ids]), op.results[0].type, _type(ids).rank)

    replace_uses(op.results[0], copied)
    return True


def _add(op: Any) -> bool:
    into, places, values, _ = op.operands
    at, read = places.owner.operands[0], values.owner
    is_of_table = _name(read) in _READS and _is_read(read) and _is_added(read)
    table, ids = (read.operands[0], read.operands[_READS[read.name]]) if is_of_table else (values, at)
    text = {
        "sources": "%many" if is_of_table else "%size",
        "read": _FROM_TABLE if is_of_table else "",
        "source": "%source" if is_of_table else "%nth",
        "add": _ADDED[_element(into)],
    }
    name = "add_rows_of_table" if is_of_table else "add_rows"

    def added() -> Any:
        return _shaped(_called(_ADD, name, [table, ids, at, into], **text), op.results[0].type, 1)

    replace_uses(op.results[0], added)
    return True


def _is_read(op: Any) -> bool:
    """Whether an op reads whole rows at positions, enough of them for a kernel."""
    table, ids = op.operands[0], op.operands[_READS[op.name]]
    if op.name == "torch.aten.index_select" and _constant(op.operands[1]) != 0:
        return False
    if not _has_rows(table) or _element(table) not in _MOVED or _element(ids) != "i64":
        return False
    # What is laid out in other dims has sizes that are known.
    is_plain = _type(ids).rank == 1 and _type(table).rank == 2
    return _is_worth(ids, table) and (is_plain or _type(op.results[0]).has_static_shape)


def _is_added(read: Any) -> bool:
    """Whether all that a read gives is added to rows as wide."""
    uses = list(read.results[0].uses)
    if len(uses) != 1 or uses[0].owner.name != _UPDATE or uses[0].operand_number != 2:
        return False
    return _type(read.operands[_READS[read.name]]).rank == 1 and _can_add(uses[0].owner)


def _can_add(op: Any) -> bool:
    """Whether an update adds whole rows at positions, enough of them for a kernel.

    One that replaces rows is the compiler's, which does it in place where it can: of a cache, for example.
    """
    into, places, values, adds = op.operands
    if _name(places.owner) != "torch.prim.ListConstruct" or len(places.owner.operands) != 1:
        return False
    at = places.owner.operands[0]
    if not _constant(adds) or not _has_rows(into) or not _has_rows(values) or _element(at) != "i64":
        return False
    if _element(into) not in _ADDED or _element(values) != _element(into):
        return False
    if _type(into).shape[1:] != _type(values).shape[1:] or _type(into).rank != 2 or _type(at).rank != 1:
        return False
    return _is_worth(at, into) and (_name(into.owner) in _FILLS or _has_few_rows(into, at))


def _has_few_rows(into: Any, at: Any) -> bool:
    """Whether a copy of all rows takes no longer than the additions."""
    rows, places = _type(into), _type(at)
    if not rows.has_static_shape or not places.has_static_shape:
        return False
    return bool(rows.shape[0] <= 4 * places.shape[0])


def _type(value: Any) -> Any:
    from aotpipe.backends.iree.lower.region_borders import builtin_type

    return builtin_type(value.type)


def _element(value: Any) -> str:
    """The element type of a tensor; empty of anything else."""
    return str(getattr(_type(value), "element_type", ""))


def _has_rows(tensor: Any) -> bool:
    """Whether a tensor has rows of a length that is known, and that vectors divide."""
    found = _type(tensor)
    if not hasattr(found, "rank") or found.rank < 2 or any(map(found.is_dynamic_dim, range(1, found.rank))):
        return False
    return _lanes(prod(found.shape[1:])) > 0


def _lanes(width: int) -> int:
    """How many elements of a row a vector has; 0 where none of some length divides it."""
    return next((each for each in range(min(width, _LONGEST), _SHORTEST - 1, -1) if width % each == 0), 0)


def _is_worth(places: Any, table: Any) -> bool:
    found = _type(places)
    if found.rank < 1:
        return False
    return not found.has_static_shape or prod(found.shape) * prod(_type(table).shape[1:]) >= _LEAST_ELEMENTS


def _name(owner: Any) -> str:
    """The name of the op that made a value; empty of the block that has it as an argument."""
    return getattr(owner, "name", None) or ""


def _constant(value: Any) -> int | bool | None:
    """What a constant of torch's is; None where a value is none."""
    if _name(value.owner) not in ("torch.constant.int", "torch.constant.bool"):
        return None
    number: int | bool = value.owner.attributes["value"].value
    return number


def _called(template: str, name: str, tensors: list[Any], **more: str) -> Any:
    """Emit a kernel, given its tensors: a table first, which says how wide rows are."""
    width, element = prod(_type(tensors[0]).shape[1:]), _element(tensors[0])
    lanes = _lanes(width)
    text = (_TYPES + template).format(
        name=f"{name}_{width}x{element}",
        width=width,
        lanes=lanes,
        groups=width // lanes,
        group=max(1, _COPIED // width),
        element=element,
        zero="0" if element.startswith("i") else "0.0",
        **more,
    )
    return inlined(
        text, [_flat(tensor, places) for tensor, places in zip(tensors, _PLACES[template], strict=True)]
    )


def _flat(value: Any, places: bool) -> Any:
    """Emit a tensor as rows of one dim, or `places` without rows, as many as there are."""
    from iree.compiler import ir
    from iree.compiler.dialects import tensor

    from aotpipe.backends.iree.lower.region_borders import convert, to_builtin

    value = to_builtin(value)
    shape, rank = value.type.shape, value.type.rank
    groups = [[*range(rank)]] if places else [[0], [*range(1, rank)]]
    ends = [] if places else [prod(shape[1:])]
    if rank > len(groups):
        first = shape[0] if not places else prod(shape)
        value = tensor.collapse_shape(
            ir.RankedTensorType.get([first, *ends], value.type.element_type), value, groups
        )
    any_number = ir.ShapedType.get_dynamic_size()
    return convert(value, ir.RankedTensorType.get([any_number, *ends], value.type.element_type))


def _shaped(rows: Any, wanted: Any, leading: int) -> Any:
    """Emit rows as a tensor of torch's, whose `leading` dims are those of the positions."""
    from iree.compiler import ir
    from iree.compiler.dialects import tensor

    from aotpipe.backends.iree.lower.region_borders import builtin_type, convert

    plain = builtin_type(wanted)
    if plain.rank == 2 and leading == 1:
        return convert(rows, wanted)
    shape = list(plain.shape)
    counted = ir.RankedTensorType.get([prod(shape[:leading]), prod(shape[leading:])], plain.element_type)
    groups = [[*range(leading)], [*range(leading, plain.rank)]]
    return convert(tensor.expand_shape(plain, convert(rows, counted), groups, [], shape), wanted)


FIX: Final = Fix(
    id="row-copies",
    fault="IREE reads and adds the rows that positions name element by element (`vector.gather`, "
    "`iree_linalg_ext.scatter`): 4096 rows of 64 floats take twice the time to read, and three times to add",
    remedy="a dispatch handles each row as vectors; rows that are read for an update alone are not stored",
    targets=("iree-cpu-*",),
    program="`table.index_select(0, ids)`, `sums.index_add(0, ids, rows)`",
    apply=Rewrite((*_READS, _UPDATE), _rewrite),
    for_all=True,
)
