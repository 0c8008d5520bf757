"""Writes a model from its exported programs: one class with a method for each entry point.

This is the way for every model that can be exported. The class bears the model's name and the names of its
parameters, buffers and inputs.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree  # torch.export's own flattening; see canonicalize.pytrees

from aotpipe.canonicalize.modules import as_module
from aotpipe.core.stages import Canonical, Exported, ExportedEntry
from aotpipe.tools.rewrite import signatures
from aotpipe.tools.rewrite.expressions import dotted, is_name, name, of_tensor
from aotpipe.tools.rewrite.formatting import text_of
from aotpipe.tools.rewrite.graph_cleanup import simplify
from aotpipe.tools.rewrite.graph_codegen import Writer, result_expression
from aotpipe.tools.rewrite.result import Code
from aotpipe.tools.rewrite.torch_ops import writes
from aotpipe.tools.rewrite.weights import ModuleContents


def generate_class(exported: Exported, stem: str = "model", *, direct: bool = False) -> Code:
    """The code of a model.

    Args:
        exported: Its programs.
        stem: The name of the file that it is for, without the suffix.
        direct: As `graphs.Writer` takes it.
    """
    canonical = exported.canonical
    state, constants = _tensors(exported.entries)
    contents = ModuleContents(canonical.model, state, constants)
    class_name = class_name_of(canonical)
    methods = {entry.name: method_of(canonical, entry.name) for entry in exported.entries}
    functions: list[ast.stmt] = [_function("__init__", contents.init())]
    functions += [
        _method(exported, entry, methods[entry.name], contents, direct=direct) for entry in exported.entries
    ]
    if state:
        functions.append(_reset(contents))
    doc = ast.Expr(ast.Constant(_class_doc(exported, state)))
    made = ast.ClassDef(class_name, [dotted("nn.Module")], [], [doc, *functions], [])
    body = text_of([made])
    return Code(
        text=_head(exported, made, contents, stem) + body + "\n",
        class_name=class_name,
        methods=methods,
        state=tuple(state),
        tensors=contents.stored,
    )


def class_name_of(canonical: Canonical) -> str:
    """The class of the model, or the function's name as a class has it."""
    found = type(canonical.model).__name__
    if is_function_module(canonical.model):
        found = "".join(part[:1].upper() + part[1:] for part in found.split("_"))
    return found if is_name(found) else "Model"


def is_function_module(model: torch.nn.Module) -> bool:
    """Whether a model is a function, which only wears a module."""
    return type(model).__module__ == as_module.__module__


def method_of(canonical: Canonical, entry_point: str) -> str:
    """The method of an entry point: the model's own, or the entry point's name where two share one."""
    wanted = {entry.name: entry.entry.method for entry in canonical.entries}
    called = wanted[entry_point]
    if len(wanted) == 1:
        return called if called != "__call__" else "forward"
    return called if list(wanted.values()).count(called) == 1 else entry_point


