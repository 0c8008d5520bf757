"""The small NAM52: one program whatever a batch holds, with eager's answers and eager's counters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import aotpipe
from aotpipe.canonicalize.example_call import uncompiled
from models import nam52

CALLS = [
    nam52.batch(0, nam52.ONE_DOCUMENT, [8, 8]),
    nam52.batch(1, nam52.SEVERAL, [8, 6]),
    nam52.batch(2, nam52.ONE_DOCUMENT, [3, 1]),
    nam52.batch(3, nam52.SEVERAL, [5, 8]),
    nam52.batch(4, nam52.SEVERAL, [1, 1]),
    nam52.batch(5, nam52.ONE_DOCUMENT, [8, 7]),
    {"tokens": nam52.batch(6, nam52.SEVERAL, [8, 7])["tokens"]},
]
SPECS = pytest.mark.parametrize("spec", [nam52.SPEC, nam52.MTP_3], ids=lambda spec: spec.name)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@SPECS
@pytest.mark.parametrize("target", ["iree-cpu-host", "xla-cpu-host"])
def test_batches_in_turn(spec: aotpipe.Spec, target: str, tmp_path: Path):
    bundle = aotpipe.build(spec, targets=[target], out=tmp_path / "bundle", latency=False)
    [row] = bundle.report.targets
    assert row.status == "executed", row.reason
    torch.manual_seed(spec.seed)
    model = spec.build()
    with aotpipe.load(bundle.path, target=target) as runner, torch.no_grad(), uncompiled():
        for call in CALLS:
            want = model(**call)
            got = runner.infer({name: value.numpy() for name, value in call.items()})
            assert want.keys() == got.keys()
            for name, value in want.items():
                np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5)
        assert model.overflow() > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
@SPECS
def test_the_number_of_programs_stays_flat(spec: aotpipe.Spec):
    found = aotpipe.recompiles(spec, inputs=CALLS)
    before, after = (found.way(name) for name in ("torch.compile", "iree-cpu-host"))
    print(f"{spec.name}: {before.count} programs of torch.compile, {after.count} of aotpipe")
    assert before.count > len(CALLS)
    assert after.count == 1
    assert not after.refused
