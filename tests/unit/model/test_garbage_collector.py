from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from aotpipe.model import garbage_collector


def test_finds_all_functions_of_a_code() -> None:
    def make() -> list[object]:
        return [lambda: None for _ in range(2)]

    one, other = make()
    assert garbage_collector.functions_of(one.__code__) == [one, other]  # type: ignore[attr-defined]


def fails() -> None:
    raise ValueError("here")


def test_a_frame_tells_the_function_that_ran() -> None:
    with pytest.raises(ValueError, match="here") as caught:
        fails()
    assert garbage_collector.function_of(caught.tb.tb_next.tb_frame) is fails  # type: ignore[union-attr]


def test_finds_functions_that_were_set_aside() -> None:
    def function() -> None:
        pass

    gc.freeze()
    try:
        assert garbage_collector.functions_of(function.__code__) == [function]
    finally:
        gc.unfreeze()


def test_sets_torch_aside_where_it_imports_it() -> None:
    text = (
        "import gc; from aotpipe.model import garbage_collector as collector\n"
        "collector.import_torch(); first = gc.get_freeze_count()\n"
        "gc.unfreeze(); collector.import_torch(); print(first > 100_000, gc.get_freeze_count())"
    )
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "0"]


def test_nothing_is_collected_while_it_is_paused() -> None:
    with garbage_collector.paused():
        assert not gc.isenabled()
        with garbage_collector.paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_is_calm_for_a_while_and_then_as_it_was() -> None:
    script = """
import gc
from aotpipe.model import garbage_collector as collector
gc.unfreeze()
before = gc.get_threshold()
with collector.rarer_collections():
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold()[0] > before[0]
    with collector.rarer_collections():
        pass
    assert gc.get_freeze_count() > 0
assert gc.get_freeze_count() == 0
assert gc.get_threshold() == before
gc.freeze()
with collector.rarer_collections():
    pass
assert gc.get_freeze_count() > 0
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def _made():
    def inner():
        return lambda: None

    return inner


def test_finds_the_function_that_makes_one_of_a_code():
    """Each call of the maker gives another function; the maker itself may have returned."""
    inner = _made()
    assert garbage_collector.makers_of(inner().__code__) == [inner, _made]
    assert garbage_collector.makers_of(_made.__code__) == []
