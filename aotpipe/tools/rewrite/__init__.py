"""The model as PyTorch that a person would review and keep: one graph, with its branches and loops in it.

`written(model, ...)` gives a `Written`: the source of a class of the model's name that needs torch only and
takes the model's weights by `load_state_dict`, and the proof that it answers as the model does. Raises
`RewriteFailed` where no such code was proved, and what `build` raises where the model cannot be exported.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Unpack

from aotpipe.build.chain import Chain
from aotpipe.build.events import Listener, Recorder
from aotpipe.build.request import ModelOptions, Request
from aotpipe.errors import AotpipeError
from aotpipe.tools.rewrite.result import Written

__all__ = ["Written", "written"]


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
    from aotpipe.canonicalize.trace import decisions
    from aotpipe.export import strategies
    from aotpipe.tools.rewrite.writer import write

    recorder = Recorder(on_event)
    request = Request.of(model_or_spec, (), args, kwargs, until="canonicalize", **options)
    chain = Chain(request, recorder)
    chain.canonical  # noqa: B018  # what is decided while the model is built is no part of its calls
    with decisions.recorded() as noted:
        exported = chain.exported
        if any(finding.code == "strict-export" for finding in exported.findings):
            # Strict mode reads bytecode: nothing was decided, and plain torch.export refuses the source.
            for entry in exported.canonical.entries:
                with suppress(AotpipeError):
                    strategies.staged(entry)
    with recorder.stage("write"):
        return write(exported, noted, file_name)
