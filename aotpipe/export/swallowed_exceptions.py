"""What a model catches of the trace itself: `except Exception` around code that decides on a tensor.

torch stops a trace by an exception where Python asks a tensor for its value. A model that catches it would be
traced in its handler, whatever the value is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from aotpipe.export.traced_strings import MadeText
from aotpipe.model import source

_REFUSALS: Final[tuple[Any, ...]] = (GuardOnDataDependentSymNode, DataDependentOutputException, MadeText)


@contextmanager
def raised() -> Iterator[None]:
    """Raise after the body what code of the model caught in it of refusals to decide."""
    made: list[BaseException] = []

    def watched(before: Any) -> Any:
        def noted(self: BaseException, *args: Any, **kwargs: Any) -> None:
            made.append(self)
            before(self, *args, **kwargs)

        return noted

    with ExitStack() as stack:
        for kind in _REFUSALS:
            stack.callback(setattr, kind, "__init__", kind.__init__)
            kind.__init__ = watched(kind.__init__)
        yield
    for error in made:
        # The outermost frame of an exception that was caught is the one that caught it.
        caught = error.__traceback__
        if caught is not None and source.is_model_code(caught.tb_frame.f_code.co_filename):
            raise error


__all__ = ["raised"]
