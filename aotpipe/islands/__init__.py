"""Models of which a part stays Python: a chain of programs and eager islands.

`eager_island` marks a function that cannot be in a program (numpy, input and output, another package). A
build that allows islands cuts the model's graph there (`cutting`), and at ops without a lowering; `running`
runs the chain. What runs a chain needs no torch, unless an island does.
"""

from __future__ import annotations

from aotpipe.islands.chain import Chain, Island, Parts, Segment
from aotpipe.islands.marking import eager_island, recording

__all__ = ["Chain", "Island", "Parts", "Segment", "eager_island", "recording"]
