"""Writes a precision policy into exported programs, before they are decomposed.

`Casting(policy).trials(op, dtypes)` says which casts a policy asks of one op, in a graph and in eager alike:
the first that torch takes is it.

`lower(exported, policy)` gives programs in which products are computed in the lower dtype and islands in
float32 (`core.precision`), bodies of control flow too; what they take and give is as before. Parameters
that products alone read are stored in the lower dtype, once for all entry points. The exported programs are
left as they were.
"""

from __future__ import annotations

import copy
import difflib
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node

from aotpipe.core.precision import ISLANDS, PRODUCTS, Precision
from aotpipe.core.stages import Exported
from aotpipe.errors import SpecInvalid
from aotpipe.passes import hops, ops, wrapper_ops
from aotpipe.passes.emit import Emitter

_ATEN: Final = torch.ops.aten


Cast = Callable[[torch.dtype], torch.dtype]
"""From the dtype that an operand has to the one that it gets."""


def lower_dtype(policy: Precision) -> torch.dtype:
    """The dtype that products are computed in."""
    found = getattr(torch, policy.dtype)
    assert isinstance(found, torch.dtype)
    return found


def name_of(op: Any) -> str:
    """An op's name in ATen, without its overload; of another library's op nothing."""
    return str(op.overloadpacket.__name__) if getattr(op, "namespace", "") == "aten" else ""


class Casting:
    """The casts of a policy, each a map of dtypes."""

    def __init__(self, policy: Precision) -> None:
        self.policy = policy
        self.lower: Final = lower_dtype(policy)

    def down(self, dtype: torch.dtype) -> torch.dtype:
        """Float32 to the lower dtype."""
        return self.lower if dtype is torch.float32 else dtype

    def up(self, dtype: torch.dtype) -> torch.dtype:
        """The lower dtype to float32."""
        return torch.float32 if dtype is self.lower else dtype

    def same(self, dtype: torch.dtype) -> torch.dtype:
        """As it is."""
        return dtype

    def trials(
        self, name: str, dtypes: Sequence[torch.dtype], *, mutable: bool = False
    ) -> Iterator[tuple[Cast, Cast]]:
        """What to try for an op: the cast of its operands, and that of its results.

        `name` is of an op of ATen, or of torch's function of that name; an op that is `mutable` writes to an
        operand, which is never cast.
        """
        kind = self.policy.kind(name)
        if torch.float32 not in dtypes and self.lower not in dtypes:
            kind = "other"
        if kind == "product" and not mutable:
            yield self.down, self.same
        if kind == "island" and not mutable:
            # An op over float32 alone keeps a float32 result.
            yield self.up, self.down if self.lower in dtypes else self.same
        yield self.same, self.same
        if mutable:
            # The operand that is written to comes first, and keeps its dtype.
            yield lambda dtype: dtypes[0] if dtype in (torch.float32, self.lower) else dtype, self.same
            return
        # Some ops refuse operands of different dtypes.
        yield self.up, self.same
        yield self.down, self.same


def is_mutable(op: Any) -> bool:
    """Whether an op writes to an operand."""
    return bool(op._schema.is_mutable)  # noqa: SLF001  # an op shows its schema nowhere else


def lower(exported: Exported, policy: Precision) -> Exported:
    """The same programs under a policy.

    Raises:
        SpecInvalid: An op that is to be kept is none.
    """
    _require_ops(policy)
    casting = Casting(policy)
    programs = [wrapper_ops.inline(entry.program) for entry in exported.entries]
    stored = _stored(programs, casting)
    lowered = [_lowered(program, casting, stored) for program in programs]
    entries = tuple(
        replace(entry, program=program) for entry, program in zip(exported.entries, lowered, strict=True)
    )
    return replace(exported, entries=entries)


