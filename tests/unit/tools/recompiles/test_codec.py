"""The JSON of a result."""

from __future__ import annotations

import json

from aotpipe.errors import ExportFailed
from aotpipe.tools.recompiles.codec import to_json
from aotpipe.tools.recompiles.results import Refused, Way
from tests.unit.tools.recompiles.test_results import found, program


def test_everything_is_there_and_is_json() -> None:
    ways = (
        Way(name="torch.compile", so_far=(1, 1), programs=(program(1),), notes=("a note",)),
        Way(
            name="iree-vmvx",
            so_far=(1, 1),
            refused=(Refused(call=2, reason="no"),),
            ratio=float("inf"),
            error=ExportFailed("why"),
        ),
    )
    data = json.loads(json.dumps(to_json(found(*ways)), allow_nan=False))
    assert data["schema"] == 1
    assert data["ways"][0]["programs"][0]["where"] == ["net.py", 7]
    assert data["ways"][0]["count"] == 1
    assert data["ways"][1]["refused"] == [{"call": 2, "reason": "no"}]
    assert data["ways"][1]["ratio"] is None
    assert data["ways"][1]["error"]["message"] == "why"
