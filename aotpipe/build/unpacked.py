"""What the programs of a model that no bundle holds are loaded with, for as long as they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from aotpipe.build.prepared import write_weights
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Legal
from aotpipe.model.torch_arrays import view_all
from aotpipe.runtime.islands.chain import Parts
from aotpipe.validate import Loadable


@contextmanager
def unpacked(
    legal: Legal,
    *,
    signatures: Mapping[str, Signature] | None = None,
    weights_of: Sequence[Legal] = (),
    parts: Parts | None = None,
) -> Iterator[Loadable]:
    """With the weights in a file while the body runs.

    Args:
        legal: Whose state and asserts the programs have.
        signatures: By entry point, where the programs' are not those of `legal`.
        weights_of: What the programs were made of, where that is not `legal`.
        parts: Of a model with islands.

    Raises:
        DiskFull, ReadOnly: The weights cannot be written.
    """
    own = {entry.name: entry.signature for entry in legal.entries}
    state = view_all(legal.initial_state)
    weights = {key: array for each in weights_of or (legal,) for key, array in view_all(each.weights).items()}
    with TemporaryDirectory(prefix="aotpipe-unpacked-", ignore_cleanup_errors=True) as folder:
        path, _ = write_weights(weights, state, Path(folder))
        yield Loadable(
            signatures=own if signatures is None else signatures,
            weights=path,
            initial_state=state,
            asserts={entry.name: entry.asserts for entry in legal.entries},
            parts=parts,
        )
