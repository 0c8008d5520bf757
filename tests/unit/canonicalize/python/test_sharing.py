"""Which memory the results of a region would be in: of one from around it, or of one that was made inside."""

from __future__ import annotations

import torch

from aotpipe.canonicalize.python import identities, sharing
from aotpipe.canonicalize.python.values import meet


def test_results_in_one_memory_and_in_one_from_outside():
    with identities.kept(followed=True):
        outside = torch.zeros(3)
        around = identities.of(outside)
        border = sharing.Border()
        new, other, third = torch.ones(3), torch.ones(3), torch.ones(3)
        identities.made([new, other, third], ())
        paths = ((outside, new, new, 1.0), (other, other, outside, third))
        forms = [meet(values) for values in zip(*paths, strict=True)]
        assert around is not None
        found = [border.names(forms, path, identities.of) for path in paths]
        numbers = [[each.numbers for each in path] for path in found]
        second = numbers[0][1]
        assert numbers[0][:3] == [around.numbers, second, second]
        assert numbers[1][0] == numbers[1][1]
        names = sharing.joined(*found)
        assert sharing.counted(forms, names) == [0, 1, 2]
        known = [border.known(forms, path, names, identities.of) for path in paths]
        assert int(known[0][0]) == next(iter(around.numbers))
        assert int(known[0][1]) == int(known[0][2])
        assert int(known[1][0]) == int(known[1][1])


def numbered(value: torch.Tensor) -> int:
    found = identities.of(value)
    assert found is not None
    (only,) = found.numbers
    return only


def test_what_every_trip_is_given_anew_is_the_results_own():
    with identities.kept(followed=False):
        outside, border = torch.zeros(3), sharing.Border()
        kept = numbered(outside)
        before = identities.last_given()
        anew = numbered(torch.ones(3))
        names = [sharing.Names(frozenset({kept, anew})), sharing.Names(frozenset({anew}), frozenset({anew}))]
        settled = border.settled(names, before)
        (second,) = settled[1].numbers
        assert settled == [
            sharing.Names(frozenset({kept, second - 1})),
            sharing.Names(frozenset({second}), frozenset({second})),
        ]
        assert border.settled(names, identities.last_given()) == names


def test_another_run_begins_with_the_names_of_the_last():
    with identities.kept(followed=False):
        around, first, second = torch.zeros(3), torch.ones(3), torch.ones(3)
        identities.made([first, second], (around,))
        border, other = sharing.Border(), sharing.Border()
        start, later = ([sharing.Names(frozenset({numbered(each)}))] for each in (first, second))
        own = border.settled([sharing.Names(frozenset({-99}))], -1)[0]
        before = identities.last_given()
        anew = sharing.Names(frozenset({numbered(torch.ones(3))}))
        names = [start[0] | own | anew | sharing.Names(frozenset({numbered(around)}))]
        found = other.recalled(border.noted(names, start, before), later)
        theirs = other.settled([sharing.Names(frozenset({-99}))], -1)[0]
        assert found == [later[0] | theirs | sharing.Names(frozenset({numbered(around)}))]
