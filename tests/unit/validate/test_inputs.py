"""Planned calls: sizes at both ends, values like the example's, sequences for state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.core.dtypes import Array, numpy_dtype
from aotpipe.core.signature import Presence, Signature, Symbol, TensorSpec
from aotpipe.validate import inputs
from aotpipe.validate.inputs import draw, plan, runs_unlike, special_calls


def _signature(*specs: str, symbols: tuple[str, ...] = (), state: tuple[str, ...] = ()) -> Signature:
    return Signature(
        inputs=tuple(map(TensorSpec.parse, specs)),
        outputs=(),
        state=tuple(map(TensorSpec.parse, state)),
        symbols=tuple(map(Symbol.parse, symbols)),
    )


def _plan(signature: Signature, **example: Array) -> inputs.Plan:
    return plan({"forward": signature}, {"forward": example})


def _drawn(spec: str, example: object, shape: tuple[int, ...] | None = None) -> Array:
    array = np.asarray(example)
    return draw(TensorSpec.parse(spec), shape or array.shape, array, np.random.default_rng(0))


def test_both_ends_and_the_inside_of_every_range_are_called() -> None:
    signature = _signature(
        "x: float32[batch, 2*seq]", "m: bool[batch, seq]", symbols=("batch=0..7", "seq=1..9")
    )
    x, m = np.random.rand(2, 6).astype(np.float32), np.ones((2, 3), bool)
    planned = _plan(signature, x=x, m=m)
    sizes = {call.case: call.inputs["m"].shape for call in planned.calls}
    assert sizes["example"] == (2, 3)
    assert sizes["batch=0"] == (0, 3)
    assert sizes["batch=7"] == (7, 3)
    assert sizes["seq=1"] == (2, 1)
    assert sizes["seq=9"] == (2, 9)
    assert sizes["all smallest"] == (0, 1)
    assert sizes["all largest"] == (7, 9)
    assert sizes["batch=6"] == (6, 3)
    assert {sizes["corner batch=0 seq=9"], sizes["corner batch=7 seq=1"]} == {(0, 9), (7, 1)}
    for call in planned.calls:
        assert call.inputs["x"].shape == (call.inputs["m"].shape[0], 2 * call.inputs["m"].shape[1])
        assert call.reset


def test_an_open_range_is_tried_beyond_the_example() -> None:
    planned = _plan(_signature("x: float32[n]", symbols=("n=2..",)), x=np.zeros(5, np.float32))
    assert {call.inputs["x"].shape[0] for call in planned.calls} >= {2, 5, 11}


def test_an_end_that_no_memory_holds_is_left_out_and_said() -> None:
    planned = _plan(_signature("x: float32[n, 4096]", symbols=("n=1..1000000",)), x=np.zeros((2, 4096)))
    assert any("n=1000000 was not tried" in note for note in planned.notes)


def test_the_same_seed_gives_the_same_calls_and_another_does_not() -> None:
    signature = _signature("x: float32[4]")
    example = {"forward": {"x": np.arange(4, dtype=np.float32)}}
    one, two = (plan({"forward": signature}, example, seed=3) for _ in range(2))
    other = plan({"forward": signature}, example, seed=4)
    assert [call.inputs["x"].tolist() for call in one.calls] == [
        call.inputs["x"].tolist() for call in two.calls
    ]
    assert one.calls[1].inputs["x"].tolist() != other.calls[1].inputs["x"].tolist()


def test_values_do_not_depend_on_the_other_inputs() -> None:
    x = np.random.rand(4).astype(np.float32)
    alone = _plan(_signature("x: float32[4]"), x=x)
    beside = _plan(_signature("y: float32[4]", "x: float32[4]"), x=x, y=x)
    assert alone.calls[1].inputs["x"].tolist() == beside.calls[1].inputs["x"].tolist()


def test_both_ends_of_a_value_range_are_called() -> None:
    planned = _plan(_signature("ids: int64[3] in [0, 99]"), ids=np.array([5, 6, 7]))
    calls = {call.case: call.inputs["ids"].tolist() for call in planned.calls}
    assert calls["lowest values"] == [0, 0, 0]
    assert calls["highest values"] == [99, 99, 99]
    assert calls["seed 0"] != calls["seed 1"]


def test_state_is_called_in_sequences_through_all_entry_points() -> None:
    step = _signature("x: float32[2]", state=("cache: float32[4]",))
    example = {"x": np.ones(2, np.float32)}
    planned = plan({"prefill": step, "decode": step}, {"prefill": example, "decode": example})
    steps = [(c.entry_point, c.reset) for c in planned.calls if c.case.startswith("sequence first")]
    assert steps == [("prefill", True), ("decode", False), ("decode", False), ("decode", False)]
    assert sum(c.case.startswith("sequence again") for c in planned.calls) == 4


def test_a_model_without_inputs_is_called() -> None:
    assert _plan(_signature()).calls[0].inputs == {}


def test_an_image_stays_within_its_range() -> None:
    image = np.random.default_rng(1).random((3, 8, 8)).astype(np.float32)
    drawn = _drawn("x: float32[3, 8, 8]", image)
    assert drawn.dtype == np.float32
    assert image.min() <= drawn.min()
    assert drawn.max() <= image.max()
    assert not np.array_equal(drawn, image)


def test_an_additive_mask_keeps_its_rows() -> None:
    mask = np.triu(np.full((4, 4), -np.inf), 1).astype(np.float32)
    drawn = _drawn("m: float32[6, 4]", mask, (6, 4))
    assert np.array_equal(drawn[:4], mask)
    assert np.isfinite(drawn).any(axis=1).all()


def test_levels_stay_levels() -> None:
    drawn = _drawn("x: float32[64]", np.tile([0.0, 1.0], 32).astype(np.float32))
    assert set(drawn.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0])
def test_a_constant_example_is_varied(value: float) -> None:
    drawn = _drawn("x: float32[100]", np.full(100, value, np.float32))
    assert drawn.std() > 0.05
    if value:
        assert (np.sign(drawn) == np.sign(value)).all()


def test_a_bool_mask_leaves_something_in_every_row() -> None:
    for value in (True, False):
        drawn = _drawn("m: bool[50, 1]", np.full((50, 1), value))
        assert (drawn == value).all()
        wide = _drawn("m: bool[50, 9]", np.full((50, 9), value))
        assert (wide == value).any(axis=1).all()
        assert (wide != value).any()


def test_integers_stay_in_the_examples_range() -> None:
    drawn = _drawn("x: uint8[100]", np.array([3, 7], np.uint8), (100,))
    assert drawn.dtype == np.uint8
    assert set(drawn.tolist()) == {3, 4, 5, 6, 7}


def test_an_empty_example_gives_values_of_its_dtype() -> None:
    assert _drawn("x: int32[3]", np.zeros(0, np.int32), (3,)).dtype == np.int32
    assert _drawn("x: float16[3]", np.zeros(0, np.float16), (3,)).dtype == np.float16


@given(
    st.sampled_from(["float32", "float16", "bfloat16", "float64", "int64", "int8", "bool", "complex64"]),
    st.lists(st.integers(0, 4), max_size=3),
)
def test_what_is_drawn_has_the_specs_dtype_and_shape(dtype: str, shape: list[int]) -> None:
    spec = TensorSpec("x", dtype, tuple(shape))
    example = np.ones(shape, inputs.numpy_dtype(dtype))
    drawn = draw(spec, tuple(shape), example, np.random.default_rng(0))
    assert drawn.dtype == example.dtype
    assert drawn.shape == tuple(shape)
    assert not np.isnan(drawn.astype(np.complex128)).any()


def _joint(work: float) -> tuple[dict[str, tuple[int, ...]], tuple[str, ...]]:
    """The planned shapes where each element of the input takes so much arithmetic, and the notes."""
    signature = _signature("x: float32[batch, seq]", symbols=("batch=1..32", "seq=4..256"))
    planned = plan(
        {"forward": signature},
        {"forward": {"x": np.random.rand(2, 16).astype(np.float32)}},
        work={"forward": lambda sizes: sizes["batch"] * sizes["seq"] * work},
    )
    return {call.case: call.inputs["x"].shape for call in planned.calls}, planned.notes


def test_cheap_calls_are_tried_at_all_largest() -> None:
    shapes, notes = _joint(1.0)
    assert shapes["all largest"] == (32, 256)
    assert not notes


def test_sizes_that_are_dear_together_are_tried_alone_and_closer_to_the_example() -> None:
    shapes, notes = _joint(1e8)
    assert {(1, 16), (32, 16), (2, 4), (2, 256), (1, 4)} <= set(shapes.values())
    assert "all largest" not in shapes
    assert max(batch * seq for batch, seq in shapes.values()) <= 2 * 2 * 256
    assert any(batch > 2 and seq > 16 for batch, seq in shapes.values())
    assert any("all largest (batch=32 seq=256) was not tried" in note for note in notes)


def test_what_a_call_may_lack_is_left_out_in_every_combination() -> None:
    flags = [TensorSpec(f"{name}.present", "bool", ()) for name in ("a", "b")]
    signature = Signature(
        inputs=(TensorSpec("x", "float32", ("n",)), TensorSpec("a", "float32", ("n",)), *flags),
        outputs=(),
        state=(TensorSpec("count", "int64", ()),),
        symbols=(Symbol("n", 1, 4),),
        optional=(Presence("a", "a.present", ("a",)), Presence("b", "b.present", ())),
    )
    example = {
        "x": np.arange(2, dtype=np.float32),
        "a": np.ones(2, np.float32),
        **{spec.name: np.array(True) for spec in flags},
    }
    calls = plan({"forward": signature}, {"forward": example}).calls
    combinations = {
        (bool(call.inputs["a.present"]), bool(call.inputs["b.present"]), call.inputs["x"].size)
        for call in calls
        if call.case.startswith("without")
    }
    assert combinations == {(a, b, n) for a in (True, False) for b in (True, False) for n in (1, 2)} - {
        (True, True, n) for n in (1, 2)
    }
    sequence = [call for call in calls if call.case.startswith("sequence first")]
    assert len({(bool(call.inputs["a.present"]), bool(call.inputs["b.present"])) for call in sequence}) == 3
    # Nothing may read what is not there, so that it is no zero.
    assert all(call.inputs["a"].any() for call in calls)


def _specials(spec: str, example: Array) -> dict[str, Array]:
    """What the input holds beside its usual values, by the case."""
    signature = _signature(spec)
    return {
        call.case.removeprefix("x with "): call.inputs["x"].reshape(-1)[:1]
        for call in special_calls("forward", signature, {"x": example}, 0)
    }


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2", "complex64"])
def test_every_dtype_of_floats_has_special_values(dtype: str) -> None:
    found = _specials(f"x: {dtype}[4]", np.ones(4, numpy_dtype(dtype)))
    assert found.keys() == {"-0", "denormals", "its largest", "infinity", "-infinity", "NaN"}
    assert np.isnan(found["NaN"]).all()
    assert np.isinf(found["infinity"]).all()
    assert found["denormals"] != 0
    assert np.isfinite(found["its largest"]).all()


def test_a_float_without_infinities_is_not_given_one() -> None:
    found = _specials("x: float8_e4m3fn[4]", np.ones(4, numpy_dtype("float8_e4m3fn")))
    assert found.keys() == {"-0", "denormals", "its largest", "NaN"}


def test_integers_stay_within_a_range_with_fractions_at_its_ends() -> None:
    signature = _signature("x: int64[50] in [0.5, 3.5]")
    example = {"x": np.ones(50, np.int64)}
    calls = [
        *plan({"forward": signature}, {"forward": example}).calls,
        *special_calls("forward", signature, example, 0),
        *(call for run in runs_unlike("forward", signature, example, 0) for call in run),
    ]
    values = np.concatenate([call.inputs["x"] for call in calls])
    assert set(values.tolist()) == {1, 2, 3}


def test_unsigned_integers_of_64_bits_are_drawn_to_their_end() -> None:
    drawn = _drawn(f"x: uint64[50] in [0, {2**64 - 1}]", np.ones(50, np.uint64))
    assert drawn.dtype == np.uint64
    assert drawn.max() > 2**63
    assert _drawn("x: uint64[50]", np.array([2**63 + 1, 2**63 + 9], np.uint64), (50,)).min() > 2**63


def test_an_integer_range_may_be_open() -> None:
    drawn = _drawn("x: int32[50] in [0, inf]", np.ones(50, np.int32))
    assert drawn.min() >= 0


def test_all_sizes_are_inside_of_their_ranges_at_once() -> None:
    signature = _signature("x: float32[a, b, c]", symbols=("a=1..40", "b=1..40", "c=1..40"))
    planned = _plan(signature, x=np.ones((1, 40, 1), np.float32))
    shapes = [call.inputs["x"].shape for call in planned.calls if call.case == "all inside"]
    assert len(shapes) == 1
    assert all(2 < size < 39 for size in shapes[0])


def _seeds(elements: int, work: float | None) -> int:
    signature, example = _signature(f"x: float32[{elements}]"), np.ones(elements, np.float32)
    costs = None if work is None else {"forward": lambda _: work}
    planned = plan({"forward": signature}, {"forward": {"x": example}}, work=costs)
    return sum(call.case.startswith("seed ") for call in planned.calls)


def test_there_are_more_seeded_calls_where_they_are_cheap() -> None:
    assert _seeds(4, None) == _seeds(4, 1e9) == _seeds(200_000, 1.0) == 2
    assert _seeds(4, 1e3) == 8
    assert _seeds(4, 4e7) == 4


def test_seeded_integers_but_the_first_hold_both_ends_of_the_example() -> None:
    planned = _plan(_signature("ids: int64[3]", "one: int64[]"), ids=np.array([5, 900, 7]), one=np.array(3))
    by_case = {call.case: call.inputs["ids"] for call in planned.calls}
    assert {5, 900} <= set(by_case["seed 1"].tolist())
    more = plan(
        {"forward": _signature("ids: int64[9]")},
        {"forward": {"ids": np.arange(9) * 100}},
        work={"forward": lambda _: 1.0},
    )
    seeded = [call.inputs["ids"] for call in more.calls if call.case.startswith("seed ")]
    assert all({0, 800} <= set(ids.tolist()) for ids in seeded[1:])
    assert len({ids.argmin() for ids in seeded[1:]}) > 1


@pytest.mark.parametrize(
    ("example", "wanted"),
    [
        (np.linspace(-1, 1, 8), {-1.0, 0.0, 1.0}),
        (np.linspace(0, 1, 8), {0.0, 1.0}),
        (np.zeros(8), {-2.0, -1.0, 0.0, 1.0, 2.0}),
        (np.linspace(-1e4, 1e4, 64), {-1e4, -5e3, 0.0, 5e3, 1e4}),
    ],
)
def test_floats_are_called_on_equal_whole_numbers(example: Array, wanted: set[float]) -> None:
    example = example.astype(np.float32)
    calls = _plan(_signature(f"x: float32[{example.size}]"), x=example).calls
    [call] = [call for call in calls if call.case.startswith("equal values")]
    assert {float(each) for each in call.inputs["x"]} <= wanted
    assert len(np.unique(call.inputs["x"])) < example.size


@pytest.mark.parametrize("example", [np.linspace(0.1, 0.9, 8), np.array([0.0, -np.inf]), np.zeros(0)])
def test_equal_numbers_are_none_that_the_example_rules_out(example: Array) -> None:
    calls = _plan(_signature(f"x: float32[{example.size}]"), x=example.astype(np.float32)).calls
    assert not [call for call in calls if call.case.startswith("equal values")]


def test_a_size_that_only_a_run_finds_is_no_goal() -> None:
    signature = _signature("x: float32[n]", symbols=("n=2..9", "found=0..8"))
    goals = [what for what, _ in inputs.size_goals(signature, {"x": np.zeros(4, np.float32)}, 0)]
    assert goals
    assert not any("found" in what for what in goals)
