"""Loads a written module, and gives its class the original's weights."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

from torch import nn

from aotpipe.canonicalize.modules import as_module, is_function
from aotpipe.errors import RewriteFailed
from aotpipe.model import reference
from aotpipe.passes.codegen.code import Code
from aotpipe.passes.codegen.from_source import register
from aotpipe.runtime.store import workspace

REPORT: Final = "this is a fault of aotpipe's: please report it with the model"


@contextmanager
def loaded(code: Code, file_name: str) -> Iterator[tuple[ModuleType, Path]]:
    """The code as a module, in a folder of its own with its tensors.

    Raises:
        RewriteFailed: It cannot be run.
    """
    with workspace("written") as folder:
        path = folder / file_name
        code.write(path, path.with_suffix(".pt"))
        try:
            module = reference.execute(path)
        except Exception as error:  # the statements of the user's that it needs run again
            raise RewriteFailed(
                f"the rewritten {code.class_name} cannot be loaded",
                reason=f"{type(error).__name__}: {error}",
                hint=REPORT,
            ) from error
        try:
            yield module, path
        finally:
            del sys.modules[module.__name__]


def made(module: ModuleType, code: Code, original: nn.Module) -> nn.Module:
    """The written class with the original's weights, in eval mode.

    Raises:
        RewriteFailed: It cannot be made, or its state_dict is another.
    """
    try:
        if code.is_edited:
            return _moved(module, code, original)
        model: nn.Module = getattr(module, code.class_name)()
        model.load_state_dict(original.state_dict())
    except Exception as error:
        raise RewriteFailed(
            f"the rewritten {code.class_name} does not take the original's weights",
            reason=f"{type(error).__name__}: {error}",
            hint=REPORT,
        ) from error
    return model.eval()


def _moved(module: ModuleType, code: Code, original: nn.Module) -> nn.Module:
    """A copy of the original whose parts are of the written file's classes."""
    if is_function(original):
        return as_module(getattr(module, code.class_name))
    # The weights are shared: a runner that writes some copies these first.
    model = copy.deepcopy(original, {id(each): each for each in original.parameters()})
    register(model, code.attributes)
    home = type(original).__module__
    for part in model.modules():
        kind = type(part)
        if kind.__module__ == home and (written := getattr(module, kind.__qualname__, None)) is not None:
            part.__class__ = written
    return model
