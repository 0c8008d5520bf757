import pytest

from aotpipe.core.signature import Symbol
from aotpipe.errors import NoBuckets
from aotpipe.runtime.xla.buckets import Buckets, Ladder, described, planned, takes, within

BATCH = Symbol("batch", 1, 64)


def test_what_is_declared_is_read():
    assert Buckets.of("batch", (8, 1, 8)) == Buckets((1, 8))
    assert Buckets.of("batch", "1, 8") == Buckets((1, 8))
    assert Buckets.of("batch", "exact:8,1") == Buckets((1, 8), exact=True)
    assert Buckets.of("batch", "auto") == Buckets(waste=0.5)
    assert Buckets.of("batch", "auto:12.5%") == Buckets(waste=0.125)


@pytest.mark.parametrize("given", ["", "1,x", "exact:", (), (-1, 3), "auto:0%", "auto:100%", "automatic"])
def test_what_is_none_is_refused(given: object):
    with pytest.raises(NoBuckets, match=r"batch|padding"):
        Buckets.of("batch", given)  # type: ignore[arg-type]


@pytest.mark.parametrize("waste", [0.05, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("symbol", [BATCH, Symbol("seq", 0, 7), Symbol("seq", 5, 512)])
def test_a_plan_keeps_to_the_share_with_the_fewest_sizes(symbol: Symbol, waste: float):
    ladder = planned((symbol,), {symbol.name: Buckets(waste=waste)})[symbol.name]
    assert ladder.sizes[-1] == symbol.max
    assert ladder.waste(symbol.min) <= waste + 1e-9
    # From below, each size takes as many as the share allows: none can do with fewer.
    count, size = 0, max(symbol.min, 1)
    while size <= symbol.max:
        count, size = count + 1, int(size / (1 - waste) + 1e-9) + 1
    assert len(ladder.sizes) == count


def test_several_dims_share_what_may_be_wasted():
    symbols = (BATCH, Symbol("seq", 1, 64))
    ladders = planned(symbols, {"batch": Buckets(waste=0.5), "seq": Buckets(waste=0.5)})
    kept = [1 - ladders[symbol.name].waste(symbol.min) for symbol in symbols]
    assert kept[0] * kept[1] >= 0.5


def test_a_range_without_an_end_is_not_planned():
    with pytest.raises(NoBuckets, match="no end") as caught:
        planned((Symbol("batch", 2, None),), {"batch": Buckets(waste=0.5)})
    assert "--buckets batch=2," in caught.value.hint


def test_sizes_are_tried_where_programs_change():
    assert Ladder((4, 8)).edges(1) == [1, 3, 4, 5, 7, 8]
    assert Ladder((4, 8), exact=True).edges(1) == [4, 8]
    assert Ladder((4,)).edges(4) == [4]


def test_a_plan_is_told():
    assert described(BATCH, Ladder((32, 64))) == (
        "the sizes of batch=1..64 are planned as batch=32,64: at most 97% of a size is padding"
    )


def test_a_program_takes_what_is_smaller_where_it_pads():
    built = {"batch": 8, "seq": 16}
    assert takes(built, {"batch": 2}, {"batch": 3, "seq": 16})
    assert takes(built, {}, {"batch": 8, "seq": 16, "found": 3})
    assert not takes(built, {"batch": 2}, {"batch": 1, "seq": 16})
    assert not takes(built, {"batch": 2}, {"batch": 3, "seq": 15})
    assert not takes(built, {"batch": 2}, {"batch": 9, "seq": 16})


def test_sizes_of_a_dim_that_the_model_does_not_take_become_the_nearest_that_it_takes() -> None:
    taken = Symbol("n", 2, 4)
    assert within(Buckets((1, 3, 24)), 1, 24, taken).sizes == (2, 3, 4)
    assert within(Buckets((3, 24), exact=True), 1, 24, taken).sizes == (3,)
    assert within(Buckets((3, 25)), 1, 24, taken).sizes == (3, 25)  # of no call: refused when it is planned
