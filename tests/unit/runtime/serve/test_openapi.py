"""The OpenAPI document."""

from __future__ import annotations

import json
import re

from aotpipe.runtime.serve.openapi import document
from tests.unit.runtime.serve.conftest import Server


def test_each_reference_has_its_schema_and_each_path_its_answer(served: Server) -> None:
    found = served.ask("/openapi.json")[1]
    assert found == json.loads(json.dumps(document()))
    names = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(found)))
    assert names == set(found["components"]["schemas"])
    for path, methods in found["paths"].items():
        filled = path.replace("{model}", "mlp").replace("{version}", "1")
        for method in methods:
            # What would change the server is asked for a model that is not there.
            asked = filled.replace("mlp", "none") if path.endswith("load") else filled
            status, _ = served.ask(asked, b"" if method == "post" else None, method=method.upper())
            assert str(status) in methods[method]["responses"], (path, status)
