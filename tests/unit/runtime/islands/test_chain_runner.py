"""A chain is run step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aotpipe.core.signature import Presence, Signature, Symbol, TensorSpec
from aotpipe.errors import InputError, InputShape, IslandFailed
from aotpipe.runtime.islands.chain import Chain, Island, Parts, Segment
from aotpipe.runtime.islands.chain_runner import ChainRunner

N = Symbol("n", 1, 8)
X = TensorSpec("x", "float32", ("n",))
COUNT = TensorSpec("count", "int64", ())


class Doubling:
    """Segments that double `y` and count."""

    closed = False

    def infer(self, inputs: Mapping[str, Any], *, entry_point: str) -> dict[str, Any]:
        assert entry_point == "forward_0"
        return {"z": inputs["y"] * 2, "next": inputs["before"] + 1}

    def close(self) -> None:
        self.closed = True


def island(**changed: Any) -> Island:
    made = Island(
        name="net:f",
        kind="function",
        where=None,
        reason="",
        arrays="numpy",
        arguments={"list": [{"list": [{"tensor": 0}, {"value": "text"}]}, {"dict": {}}]},
        result={"tensor": 0},
        inputs=("x",),
        outputs=(TensorSpec("y", "float32", ("n",)),),
    )
    return replace(made, **changed)


def runner(function: Callable[..., Any], step: Island | None = None) -> ChainRunner:
    segment = Segment(entry_point="forward_0", inputs=("y", "before"), outputs=("z", "next"))
    chain = Chain(
        steps=(step or island(), segment),
        inputs={"x": "x"},
        outputs={"output": "z"},
        state={"count": ("before", "next")},
    )
    signature = Signature(inputs=(X,), outputs=(replace(X, name="output"),), state=(COUNT,), symbols=(N,))
    return ChainRunner(
        Doubling(),
        Parts(signatures={}, asserts={}, chains={"forward": chain}),
        signatures={"forward": signature},
        initial_state={"count": np.array(0)},
        functions={"net:f": function},
    )


def test_values_go_from_step_to_step_and_state_from_call_to_call() -> None:
    with runner(lambda x, text: x + len(text)) as run:
        for count in (1, 2):
            assert np.array_equal(run.infer({"x": np.ones(3, np.float32)})["output"], np.full(3, 10.0))
            assert run._state["count"] == count
        run.reset()
        assert run._state["count"] == 0
        assert run.signature.symbols == (N,)
    assert run._segments.closed


def test_an_input_is_checked_before_anything_runs() -> None:
    def never(*_: Any) -> None:
        raise AssertionError

    with pytest.raises(InputShape):
        runner(never).infer({"x": np.ones(9, np.float32)})
    with pytest.raises(InputError, match="no entry point is called 'other'"):
        runner(never).infer({"x": np.ones(3, np.float32)}, entry_point="other")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, _: x[1:], "gave float32"),
        (lambda x, _: x.astype(np.float64), "gave float64"),
        (lambda x, _: (x,), "another structure"),
        (lambda x, _: x / {}["no"], "raised KeyError"),
    ],
)
def test_what_an_island_does_otherwise_is_told_and_the_state_is_kept(function: Any, message: str) -> None:
    run = runner(function)
    with pytest.raises(IslandFailed, match=message):
        run.infer({"x": np.ones(3, np.float32)})
    assert run._state["count"] == 0


def test_an_island_may_write_into_what_it_takes() -> None:
    def write(x: Any, _: str) -> Any:
        x += 1
        return x

    x = np.ones(3, np.float32)
    assert np.array_equal(runner(write).infer({"x": x})["output"], np.full(3, 4.0))
    assert np.array_equal(x, np.ones(3))


def test_tensors_and_numbers() -> None:
    step = island(
        arrays="torch",
        arguments={"list": [{"list": [{"tensor": 0}, {"int": 1}]}, {"dict": {}}]},
        inputs=("x", "before"),
    )
    run = runner(lambda x, count: x.add(count), step)
    assert np.array_equal(run.infer({"x": np.ones(2, np.float32)})["output"], np.full(2, 2.0))
    assert np.array_equal(run.infer({"x": np.ones(2, np.float32)})["output"], np.full(2, 4.0))


def test_each_step_is_timed() -> None:
    run = runner(lambda x, _: x)
    assert len(run.time({"x": np.ones(2, np.float32)}, entry_point="forward", samples=3, reset=True)) == 3
    first, second = run.times()
    assert (first.name, first.kind, first.calls) == ("net:f", "function", 3)
    assert (second.name, second.kind, second.calls) == ("forward_0", "program", 3)
    assert first.median_us > 0
    assert first.share + second.share == pytest.approx(1)
    run.forget_times()
    assert run.times() == ()


class Passing:
    """Segments that give what they take."""

    def infer(self, inputs: Mapping[str, Any], *, entry_point: str) -> dict[str, Any]:
        assert entry_point == "forward_0"
        return {"z": inputs["x"], "z_there": inputs["x_there"]}


def test_what_a_call_lacks_is_filled_in_and_what_is_not_given_is_left_out() -> None:
    there = TensorSpec("x_there", "bool", ())
    signature = Signature(
        inputs=(X, there),
        outputs=(replace(X, name="y"), replace(there, name="y_there")),
        symbols=(N,),
        optional=(Presence("x", "x_there", ("x",)),),
        optional_outputs=(Presence("y", "y_there", ("y",)),),
    )
    chain = Chain(
        steps=(Segment(entry_point="forward_0", inputs=("x", "x_there"), outputs=("z", "z_there")),),
        inputs={"x": "x", "x_there": "x_there"},
        outputs={"y": "z", "y_there": "z_there"},
    )
    run = ChainRunner(
        Passing(),
        Parts(signatures={}, asserts={}, chains={"forward": chain}),
        signatures={"forward": signature},
        initial_state={},
        functions={},
    )
    x = np.ones(2, np.float32)
    assert run.infer({}) == {}
    assert run.infer({"x": x}).keys() == {"y"}
    assert run.infer({"x": x, "x_there": np.array(False)}).keys() == {"y", "y_there"}
