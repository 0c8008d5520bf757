"""What a model does to its process is an error, and the process goes on."""

from __future__ import annotations

import multiprocessing
import os
import sys

import pytest

from aotpipe.errors import ModelError, ReadOnly
from aotpipe.model import user_code


class Own(BaseException):
    """What `except Exception` does not catch."""


@pytest.mark.parametrize("error", [SystemExit(0), GeneratorExit(), MemoryError(), Own("x")], ids=repr)
def test_what_would_end_the_build_without_a_word_is_typed(error: BaseException) -> None:
    with pytest.raises(ModelError) as caught, user_code.contained():
        raise error
    assert caught.value.__cause__ is error
    assert caught.value.where is not None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ReadOnly("x"), ZeroDivisionError()], ids=repr)
def test_other_errors_are_as_they_were(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, user_code.contained():
        raise error
    assert caught.value is error


def test_a_model_ends_the_process_only_by_an_error() -> None:
    with pytest.raises(ModelError, match="SystemExit"), user_code.contained():
        os._exit(0)


def test_a_model_does_not_fork() -> None:
    with pytest.raises(ModelError, match="forked"), user_code.contained():
        os.fork()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_outside_of_it_and_for_multiprocessing_forks_are_forks() -> None:
    with user_code.contained():
        child = multiprocessing.get_context("fork").Process(target=sys.exit, args=(3,))
        child.start()
        child.join()
    assert child.exitcode == 3
    if not (pid := os.fork()):
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
