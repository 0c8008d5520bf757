"""A program's key covers the source of its backend: after an edit no stale program is taken."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aotpipe.backends import compiler, compiling
from aotpipe.core.stages import Lowered
from aotpipe.core.targets import Target

LOWERED = Lowered(dialect="torch", module=b"module {}", entry_points=("forward",), digest="0" * 64)


@pytest.fixture(autouse=True)
def _read_anew():
    compiling.backend_digest.cache_clear()
    yield
    compiling.backend_digest.cache_clear()


@pytest.mark.parametrize(
    ("target", "file"),
    [
        ("iree-vulkan", "iree/fixes/fusion_barriers.py"),
        ("iree-cpu-host", "iree/lower/host_reads.py"),
        ("iree-cuda-sm_80", "iree/compile/flags.py"),
        ("xla-cpu-host", "xla/tool.py"),
        ("xla-cpu-host", "xla/estimate/chips.toml"),
        ("xla-cpu-host", "container.py"),
    ],
)
def test_an_edited_source_file_gives_another_key(
    target: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    chosen = Target.parse(target)
    before = compiler(chosen).digest(LOWERED, chosen)
    copies = []
    for root in compiling.sources(chosen.backend):
        copies.append(tmp_path / root.name)
        (shutil.copytree if root.is_dir() else shutil.copyfile)(root, copies[-1])
    monkeypatch.setattr(compiling, "sources", lambda _: tuple(copies))
    compiling.backend_digest.cache_clear()
    assert compiler(chosen).digest(LOWERED, chosen) == before
    with (tmp_path / file).open("a", encoding="utf-8") as edited:
        edited.write("# edited\n")
    compiling.backend_digest.cache_clear()
    assert compiler(chosen).digest(LOWERED, chosen) != before


def test_an_edit_of_one_backend_leaves_the_programs_of_the_other():
    iree, xla = (set(compiling.sources(backend)) for backend in ("iree", "xla"))
    assert not iree & xla
    assert compiling.backend_digest("iree") != compiling.backend_digest("xla")
