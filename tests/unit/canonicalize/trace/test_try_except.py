"""A handler of `try` for what is raised where a tensor decides: both ways are paths of the graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.trace import regions
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import sweep
from tests.unit.canonicalize.trace.agree import check
from tests.unit.canonicalize.trace.asserting import around_an_assert

VECTORS = tuple(
    (torch.tensor(v),)
    for v in (
        [0.0, 1.0, 2.0, 3.0],
        [2.0, 1.0, 0.0, 5.0],
        [7.0, 1.0, 1.0, 1.0],
        [-1.0, -2.0, 1.0, 0.0],
        [-9.0, 0.0, 0.0, 0.0],
    )
)


def positive(x: torch.Tensor) -> torch.Tensor:
    if x.sum() < 0:
        raise ValueError("negative")
    if x.max() > 6:
        raise KeyError("large")
    return x * 2


def a_helper_raises(x):
    try:
        return positive(x)
    except ValueError:
        return -x
    except LookupError as error:
        return x + len(str(error))


def a_divisor_a_key_and_an_index(x):
    n = int(x[0])
    total = 0
    try:
        total += 10 // n
    except ZeroDivisionError:
        total += 1
    try:
        total += {1: 5, 2: 6}[n]
    except KeyError:
        total += 100
    try:
        total += [1, 2, 3][n]
    except IndexError:
        total += 1000
    try:
        x = x + x[n]
    except IndexError:
        x = x - 1
    return x, total


def a_divisor_and_a_raise_after_it(x):
    number, value = 0, 5.0
    try:
        value = 6 / x[0].item()
        if value > 2:
            raise ValueError("large")  # noqa: TRY301  # as people write it
    except ZeroDivisionError:
        number = 1
    except ValueError:
        number = 2
    return value, number


def raised_again(x):
    try:
        if x.sum() > 5:
            raise ValueError("sum")  # noqa: TRY301  # as people write it
        y = x + 1
    except (ValueError, KeyError):
        if x[0] > 5:
            raise
        y = x - 1
    else:
        y = y * 2
    finally:
        x = x + y
    return x


def outer_and_inner(x):
    y = x
    try:
        try:
            if x[0] > 1:
                raise KeyError("inner")  # noqa: TRY301
            if x[1] > 0:
                raise IndexError("outer")
            y = x * 2
        except KeyError:
            y = x * 3
    except LookupError:
        y = x - 1
    return y


def after_an_inner_one(x):
    n = 0
    try:
        try:
            if x[0] > 1:
                raise KeyError("inner")  # noqa: TRY301
        except KeyError:
            n = 2
        if x.sum() > 5:
            raise ValueError("outer")  # noqa: TRY301
        n = n + 1
    except ValueError:
        x = -x
    return x, n


def between_inner_ones(x):
    n = 0
    try:
        for at in range(2):
            try:
                if x[at] > 1:
                    raise KeyError("inner")  # noqa: TRY301
                if x[at] < -5:
                    raise ValueError("outer")
                n = n + 1
            except KeyError:
                n = n + 10
            if x.sum() > 8 + at:
                raise ValueError("sum")  # noqa: TRY301
    except ValueError:
        n = n + 100
    return x, n


def a_handler_writes_in_place(x):
    n = 0
    try:
        if x.max() > 6:
            raise KeyError("max")  # noqa: TRY301
        n = 2 if x[1] > 0 else n
        if (x if n else x * 0.25).sum() > 5:
            raise ValueError("sum")  # noqa: TRY301
    except (KeyError, ValueError):
        x += 1
    return x, n


def suppressed(x):
    y = x
    with contextlib.suppress(ValueError, KeyError):
        y = positive(x)
        y = y + 1
    return y


def each_trip_of_a_loop(x):
    total, failed = x[0] * 0, 0
    for value in x:
        try:
            if value < 0:
                raise ValueError  # noqa: TRY301
            total = total + value
        except ValueError:
            failed += 1
            continue
        finally:
            failed += 10
    return total, failed


def a_loop_on_a_tensor(x):
    i, total = 0, x[0] * 0
    try:
        while i < x.shape[0] and total < 4:
            if x[i] < 0:
                raise ValueError(i)  # noqa: TRY301
            total = total + x[i]
            i += 1
    except ValueError:
        total = total * 100
    return total, i


def written_before(x):
    held = torch.zeros(4)
    part = held[:2]
    try:
        part.add_(1)
        positive(x)
        held[3] = 5
    except ValueError:
        part.mul_(10)
    except KeyError:
        held += 1
    return held


QUICK = [
    "a_helper_raises",
    "a_divisor_a_key_and_an_index",
    "a_divisor_and_a_raise_after_it",
    "outer_and_inner",
    "after_an_inner_one",
    "a_handler_writes_in_place",
    "a_loop_on_a_tensor",
]
MODELS = {
    each.__name__: each
    for each in (
        a_helper_raises,
        a_divisor_a_key_and_an_index,
        a_divisor_and_a_raise_after_it,
        raised_again,
        outer_and_inner,
        after_an_inner_one,
        between_inner_ones,
        a_handler_writes_in_place,
        suppressed,
        each_trip_of_a_loop,
        a_loop_on_a_tensor,
        written_before,
    )
}


@pytest.mark.parametrize("name", sweep(list(MODELS), quick=2, always=QUICK))
def test_both_ways_are_paths_of_the_graph(name: str) -> None:
    check(MODELS[name], *VECTORS)


class Counting(nn.Module):
    """What is done before the exception stays done."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.failed, self.left = 0, 0, 0

    def _step(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        try:
            if x.max() > 2:
                self.failed += 1
                raise RuntimeError("large")
            return x + 1
        finally:
            if x[0] > 1:
                self.left += 1

    def forward(self, x: torch.Tensor) -> Any:
        try:
            y = self._step(x)
            self.calls += 10
        except RuntimeError:
            y = x * 0
        return y, self.calls, self.failed, self.left


def test_state_is_what_a_call_that_raised_inside_left() -> None:
    model = Counting().eval()
    program = export(canonicalize(as_spec(Counting().eval(), args=VECTORS[0]))).entries[0].program.module()
    for case in (*VECTORS, *VECTORS[::-1]):
        assert [float(torch.as_tensor(each).sum()) for each in program(*case)] == [
            float(torch.as_tensor(each).sum()) for each in model(*case)
        ]


def left_by_finally(x):
    y = x
    try:
        if x.sum() > 3:
            raise ValueError("sum")
        y = x + 1
    finally:
        return y * 3  # noqa: B012  # it drops the exception


def by_a_native_error(x):
    y = x
    try:
        y = x + "one" if x.sum() > 3 else x + 1  # type: ignore[operator]
    except TypeError:
        y = x * 3
    return y


@pytest.mark.parametrize("model", [left_by_finally, by_a_native_error], ids=lambda model: model.__name__)
def test_a_handler_that_no_path_can_have_is_refused_at_its_line(model: Any) -> None:
    with pytest.raises(ExportFailed, match="caught") as found:
        check(model, *VECTORS)
    assert found.value.where is not None
    assert found.value.where.path.endswith("test_try_except.py")


def whole_part(x: torch.Tensor) -> Any:
    try:
        n = int(x[0])
    except OverflowError:
        n = -5
    return x * 0 + n


def test_a_number_beyond_64_bits_comes_to_no_handler() -> None:
    check(whole_part, (torch.tensor([2.0]),), (torch.tensor([float("inf")]),))
    spec = as_spec(whole_part, args=(torch.tensor([2.0]),))
    program = export(canonicalize(spec)).entries[0].program.module()
    with pytest.raises(RuntimeError, match="a number beyond 64 bits"):
        program(torch.tensor([1e30]))


class Swallows:
    def __enter__(self) -> int:
        return 1

    def __exit__(self, kind: object, error: object, traceback: object) -> bool:
        return kind is ValueError


@contextlib.contextmanager
def swallowing():
    try:  # noqa: SIM105  # the generator's own handler
        yield 1
    except ValueError:
        pass


def with_jumps_and_a_log(x):
    log, total = [], torch.zeros(())
    for v in x:
        with Logs(log):
            if v < 0:
                raise ZeroDivisionError("negative")
            total = total + v
            if v > 1.5:
                break
    with Logs(log):
        if total > 2.5:
            raise ArithmeticError("large")
        return total, torch.tensor(len(log))
    return total * 2, torch.tensor(sum(log))


class Logs:
    def __init__(self, log: list[int]) -> None:
        self.log = log

    def __enter__(self) -> None:
        self.log.append(1)

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> bool:
        self.log.append(-1 if kind else 0)
        return kind is not None and issubclass(kind, ArithmeticError)


def under_a_stack(x):
    log = [0]
    with contextlib.ExitStack() as stack:
        stack.enter_context(suppress(ValueError))
        stack.callback(log.append, 3)
        log.append(positive(x).sum())
    return len(log)


def under_a_class(x):
    r = 0
    with Swallows() as one:
        if x.sum() > 5:
            raise ValueError("x")
        r = one
    return x + r


def under_a_generator(x):
    with swallowing():
        if x.sum() > 5:
            raise ValueError("x")
    return x


def around_a_helper(x):
    r = x * 0
    with Swallows():
        r = positive(x)
    return x + r


def around_a_helper_by_an_attribute(x):
    r = x * 0
    with SimpleNamespace(guard=Swallows).guard():
        r = positive(x)
    return x + r


class SwallowsAll(Swallows):
    def __exit__(self, kind: object, error: object, traceback: object) -> bool:
        return kind is not None


def around_a_helper_by_all(x):
    r = x * 0
    with SwallowsAll():
        r = positive(x)
    return x + r


def around_a_helper_by_a_name(x):
    r = x * 0
    guard = Swallows()
    with guard:
        r = positive(x)
    return x + r


@contextmanager
def swallowing_all() -> Iterator[None]:
    try:  # noqa: SIM105  # as people write it
        yield
    except:  # noqa: E722
        pass


@contextmanager
def swallowing_by_another() -> Iterator[None]:
    with Swallows():
        yield


def under_a_bare_handler(x):
    with swallowing_all():
        x = positive(x)
    return x * 2


def under_a_manager_in_a_manager(x):
    with swallowing_by_another():
        x = positive(x)
    return x * 2


def under_a_named_suppress(x):
    quiet = suppress(AssertionError, ValueError)
    with quiet:
        x = positive(x)
    return x * 2


@contextmanager
def restoring() -> Iterator[None]:
    before = torch.get_num_threads()
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_num_threads(before)


def under_what_suppresses_nothing(x):
    with restoring():
        x = positive(x)
    return x * 2


def test_a_manager_that_suppresses_nothing_leaves_an_assert() -> None:
    check(under_what_suppresses_nothing, (torch.tensor([1.0, 2.0]),))


WITHOUT_SOURCE = """
class Model(torch.nn.Module):
    def forward(self, x):
        y = x * 1
        with SwallowsAll():
            assert x.sum() < 5
            y = y + 1
        return y
"""


def test_what_a_model_without_source_suppresses_is_refused() -> None:
    names: dict[str, Any] = {"torch": torch, "SwallowsAll": SwallowsAll}
    exec(WITHOUT_SOURCE, names)
    with pytest.raises(ExportFailed):
        check(names["Model"](), (torch.tensor([1.0, 2.0]),))


@pytest.mark.parametrize(
    "model",
    [
        around_an_assert,
        under_a_bare_handler,
        under_a_manager_in_a_manager,
        under_a_named_suppress,
        under_a_class,
        under_a_generator,
        under_a_stack,
        around_a_helper,
        around_a_helper_by_an_attribute,
        around_a_helper_by_a_name,
        around_a_helper_by_all,
        with_jumps_and_a_log,
    ],
)
def test_a_manager_that_ends_what_a_tensor_raises_is_a_handler(model: Any) -> None:
    check(model, *((torch.tensor(each),) for each in ([1.0, 1.2], [-1.0, 1.0], [3.0, 4.0], [-1.0, -2.0])))


def nested_to_a_depth(x):
    count = 0
    with suppress(ZeroDivisionError):
        count += 10 // int(x[0])
        with suppress(ZeroDivisionError):
            count += 10 // int(x[1])
            try:
                count += 10 // int(x[2])
                with suppress(ZeroDivisionError):
                    count += 10 // int(x[3])
            except ZeroDivisionError:
                count += 100
    return count


def test_a_try_inside_of_others_is_not_run_twice_as_often_at_each_level(monkeypatch):
    """A `try` was begun 119 times here, and about twice as often with each one more around it."""
    runs = []
    monkeypatch.setattr(regions, "_attempt", partial(_counted, regions._attempt, runs))
    check(nested_to_a_depth, (torch.ones(4),), *((1 - torch.eye(4)[k],) for k in range(4)))
    assert len(runs) < 60


def _counted(attempt, runs, *args, **options):
    runs.append(args)
    attempt(*args, **options)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(4, 4)

    def forward(self, x):
        if x.sum() < 0:
            raise ValueError("negative")
        return self.scale(x)


class Outer(nn.Module):
    """Goes on where a submodule raises: torch.fx took that for one that still ran."""

    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.last = nn.Linear(4, 4)

    def forward(self, x):
        try:
            y = self.inner(x)
        except ValueError:
            y = x * 0
        return self.last(y)


def test_a_submodule_that_raises_is_left() -> None:
    check(Outer().eval(), *VECTORS)


class SolverFailed(Exception):
    def __init__(self, reason, at):
        super().__init__(f"{reason} at {at}")
        self.reason, self.at = reason, at


def an_exception_that_holds_what_a_loop_computes(x):
    s, i, how = x.sum(), 0, 0
    try:
        while i < 8:
            s = s * 3 % 11
            if s == 2:
                raise SolverFailed("two", i)  # noqa: TRY301  # as people write it
            if s == 8:
                raise SolverFailed("eight", i)  # noqa: TRY301
            i += 1
            if s == 4:
                break
    except SolverFailed as error:
        how = 1 if error.reason == "two" else 2
        i = error.at + 100
    return i, s, how


def of_a_function_that_searches(x):
    def search(s):
        for i in range(9):
            s = s * 3 % 11
            if s == 2:
                raise SolverFailed("two", s + i)
            if s == 4:
                return s, i
        raise SolverFailed("none", 9)

    try:
        s, n = search(x.sum())
        ok = True
    except SolverFailed as error:
        s, n, ok = x.sum(), error.at, error.reason == "none"
    return n, s, ok


@pytest.mark.parametrize(
    "model",
    [an_exception_that_holds_what_a_loop_computes, of_a_function_that_searches],
    ids=lambda m: m.__name__,
)
def test_what_an_exception_holds_is_that_of_the_iteration_that_raised_it(model):
    """It was a tensor of the trace, of which the program could not be run."""
    check(model, *((torch.tensor([float(n), 1.0]),) for n in range(11)))
