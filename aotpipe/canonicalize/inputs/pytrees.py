"""Nested inputs and outputs: their leaves with names, and the classes that torch does not know yet.

Each flattened leaf has one name, without blanks. Inputs are named by the parameters of the called method,
nested ones dotted (`batch.mask`); `*args` as `args.0`, `**kwargs` by key. Outputs are named by dict keys and
fields, else `output`, `output.0`, `output.1`.

`leaves(tree)` gives every leaf with its path, in torch's own flattening order; `register(tree)` teaches torch
each class in a tree that holds tensors: dataclasses, dict and list subclasses, and objects whose attributes
hold tensors (transformers' caches are such). A class that somebody registered before is left as it is. What
is no tensor in such an object travels beside the tensors, unchanged.

torch's own flattening is `torch.utils._pytree`: private by name, and the only one torch.export uses.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import _pytree as fx_pytree
from torch.utils import _pytree as pytree

from aotpipe.core.stages import CanonicalEntry
from aotpipe.errors import SpecInvalid
from aotpipe.model import object_graph, source

Path = tuple[pytree.KeyEntry, ...]
PLAIN: Final = (bool, int, float, str, type(None))
"""What torch.export takes as a constant beside tensors."""


def leaves(tree: Any) -> list[tuple[Path, Any]]:
    """Every leaf with its path, in the order of torch's flattening; None is a leaf, as it is there."""
    children = _children(tree)
    if children is None:
        return [((), tree)]
    return [((key, *path), leaf) for key, child in children for path, leaf in leaves(child)]


def _children(node: Any) -> list[tuple[pytree.KeyEntry, Any]] | None:
    definition = pytree.SUPPORTED_NODES.get(pytree._get_node_type(node))  # noqa: SLF001 exact type or namedtuple
    if definition is None:
        return None
    if definition.flatten_with_keys_fn is None:
        children, _ = definition.flatten_fn(node)
        return [(pytree.SequenceKey(index), child) for index, child in enumerate(children)]
    keyed, _ = definition.flatten_with_keys_fn(node)
    return list(keyed)


@dataclass(frozen=True, slots=True)
class Parts:
    """What is right inside of a container: the children by their keys, and how to make it of others."""

    keys: tuple[Any, ...]
    children: tuple[Any, ...]
    make: Callable[[Sequence[Any]], Any]


def parts(node: Any) -> Parts | None:
    """What a container holds, values that are None included; None for a leaf.

    torch's own registration of a dataclass leaves out the fields that are None.
    """
    definition = pytree.SUPPORTED_NODES.get(pytree._get_node_type(node))  # noqa: SLF001 as above
    if dataclasses.is_dataclass(node) and all(field.init for field in dataclasses.fields(node)):
        fields = tuple(field.name for field in dataclasses.fields(node))
        cls: Any = type(node)
        return Parts(
            fields,
            tuple(getattr(node, name) for name in fields),
            lambda values: cls(**dict(zip(fields, values, strict=True))),
        )
    if definition is not None and definition.flatten_fn is not _flatten:
        children, context = definition.flatten_fn(node)
        named = _children(node) or []
        return Parts(
            tuple(_text(key) for key, _ in named),
            tuple(children),
            lambda values: definition.unflatten_fn(list(values), context),
        )
    if isinstance(node, torch.Tensor) or (definition is None and not _holds_tensor(node)):
        return None
    held = _parts(node)
    rest = _Rest(type(node), tuple(held), {})
    return Parts(tuple(held), tuple(held.values()), lambda values: _unflatten(values, rest))


def _text(key: pytree.KeyEntry) -> str:
    """A key, a field or an index as a part of a name."""
    match key:
        case pytree.MappingKey(key=part) | pytree.GetAttrKey(name=part) | pytree.SequenceKey(idx=part):
            return str(part)
    return str(key)


def dotted(path: Iterable[pytree.KeyEntry]) -> str:
    """A path as a name: `batch.mask`."""
    return ".".join(map(_text, path))


