"""Reads what `iree-compile` prints: the first diagnostic, its op, the user's own line.

MLIR prints `place: error: text`, then notes; the place of an op that sits below a library's call is the
library's line, and each caller follows as `place: note: called from`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from aotpipe.errors import SourceLine

_ERROR: Final = re.compile(r"^(?:.*?: )?error: (?P<text>.*)$", re.MULTILINE)
_PLACE: Final = re.compile(r'(?P<path>(?:/|[A-Za-z]:\\)[^\s:"()\[\]]*\.py)"?:(?P<line>\d+):\d+')
_OP: Final = (
    re.compile(r"legalize operation '(?P<op>[\w.]+)'.*?name = \"(?P<inner>[\w.]+)\""),
    re.compile(r"legalize operation '(?P<op>[\w.]+)'"),
    re.compile(r"'(?P<op>[\w.]+)' op "),
    re.compile(r"custom op '(?P<op>[\w.]+)'"),
)
_PASS: Final = re.compile(r"::(\w+Pass)::runOn|::(?:\(anonymous namespace\)::)?(\w+Pass)::")
_CONVERSION: Final = re.compile(r"\bmlir::torch::(?:\w+::)*(convert\w+|\w+Op)\b")
_REFUSALS: Final = (
    "custom op",
    "expected",
    "iree-compile: Unknown command line argument",
    "redefinition of",
    "unimplemented",
    "use of undeclared",
)
_NO_MEMORY: Final = re.compile(r"out of memory|std::bad_alloc|Cannot allocate memory", re.IGNORECASE)
_TELLING: Final = re.compile(r"LLVM ERROR|Assertion|Unknown command line|terminate called|what\(\):")
_NOISE: Final = re.compile(r"^\s*#\d+ |PLEASE submit|Please report|Stack dump|^\s*\d+\.\s|^\s*$")
# Frames of installed packages are never the user's own line.
_FOREIGN: Final = ("/site-packages/", "/dist-packages/", "/torch/", "<frozen", "<eval_with_key>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """What a failed compile said.

    Attributes:
        text: The first error's text, without its place; the crash's last words where there is no error.
        op: The op it names, or empty.
        where: The innermost line that is not of an installed package.
        compiler_pass: The pass or the conversion that a crash happened in, or empty.
        out_of_memory: Whether the compiler itself said so.
    """

    text: str
    op: str = ""
    where: SourceLine | None = None
    compiler_pass: str = ""
    out_of_memory: bool = False

    @property
    def is_input(self) -> bool:
        """Whether the module itself was refused, so that no other flags can help."""
        return self.op.startswith("torch.") or self.text.startswith(_REFUSALS)


def read(stderr: str) -> Diagnostic:
    """Read a failed compile's stderr."""
    error = _ERROR.search(stderr)
    found_pass = _CONVERSION.search(stderr) or _PASS.search(stderr)
    return Diagnostic(
        text=_first_sentence(error["text"]) if error else _last_words(stderr),
        op=_op(error["text"]) if error else "",
        where=_where(stderr[error.start() :]) if error else None,
        compiler_pass=next(filter(None, found_pass.groups())) if found_pass else "",
        out_of_memory=bool(_NO_MEMORY.search(stderr)),
    )


def _op(text: str) -> str:
    for pattern in _OP:
        if found := pattern.search(text):
            return found.groupdict().get("inner") or found["op"]
    return ""


def _where(text: str) -> SourceLine | None:
    for found in _PLACE.finditer(text):
        if not any(part in found["path"] for part in _FOREIGN):
            return SourceLine(found["path"], int(found["line"]))
    return None


def _first_sentence(text: str, limit: int = 300) -> str:
    """The text up to the op that MLIR prints whole behind it."""
    head = re.split(r": %\d|: \"", text, maxsplit=1)[0]
    return head if len(head) <= limit else head[:limit] + " ..."


def _last_words(stderr: str) -> str:
    """The line that tells most where there is no diagnostic, such as LLVM's fatal error."""
    lines = [line.strip() for line in stderr.splitlines() if not _NOISE.search(line)]
    telling = [line for line in lines if _TELLING.search(line)]
    return (telling[0] if telling else lines[-1] if lines else "no diagnostic came before")[:300]
