"""Ops of which the compiler still fails on some sample, with the cause. The list may only get shorter."""

from __future__ import annotations

from typing import Final

FAILING: Final[dict[str, str]] = {}
