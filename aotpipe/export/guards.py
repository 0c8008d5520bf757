"""What torch.export assumed about sizes while it traced, each with the user's line.

A `GuardLog` listens to torch's own log of its symbolic sizes, for two things that torch keeps nowhere else:
the line of the model at which an assumption was made, and the assumptions of an export that failed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from traceback import walk_stack
from types import CodeType
from typing import Final

from aotpipe.errors import SourceLine
from aotpipe.model import source

_LOGGER: Final = "torch.fx.experimental.symbolic_shapes"
_CREATED: Final = re.compile(r"create_symbol (?P<symbol>\w+) = \S+ for (?P<source>.+?) \[")
_ROUNDED: Final = re.compile(r"Eq\((Trunc|Floor|Ceil|Round)ToInt\(")
_GUARD: Final = re.compile(r"eval (?P<guard>[^\[].*?) \[guard added\]")


@dataclass(slots=True)
class GuardLog:
    """Symbols by torch's name for their source (`L['x'].size()[0]`), and guards in their order.

    `rounding`: the code that ran, outermost first, where a size became an int of Python's (`int(n * 1.5)`).
    """

    symbols: dict[str, str] = field(default_factory=dict)
    guards: list[tuple[str, SourceLine | None]] = field(default_factory=list)
    rounding: list[list[CodeType]] = field(default_factory=list)

    def about(self, symbol: str) -> tuple[str, SourceLine | None] | None:
        """The first guard on a symbol, preferring one that fixes it."""
        found = [(text, line) for text, line in self.guards if re.search(rf"\b{symbol}\b", text)]
        fixing = [guard for guard in found if guard[0].startswith("Eq(")]
        return next(iter(fixing or found), None)


class _Handler(logging.Handler):
    def __init__(self, log: GuardLog) -> None:
        super().__init__(logging.INFO)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if created := _CREATED.search(text):
            self.log.symbols[created["source"]] = created["symbol"]
        elif guard := _GUARD.search(text):
            self.log.guards.append((guard["guard"], source.of_caller()))
            if _ROUNDED.match(guard["guard"]):
                self.log.rounding.append([frame.f_code for frame, _ in walk_stack(None)][::-1])


@contextmanager
def listening() -> Iterator[GuardLog]:
    """Collect what torch.export assumes."""
    log = GuardLog()
    logger = logging.getLogger(_LOGGER)
    level, listener = logger.level, _Handler(log)
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    logger.addHandler(listener)
    try:
        yield log
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
