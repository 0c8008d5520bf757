"""Functions of tests, traced and staged."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

from torch import nn

import aotpipe
from aotpipe.canonicalize.trace import decisions
from aotpipe.passes.codegen.function_rewrites import rewrite_function
from aotpipe.passes.codegen.syntax import text_of


class Model(nn.Module):
    """A module of a function, as a method of a class of its own."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def written(function: Any, *args: Any, **form: bool) -> tuple[str, Any]:
    """The text of a function as it is staged, and the function itself."""
    with decisions.recorded() as notes:
        aotpipe.export(Model(function).eval(), args=args)
    lines, first = inspect.getsourcelines(function)
    [node] = ast.parse(textwrap.dedent("".join(lines))).body
    assert isinstance(node, ast.FunctionDef)
    ast.increment_lineno(node, first - 1)
    shift = len(lines[0]) - len(lines[0].lstrip())
    for each in ast.walk(node):
        if hasattr(each, "col_offset"):
            each.col_offset += shift
            each.end_col_offset += shift
    text = text_of([rewrite_function(node, notes, **form)])
    space: dict[str, Any] = dict(function.__globals__)
    exec(text, space)
    return text, space[function.__name__]