def clone_tensors(tree: Any) -> Any:
    """The same tree over its own copies of the tensors, so that a call can mutate them."""
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), tree)


def map_children_first(function: Callable[[Any], Any], tree: Any) -> Any:
    """Map leaves as torch.export's dynamic_shapes wants it: a registered class becomes a list of children."""

    def walk(node: Any) -> Any:
        definition = pytree.SUPPORTED_NODES.get(pytree._get_node_type(node))  # noqa: SLF001 as above
        if definition is None:
            return function(node)
        children, _ = definition.flatten_fn(node)
        return pytree.tree_map(walk, children, is_leaf=is_leaf)

    def is_leaf(node: Any) -> bool:
        return pytree._get_node_type(node) not in pytree.BUILTIN_TYPES  # noqa: SLF001 as above

    return pytree.tree_map(walk, tree, is_leaf=is_leaf)


def register(tree: Any, *, _above: tuple[int, ...] = ()) -> None:
    """Teach torch every class in a tree that holds tensors and that it does not know.

    Raises:
        SpecInvalid: An object that holds itself.
    """
    if id(tree) in _above:
        raise SpecInvalid(
            f"a {type(tree).__name__} among the inputs or outputs holds itself",
            hint="pass its tensors instead",
            where=source.of_definition(type(tree)),
        )
    if isinstance(tree, (torch.Tensor, torch.nn.Module, type, *PLAIN)):
        return
    is_new = _children(tree) is None
    if is_new and not _holds_tensor(tree):
        return
    for part in _inside(tree):
        register(part, _above=(*_above, id(tree)))
    if not is_new:
        return
    cls = type(tree)
    name = f"{cls.__module__}.{cls.__qualname__}"
    if dataclasses.is_dataclass(cls) and _is_plain_dataclass(cls, tree):
        torch.export.register_dataclass(cls, serialized_type_name=name)
        return
    pytree.register_pytree_node(
        cls, _flatten, _unflatten, serialized_type_name=name, flatten_with_keys_fn=_flatten_with_keys
    )
    # ExportedProgram.module() flattens its inputs through fx's own table.
    fx_pytree.register_pytree_flatten_spec(cls, lambda node, _: _flatten(node)[0])


def _is_plain_dataclass(cls: Any, example: Any) -> bool:
    """Whether torch's own registration fits: all fields by the constructor, all leaves fit for export."""
    fields = dataclasses.fields(cls)
    values = [getattr(example, field.name) for field in fields]
    return all(field.init for field in fields) and all(
        isinstance(leaf, (torch.Tensor, *PLAIN)) for value in values for _, leaf in leaves(value)
    )


@dataclass(frozen=True, slots=True)
class _Rest:
    """What remains of an object without its tensors; equal when the structure is."""

    cls: type
    keys: tuple[Any, ...]
    others: Mapping[Any, Any] = dataclasses.field(compare=False)

    def __repr__(self) -> str:
        return f"{self.cls.__name__}({', '.join(map(str, self.keys))})"


def _parts(node: Any) -> dict[Any, Any]:
    if isinstance(node, dict):
        return dict(node)
    if isinstance(node, list):
        return dict(enumerate(node))
    held = object_graph.contents(node)
    return held if isinstance(held, dict) else {}


def _inside(node: Any) -> list[Any]:
    """The children of a node as torch has them, else the values that it holds."""
    children = _children(node)
    return list(_parts(node).values()) if children is None else [child for _, child in children]


def _holds_tensor(node: Any, above: tuple[int, ...] = ()) -> bool:
    if isinstance(node, torch.Tensor):
        return True
    if isinstance(node, (torch.nn.Module, type, *PLAIN)) or id(node) in above:
        return False
    return any(_holds_tensor(part, (*above, id(node))) for part in _inside(node))


def _flatten(node: Any) -> tuple[list[Any], _Rest]:
    parts = _parts(node)
    keys = tuple(key for key, part in parts.items() if _holds_tensor(part))
    others = {key: part for key, part in parts.items() if key not in keys}
    return [parts[key] for key in keys], _Rest(type(node), keys, others)


