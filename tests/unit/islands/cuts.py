"""Models, cut."""

from __future__ import annotations

from typing import Any

from aotpipe.canonicalize import canonicalize
from aotpipe.export import export
from aotpipe.islands.cutting import Cut, cut
from aotpipe.islands.discovery import discover
from aotpipe.islands.marking import recording
from aotpipe.legalize import legalize
from aotpipe.legalize.decompositions.unsupported import refusal
from aotpipe.spec import as_spec
from aotpipe.stages import Legal


def legal(model: Any, *args: Any, **settings: Any) -> Legal:
    """A legal program in which islands are left."""
    with recording():
        canonical = canonicalize(as_spec(model.eval(), args=args, **settings))
        discover(canonical)
        return legalize(export(canonical), supported=False)


def cut_of(model: Any, *args: Any, **settings: Any) -> Cut:
    """A model in parts."""
    return cut(legal(model, *args, **settings), lambda node: refusal(node, "torch"))
