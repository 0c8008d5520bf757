"""Begins and ends a trace, in which rewritten code puts what depends on tensors into the graph.

`staging(module)` says so while a module is traced. Outside of it every operator is Python's own.

`rewritten(function)` gives a function's new code object: compiled under the old file name and lines, with the
same free variables, so that closures, defaults, `super()` and decorators stay what they are. `swapped(codes)`
puts such codes in and takes them out again. `deciding(error)` finds the functions that an error came from.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType, MappingProxyType
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.alias import effects
from aotpipe.canonicalize.operators import (
    conditional,
    control_flow_calls,
    dynamic_list_methods,
    implicit_calls,
    list_functions,
    numpy_calls,
    operators,
    unbacked_items,
)
from aotpipe.canonicalize.rewrite import ast_builders, path_scopes, statements
from aotpipe.canonicalize.trace import (
    constants,
    dry_run,
    number_errors,
    region_sites,
    runtime_asserts,
    torch_functions,
)
from aotpipe.canonicalize.trace.return_values import Unwritten
from aotpipe.canonicalize.values import dynamic_list, host_scalars, object_fields, trace
from aotpipe.canonicalize.values.chosen_object import ChosenObject, listed
from aotpipe.canonicalize.values.optional_values import OptionalValue
from aotpipe.canonicalize.values.trace import Operators, Trace
from aotpipe.errors import ExportFailed
from aotpipe.model import capacity, source
from aotpipe.model.garbage_collector import function_of, functions_of, makers_of

Hook = Callable[..., Any]
Places = Collection[tuple[str, int]]
"""Lines of files."""


def _require(truth: torch.Tensor, error: Exception) -> bool:
    """Let eager raise where a flag is false; whether it is true from then on, in what is recorded too."""
    return runtime_asserts.require(truth, error, holds=True) and not dry_run.is_unrecorded()


_OPERATORS: Final = Operators(
    call=operators.call,
    either=conditional.either,
    call_with_optional=conditional.called,
    call_with_list=list_functions.called,
    call_chosen=dynamic_list_methods.call_chosen,
    element_chosen=dynamic_list_methods.element_chosen,
    require_defined=number_errors.require_defined,
    require_index=number_errors.require_index,
    require=_require,
    add_assert=runtime_asserts.add_assert,
    truth=runtime_asserts.truth,
    mapped=unbacked_items.mapped,
    items_of=unbacked_items.of,
    on_call=implicit_calls.on_call,
    are_calls_possible=implicit_calls.are_possible,
)

# What only rewritten code knows: what is said of it, a hint, and the code of the finding.
_UNRETURNED: Final = {
    dynamic_list.DynamicList: (
        "a list, a dict or a set whose length a tensor decides",
        "return torch.stack of its tensors, or torch.tensor of its numbers, such as `torch.tensor(list(d))`",
        "list-grows",
    ),
    OptionalValue: (
        "None on one path and a tensor on another, where a tensor decides",
        "return a tensor on every path, and whether it counts beside it",
        "paths-differ",
    ),
    ChosenObject: (
        "one of several objects, where a tensor decides which",
        "return a number for each: `NUMBERS[name]` of a dict such as `{'sum': 0, 'mean': 1}`",
        "paths-differ",
    ),
}


Multiples = Mapping[tuple[int, int], tuple[int, int]]


@contextmanager
def staging(
    module: torch.nn.Module,
    *,
    exact_aliases: bool = False,
    splits_tries: bool = False,
    joins_objects: bool = False,
    splits_containers: bool = False,
    unrolls_ranges: bool = False,
    asking: Collection[tuple[str, int, str]] = (),
    upper_bounds: Mapping[int, int] = MappingProxyType({}),
    multiples: Multiples = MappingProxyType({}),
    values: Mapping[str, torch.Tensor] = MappingProxyType({}),
) -> Iterator[Trace]:
    """Put what depends on traced tensors into the graph, while a module is traced; gives the trace.

    Args:
        module: What is traced.
        exact_aliases: Whether the graph follows which names of tensors are names of one.
        splits_tries: Whether a `try` is run for each way that a tensor may take through it.
        joins_objects: Whether a new object stands for those that a variable of a class of the model's may be.
        splits_containers: Whether paths are kept apart on which a container gets another name.
        unrolls_ranges: Whether a loop over a range of sizes is written out where it is refused as one op.
        asking: The codes in which each truth for which a library asks is a path of its own.
        upper_bounds: The highest values of integers among the leaves of a call, by place.
        multiples: By place and dim of the leaves, the `a` and the `b` of sizes that are `a * n + b`.
        values: What parameters and buffers hold in every call, by name.
    """
    made = Trace(
        _OPERATORS,
        exact_aliases=exact_aliases,
        splits_tries=splits_tries,
        joins_objects=joins_objects,
        splits_containers=splits_containers,
        unrolls_ranges=unrolls_ranges,
        asking=asking,
    )
    with (
        trace.held(capacity.assert_in_trace, _assert_capacity),
        trace.started(made) as found,
        object_fields.forgotten(),
        hooks_joined(module),
        effects.watching(module),
        host_scalars.unhashable(),
        implicit_calls.classes_seen(),
        numpy_calls.of_no_length(),
        control_flow_calls.staged(),
        called_in_mode(module, upper_bounds, multiples, values),
    ):
        yield found


def _assert_capacity(fits: Any, said: str) -> bool:
    if not torch_functions.is_staged(fits):
        return False
    runtime_asserts.add_assert(torch_functions.predicate(fits), said)
    return True


@contextmanager
def called_in_mode(
    module: torch.nn.Module,
    upper_bounds: Mapping[int, int],
    multiples: Multiples,
    values: Mapping[str, torch.Tensor],
) -> Iterator[None]:
    """Run a module's forward in our mode, inside of the one that torch.export itself runs it in.

    That one asks an index for its value.
    """
    own = vars(module).get("forward")
    forward = module.forward

    @region_sites.boundary
    @wraps(forward)
    def inside(*args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        for (position, axis), multiple in multiples.items():
            if isinstance(leaf := leaves[position], torch.Tensor):
                host_scalars.note_multiple(leaf.shape[axis], multiple)
        for position, leaf in enumerate(leaves):
            if position in upper_bounds and isinstance(leaf, torch.Tensor):
                host_scalars.note_upper_bound(leaf, upper_bounds[position])
        current = trace.current()
        counted = trace.assigned(current, modes=current.modes + 1)
        known = constants.registered_known(module, values)
        with trace.watch_ended(), torch_functions.Traced(), counted, effects.results_checked(), known:
            result = forward(*args, **kwargs)
        implicit_calls.check_refused()
        leaves = dynamic_list.leaves(result)
        for kind, (said, hint, code) in _UNRETURNED.items():
            if found := [leaf for leaf in leaves if type(leaf) is kind]:
                where = source.of_definition(forward)
                said += f": {listed(found[0])}" if isinstance(found[0], ChosenObject) else ""
                raise ExportFailed(f"what forward returns is {said}", hint=hint, code=code, where=where)
        return result

    # That of the class has `self` too.
    inside.__signature__ = source.signature_of(forward)  # type: ignore[attr-defined]
    vars(module)["forward"] = inside
    try:
        yield
    finally:
        if own is None:
            del vars(module)["forward"]
        else:
            vars(module)["forward"] = own


@contextmanager
def hooks_joined(module: torch.nn.Module) -> Iterator[None]:
    """Let the hooks of a module, and of those in it, give what they were given in the place of None.

    A hook that returns None on one path is called by torch's own code, which is not rewritten.
    """
    before: list[tuple[dict[int, Hook], int, Hook]] = []
    try:
        for part in module.modules():
            for table, wrapped in ((part._forward_pre_hooks, _pre_hook), (part._forward_hooks, _hook)):  # noqa: SLF001
                for key, hook in table.items():
                    before.append((table, key, hook))
                    with_kwargs = key in part._forward_pre_hooks_with_kwargs  # noqa: SLF001
                    table[key] = wrapped(hook, with_kwargs)
        yield
    finally:
        for table, key, hook in before:
            table[key] = hook


# Closures: what a hook changes is found in the variables of functions.
def _hook(hook: Hook, _: bool) -> Hook:
    def joined(module: Any, *given: Any) -> Any:
        return _either(hook(module, *given), given[-1])

    return joined


def _pre_hook(hook: Hook, with_kwargs: bool) -> Hook:
    def joined(module: Any, *given: Any) -> Any:
        result = hook(module, *given)
        if (
            isinstance(result, OptionalValue)
            and not with_kwargs
            and not isinstance(result.payload_of_optional, tuple)
        ):
            result = OptionalValue(result.flag_of_optional, (result.payload_of_optional,))
        return _either(result, given if with_kwargs else given[0])

    return joined


def _either(result: Any, otherwise: Any) -> Any:
    if not isinstance(result, OptionalValue):
        return result
    return conditional.either(result, lambda: result.payload_of_optional, lambda: otherwise)


def deciding(error: BaseException) -> list[FunctionType]:
    """The live functions whose code raised an error, or called the libraries that did."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    codes = [frame.f_code for frame in frames]
    return running([*codes, error.code] if isinstance(error, Unwritten) else codes, frames)


