"""What rewritten code calls: on Python values Python's own meaning, on traced tensors one op of a graph.

While no graph is traced (`staging`) every operator is Python's own.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import importlib
import inspect
import itertools
import operator
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from types import BuiltinFunctionType, CodeType, FunctionType, GeneratorType, MethodType
from typing import Any, Final, TypeVar

import torch
from torch._subclasses.fake_tensor import FakeTensor  # what torch.export calls the model with

from aotpipe.canonicalize.alias import effects
from aotpipe.canonicalize.operators import (
    builtin_calls,
    conditional,
    dynamic_list_methods,
    dynamic_table_methods,
    iterators,
    logic,
    size_keys,
    unbacked_items,
)
from aotpipe.canonicalize.operators.conditional import choose as choose
from aotpipe.canonicalize.operators.generated import Generated, Groups
from aotpipe.canonicalize.operators.iterators import Cursor
from aotpipe.canonicalize.operators.logic import and_ as and_
from aotpipe.canonicalize.operators.logic import compare as compare
from aotpipe.canonicalize.operators.logic import not_ as not_
from aotpipe.canonicalize.operators.logic import or_ as or_
from aotpipe.canonicalize.operators.unbacked_items import TensorRange, UnbackedItems
from aotpipe.canonicalize.trace import (
    decisions,
    dry_run,
    raised_state,
    regions,
    return_values,
    runtime_asserts,
    torch_functions,
)
from aotpipe.canonicalize.trace.raised_state import begin_finally as begin_finally
from aotpipe.canonicalize.trace.raised_state import begin_try as begin_try
from aotpipe.canonicalize.trace.raised_state import end_finally as end_finally
from aotpipe.canonicalize.trace.torch_functions import is_staged
from aotpipe.canonicalize.values import (
    chosen_object,
    dynamic_list,
    dynamic_table,
    host_scalars,
    optional_values,
    trace,
)
from aotpipe.canonicalize.values.abstract_values import UNDEFINED, Undefined, Variables
from aotpipe.canonicalize.values.chosen_object import ChosenObject
from aotpipe.canonicalize.values.optional_values import OptionalValue
from aotpipe.canonicalize.values.trace import is_on, refusal
from aotpipe.errors import ExportFailed
from aotpipe.model import object_graph, source

T = TypeVar("T")
Function = Callable[..., Any]
# The most iterations with a jump out of them that are written out.
_WRITTEN_OUT: Final = 1
# The most iterations over items without a length that are written out after such a jump.
_MOST_UNENDED: Final = 1000
# Iterations of a loop whose test the trace knows, though it is a tensor.
_MOST_KNOWN: Final = 32


def bound_or_undefined(read: Callable[[], T]) -> T | Undefined:
    """A variable's value, or a mark where it has none yet."""
    try:
        with optional_values.looking():
            return read()
    except (NameError, AttributeError):
        return UNDEFINED


def attribute_or_undefined(of: Callable[[], Any], name: str) -> Any:
    """What an attribute that a region assigns holds, or a mark where it has none yet.

    One that code of the model's sets is no variable: what that code changes is found where it is.
    """
    try:
        with optional_values.looking():
            owner = of()
            return UNDEFINED if object_graph.has_setter(owner, name) else getattr(owner, name)
    except (NameError, AttributeError):
        return UNDEFINED


def set_attribute(owner: Any, name: str, value: Any) -> None:
    """Let an attribute hold what a region gave, unless code of the model's sets it."""
    if not object_graph.has_setter(owner, name):
        setattr(owner, name, value)


