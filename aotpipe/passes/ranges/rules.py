"""How each op carries intervals from its operands to its result.

`interval(node, space, of)` gives the interval of a node's value from those of its arguments, which
`of(argument)` gives. An op that the table lacks, and whatever may overflow, gives what the dtype says. A rule
may be loose, never wrong: a value outside its interval would let a program read foreign memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Final

import torch
from torch.fx import Node

from aotpipe.passes import ops
from aotpipe.passes.ranges import arithmetic, conditions, indices
from aotpipe.passes.ranges.intervals import ANY, BIT, FALSE, Call, Interval, Of, Rule, Space, of_dtype


def interval(node: Node, space: Space, of: Of) -> Interval:
    """The interval of a node's value."""
    call = Call(node, space, of)
    rule = RULES.get(ops.name_of(node))
    found = rule(call) if rule else ANY
    return _fitting(found, call.value.dtype, space) if isinstance(call.value, torch.Tensor) else found


def _fitting(found: Interval, dtype: torch.dtype, space: Space) -> Interval:
    """The interval if all of it fits the dtype, else what the dtype says."""
    limits = of_dtype(dtype)
    if limits.is_open:
        return ANY if dtype.is_complex else found
    numbers = space.numeric(found)
    if numbers.low is None or numbers.high is None:
        return limits
    assert limits.low is not None
    assert limits.high is not None
    return found if limits.low <= numbers.low and numbers.high <= limits.high else limits


def _each(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: Final[Mapping[str, Rule]] = {
    # elements of the first operand
    **_each(
        "view _unsafe_view reshape expand permute transpose t squeeze unsqueeze flatten movedim", indices.same
    ),
    **_each("clone alias detach contiguous lift_fresh_copy flip roll repeat diagonal unfold", indices.same),
    **_each("index_select gather index _unsafe_index embedding take amax amin", indices.same),
    **_each("expand_copy view_copy _local_scalar_dense", indices.same),
    "select": indices.selected,
    "slice": indices.sliced,
    "_to_copy": arithmetic.cast,
    "copy": indices.argument("src"),
    # elements of several operands
    "where": indices.union_of("self", "other"),
    **_each("masked_fill constant_pad_nd", indices.union_of("self", "value")),
    **_each("slice_scatter select_scatter", indices.union_of("self", "src")),
    "scatter": indices.scattered,
    "index_put": indices.put,
    **_each("cat stack", indices.joined),
    **_each("tril triu", lambda call: call.space.union(FALSE, indices.same(call))),
    # constants
    **_each("full full_like new_full", indices.argument("fill_value")),
    "scalar_tensor": indices.argument("s"),
    **_each("zeros zeros_like new_zeros", indices.constant(0)),
    **_each("ones ones_like new_ones", indices.constant(1)),
    # arithmetic
    "add": arithmetic.plus,
    "sub": arithmetic.minus,
    "rsub": arithmetic.minus_reversed,
    "mul": arithmetic.times,
    "neg": arithmetic.negated,
    "abs": arithmetic.absolute,
    "div": arithmetic.quotient,
    "floor_divide": partial(arithmetic.quotient, mode="floor"),
    "remainder": arithmetic.remainder(),
    "fmod": arithmetic.remainder(signed=True),
    **_each("clamp clamp_min clamp_max", arithmetic.clamped),
    "maximum": arithmetic.of_operands(arithmetic.at_least),
    "minimum": arithmetic.of_operands(arithmetic.at_most),
    "floor": partial(arithmetic.whole, function=math.floor),
    "ceil": partial(arithmetic.whole, function=math.ceil),
    "trunc": partial(arithmetic.whole, function=math.trunc),
    "sum": indices.total,
    "cumsum": indices.running_total,
    # truth
    **{name: partial(conditions.compared, name=name) for name in conditions.ORDER},
    **_each("bitwise_and logical_and", conditions.both),
    **_each("bitwise_or logical_or", conditions.either),
    **_each("bitwise_not logical_not", conditions.negation),
    "all": conditions.all_of,
    "any": lambda _: BIT,
    # positions
    "arange": indices.arange,
    "iota": indices.iota,
    **_each("argmax argmin argsort", indices.position),
    "nonzero": indices.nonzero,
    "searchsorted": indices.place_in("sorted_sequence"),
    "bucketize": indices.place_in("boundaries"),
    **_each("sym_size sym_numel", indices.size),
    "sym_storage_offset": lambda _: Interval(0),
    "getitem": indices.taken,
}
"""By the op's name without its overload."""
