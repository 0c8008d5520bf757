"""What `check` says, as frozen types: diagnostics with their codes and places, what is rewritten and kept.

A `Diagnostic` of severity `error` is an obstacle: the model does not become one program as it is. `Checked`
holds all of them, and the rest that a user may want to know before a build. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

from aotpipe.core.serialization import Serializable, fields_of, renamed
from aotpipe.core.signature import Signature
from aotpipe.errors import AotpipeError, Obstructed, SourceLine
from aotpipe.model import source_ranges
from aotpipe.model.source_ranges import Place

Severity = Literal["error", "warning", "note"]
SCHEMA: Final = 1
"""Counts incompatible changes of `Checked.to_json`."""
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a value's history: an expression that it came through, or what it began as."""

    what: str
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix(Serializable):
    """A replacement to copy.

    Attributes:
        verified: Whether it was executed and gave eager's answers, and the obstacle was gone.
        calls: On how many calls the answers were compared.
    """

    derived: ClassVar = ("line",)

    place: Place
    replacement: str
    verified: bool
    calls: int = 0

    @property
    def line(self) -> str:
        """The first line of the place as it reads afterwards."""
        text = self.place.text
        end = text[self.place.end_column - 1 :] if self.place.end_line == self.place.line else ""
        return text[: self.place.column - 1] + self.replacement + end


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One thing that was found.

    Attributes:
        severity: `error` blocks a build.
        code: A stable kebab-case word of `CODES`.
        reason: Why, where the message does not say it; may have several lines.
        hint: One thing to do.
        history: Where the value came from, the newest step first.
        fix: A replacement to copy.
        seen: Whether the stages of a build refused the model at this place when they were run.
        entry_point: Empty when it concerns all.
    """

    severity: Severity
    code: str
    message: str
    reason: str = ""
    hint: str = ""
    where: SourceLine | None = None
    place: Place | None = None
    history: tuple[Step, ...] = ()
    fix: Fix | None = None
    seen: bool = False
    entry_point: str = ""

    @classmethod
    def of(cls, code: str, message: str, **more: Any) -> Self:
        """A diagnostic of the severity that its code has by itself, at the line of its place."""
        if place := more.get("place"):
            more.setdefault("where", place.where)
        return cls(severity=CODES[code].severity, code=code, message=message, **more)

    @classmethod
    def of_error(cls, code: str, error: AotpipeError, **more: Any) -> Self:
        """What a stage refused, in its own words, at its own line where `more` names no other."""
        own: dict[str, Any] = {"reason": error.reason, "hint": error.hint, "where": error.where, "seen": True}
        own["place"] = source_ranges.of_source_line(error.where)
        return cls.of(code, error.message, **{**own, **more})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Python's control flow that becomes an op of the graph: `if` -> `torch.cond`."""

    what: str
    into: str
    place: Place
    entry_point: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """All that was found about a model.

    Attributes:
        diagnostics: Errors first, then by place.
        rewrites: Complete only where nothing blocks.
        signatures: Per entry point that could be exported; `state` in them is what a runner keeps.
        complete: Whether every stage before the compiler was run to its end: if not, there may be more.
    """

    __pydantic_config__ = renamed(signatures="entry_points")

    name: str
    diagnostics: tuple[Diagnostic, ...]
    rewrites: tuple[Rewrite, ...] = ()
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    complete: bool = True
    wall_s: float = 0.0

    @property
    def obstacles(self) -> tuple[Diagnostic, ...]:
        """What blocks a build."""
        return tuple(each for each in self.diagnostics if each.severity == "error")

    @property
    def ok(self) -> bool:
        """Whether the model becomes one program per entry point."""
        return not self.obstacles

    @property
    def exit_code(self) -> int:
        """What `aotpipe check` exits with."""
        return 0 if self.ok else Obstructed.exit_code

    def to_json(self) -> dict[str, Any]:
        """What `aotpipe check --json` prints; docs/check.md has the schema in words."""
        return {"schema": SCHEMA, "ok": self.ok, "exit_code": self.exit_code, **fields_of(self)}

    def require(self) -> None:
        """Raise if something blocks.

        Raises:
            Obstructed: Names the first obstacle and how many there are.
        """
        if self.obstacles:
            first, count = self.obstacles[0], len(self.obstacles)
            more = f" (the first of {count} obstacles)" if count > 1 else ""
            raise Obstructed(first.message + more, reason=first.reason, hint=first.hint, where=first.where)


class Code(NamedTuple):
    """The severity that it mostly has, and one sentence."""

    severity: Severity
    title: str


