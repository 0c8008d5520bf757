"""The simulated server against closed forms of queueing theory, and against the rules of batching."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.runtime.serve.capacity.simulation import Costs, Host, Idle, poisson, simulate
from aotpipe.runtime.serve.scheduler import Limits
from tests.sweep import examples

# A worker gets one run at a time where they take a millisecond or more: that is the queue of the theory.
SECONDS = st.floats(0.02, 0.5)
LOADS = st.floats(0.05, 0.85)
ENDLESS = Limits(max_queue_size=10**9)


@given(SECONDS, LOADS)
@examples(quick=3, nightly=60)
def test_waits_are_those_of_m_d_1(run_s: float, load: float) -> None:
    """Pollaczek and Khinchine: W = ρS / 2(1 - ρ)."""
    costs = Costs(runs={1: np.array([run_s])})
    found = simulate(costs, ENDLESS, workers=1, arrivals=poisson(load / run_s, 40_000))
    assert found.mean_s - run_s == pytest.approx(load * run_s / (2 * (1 - load)), rel=0.15, abs=0.01 * run_s)
    assert found.workers_busy == pytest.approx(load, rel=0.05)
    assert found.refused == 0


@given(SECONDS, LOADS, st.integers(1, 6))
@examples(quick=3, nightly=60)
def test_waits_are_those_of_m_m_c(run_s: float, load: float, workers: int) -> None:
    """Erlang's C: W = C(c, a)S / c(1 - ρ), where a = cρ."""
    levels = (np.arange(4096) + 0.5) / 4096
    costs = Costs(runs={1: -run_s * np.log1p(-levels)})
    offered = workers * load
    found = simulate(costs, ENDLESS, workers=workers, arrivals=poisson(offered / run_s, 40_000))
    tail = offered**workers / math.factorial(workers) / (1 - load)
    waits = tail / (sum(offered**k / math.factorial(k) for k in range(workers)) + tail)
    want = waits * run_s / (workers * (1 - load))
    assert found.mean_s - run_s == pytest.approx(want, rel=0.25, abs=0.03 * run_s)


@pytest.mark.parametrize("rows", [1, 2])
def test_a_full_server_answers_whole_batches_and_refuses_the_rest(rows: int) -> None:
    costs = Costs(runs={1: np.array([0.004]), 8: np.array([0.008])})
    limits = Limits(max_batch_size=8, max_queue_size=64)
    found = simulate(costs, limits, workers=2, arrivals=poisson(10_000 / rows, 8000), rows=rows)
    assert found.rps == pytest.approx(2 * 8 / 0.008 / rows, rel=0.1)
    assert found.batch_rows == pytest.approx(8, rel=0.02)
    assert found.refused == pytest.approx(1 - 2000 / 10_000, rel=0.1)


def test_a_lone_call_waits_for_others_as_long_as_it_may() -> None:
    alone = Idle(idle_s=0.001, request_s=0.0004, latencies_s=np.array([0.0035]))
    costs = Costs(runs={1: np.array([0.002])}, batch_s=0.001, request_s=0.0004, idle=(alone,))
    limits = Limits(max_batch_size=4, max_queue_delay_s=0.05)
    found = simulate(costs, limits, workers=1, arrivals=poisson(0.01, 200))
    assert found.p50_s == pytest.approx(0.05 + 0.002 + 0.001 + 0.0004 + 0.0001)
    assert found.batch_rows == pytest.approx(1)
    preferred = Limits(max_batch_size=4, preferred_batch_size=(1,), max_queue_delay_s=0.05)
    assert simulate(costs, preferred, workers=1, arrivals=poisson(0.01, 200)).p50_s == pytest.approx(0.0035)


def test_the_event_loop_bounds_what_a_server_answers() -> None:
    costs = Costs(runs={1: np.array([10e-6])}, request_s=100e-6)
    found = simulate(costs, Limits(), workers=4, arrivals=poisson(50_000, 20_000))
    # Answers wait behind the requests that are read, so that fewer than 10,000 are answered while they come.
    assert found.loop_busy == pytest.approx(1, abs=0.02)
    assert found.rps <= 10_100


def test_equal_seeds_give_equal_results() -> None:
    costs = Costs(runs={1: np.array([0.001, 0.002]), 4: np.array([0.003, 0.005])}, request_s=0.0001)
    limits = Limits(max_batch_size=4, max_queue_delay_s=0.001)
    arrivals = poisson(900, 3000)
    runs = [simulate(costs, limits, workers=2, arrivals=arrivals, seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_a_request_to_an_idle_server_takes_what_was_measured_there() -> None:
    runs = np.array([0.001, 0.002])
    idle = (
        Idle(idle_s=0.001, request_s=0.0006, latencies_s=runs + 0.001),
        Idle(idle_s=0.1, request_s=0.0010, latencies_s=runs + 0.003),
    )
    costs = Costs(runs={1: runs}, request_s=0.0002, idle=idle)
    found = simulate(costs, Limits(), workers=1, arrivals=np.arange(1000) * 10.0)
    assert found.mean_s == pytest.approx(0.0045, rel=0.02)
    # Half way between the two times that were measured, of which a request takes one itself.
    between = simulate(costs, Limits(), workers=1, arrivals=np.arange(1000) * 0.0535)
    assert between.mean_s == pytest.approx(0.0035, rel=0.04)
    # A busy event loop takes less for a request: 4,500 in a second, where an idle one could answer 1,000.
    busy = simulate(costs, Limits(), workers=8, arrivals=poisson(4500, 20_000))
    assert (busy.rps, busy.refused) == (pytest.approx(4500, rel=0.03), 0)


def test_a_client_and_a_server_share_a_host() -> None:
    costs = Costs(runs={1: np.array([0.002])}, request_s=0.001)
    arrivals = np.arange(400) * 0.05
    apart = simulate(costs, Limits(), workers=1, arrivals=arrivals)
    assert apart.p50_s == pytest.approx(0.003)
    shared = simulate(costs, Limits(), workers=1, arrivals=arrivals, host=Host(cores=1, client_s=0.004))
    assert shared.p50_s == pytest.approx(0.007)
    two = simulate(costs, Limits(), workers=1, arrivals=arrivals, host=Host(cores=2, client_s=0.004))
    assert two.p50_s == pytest.approx(0.005)