def bound_variables(reads: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """What `locals()` gives: the variables that have a value."""
    found = {name: bound_or_undefined(read) for name, read in reads.items()}
    return {name: value for name, value in found.items() if value is not UNDEFINED}


def require_set(name: str, is_set: Any) -> bool:
    """Assert that the path taken has set a variable; `is_set` tells whether it has.

    Raises:
        UnboundLocalError: It has not.
    """
    if is_set is not True:
        said = f"cannot access local variable '{name}' where it is not associated with a value"
        if not is_staged(is_set):
            raise raised(lambda: UnboundLocalError(said))
        runtime_asserts.require(is_set, UnboundLocalError(said), holds=True)
    return True


def iterated(value: Any) -> Any:
    """What an object of a class of the model's gives to go through; any other value itself.

    Python's own `iter` takes no generator that decides on a tensor.
    """
    own = getattr(type(value), "__iter__", None)
    if not is_on() or not isinstance(own, FunctionType) or not source.is_model_code(own.__code__.co_filename):
        return value
    return call(own, value)


def listed(value: Any) -> Any:
    """All values of a generator, or keys that only a run knows, as a list; any other value itself."""
    value = iterated(value)
    if not isinstance(value, Generated):
        iterators.refuse_left(value)
        return dynamic_table_methods.listed(value)
    items: list[Any] = []

    def take(item: Any) -> None:
        items.append(item)

    value.each(take)
    return items


def delegate(items: Any) -> Any:
    """What a `yield from` goes through whose value is taken."""
    if isinstance(items, GeneratorType):
        said = "what a generator returns is used, and it cannot be rewritten"
        raise return_values.Unwritten(items.gi_code, refusal(said, "return it from a function"))
    return items


def result_of(items: Any) -> Any:
    """What a `yield from` that has gone through these gives."""
    return items.result if isinstance(items, Generated) else None


def if_(test: object, then: Callable[[], None], other: Callable[[], None], *variables: Any) -> None:
    """`if test: then() else: other()`; the last arguments are the fields of `Variables`, here and below."""
    test = torch_functions.asked(test)
    if is_staged(test):
        regions.branch(test, then, other, Variables(*variables))
    elif test:
        then()
    else:
        other()


def while_(test: Callable[[], object], body: Callable[[], None], *variables: Any) -> None:
    """`while test(): body()`."""
    loop(test, body, Variables(*variables))


def loop(test: Callable[[], object], body: Callable[[], None], variables: Variables) -> None:
    """`while test(): body()`; iterations whose test is a Python value are written out.

    So are the first of those whose test is a tensor of which the trace knows the value.
    """
    for number in itertools.count():
        going = torch_functions.asked(test())
        if is_staged(going) or (number >= _MOST_KNOWN and is_on() and isinstance(going, FakeTensor)):
            try:
                regions.loop(test, body, variables)
            except dry_run.TestChanges:
                _loop_of_asked(going, test, body, variables)
            return
        if not going:
            return
        body()


def _loop_of_asked(
    going: Any, test: Callable[[], object], body: Callable[[], None], variables: Variables
) -> None:
    """`while going: body(); going = test()`: what the test changes is changed once for each iteration."""
    asked = [torch_functions.truth_of(going)]

    def iteration() -> None:
        body()
        asked[0] = torch_functions.truth_of(test())

    regions.loop(lambda: asked[0], iteration, variables.with_item(asked, "the test"))


def for_(
    items: Iterable[Any], body: Callable[[Any], None], stopped: Callable[[], object], *fields: Any
) -> None:
    """`for item in items: body(item)`, until `stopped`; iterations over Python's items are written out."""
    variables = Variables(*fields)
    items = iterated(items)
    iterators.refuse_left(items)
    begun = items = dynamic_table_methods.listed(items)
    if isinstance(items, Cursor):
        if effects.is_held(items):
            items.each(body, stopped, variables)
            return
        items = items.taken()
    if isinstance(items, logic.Elements) and items.is_tested:
        body = functools.partial(_where_wanted, body, variables)
        items = items.pairs()
    elif isinstance(items, logic.Elements):
        items = items.generator()
    if isinstance(items, optional_values.Partial | optional_values.Keys):
        len(items)  # refuses keys that may be missing
    found = items if isinstance(items, TensorRange) else unbacked_items.of(items) if is_on() else None
    if found is not None:
        _each(found, body, stopped, variables)
        if found is items and not isinstance(found, TensorRange):
            iterators.note_ended(items)
        elif is_staged(stopped()):
            iterators.note_left(begun)
        return
    if isinstance(items, Generated):

        def take(item: Any) -> Any:
            body(item)
            return stopped()

        items.each(take)
        return
    if _written_out(items, body, stopped, variables):
        iterators.note_left(begun)


def _written_out(
    items: Iterable[Any], body: Callable[[Any], None], stopped: Callable[[], object], variables: Variables
) -> bool:
    """Write the iterations over Python's items out; whether a tensor decides how many there are."""
    stop: Any = False
    for number, item in enumerate(items):
        if is_staged(stop) and isinstance(items, GeneratorType):
            truth = runtime_asserts.truth(stop)
            stop = stop if truth is None else truth
            if truth:
                return True
        if not is_staged(stop):
            body(item)
        elif isinstance(items, GeneratorType):
            refused = refusal(
                "a loop over a generator is left where a tensor says so",
                "loop over a range, or make a list of the generator",
            )
            raise return_values.Unwritten(items.gi_code, refused)
        else:
            if isinstance(items, range) and len(items) - number > _WRITTEN_OUT:
                # An iteration may need its number in Python, which shows in any error; then the iterations
                # are unrolled, and what is wrong with them by themselves is raised again.
                current = trace.current()
                try:
                    with trace.assigned(current, may_unroll=True):
                        TensorRange(item, items.stop, items.step).each(body, stopped, variables)
                except Exception as error:
                    if current.needs or runtime_asserts.is_of_raise(error):
                        raise
                else:
                    return True
            elif number > _MOST_UNENDED and not hasattr(items, "__len__"):
                raise refusal(
                    "a loop over items that do not end is left where a tensor says so", "loop over `range(N)`"
                )
            regions.branch(stop, lambda: None, functools.partial(body, item), variables)
        stop = stopped()
        if not is_staged(stop) and stop:
            return False
    return is_staged(stop)


def _each(
    items: TensorRange | UnbackedItems,
    body: Callable[[Any], None],
    stopped: Callable[[], object],
    variables: Variables,
) -> None:
    """`for item in items: body(item)` as one op, or written out where sizes say how often it runs.

    Then how often it runs is a guard.
    """
    try:
        _each_as_one_op(items, body, stopped, variables)
    except Exception:
        if not isinstance(items, TensorRange) or items.sizes is None:
            raise
        current = trace.current()
        current.needs.add("unrolls_ranges")
        if not current.unrolls_ranges:
            raise
        _written_out([*items.written_out()], body, stopped, variables)


def _each_as_one_op(
    items: TensorRange | UnbackedItems,
    body: Callable[[Any], None],
    stopped: Callable[[], object],
    variables: Variables,
) -> None:
    """`for item in items: body(item)` as one op; where the first gives a variable its form, after that."""
    try:
        items.each(body, stopped, variables)
    except ExportFailed as refused:
        if items.least < 1:
            raise
        first, rest = items.parted()
        try:
            body(first)
            rest.each(body, stopped, variables)
        except ExportFailed:
            raise refused from None


def _where_wanted(
    body: Callable[[Any], None], variables: Variables, pair: tuple[Callable[[], Any], Callable[[], Any]]
) -> None:
    """`if pair[0](): body(pair[1]())`, of what a generator has a test for."""
    wanted, element = pair
    if is_staged(test := wanted()):
        regions.branch(test, lambda: body(element()), lambda: None, variables)
    elif test:
        body(element())


def generated(
    plain: Callable[[], Iterator[Any]],
    staged: Callable[[Callable[[Any], Any]], Any],
    entered: Callable[[], Generator[Any]],
    ends_late: bool,
) -> Iterator[Any]:
    """What a call of a function that yields gives; `entered` waits at its yields, as a context manager.

    `ends_late`: it runs more of its code where a loop leaves it.
    """
    if not is_on():
        return plain()
    caller = sys._getframe(1).f_back  # noqa: SLF001  # a decorator has the function, not its calls
    if caller is None or caller.f_globals.get("__name__") != contextlib.__name__:
        return Generated(staged, ends_late=ends_late)
    return effects.note_suspended(entered())


def _where_traced(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of a value that gives the value itself while no graph is traced."""
    return lambda value: function(value) if is_on() else value


# What a function returns, what stands before an index, and `**kwargs` at the beginning of a function.
returned = _where_traced(return_values.checked)
indexed = _where_traced(dynamic_table_methods.opened)
keywords = _where_traced(optional_values.of_keywords)


def class_of(value: Any) -> type:
    """`value.__class__`."""
    return builtin_calls.class_of(value) if is_on() else value.__class__


def part(value: Any, index: Any) -> Any:
    """`value[index]`, of which an element or a method is taken at once."""
    return dynamic_list_methods.part(value, index) if is_on() else value[index]


def part_by_default(function: Callable[..., Any], key: Any, default: Any) -> Any:
    """`table.setdefault(key, default)`, of which an element or a method is taken at once."""
    return (dynamic_table_methods.part_by_default if is_on() else call)(function, key, default)


def raised(make: Callable[[], Any]) -> Any:
    """What `raise` raises, of a function that makes it."""
    return runtime_asserts.raised(make) if is_on() else make()


def try_(body: Callable[[], None], *variables: Any) -> None:
    """`body()`, which is a whole `try` statement with handlers."""
    if trace.current().splits_tries:
        regions.attempt(body, Variables(*variables))
    else:
        body()


def path_scope(body: Callable[[], None], read: Collection[str] | None, *fields: Any) -> None:
    """`body()`, in which no variable needs a common form; `read` are those that are read afterwards."""
    if is_on():
        variables = Variables(*fields)
        if read is not None:
            variables = replace(variables, is_unread=effects.held_by_unread(read))
        regions.path_scope(body, variables)
    else:
        body()


def caught(kinds: Callable[[], Any], may_split: bool) -> AbstractContextManager[Any]:
    """Stands around the body of a `try` that has handlers, which are for these kinds."""
    return runtime_asserts.catching(kinds, may_split=may_split) if is_on() else nullcontext()


def dropped() -> AbstractContextManager[Any]:
    """Stands around the body of a `try` whose `finally` jumps: it is for all exceptions."""
    return caught(lambda: (BaseException,), may_split=False)


def entered(manager: Any, *, may_split: bool = False) -> AbstractContextManager[Any]:
    """What `with` enters: one that goes by what its body raises is a handler for all exceptions.

    `may_split`: the whole statement may be run more than once.
    """
    entering: AbstractContextManager[Any] = manager
    if not is_on():
        return entering
    if _may_suppress(manager) or (may_split and raised_state.follows() and _asks_why(manager)):
        return _told(manager, may_split=may_split)
    finishes = raised_state.follows() and _finishes(manager)
    return _finishing(manager) if finishes else entering


@contextmanager
def _finishing(manager: AbstractContextManager[Any]) -> Iterator[Any]:
    """A manager whose end runs where an assert fails in its body, too, as a `finally` does."""
    value = manager.__enter__()
    tried = begin_try()
    try:
        yield value
    except BaseException:
        raised_state.leave_try(tried)
        if not manager.__exit__(*sys.exc_info()):
            raise
    else:
        begin_finally(tried, reads=_asks_why(manager))
        manager.__exit__(None, None, None)
        end_finally(tried)


def _finishes(manager: Any) -> bool:
    """Whether code of the model's runs at the end of a manager's body, where it raises, too."""
    generator = getattr(manager, "gen", None)
    if isinstance(generator, GeneratorType):
        body = generator.gi_code
        return source.is_model_code(body.co_filename) and source.finishes_at_yield(body)
    code = getattr(getattr(type(manager), "__exit__", None), "__code__", None)
    return isinstance(code, CodeType) and source.is_model_code(code.co_filename)


def _asks_why(manager: Any) -> bool:
    """Whether the end of a manager goes by what its body raised."""
    code = getattr(getattr(type(manager), "__exit__", None), "__code__", None)
    if not isinstance(code, CodeType) or not source.is_model_code(code.co_filename):
        return False
    given = code.co_varnames[1 : code.co_argcount + bool(code.co_flags & inspect.CO_VARARGS)]
    return any(each.argval in given for each in dis.get_instructions(code) if each.opname == "LOAD_FAST")


@contextmanager
def _told(manager: AbstractContextManager[Any], *, may_split: bool) -> Iterator[Any]:
    """A manager that is told what its body raises, and may end it."""
    stop: BaseException | None = None
    with manager as value, caught(lambda: (BaseException,), may_split=may_split):
        try:
            yield value
        except STOPS as error:
            stop = error
            raise
    if stop is not None:  # the manager is not to suppress it
        raise stop


def _may_suppress(manager: Any) -> bool:
    """Whether a context manager may suppress what its body raises; none of torch's does."""
    if isinstance(manager, suppress | ExitStack):
        return True
    generator = getattr(manager, "gen", None)
    if isinstance(generator, GeneratorType):
        body = generator.gi_code
        return source.is_model_code(body.co_filename) and source.may_suppress_at_yield(body)
    code = getattr(getattr(type(manager), "__exit__", None), "__code__", None)
    if code is None or not source.is_model_code(code.co_filename):
        return False
    steps = itertools.pairwise(dis.get_instructions(code))
    return any(
        step.opname == "RETURN_VALUE" and (before.opname != "LOAD_CONST" or before.argval)
        for before, step in steps
    )


def suppressed(manager: object) -> tuple[type[BaseException], ...]:
    """What `with manager` suppresses, where it is `contextlib.suppress`."""
    kinds: tuple[type[BaseException], ...] = getattr(manager, "_exceptions", ())
    return kinds if isinstance(manager, suppress) else ()


def unsuppressed(manager: Any) -> AbstractContextManager[Any]:
    """What is left of a manager whose exceptions are `suppressed`."""
    return nullcontext() if isinstance(manager, suppress) else manager


def items(value: Any) -> Any:
    """What a comprehension goes through."""
    found = listed(value)
    if is_on() and unbacked_items.of(found) is not None:
        raise refusal(
            "a comprehension goes through a list whose length a tensor decides",
            "stack it, and compute with the tensor",
            "list-grows",
        )
    return found


def comprehended(value: Any, plain: Function, elementwise: Function, tested: bool) -> Any:
    """`[element for item in value if test]`, where it is `tested`."""
    if isinstance(value, Groups):
        return value.comprehended(elementwise)
    found = listed(value)
    return unbacked_items.comprehended(found, plain, elementwise, tested=tested) if is_on() else plain(found)


def generated_of(value: Any, plain: Function, elementwise: Function, tested: bool) -> Any:
    """A generator expression: an element is computed when it is asked for, unless the list grows."""
    if isinstance(value, Groups):
        return value.comprehended(elementwise)
    found = listed(value)
    if isinstance(found, Cursor) and found.is_dynamic and not effects.is_held(found):
        found = found.taken()
    if not is_on() or unbacked_items.of(found) is not None:
        found = comprehended(found, plain, elementwise, tested)
        return Cursor(found) if dynamic_list.is_dynamic_list(found) else found
    return logic.Elements(found, plain, elementwise, is_tested=tested)


# `a:b` of an index.
slice = builtins.slice  # noqa: A001


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`."""
    if not is_on():
        return function(*args, **kwargs)
    by_key = "key" in kwargs
    if _goes_through(function, args):
        args = tuple(map(iterated, args))
    if function is bool:
        args = tuple(map(torch_functions.asked, args))
    args = tuple(dynamic_table_methods.as_argument(function, each, by_key=by_key) for each in args)
    args = tuple(_gone_through(function, each) if isinstance(each, _ITERATORS) else each for each in args)
    if _takes_list(function):
        args = tuple(unbacked_items.listed(each) if _is_unlisted(each) else each for each in args)
    if any(isinstance(each, Generated) for each in args) and not _takes_generated(function):
        args = tuple(map(listed, args))
    if function not in _LAZY and not isinstance(function, _OF_PYTHON):
        args = tuple(
            each.listed() if isinstance(each, logic.Elements) and each.is_tested else each for each in args
        )
    if function in _OF_NUMBERS:
        args = tuple(map(_chosen_number, args))
    if any(type(each) is ChosenObject for each in (*args, *kwargs.values())) and not _takes_chosen(function):
        return _called_by_choice(function, args, kwargs)
    if args and (dispatch := builtin_calls.dispatch_of(function)) is not None:
        return _dispatched(function, dispatch, args, kwargs)
    if (staged := builtin_calls.of(function)) is not None:
        if any(map(torch_functions.is_traced, args)):
            decisions.expression("call")
        return staged(*args, **kwargs)
    if trace.current().watches_calls:
        return conditional.call(function, args, kwargs)
    if isinstance(function, BuiltinFunctionType) and (
        bools := [each for each in (*args, *kwargs.values()) if isinstance(each, torch.SymBool)]
    ):
        return _called_with_bools(function, args, kwargs, bools)
    return function(*args, **kwargs)


def _dispatched(function: Any, dispatch: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a function of `functools.singledispatch`: by the class that its argument has in eager."""
    first, *rest = args
    if not isinstance(first, OptionalValue):
        return call(dispatch(builtin_calls.class_of(first)), *args, **kwargs)
    given = functools.partial(call, function)
    there, nothing = (
        functools.partial(given, each, *rest, **kwargs) for each in (first.payload_of_optional, None)
    )
    return conditional.either(first, there, nothing)


def _gone_through(function: Any, iterator: Any) -> Any:
    """An iterator, as what a function is given: a list, where a tensor decides how much is left of it."""
    iterators.refuse_left(iterator)
    if not isinstance(iterator, Cursor) or isinstance(function, _OF_PYTHON) or function in _GOING_ON:
        return iterator
    if not iterator.is_dynamic:
        return iterator
    items = iterator.taken()
    if function not in _TAKING_ALL:
        iterators.note_left(iterator)
    return items


_ITERATORS: Final = (Iterator, UnbackedItems)


def _takes_list(function: Any) -> bool:
    """Whether a function in C goes through all of its arguments, and may be given a list in their place."""
    is_method = type(getattr(function, "__self__", None)) in (list, deque, set, Counter)
    return function is sum or (is_method and getattr(function, "__name__", "") in _ADDING)


_ADDING: Final = ("extend", "extendleft", "update", "union")


def _is_unlisted(value: Any) -> bool:
    """Whether a value has items of which only a run knows how many there are, and is no list."""
    return (
        isinstance(value, UnbackedItems | TensorRange | torch.Tensor) and unbacked_items.of(value) is not None
    )


# By identity, as a class may compare as it likes.
_ITERATING: Final = {
    id(each): each
    for each in (
        *(
            list,
            tuple,
            set,
            frozenset,
            dict,
            deque,
            Counter,
            sum,
            sorted,
            any,
            all,
            zip,
            enumerate,
            map,
            filter,
        ),
        *(iter, min, max, functools.reduce, itertools.chain, itertools.islice, itertools.pairwise),
        *(itertools.accumulate, itertools.groupby, itertools.takewhile, itertools.dropwhile),
    )
}


def _goes_through(function: Any, args: Sequence[Any]) -> bool:
    """Whether a function goes through its arguments; two or more of them `min` and `max` compare."""
    if isinstance(function, functools.partial):
        # torch.export puts its own forms of `min` and `max` into builtins.
        function = function.keywords.get("real_callable", function)
    return id(function) in _ITERATING and not (function in (min, max) and len(args) > 1)


# What takes from an iterator itself, or nothing.
_GOING_ON: Final = (next, iter, itertools.islice, isinstance, getattr, hasattr, type)
_TAKING_ALL: Final = (list, tuple, set, dict, sum, sorted, deque)


def imported(module: str, name: str | None, package: str | None = None) -> Any:
    """What `import module` binds, or `from module import name`; an empty name is `import module as m`."""
    if name is None:
        return __import__(module)
    found = importlib.import_module(module, package)
    if not name:
        return found
    # Which imports a submodule of that name, and raises what is raised inside of it.
    __import__(found.__name__, fromlist=[name])
    inner = sys.modules.get(f"{found.__name__}.{name}", size_keys.ABSENT)
    value = getattr(found, name, inner)
    if value is size_keys.ABSENT:
        raise ImportError(f"cannot import name {name!r} from {found.__name__!r}", name=found.__name__)
    return value


def _called_with_bools(
    function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], given: Collection[torch.SymBool]
) -> Any:
    """Call compiled code with what sizes decide (`is_causal=length > 1`): some of it takes only a bool."""
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        if "must be bool, not SymBool" not in str(error):
            raise
    known = {id(each): bool(each) for each in given}
    return function(
        *(known.get(id(each), each) for each in args),
        **{name: known.get(id(each), each) for name, each in kwargs.items()},
    )


def _takes_chosen(function: Any) -> bool:
    """Whether a function is the model's, or keeps what it is given."""
    if isinstance(function, type):
        return function.__module__ != "builtins" or issubclass(function, BaseException)
    if type(getattr(function, "__self__", None)) in (list, deque, set, *dynamic_table.DICTS):
        return True
    held = type(function).forward if isinstance(function, torch.nn.Module) else function
    code = getattr(held, "__code__", None)
    return code is not None and source.is_model_code(code.co_filename)


def _called_by_choice(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a library's function with one of several objects: a call for each."""
    given = [*args, *kwargs.values()]
    at = next(number for number, each in enumerate(given) if type(each) is ChosenObject)

    def of(item: Any) -> Any:
        values = [*given[:at], item, *given[at + 1 :]]
        named = dict(zip(kwargs, values[len(args) :], strict=True))
        return call(function, *values[: len(args)], **named)

    if function in _PURE:
        return given[at].asked(of)
    items, position = chosen_object.parts(given[at])
    calls = [functools.partial(of, item) for item in items]
    return dynamic_list_methods.call_chosen(calls, position, (), {})


# What makes a text of a number.
_OF_NUMBERS: Final = (str, repr, bin, oct, hex, chr, format)
_PURE: Final = (len, isinstance, getattr, hasattr, type, *_OF_NUMBERS)


# What may loop over a generator with `for`.
_OF_PYTHON: Final = (FunctionType, MethodType)


def _takes_generated(function: Any) -> bool:
    return isinstance(function, _OF_PYTHON) or function is itertools.islice


# What asks a generator for no more elements than it needs.
_LAZY: Final = (any, all, next, iter, zip)


def shown(value: Any) -> Any:
    """A value in an f-string."""
    return trace.text() if is_staged(value) else value


def text(make: Callable[..., str], *parts: Any) -> Any:
    """An f-string, of a function that makes it of its parts; a text for each object that a part may be."""
    if not is_on():
        return make(*parts)
    if not trace.current().is_message:
        parts = tuple(map(_chosen_number, parts))
    chosen = [part for part in parts if type(part) is ChosenObject]
    if not chosen or trace.current().is_message:
        return make(*map(shown, parts))

    def made(*values: Any) -> str:
        given = iter(values)
        return make(*(next(given) if type(part) is ChosenObject else shown(part) for part in parts))

    return chosen_object.combined(chosen, made)


def _chosen_number(value: Any) -> Any:
    """A number that is one of a few, as one of several objects; any other value itself."""
    if not host_scalars.is_host_scalar(value) or not (values := host_scalars.choices(value)):
        return value
    position = (torch.tensor(values) == value).to(torch.int64).argmax()
    return ChosenObject(values, host_scalars.as_host_scalar(position))


def said(talk: Callable[[], object]) -> None:
    """Leave out `print` and logging, which are no part of a graph."""
    if not is_on():
        talk()
    else:
        trace.note("note", "talk-left-out", "what is printed or logged is no part of the program")


# What ends a trace, or a run of a part of it.
STOPS: Final = runtime_asserts.STOPS


def require(test: object, text: str, message: Callable[[], object] | None = None) -> None:
    """`assert test, message()`; `text` is the test's own."""
    test = torch_functions.asked(test)
    if is_staged(test):
        decisions.expression("assert")
        with trace.message():
            said = text if message is None else str(message())
        runtime_asserts.require(test, AssertionError(said), holds=True)
    elif not test:
        raise raised(lambda: AssertionError(*(() if message is None else (message(),))))


def add(left: Any, right: Any) -> Any:
    """`left + right`, where `torch.Size` would take no number that only a run knows."""
    if (
        is_on()
        and isinstance(left, tuple)
        and isinstance(right, tuple)
        and torch.Size in map(type, (left, right))
    ):
        left, right = map(builtin_calls.as_size, (left, right))
    if _are_deques_of_a_run(left, right) and type(right) is deque:
        return dynamic_list_methods.deques_added(left, right)
    return left + right


def multiplied(left: Any, right: Any) -> Any:
    """`left * right`, of which one is a list."""
    for items, number in ((left, right), (right, left)):
        if isinstance(items, list) and is_staged(number) and host_scalars.number_type(number) in (int, bool):
            return dynamic_list_methods.repeated(items, torch_functions.as_tensor(number))
    return left * right


def _are_deques_of_a_run(left: Any, right: Any) -> bool:
    return type(left) is deque and any(map(dynamic_list.is_dynamic_list, (left, right)))


def augmented(name: str, left: Any, right: Any) -> Any:
    """`left += right` and its kin: the value that is assigned."""
    if name == "Add" and type(left) is torch.Size:
        return add(left, right)
    if name == "Add" and type(left) in (list, deque) and is_on():
        call(left.extend, right)
        return left
    if name in _OF_SETS and any(map(dynamic_table.is_dynamic_table, (left, right))):
        return dynamic_table_methods.combine(_OF_SETS[name], left, right)
    is_replaced = is_on() and (host_scalars.is_host_scalar(left) or isinstance(left, OptionalValue))
    return _operator(name, in_place=not is_replaced)(left, right)


_OF_SETS: Final = {"BitOr": "or_", "BitAnd": "and_", "Sub": "sub", "BitXor": "xor"}


def set_operator(name: str, left: Any, right: Any) -> Any:
    """`left | right` and its kin, and `left <= right`, which two sets may be."""
    if not any(map(dynamic_table.is_dynamic_table, (left, right))):
        return getattr(operator, name)(left, right)
    return (dynamic_table_methods.ordered if name in _ORDERS else dynamic_table_methods.combined)(
        name, left, right
    )


_ORDERS: Final = ("lt", "le", "gt", "ge")


def set_of(elements: list[Any]) -> Any:
    """`{element, ...}`."""
    return dynamic_table_methods.made(set, elements) if is_on() else set(elements)


def dict_of(pairs: list[Any]) -> Any:
    """`{key: value, ...}`."""
    return dynamic_table_methods.made(dict, pairs) if is_on() else dict(pairs)


def augment_item(name: str, container: Any, index: Any, compute: Callable[[], Any]) -> None:
    """`container[index] += compute()` and its kin."""
    is_dynamic = dynamic_list.is_dynamic_list(container) or dynamic_table.is_dynamic_table(container)
    if type(container) in _PLAIN_CONTAINERS and type(index) in (int, str) and not is_dynamic:
        left = container[index]  # before what is added to it, which may change it
        container[index] = augmented(name, left, compute())
        return
    container = indexed(container)
    right = compute()
    if dynamic_table_methods.augmented(
        container, index, lambda left: _operator(name, in_place=False)(left, right)
    ):
        return
    in_place = _operator(name, in_place=True)
    changed = dynamic_list_methods.written_in_place, dynamic_list_methods.changed_in_place
    if any(each(container, index, lambda element: in_place(element, right)) for each in changed):
        return
    left = container[index]
    is_copy = is_staged(index) or (
        isinstance(container, torch.Tensor) and isinstance(index, tuple) and any(map(is_staged, index))
    )
    plain = _operator(name, in_place=False)
    container[index] = plain(left, right) if is_on() and is_copy else augmented(name, left, right)


def delete_item(container: Any, index: Any) -> None:
    """`del container[index]`."""
    opened = indexed(container)
    del opened[index]


_PLAIN_CONTAINERS: Final = (list, dict, deque, Counter, OrderedDict, defaultdict)


def augment_attribute(name: str, owner: Any, attribute: str, right: Callable[[], Any]) -> None:
    """`owner.attribute += right()` and its kin."""
    left = getattr(owner, attribute)
    setattr(owner, attribute, augmented(name, left, right()))


def _operator(name: str, *, in_place: bool) -> Function:
    found: Function = getattr(operator, f"__{'i' if in_place else ''}{_NAMES.get(name, name.lower())}__")
    return found


_NAMES: Final = {
    "Mult": "mul",
    "MatMult": "matmul",
    "Div": "truediv",
    "BitOr": "or",
    "BitXor": "xor",
    "BitAnd": "and",
}


def _against_none(plain: Function, left: Any, right: Any, *, wanted: bool) -> Any:
    """Whether a value that may be None is there, as `wanted`, if it is compared with None; else as it is."""
    for value, other in ((left, right), (right, left)):
        if isinstance(value, OptionalValue) and other is None:
            return wanted if value.is_optional_present else optional_values.presence(value, wanted=wanted)
    return plain(left, right)


def _is_same(left: Any, right: Any) -> Any:
    if _is_compared(left, right):
        return left == right
    if left is not right and type(left) is type(right) and is_on() and effects.may_be_one(left, right):
        raise refusal(
            "whether two names have one object is asked, where a branch or a loop on a tensor gave it",
            "compare what they hold (`==`), or keep a number that tells",
            "python-object-changed",
        )
    return left is right


# Whether a value is None may be traced.
is_ = functools.partial(_against_none, _is_same, wanted=False)
is_not = functools.partial(_against_none, lambda left, right: not_(_is_same(left, right)), wanted=True)


def _is_compared(left: Any, right: Any) -> bool:
    """Whether two are the same object in eager where they are equal.

    Modules that a tensor chooses are, and host scalars beside numbers that Python has once, such as True.
    """
    if any(type(each) is ChosenObject for each in (left, right)):
        return True
    number, constant = (left, right) if host_scalars.is_host_scalar(left) else (right, left)
    if not host_scalars.is_host_scalar(number) or host_scalars.python_type(number) is not type(constant):
        return False
    return isinstance(constant, int) and _SHARED[0] <= constant <= _SHARED[1]


# CPython has one object for each of these.
_SHARED: Final = (-5, 256)


def equal(left: Any, right: Any) -> Any:
    """`left == right`."""
    if any(map(dynamic_table.is_dynamic_table, (left, right))):
        return dynamic_table_methods.equal(left, right)
    for value, other in ((left, right), (right, left)):
        if isinstance(value, OptionalValue) and other is not None:
            return _equal_optional(value, other)
    if _is_sequence_traced(left) or _is_sequence_traced(right):
        return _equal_sequences(left, right)
    return _against_none(operator.eq, left, right, wanted=False)


def _equal_optional(value: OptionalValue, other: Any) -> Any:
    """`value == other` of what may be None, and of another value, which may be, too."""
    # An operator that needs the value would raise: None is compared with anything.
    if value.is_optional_present:
        return equal(value.payload_of_optional, other)
    present = functools.partial(optional_values.presence, value, wanted=True)
    same = and_(present, lambda: equal(value.payload_of_optional, other))
    if not isinstance(other, OptionalValue):
        return same
    return or_(lambda: and_(lambda: is_(value, None), lambda: is_(other, None)), lambda: same)


def not_equal(left: Any, right: Any) -> Any:
    """`left != right`."""
    if any(map(dynamic_table.is_dynamic_table, (left, right))):
        return not_(dynamic_table_methods.equal(left, right))
    for value, other in ((left, right), (right, left)):
        if isinstance(value, OptionalValue) and other is not None:
            return _unequal_optional(value, other)
    if _is_sequence_traced(left) or _is_sequence_traced(right):
        return not_(_equal_sequences(left, right))
    return _against_none(operator.ne, left, right, wanted=True)


def _unequal_optional(value: OptionalValue, other: Any) -> Any:
    if value.is_optional_present or isinstance(other, OptionalValue):
        return (
            not_equal(value.payload_of_optional, other)
            if value.is_optional_present
            else not_(_equal_optional(value, other))
        )
    absent = functools.partial(optional_values.presence, value, wanted=False)
    return or_(absent, lambda: not_equal(value.payload_of_optional, other))


def _is_sequence_traced(value: Any) -> bool:
    if not is_on() or type(value) not in (list, tuple):
        return False
    return dynamic_list.holds_dynamic_list(value) or any(map(is_staged, dynamic_list.leaves(value)))


def _equal_sequences(left: Any, right: Any) -> Any:
    """`left == right` of lists or tuples with traced values in them."""
    kind = list if isinstance(left, list) else tuple
    if not (isinstance(left, kind) and isinstance(right, kind)):
        return left == right
    if dynamic_list.is_dynamic_list(left) or dynamic_list.is_dynamic_list(right):
        return dynamic_list_methods.equal(left, right)
    pairs = zip(left, right, strict=False)
    return len(left) == len(right) and logic.folded(
        (one is other or equal(one, other) for one, other in pairs), decides=False
    )


def is_sequence(value: Any, count: int, has_rest: bool) -> Any:
    """Whether `case [a, b]` of so many elements may fit a value, or `case [a, b, *rest]`."""
    if not call(isinstance, value, Sequence) or call(isinstance, value, (str, bytes, bytearray)):
        return False
    length = call(len, value)
    return length >= count if has_rest else length == count


def is_of_class(value: Any, kind: Any, count: int, names: Sequence[str]) -> Any:
    """Whether `case kind(...)` of so many positions and these names may fit a value."""
    fits = call(isinstance, value, kind)
    if not is_staged(fits) and not fits:
        return False
    if kind not in _OF_ITSELF and count > len(getattr(kind, "__match_args__", ())):
        raise TypeError(f"{kind.__name__}() accepts {len(getattr(kind, '__match_args__', ()))} sub-patterns")
    return fits if all(hasattr(value, name) for name in names) else False


# Builtins of which a single position is for the value itself.
_OF_ITSELF: Final = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


def positional(value: Any, kind: Any, place: int) -> Any:
    """What a position of `case kind(...)` is for."""
    return value if kind in _OF_ITSELF else getattr(value, kind.__match_args__[place])


def is_mapping_with(value: Any, keys: Sequence[Any]) -> Any:
    """Whether `case {key: ...}` of these keys may fit a value."""
    if not call(isinstance, value, Mapping):
        return False
    return and_(lambda: True, *(functools.partial(in_, key, value) for key in keys), truth=True)


def rest_of(value: Any, keys: Sequence[Any]) -> dict[Any, Any]:
    """What `**rest` of `case {key: ..., **rest}` is for."""
    if dynamic_table.is_dynamic_table(value):
        raise refusal("a dict whose keys a tensor decides is matched with `**`", "take keys out of a copy")
    return {key: each for key, each in value.items() if key not in keys}


def spread(value: Any) -> Any:
    """What is unpacked into arguments, or into variables of which one takes the rest."""
    return unpacked(value, None)


def unpacked(value: Any, count: int | None, before: int = 0, after: int = 0) -> Any:
    """What is unpacked into as many variables; into one list, with so many before and after it, for None."""
    value = iterated(value)
    value = listed(value) if isinstance(value, Generated) else value
    value = dynamic_table_methods.listed(value)
    if isinstance(value, Cursor):
        value = value.taken()
    if not dynamic_list.is_dynamic_list(value):
        return value
    if count is None and not before + after:
        raise refusal(
            "a list whose length a tensor decides is unpacked", "index it, or stack it first", "list-grows"
        )
    if count is None:
        return _unpacked_around(value, before, after)
    fits = torch_functions.predicate(dynamic_list_methods.length(value) == count)
    runtime_asserts.require(fits, ValueError(f"expected {count} values to unpack"), holds=True)
    return [dynamic_list_methods.get(value, index) for index in range(count)]


def _unpacked_around(value: Any, before: int, after: int) -> list[Any]:
    length = dynamic_list_methods.length(value)
    said = f"not enough values to unpack (expected at least {before + after})"
    fits = torch_functions.predicate(length >= before + after)
    runtime_asserts.require(fits, ValueError(said), holds=True)
    opened = dynamic_list_methods.opened(value)
    first = [dynamic_list_methods.get(value, at) for at in range(before)]
    last = [dynamic_list_methods.get(value, length - at) for at in range(after, 0, -1)]
    return [*first, *opened[before : length - after], *last]


def in_(item: Any, items: Any) -> Any:
    """`item in items`."""
    item = dynamic_table_methods.known_key(item) if is_on() else item
    items = items.need_optional() if isinstance(items, OptionalValue) else items
    items = _gone_through(in_, items) if isinstance(items, _ITERATORS) else items
    if isinstance(items, optional_values.Partial | optional_values.Keys) and not is_staged(item):
        return (items.of if isinstance(items, optional_values.Keys) else items).has(item)
    if is_on() and dynamic_table.is_dynamic_table(items):
        return dynamic_table_methods.contains(items, item)
    if isinstance(items, dict):
        items = items.keys() if is_staged(item) else items
    if not is_on() or isinstance(items, torch.Tensor | str | TensorRange):
        return item in items
    if dynamic_list.is_dynamic_list(items):
        return dynamic_list_methods.contains(items, item)
    if isinstance(items, Collection) and size_keys.is_compared(items, item):
        return size_keys.find(items, item) is not size_keys.ABSENT
    if isinstance(item, tuple) and dynamic_table_methods.is_traced_key(item):
        return logic.folded((equal(item, each) for each in items), decides=True)
    if is_staged(item) or (isinstance(items, list | tuple) and any(map(is_staged, items))):
        return logic.folded((item is each or equal(item, each) for each in items), decides=True)
    return item in items


def not_in(item: Any, items: Any) -> Any:
    """`item not in items`."""
    return not_(in_(item, items))