def _flatten_with_keys(node: Any) -> tuple[list[tuple[Any, Any]], _Rest]:
    children, rest = _flatten(node)
    make: Any = pytree.MappingKey if isinstance(node, dict) else pytree.GetAttrKey
    if isinstance(node, list):
        make = pytree.SequenceKey
    return [(make(key), child) for key, child in zip(rest.keys, children, strict=True)], rest


def _unflatten(children: Iterable[Any], rest: _Rest) -> Any:
    parts = {**rest.others, **dict(zip(rest.keys, children, strict=True))}
    node: Any = rest.cls.__new__(rest.cls)  # type: ignore[call-overload]
    if isinstance(node, dict):
        node.update(parts)
    elif isinstance(node, list):
        node.extend(parts[index] for index in range(len(parts)))
    else:
        for key, part in parts.items():
            # A frozen dataclass refuses setattr.
            object.__setattr__(node, key, part)
    return node


def unsupported(tree: Any) -> Sequence[tuple[Path, Any]]:
    """The leaves that torch.export takes neither as tensor nor as constant."""
    return [
        (path, leaf)
        for path, leaf in leaves(tree)
        if not isinstance(leaf, (torch.Tensor, torch.nn.Module, torch.ScriptObject, *PLAIN))
    ]


def check_outputs(result: Any, call: Callable[..., Any]) -> None:
    """Teach torch the classes of a result, and refuse what no program gives.

    Raises:
        SpecInvalid: Names the first one.
    """
    register(result)
    foreign = unsupported(result)
    if foreign:
        path, leaf = foreign[0]
        raise SpecInvalid(
            f"the output {dotted(path) or 'of the model'} is a {type(leaf).__name__}",
            hint="return tensors, numbers, and dicts, tuples or dataclasses of them",
            where=source.of_definition(call),
        )


def check_call(
    call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], entry: str
) -> None:
    """Check that the example inputs fit the parameters.

    Raises:
        SpecInvalid: One is missing, or is not a parameter.
    """
    signature = source.signature_of(call)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise SpecInvalid(
            f"the example inputs do not fit {entry}{signature}",
            reason=str(error),
            where=source.of_definition(call),
        ) from None


def input_leaves(
    call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[tuple[tuple[str, ...], Any]]:
    """Every leaf of `(args, kwargs)` with its path of names, in torch's flattening order."""
    names = [*positional_names(call, len(args)), *((key,) for key in kwargs)]
    named = zip(names, (*args, *kwargs.values()), strict=True)
    return [((*name, *map(_text, path)), leaf) for name, value in named for path, leaf in leaves(value)]


def example_leaves(entry: CanonicalEntry) -> dict[str, Any]:
    """The flattened arguments of an entry point's example, by name."""
    found = pytree.tree_leaves((entry.entry.args, dict(entry.entry.kwargs)))
    return dict(zip(entry.input_names, found, strict=True))


def positional_names(call: Callable[..., Any], count: int) -> list[tuple[str, ...]]:
    """The names of the first `count` positional arguments."""
    names: list[tuple[str, ...]] = []
    for parameter in source.signature_of(call).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [(parameter.name, str(index)) for index in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append((parameter.name,))
    return names[:count]


def output_names(result: Any) -> tuple[str, ...]:
    """A name for every leaf of a result, in torch's flattening order."""
    return unique(output_name(path) for path, _ in leaves(result))


def output_name(path: Path) -> str:
    """The name of one leaf of a result."""
    if not path:
        return "output"
    return f"output.{dotted(path)}" if isinstance(path[0], pytree.SequenceKey) else dotted(path)


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Names without blanks, brackets or colons; a second `x` becomes `x_1`."""
    taken: dict[str, None] = {}
    for name in names:
        clean = re.sub(r"[^\w.\-]+", "_", name) or "_"
        free, count = clean, 0
        while free in taken:
            count += 1
            free = f"{clean}_{count}"
        taken[free] = None
    return tuple(taken)
