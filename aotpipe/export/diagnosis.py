"""From what torch.export raises to one error with the user's line, the essential sentence and a fix.

Gives an `ExportFailed`, or a `StaticDim` where a size that was asked to vary became a constant. A `GuardLog`
listens to torch's own log of its symbolic sizes, for two things that torch keeps nowhere else: the model's
line at which an assumption was made, and the assumptions of an export that failed.
"""

from __future__ import annotations

import linecache
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from traceback import walk_stack, walk_tb
from types import CodeType
from typing import Any, Final

import numpy as np
import torch
from torch._dynamo.exc import UncapturedHigherOrderOpError  # what a body that cannot be compiled raises
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols

from aotpipe.canonicalize.trace.return_values import Unwritten
from aotpipe.canonicalize.values import trace
from aotpipe.errors import ExportFailed, SourceLine, StaticDim
from aotpipe.export.tracing import MadeText
from aotpipe.model import source

_LOGGER: Final = "torch.fx.experimental.symbolic_shapes"
_CREATED: Final = re.compile(r"create_symbol (?P<symbol>\w+) = \S+ for (?P<source>.+?) \[")
_OUTERMOST: Final = "_export"
_FIXED: Final = re.compile(r"Eq\(.*, \d+(\.\d+)?\)$")
_GUARD: Final = re.compile(r"eval (?P<guard>[^\[].*?) \[guard added\]")
_SOURCE: Final = re.compile(
    r"L\['(?P<name>\w+)'\](?P<path>(?:\[[^\]]*\]|\.\w+(?!\())*)\.size\(\)\[(?P<axis>\d+)\]"
)
_STATIC: Final = re.compile(
    r"(?:You marked|marked) (?P<dim>.+?) as dynamic but.* constant \((?P<value>\d+)\)"
)
_FIX: Final = re.compile(r"^  (\w+ = .+)$", re.MULTILINE)
_CHECK: Final = re.compile(r"^\s*\d+\. (torch\._check\(.+\))$", re.MULTILINE)
_OF_ARGUMENTS: Final = re.compile(r"\b(args|kwargs)\[")
_TRACED_NUMBER: Final = re.compile(r"\bSym(Int|Float|Bool)\b|Tensor\.__format__")
_NUMBER: Final = re.compile(r"z?u?f?[a-z]\d+")
_UNBACKED: Final = re.compile(r"\bz?u[fi]?\d+\b")
# A reshape of a size into parts that it need not have.
_DIVIDED: Final = re.compile(r"shape '\[.*?\((s\d+)//(\d+)\).*\]' is invalid for input of size")
# Messages of compiled code about a tensor without values, each with a remedy.
_COMPILED: Final = {
    ".numpy() is not supported for tensor subclasses": (
        "use torch's function of that name, or let that call run in Python: aotpipe.eager_island"
    ),
    **dict.fromkeys(
        ("Cannot access data pointer of Tensor", "its data is not allocated yet"),
        "register the compiled function as an op (torch.library.custom_op), "
        "or let that call run in Python: aotpipe.eager_island",
    ),
}
_ADVICE: Final = re.compile(r"\n+The error above occurred when calling torch\.export.*", re.DOTALL)


@dataclass(slots=True)
class GuardLog:
    """Symbols by torch's name for their source (`L['x'].size()[0]`), and guards in their order.

    `fixing`: the code that ran, outermost first, where a size was found to equal a number;
    `rounding`: of those, where it became a number of Python's (`int(n * 1.5)`, `range(n)`).
    """

    symbols: dict[str, str] = field(default_factory=dict)
    guards: list[tuple[str, SourceLine | None]] = field(default_factory=list)
    fixing: list[list[CodeType]] = field(default_factory=list)
    rounding: list[list[CodeType]] = field(default_factory=list)

    def about(self, symbol: str) -> tuple[str, SourceLine | None] | None:
        """The first guard on a symbol, preferring one that fixes it."""
        found = [(text, line) for text, line in self.guards if re.search(rf"\b{symbol}\b", text)]
        fixing = [guard for guard in found if guard[0].startswith("Eq(")]
        return next(iter(fixing or found), None)


