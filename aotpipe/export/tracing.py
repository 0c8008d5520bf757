"""What is changed in torch and in Python while torch.export traces a model.

Each context manager changes one thing and puts it back:

- `data_is_traced()`: `.data` of a tensor is part of the graph;
- `inference_is_no_grad()`: `torch.inference_mode` in a model's code only turns gradients off;
- `texts_are_refused()`: a text made of a number that only a run knows raises `MadeText`;
- `refusals_are_raised()`: the model does not catch the exceptions by which torch stops a trace;
- `quiet()`: torch holds back its own warnings and logs;
- `light_traces()`: torch writes no code for graphs that nobody runs;
- `scans_own_their_carry()`: a tensor that begins a scan is nothing else in it;
- `transforms_are_left()`: a trace that is refused inside of `torch.func.grad` or `vmap` leaves it;
- `types_are_eagers(model)`: `type` and `isinstance` answer as in eager;
- `modules_are_keys(model)`: torch's tables hold modules by their identity;
- `modules_are_themselves()`: the model sees its own modules, also one that it holds under several names;
- `axes_of_one_dim_are_one()`: torch takes the sizes of axes of one Dim for one size from the start;
- `sizes_are_followed()`: torch sees that a size divides another, that what is computed of sizes is a number
  where it is the same for all, and how a branch computes a rounded size of outside (`math.ceil(n / 4)`);
- `metas_are_eagers()`: ops give shapes of which torch's tracing has none, and `unique` and `masked_select`
  no more elements than they can;
- `lines_of_helpers()`: an op bears its own line, also in a function that `forward` calls.
"""

from __future__ import annotations

import ast
import functools
import io
import logging
import math
import operator
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stderr
from importlib import import_module
from types import FrameType, FunctionType
from typing import Any, Final

import sympy
import torch
from torch import _prims_common
from torch._C import _functorch
from torch._decomp import decomposition_table  # by which a trace finds shapes and dtypes
from torch._export import non_strict_utils
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.export import _trace
from torch.fx import proxy
from torch.fx._lazy_graph_module import _use_lazy_graph_module  # what torch.compile itself traces with
from torch.fx.experimental import proxy_tensor, sym_node, symbolic_shapes
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols
from torch.fx.proxy import TracerBase
from torch.utils._sympy import functions
from torch.utils._sympy.value_ranges import bound_sympy

from aotpipe.canonicalize.operators import builtin_calls
from aotpipe.canonicalize.rewrite.expressions import LOGGED
from aotpipe.canonicalize.trace.return_values import Unwritten
from aotpipe.canonicalize.values import trace
from aotpipe.errors import ExportFailed
from aotpipe.export import branch_sizes
from aotpipe.model import source


def data_is_traced() -> AbstractContextManager[None]:
    """Let `.data` in a model's code be `.detach()`, which shares memory as `.data` does, and is traced.

    torch's own `.data` leaves the trace, and the program would lack what it holds. What is assigned to it is
    written into the tensor.
    """
    original: Any = torch.Tensor.data

    def data(tensor: torch.Tensor) -> torch.Tensor:
        if source.is_model_code(sys._getframe(1).f_code.co_filename):  # noqa: SLF001  # no other way to a caller
            return tensor.detach()
        found: torch.Tensor = original.__get__(tensor)
        return found

    def assign(tensor: torch.Tensor, value: torch.Tensor) -> None:
        if not source.is_model_code(sys._getframe(1).f_code.co_filename):  # noqa: SLF001
            original.__set__(tensor, value)
        elif (tensor.shape, tensor.dtype) != (value.shape, value.dtype):
            raise RuntimeError(
                f"`.data` of a {tensor.dtype} of shape {tuple(tensor.shape)} is assigned "
                f"a {value.dtype} of shape {tuple(value.shape)}"
            )
        else:
            tensor.detach().copy_(value)

    return trace.assigned(torch.Tensor, data=property(data, assign))


