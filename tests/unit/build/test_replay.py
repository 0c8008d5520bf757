"""A bundle that keeps its modules is compiled anew, and its recorded calls are run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import aotpipe
from aotpipe.build.replay import replay
from aotpipe.errors import BundleError, ParityError
from aotpipe.runtime import goldens
from aotpipe.runtime.bundle import archive, open_bundle, verify


def _built(folder: Path, **options: bool) -> Path:
    torch.manual_seed(0)
    model, args = torch.nn.Linear(4, 3).eval(), (torch.randn(2, 4),)
    built = aotpipe.build(
        model,
        args=args,
        targets=["iree-vmvx"],
        out=folder / "out",
        latency=False,
        **options,  # type: ignore[arg-type]
    )
    return built.path


def test_the_calls_pass_on_programs_that_are_compiled_anew(tmp_path: Path):
    path = _built(tmp_path, keep_modules=True)
    module = (path / "modules" / "iree.mlir").read_bytes()
    assert b"torch.aotpipe.convolution_" in module
    assert str(tmp_path).encode() not in module
    verify(path)
    archived = archive(path, tmp_path / "out.tar")
    for place in (path, archived):
        report = replay(place)
        (row,) = report.targets
        assert (row.status, report.ok) == ("executed", True)
        assert "when it was built (iree-base-compiler" in row.notes[-1]


def test_an_answer_that_is_another_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = _built(tmp_path, keep_modules=True)
    real = goldens.loads

    def changed(data: bytes) -> tuple[goldens.Golden, ...]:
        first, *rest = real(data)
        outputs = {name: np.asarray(array + np.float32(0.5)) for name, array in first.outputs.items()}
        return (replace(first, outputs=outputs), *rest)

    monkeypatch.setattr("aotpipe.runtime.bundle.files.loads", changed)
    report = replay(path)
    assert report.exit_code == ParityError.exit_code
    assert [row.status for row in report.targets] == ["failed"]


def test_one_without_modules_says_how_to_build_it(tmp_path: Path):
    path = _built(tmp_path)
    assert open_bundle(path).manifest.modules == {}
    with pytest.raises(BundleError, match="keeps no modules") as caught:
        replay(path)
    assert "--keep-modules" in caught.value.hint
