"""Prints the limits that the structure of aotpipe/ keeps, with what is over them; exit code 1 where one is.

usage: structure.py [--json FILE] [--list]

Counted from the source alone, nothing is imported:

    entries at the top      beside __init__, __main__ and py.typed
    import circles          strongly connected modules, by imports inside functions too
    imports in functions    of aotpipe's own modules, and of heavy packages that a light command must not load
    complexity              McCabe's number, of the most complex function; operands of `and` and `or` count
    undocumented raises     public functions that raise a typed error and whose docstring has no `Raises:`
    lines                   of Python in aotpipe/
    torch-free packages     what the import contract of a serving host names
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "aotpipe"
LIMITS: Final = {
    "entries at the top": 14,
    "import circles": 0,
    "complexity": 25,
    "undocumented raises": 0,
    "lines": 58_000,
}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(tree: ast.Module, known: set[str]) -> Iterator[tuple[str, bool, int]]:
    """What a module imports: the module, whether a function does it, the line."""

    def walk(node: ast.AST, within: bool) -> Iterator[tuple[str, bool, int]]:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for other in node.orelse:
                yield from walk(other, within)
            return
        if isinstance(node, ast.Import):
            yield from ((alias.name, within, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full if full in known else node.module), within, node.lineno
        inner = within or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inner)

    yield from walk(tree, False)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Tarjan's strongly connected components of more than one module."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            component = []
            while not component or component[-1] != name:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    sys.setrecursionlimit(10_000)
    for name in graph:
        if name not in index:
            visit(name)
    return found


def error_names() -> frozenset[str]:
    """The exceptions of aotpipe.errors."""
    tree = ast.parse((PACKAGE / "errors.py").read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.ClassDef))


def undocumented(path: Path, tree: ast.Module, errors: frozenset[str]) -> Iterator[str]:
    """Public functions and methods with a `raise` of a typed error of their own and no `Raises:`."""

    def functions(node: ast.AST, public: bool) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from functions(child, public and not child.name.startswith("_"))
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from [child] if public and not child.name.startswith("_") else []

    def raises(node: ast.AST) -> bool:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
                continue
            if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call):
                name = ast.unparse(child.exc.func).rpartition(".")[2]
                if name in errors:
                    return True
            if raises(child):
                return True
        return False

    for function in functions(tree, True):
        text = ast.get_docstring(function) or ""
        overload = any(ast.unparse(each).endswith("overload") for each in function.decorator_list)
        if not overload and raises(function) and not re.search(r"\bRaises\b", text):
            yield f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"


def complexity(node: ast.AST) -> int:
    """McCabe's number less one; operands of `and` and `or` are paths, functions within count too."""
    own = 0
    for child in ast.walk(node):
        match child:
            case ast.If() | ast.For() | ast.AsyncFor() | ast.While() | ast.IfExp() | ast.ExceptHandler():
                own += 1
            case ast.Assert() | ast.match_case():
                own += 1
            case ast.comprehension():
                own += 1 + len(child.ifs)
            case ast.BoolOp():
                own += len(child.values) - 1
    return own


def functions_of(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions of the module and methods of its classes; what is within a function counts as its own."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from (each for each in node.body if isinstance(each, ast.FunctionDef))


def measure() -> dict[str, tuple[Any, list[str]]]:
    """Each figure, with what it is made of."""
    paths = modules()
    known, errors = set(paths), error_names()
    graph: dict[str, set[str]] = {name: set() for name in paths}
    own: list[str] = []
    heavy: list[str] = []
    raising: list[str] = []
    complicated: list[str] = []
    greatest = lines = 0
    for name, path in paths.items():
        text = path.read_text(encoding="utf-8")
        lines += text.count("\n")
        tree = ast.parse(text)
        raising += undocumented(path, tree, errors)
        for function in functions_of(tree):
            number = complexity(function) + 1
            greatest = max(greatest, number)
            if number > LIMITS["complexity"]:
                complicated.append(f"{path.relative_to(ROOT)}:{function.lineno} {function.name} ({number})")
        for module, within, line in imports(tree, known):
            if module in known and module != name:
                graph[name].add(module)
            if within:
                where = f"{path.relative_to(ROOT)}:{line} {module}"
                (own if module.startswith("aotpipe") else heavy).append(where)
    top = [
        path.name
        for path in sorted(PACKAGE.iterdir())
        if path.name not in {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
    ]
    found = circles(graph)
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = config["tool"]["importlinter"]["contracts"]
    light = next(each for each in contracts if "torch" in each.get("forbidden_modules", ()))
    return {
        "entries at the top": (len(top), top),
        "import circles": (len(found), [f"{len(each)} modules: {', '.join(each)}" for each in found]),
        "imports in functions": (len(own) + len(heavy), own),
        "  of aotpipe": (len(own), []),
        "  of other packages": (len(heavy), []),
        "complexity": (greatest, complicated),
        "undocumented raises": (len(raising), raising),
        "modules": (len(paths), []),
        "lines": (lines, []),
        "torch-free packages": (", ".join(light["source_modules"]), []),
    }


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--list", action="store_true", help="name what each figure is made of")
    options = parser.parse_args()
    found = measure()
    failed = False
    for name, (figure, parts) in found.items():
        limit = LIMITS.get(name)
        over = limit is not None and figure > limit
        failed |= over
        at_most = "" if limit is None else f"at most {limit}{'  OVER' if over else ''}"
        print(f"{name:<24}{figure!s:>8}  {at_most}".rstrip())
        if options.list or over:
            for part in parts:
                print(f"    {part}")
    if options.json:
        options.json.write_text(json.dumps({name: figure for name, (figure, _) in found.items()}) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
