"""The order in which a kernel computes what a trip's steps say."""

from __future__ import annotations

from aotpipe.backends.iree.kernels import recurrence
from aotpipe.backends.iree.kernels.recurrence import Part, Products, Recurrence, Stage, Step


def _of(*steps: Step, following: str, outputs: tuple[str, ...] = (), matrices: int = 2) -> Recurrence:
    return Recurrence((8,), (8,), (), ((8, 8),) * matrices, steps, (following,), outputs)


def test_elementwise_steps_on_a_product_are_one_stage() -> None:
    found = _of(
        Step("matmul", ("h0", "m0"), 8),
        Step("add", ("v0", "x0"), 8),
        Step("tanh", ("v1",), 8),
        following="v2",
        outputs=("v2",),
    )
    [stage] = recurrence.stages(found)
    assert stage == Stage(8, (Part("v2", "h0"), Part("v2", "y0")))
    assert recurrence.products(found, stage, recurrence.kept_values(found)) == [Products("v0", 0)]


def test_what_a_product_multiplies_is_a_stage_before() -> None:
    found = _of(
        Step("matmul", ("h0", "m0"), 8),
        Step("tanh", ("v0",), 8),
        Step("matmul", ("v1", "m1"), 8),
        following="v2",
    )
    assert recurrence.kept_values(found) == {"v1"}
    assert recurrence.stages(found) == [Stage(8, (Part("v1", "v1"),)), Stage(8, (Part("v2", "h0"),))]


def test_a_product_that_two_stages_read_is_summed_once() -> None:
    found = _of(
        Step("matmul", ("h0", "m0"), 8),
        Step("tanh", ("v0",), 8),
        Step("matmul", ("v1", "m1"), 8),
        Step("add", ("v0", "v2"), 8),
        following="v3",
    )
    kept = recurrence.kept_values(found)
    assert kept == {"v0", "v1"}
    summed = [each for stage in recurrence.stages(found) for each in recurrence.products(found, stage, kept)]
    assert sorted(summed) == [Products("v0", 0), Products("v2", 0)]


def test_parts_of_a_value_are_written_where_they_belong() -> None:
    found = Recurrence(
        (4, 8),
        (4,),
        (),
        ((8, 4),),
        (Step("concat", ("h0", "x0"), 8), Step("matmul", ("v0", "m0"), 4)),
        ("v1", "v0"),
        (),
    )
    assert recurrence.stages(found) == [
        Stage(4, (Part("h0", "v0", 0), Part("x0", "v0", 4))),
        Stage(4, (Part("v1", "h0"),)),
        Stage(8, (Part("v0", "h1"),)),
    ]


def test_a_slice_is_of_its_source() -> None:
    found = _of(Step("slice", ("x0", 2), 6), Step("slice", ("v0", 3), 2), following="h0")
    assert recurrence.source(found, "v1") == ("x0", 5)
    assert recurrence.source(found, 0.5) == (0.5, 0)


def test_a_value_that_many_steps_read_is_looked_at_once() -> None:
    """Each step reads the one before twice: there are 2 to the 60th ways to the first."""
    steps = [Step("matmul", ("h0", "m0"), 8), *(Step("mul", (f"v{at}", f"v{at}"), 8) for at in range(60))]
    found = _of(*steps, following="v60")
    [stage] = recurrence.stages(found)
    assert recurrence.products(found, stage, frozenset()) == [Products("v0", 0)]
