"""Models, cut."""

from __future__ import annotations

from typing import Any

from aotpipe.backends import legalization
from aotpipe.canonicalize import canonicalize
from aotpipe.core.stages import Legal
from aotpipe.export import export
from aotpipe.islands.cut import Cut, cut
from aotpipe.islands.sites import recording
from aotpipe.islands.tracing import discover
from aotpipe.model.spec import as_spec
from aotpipe.passes import legalize
from aotpipe.passes.rules import refusal


def legal(model: Any, *args: Any, **settings: Any) -> Legal:
    """A legal program in which islands are left."""
    with recording():
        canonical = canonicalize(as_spec(model.eval(), args=args, **settings))
        discover(canonical)
        return legalize(export(canonical), legalization(), supported=False)


def cut_of(model: Any, *args: Any, **settings: Any) -> Cut:
    """A model in parts."""
    return cut(legal(model, *args, **settings), lambda node: refusal(node, legalization()))