def _require_ops(policy: Precision) -> None:
    if unknown := policy.unknown(lambda name: hasattr(_ATEN, name)):
        groups = [*ISLANDS, *PRODUCTS]
        near = difflib.get_close_matches(unknown[0], groups, n=1) or groups
        raise SpecInvalid(
            f"no op is called {unknown[0]!r}, and no group of ops",
            hint=f"name an op of torch.ops.aten such as gelu, or a group: {', '.join(near)}",
        )


def _stored(programs: list[ExportedProgram], casting: Casting) -> dict[int, torch.Tensor]:
    """By storage, the parameters that products alone read, in the lower dtype."""
    found: dict[int, torch.Tensor] = {}
    kept: set[int] = set()
    for program in programs:
        for node, name in _parameters(program):
            tensor = program.state_dict[name]
            place = hops.memory(tensor)
            if tensor.dtype is torch.float32 and _only_products(program.graph_module, node, casting):
                found[place] = tensor
            else:
                kept.add(place)
    return {
        place: torch.nn.Parameter(tensor.detach().to(casting.lower), requires_grad=False)
        for place, tensor in found.items()
        if place not in kept
    }


def _parameters(program: ExportedProgram) -> Iterator[tuple[Node, str]]:
    nodes = hops.placeholders(program.graph_module)
    for node, spec in zip(nodes, program.graph_signature.input_specs, strict=True):
        if spec.kind is InputKind.PARAMETER:
            yield node, str(spec.target)


def _only_products(module: GraphModule, node: Node, casting: Casting) -> bool:
    """Whether a value, and every view of it, is an operand of products and nothing else, in regions too."""
    calls = {call.node: call for call in hops.calls(module)}
    for user in node.users:
        if user in calls:
            bodies = _read_as(calls[user], node)
            if not bodies or not all(_only_products(body, place, casting) for body, place in bodies):
                return False
        elif not isinstance(user.target, ops.OpOverload):
            return False
        elif user.target.is_view:
            if not _only_products(module, user, casting):
                return False
        elif casting.policy.kind(name_of(user.target)) != "product":
            return False
    return True


def _read_as(call: hops.Call, operand: Node) -> list[tuple[GraphModule, Node]]:
    """The placeholders of a region's bodies that a read-only operand is; none where it is carried too."""
    if any(operand in call.operands(position) for position in call.layout.operands[:-1]):
        return []
    return [(body, node) for body in call.subgraphs for node, each in call.read_only(body) if each is operand]


def _lowered(program: ExportedProgram, casting: Casting, stored: dict[int, torch.Tensor]) -> ExportedProgram:
    module = copy.deepcopy(program.graph_module)
    state = dict(program.state_dict)
    names = {node.name: name for node, name in _parameters(program)}
    for node in hops.placeholders(module):
        name = names.get(node.name)
        if name is not None and (found := stored.get(hops.memory(state[name]))) is not None:
            state[name] = found
            _retype(node, casting.lower)
    _Graph(module, casting).rewrite()
    return hops.with_graph(program, module, state_dict=state)


def _retype(place: Node, dtype: torch.dtype) -> None:
    value = place.meta["val"]
    with value.fake_mode:
        place.meta["val"] = value.to(dtype)
    # torch's own summary of the value, which an importer may read in its place.
    place.meta.pop("tensor_meta", None)


