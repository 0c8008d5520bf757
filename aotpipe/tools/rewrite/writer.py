"""Writes an exported model, from its own source where that can be, else from its graph; proves it."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Final

import torch
from torch import nn

from aotpipe.canonicalize.modules import as_module
from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.core.stages import Canonical, Exported
from aotpipe.errors import RewriteFailed
from aotpipe.model import source
from aotpipe.tools.rewrite import state_buffers
from aotpipe.tools.rewrite.expression_rewrites import Unsupported
from aotpipe.tools.rewrite.from_graph import generate_class, is_function_module
from aotpipe.tools.rewrite.from_source import rewrite_source
from aotpipe.tools.rewrite.proof import Proof, prove
from aotpipe.tools.rewrite.result import Code, Way, Written

_NUMBERS: Final = count()
_WAYS: Final[tuple[tuple[Way, bool], ...]] = (
    ("source", False),
    ("source", True),
    ("graph", False),
    ("graph", True),
)
"""What is tried, in order: each way as a person would write it, then as torch.export takes more of it."""


def write(exported: Exported, decisions: Sequence[Decision] = (), file_name: str = "model.py") -> Written:
    """Write a model, and prove it: from its source, else from its graph.

    Args:
        exported: The model.
        decisions: What the trace noted of its functions.
        file_name: What the code is to be saved as.

    Raises:
        RewriteFailed: What was written does not answer as the model does.
    """
    reasons: list[str] = []
    refused: list[RewriteFailed] = []
    for way, strict in _WAYS:
        if way == "source" and strict and not decisions:
            continue  # no loop was written, and nothing would change
        try:
            if way == "source":
                code = rewrite_source(exported, decisions, contiguous=strict)
            else:
                code = _generated(exported, file_name, direct=strict)
            proof = proved(exported, code, file_name)
        except Unsupported as error:
            reasons.append(f"line {error.line}: {error}" if error.line else str(error))
        except RewriteFailed as error:
            reasons.append(f"what was made of it is refused: {error.message}: {error.reason}")
            if way == "graph":
                refused.append(error)
        else:
            return _result(exported, code, proof, file_name, way, reasons[0] if way == "graph" else "")
    raise refused[0]


def _result(
    exported: Exported, code: Code, proof: Proof, file_name: str, way: Way, reason: str = ""
) -> Written:
    return Written(
        name=exported.canonical.spec.name,
        text=code.text,
        class_name=code.class_name,
        methods=code.methods,
        way=way,
        reason=reason,
        state=code.state,
        original=_original(exported.canonical),
        proof=proof,
        findings=exported.findings,
        file_name=Path(file_name).name,
        tensors=code.tensors,
    )


def _generated(exported: Exported, file_name: str, *, direct: bool = False) -> Code:
    try:
        return generate_class(exported, Path(file_name).stem, direct=direct)
    except TypeError as error:
        raise RewriteFailed(
            f"{exported.canonical.spec.name} has no form in Python",
            reason=str(error),
            hint="`aotpipe build` takes it as it is",
        ) from error


def proved(exported: Exported, code: Code, file_name: str) -> Proof:
    """Run written code beside the original.

    Raises:
        RewriteFailed: It does not run, or does not answer as the original does.
    """
    with loaded(code, Path(file_name).name) as (module, path):
        model = made(module, code, exported.canonical.model)
        return prove(exported, model, code.methods, str(path), resets=bool(code.state) and not code.is_edited)


@contextmanager
def loaded(code: Code, file_name: str) -> Iterator[tuple[ModuleType, Path]]:
    """The code as a module, in a folder of its own with its tensors."""
    with tempfile.TemporaryDirectory(prefix="aotpipe-written-") as folder:
        path = Path(folder) / file_name
        path.write_text(code.text, encoding="utf-8")
        if code.tensors:
            torch.save(dict(code.tensors), path.with_suffix(".pt"))
        called = f"aotpipe_written_{next(_NUMBERS)}"
        spec = importlib.util.spec_from_file_location(called, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # torch asks modules for the source of functions by their name.
        sys.modules[called] = module
        try:
            spec.loader.exec_module(module)
            yield module, path
        finally:
            del sys.modules[called]


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
            hint="this is a fault of aotpipe's: please report it with the model",
        ) from error
    return model.eval()


def _moved(module: ModuleType, code: Code, original: nn.Module) -> nn.Module:
    """A copy of the original whose parts are of the written file's classes."""
    if is_function_module(original):
        return as_module(getattr(module, code.class_name))
    model = copy.deepcopy(original)
    state_buffers.register(model, code.attributes)
    home = type(original).__module__
    for part in model.modules():
        kind = type(part)
        if kind.__module__ == home and (written := getattr(module, kind.__qualname__, None)) is not None:
            part.__class__ = written
    return model


def _original(canonical: Canonical) -> str | None:
    """The file of the model's class or function, where it is the user's own."""
    model = canonical.model
    forward = inspect.unwrap(canonical.entries[0].module.forward)
    for thing in (type(model), forward):
        try:
            path = inspect.getsourcefile(thing)
        except (TypeError, OSError):
            continue
        if path is not None and source.is_user_file(path):
            return path
    return None