class _Handler(logging.Handler):
    def __init__(self, log: GuardLog) -> None:
        super().__init__(logging.INFO)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if created := _CREATED.search(text):
            self.log.symbols[created["source"]] = created["symbol"]
        elif guard := _GUARD.search(text):
            self.log.guards.append((guard["guard"], source.of_caller()))
            if _FIXED.match(guard["guard"]):
                # What called us is not traced, such as the script that defines the model.
                inner = takewhile(
                    lambda code: code.co_name != _OUTERMOST, (f.f_code for f, _ in walk_stack(None))
                )
                codes = [*inner][::-1]
                self.log.fixing.append(codes)
                if any(code.co_name in ("guard_int", "guard_float") for code in codes):
                    self.log.rounding.append(codes)


@contextmanager
def listening() -> Iterator[GuardLog]:
    """Collect what torch.export assumes."""
    log = GuardLog()
    logger = logging.getLogger(_LOGGER)
    listener, is_enabled = _Handler(log), logger.isEnabledFor
    logger.addHandler(listener)
    try:
        # An application may have turned off all loggers (`logging.disable`).
        with trace.assigned(logger, isEnabledFor=lambda level: level >= logging.INFO or is_enabled(level)):
            yield log
    finally:
        logger.removeHandler(listener)


OTHER_AT_0_OR_1: Final = "computes something else where a Dim is 0 or 1"
_SAID_OF_SIZES: Final = (
    "Pending unbacked symbols",
    "loop of ufunc",
    "numpy.object_",
    "unhashable type: non-nested SymInt",
)
COMPARES_SIZES: Final = "compares sizes of which each varies"


def is_about_sizes(error: BaseException) -> bool:
    """Whether torch.export refused because of the Dims, not because of the model."""
    said = ("Constraints violated", "Specializations unexpectedly", "Expected an equality constraint")
    return any(each in str(error) for each in said)


def is_refused_for_sizes(refused: ExportFailed) -> bool:
    """Whether a refusal says that the program does not hold for all sizes of the Dims."""
    said = (refused, refused.__cause__, refused.__context__)
    return (
        refused.of_sizes
        or isinstance(refused, StaticDim)
        or any(
            is_about_sizes(each)
            or _DIVIDED.search(str(each))
            or any(text in str(each) for text in (OTHER_AT_0_OR_1, COMPARES_SIZES))
            for each in said
            if each is not None
        )
    )


def may_strict_mode_help(error: BaseException) -> bool:
    """Whether strict mode may take, and take rightly, what plain tracing refused so."""
    # Dynamo formats the name of a symbol without calling its `__repr__`.
    return not (is_about_sizes(error) or isinstance(error, MadeText) or _wants_number(error))


# The latter is raised of `torch.equal` and its like.
_DATA_DEPENDENT: Final = (GuardOnDataDependentSymNode, DataDependentOutputException)


def is_data_dependent(error: BaseException) -> bool:
    """Whether torch.export refused because Python decides on a tensor's value, or computes with it."""
    return any(
        isinstance(each, _DATA_DEPENDENT) or "data-dependent" in str(each).lower() or _wants_number(each)
        for each in (error, *handled(error))
    )


def handled(error: BaseException) -> Iterator[BaseException]:
    """The errors that a model was handling when it raised this one, the latest first."""
    while (before := error.__cause__ or error.__context__) is not None:
        yield (error := before)


