"""The goldens: float64's answers, what is left out, what is unsure, and what was found."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from aotpipe.backends import legalization
from aotpipe.canonicalize import canonicalize
from aotpipe.errors import NotRepeatable
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from aotpipe.passes import legalize
from aotpipe.runtime.goldens import Golden
from aotpipe.validate import reference as validate_reference
from aotpipe.validate.inputs import Call
from aotpipe.validate.reference import Reference, reference


def _reference(
    model: torch.nn.Module, *args: torch.Tensor, covers: bool = False, **options: Any
) -> Reference:
    canonical = canonicalize(as_spec(model.eval(), args=args, name="model", **options))
    exported = export(canonical)
    return reference(canonical, legalize(exported, legalization()), exported=exported if covers else None)


def _module(function: Callable[..., Any]) -> torch.nn.Module:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return function(x)

    return Model()


def _messages(found: Reference) -> str:
    return "\n".join(finding.message for finding in found.findings)


def test_the_answer_is_float64s_and_the_tolerance_covers_eager() -> None:
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    found = _reference(_module(lambda x: torch.softmax(x @ weight, -1)), torch.randn(4, 64))
    for golden in found.goldens:
        x = torch.from_numpy(golden.inputs["x"])
        exact = torch.softmax(x.double() @ weight.double(), -1).numpy()
        assert np.array_equal(golden.outputs["output"], exact.astype(np.float32))
        atol, rtol = golden.allowed["output"]
        eager = torch.softmax(x @ weight, -1).numpy()
        assert (np.abs(eager - exact) * 4 < atol + rtol * np.abs(exact)).all()
        assert 0 < golden.eager_error["output"] < 1e-5
        assert atol < 1e-4
    assert found.findings == ()


def test_a_model_that_draws_is_refused() -> None:
    with pytest.raises(NotRepeatable, match=r"`random\.random\(\)` draws"):
        _reference(_module(lambda x: x * random.random()), torch.randn(4))


def test_float64_is_asked_for_what_it_can_be_afforded_for(monkeypatch) -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    model = _module(lambda x: torch.softmax(x @ weight, -1))
    every = _reference(model, x)
    monkeypatch.setattr(validate_reference, "_WIDE_WORK", 1.0)
    first = _reference(model, x)
    assert "float64 is asked for 1 of 11 calls" in _messages(first)
    assert [golden.case for golden in first.goldens] == [golden.case for golden in every.goldens]
    assert np.array_equal(first.goldens[0].outputs["output"], every.goldens[0].outputs["output"])
    given = torch.from_numpy(first.goldens[1].inputs["x"])
    assert np.array_equal(first.goldens[1].outputs["output"], torch.softmax(given @ weight, -1).numpy())
    for one, other in zip(first.goldens, every.goldens, strict=True):
        atol, rtol = one.allowed["output"]
        assert 0 < atol + rtol < 4 * sum(other.allowed["output"])
        error = np.abs(one.outputs["output"] - other.outputs["output"])
        assert (error <= atol + rtol * np.abs(other.outputs["output"])).all()


def test_float64_is_asked_for_whole_sequences_of_a_state(monkeypatch) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += x
            return self.seen.softmax(0)

    monkeypatch.setattr(validate_reference, "_WIDE_WORK", 1.0)
    found = _reference(Counting(), torch.randn(4))
    assert "float64 is asked for 1 of" in _messages(found)
    assert all(golden.allowed["output"][0] > 0 for golden in found.goldens)


def test_a_large_model_is_widened_as_it_is_used_unless_it_compares_dtypes(monkeypatch) -> None:
    monkeypatch.setattr(validate_reference, "_LARGE_BYTES", 8)
    x = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    for model in (torch.nn.Linear(8, 8), torch.nn.LSTM(8, 8)):
        frugal = _reference(model, x)
        assert frugal.findings == ()
        monkeypatch.setattr(validate_reference, "_LARGE_BYTES", 2**27)
        held = _reference(model, x)
        monkeypatch.setattr(validate_reference, "_LARGE_BYTES", 8)
        for one, other in zip(frugal.goldens, held.goldens, strict=True):
            assert all(np.array_equal(one.outputs[name], other.outputs[name]) for name in one.outputs)


def test_a_model_that_takes_one_dtype_only_has_a_float64_reference() -> None:
    weight = torch.randn(16, 16, generator=torch.Generator().manual_seed(0)).to(torch.complex64)

    def product(x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.complex64:
            raise TypeError("complex64 is wanted")
        return x @ weight

    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(1)).to(torch.complex64)
    found = _reference(_module(product), x)
    assert "no float64 reference" not in _messages(found)
    assert all(golden.eager_error["output"] > 0 for golden in found.goldens if golden.inputs["x"].any())


def test_a_near_tie_is_unsure_and_the_rest_is_not() -> None:
    def best(x: torch.Tensor) -> torch.Tensor:
        return (x * 3.3).argmax(-1)

    x = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
    x[3, :2] = torch.tensor([9.0, 9.0 + 1e-6]) + 0.1
    (example, *_) = _reference(_module(best), x).goldens
    assert np.flatnonzero(example.unsure["output"]).tolist() == [3]


def test_every_near_tie_of_many_integers_is_unsure() -> None:
    """Of 512 elements next to a tie, four noises missed about 32."""

    def pixels(x: torch.Tensor) -> torch.Tensor:
        return (x * 255.0).to(torch.uint8)

    whole = torch.arange(1.0, 201.0).repeat(3)[:512]
    (example, *_) = _reference(_module(pixels), torch.nextafter(whole / 255.0, torch.tensor(0.0))).goldens
    assert example.unsure["output"].sum() > 500


@pytest.mark.parametrize(
    "function",
    [lambda x: x.sort()[1], lambda x: x.kthvalue(7)[1], lambda x: x.median(0)[1], lambda x: x.mode()[1]],
)
def test_which_of_equal_integers_is_taken_is_unsure(function: Callable[..., Any]) -> None:
    # That there are floats beside them must not matter.
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    model = _module(lambda x: (function(x), (x.to(torch.float32) @ weight).sin()))
    found = _reference(model, torch.arange(64) % 4)
    assert all(golden.unsure["output.0"].any() for golden in found.goldens)


def test_an_order_of_equal_floats_that_is_stable_is_compared() -> None:
    found = _reference(_module(lambda x: x.argsort(stable=True)), torch.linspace(-1, 1, 8))
    equal = [each for each in found.goldens if each.case.startswith("equal values")]
    assert equal
    assert not any(golden.unsure["output"].any() for golden in equal if golden.unsure)


def test_numbers_and_constants_of_the_result_are_told_apart() -> None:
    found = _reference(_module(lambda x: {"n": x.shape[0] * 2, "y": x + 1, "none": None}), torch.ones(3))
    assert all(set(golden.outputs) <= {"n", "y"} for golden in found.goldens)
    assert all("y" in golden.outputs for golden in found.goldens)


def test_a_mutated_input_is_part_of_the_answer() -> None:
    def shift(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    golden = _reference(_module(shift), torch.zeros(2)).goldens[0]
    assert golden.inputs["x"].tolist() == [0, 0]
    assert golden.outputs["mutated.x"].tolist() == [1, 1]


def test_a_float64_model_is_measured_by_noise() -> None:
    found = _reference(_module(lambda x: torch.softmax(x, -1)), torch.randn(4, 9, dtype=torch.float64))
    atol, rtol = found.goldens[0].allowed["output"]
    assert 0 < atol < 1e-12
    assert 0 < rtol < 1e-12


def test_a_low_precision_model_is_judged_by_its_own_error() -> None:
    model = torch.nn.Linear(64, 8).to(torch.bfloat16)
    golden = _reference(model, torch.randn(4, 64).to(torch.bfloat16)).goldens[0]
    (name,) = golden.outputs
    assert golden.outputs[name].dtype.name == "bfloat16"
    assert 1e-3 < golden.eager_error[name] < 0.1
    assert golden.allowed[name][0] < 0.5


def test_luck_of_eager_in_one_number_is_not_asked_of_a_program() -> None:
    """A sum that cancels, in other orders than eager's, which is off by next to nothing for some weights."""

    class Dot(torch.nn.Module):
        def __init__(self, weight: torch.Tensor) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.weight * x).sum()

    for seed in range(12):
        weight = torch.randn(12, generator=torch.Generator().manual_seed(seed))
        weight[-1] = 1e-3 - weight[:-1].sum()
        for golden in _reference(Dot(weight), torch.ones(1)).goldens:
            atol, rtol = golden.allowed["output"]
            want = float(golden.outputs["output"])
            terms = weight.numpy() * golden.inputs["x"]
            for order in (terms, terms[::-1], terms[np.argsort(np.abs(terms))]):
                mine = float(np.add.accumulate(order)[-1])
                assert abs(mine - want) <= 0.5 * (atol + rtol * abs(want)), seed


