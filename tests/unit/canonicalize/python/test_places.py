"""A region is found again by the calls that lead to it and by how often they did."""

from __future__ import annotations

from aotpipe.canonicalize.python import places


@places.border
def run(place: places.Place, path: int, body: object) -> list[places.Place]:
    found: list[places.Place] = []
    with places.inside(place, path):
        body(found)  # type: ignore[operator]
    return found


def once(found):
    found.append(places.here())


def twice(found):
    for _ in range(2):
        once(found)
    once(found)


def test_every_run_comes_to_the_same_places():
    with places.followed():
        outer = places.here()
        first = run(outer, 0, twice)
        assert len(set(first)) == 3
        assert run(outer, 0, twice) == first
        assert set(run(outer, 1, twice)).isdisjoint(first)
        assert run(places.here(), 0, twice)[0] not in first


def test_places_are_of_one_trace():
    def first() -> places.Place:
        with places.followed():
            return places.here()

    assert first() is not first()
    assert places.here() is not places.here()
