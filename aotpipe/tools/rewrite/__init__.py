"""The model as PyTorch that a person would review and keep: one graph, with its branches and loops in it.

`written(model, ...)` gives a `Written`: the source of a class of the model's name that needs torch only and
takes the model's weights by `load_state_dict`, and the proof that it answers as the model does. Raises
`RewriteFailed` where no such code was proved, and what `build` raises where the model cannot be exported.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aotpipe.tools.rewrite.result import Written

if TYPE_CHECKING:
    from aotpipe.build.events import Listener
    from aotpipe.model.spec import EntryPoint

__all__ = ["Written", "written"]


def written(
    model_or_spec: object,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    value_ranges: Mapping[str, tuple[float, float]] | None = None,
    entry_points: Mapping[str, EntryPoint] | None = None,
    name: str | None = None,
    file_name: str = "model.py",
    on_event: Listener | None = None,
) -> Written:
    """Write a model as PyTorch with explicit control flow and state.

    The arguments are those of `build`. `file_name` is what the code is to be saved as: large tensors are read
    from a file of that stem beside it.

    Raises:
        ModelError: It cannot be used as it is.
        ExportFailed: It cannot be one graph.
        RewriteFailed: What was written does not answer as the model does.
    """
    from aotpipe.build import front
    from aotpipe.build.events import Recorder
    from aotpipe.build.source import Model
    from aotpipe.canonicalize.trace import decisions
    from aotpipe.errors import AotpipeError
    from aotpipe.export import strategies
    from aotpipe.tools.rewrite.writer import write

    overrides = {
        "args": args,
        "kwargs": kwargs,
        "dynamic_shapes": dynamic_shapes,
        "value_ranges": value_ranges,
        "entry_points": entry_points,
        "name": name,
    }
    recorder = Recorder(on_event)
    model = front.canonical(Model(given=model_or_spec, overrides=overrides).load, recorder)
    with decisions.recorded() as noted:
        exported = front.export(model, recorder)
        if any(finding.code == "strict-export" for finding in exported.findings):
            # Strict mode reads bytecode: nothing was decided, and plain torch.export refuses the source.
            for entry in exported.canonical.entries:
                with suppress(AotpipeError):
                    strategies.staged(entry)
    with recorder.stage("write"):
        return write(exported, noted, file_name)
