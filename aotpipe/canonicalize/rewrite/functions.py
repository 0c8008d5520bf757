"""Swaps the code of functions for their rewritten form, for as long as a model is traced.

`rewritten(function)` gives a function's new code object: compiled under the old file name and lines, with the
same free variables, so that closures, defaults, `super()` and decorators stay what they are. `swapped(codes)`
puts such codes in and takes them out again. `deciding(error)` finds the functions that an error came from.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FunctionType
from typing import Final

import aotpipe
from aotpipe.canonicalize.operators import operators
from aotpipe.canonicalize.rewrite import ast_builders, statements
from aotpipe.canonicalize.trace.return_values import Unwritten
from aotpipe.canonicalize.values import trace
from aotpipe.model import source
from aotpipe.model.garbage_collector import functions_of

_OWN: Final = tuple(str(Path(path).resolve()) for path in aotpipe.__path__)


def deciding(error: BaseException) -> list[FunctionType]:
    """The live functions whose code raised an error, or called the libraries that did."""
    codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    return running([*codes, error.code] if isinstance(error, Unwritten) else codes)


def running(codes: Iterable[CodeType]) -> list[FunctionType]:
    """The live functions of a model whose code is the last of these, the outermost of which comes first."""
    # Neither Python's own, nor torch's, nor ours: what the model calls them with is to blame.
    codes = [code for code in codes if source.is_model_code(code.co_filename)]
    codes = [code for code in codes if not code.co_filename.startswith(_OWN)]
    if not codes:
        return []
    # A function that another one makes is made anew by each call of that.
    code = codes[-1]
    for maker in reversed(codes):
        code = maker if code in _all(maker) else code
    if operators in code.co_consts:
        return []
    return functions_of(code)


def rewritten(function: FunctionType) -> CodeType | None:
    """The code of a function with its control flow as calls; None where it has no source or no such form."""
    code = function.__code__
    definition = _definition(code)
    if definition is None:
        return None
    written = statements.rewrite(definition)
    found = recompiled(code, written) if written is not None else None
    return _with_operators(found) if found is not None else None


def recompiled(code: CodeType, written: ast.FunctionDef) -> CodeType | None:
    """A function's code of other syntax, with the old free variables; None where it has other ones."""
    # In a function that has the free variables as parameters, they are free again; in a class of the old
    # name, private names are mangled as before.
    body: list[ast.stmt] = [written]
    owner = code.co_qualname.split(".")[-2:-1]
    if owner and owner[0].isidentifier():
        body = [ast.ClassDef(owner[0], [], [], [written], [])]
        if owner[0] not in code.co_freevars:
            # A method that names its own class means the module's, not this one.
            body.insert(0, ast.Global(owner))
    shell = ast.FunctionDef("__aotpipe_shell", ast_builders.parameters(*code.co_freevars), body, [])
    for each in (shell, *body):
        ast.copy_location(each, written)
    module = ast.fix_missing_locations(ast.Module([shell], []))
    flags = code.co_flags & _FUTURES
    compiled = compile(module, code.co_filename, "exec", flags=flags, dont_inherit=True)
    found = next((each for each in _all(compiled) if each.co_name == code.co_name), None)
    if found is None or found.co_freevars != code.co_freevars:
        return None
    return found.replace(co_qualname=code.co_qualname)


_FUTURES = 0x1000000  # `from __future__ import annotations`


def _definition(code: CodeType) -> ast.FunctionDef | None:
    """The syntax of a function, its own copy; a lambda as a function that returns its body."""
    match copy.deepcopy(source.syntax_of(code)):
        case ast.FunctionDef() as found:
            return found
        case ast.Lambda() as small:
            result = ast.copy_location(ast.Return(small.body), small.body)
            return ast.copy_location(ast.FunctionDef(code.co_name, small.args, [result], []), small)
        case _:
            return None


def _all(code: CodeType) -> Iterator[CodeType]:
    """Nested code objects, outer ones first."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    yield from inner
    for each in inner:
        yield from _all(each)


def _with_operators(code: CodeType) -> CodeType:
    """Put the operators themselves in the place of the constant that names them."""
    constants = tuple(
        operators
        if constant == ast_builders.OPERATORS and isinstance(constant, str)
        else _with_operators(constant)
        if isinstance(constant, CodeType)
        else constant
        for constant in code.co_consts
    )
    return code.replace(co_consts=constants)


@contextmanager
def swapped(codes: dict[FunctionType, CodeType]) -> Iterator[None]:
    """Run functions with other code; those that a trace around it comes to need meanwhile are added."""
    before: dict[FunctionType, CodeType] = {}
    refused: set[FunctionType] = set()

    def swap(function: FunctionType, code: CodeType) -> None:
        before.setdefault(function, function.__code__)
        function.__code__ = code

    def rewrite_now(function: FunctionType) -> bool:
        """Whether a function has its rewritten code for as long as this lasts."""
        if operators in function.__code__.co_consts:
            return True
        if not source.is_model_code(function.__code__.co_filename) or function in refused:
            return False
        code = rewritten(function)
        if code is None:
            refused.add(function)
            return False
        codes[function] = code
        swap(function, code)
        return True

    with trace.assigned(trace.current(), rewrite_now=rewrite_now):
        try:
            for function, code in codes.items():
                swap(function, code)
            yield
        finally:
            for function, code in before.items():
                function.__code__ = code
