"""Arguments and results of a Python function as JSON, with their tensors and numbers taken out.

`pack(value, kind_of)` gives a template and the leaves; `unpack(template, leaf)` gives the value back. A
template holds lists, tuples, dicts with text keys, texts, bools and None; tensors, integers and floats are
leaves of a kind; anything else is an object, which a template names by its number and JSON cannot hold.
Torch-free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Template = dict[str, Any]
Kind = Literal["tensor", "int", "float"]


@dataclass(slots=True)
class Packed:
    """A value taken apart: `leaves` with the kind of each, and `objects` that are neither."""

    template: Template
    leaves: list[Any] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)


def pack(value: Any, kind_of: Callable[[Any], Kind | None]) -> Packed:
    """Take a value apart.

    Args:
        value: What a function takes or gives.
        kind_of: Says of what kind a leaf is; None where it is none.
    """
    packed = Packed({})

    def walk(node: Any) -> Template:
        kind = kind_of(node)
        if kind is not None:
            packed.leaves.append(node)
            packed.kinds.append(kind)
            return {kind: len(packed.leaves) - 1}
        if node is None or type(node) in (bool, str, int, float):
            return {"value": node}
        if type(node) in (list, tuple):
            return {type(node).__name__: [walk(each) for each in node]}
        if type(node) is dict and all(type(key) is str for key in node):
            return {"dict": {key: walk(each) for key, each in node.items()}}
        packed.objects.append(node)
        return {"object": len(packed.objects) - 1}

    packed.template = walk(value)
    return packed


def unpack(template: Template, leaf: Callable[[Kind, int], Any], objects: Sequence[Any] = ()) -> Any:
    """Put a value together again.

    Args:
        template: Of the value.
        leaf: Gives each leaf by its kind and number.
        objects: What the template names by number.

    Raises:
        ValueError: It is no template.
    """
    [(kind, content)] = template.items()
    match kind:
        case "tensor" | "int" | "float":
            return leaf(kind, content)
        case "object":
            return objects[content]
        case "value":
            return content
        case "list":
            return [unpack(each, leaf, objects) for each in content]
        case "tuple":
            return tuple(unpack(each, leaf, objects) for each in content)
        case "dict":
            return {key: unpack(each, leaf, objects) for key, each in content.items()}
        case _:
            raise ValueError(f"not a part of a template: {kind!r}")