def inference_is_no_grad() -> AbstractContextManager[None]:
    """Let `torch.inference_mode` in a model's code turn gradients off, and no more.

    A tensor of inference mode counts no versions. By these torch's tracing knows that two selections by one
    mask have one size, and that a tensor was not written.
    """
    asked = torch.is_inference_mode_enabled

    @contextmanager
    def inference(enabled: bool) -> Iterator[None]:
        def is_enabled() -> bool:
            is_asked_by_model = source.is_model_code(sys._getframe(1).f_code.co_filename)  # noqa: SLF001
            return enabled if is_asked_by_model else asked()

        with torch.set_grad_enabled(not enabled), trace.assigned(torch, is_inference_mode_enabled=is_enabled):
            yield

    def enter(mode: Any) -> None:
        mode._inference_mode_context = inference(mode.mode)  # noqa: SLF001  # which its `__exit__` leaves
        mode._inference_mode_context.__enter__()  # noqa: SLF001

    return trace.assigned(torch.inference_mode, __enter__=enter)


# The module, whose name in its package is that of the function.
_SCANS: Final = import_module("torch._higher_order_ops.scan")


class MadeText(RuntimeError):
    """A model made a text of a traced number."""


@contextmanager
def texts_are_refused() -> Iterator[None]:
    """Let a model's code that makes a text of a traced number or tensor raise `MadeText`.

    `str(n)`, `f"{n}"` and their kin give the name of torch's symbol (`u0`): a key that is not there, or
    silently the wrong one. The code that asks for it is then rewritten; what is only printed is left out
    there, the rest is refused at its line.
    """
    numbers = dict.fromkeys((torch.SymInt, torch.SymFloat, torch.SymBool), _refusing_number)
    with ExitStack() as stack:
        for kind, refusing in {**numbers, torch.Tensor: _refusing_tensor}.items():
            stack.enter_context(trace.assigned(kind, __repr__=refusing(kind.__repr__)))
        yield


def _refusing_number(written: Callable[[Any], str]) -> Callable[[Any], str]:
    def shown(number: Any) -> str:
        # `str` and formats have no frame of their own: the caller's is that of the code that asks for a text.
        if source.is_user_file(sys._getframe(1).f_code.co_filename) and free_unbacked_symbols(number):  # noqa: SLF001
            if trace.current().is_message:
                return "..."
            raise MadeText("data-dependent: a text is made of a number that only a run knows")
        return written(number)

    return shown


# Functions between the code that asks for a tensor's text and `__repr__`.
_BETWEEN: Final = {"__format__", "__torch_function__", "_called", "handle_torch_function", "inside"}


def _refusing_tensor(written: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(written)
    def shown(tensor: torch.Tensor, **contents: Any) -> str:
        if isinstance(tensor, FakeTensor) and tensor.constant is None:
            if trace.current().is_message:
                return "..."
            frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
            while frame is not None and frame.f_code.co_name in _BETWEEN:
                frame = frame.f_back
            if frame is not None and source.is_user_file(frame.f_code.co_filename) and not _is_talk(frame):
                raise MadeText("data-dependent: a text is made of a tensor, which only a run knows")
        return written(tensor, **contents)

    return shown


def _is_talk(frame: FrameType) -> bool:
    """Whether a frame is in a statement that prints or logs, and no more."""
    tree = source.syntax(frame.f_code.co_filename)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func).rpartition(".")[2]
            if called in ("print", *LOGGED) and node.lineno <= frame.f_lineno <= (
                node.end_lineno or node.lineno
            ):
                return True
    return False


_REFUSALS: Final[tuple[Any, ...]] = (
    GuardOnDataDependentSymNode,
    DataDependentOutputException,
    MadeText,
    Unwritten,
    ExportFailed,
)


class CaughtByModel(Exception):
    """The cause of an error that code of the model had caught."""


@contextmanager
def refusals_are_raised() -> Iterator[None]:
    """Raise after the body what code of the model caught in it of what stops a trace.

    A trace stops by an exception where Python asks a tensor for its value. A model that catches it (`except
    Exception`, a `finally` that returns) would be traced in its handler, whatever the value is.
    """
    made: list[BaseException] = []

    def watched(before: Any) -> Any:
        def noted(self: BaseException, *args: Any, **kwargs: Any) -> None:
            made.append(self)
            before(self, *args, **kwargs)

        return noted

    with ExitStack() as stack:
        for kind in _REFUSALS:
            stack.enter_context(trace.assigned(kind, __init__=watched(kind.__init__)))
        raised: BaseException | None = None
        try:
            yield
        except Exception as error:  # noqa: BLE001  # raised again below
            raised = error
    # Raised where no other exception is handled, of which it may be the cause.
    for caught in _caught_by_models(made):
        if all(caught is not each for each in _chain(raised)):
            raise caught from CaughtByModel()
    if raised is not None:
        raise raised


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that were handled when it was raised."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _caught_by_models(errors: Iterable[BaseException]) -> Iterator[BaseException]:
    """The errors that code of the model caught."""
    for error in errors:
        # The outermost frame of the traceback of a caught exception is the frame that caught it.
        caught = error.__traceback__
        path = caught.tb_frame.f_code.co_filename if caught is not None else ""
        # What `exec` compiled has no file.
        if path.startswith("<") or (path and source.is_model_code(path)):
            yield error


