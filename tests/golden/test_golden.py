"""Bundles that earlier releases wrote: each is kept here as it was, and must be read for ever."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aotpipe
from aotpipe.runtime import bundle
from aotpipe.runtime.bundle import manifest
from aotpipe.runtime.goldens import loads
from tests.unit.runtime.bundle import samples

BUNDLES = sorted(Path(__file__).parent.glob("schema-*"))


def test_there_is_one_of_the_current_schema() -> None:
    assert f"schema-{manifest.SCHEMA}" in [path.name for path in BUNDLES]


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.name)
class TestGolden:
    def test_it_is_as_it_was_packed(self, path: Path) -> None:
        found = bundle.verify(path)
        assert found.name == "accumulate"
        assert found.signatures == samples.programs.ACCUMULATE
        assert found.asserts["forward"] == samples.programs.ACCUMULATE_ASSERTS["forward"]
        assert [(each.target, each.status) for each in found.programs] == [
            ("iree-vmvx", "executed"),
            ("iree-cpu-x86_64", "failed"),
        ]
        assert [finding.code for finding in found.findings] == ["unused-input"]

    def test_it_runs(self, path: Path) -> None:
        with aotpipe.load(path) as runner:
            runner.infer(samples.call(3))
            assert runner.infer(samples.call(1))["y"].tolist() == [[3, 4, 5, 6]]
            assert runner.infer({"x": np.ones(4, np.float32)}, entry_point="decode")["count"] == 2

    def test_its_recorded_calls_pass(self, path: Path) -> None:
        assert len(loads((path / "goldens.safetensors").read_bytes())) == 3
        assert bundle.selftest(path).passed
