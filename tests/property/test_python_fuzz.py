"""Random Python functions that branch and loop: rewritten they do the same, in a graph they give the same."""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.rewrite import staging
from aotpipe.errors import AotpipeError
from aotpipe.export import export
from aotpipe.model import spec
from tests.programs import aliasing, branching, holding, nested_names, raising, second_names, sized
from tests.programs.through import forget_traces
from tests.sweep import sweep

IDENTITY_SEEDS = [
    pytest.param(range(first, first + 20), id=f"{first}-{first + 19}") for first in range(0, 400, 20)
]
IDENTITY_SEEDS_SLOW = range(1000, 9000)
GRAPH_SEEDS = range(20)
GRAPH_SEEDS_SLOW = range(2000)
HOLDING_SEEDS_SLOW = range(500)
ALIASING_SEEDS_SLOW = range(1000)
SECOND_NAMES_SEEDS_SLOW = range(1000)
NESTED_NAMES_SEEDS_SLOW = range(500)
RAISING_SEEDS = [range(2), pytest.param(range(100), marks=pytest.mark.slow)]
# These read what is not set.
UNSET_SEEDS = (22, 47, 81, 152)
UNSET_SEEDS_SLOW = range(1000)
SIZED_SEEDS = range(8)
SIZED_SEEDS_SLOW = range(300)


def ran(call: Callable[..., Any], given: tuple[Any, ...]) -> list[Any]:
    """What a call gives and leaves in its inputs, as leaves; or the type of what it raises."""
    given = copy.deepcopy(given)
    try:
        with torch.no_grad():
            result = call(*given)
    except NameError:
        # A variable of an enclosing function that has no value is a NameError, a local one its subclass.
        return [NameError]
    except Exception as error:
        return [type(error)]
    # A model may give what it keeps, and write to it in the next call.
    leaves = pytree.tree_leaves((result, given))
    return [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def same(left: list[Any], right: list[Any], *, exact: bool) -> bool:
    """Whether leaves are equal; inexactly, a number may be a tensor of no dimensions."""
    if len(left) != len(right):
        return False
    for one, other in zip(left, right, strict=True):
        if isinstance(one, type) or isinstance(other, type):
            if one is not other:
                return False
            continue
        if exact and type(one) is not type(other):
            return False
        if isinstance(one, torch.Tensor) and (
            not isinstance(other, torch.Tensor) or one.dtype != other.dtype or one.shape != other.shape
        ):
            return False
        if not torch.allclose(
            torch.as_tensor(one).double(),
            torch.as_tensor(other).double(),
            rtol=0 if exact else 1e-5,
            atol=0 if exact else 1e-5,
            equal_nan=True,
        ):
            return False
    return True


def differs(seed: int, folder: Path) -> str | None:
    """How a rewritten program differs from the original, on any of the inputs."""
    module = branching.load(branching.source(seed, anything=True), folder / f"program_{seed}.py")
    methods = [module.Model.forward, module.Model._twice]
    codes = {method: staging.rewritten(method) for method in methods}
    if any(code is None for code in codes.values()):
        return "not rewritten"
    for given in branching.inputs():
        expected = ran(module.Model(), given)
        with staging.swapped({method: code for method, code in codes.items() if code}):
            got = ran(module.Model(), given)
        if not same(expected, got, exact=True):
            return f"{expected} became {got}"
    return None


def assert_identical(seeds: Iterable[int], folder: Path) -> None:
    wrong = {seed: found for seed in seeds if (found := differs(seed, folder))}
    assert not wrong, wrong


@pytest.mark.parametrize(
    "seeds",
    sweep(IDENTITY_SEEDS, quick=3, always=["160-179"]),
    ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}",
)
def test_rewritten_programs_do_the_same(seeds: range, tmp_path: Path) -> None:
    assert_identical(seeds, tmp_path)


@pytest.mark.slow
def test_many_rewritten_programs_do_the_same(tmp_path: Path) -> None:
    assert_identical(IDENTITY_SEEDS_SLOW, tmp_path)


def outcome(seed: int, folder: Path, source: Callable[[int], str] = branching.source) -> str:
    """What becomes of a program: `same`, `raises` (the example does), `refused: WHY` or `wrong: WHY`."""
    path = folder / f"program_{seed}.py"
    module = branching.load(source(seed), path)
    calls = branching.inputs()
    model = module.Model().eval()
    expected = [ran(model, given) for given in calls]
    if any(isinstance(leaf, type) for leaf in expected[0]):
        return "raises"
    forget_traces()
    try:
        made = export(canonicalize(spec.as_spec(module.Model().eval(), args=calls[0])))
    except AotpipeError as error:
        if error.where is None or error.where.path != str(path):
            return f"wrong: a refusal without a line: {error}"
        return f"refused: {error.message}: {error.reason}"
    except Exception as error:
        return f"wrong: {type(error).__name__}: {error}"
    program = made.entries[0].program.module()
    for given, wanted in zip(calls, expected, strict=True):
        got = ran(program, given)
        if any(isinstance(leaf, FakeTensor) for leaf in got):
            return "wrong: a tensor of the trace is left in the program"
        if any(isinstance(leaf, type) for leaf in wanted):
            # An assert of an exported program raises a RuntimeError.
            wanted = [RuntimeError]
        if not same(wanted, got, exact=False):
            return f"wrong: for {given} it gives {got}, not {wanted}"
    return "same"


