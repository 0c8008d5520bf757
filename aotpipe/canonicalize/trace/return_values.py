"""What a rewritten function gives to code that is not rewritten.

A value that may be None, one of several objects, and a list that grows, are known to rewritten code only:
`x is None` and `len(x)` of Python's own would say something else, without a word. The code that gets one has
to be rewritten too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from traceback import walk_stack
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

import torch

from aotpipe.canonicalize.alias.effects import CALL
from aotpipe.canonicalize.values import dynamic_list, trace
from aotpipe.canonicalize.values.chosen_object import ChosenObject
from aotpipe.canonicalize.values.optional_values import OptionalValue
from aotpipe.canonicalize.values.trace import GENERATED, OPERATORS_MODULE, refusal
from aotpipe.errors import ExportFailed
from aotpipe.model import source

_DEPTH: Final = 3
_MOST: Final = 10_000


class Unwritten(Exception):
    """A function has to be rewritten for what it gets from another one."""

    def __init__(self, code: CodeType, refused: ExportFailed) -> None:
        self.code = code
        self.refused = refused
        super().__init__(str(refused))


def checked(value: Any) -> Any:
    """A value that rewritten code returns, called from `operators`.

    Raises:
        Unwritten: It goes to code that is not rewritten and would take it for something else.
    """
    if trace.current().watches_calls and _is_known_here_only(value):
        # The caller's frame is behind those of the operator and of the function that returns.
        for frame in _unwritten(sys._getframe(3), around=False):  # noqa: SLF001  # the only way to who called
            raise refused(frame)
    return value


def check_placed(container: object, value: Any) -> None:
    """Check what rewritten code puts into a container.

    Raises:
        Unwritten: The container belongs to code that is not rewritten.
    """
    if _is_known_here_only(value):
        for frame in _unwritten(sys._getframe(1), around=True):  # noqa: SLF001
            if any(_reaches(each, container, _DEPTH) for each in frame.f_locals.values()):
                raise refused(frame)


def check_reader() -> None:
    """Check the code that reads an attribute of the model which only rewritten code knows.

    Raises:
        Unwritten: It is not rewritten.
    """
    reader: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while reader is not None and source.is_own(reader.f_code.co_filename):
        reader = reader.f_back
    for frame in _unwritten(reader, around=False):
        # A part of a rewritten function that calls no operator is a function of its own.
        around = (each.f_code for each, _ in walk_stack(frame.f_back))
        if not any(frame.f_code in code.co_consts and not is_unwritten(code) for code in around):
            raise refused(frame)


def check_tried() -> None:
    """Check that no code that is not rewritten may have a handler for what is raised now.

    Raises:
        Unwritten: The body of a `try` of such code is running.
    """
    called = [frame.f_code.co_qualname for frame, _ in walk_stack(None)]
    # After the model's call, what is around is whoever builds it.
    for frame in _unwritten(sys._getframe(1), around=True) if CALL in called else ():  # noqa: SLF001
        if source.is_tried(frame.f_code, frame.f_lineno):
            said = "a tensor decides whether code that cannot be rewritten comes to its `except`"
            raise refused(frame, said, "decide with `if` and `else` in place of `try` and `except`")


def refused(
    frame: FrameType,
    said: str = "code that cannot be rewritten gets what may be None or another object, or a list that grows",
    hint: str = "return a tensor on every path, and whether it counts beside it",
) -> Unwritten:
    """What is raised where the code of a frame has to be rewritten."""
    return Unwritten(frame.f_code, refusal(said, hint))


def _is_known_here_only(value: Any) -> bool:
    leaves = dynamic_list.leaves(value)
    return any(type(leaf) in (OptionalValue, ChosenObject, dynamic_list.DynamicList) for leaf in leaves)


def is_unwritten(code: CodeType) -> bool:
    """Whether a code is of a model, and not rewritten."""
    # Asked at every call of Python: Python hashes a path once, but a code object each time.
    if not source.is_model_code(code.co_filename) or GENERATED in code.co_qualname:
        return False
    return OPERATORS_MODULE not in (each.__name__ for each in code.co_consts if isinstance(each, ModuleType))


def _unwritten(frame: FrameType | None, *, around: bool) -> Iterator[FrameType]:
    """The frame of a model's code that is not rewritten, from one on: the nearest, or all `around`."""
    while frame is not None and frame.f_code.co_qualname != CALL:
        path = frame.f_code.co_filename
        if is_unwritten(frame.f_code):
            yield frame
        if not around and (source.is_own(path) or source.is_model_code(path)):
            return
        frame = frame.f_back


def _reaches(value: object, container: object, depth: int) -> bool:
    if value is container:
        return True
    if not depth or isinstance(value, torch.Tensor | type | ModuleType):
        return False
    if isinstance(value, list | tuple):
        return len(value) < _MOST and any(_reaches(each, container, depth - 1) for each in value)
    inner = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    if not isinstance(inner, dict) or len(inner) >= _MOST:
        return False
    return inner is container or any(_reaches(each, container, depth - 1) for each in dict.values(inner))
