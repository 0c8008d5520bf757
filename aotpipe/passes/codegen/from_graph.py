"""Writes a model from its exported programs: one class with a method for each entry point.

This is the way for every model that can be exported. The class bears the model's name and the names of its
parameters, buffers and inputs; its methods take and give what the user's own do.
"""

from __future__ import annotations

import ast
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree  # torch.export's own flattening; see canonicalize.pytrees

from aotpipe.canonicalize.inputs.pytrees import PLAIN
from aotpipe.canonicalize.modules import is_function
from aotpipe.canonicalize.rewrite.ast_builders import assign
from aotpipe.core.stages import Canonical, CanonicalEntry, Exported, ExportedEntry
from aotpipe.model.source import signature_of
from aotpipe.passes import hops
from aotpipe.passes.codegen.code import Code
from aotpipe.passes.codegen.graph_cleanup import simplify
from aotpipe.passes.codegen.graph_codegen import Writer, results_of
from aotpipe.passes.codegen.nodes import unlifted, writes
from aotpipe.passes.codegen.syntax import (
    call,
    dotted,
    function,
    is_name,
    item,
    literal,
    name,
    of_tensor,
    text_of,
    tuple_of,
)
from aotpipe.passes.codegen.weights import ModuleContents


def generate_class(exported: Exported, stem: str = "model", *, direct: bool = False) -> Code:
    """The code of a model.

    `stem` is the name of the file that it is for; `direct` is as `graph_codegen.Writer` takes it.
    """
    canonical = exported.canonical
    state, constants = _tensors(exported.entries)
    contents = ModuleContents(canonical.model, state, constants)
    class_name = class_name_of(canonical)
    methods = {entry.name: method_of(canonical, entry.name) for entry in exported.entries}
    functions: list[ast.stmt] = [function("__init__", ["self"], contents.init())]
    functions += [
        _method(exported, entry, methods[entry.name], contents, direct=direct) for entry in exported.entries
    ]
    if state:
        forget = ast.Expr(ast.Constant("Forget all calls: the state is again what it was at first."))
        reset = function("reset", ["self"], [forget, *contents.reset()])
        reset.decorator_list = [call("torch.no_grad")]
        functions.append(reset)
    original = definition_of(canonical.model)
    where = f"{original.__module__}." if original.__module__ != "__main__" else ""
    said = f"{where}{original.__qualname__} as one graph; the weights are the original's."
    said += f" State: {', '.join(state)}." if state else ""
    doc = ast.Expr(ast.Constant(said))
    made = ast.ClassDef(class_name, [dotted("nn.Module")], [], [doc, *functions], [])
    return Code(
        text=f"{_head(exported, made, contents, stem)}{text_of([made])}\n",
        class_name=class_name,
        methods=methods,
        state=tuple(state),
        tensors=contents.stored,
    )


def class_name_of(canonical: Canonical) -> str:
    """The class of the model, or the function's name as a class has it."""
    found = type(canonical.model).__name__
    if is_function(canonical.model):
        found = "".join(part[:1].upper() + part[1:] for part in found.split("_"))
    return found if is_name(found) else "Model"


def definition_of(model: torch.nn.Module) -> Any:
    """The class of a model, or the function that it is."""
    return inspect.unwrap(model.forward) if is_function(model) else type(model)


def method_of(canonical: Canonical, entry_point: str) -> str:
    """The method of an entry point: the model's own, or the entry point's name where two share one."""
    wanted = {entry.name: entry.entry.method for entry in canonical.entries}
    called = wanted[entry_point]
    if len(wanted) == 1:
        return called if called != "__call__" else "forward"
    return called if list(wanted.values()).count(called) == 1 else entry_point


