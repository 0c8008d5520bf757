"""The lines of functions that a model's methods call, in what torch records for each op.

torch keeps of the running functions those called `forward`: an op in a helper bears the line that calls the
helper. Inside of `helpers_too()` the user's own functions below the first `forward` are kept as well, so that
the innermost line is that of the op.

Private: torch says that the method is there to be overridden, and makes its tracers itself.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torch.fx.proxy import TracerBase

from aotpipe.model import source


@contextmanager
def helpers_too() -> Iterator[None]:
    """Inside, an op that torch.export traces bears its own line of the user's."""
    torchs = TracerBase._filter_traceback_frames  # noqa: SLF001

    def frames(tracer: Any, running: traceback.StackSummary) -> traceback.StackSummary:
        kept = {id(frame) for frame in torchs(tracer, running)}
        first = next((at for at, frame in enumerate(running) if frame.name == "forward"), len(running))
        return traceback.StackSummary.from_list(
            [
                frame
                for at, frame in enumerate(running)
                if id(frame) in kept or (at > first and source.is_user_file(frame.filename))
            ]
        )

    with mock.patch.object(TracerBase, "_filter_traceback_frames", frames):
        yield
