"""What the code of a model says that it writes and draws, read from its syntax: globals, `np.random`, self.

Takes the code objects that a run reached, with their globals; gives `Written` places. Python's profiler
tells neither a store into a global nor one into a dict.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from aotpipe.model import source
from aotpipe.tools.check import source_ranges
from aotpipe.tools.check.source_ranges import Place


@dataclass(frozen=True, slots=True)
class Written:
    """A place that writes the attribute `name`, or calls the function `name`."""

    name: str
    place: Place


def self_writes(reached: Mapping[CodeType, Mapping[str, Any]]) -> Iterator[Written]:
    """Every place at which reached code stores into an attribute of its first argument."""
    for code in reached:
        first = code.co_varnames[0] if code.co_argcount else ""
        for node, base in _stores(code):
            if base.id == first and (attribute := _first_attribute(node)):
                yield Written(attribute, source_ranges.of_node(code.co_filename, node, code.co_qualname))


def numpy_draws(reached: Mapping[CodeType, Mapping[str, Any]]) -> Iterator[Written]:
    """Every call of a function of `np.random`, whose C code the profiler does not tell."""
    for code, variables in reached.items():
        definition = source.syntax_of(code)
        for node in source_ranges.own(definition) if definition else ():
            if not isinstance(node, ast.Call) or any(isinstance(n, ast.Call) for n in ast.walk(node.func)):
                continue
            chain = ast.unparse(node.func).split(".")
            found: Any = variables.get(chain[0])
            owners = []
            for part in chain[1:]:
                owners.append(found)
                found = getattr(found, part, None) if isinstance(found, ModuleType) else None
            if any(owner is np.random for owner in owners):
                yield Written(
                    ".".join(chain), source_ranges.of_node(code.co_filename, node, code.co_qualname)
                )


def _stores(code: CodeType) -> Iterator[tuple[ast.expr, ast.Name]]:
    """Targets `name.a`, `name[k]`, `name.a[k]` of assignments, with the name."""
    definition = source.syntax_of(code)
    if definition is None or isinstance(definition, ast.Lambda):
        return
    for node in source_ranges.own(definition):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = node.targets
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                base = part
                while isinstance(base, ast.Attribute | ast.Subscript):
                    base = base.value
                if isinstance(base, ast.Name) and base is not part:
                    yield part, base


def _first_attribute(node: ast.expr) -> str:
    """`a` of `self.a[k].b`."""
    attribute = ""
    while isinstance(node, ast.Attribute | ast.Subscript):
        attribute = node.attr if isinstance(node, ast.Attribute) else attribute
        node = node.value
    return attribute
