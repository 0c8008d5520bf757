"""What rewritten code calls: on Python values Python's own meaning, on traced tensors one op of a graph.

`staging()` says that a graph is being traced. Outside of it every operator is Python's own.
"""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from types import FunctionType, GeneratorType, MappingProxyType, MethodType
from typing import Any, Final, TypeVar

import torch
from torch.utils import _pytree as pytree

from aotpipe import source
from aotpipe.canonicalize import names
from aotpipe.canonicalize.python import (
    aliases,
    calls,
    decisions,
    dispatch,
    effects,
    growing,
    lists,
    maybes,
    numbers,
    optional,
    partial,
    raising,
    refusing,
    regions,
)
from aotpipe.canonicalize.python.dispatch import predicate
from aotpipe.canonicalize.python.generators import Generated, Undecided, listed
from aotpipe.canonicalize.python.maybes import Maybe
from aotpipe.canonicalize.python.refusing import refusal
from aotpipe.canonicalize.python.values import (
    UNDEFINED,
    Undefined,
    Unlike,
    Variables,
    is_leaf,
    meet,
)
from aotpipe.errors import ExportFailed
from aotpipe.stages import Finding

T = TypeVar("T")
Values = tuple[Any, ...]
Get = Callable[[], Values]
Set = Callable[[Values], None]

Watched = Callable[[], Sequence[tuple[str, object]]]

_staging = False
# The most trips with a jump out of them that are written out.
_WRITTEN_OUT: Final = 1
# The most trips over items without a length that are written out after such a jump.
_MOST_UNENDED: Final = 1000


@contextmanager
def staging(
    module: torch.nn.Module, *, kept: bool = False, tops: Mapping[int, int] = MappingProxyType({})
) -> Iterator[Collection[Finding]]:
    """Put what depends on traced tensors into the graph, while a module is traced; gives notes about it.

    Args:
        module: What is traced.
        kept: Whether what its attributes, lists and dicts hold at last is kept from call to call.
        tops: The highest values of integers among the leaves of a call, by place.
    """
    global _staging
    before, _staging = _staging, True
    try:
        watched = effects.watching(module, kept=kept)
        with (
            watched,
            refusing.noted() as notes,
            aliases.followed(),
            numbers.followed(),
            raising.followed(),
            maybes.followed(),
            called_in_mode(module, tops),
        ):
            yield notes
    finally:
        _staging = before


@contextmanager
def called_in_mode(module: torch.nn.Module, tops: Mapping[int, int]) -> Iterator[None]:
    """Run a module's forward in our mode, inside of the one that torch.export itself runs it in.

    That one asks an index for its value.
    """
    own = vars(module).get("forward")
    forward = module.forward

    @wraps(forward)
    def inside(*args: Any, **kwargs: Any) -> Any:
        for place, leaf in enumerate(pytree.tree_leaves((args, kwargs))):
            if place in tops and isinstance(leaf, torch.Tensor):
                numbers.note_top(leaf, tops[place])
        with dispatch.Traced():
            result = forward(*args, **kwargs)
        if any(map(growing.is_growing, _lists(result))):
            raise ExportFailed(
                "what forward returns is a list whose length a tensor decides",
                hint="return torch.stack of it",
                where=source.of_definition(forward),
            )
        if any(isinstance(leaf, Maybe) for leaf in pytree.tree_leaves(result, is_leaf)):
            raise ExportFailed(
                "what forward returns is None on one path and a tensor on another, where a tensor decides",
                hint="return a tensor on every path, and whether it counts beside it",
                where=source.of_definition(forward),
            )
        return result

    # That of the class has `self` too.
    inside.__signature__ = names.signature_of(forward)  # type: ignore[attr-defined]
    vars(module)["forward"] = inside
    try:
        yield
    finally:
        if own is None:
            del vars(module)["forward"]
        else:
            vars(module)["forward"] = own