def _tensors(entries: Sequence[ExportedEntry]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The tensors that calls change, with their first values, and those that are no state or weight."""
    state: dict[str, torch.Tensor] = {}
    constants: dict[str, torch.Tensor] = {}
    for entry in entries:
        written, _ = writes(entry.program)
        signature = entry.program.graph_signature
        for target in (*signature.buffers, *signature.lifted_tensor_constants):
            tensor = hops.held(entry.program, target).detach()
            if target in written:
                state[target] = tensor
            elif target in signature.buffers or of_tensor(tensor) is None:
                constants[target] = tensor
    return state, {path: tensor for path, tensor in constants.items() if path not in state}


def _method(
    exported: Exported, entry: ExportedEntry, called: str, contents: ModuleContents, *, direct: bool
) -> ast.stmt:
    canonical = next(each for each in exported.canonical.entries if each.name == entry.name)
    program = entry.program
    graph = unlifted(program)
    simplify(graph)
    own: dict[str, ast.expr] = {}
    writer = Writer(lambda path: own.get(path) or contents.attribute(path), contents.leaves, direct=direct)
    arguments, body, leaves = method_inputs(canonical, writer.free)
    # Tensors that a call makes from numbers.
    constants: dict[str, ast.expr] = {}
    lifted = program.graph_signature.lifted_tensor_constants
    for path in sorted(
        {str(node.target) for node in graph.graph.find_nodes(op="get_attr")}.intersection(lifted)
    ):
        if path in program.constants and (value := of_tensor(program.constants[path])) is not None:
            constant = writer.free(path.replace(".", "_"))
            constants[constant] = value
            own[path] = name(constant)
    statements, results = writer.body(graph, leaves)
    read = {node.id for each in statements for node in ast.walk(each) if isinstance(node, ast.Name)}
    body += checks(canonical, leaves)
    body += [assign(constant, value) for constant, value in constants.items() if constant in read]
    # ExportedProgram's own structure is that of the call, too.
    structure: Any = graph._out_spec  # noqa: SLF001
    returned = ast.Return(result_expression(structure, results_of(results)))
    return ast.FunctionDef(called, arguments, [*body, *statements, returned], [])


def _head(exported: Exported, made: ast.ClassDef, contents: ModuleContents, stem: str) -> str:
    """The text before the class: what it is, imports, tensors from a file."""
    used = {node.id for node in ast.walk(made) if isinstance(node, ast.Name)}
    library = [f"import {each}" for each in ("math", "operator") if each in used]
    library += ["from pathlib import Path"] if contents.stored else []
    tensors = f'_TENSORS = torch.load(Path(__file__).with_name("{stem}.pt"), weights_only=True)'
    lines = [
        f'"""{exported.canonical.spec.name}, written by `aotpipe canonicalize`; it needs torch only."""',
        "",
        "from __future__ import annotations",
        "",
        *([*library, ""] if library else []),
        "import torch",
        *(["import torch.nn.functional as F"] if "F" in used else []),
        "from torch import nn",
        *(["", tensors] if contents.stored else []),
    ]
    return "\n".join(lines) + "\n\n\n"


def method_inputs(
    entry: CanonicalEntry, free: Callable[[str], str]
) -> tuple[ast.arguments, list[ast.stmt], list[ast.expr]]:
    """The parameters of an entry point, as its example gives them, and what takes them apart.

    The last is an expression for each leaf of the example, in torch's flattening order.
    """
    kwargs = entry.entry.kwargs
    bound = signature_of(entry.module.forward).bind(*entry.entry.args, **kwargs)
    given: dict[str, tuple[ast.expr, Any]] = {}
    plain: list[tuple[str, ast.expr | None]] = []
    keywords: list[tuple[str, ast.expr | None]] = []
    vararg: str | None = None
    for key, value in bound.arguments.items():
        parameter = bound.signature.parameters[key]
        kind = parameter.kind
        if kind is parameter.VAR_POSITIONAL:
            vararg = free(key)
            given |= {f"{key}_{at}": (item(name(vararg), at), each) for at, each in enumerate(value)}
            continue
        is_keyword = kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)
        for inner, each in value.items() if kind is parameter.VAR_KEYWORD else [(key, value)]:
            called = free(inner)
            (keywords if is_keyword else plain).append((called, _default(parameter, each)))
            given[inner] = name(called), each
    without = max((at for at, (_, default) in enumerate(plain, 1) if default is None), default=0)
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg("self"), *(ast.arg(called) for called, _ in plain)],
        vararg=ast.arg(vararg) if vararg else None,
        kwonlyargs=[ast.arg(called) for called, _ in keywords],
        kw_defaults=[default for _, default in keywords],
        defaults=[default for _, default in plain[without:] if default is not None],
    )
    body: list[ast.stmt] = []
    leaves: list[ast.expr] = []
    for base in [*(key for key in given if key not in kwargs), *kwargs]:
        made_of, value = given[base]
        for found, last, leaf in _leaves(value, made_of):
            leaves.append(found)
            if isinstance(leaf, torch.Tensor) and not isinstance(found, ast.Name):
                wanted = base if last is None else f"{base}_{last}"
                called = free(last if isinstance(last, str) and last else wanted)
                body.append(assign(called, found))
                leaves[-1] = name(called)
    return arguments, body, leaves


def _default(parameter: inspect.Parameter, example: Any) -> ast.expr | None:
    """The default of a parameter that has one: the example's value, for which the code is written."""
    has_one = parameter.default is not parameter.empty and isinstance(example, PLAIN)
    return literal(example) if has_one else None


def _leaves(value: Any, made: ast.expr) -> Iterator[tuple[ast.expr, object, Any]]:
    """Each leaf of a value: its expression, the last key on the way to it, which may be none, and itself."""
    for path, leaf in pytree.tree_flatten_with_path(value)[0]:
        found = made
        last: Any = None
        for key in path:
            match key:
                case pytree.GetAttrKey(name=last):
                    found = ast.Attribute(found, last, ast.Load())
                case pytree.SequenceKey(idx=last) | pytree.MappingKey(key=last):
                    found = ast.Subscript(found, literal(last), ast.Load())
                case _:
                    raise TypeError(f"an input is taken apart by {key!r}")
        yield found, last, leaf


def result_expression(spec: pytree.TreeSpec, leaves: Sequence[ast.expr]) -> ast.expr:
    """The expression of a result: tuples, lists and dicts as they are, others as dicts of their fields."""
    rest = iter(leaves)

    def made(spec: pytree.TreeSpec) -> ast.expr:
        if spec.is_leaf():
            return next(rest)
        inner = [made(child) for child in spec.children()]
        if spec.type is tuple:
            return tuple_of(inner)
        if spec.type is list:
            return ast.List(inner, ast.Load())
        keys = list(spec.context) if spec.type in (dict, OrderedDict) else _keys(spec)
        if keys is not None and len(keys) == len(inner):
            return ast.Dict([literal(key) for key in keys], inner)
        return tuple_of(inner) if len(inner) != 1 else inner[0]

    return made(spec)


def _keys(spec: pytree.TreeSpec) -> list[str] | None:
    """The names of the parts of an object."""
    context = spec.context
    if isinstance(context, type) and hasattr(context, "_fields"):
        return list(context._fields)  # a namedtuple
    if isinstance(context, (list, tuple)) and context and isinstance(context[0], (list, tuple)):
        context = context[0]
    keys = getattr(context, "keys", context)
    if isinstance(keys, (list, tuple)) and all(isinstance(key, str) for key in keys):
        return list(keys)
    return None


def checks(entry: CanonicalEntry, leaves: Sequence[ast.expr]) -> Iterator[ast.stmt]:
    """A refusal of each constant other than the one that the model was written for."""
    for called, leaf in zip(entry.input_names, leaves, strict=True):
        value = entry.constants.get(called)
        if value is None:
            continue
        differs = ast.Compare(leaf, [ast.NotEq()], [literal(value)])
        text = ast.Constant(f"{called} is not {value!r}, for which this was written")
        yield ast.If(differs, [ast.Raise(call("ValueError", text), None)], [])
