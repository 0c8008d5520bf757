"""Which memory the results of a region would be in: of one from around it, or of one that was made inside."""

from __future__ import annotations

import torch

from aotpipe.canonicalize.alias import tensor_storage
from aotpipe.canonicalize.values.abstract_values import join_values
from aotpipe.canonicalize.values.trace import Trace, started


def test_results_in_one_memory_and_in_one_from_outside():
    with started(Trace(exact_aliases=True)):
        outside = torch.zeros(3)
        around = tensor_storage.of(outside)
        border = tensor_storage.Border()
        new, other, third = torch.ones(3), torch.ones(3), torch.ones(3)
        tensor_storage.made([new, other, third], ())
        paths = ((outside, new, new, 1.0), (other, other, outside, third))
        abstracts = [join_values(values) for values in zip(*paths, strict=True)]
        assert around is not None
        found = [border.names(abstracts, path, tensor_storage.of) for path in paths]
        numbers = [[each.numbers for each in path] for path in found]
        second = numbers[0][1]
        assert numbers[0][:3] == [around.numbers, second, second]
        assert numbers[1][0] == numbers[1][1]
        names = tensor_storage.joined(*found)
        assert tensor_storage.counted(abstracts, names) == [0, 1, 2]
        known = [border.known(abstracts, path, names, tensor_storage.of) for path in paths]
        assert int(known[0][0]) == next(iter(around.numbers))
        assert int(known[0][1]) == int(known[0][2])
        assert int(known[1][0]) == int(known[1][1])


def numbered(value: torch.Tensor) -> int:
    found = tensor_storage.of(value)
    assert found is not None
    (only,) = found.numbers
    return only


def test_what_every_trip_is_given_anew_is_the_results_own():
    with started(Trace()):
        outside, border = torch.zeros(3), tensor_storage.Border()
        kept = numbered(outside)
        before = tensor_storage.last_given()
        anew = numbered(torch.ones(3))
        names = [
            tensor_storage.Names(frozenset({kept, anew})),
            tensor_storage.Names(frozenset({anew}), frozenset({anew})),
        ]
        settled = border.stabilized(names, before)
        (second,) = settled[1].numbers
        assert settled == [
            tensor_storage.Names(frozenset({kept, second - 1})),
            tensor_storage.Names(frozenset({second}), frozenset({second})),
        ]
        assert border.stabilized(names, tensor_storage.last_given()) == names


def test_another_run_begins_with_the_names_of_the_last():
    with started(Trace()):
        around, first, second = torch.zeros(3), torch.ones(3), torch.ones(3)
        tensor_storage.made([first, second], (around,))
        border, other = tensor_storage.Border(), tensor_storage.Border()
        start, later = ([tensor_storage.Names(frozenset({numbered(each)}))] for each in (first, second))
        own = border.stabilized([tensor_storage.Names(frozenset({-99}))], -1)[0]
        before = tensor_storage.last_given()
        anew = tensor_storage.Names(frozenset({numbered(torch.ones(3))}))
        names = [start[0] | own | anew | tensor_storage.Names(frozenset({numbered(around)}))]
        found = other.recalled(border.noted(names, start, before), later)
        theirs = other.stabilized([tensor_storage.Names(frozenset({-99}))], -1)[0]
        assert found == [later[0] | theirs | tensor_storage.Names(frozenset({numbered(around)}))]