def _lists(result: Any) -> Iterator[Any]:
    if isinstance(result, list):
        yield result
    if isinstance(result, list | tuple | dict):
        for each in result.values() if isinstance(result, dict) else result:
            yield from _lists(each)


def is_staged(value: object) -> bool:
    """Whether a value is known to a run of the graph only."""
    return _staging and dispatch.is_traced(value)


def held(read: Callable[[], T]) -> T | Undefined:
    """A variable's value, or a mark where it has none yet."""
    try:
        return read()
    except (NameError, AttributeError):
        return UNDEFINED


def if_(
    test: object,
    then: Callable[[], None],
    other: Callable[[], None],
    get: Get,
    set_: Set,
    names: Sequence[str],
    watched: Watched,
    dead: Sequence[int] = (),
) -> None:
    """`if test: then() else: other()`."""
    if is_staged(test):
        regions.branch(test, then, other, Variables(get, set_, names, watched, dead))
    elif test:
        then()
    else:
        other()


def while_(
    test: Callable[[], object],
    body: Callable[[], None],
    get: Get,
    set_: Set,
    names: Sequence[str],
    watched: Watched,
    dead: Sequence[int] = (),
) -> None:
    """`while test(): body()`; trips whose test is a Python value are written out."""
    while True:
        going = test()
        if is_staged(going):
            regions.loop(test, body, Variables(get, set_, names, watched, dead))
            return
        if not going:
            return
        body()


def for_(
    items: Iterable[Any],
    body: Callable[[Any], None],
    stopped: Callable[[], object],
    get: Get,
    set_: Set,
    names: Sequence[str],
    watched: Watched,
    dead: Sequence[int] = (),
) -> None:
    """`for item in items: body(item)`, until `stopped`; trips over Python's items are written out."""
    variables = Variables(get, set_, names, watched, dead)
    if isinstance(items, partial.Partial | partial.Keys):
        len(items)  # refuses keys that may be missing
    if isinstance(items, regions.TensorRange):
        regions.counted(items, body, stopped, variables)
        return
    if is_staged(items) and isinstance(items, list):
        found = lists.whole(items)
        trips = regions.TensorRange(0, found.count, 1, most=found.kind.room)
        regions.counted(trips, lambda number: body(lists.item(found, number)), stopped, variables)
        return
    if isinstance(items, Generated):

        def take(item: Any) -> Any:
            body(item)
            return stopped()

        items.each(take)
        return
    stop: Any = False
    for number, item in enumerate(items):
        if is_staged(stop) and isinstance(items, range) and len(items) - number > _WRITTEN_OUT:
            rest = regions.TensorRange(item, items.stop, items.step)
            # A trip may need its number in Python, which shows in any error; then the trips are written out,
            # and what is wrong with them by themselves is raised again.
            with suppress(Exception):
                regions.counted(rest, body, stopped, variables)
                return
        if is_staged(stop) and isinstance(items, GeneratorType):
            raise Undecided(items)
        if is_staged(stop) and number > _MOST_UNENDED and not hasattr(items, "__len__"):
            raise refusal(
                "a loop over items that do not end is left where a tensor says so", "loop over `range(N)`"
            )
        if is_staged(stop):
            regions.branch(stop, _nothing, functools.partial(body, item), variables)
        else:
            body(item)
        stop = stopped()
        if not is_staged(stop) and stop:
            return


def _nothing() -> None:
    pass


def _conjunction(left: Any, right: Any) -> Any:
    """`left and right`, both computed."""
    if _is_truth(left) and _is_truth(right):
        return predicate(left).logical_and(_truth(right))
    return _selected(left, right, left)


def _disjunction(left: Any, right: Any) -> Any:
    """`left or right`, both computed."""
    if _is_truth(left) and _is_truth(right):
        return predicate(left).logical_or(_truth(right))
    return _selected(left, left, right)