CODES: Final[Mapping[str, Code]] = {
    # What a build refuses.
    "branch-on-tensor": Code("error", "Python decides on a tensor where the code cannot be rewritten"),
    "paths-differ": Code("error", "a variable has no common form on the paths that a tensor decides between"),
    "loop-changes-form": Code(
        "error", "a loop on a tensor changes the shape or dtype of a variable in each trip"
    ),
    "list-grows": Code("error", "a list grows in a loop on a tensor without a bound"),
    "python-object-changed": Code("error", "a branch or a loop on a tensor changes a Python object in place"),
    "written-in-place": Code("error", "a write in place that the graph would lose"),
    "raises-on-tensor": Code(
        "error", "an exception is raised on one of the paths that a tensor decides between"
    ),
    "exception-caught": Code("error", "an exception that a tensor decides on is caught"),
    "number-from-tensor": Code(
        "error", "Python takes a number out of a tensor where the graph needs it known"
    ),
    "size-from-data": Code("error", "the size of a tensor depends on data"),
    "tensor-to-numpy": Code("error", "a tensor leaves torch for numpy"),
    "text-from-tensor": Code("error", "a text is made of a tensor's value and used"),
    "recursion-on-data": Code("error", "a function calls itself as often as a tensor says"),
    "global-changed": Code("error", "a call changes something outside of the model"),
    "stays-python": Code("error", "the model calls a function that is marked to stay Python"),
    "state-refused": Code("error", "what the model keeps between calls has no one form"),
    "no-source": Code("error", "Python decides on a tensor in code whose source is not there"),
    "op-without-lowering": Code("error", "an op that the targets have no lowering for"),
    "sizes-refused": Code("error", "the Dims allow sizes that the model does not take"),
    "static-dim": Code("error", "a Dim became a constant"),
    "train-mode": Code("error", "the model is in train mode"),
    "model-raises": Code("error", "the model raises on its own example inputs"),
    "differs-from-eager": Code("error", "the exported program gives other answers than eager"),
    "not-exported": Code("error", "torch.export refuses the model for another reason"),
    # What a build takes, and a user should know.
    "baked-input": Code("warning", "an input that is no tensor is fixed, and eager's answer depends on it"),
    "baked-none": Code("warning", "an optional input is left out, and the model decides on that"),
    "baked-key": Code("warning", "a key of a dict is looked for, and the answer is fixed"),
    "baked-attribute": Code("warning", "an attribute that calls change is fixed"),
    "baked-random": Code("warning", "a number that Python or numpy draws is fixed"),
    "baked-time": Code("warning", "the time at the build is fixed"),
    "baked-environment": Code("warning", "a variable of the environment is fixed"),
    "baked-process": Code("warning", "what one process, thread or host is told of itself is fixed"),
    "file-at-build": Code("warning", "a file is opened at the build, and not in the program"),
    "output-dropped": Code("note", "text is printed or logged at the build, and not by the program"),
    "state-becomes-buffer": Code("note", "an attribute that calls change is kept as state"),
    "check-incomplete": Code("warning", "not every stage could be run to its end: there may be more"),
    # What the stages themselves find.
    "constant-input": Code("note", "an input that is no tensor is fixed"),
    "call-refused": Code("note", "the model raises without something that a call may lack"),
    "unused-input": Code("warning", "nothing reads an input"),
    "integer-output": Code("note", "an output is a number"),
    "sizes-without-program": Code(
        "warning", "the model raises at some sizes of a Dim, and no program takes them"
    ),
    "auto-dim-static": Code("warning", "a size under AUTO is fixed"),
    "bucket-plan": Code("note", "the sizes of a Dim that XLA's programs are built for were planned"),
    "auto-dim-multiple": Code("note", "a size under AUTO varies in multiples"),
    "example-at-bound": Code("note", "an example lies at the bound of a Dim"),
    "small-sizes-compared": Code("note", "sizes of 0 and 1 were compared with eager"),
    "size-specializations": Code("note", "the model decides on its sizes, and becomes several programs"),
    "state-recomputed": Code("note", "each call computes anew what the model keeps of the sizes of a call"),
    "state-left-out": Code("warning", "what the model collects between calls is not kept"),
    "state-in-python": Code("note", "what the model keeps in Python is state of the program"),
    "number-became-tensor": Code("warning", "a variable is a number on one path and a tensor on another"),
    "dtype-promoted": Code("warning", "a variable has another dtype on each path"),
    "state-before-raise": Code(
        "warning", "what is written before something raises is taken back, where eager keeps it"
    ),
    "list-room-assumed": Code("warning", "a list that a tensor makes grow has room that the program asserts"),
    "size-from-path": Code("note", "a variable has another size on each path"),
    "talk-left-out": Code("note", "what is printed or logged is no part of the program"),
    "strict-export": Code("note", "the model was exported in strict mode"),
    "control-flow-in-graph": Code("note", "a function's control flow is part of the graph"),
    "eager-island": Code("note", "a part of the model stays Python"),
    "parity-inputs": Code("note", "how the inputs were drawn that programs are compared on"),
    "uninformative-output": Code("note", "no compared call says anything of an output"),
    "quantization": Code("note", "linear layers are computed in int8"),
    "quantization-accuracy": Code("note", "how far a quantized model is from the model in floats"),
    "precision": Code("note", "products are computed in fewer bits"),
    "precision-overflow": Code("warning", "a number overflows in fewer bits, and is not compared"),
}


def code_of(code: str) -> Code:
    """What a code means; of one that a stage made and nobody described, the code itself."""
    return CODES.get(code) or Code("note", code)
