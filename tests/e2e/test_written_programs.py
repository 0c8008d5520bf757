"""Short programs as people write them are one program with eager's results, state and exceptions.

`python -m tests.e2e.test_written_programs [NAME ...]` prints what becomes of each, and how many are right.
"""

from __future__ import annotations

import copy
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.example_call import uncompiled
from aotpipe.core.signature import TensorSpec
from aotpipe.errors import AotpipeError
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.programs.written import (
    PROGRAMS,
    algorithms,
    decoding,
    engines,
    forms,
    idioms,
    inference,
    keeping,
    machines,
    pipelines,
    places,
    practice,
    routines,
    searches,
    selecting,
    services,
    solvers,
    structures,
    workloads,
)
from tests.unit.passes.legal import Runner, legal

QUICK = frozenset(
    "ctc_collapse viterbi balanced_brackets guarded_logarithm Counting Rejecting cycle_length "
    "early_stopping longest_increasing_run greatest_common_divisor lu_with_pivot PID Budget "
    "scheduled key_that_may_be_none changed_and_made_anew Alternating "
    "changed_inside_of_a_comprehension changed_by_what_is_added RulesKept asks_whether_it_is_the_list "
    "nonlocal_counters stats_by_name config_by_replace follow_pointers dispatch_by_type "
    "retry_generator page_table linked_list_order".split()
)
# Refused, with what is said.
REFUSED: dict[str, str] = {
    "TwoNames": "`h` shares memory with `view`, and a call writes to one of them in place",
    "dataclass_reduce": "`an element` is changed in place, and a branch or a loop on a tensor decides",
    "bits_to_int": "needs a tensor's value as a number of Python's",
    "asks_whether_it_is_the_list": "whether two names have one object is asked",
    "TopKRouter": "a text is made of a value",
    "ctc_prefix_beam": "holds elements of different structures",
    "RepetitionGuard": "the order of a set is asked for",
    "greedy_longest_match": "has keys that a tensor decides, and holds elements of different structures",
    "Tokenizer": "code that cannot be rewritten gets what may be None",
    "Annealer": "what forward returns is None on one path",
    "newton_or_bisect": "tensors decide at too many places",
    "SortTracker": "`self.slots` is None on one path and a Trk on another",
    "ctc_prefix_dict": "holds elements of different structures",
    "Client": "what forward returns is None on one path",
    "lexicographic_pareto": "the order of a set is asked for",
    "OnlineClusters": "a range whose length is known to a run of the graph only",
    "CentroidTracker": "`an element` is changed in place",
    "BudgetedExits": "`best` is None on one path and a ExitDecision on another",
    "nms_by_label": "a comprehension goes through a list whose length a tensor decides",
    "CRFDecoder": "`beams` is a list of 3 on one path and a list of 3 on another",
    "DictTracker": "`an element` is changed in place",
    "pack_requests": "`batches` holds an element that is one Batch on one path and another one on another",
    "bpe_encode": "`pieces` is made of its own parts in each iteration",
    "PagedCache": "torch.export refused forward: AttributeError",
    "GatedKalman": "`self.track` is None on one path and a Kalman on another",
    "best_fit_decreasing": "`min` or `max` of a list whose length a tensor decides, of more than numbers",
    "BucketBatcher": "a list is indexed by what a tensor decides, and its elements are no tensors",
    "strong_components": "calls itself without end",
    "weighted_boxes_fusion": "`fused` holds an element that is one Fused on one path and another",
    "RetriedQuery": "`last` is a ValueError on one path and a ZeroDivisionError on another",
}
# A call that raises leaves writes in the state, which torch, as it runs an exported program, does not keep.
KEPT_ON_RAISE = frozenset(
    "OutlierGate PrefixCache ParticleFilter MedianLimiter ConfidentExit UndoBuffer RetriedQuery "
    "PreconditionedCG ByteTokenizer FairScheduler".split()
)
# They fill the table.
__all__ = [
    "algorithms",
    "decoding",
    "engines",
    "forms",
    "idioms",
    "inference",
    "keeping",
    "machines",
    "pipelines",
    "places",
    "practice",
    "routines",
    "searches",
    "selecting",
    "services",
    "solvers",
    "structures",
    "workloads",
]


def outcome(model: Any, call: Any) -> list[Any]:
    """The leaves of what a call gives, or the name of what it raises."""
    try:
        with torch.no_grad(), uncompiled():
            return pytree.tree_leaves(model(*copy.deepcopy(call)))
    except Exception as error:  # what is compared
        said = str(error).partition(":")[0] if type(error) is RuntimeError else ""
        return ["raises", said if said.isidentifier() else type(error).__name__]


def legalized(model: Any, example: Any) -> Callable[..., Any]:
    """Calls the legal program of a model, which raises what the first assert says that fails."""
    run = Runner(legal(model, example))

    def call(*inputs: Any) -> list[Any]:
        found = run(inputs)
        if said := next((said for said, holds in run.asserts.items() if not holds), None):
            raise RuntimeError(said)
        outputs = run.entry(None).signature.outputs
        return [found[each.name] if isinstance(each, TensorSpec) else each.value for each in outputs]

    return call


def compare(name: str) -> None:
    """Make all calls of a program and of its model twice, in turn: what they keep is kept in both."""
    make, calls = PROGRAMS[name]
    model, example = make(), copy.deepcopy(calls[0])
    if name in KEPT_ON_RAISE:
        program = legalized(make(), example)
    else:
        program = export(canonicalize(as_spec(make(), args=example))).entries[0].program.module()
    for number, call in enumerate([*calls, *calls]):
        wanted, got = outcome(model, call), outcome(program, call)
        assert len(wanted) == len(got), (number, wanted, got)
        for mine, other in zip(wanted, got, strict=True):
            if isinstance(mine, str) or isinstance(other, str):
                assert mine == other, (number, wanted, got)
                continue
            if isinstance(mine, torch.Tensor):
                assert (mine.dtype, mine.shape) == (other.dtype, other.shape), (number, mine, other)
            pair = (torch.as_tensor(each, dtype=torch.float64) for each in (mine, other))
            torch.testing.assert_close(*pair, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PROGRAMS]
)
def test_a_program_as_people_write_it_is_eagers(name: str):
    if name in REFUSED:
        with pytest.raises(AotpipeError, match=REFUSED[name]):
            compare(name)
    else:
        compare(name)


def main(names: list[str]) -> None:
    """Print what becomes of each program."""
    found: Counter[str] = Counter()
    for name in names or PROGRAMS:
        begun = time.perf_counter()
        said = ""
        try:
            compare(name)
            result = "right"
        except AotpipeError as error:
            result, said = "refused", str(error)
        except Exception as error:  # counted
            result, said = "wrong", f"{type(error).__name__}: {error}"
        found[result] += 1
        print(f"{name:36}{result:9}{time.perf_counter() - begun:6.1f} s  {said}", flush=True)
    print({result: f"{n} of {found.total()}" for result, n in found.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
