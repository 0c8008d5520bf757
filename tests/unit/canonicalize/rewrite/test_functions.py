"""Functions get other code for a while, and stay themselves: closures, defaults, `super()`, private names."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from aotpipe.canonicalize.rewrite import staging


def rewritten(function: FunctionType) -> dict[FunctionType, Any]:
    code = staging.rewritten(function)
    assert code is not None
    return {function: code}


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return ("decorated", function(*args))

    return wrapper


class Base:
    def value(self, x):
        return x + 1


class Model(Base):
    __private = 5

    def __init__(self, extra):
        self.extra = extra
        self.adding = lambda x: x + extra

    def value(self, x, *, scale=2):
        if x > 0:
            return super().value(x) * scale + self.__private
        return self.adding(x)

    @decorated
    def told(self, x):
        if x:
            return "yes"
        return "no"

    @property
    def sign(self):
        return 1 if self.extra > 0 else -1


def made(count):
    def inner(x, by=1):
        nonlocal count
        while x > 0:
            count += by
            x -= 1
        return count

    return inner


def test_methods_keep_super_private_names_and_defaults():
    model = Model(10)
    with staging.swapped(rewritten(Model.value)):
        assert (model.value(1), model.value(1, scale=3), model.value(-1)) == (9, 11, 9)


class Named:
    """Its method names its own class."""

    floor = 2

    def clipped(self, x):
        if x < Named.floor:
            return Named.floor
        return x


def test_a_method_that_names_its_own_class():
    codes = rewritten(Named.clipped)
    assert codes
    with staging.swapped(codes):
        assert (Named().clipped(1), Named().clipped(3)) == (2, 3)


def test_a_method_that_names_its_own_class_which_a_function_defines():
    class Inner:
        floor = 2

        def clipped(self, x):
            if x < Inner.floor:
                return Inner.floor
            return x

    codes = rewritten(Inner.clipped)
    assert codes
    with staging.swapped(codes):
        assert (Inner().clipped(1), Inner().clipped(3)) == (2, 3)


def halved(x, depth):
    if depth == 0 or x < 1:
        return x
    return halved(x / 2, depth - 1) + 1


def test_a_function_that_calls_itself():
    codes = rewritten(halved)
    assert codes
    with staging.swapped(codes):
        assert (halved(8, 2), halved(0.5, 2)) == (4, 0.5)


def test_closures_stay_shared():
    inner = made(100)
    with staging.swapped(rewritten(inner)):
        assert inner(3) == 103
        assert inner(2, by=10) == 123
    assert inner(1) == 124


def test_a_decorated_function_and_a_property():
    codes = rewritten(Model.told.__wrapped__) | rewritten(Model.sign.fget)
    with staging.swapped(codes):
        assert Model(1).told(True) == ("decorated", "yes")
        assert (Model(1).sign, Model(-1).sign) == (1, -1)


def test_the_old_code_is_back_after_an_error():
    code = Model.value.__code__
    codes = rewritten(Model.value)

    def fail() -> None:
        with staging.swapped(codes):
            assert Model.value.__code__ is not code
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert Model.value.__code__ is code


def failing(x):
    if x:
        y = 1
        return y / 0
    return x


def test_tracebacks_name_the_users_lines():
    with staging.swapped(rewritten(failing)), pytest.raises(ZeroDivisionError) as caught:
        failing(1)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert last.filename == failing.__code__.co_filename
    assert last.line == "return y / 0"


def test_what_has_no_source_or_is_sent_values_is_left():
    space: dict[str, Any] = {}
    exec("def f(x):\n    if x: return 1\n    return 2", space)  # a function without a file

    def numbers():
        if True:
            print((yield 1))

    assert staging.rewritten(space["f"]) is None
    assert staging.rewritten(numbers) is None


def test_the_function_that_an_error_came_from():
    inner = made("text")
    with pytest.raises(TypeError) as caught:
        inner(1)
    assert staging.deciding(caught.value) == [inner]


def maker(x):
    def inner(y):
        return y / 0

    return inner(x)


def test_of_a_function_made_by_another_it_is_the_maker():
    with pytest.raises(ZeroDivisionError) as caught:
        maker(1)
    assert staging.deciding(caught.value) == [maker]


def test_what_was_rewritten_is_not_rewritten_again():
    with staging.swapped(rewritten(failing)), pytest.raises(ZeroDivisionError) as caught:
        failing(1)
    assert not staging.deciding(caught.value)


def test_of_several_lambdas_on_a_line_each_is_its_own():
    n = 3
    # fmt: off
    plus, minus, made = (lambda x: x + n if x > 0 else x), (lambda x: -x if x else n), lambda: lambda x: -n
    # fmt: on
    for function in (plus, minus, made()):
        before = [function(x) for x in (-2, 0, 5)]
        codes = rewritten(function)
        assert codes[function].co_freevars == function.__code__.co_freevars
        with staging.swapped(codes):
            assert function.__code__ is codes[function]
            assert [function(x) for x in (-2, 0, 5)] == before