def extremes_decide() -> AbstractContextManager[None]:
    """Let `min` and `max` of tensors compare them, as Python's own do.

    torch.export makes `torch.minimum` and `torch.clamp` of them, which give NaN where either is, and take
    tensors of several elements. The comparison is one that the model decides by, and part of a staged graph.
    """
    before = non_strict_utils._tensor_min_max  # noqa: SLF001  # what `min` and `max` are replaced by

    def extreme(*args: Any, real_callable: Callable[..., Any], **kwargs: Any) -> Any:
        if len(args) == 2 and any(isinstance(each, torch.Tensor) for each in args):
            del kwargs["tensor_callable"]
            return real_callable(*args, **kwargs)
        if len(args) == 1 and isinstance(args[0], torch.Tensor):
            # torch hands the tensor to an op of two.
            args = (list(args[0]),)
        return before(*args, real_callable=real_callable, **kwargs)  # type: ignore[no-untyped-call]

    return trace.assigned(non_strict_utils, _tensor_min_max=extreme)


@contextmanager
def numbers_may_be_nan() -> Iterator[None]:
    """Let no comparison of a number that a tensor holds be decided before a run.

    torch computes with such a number as with a real one, of which `v == v` and `v * 0 == 0` hold: not so of
    NaN and of infinity. What a run decides is part of a staged graph.
    """
    with ExitStack() as stack:
        for name in ("eq", "ne", "lt", "le", "gt", "ge"):
            compared = _undecided(getattr(torch.SymFloat, f"__{name}__"))
            stack.enter_context(trace.assigned(torch.SymFloat, **{f"__{name}__": compared}))
        yield


