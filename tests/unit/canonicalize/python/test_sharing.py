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
