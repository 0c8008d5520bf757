"""A `Checked` with one of everything."""

from __future__ import annotations

from pathlib import Path

from aotpipe.errors import SourceLine
from aotpipe.model.source_ranges import Place
from aotpipe.tools.check.diagnostics import Checked, Diagnostic, Fix, Rewrite, Step

SOURCE = """import torch
def forward(x):
    größe = x.sum(); y = größe > 0 and x.numpy()
    return y
"""


def sample(folder: Path) -> Checked:
    """Of a file in a folder that it writes."""
    path = folder / "net.py"
    path.write_text(SOURCE, encoding="utf-8")
    start = SOURCE.splitlines()[2].index("x.numpy()") + 1
    place = Place(str(path), 3, 3, start, start + len("x.numpy()"), "forward")
    return Checked(
        name="net",
        diagnostics=(
            Diagnostic(
                severity="error",
                code="tensor-to-numpy",
                message="`x.numpy()` takes a tensor out of torch",
                reason="first\nsecond",
                hint="use torch's function",
                where=place.where,
                place=place,
                history=(Step(what="`x * 2`", place=place), Step(what="the input `x`")),
                fix=Fix(place=place, replacement="x", verified=True, calls=3),
                seen=True,
                entry_point="forward",
            ),
            Diagnostic(severity="warning", code="unused-input", message="nothing reads 'z'"),
            Diagnostic(
                severity="note", code="integer-output", message="a number", where=SourceLine("gone.py", 7)
            ),
        ),
        rewrites=(Rewrite(what="if", into="torch.cond", place=place, entry_point="forward"),),
        wall_s=1.25,
    )