def _undecided(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def is_of_data(value: Any) -> bool:
        # A number that is computed of sizes has the hint that these give it.
        return isinstance(value, torch.SymFloat) and not value.node.has_hint()

    @functools.wraps(compare)
    def compared(one: Any, other: Any) -> Any:
        found = compare(one, other)
        if not is_of_data(one) and not is_of_data(other):
            return found
        condition = found.node.expr if isinstance(found, torch.SymBool) else sympy.sympify(found)
        decided = one.node.shape_env._maybe_evaluate_static(condition)  # noqa: SLF001  # nothing public tells
        if decided is None:
            return found
        raise GuardOnDataDependentSymNode(condition, "only a run knows whether a number is NaN or infinite")

    return compared


@contextmanager
def types_are_eagers(model: torch.nn.Module) -> Iterator[None]:
    """Let `type` and `isinstance` in a model's code answer as they do in eager.

    A size that varies is an `int` there, and a tensor is a `torch.Tensor`; a trace has classes of torch's own
    in their place, and takes the other path with no word. Python looks both names up in the module's globals
    before its own.
    """
    given = {"isinstance": builtin_calls.is_instance, "type": builtin_calls.TracedType}
    added: list[tuple[dict[str, Any], str]] = []
    try:
        for names in _globals_of(model):
            for name in given.keys() - names.keys():
                names[name] = given[name]
                added.append((names, name))
        yield
    finally:
        for names, name in added:
            names.pop(name, None)


def _globals_of(model: torch.nn.Module) -> Iterator[dict[str, Any]]:
    """The variables of each file of a model's own."""
    spaces = [getattr(module, "__dict__", {}) for module in list(sys.modules.values())]
    kinds = {kind for part in model.modules() for kind in type(part).__mro__}
    # A file that was not imported by a name is in no table of modules.
    functions = (vars(kind).get("forward") for kind in kinds)
    spaces += [function.__globals__ for function in functions if isinstance(function, FunctionType)]
    for names in spaces:
        path = names.get("__file__")
        if isinstance(path, str) and source.is_model_code(path):
            yield names


@contextmanager
def dispatches_are_eagers(model: torch.nn.Module) -> Iterator[None]:
    """Let a model's functions of `functools.singledispatch` take a number that varies for the number it is.

    They go by the class, which is one of torch's in a trace, and take the function for any object, with no
    word.
    """
    with ExitStack() as stack:
        for each in _dispatchers(_globals_of(model)):
            dispatch = _with_classes_of_eager(each.dispatch)
            at = each.__code__.co_freevars.index("dispatch")
            stack.enter_context(trace.assigned(each.__closure__[at], cell_contents=dispatch))
            stack.enter_context(trace.assigned(each, dispatch=dispatch))
        yield


def _dispatchers(spaces: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    """The functions of `functools.singledispatch` in some files, and in the classes that these name."""
    # Most files name the same classes, of which each is looked into once: there are thousands of files.
    classes: dict[int, type] = {}
    found: dict[int, Any] = {}
    for names in spaces:
        for value in list(names.values()):
            if type(value) is FunctionType:
                if builtin_calls.is_dispatching(value):
                    found[id(value)] = value
            elif isinstance(value, type):
                classes[id(value)] = value
    for kind in classes.values():
        for value in list(vars(kind).values()):
            each = value.dispatcher if type(value) is functools.singledispatchmethod else value
            if type(each) is FunctionType and builtin_calls.is_dispatching(each):
                found[id(each)] = each
    return iter(found.values())


def _with_classes_of_eager(dispatch: Callable[[type], Any]) -> Callable[[type], Any]:
    def chosen(kind: type) -> Any:
        # What calls has the value, and asks by its class alone.
        args = sys._getframe(1).f_locals.get("args", ())  # noqa: SLF001
        return dispatch(builtin_calls.class_of(args[0]) if args and args[0].__class__ is kind else kind)

    return chosen


@contextmanager
def modules_are_keys(model: torch.nn.Module) -> Iterator[None]:
    """Let torch's own tables hold a module by its identity, where its class has a hash of its own.

    torch looks a module up for each attribute that is read of it; a hash that reads one would never end.
    """
    kinds = {kind for part in model.modules() for kind in type(part).__mro__ if "__hash__" in vars(kind)}
    with ExitStack() as stack:
        for kind in kinds - {torch.nn.Module, object}:
            if callable(own := vars(kind)["__hash__"]):
                stack.enter_context(trace.assigned(kind, __hash__=_hash_for_torch(own)))
        yield


def _hash_for_torch(own: Callable[[Any], int]) -> Callable[[Any], int]:
    @functools.wraps(own)
    def hashed(module: Any) -> int:
        asking = sys._getframe(1).f_code.co_filename  # noqa: SLF001  # C has no frame of its own
        return own(module) if source.is_model_code(asking) else id(module)

    return hashed


def modules_are_themselves() -> AbstractContextManager[None]:
    """Let a model that holds a module under several names read that very module.

    torch.export gives a stand-in of a class of its own for each module of such a model, to tell by which name
    it was read: `type(self.act) is nn.ReLU` and `self.first is self.second` are then false.
    """
    tracer = proxy_tensor._ModuleStackTracer  # noqa: SLF001  # torch makes it itself, and has no switch
    begin = tracer.__init__

    def begun(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self.enable_attr_proxy = False

    return trace.assigned(tracer, __init__=begun)


@contextmanager
def sizes_are_followed() -> Iterator[None]:
    """Let torch follow what is computed of sizes in three ways that it lacks."""
    with _multiples_are_seen(), _fixed_sizes_are_numbers(), _sizes_are_rebuilt():
        yield


def _multiples_are_seen() -> AbstractContextManager[None]:
    """Let torch see that one size divides another, as `2 * n - 2` does `8 * n - 8`.

    Reshapes ask for it; torch would take the remainder for an assumption about the Dims.
    """
    before = functions.Mod.eval.__func__  # type: ignore[attr-defined]

    def remainder(cls: Any, dividend: sympy.Expr, divisor: sympy.Expr) -> Any:
        if divisor.free_symbols and sympy.cancel(dividend / divisor).is_Integer:
            return sympy.S.Zero
        return before(cls, dividend, divisor)

    return trace.assigned(functions.Mod, eval=classmethod(remainder))


def _fixed_sizes_are_numbers() -> AbstractContextManager[None]:
    """Give what is computed of sizes as a number of Python's where it is the same for all (`n - n`).

    torch gives a symbol without a symbol, which no graph of a branch knows.
    """
    before = sym_node.wrap_node

    def wrap(found: Any) -> Any:
        is_fixed = isinstance(found, sym_node.SymNode) and found.pytype is int and found.expr.is_Integer
        return int(found.expr) if is_fixed else before(found)

    return trace.assigned(sym_node, wrap_node=wrap)


def _sizes_are_rebuilt() -> AbstractContextManager[None]:
    """Let a graph of a branch compute a rounded size of the graph around it (`math.ceil(n / 4)`) anew.

    torch does so for integer arithmetic alone, and refuses the others as not tracked.
    """
    before = proxy_tensor._sympy_handlers  # noqa: SLF001  # the ops that it knows

    def handlers() -> dict[Any, Any]:
        return {**before(), **_ROUNDED}

    return trace.assigned(proxy_tensor, _sympy_handlers=handlers)


_ROUNDED: Final = {
    functions.IntTrueDiv: operator.truediv,
    functions.FloatTrueDiv: operator.truediv,
    functions.ToFloat: torch.sym_float,
    functions.CeilToInt: math.ceil,
    functions.FloorToInt: math.floor,
    functions.TruncToInt: math.trunc,
    functions.RoundToInt: round,
    functions.PowByNatural: operator.pow,
    functions.FloatPow: operator.pow,
    sympy.Pow: operator.pow,
    functions.PythonMod: operator.mod,
}


def _unique_is_bounded() -> AbstractContextManager[None]:
    """Let `unique` of a tensor whose sizes vary give no more elements than the largest of them has."""
    before = fake_impls._unique  # noqa: SLF001

    def unique(
        fake_mode: Any, func: Any, arg: FakeTensor, dim: int | None, *more: Any, **options: Any
    ) -> Any:
        found = before(fake_mode, func, arg, dim, *more, **options)
        size, count = (
            (arg.numel(), found[0].numel()) if dim is None else (arg.shape[dim], found[0].shape[dim])
        )
        if isinstance(count, torch.SymInt) and isinstance(size, torch.SymInt):
            most = bound_sympy(size.node.expr, size.node.shape_env.var_to_range).upper
            if most.is_Integer:
                symbolic_shapes._constrain_range_for_size(count, max=int(most))  # noqa: SLF001
        return found

    return trace.assigned(fake_impls, _unique=unique)


def _copies_of_no_rows() -> AbstractContextManager[None]:
    """Let a write to a part of a tensor have a shape of any size.

    torch copies the whole as one row that it computes from the sizes and strides, and asserts that it is none
    that is shorter than zero. Of no elements it is: eager does not come there then.
    """
    before = _prims_common.clone_preserve_strides

    def copied(x: torch.Tensor) -> torch.Tensor:
        if not isinstance(x, FakeTensor) or not free_unbacked_symbols(x):
            found: torch.Tensor = before(x)  # type: ignore[no-untyped-call]
            return found
        return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)

    return trace.assigned(_prims_common, clone_preserve_strides=copied)


def _bounded_select(before: Callable[..., Any]) -> Callable[..., Any]:
    """`masked_select` bounded by its operand as its mask makes it, where torch takes the operand alone."""

    def select(fake_mode: Any, func: Any, tensor: FakeTensor, mask: FakeTensor) -> Any:
        with fake_mode:
            whole = torch.where(mask.bool(), tensor, tensor)
        return before(fake_mode, func, whole, mask)

    return select


def _quantized(fake_mode: Any, _func: Any, x: FakeTensor, *_: Any, **_options: Any) -> Any:
    with fake_mode:
        return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


def _convolution(fake_mode: Any, func: Any, *args: Any, **options: Any) -> Any:
    names = (argument.name for argument in func._schema.arguments)  # noqa: SLF001
    given = dict(zip(names, args, strict=False), **options)
    if given["bias_sizes"] is None and given["output_mask"][2]:
        dim = 0 if not given["transposed"] else 1
        given["bias_sizes"] = [given["weight"].shape[dim] * (given["groups"] if dim else 1)]
    return fake_impls.conv(fake_mode, func, **given)


def _least_squares(
    fake_mode: Any, _func: Any, a: FakeTensor, b: FakeTensor, *_: Any, **_options: Any
) -> tuple[torch.Tensor, ...]:
    """The solution's shape; of the residuals, which there are where the rank is full, nobody may read."""
    is_vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and a.shape[:-1] == b.shape)
    with fake_mode:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-1] if is_vector else b.shape[:-2])  # type: ignore[no-untyped-call]
        solution = a.new_empty((*batch, a.shape[-1], *(() if is_vector else b.shape[-1:])))
        return solution, a.new_empty(0), a.new_empty(batch, dtype=torch.int64), a.new_empty(0)