def assert_none_wrong(
    seeds: Iterable[int], folder: Path, source: Callable[[int], str] = branching.source
) -> collections.Counter[str]:
    found = {seed: outcome(seed, folder, source) for seed in seeds}
    wrong = {seed: each for seed, each in found.items() if each.startswith("wrong")}
    assert not wrong, wrong
    return collections.Counter(each.partition(":")[0] for each in found.values())


@pytest.mark.parametrize("seed", sweep(GRAPH_SEEDS, quick=0, always=[3, 6, 10, 13]))
def test_a_program_in_a_graph_gives_the_same(seed: int, tmp_path: Path) -> None:
    assert outcome(seed, tmp_path) == "same"


@pytest.mark.slow
@pytest.mark.timeout(10800)
def test_many_programs_in_a_graph_give_the_same(tmp_path: Path) -> None:
    counts = assert_none_wrong(GRAPH_SEEDS_SLOW, tmp_path)
    assert counts["refused"] < 0.03 * counts.total(), counts


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_programs_that_keep_things_give_the_same(tmp_path: Path) -> None:
    counts = assert_none_wrong(HOLDING_SEEDS_SLOW, tmp_path, holding.source)
    # Lists that grow in loops without a bound, and writes to what may be a part of another tensor.
    assert counts["refused"] < 0.05 * counts.total(), counts


@pytest.mark.parametrize("seed", sweep(SIZED_SEEDS, quick=0, always=[4]))
def test_a_program_of_sizes_that_depend_on_data_gives_the_same(seed: int, tmp_path: Path) -> None:
    assert outcome(seed, tmp_path, sized.source) == "same"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_programs_of_sizes_that_depend_on_data_give_the_same(tmp_path: Path) -> None:
    counts = assert_none_wrong(SIZED_SEEDS_SLOW, tmp_path, sized.source)
    # Elements that bounds say there are none of, on a path that is never taken.
    assert counts["refused"] < 0.1 * counts.total(), counts


@pytest.mark.parametrize("seeds", [range(3), pytest.param(ALIASING_SEEDS_SLOW, marks=pytest.mark.slow)])
@pytest.mark.timeout(3600)
def test_a_write_through_a_view_is_seen_under_every_name(seeds: range, tmp_path: Path) -> None:
    counts = assert_none_wrong(seeds, tmp_path, aliasing.source)
    assert counts["refused"] <= 1 + 0.1 * counts.total(), counts


@pytest.mark.parametrize(
    "seeds", [range(18, 24), pytest.param(SECOND_NAMES_SEEDS_SLOW, marks=pytest.mark.slow)]
)
@pytest.mark.timeout(3600)
def test_names_of_what_a_model_keeps_see_each_others_changes(seeds: range, tmp_path: Path) -> None:
    # Names that part or meet, of what is changed in place, have no program.
    assert_none_wrong(seeds, tmp_path, second_names.source)


@pytest.mark.parametrize("seeds", [range(3), pytest.param(NESTED_NAMES_SEEDS_SLOW, marks=pytest.mark.slow)])
@pytest.mark.timeout(7200)
def test_lists_in_lists_see_the_changes_under_each_of_their_names(seeds: range, tmp_path: Path) -> None:
    counts = assert_none_wrong(seeds, tmp_path, nested_names.source)
    # Changes of what may be one of several lists, where too many tests decide which.
    assert counts["refused"] <= 1 + 0.2 * counts.total(), counts


@pytest.mark.parametrize("seeds", RAISING_SEEDS)
@pytest.mark.timeout(3600)
def test_what_a_program_raises_and_catches_gives_the_same(seeds: range, tmp_path: Path) -> None:
    counts = assert_none_wrong(seeds, tmp_path, raising.source)
    # Bodies of `try` in which tensors decide at many places.
    assert counts["refused"] < 0.08 * counts.total(), counts


def unset(seed: int) -> str:
    return branching.source(seed, unset=0.5)


@pytest.mark.parametrize("seed", sweep(UNSET_SEEDS, quick=0, always=[22]))
def test_a_variable_that_is_not_set_raises(seed: int, tmp_path: Path) -> None:
    assert outcome(seed, tmp_path, unset) == "same"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_variables_that_are_not_set_raise(tmp_path: Path) -> None:
    counts = assert_none_wrong(UNSET_SEEDS_SLOW, tmp_path, unset)
    assert counts["refused"] < 0.03 * counts.total(), counts
