"""Public packages' own Python: what plain torch.export refuses or bakes is right; nothing is made worse."""

from __future__ import annotations

import pytest

from models._vision import make_torchvision_importable
from tests.e2e import public_python

# By what they do there is no form for them yet, and plain torch.export refuses them too.
REFUSED = {
    "transformers WhisperTimeStamp",  # a list of the tokens that a test on data picks
    "torchmetrics ndcg",  # rows picked by a mask of data, and written back
    "torchmetrics auroc",  # as many thresholds as there are distinct scores
    "torchmetrics r2",  # an element written under a mask without dims
}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_becomes_exportable():
    make_torchvision_importable()
    found = {name: public_python.row(name) for name in public_python.CASES}
    for name, (before, after, why) in found.items():
        print(f"{name:32} {before:14} {after:8} {why[:100]}")
    assert {name for name, (_, after, _) in found.items() if after == "refused"} <= REFUSED
    assert not [name for name, (_, after, _) in found.items() if after == "wrong"]
    assert not [name for name, (before, after, _) in found.items() if before == "right" != after]
    gained = [name for name, (before, after, _) in found.items() if before != "right" == after]
    print(f"{len(gained)} of {len(found)} are gained")
    assert len(gained) >= 19