def _threshold_backward(grad_output: torch.Tensor, self: torch.Tensor, threshold: float) -> torch.Tensor:
    """In the dtype that gradient and values promote to; torch's own form leaves out the values."""
    return torch.where(self <= threshold, 0, grad_output.to(torch.result_type(grad_output, self)))


_ATEN: Final = torch.ops.aten
DECOMPOSITIONS: Final = {_ATEN.threshold_backward.default: _threshold_backward}
"""What stands for torch's own decompositions, by which a trace finds dtypes, too."""


def _decomposed(fake_mode: Any, func: Any, *args: Any, **options: Any) -> Any:
    with fake_mode:
        return DECOMPOSITIONS[func](*args, **options)


_METAS: Final = {
    _ATEN.masked_select.default: _bounded_select(
        fake_impls.op_implementations_dict[_ATEN.masked_select.default]
    ),
    _ATEN.fake_quantize_per_tensor_affine_cachemask.default: _quantized,
    _ATEN._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _quantized,  # noqa: SLF001
    _ATEN.fake_quantize_per_channel_affine_cachemask.default: _quantized,
    _ATEN.convolution_backward.default: _convolution,
    _ATEN.linalg_lstsq.default: _least_squares,
    **dict.fromkeys(DECOMPOSITIONS, _decomposed),
}


