"""State that a class keeps in attributes, as buffers of its source: `self.calls = 0` registers one.

`kept(exported)` tells which attributes calls change; `edits` gives the lines of `__init__` that register
them.
Raises `Unsupported` where an attribute is no number and no tensor from the start.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import nn

from aotpipe.core.stages import Exported
from aotpipe.tools.rewrite.expression_rewrites import Unsupported
from aotpipe.tools.rewrite.expressions import call, dotted, literal, method
from aotpipe.tools.rewrite.formatting import text_of
from aotpipe.tools.rewrite.from_graph import unlifted
from aotpipe.tools.rewrite.torch_ops import writes

_NATURAL = {int: torch.int64, float: torch.float64, bool: torch.bool}


def kept(exported: Exported) -> dict[str, torch.dtype]:
    """The attributes that calls change and no buffer of the model is, by path, with their dtypes.

    Raises:
        Unsupported: One takes several forms, or is no number and no tensor.
    """
    model = exported.canonical.model
    own = dict(model.named_buffers(remove_duplicate=False))
    found: dict[str, torch.dtype] = {}
    for entry in exported.entries:
        for path in writes(unlifted(entry.program)).buffers:
            if path not in own:
                found[path] = {**entry.program.state_dict, **entry.program.constants}[path].dtype
    for path, dtype in found.items():
        owner, _, last = path.rpartition(".")
        try:
            value = vars(model.get_submodule(owner)).get(last)
        except AttributeError:
            value = None
        if isinstance(value, torch.Tensor) and value.dtype == dtype:
            continue
        if type(value) not in _NATURAL or _NATURAL[type(value)] != dtype:
            raise Unsupported(f"`{path}` takes several forms, or is no number and no tensor at first")
    return found


def edits(
    statements: Iterable[ast.stmt], model: nn.Module, states: Iterable[str]
) -> Iterator[tuple[tuple[int, int], str]]:
    """For each attribute that is state, the lines that set it first, and what takes their place.

    Raises:
        Unsupported: It is not set once in its class's `__init__`.
    """
    classes = {node.name: node for node in statements if isinstance(node, ast.ClassDef)}
    done: set[tuple[str, str]] = set()
    for path in states:
        owner, _, last = path.rpartition(".")
        module = model.get_submodule(owner)
        kind = type(module).__name__
        if (kind, last) in done:
            continue
        done.add((kind, last))
        found = [node for node in _set_at_first(classes.get(kind)) if _attribute(node) == last]
        if len(found) != 1:
            raise Unsupported(f"`{path}` is not set once in the class's own __init__")
        [node] = found
        value = vars(module)[last]
        tensor = node.value
        if not isinstance(value, torch.Tensor):
            kinds = {"dtype": literal(torch.float64)} if type(value) is float else {}
            tensor = call("torch.tensor", node.value, **kinds)
        made = method(
            dotted("self"), "register_buffer", ast.Constant(last), tensor, persistent=ast.Constant(False)
        )
        text = text_of([ast.Expr(made)])
        yield (node.lineno, node.end_lineno or node.lineno), textwrap.indent(text, " " * node.col_offset)


def _set_at_first(owner: ast.ClassDef | None) -> Iterator[ast.Assign]:
    for function in owner.body if owner is not None else ():
        if isinstance(function, ast.FunctionDef) and function.name == "__init__":
            yield from (node for node in function.body if isinstance(node, ast.Assign))


def _attribute(node: ast.Assign) -> str | None:
    match node.targets:
        case [ast.Attribute(value=ast.Name(id="self"), attr=attribute)]:
            return attribute
        case _:
            return None


def register(model: nn.Module, states: Mapping[str, torch.dtype]) -> None:
    """Turn a model's attributes into the buffers that its written classes register."""
    for path, dtype in states.items():
        owner, _, last = path.rpartition(".")
        module = model.get_submodule(owner)
        value = vars(module).pop(last)
        module.register_buffer(last, torch.as_tensor(value, dtype=dtype), persistent=False)


def changes(function: ast.FunctionDef, names: Iterable[str]) -> bool:
    """Whether a function writes one of these attributes by `+=` or its kin."""
    wanted = set(names)
    return any(
        isinstance(node, ast.AugAssign)
        and isinstance(node.target, ast.Attribute)
        and node.target.attr in wanted
        for node in ast.walk(function)
    )
