"""Runs models of which a part stays Python: a chain of programs and eager islands.

`chain` says in which order they run, `chain_runner` runs them. It needs no torch, unless an island does.
"""

from __future__ import annotations

from aotpipe.runtime.islands.chain import Chain, Island, Parts, Segment

__all__ = ["Chain", "Island", "Parts", "Segment"]