def asking(error: BaseException) -> tuple[str, int, str] | None:
    """The innermost code of a model that an error came from, as `Trace.asking` names it."""
    codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    codes += [error.code] if isinstance(error, Unwritten) else []
    found = [code for code in codes if source.is_model_code(code.co_filename)]
    return runtime_asserts.key_of(found[-1]) if found else None


def running(codes: Iterable[CodeType], frames: Iterable[FrameType] = ()) -> list[FunctionType]:
    """The live functions of a model whose code is the last of these.

    `codes` are what ran, the outermost first; `frames` are ended calls of them, which may tell the function.
    """
    # Neither Python's own, nor torch's, nor ours: what the model calls them with is to blame.
    codes = [code for code in codes if source.is_model_code(code.co_filename)]
    # Who asks for the hash of an object decides: it may remember results (`functools.cache`), or hold keys.
    while codes and codes[-1].co_name == "__hash__" and operators in codes[-1].co_consts:
        codes.pop()
    if not codes:
        return []
    # A function that another one makes is made anew by each call of that.
    code = codes[-1]
    for maker in reversed(codes):
        code = maker if code in source.codes_in(maker) else code
    if operators in code.co_consts:
        return []
    if code.co_name == "<genexpr>":
        # The function that returned the generator expression has ended.
        return makers_of(code)[:1]
    # Of other functions the frame tells the one that ran, without a walk of all objects. Those of the same
    # code, which a loop of a module may make, are told when they raise.
    called = [] if "<locals>" in code.co_qualname else [frame for frame in frames if frame.f_code is code]
    known = [function for frame in called[-1:] if (function := function_of(frame)) is not None]
    return known or functions_of(code)