def may_rewriting_help(error: BaseException) -> bool:
    """Whether rewritten code may do what neither plain tracing nor strict mode does.

    What takes an int alone (`int(n * 1.5)`, `range(n)`, `linspace`) follows `n` there, and compiled code that
    asks a tensor for its values gets those that are the same in every call. Bytes are conditions there.
    """
    said = (
        *_COMPILED,
        *_SAID_OF_SIZES,
        "expected predicate to be bool",
        "must be bool, not SymBool",
        "Couldn't swap",
    )
    paths = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)]
    in_numpy = any("/numpy/" in path for path in paths)
    # torch's symbols compare no bools, and subtract nothing infinite.
    in_symbols = bool(paths) and any(each in paths[-1] for each in _SYMBOLS)
    # Of an array of objects, numpy's functions ask each for a method of their name.
    in_numpy |= isinstance(error, AttributeError) and isinstance(
        getattr(np, error.name or "", None), np.ufunc
    )
    return is_about_sizes(error) or in_numpy or in_symbols or any(each in str(error) for each in said)


# Of a size that became a number, torch's own `SymInt` asks for what only symbols have (`math.log(n) / n`).
_SYMBOLS: Final = ("/sympy/", "/_sympy/", "/sym_node.py", "/symbolic_shapes.py", "/torch/__init__.py")


def _wants_number(error: BaseException) -> bool:
    """Whether an error says that Python's own functions, formats or an index cannot take a traced number."""
    return isinstance(error, TypeError | IndexError) and _TRACED_NUMBER.search(str(error)) is not None


def has_partial_numbers(program: ExportedProgram) -> bool:
    """Whether a program computes Python's numbers of data by what raises for some, such as a division."""
    return any(
        _is_partial(node)
        for module in program.graph_module.modules()
        if isinstance(module, GraphModule)
        for node in module.graph.nodes
        if node.op == "call_function"
    )


def reads_constants(program: ExportedProgram) -> bool:
    """Whether a program takes for data what is the same in every call: a number read of no input."""
    signature = program.graph_signature
    constant = {*signature.inputs_to_lifted_tensor_constants}
    known: set[Node] = set()
    for node in program.graph.nodes:
        if node.op == "placeholder":
            is_known = node.name in constant
        else:
            drawn = getattr(node.target, "tags", ())
            is_known = (
                node.op == "call_function"
                and torch.Tag.nondeterministic_seeded not in drawn
                and known.issuperset(node.all_input_nodes)
            )
        if is_known:
            known.add(node)
            if node.target in _READS:
                return True
    return False


def writes_rows_of_data(program: ExportedProgram) -> bool:
    """Whether a program writes into a row that only a run knows, and so may raise an IndexError."""
    return any(
        node.target is torch.ops.aten.select.int
        and isinstance(index := getattr(node.args[2], "meta", {}).get("val"), torch.SymInt)
        and bool(free_unbacked_symbols(index))
        and _is_written(node)
        for node in program.graph.nodes
    )


def _is_written(view: Node) -> bool:
    """Whether an op writes into a view, or into a view of that."""
    for user in view.users:
        schema = getattr(user.target, "_schema", None)
        alias = schema.arguments[0].alias_info if schema is not None and schema.arguments else None
        if alias is not None and user.args and user.args[0] is view and (alias.is_write or _is_written(user)):
            return True
    return False


_READS: Final = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)  # noqa: SLF001


def _is_partial(node: Node) -> bool:
    value = node.meta.get("val")
    name = getattr(node.target, "__name__", "")
    if not isinstance(value, torch.SymInt | torch.SymFloat) or not free_unbacked_symbols(value):
        return False
    if name in ("truediv", "floordiv", "mod", "pow"):
        right: Any = node.args[1]
        return isinstance(right, Node) or bool(right != 2 if name == "pow" else right == 0)
    if name in ("lshift", "rshift"):
        return isinstance(node.args[1], Node)
    if name in ("sym_max", "sym_min"):
        return isinstance(value, torch.SymFloat)  # of which NaN is one
    return getattr(node.target, "__module__", "") == "math" or name in _ROUNDING_OR_PARTIAL


