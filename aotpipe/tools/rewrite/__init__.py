"""The model as PyTorch that a person would review and keep: one graph, with its branches and loops in it.

`written(model, ...)` gives a `Written`: the source of a class of the model's name that needs torch only and
takes the model's weights by `load_state_dict`, and the proof that it answers as the model does. The code
comes from the model's own source where that can be, else from its graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Unpack

from aotpipe.build.chain import Chain
from aotpipe.build.events import Listener, Recorder
from aotpipe.build.request import ModelOptions, Request
from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.core.stages import Canonical, Exported
from aotpipe.errors import AotpipeError, RewriteFailed
from aotpipe.export import strategies
from aotpipe.model import source
from aotpipe.passes.codegen.code import Code
from aotpipe.passes.codegen.expression_rewrites import Unsupported
from aotpipe.passes.codegen.from_graph import generate_class
from aotpipe.passes.codegen.from_source import rewrite_source
from aotpipe.tools.rewrite.result import Way, Written
from aotpipe.validate.rewritten.loading import loaded, made
from aotpipe.validate.rewritten.proof import Proof, prove

__all__ = ["Written", "written"]

_WAYS: Final[tuple[tuple[Way, bool], ...]] = (
    ("source", False),
    ("source", True),
    ("graph", False),
    ("graph", True),
)
"""What is tried, in order: each way as a person would write it, then as torch.export takes more of it."""


def written(
    model_or_spec: object,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    file_name: str = "model.py",
    on_event: Listener | None = None,
    **options: Unpack[ModelOptions],
) -> Written:
    """Write a model as PyTorch with explicit control flow and state.

    The arguments are those of `build`. `file_name` is what the code is to be saved as: large tensors are read
    from a file of that stem beside it.

    Raises:
        ModelError: It cannot be used as it is, or an option changes a later stage than canonicalize.
        ExportFailed: It cannot be one graph.
        RewriteFailed: What was written does not answer as the model does.
    """
    recorder = Recorder(on_event)
    request = Request.of(model_or_spec, (), args, kwargs, until="canonicalize", **options)
    chain = Chain(request, recorder, specialize=False)
    exported, noted = chain.exported, chain.decisions
    if any(finding.code == "strict-export" for finding in exported.findings):
        # Strict mode reads bytecode: nothing was decided, and plain torch.export refuses the source.
        for entry in exported.canonical.entries:
            with suppress(AotpipeError):
                noted += strategies.staged(entry).decided
    with recorder.stage("write"):
        return write(exported, noted, file_name)


def write(exported: Exported, noted: Sequence[Decision] = (), file_name: str = "model.py") -> Written:
    """Write a model, and prove it: from its source, else from its graph.

    Raises:
        RewriteFailed: What was written does not answer as the model does.
    """
    reasons: list[str] = []
    refused: list[RewriteFailed] = []
    for way, strict in _WAYS:
        if way == "source" and strict and not noted:
            continue  # no loop was written, and nothing would change
        try:
            if way == "source":
                code = rewrite_source(exported, noted, contiguous=strict)
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
            return Written(
                **{each.name: getattr(code, each.name) for each in fields(code)},
                name=exported.canonical.spec.name,
                way=way,
                reason=reasons[0] if way == "graph" else "",
                original=_original(exported.canonical),
                proof=proof,
                findings=exported.findings,
                file_name=Path(file_name).name,
            )
    raise refused[0]


def _generated(exported: Exported, file_name: str, *, direct: bool) -> Code:
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


def _original(canonical: Canonical) -> str | None:
    """The file of the model's class or function, where it is the user's own."""
    model = canonical.model
    forward = inspect.unwrap(canonical.entries[0].module.forward)
    for thing in (type(model), forward):
        with suppress(TypeError, OSError):
            path = inspect.getsourcefile(thing)
            if path is not None and source.is_user_file(path):
                return path
    return None