def _tensors(
    entries: Sequence[ExportedEntry],
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """What calls change, with what it holds at first, and what is neither that nor a weight."""
    state: dict[str, torch.Tensor] = {}
    constants: dict[str, torch.Tensor] = {}
    for entry in entries:
        program = entry.program
        held = {**program.state_dict, **program.constants}
        written = writes(unlifted(program)).buffers
        for spec in program.graph_signature.input_specs:
            target = str(spec.target)
            if spec.kind is InputKind.BUFFER and target in written:
                state[target] = held[target].detach()
            elif spec.kind is InputKind.BUFFER or (
                spec.kind is InputKind.CONSTANT_TENSOR and of_tensor(held[target]) is None
            ):
                constants[target] = held[target].detach()
    return state, {path: tensor for path, tensor in constants.items() if path not in state}


def _method(
    exported: Exported, entry: ExportedEntry, called: str, contents: ModuleContents, *, direct: bool
) -> ast.stmt:
    canonical = next(each for each in exported.canonical.entries if each.name == entry.name)
    graph = unlifted(entry.program)
    simplify(graph)
    paths = {str(node.target) for node in graph.graph.nodes if node.op == "get_attr"}
    body: list[ast.stmt] = []
    own: dict[str, ast.expr] = {}

    def attribute(path: str) -> ast.expr:
        return own.get(path) or contents.attribute(path)

    writer = Writer(attribute, contents.leaf_of, direct=direct)
    taken = signatures.method_inputs(canonical, writer.free)
    body += taken.body
    body += signatures.checks(canonical, taken.leaves)
    lifted = _lifted(entry.program)
    constants: dict[str, ast.stmt] = {}
    for path in sorted(paths & lifted.keys()):
        value = of_tensor(lifted[path])
        if value is not None:
            constant = writer.free(path.replace(".", "_"))
            constants[constant] = ast.Assign([ast.Name(constant, ast.Store())], value)
            own[path] = name(constant)
    statements, results = writer.body(graph, taken.leaves)
    read = {node.id for each in statements for node in ast.walk(each) if isinstance(node, ast.Name)}
    body += [made for constant, made in constants.items() if constant in read]
    body += statements
    leaves = [result_expression(each) for each in _flat(results)]
    body.append(ast.Return(signatures.result_expression(_structure(graph), leaves)))
    return ast.FunctionDef(called, taken.arguments, body, [])


def unlifted(program: ExportedProgram) -> torch.fx.GraphModule:
    """A program's graph with its parameters and buffers as attributes, and its writes as ops."""
    return program.module(check_guards=False)


def _structure(graph: torch.fx.GraphModule) -> pytree.TreeSpec:
    """That of a program's results."""
    found: Any = graph._out_spec  # noqa: SLF001  # ExportedProgram's own is that of the call, too
    return found  # type: ignore[no-any-return]


def _lifted(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """Tensors that a call makes from numbers."""
    return {
        str(spec.target): program.constants[str(spec.target)]
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.CONSTANT_TENSOR and str(spec.target) in program.constants
    }


def _flat(results: object) -> list[object]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _function(called: str, body: list[ast.stmt]) -> ast.FunctionDef:
    arguments = ast.arguments([], [ast.arg("self")], None, [], [], None, [])
    return ast.FunctionDef(called, arguments, body, [])


def _reset(contents: ModuleContents) -> ast.stmt:
    doc: ast.stmt = ast.Expr(ast.Constant("Forget all calls: the state is again what it was at first."))
    made = _function("reset", [doc, *contents.reset()])
    made.decorator_list = [ast.Call(dotted("torch.no_grad"), [], [])]
    return made


def _class_doc(exported: Exported, state: Mapping[str, torch.Tensor]) -> str:
    canonical = exported.canonical
    model: Any = type(canonical.model)
    if is_function_module(canonical.model):
        model = inspect.unwrap(canonical.model.forward)
    where = f"{model.__module__}." if model.__module__ != "__main__" else ""
    text = f"{where}{model.__qualname__} as one graph; the weights are the original's."
    if state:
        text += f" State: {', '.join(state)}."
    return text


def _head(exported: Exported, made: ast.ClassDef, contents: ModuleContents, stem: str) -> str:
    """The text before the class: what it is, imports, tensors from a file."""
    used = {node.id for node in ast.walk(made) if isinstance(node, ast.Name)}
    plain = [each for each in ("math", "operator") if each in used]
    lines = [
        f'"""{exported.canonical.spec.name}, written by `aotpipe canonicalize`; it needs torch only."""',
        "",
    ]
    lines += ["from __future__ import annotations", ""]
    lines += [f"import {each}" for each in plain]
    if contents.stored:
        lines.append("from pathlib import Path")
    lines += [""] if plain or contents.stored else []
    lines += ["import torch"]
    if "F" in used:
        lines.append("import torch.nn.functional as F")
    lines.append("from torch import nn")
    if contents.stored:
        lines += ["", f'_TENSORS = torch.load(Path(__file__).with_name("{stem}.pt"), weights_only=True)']
    return "\n".join(lines) + "\n\n\n"