def rewritten(function: FunctionType, scopes: Places = ()) -> CodeType | None:
    """The code of a function with its control flow as calls; None where it has no source or no such form.

    `scopes` are the beginnings of statements that are traced once for each path.
    """
    code = function.__code__
    definition = _definition(code)
    if definition is None:
        return None
    path_scopes.with_scopes(definition, {line for path, line in scopes if path == code.co_filename})
    written = statements.rewrite(definition)
    found = recompiled(code, written) if written is not None else None
    return _with_operators(found) if found is not None else None


def rewritten_codes(functions: Iterable[FunctionType], scopes: Places = ()) -> dict[FunctionType, CodeType]:
    """The code of each of the functions that can be `rewritten`."""
    found = {function: rewritten(function, scopes) for function in functions}
    return {function: code for function, code in found.items() if code is not None}


def recompiled(code: CodeType, written: ast.FunctionDef) -> CodeType | None:
    """A function's code of other syntax, with the old free variables; None where it has other ones."""
    # In a function that has the free variables as parameters, they are free again; in a class of the old
    # name, private names are mangled as before.
    body: list[ast.stmt] = [written]
    owner = code.co_qualname.split(".")[-2:-1]
    named = [code.co_name]
    if owner and owner[0].isidentifier():
        body = [ast.ClassDef(owner[0], [], [], [written], [])]
        named = owner
    if named[0].isidentifier() and named[0] not in code.co_freevars:
        # A method that names its own class and a function that calls itself mean the module's, not this one.
        body.insert(0, ast.Global(named))
    shell = ast.FunctionDef("__aotpipe_shell", ast_builders.parameters(*code.co_freevars), body, [])
    for each in (shell, *body):
        ast.copy_location(each, written)
    module = ast.fix_missing_locations(ast.Module([shell], []))
    flags = code.co_flags & _FUTURES
    compiled = compile(module, code.co_filename, "exec", flags=flags, dont_inherit=True)
    found = next((each for each in source.codes_in(compiled) if each.co_name == code.co_name), None)
    if found is None or found.co_freevars != code.co_freevars:
        return None
    return found.replace(co_qualname=code.co_qualname)


_FUTURES = 0x1000000  # `from __future__ import annotations`


def _definition(code: CodeType) -> ast.FunctionDef | None:
    """A copy of a function's syntax; a lambda becomes a function that returns its body."""
    match copy.deepcopy(source.syntax_of(code)):
        case ast.FunctionDef() as found:
            return found
        case ast.Lambda() as small:
            result = ast.copy_location(ast.Return(small.body), small.body)
            return ast.copy_location(ast.FunctionDef(code.co_name, small.args, [result], []), small)
        case _:
            return None


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
def swapped(codes: dict[FunctionType, CodeType], scopes: Places = ()) -> Iterator[None]:
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
        code = rewritten(function, scopes)
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