_ROUNDING_OR_PARTIAL: Final = frozenset(
    "round sym_int sym_sqrt _sym_sqrt _sym_exp _sym_log _sym_log2 _sym_sin _sym_cos _sym_tan "
    "_sym_asin _sym_acos _sym_atan _sym_sinh _sym_cosh _sym_tanh".split()
)


def is_about_control_flow(error: BaseException) -> bool:
    """Whether torch.export refused an op of control flow: what it is given, or the code of its bodies."""
    is_uncaptured = isinstance(error, UncapturedHigherOrderOpError)
    return is_uncaptured or ("carried_inputs" in str(error) and "metadata" in str(error))


_TRANSFORMED: Final = (
    "'Tensor' object has no attribute 'constant'",
    "We found a fake tensor in the exported program constant's list",
)
_OF_GRAD: Final = frozenset(
    "_grad_increment_nesting _wrap_for_grad _unwrap_for_grad "
    "_jvp_increment_nesting _make_dual _unpack_dual".split()
)


def require_no_transform(program: ExportedProgram, entry: str) -> None:
    """Refuse a program of `torch.func.grad` or its kin, or of a `vmap` that keeps a tensor of the trace.

    Raises:
        ExportFailed: It is one: it cannot run.
    """
    modules = [module for module in program.graph_module.modules() if isinstance(module, GraphModule)]
    keeps = any(isinstance(each, FakeTensor) for each in program.constants.values())
    for node in (node for module in modules for node in module.graph.nodes):
        own = getattr(node.target, "__module__", "") == "torch._functorch.predispatch"
        if own and (keeps or node.target.__name__ in _OF_GRAD):
            stacks = (each.meta.get("stack_trace") for each in (node, *node.graph.nodes))
            lines = (source.from_stack_trace(stack) for stack in stacks if stack)
            raise _transformed(entry, next(filter(None, lines), None))


def require_solutions(program: ExportedProgram, entry: str) -> None:
    """Refuse a program that reads more of `torch.linalg.lstsq` than the solution.

    Raises:
        ExportFailed: It does: only a run knows of what shape the residuals are.
    """
    modules = [module for module in program.graph_module.modules() if isinstance(module, GraphModule)]
    for node in (node for module in modules for node in module.graph.nodes):
        if node.target is torch.ops.aten.linalg_lstsq.default and any(
            part.args[1] != 0 and part.users for part in node.users
        ):
            raise ExportFailed(
                f"{entry} reads the residuals or the rank of torch.linalg.lstsq",
                reason="there are residuals where the rank is full, which only a run knows",
                hint="take the solution, `x = torch.linalg.lstsq(a, b).solution`, and compute "
                "`(a @ x - b).square().sum(-2)`; or `torch.linalg.matrix_rank(a)`",
                where=source.from_stack_trace(node.meta.get("stack_trace") or ""),
            )


def _transformed(entry: str, where: SourceLine | None) -> ExportFailed:
    return ExportFailed(
        f"{entry} calls a transform of torch.func that torch.export cannot record",
        reason="`grad`, `vjp`, `jvp`, `jacrev`, `jacfwd`, and some functions such as `std` in a `vmap`, keep "
        "tensors of the trace",
        hint="take the gradient with `torch.autograd.grad` under `torch.enable_grad()`, write `vmap` over a "
        "batch dim, or let that function run in Python: aotpipe.eager_island",
        where=where,
    )


_CHOSEN_CHILD: Final = re.compile(r"cannot assign '\S*ChosenObject' as child module '(?P<name>\w+)'")


def is_chosen_child(error: BaseException) -> bool:
    """Whether a module got one of several modules, of which a tensor decides which, as its child."""
    return isinstance(error, TypeError) and _CHOSEN_CHILD.search(str(error)) is not None


