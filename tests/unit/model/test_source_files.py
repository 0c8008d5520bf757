"""Which files a model is made of."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from aotpipe.model import reference, source_files
from tests.in_process import as_a_new_process

FILES = {
    "net/__init__.py": "",
    "net/blocks/__init__.py": "from net.blocks.inner import Block",
    "net/blocks/inner.py": "class Block: pass",
    "net/model.py": "from .blocks import Block\nimport sizes\nVALUE = Block()",
    "net/unused.py": "",
    "sizes.py": "import numpy",
}


@pytest.fixture
def place(tmp_path: Path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with as_a_new_process(tmp_path):
        yield tmp_path


@pytest.mark.parametrize("ref", ["net/model.py:VALUE", "net.model:VALUE"])
def test_what_its_names_come_from_counts_wherever_it_lies(place: Path, ref: str) -> None:
    reference.module(ref.partition(":")[0])
    found = source_files.digests(ref)
    assert list(found) == sorted(set(FILES) - {"net/unused.py"})
    assert found["sizes.py"] == hashlib.sha256(b"import numpy").hexdigest()


def test_a_file_elsewhere_has_no_folder(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "far.py").write_text("def f(): pass")
    (place / "near.py").write_text(
        f"import sys; sys.path.append({os.fspath(elsewhere)!r}); from far import f"
    )
    try:
        reference.module("near.py")
        assert list(source_files.digests("near.py")) == ["far.py", "near.py"]
    finally:
        import sys

        sys.modules.pop("far", None)
