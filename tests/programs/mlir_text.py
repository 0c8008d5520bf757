"""Reads the text of modules that rewrites give."""

from __future__ import annotations

import re


def ops_at(module: bytes, place: str) -> list[str]:
    """The lines of a module's text that have a location, such as `"model.py":3:0`."""
    text = module.decode()
    [alias] = re.findall(rf"^(#loc\d*) = loc\({re.escape(place)}\)$", text, re.MULTILINE)
    return [line.strip() for line in text.splitlines() if line.endswith(f"loc({alias})")]
