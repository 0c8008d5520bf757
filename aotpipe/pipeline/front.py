"""The stages that need torch: from what a user names to a `Prepared`.

torch is imported here and nowhere before, so that a model that has not changed costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aotpipe import goldens as goldens_file
from aotpipe.errors import SpecInvalid
from aotpipe.events import Recorder
from aotpipe.pipeline import tools
from aotpipe.pipeline.prepared import Prepared, digest_of, write_weights

if TYPE_CHECKING:
    from aotpipe.spec import Spec
    from aotpipe.stages import Canonical, Exported, Legal, Lowered
    from aotpipe.validate.reference import Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """A prepared model, and the model itself for what is timed beside it."""

    prepared: Prepared
    canonical: Canonical


def canonical(load: Callable[[], Spec], recorder: Recorder) -> Canonical:
    """Load a model and make it ready for export."""
    tools.require()
    with recorder.stage("load"):
        import torch  # noqa: F401  # counted here, and not in the first stage that happens to need it

        spec = load()
    with recorder.stage("canonicalize"):
        from aotpipe.canonicalize import canonicalize

        return canonicalize(spec)


def export(model: Canonical, recorder: Recorder) -> Exported:
    """Export a model, and tell what was found on the way."""
    with recorder.stage("export"):
        from aotpipe.export import export

        exported = export(model)
    for finding in exported.findings:
        recorder.found(finding)
    return exported


def lower(exported: Exported, recorder: Recorder) -> tuple[Legal, Lowered]:
    """Legalize and lower a model."""
    with recorder.stage("legalize"):
        from aotpipe.legalize import legalize

        legal = legalize(exported, dialect="torch")
    with recorder.stage("lower"):
        from aotpipe.backends.iree.importer import lower

        return legal, lower(legal)


def prepare(load: Callable[[], Spec], recorder: Recorder, folder: Path) -> Front:
    """Run every stage up to the lowered module, and eager on the calls that programs are judged on.

    The file of the weights is written to `folder`.

    Raises:
        ModelError, ExportFailed, UnsupportedOps, LowerFailed
    """
    model = canonical(load, recorder)
    exported = export(model, recorder)
    legal, lowered = lower(exported, recorder)
    found = reference(model, legal, recorder)
    with recorder.stage("weights"):
        from aotpipe.backends.arrays import view_numpy

        state = {key: view_numpy(tensor) for key, tensor in legal.initial_state.items()}
        weights = {key: view_numpy(tensor) for key, tensor in legal.weights.items()}
        weights_path, weights_sha256 = write_weights(weights, state, folder)
    prepared = Prepared(
        name=legal.name,
        lowered=lowered,
        signatures={entry.name: entry.signature for entry in legal.entries},
        asserts={entry.name: entry.asserts for entry in legal.entries},
        weights=weights_path,
        weights_sha256=weights_sha256,
        initial_state=state,
        goldens=found.goldens,
        findings=(*exported.findings, *found.findings),
        digest=digest_of(legal.digest, lowered, goldens_file.dumps(found.goldens)),
    )
    return Front(prepared=prepared, canonical=model)


def reference(model: Canonical, legal: Legal, recorder: Recorder) -> Reference:
    """Run eager on the calls that programs are judged on, and tell what was found on the way.

    Raises:
        SpecInvalid: The model raises on its own example inputs.
    """
    with recorder.stage("reference"):
        from aotpipe.backends.eager import EagerFailed
        from aotpipe.validate.reference import reference

        try:
            found = reference(model, legal)
        except EagerFailed as error:
            raise SpecInvalid(
                f"the model {legal.name!r} raises on its own example inputs",
                reason=str(error),
                hint="give example inputs that the model takes",
            ) from error
    for finding in found.findings:
        recorder.found(finding)
    return found
