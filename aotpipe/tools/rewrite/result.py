"""What `aotpipe canonicalize` gives: the code, where it comes from, and what was proved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from aotpipe.core.serialization import fields_of
from aotpipe.core.stages import Finding
from aotpipe.model import source
from aotpipe.passes.codegen.code import Code, unified_diff
from aotpipe.runtime import temporary
from aotpipe.runtime.store import typed_os_errors

if TYPE_CHECKING:
    from aotpipe.validate.rewritten.proof import Proof

Way = Literal["source", "graph"]
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Code):
    """A model's code, proved to answer as the model does.

    Attributes:
        way: Whether it was made from the model's own source, or printed from its graph.
        reason: Why it was printed from the graph.
        original: The file that holds the model's class, where it is the user's own.
    """

    name: str
    way: Way
    reason: str
    original: str | None
    proof: Proof
    findings: tuple[Finding, ...]
    file_name: str

    def diff(self) -> str:
        """A unified diff from the file of the model's class to this code; all new where there is none."""
        before, shown = "", "/dev/null"
        if self.original is not None:
            with typed_os_errors("the model's source", Path(self.original)):
                before = Path(self.original).read_text(encoding="utf-8")
            shown = source.shown(self.original)
        return unified_diff(before, self.text, shown, self.file_name)

    def save(self, path: Path) -> None:
        """Write the code, and its file of tensors where it has one: both as a whole, or neither.

        Raises:
            StoreError: They cannot be written.
        """
        with typed_os_errors("the written model", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.folder(path.parent, ".aotpipe-") as folder:
                self.write(folder / path.name, folder / f"{Path(self.file_name).stem}.pt")
                for each in folder.iterdir():
                    each.replace(path.with_name(each.name))

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "class": self.class_name,
            "methods": dict(self.methods),
            "way": self.way,
            "reason": self.reason,
            "state": list(self.state),
            "original": None if self.original is None else source.shown(self.original),
            "proof": fields_of(self.proof),
            "code": self.text,
            "diff": self.diff(),
        }