def explain(error: Exception, log: GuardLog, entry: str) -> ExportFailed:
    """Say why torch.export refused an entry point, in the names of its inputs.

    `log` is what it had assumed until then.
    """
    found = _explained(error, log, entry)
    message, reason, hint = (_named(text, log) for text in (found.message, found.reason, found.hint))
    line = source.in_package(error)
    if line and line.split()[1].rstrip(":") not in f"{found.where} {reason}":
        reason = "\n".join(filter(None, (reason, line)))
    return replace(found, message=message, reason=reason, hint=hint)


def _named(text: str, log: GuardLog) -> str:
    """A text with the sizes of inputs in place of torch's symbols, and `?` for what only a run knows."""
    for name, symbol in log.symbols.items():
        text = re.sub(rf"\b{symbol}\b", lambda _, name=name: readable(name), text)  # type: ignore[misc]
    return _UNBACKED.sub("?", text)


def _explained(error: Exception, log: GuardLog, entry: str) -> ExportFailed:
    if isinstance(error, Unwritten):
        error = error.refused
    if isinstance(error, ExportFailed):
        where = error.where or source.from_exception(error)
        return replace(error, where=where)
    text = _ADVICE.sub("", str(error)).strip()
    if is_about_sizes(error):
        return _sizes(text, log, entry)
    if isinstance(error, _DATA_DEPENDENT) or "data-dependent expression" in text:
        return _data_dependent(error, text, entry)
    where = source.from_exception(error) or source.from_stack_trace(text)
    if any(said in text for said in _TRANSFORMED):
        return _transformed(entry, where)
    if isinstance(error, MadeText):
        return ExportFailed(trace.TEXT, hint=trace.TEXT_HINT, where=where, code="text-from-tensor")
    if isinstance(error, RecursionError):
        return ExportFailed(
            f"a function of {entry} calls itself without end",
            reason="where a tensor decides how often, only a run knows when to stop",
            hint="write it as a loop: `while` on the tensor, with what the calls pass on in variables",
            where=source.of_recursion(error),
        )
    if found := _CHOSEN_CHILD.search(text):
        name = found["name"]
        return ExportFailed(
            f"`self.{name}` is one module or another, where a tensor decides which",
            hint=f"keep its name, as `self.{name}_name`, and call `getattr(self, self.{name}_name)(x)`",
            where=where,
            code="paths-differ",
        )
    sentence = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    for said, remedy in _COMPILED.items():
        if said in text:
            return ExportFailed(
                f"{entry} gives a tensor to code that torch.export does not see",
                reason=sentence,
                hint=remedy,
                where=where,
            )
    lines = list(_raised_by_the_model(error))
    if lines:
        return ExportFailed(
            f"{entry} raised {type(error).__name__} while torch.export traced it",
            reason="\n".join([sentence, *lines]),
            hint="on its examples it does not: see what these lines are given or ask for in a trace",
            where=where,
        )
    hints = re.findall(r"Hint: (.+)", text) or [
        *(
            f"let {size} be a multiple of {factor}: `{factor} * Dim(...)`"
            for size, factor in _DIVIDED.findall(text)
        ),
        "run torch.export.draft_export on the model for a whole list",
    ]
    return ExportFailed(
        f"torch.export refused {entry}: {type(error).__name__}", reason=sentence, hint=hints[0], where=where
    )


def _raised_by_the_model(error: Exception) -> Iterator[str]:
    """The model's own lines, innermost first, where the error is one of its own code."""
    frames = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    if not frames or not source.is_model_code(frames[-1][0].co_filename):
        return
    own = [(code, line) for code, line in reversed(frames) if source.is_model_code(code.co_filename)]
    for number, (code, line) in enumerate(own):
        how = "called from" if number else "raised at"
        yield f"{how} {source.shown(code.co_filename)}:{line} in {code.co_name}"


def with_rewritten(first: ExportFailed, rewritten: ExportFailed) -> ExportFailed:
    """The error of plain tracing, with what the rewritten form was refused for."""
    said = rewritten.reason.splitlines() or [rewritten.message]
    place = f" at {rewritten.where}" if rewritten.where else ""
    reason = f"{first.reason}\nas part of the graph it is refused{place}: {said[0]}"
    return replace(first, reason=reason, of_sizes=rewritten.of_sizes)