@contextmanager
def metas_are_eagers() -> Iterator[None]:
    """Let tensors of a trace have the shapes that ops give in eager, where torch has none or others.

    It has none for fake quantization where a size varies, nor for the gradient of a bias whose sizes are not
    passed, nor for `lstsq`, no bound for `unique` and `masked_select`, other sizes after each `cond`, and an
    assert for writes to parts of no elements; and of `threshold_backward` it has another dtype.
    """
    tables: Any = ((fake_impls.op_implementations_dict, _METAS), (decomposition_table, DECOMPOSITIONS))
    before = [{op: table[op] for op in own if op in table} for table, own in tables]
    for table, own in tables:
        table.update(own)
    try:
        with _unique_is_bounded(), _copies_of_no_rows(), branch_sizes.kept():
            yield
    finally:
        for (table, own), old in zip(tables, before, strict=True):
            for op in own:
                del table[op]
            table.update(old)


def guards_are_kept() -> AbstractContextManager[None]:
    """Let a trace decide on sizes: what it assumed of them is in the guards of the program's `ShapeEnv`.

    torch.export refuses a program that does not hold for all sizes of its Dims. What refuses it is a function
    of its own that compares the guards with the Dims; it has no public switch.
    """

    def keep(*, fake_mode: Any, **_: object) -> None:
        fake_mode.shape_env.frozen = True

    return trace.assigned(_trace, produce_guards_and_solve_constraints=keep)


@contextmanager
def lost_effects_are_raised() -> Iterator[None]:
    """Refuse what strict mode only warns of: what the model changes in Python is not in its program."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "While compiling, we found certain side effects", UserWarning)
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back torch's warnings, prints and log lines, which say what the error that it raises says.

    With `TORCH_LOGS` set, torch talks as the user asked it to.
    """
    if os.environ.get("TORCH_LOGS"):
        yield
        return
    loggers = [
        logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("torch")
    ]
    handlers = {h for logger in loggers for h in logger.handlers if isinstance(h, logging.StreamHandler)}
    with ExitStack() as stack:
        for handler in handlers:
            stack.enter_context(trace.assigned(handler, level=logging.CRITICAL + 1))
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        stack.enter_context(redirect_stderr(io.StringIO()))
        yield


