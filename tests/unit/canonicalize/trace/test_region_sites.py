"""A region is found again by the calls that lead to it and by how often they did."""

from __future__ import annotations

from aotpipe.canonicalize.trace import region_sites
from aotpipe.canonicalize.values.trace import Trace, started


@region_sites.boundary
def run(site: region_sites.Site, path: int, body: object) -> list[region_sites.Site]:
    found: list[region_sites.Site] = []
    with region_sites.entered(site, path):
        body(found)  # type: ignore[operator]
    return found


def once(found):
    found.append(region_sites.current())


def twice(found):
    for _ in range(2):
        once(found)
    once(found)


def test_every_run_comes_to_the_same_places():
    with started(Trace()):
        outer = region_sites.current()
        first = run(outer, 0, twice)
        assert len(set(first)) == 3
        assert run(outer, 0, twice) == first
        assert set(run(outer, 1, twice)).isdisjoint(first)
        assert run(region_sites.current(), 0, twice)[0] not in first


def test_places_are_of_one_trace():
    def first() -> region_sites.Site:
        with started(Trace()):
            return region_sites.current()

    assert first() is not first()
    assert region_sites.current() is not region_sites.current()