def test_an_ill_conditioned_output_is_reported() -> None:
    found = _reference(_module(lambda x: (x + 1e6) - 1e6), torch.randn(100))
    assert "ill-conditioned" in _messages(found)


def test_what_follows_a_refused_call_of_a_sequence_is_left_out() -> None:
    class Limited(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_compiling() and self.count.item() >= 2:
                raise RuntimeError("full")
            self.count += 1
            return x + self.count

    found = _reference(Limited(), torch.zeros(2))
    assert "eager raises RuntimeError: full" in _messages(found)
    sequence = [golden for golden in found.goldens if golden.case.startswith("sequence first")]
    assert [golden.reset for golden in sequence] == [True, False]
    _assert_state_is_kept(sequence)


def _assert_state_is_kept(sequence: list[Golden]) -> None:
    steps = [golden.outputs["output"] - golden.inputs["x"] for golden in sequence]
    assert [step.tolist() for step in steps] == [[1, 1], [2, 2]]


class Counts(torch.nn.Module):
    """Counts calls, and those that raise."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.errors = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if x.sum() > 1000:
            self.errors += 1
            raise ValueError("large")
        return x + self.calls * 100 + self.errors


def test_a_call_that_raises_is_followed_by_one_that_shows_what_it_left() -> None:
    goldens = _reference(Counts(), torch.ones(2), covers=True).goldens
    [number] = [number for number, golden in enumerate(goldens) if golden.raises]
    refused, after = goldens[number], goldens[number + 1]
    assert (refused.raises, refused.outputs, refused.reset) == ("ValueError: large", {}, True)
    assert (after.case, after.reset) == (f"{refused.case.partition('/')[0]}/after it raised", False)
    assert after.outputs["output"].tolist() == [202.0, 202.0]


def test_nothing_follows_where_the_user_knows_that_a_write_is_taken_back() -> None:
    class Divides(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                factor = 2 if x.max() > 3 else 1
                self.last += 1
                if x.sum() > 1000:
                    raise ValueError("large")
            finally:
                self.last = factor
            return x + self.last

    found = _reference(Divides(), torch.ones(2), covers=True)
    assert any(golden.raises for golden in found.goldens)
    assert not any("after it raised" in golden.case for golden in found.goldens)


def test_what_eager_raises_on_a_planned_call_is_raised_by_a_program() -> None:
    weight = torch.arange(8.0)
    found = _reference(_module(lambda x: weight[x]), torch.tensor([1, 2]), value_ranges={"x": (-20, 20)})
    raising = [golden for golden in found.goldens if golden.raises]
    assert {golden.case for golden in raising} >= {"lowest values", "highest values"}
    assert all(golden.raises.startswith("IndexError") for golden in raising)
    assert "highest values: eager raises IndexError" in _messages(found)


def test_a_record_is_asked_under_noise_after_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run in which one integer flips, every call is asked again: it depends on the state."""
    asked: list[list[str]] = []
    ask = validate_reference._ask_noisy

    def noted(eager: Any, records: Any) -> None:
        asked.append([record.call.case for record in records])
        ask(eager, records)

    class Ties(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total += 1
            # It flips in the second call of a run alone.
            return (x * 0.1 * 10 + (self.total != 2) * 0.25 >= 0.3).sum()

    monkeypatch.setattr(validate_reference, "_ask_noisy", noted)
    model = Ties().eval()
    canonical = canonicalize(as_spec(model, args=(torch.full((9,), 0.3),), name="ties"))
    inputs = {"x": np.full(9, 0.3, np.float32)}
    calls = [
        Call(entry_point="forward", case=f"run/{number}", reset=number == 0, inputs=inputs)
        for number in range(3)
    ]
    found = reference(canonical, legalize(export(canonical), legalization()), calls=calls)
    assert [len(golden.unsure) for golden in found.goldens] == [0, 1, 0]
    assert all(cases == ["run/0", "run/1", "run/2"] for cases in asked)
    assert len(asked) > validate_reference._NOISES


def test_a_number_of_python_is_compared_in_the_dtype_of_its_output() -> None:
    """On the other path it is a tensor of floats, and a program has one dtype for both."""

    class Loss(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Any]:
            loss = 0
            if x.sum() > 0:
                loss = x.abs().sum()
            return x * 2, loss

    found = _reference(Loss(), torch.ones(3), value_ranges={"x": (-2, 2)})
    losses = [golden.outputs["output.1"] for golden in found.goldens]
    assert {loss.dtype.name for loss in losses} == {"float32"}
    assert 0 in losses
    assert len({float(loss) for loss in losses}) > 1


def test_a_number_that_the_dtype_of_its_output_does_not_hold_stays_what_it_is() -> None:
    class Large(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            count = 2**24 + 1
            if x.sum() > 0:
                count = x.abs().sum()
            return count

    found = _reference(Large(), torch.ones(3), value_ranges={"x": (-2, 2)})
    assert "int64" in {golden.outputs["output"].dtype.name for golden in found.goldens}


def test_a_number_beside_a_tensor_fills_one() -> None:
    """As the warning `number-became-tensor` says; of sizes that vary it stays a number."""

    class Either(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x * 2 if x.sum() > 0 else 3

    found = _reference(Either(), torch.ones(3), value_ranges={"x": (-2, 2)})
    answers = [golden.outputs["output"] for golden in found.goldens]
    assert {answer.shape for answer in answers} == {(3,)}
    assert any(answer.tolist() == [3.0] * 3 for answer in answers)
