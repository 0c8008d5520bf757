"""torch's own talk while it exports, held back.

On a refusal torch prints graphs and logs tracebacks, although it raises an error that says the same. With
`TORCH_LOGS` set, torch talks as the user asked it to.
"""

from __future__ import annotations

import io
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back torch's warnings, prints and log lines."""
    if os.environ.get("TORCH_LOGS"):
        yield
        return
    loggers = [
        logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("torch")
    ]
    handlers = {h for logger in loggers for h in logger.handlers if isinstance(h, logging.StreamHandler)}
    for handler in handlers:
        handler.addFilter(_nothing)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:  # noqa: ARG001 a filter's form
    return False