def _is_truth(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dtype == torch.bool and not value.dim()
    return isinstance(value, bool | torch.SymBool)


def _truth(value: Any) -> torch.Tensor:
    return predicate(value) if dispatch.is_traced(value) else torch.full((), bool(value), dtype=torch.bool)


def _selected(test: Any, then: Any, other: Any) -> Any:
    try:
        form = meet([then, other])
    except Unlike as error:
        raise refusal(f"the value of `and` or `or` {error}", "compare the values with zero first") from None
    chosen = iter(
        torch.where(predicate(test), a, b)
        for a, b in zip(form.tensors(then), form.tensors(other), strict=True)
    )
    return form.value(lambda: next(chosen))


def and_(*operands: Callable[[], Any]) -> Any:
    """`a and b and ...`, each computed only where it is reached."""
    value = operands[0]()
    with ExitStack() as reached:
        for operand in operands[1:]:
            if is_staged(value):
                decisions.expression("logic")
                reached.enter_context(maybes.there(value, holds=True))
                right = operand()
                value = maybes.imply(_conjunction(value, right), value, right)
            elif not value:
                return value
            else:
                value = operand()
    return value


def or_(*operands: Callable[[], Any]) -> Any:
    """`a or b or ...`."""
    value = operands[0]()
    with ExitStack() as reached:
        for operand in operands[1:]:
            if is_staged(value):
                decisions.expression("logic")
                reached.enter_context(maybes.there(value, holds=False))
                right = operand()
                value = maybes.imply(_disjunction(value, right), value, right, all_of=False)
            elif value:
                return value
            else:
                value = operand()
    return value


def not_(value: Any) -> Any:
    """`not value`."""
    if not is_staged(value):
        return not value
    decisions.expression("logic")
    return maybes.imply(predicate(value).logical_not(), value, negated=True)


def compare(first: Callable[[], Any], *rest: Callable[..., Any]) -> Any:
    """`a < b < c`: by turns the test of two values and the next value."""
    left = first()
    result: Any = True
    for test, following in zip(rest[::2], rest[1::2], strict=True):
        right = following()
        found = test(left, right)
        if is_staged(result):
            decisions.expression("logic")
            result = _conjunction(result, found)
        else:
            result = found
            if not is_staged(found) and not found:
                return found
        left = right
    return result


def choose(test: object, then: Callable[[], T], other: Callable[[], T]) -> T:
    """`then() if test else other()`."""
    if not is_staged(test):
        return then() if test else other()
    decisions.expression("choice")
    chosen: list[Any] = [UNDEFINED]

    def take(value: Any) -> None:
        chosen[0] = value

    variables = Variables(lambda: tuple(chosen), lambda values: take(values[0]), ("the expression",), tuple)
    regions.branch(test, lambda: take(then()), lambda: take(other()), variables)
    value: T = chosen[0]
    return value


def is_(left: Any, right: Any) -> Any:
    """`left is right`; whether a value is None may be traced."""
    maybe = _against_none(left, right)
    return left is right if maybe is None else not maybe.is_there and maybes.presence(maybe, wanted=False)


def is_not(left: Any, right: Any) -> Any:
    """`left is not right`."""
    maybe = _against_none(left, right)
    return left is not right if maybe is None else maybe.is_there or maybes.presence(maybe, wanted=True)


def _against_none(left: Any, right: Any) -> Maybe | None:
    for value, other in ((left, right), (right, left)):
        if isinstance(value, Maybe) and other is None:
            return value
    return None


def in_(item: Any, items: Any) -> Any:
    """`item in items`."""
    if isinstance(items, partial.Partial | partial.Keys) and not is_staged(item):
        return (items.of if isinstance(items, partial.Keys) else items).has(item)
    if isinstance(items, dict):
        items = items.keys() if is_staged(item) else items
    if not _staging or isinstance(items, torch.Tensor | str | regions.TensorRange):
        return item in items
    if is_staged(item) or (isinstance(items, list | tuple) and any(map(is_staged, items))):
        return calls.any_(item is each or item == each for each in items)
    return item in items


def not_in(item: Any, items: Any) -> Any:
    """`item not in items`."""
    return not_(in_(item, items))


def generated(
    plain: Callable[[], Iterator[Any]], staged: Callable[[Callable[[Any], Any]], Any]
) -> Iterator[Any]:
    """What a call of a function that yields gives."""
    return Generated(staged) if _staging else plain()


def items(value: Any) -> Any:
    """What a comprehension goes through."""
    found = listed(value)
    if growing.is_growing(found):
        raise refusal(
            "a comprehension goes through a list whose length a tensor decides",
            "stack it, and compute with the tensor",
        )
    return found


def indexed(value: Any) -> Any:
    """What stands before an index."""
    return lists.opened(value) if _staging else value


# `a:b` of an index.
slice = builtins.slice  # noqa: A001


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`."""
    if not _staging:
        return function(*args, **kwargs)
    if any(isinstance(each, Generated) for each in args) and not isinstance(function, _OF_PYTHON):
        args = tuple(map(listed, args))
    if (staged := calls.of(function)) is not None:
        if any(map(dispatch.is_traced, args)):
            decisions.expression("call")
        return staged(*args, **kwargs)
    return optional.call(function, args, kwargs) if maybes.may_lack() else function(*args, **kwargs)


def keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    """`**kwargs` at the beginning of a function."""
    return partial.of_keywords(kwargs) if _staging else kwargs


# What may loop over a generator with `for`.
_OF_PYTHON: Final = (FunctionType, MethodType)


def shown(value: Any) -> Any:
    """A value in an f-string."""
    return refusing.text() if is_staged(value) else value


def said(talk: Callable[[], object]) -> None:
    """`print` and logging, which no graph does."""
    if not _staging:
        talk()
    else:
        refusing.note("note", "talk-left-out", "what is printed or logged is no part of the program")


def raised(make: Callable[[], Any]) -> Any:
    """What `raise` raises."""
    return raising.raised(make) if _staging else make()


def require(test: object, text: str, message: Callable[[], object] | None = None) -> None:
    """`assert test, message()`; `text` is the test's own."""
    if is_staged(test):
        decisions.expression("assert")
        with refusing.message():
            said = text if message is None else str(message())
        raising.claim(predicate(test), said)
    elif not test:
        raise raised(lambda: AssertionError(*(() if message is None else (message(),))))


def augmented(name: str, left: Any, right: Any) -> Any:
    """`left += right` and its kin: the value that is assigned."""
    if _staging and (numbers.is_number(left) or isinstance(left, Maybe)):
        return _PLAIN[name](left, right)
    return _IN_PLACE[name](left, right)


def augment_item(name: str, container: Any, index: Any, right: Any) -> None:
    """`container[index] += right` and its kin."""
    left = container[index]
    is_copy = is_staged(index) or (
        isinstance(container, torch.Tensor) and isinstance(index, tuple) and any(map(is_staged, index))
    )
    container[index] = _PLAIN[name](left, right) if _staging and is_copy else augmented(name, left, right)


_IN_PLACE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "Add": operator.iadd,
    "Sub": operator.isub,
    "Mult": operator.imul,
    "MatMult": operator.imatmul,
    "Div": operator.itruediv,
    "FloorDiv": operator.ifloordiv,
    "Mod": operator.imod,
    "Pow": operator.ipow,
    "LShift": operator.ilshift,
    "RShift": operator.irshift,
    "BitOr": operator.ior,
    "BitXor": operator.ixor,
    "BitAnd": operator.iand,
}
_PLAIN: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "MatMult": operator.matmul,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "Pow": operator.pow,
    "LShift": operator.lshift,
    "RShift": operator.rshift,
    "BitOr": operator.or_,
    "BitXor": operator.xor,
    "BitAnd": operator.and_,
}