class _Graph:
    def __init__(self, module: GraphModule, casting: Casting) -> None:
        self._module, self._casting = module, casting
        # How each result of an op with several results is rounded.
        self._rounding: dict[Node, Cast] = {}
        self._calls = {call.node: call for call in hops.calls(module)}

    def rewrite(self) -> None:
        wanted = [_dtype(value) for value in hops.output_values(self._module)]
        for node in list(self._module.graph.nodes):
            if node.op != "call_function":
                continue
            if node in self._calls:
                self._enter(node)
            elif node.target is operator.getitem:
                self._take(node)
            elif isinstance(node.target, ops.OpOverload):
                self._compute(node)
        output = self._module.graph.output_node()
        emit = Emitter(self._module, output)
        values = [
            emit(ops.CAST, value, dtype=dtype) if dtype is not None and _dtype(value) is not dtype else value
            for value, dtype in zip(hops.output_values(self._module), wanted, strict=True)
        ]
        hops.set_output_values(self._module, values)
        self._module.graph.lint()
        self._module.recompile()

    def _enter(self, node: Node) -> None:
        """A region carries float32, and reads stored weights as they are; its bodies cast for themselves."""
        call = self._calls[node]
        weights = [
            each
            for each in call.operands(call.layout.extra)
            if isinstance(each, Node) and each.op == "placeholder" and _dtype(each) is self._casting.lower
        ]
        self._cast_operands(node, self._casting.up, spared=weights)
        for body in call.subgraphs:
            for place, operand in call.read_only(body):
                if operand in weights:
                    _retype(place, self._casting.lower)
            _Graph(body, self._casting).rewrite()

    def _take(self, node: Node) -> None:
        source, index = node.args
        if isinstance(source, Node) and isinstance(source.meta.get("val"), (tuple, list)):
            node.meta["val"] = source.meta["val"][index]
            if source in self._rounding:
                self._cast_results(node, self._rounding[source])

    def _compute(self, node: Node) -> None:
        if node.target is ops.ASSERT_METADATA:
            # It asserts the dtype of before.
            self._module.graph.erase_node(node)
            return
        name = name_of(node.target)
        dtypes = [dtype for used in node.all_input_nodes if (dtype := _dtype(used)) is not None]
        is_product = torch.float32 in dtypes and self._casting.policy.kind(name) == "product"
        if self._casting.lower not in dtypes and not is_product:
            return
        if not _gives_float32(node):
            # Integers and flags depend on the exact numbers, so they are computed in float32.
            self._cast_operands(node, self._casting.up)
            return
        for before, after in self._casting.trials(name, dtypes, mutable=is_mutable(node.target)):
            if (value := self._tried(node, before)) is not None:
                self._cast_operands(node, before)
                node.meta["val"] = value
                if not any(isinstance(arg, torch.dtype) for arg in (*node.args, *node.kwargs.values())):
                    self._rounding[node] = after
                    self._cast_results(node, after)
                return
        self._cast_operands(node, self._casting.up)

    def _tried(self, node: Node, cast: Cast) -> Any:
        """What torch gives for an op on cast operands; None where it refuses them."""
        emit = Emitter(self._module, node)
        try:
            return emit.evaluate(node, lambda value: _fake_cast(value, cast))
        except (RuntimeError, NotImplementedError, ValueError, TypeError):
            return None

    def _cast_operands(self, node: Node, cast: Cast, spared: Collection[Node] = ()) -> None:
        emit = Emitter(self._module, node)

        @cache
        def cast_once(used: Node) -> Node:
            dtype = _dtype(used)
            if dtype is None or cast(dtype) is dtype or used in spared:
                return used
            return emit(ops.CAST, used, dtype=cast(dtype))

        node.args = torch.fx.map_arg(node.args, cast_once)
        node.kwargs = torch.fx.map_arg(node.kwargs, cast_once)

    def _cast_results(self, node: Node, cast: Cast) -> None:
        dtype = _dtype(node)
        if dtype is None or cast(dtype) is dtype:
            return
        users = list(node.users)
        rounded = Emitter(self._module, node.next, cause=node)(ops.CAST, node, dtype=cast(dtype))
        for user in users:
            user.replace_input_with(node, rounded)


def _dtype(value: Any) -> torch.dtype | None:
    found = value.meta.get("val") if isinstance(value, Node) else None
    return found.dtype if isinstance(found, torch.Tensor) else None


def _gives_float32(node: Node) -> bool:
    value = node.meta.get("val")
    leaves = value if isinstance(value, (tuple, list)) else [value]
    return any(isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float32 for leaf in leaves)


def _fake_cast(value: Any, cast: Cast) -> Any:
    if not isinstance(value, torch.Tensor) or cast(value.dtype) is value.dtype:
        return value
    return value.to(cast(value.dtype))
