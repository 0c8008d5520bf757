"""What the README and docs say is true: runnable blocks run, tables match the code, links lead somewhere."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from aotpipe import errors
from aotpipe.core import targets
from tests import in_process

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RUNNABLE = re.compile(r"<!-- runnable -->\n```(\w+)\n(.*?)```", re.DOTALL)
BLOCKS = [
    # What other pages show has tests of its own.
    pytest.param(
        language,
        block,
        id=f"{page.stem}-{number}-{language}",
        marks=[] if page.stem == "README" else [pytest.mark.slow],
    )
    for page in PAGES
    for number, (language, block) in enumerate(RUNNABLE.findall(page.read_text(encoding="utf-8")))
]


def test_the_readme_has_runnable_blocks_of_both_kinds() -> None:
    assert {language for language, _ in RUNNABLE.findall(README)} == {"console", "python"}


@pytest.mark.parametrize(("language", "block"), BLOCKS)
def test_a_runnable_block_runs(
    language: str, block: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models").symlink_to(ROOT / "models")
    if language == "python":
        # Control flow is rewritten from its source, which code without a file does not have.
        (tmp_path / "block.py").write_text(block, encoding="utf-8")
        with in_process.as_a_new_process(tmp_path):
            sys.path.insert(0, str(tmp_path))
            runpy.run_path("block.py", run_name="__main__")
        assert capsys.readouterr().out.strip()
    for line in block.splitlines() if language == "console" else ():
        program, *argv = line.split()
        assert program == "aotpipe"
        ran = in_process.aotpipe(*argv, folder=tmp_path)
        assert ran.returncode == 0, f"{line}\n{ran.stderr}"
        assert ran.stdout.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]


def test_the_error_page_lists_every_error_with_its_code() -> None:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    listed = {name: int(code) for name, code in re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.MULTILINE)}
    real = {
        name: value.exit_code
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.AotpipeError)
    }
    assert listed == real


def test_the_target_page_lists_every_target() -> None:
    text = (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([\w-]+)` \| (.*?) \|$", text, re.MULTILINE))
    assert listed == {name: row.summary for name, row in targets.table().items()}


def test_the_first_run_is_the_demo_script() -> None:
    demo = (ROOT / "scripts" / "demo").read_text(encoding="utf-8")
    built = set(re.findall(r"-t (\S+)", demo))
    assert built == set(re.findall(r"^(iree-\S+) +executed", README, re.MULTILINE))
