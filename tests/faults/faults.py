"""The past faults of this project, each as a small change that puts it back into today's code.

A fault stands in one of the TOML files beside this one, one file an area:

    [[fault]]
    id = "..."              the words by which scripts/faults --only finds it
    commit = "..."          the commit that fixed it
    what = "..."            one sentence: what went wrong
    caught_by = "..."       the id of a quick test that fails when the fault is back

    [[fault.edit]]
    file = "aotpipe/..."
    before = '''...'''      text that occurs exactly once in the file
    after = '''...'''       what stands there with the fault

Several edits of one fault may change one file; each `before` is looked for in the file as it is.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parent
ROOT: Final = FOLDER.parent.parent


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of one file."""

    file: str
    before: str
    after: str

    def applied(self, text: str) -> str:
        """The text of the file with the change.

        Raises:
            ValueError: The text to change does not occur exactly once.
        """
        if (count := text.count(self.before)) != 1:
            raise ValueError(f"{self.file} has this text {count} times, not once:\n{self.before}")
        return text.replace(self.before, self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What makes the code wrong: an id, a sentence, and the edits that do it."""

    id: str
    what: str
    edits: tuple[Edit, ...]

    def changed(self, root: Path) -> dict[Path, str]:
        """The files below `root` that the fault changes, with their text when it is there.

        Raises:
            ValueError: A text to change does not occur exactly once, or the two texts of an edit are equal.
        """
        texts: dict[Path, str] = {}
        for edit in self.edits:
            path = root / edit.file
            now = path.read_text(encoding="utf-8")
            edit.applied(now)
            if edit.before == edit.after:
                raise ValueError(f"{self.id} changes nothing in {edit.file}")
            texts[path] = edit.applied(texts.get(path, now))
        return texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Change):
    """One past fault, the edits that put it back, and the quick test that catches it."""

    area: str
    commit: str
    caught_by: str

    @property
    def test_file(self) -> str:
        """The file of the test that catches it."""
        return self.caught_by.partition("::")[0]

    @property
    def test_name(self) -> str:
        """The name of the test function, without its parameters."""
        return self.caught_by.partition("::")[2].partition("[")[0]


def load() -> tuple[Fault, ...]:
    """Every fault, by area and in the order of its file."""
    return tuple(fault for file in sorted(FOLDER.glob("*.toml")) for fault in _read(file))


def _read(file: Path) -> Iterator[Fault]:
    with file.open("rb") as stream:
        content = tomllib.load(stream)
    for each in content["fault"]:
        yield _fault(file.stem, each)


def _fault(area: str, values: Mapping[str, Any]) -> Fault:
    given = {key: value for key, value in values.items() if key != "edit"}
    return Fault(area=area, edits=tuple(Edit(**edit) for edit in values["edit"]), **given)