def readable(text: str) -> str:
    """Names of sizes as a user writes them: `L['x'].size()[0]` is `x.shape[0]`."""
    return _SOURCE.sub(lambda m: f"{m['name']}{m['path']}.shape[{m['axis']}]", text)


def _sizes(text: str, log: GuardLog, entry: str) -> ExportFailed:
    lines = [readable(line.strip(" -")) for line in text.splitlines() if line.startswith("  - ")]
    fixes = [fix.replace("Dim(", "aotpipe.Dim(") for fix in _FIX.findall(text)]
    became = {match["dim"]: match["value"] for match in map(_STATIC.search, lines) if match}
    where = _size_line(text, log)
    if became:
        names = ", ".join(f"{dim} = {value}" for dim, value in became.items())
        return StaticDim(
            f"the model works for one size only in {entry}: {names}",
            reason="\n".join(
                f"{dim} was asked to vary, but became the constant {value}" for dim, value in became.items()
            ),
            hint="leave that Dim out, or change the line that needs the size",
            where=where,
        )
    if any(re.search(r"!= [01]\.?$", line) for line in lines):
        fixes = fixes or ["give the Dim min=2, and the sizes below it an entry point of their own"]
    return ExportFailed(
        f"the Dims of {entry} allow sizes that the model does not take",
        reason="\n".join(lines) or text.splitlines()[0],
        hint="; ".join(fixes),
        where=where,
        code="sizes-refused",
    )


def _size_line(text: str, log: GuardLog) -> SourceLine | None:
    """The model's line of the first assumption about a size that the message names."""
    for name, symbol in log.symbols.items():
        guard = log.about(symbol)
        if name in text and guard and guard[1]:
            return guard[1]
    return next((line for _, line in log.guards if line), None)


def _data_dependent(error: Exception, text: str, entry: str) -> ExportFailed:
    expression = re.search(r"expression (.+?) \(unhinted", text)
    where = source.from_exception(error) or source.from_stack_trace(text)
    if hidden := _without_source(error):
        return ExportFailed(
            f"{entry} decides on a tensor's value in code whose source is not there",
            reason=f"`{hidden.co_qualname}` of {hidden.co_filename} cannot be rewritten",
            hint="put the code in a file",
            where=where,
        )
    if expression and _NUMBER.fullmatch(expression[1]):
        return ExportFailed(
            f"{entry} needs a tensor's value as a number of Python's",
            reason="compiled code, and Python's own lists, take no number that only a run knows",
            hint="keep it a tensor: take torch's function of that name; torch.where or torch.cond to choose",
            where=where,
        )
    # The arguments of a function of torch's own have no name in the model.
    checks = [check for check in _CHECK.findall(text) if not _OF_ARGUMENTS.search(check)]
    hint = "write it with torch.cond, torch.while_loop or torch.where"
    if checks:
        # torch names both conditions; only the model's author knows which one holds.
        hint = f"say before that line which holds: {', or '.join(checks)}"
    if checks and "u" in checks[0]:
        hint += ", with the number's own name in place of torch's"
    return ExportFailed(
        f"{entry} decides on a tensor's value in Python",
        reason=f"torch.export cannot know {expression[1] if expression else 'it'} before the run",
        hint=hint,
        where=where,
    )


def _without_source(error: Exception) -> CodeType | None:
    """The code behind the model's last line, where no file has it: of `exec`, or of a prompt."""
    codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    outside = [code for code in codes if not code.co_filename.startswith("<frozen")]
    is_known = {code: bool(linecache.getlines(code.co_filename)) for code in outside}
    last = [code for code in outside if source.is_model_code(code.co_filename) or not is_known[code]][-1:]
    return next((code for code in last if not is_known[code]), None)