class _Running:
    """The functions that run, in place of torch's `CapturedTraceback`: those alone whose lines are kept.

    torch names all that run, some hundred functions of its own and of the program around it, for each node.
    """

    def __init__(self) -> None:
        self._is_kept = functools.cache(_is_kept)
        self._line = functools.cache(functools.partial(traceback.FrameSummary, lookup_line=False))

    def extract(self) -> _Running:
        """As torch calls it: to look now, and to tell at once."""
        return self

    def summary(self) -> traceback.StackSummary:
        """The lines, the outermost function first."""
        found = []
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # all that run
        while frame is not None:
            code = frame.f_code
            place = (code.co_filename, code.co_name)
            if self._is_kept(*place) or place in proxy._STACK_TRACE_ANCHORS:  # noqa: SLF001  # no public name
                found.append(self._line(code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back
        return traceback.StackSummary(reversed(found))


def _is_kept(filename: str, name: str) -> bool:
    """Whether torch keeps the line of a function, or `lines_of_helpers` does."""
    return name == "forward" or filename.endswith("torch/__init__.py") or source.is_user_file(filename)


def axes_of_one_dim_are_one() -> AbstractContextManager[None]:
    """Let the sizes of axes that have one Dim be one symbol before the model runs.

    torch has a symbol for each, and looks at the end of a trace whether the model may have unequal ones. What
    the model computes of two, such as `max(x.shape[0], y.shape[0])`, would stay in the program's shapes.
    """
    before: Any = vars(_trace)["make_fake_inputs"]

    def made(*args: Any, **kwargs: Any) -> Any:
        found = before(*args, **kwargs)
        mode, equalities = found[0], found[3]
        env = mode.shape_env
        for pair in equalities.source_pairs:
            # A size that is fixed by the example has no symbol.
            one, other = (env.replace(env.source_to_var.get(each.name, sympy.S.Zero)) for each in pair)
            if one != other and one.is_Symbol and other.is_Symbol:
                env._set_replacement(other, one, "axes of one Dim")  # noqa: SLF001  # a guard would be the model's
        return found

    return trace.assigned(_trace, make_fake_inputs=made)


@contextmanager
def light_traces() -> Iterator[None]:
    """Write a graph's code when it is first run, and name no functions whose lines nobody is shown.

    torch traces each branch and loop by itself, inside of those around it. It writes Python code for every
    such graph, and again for all graphs inside of one, each time that one changes; and for every node it
    names every function that is running, most of them its own. It has public ways to neither.
    """
    with _use_lazy_graph_module(True), trace.assigned(proxy, CapturedTraceback=_Running()):
        yield


@contextmanager
def transforms_are_left() -> Iterator[None]:
    """Leave the transforms of torch.func that a refused trace was in: later calls would run inside them."""
    before = len(_functorch.get_interpreter_stack() or ())
    try:
        yield
    finally:
        while len(_functorch.get_interpreter_stack() or ()) > before:
            _functorch.pop_dynamic_layer_stack()


def scans_own_their_carry() -> AbstractContextManager[None]:
    """Let a scan begin with clones of what it is given.

    torch 2.13 takes a tensor that begins two carries, or that the step reads as well, for one value: the step
    then reads the carry of one in place of the other, and the program is wrong.
    """
    run = _SCANS._maybe_compile_and_run_fn  # noqa: SLF001

    def cloned(op: Any, step: Any, carry: list[torch.Tensor], xs: list[torch.Tensor]) -> Any:
        return run(op, step, [each.clone() for each in carry], xs)

    return trace.assigned(_SCANS, _maybe_compile_and_run_fn=cloned)


def lines_of_helpers() -> AbstractContextManager[None]:
    """Let an op that torch.export traces bear its own line, also in a function that `forward` calls.

    torch keeps of the running functions those called `forward`. Here the user's own functions below the
    first `forward` are kept as well. The method is private: torch says that it is there to be overridden, and
    makes its tracers itself.
    """
    torchs = TracerBase._filter_traceback_frames  # noqa: SLF001

    def frames(tracer: Any, running: traceback.StackSummary) -> traceback.StackSummary:
        kept = {id(frame) for frame in torchs(tracer, running)}
        first = next((at for at, frame in enumerate(running) if frame.name == "forward"), len(running))
        return traceback.StackSummary.from_list(
            frame
            for at, frame in enumerate(running)
            if id(frame) in kept or (at > first and source.is_user_file(frame.filename))
        )

    return trace.assigned(TracerBase, _filter_traceback_frames=frames)


def raising_modules_are_left() -> AbstractContextManager[None]:
    """Inside, a module whose `forward` raises is no longer among those that run.

    torch.fx keeps it there. Where the model goes on in a handler, the next module that ends is not the last
    of these, and the trace fails an assert.
    """
    call = torch.fx.Tracer.call_module

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        around = len(self.module_stack)
        try:
            return call(self, *args, **kwargs)
        except BaseException:
            while len(self.module_stack) > around:
                self.module_stack.popitem(last=True)
            raise

    return trace.assigned(torch.fx.Tracer, call_module=called)
