"""Small models and calls that the export tests share."""

from __future__ import annotations

from typing import Any

import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.core.stages import CanonicalEntry, Exported
from aotpipe.export import export
from aotpipe.model.spec import as_spec


def entry_of(model: Any, *args: Any, shapes: Any = None, **kwargs: Any) -> CanonicalEntry:
    """The single canonical entry point of a model."""
    [entry] = canonicalize(as_spec(model, args=args, kwargs=kwargs, dynamic_shapes=shapes)).entries
    return entry


def exported(model: Any, *args: Any, shapes: Any = None, ranges: Any = None, **kwargs: Any) -> Exported:
    """A model of one entry point, exported."""
    return export(
        canonicalize(as_spec(model, args=args, kwargs=kwargs, dynamic_shapes=shapes, value_ranges=ranges))
    )


def codes(found: Exported) -> list[str]:
    return [finding.code for finding in found.findings]


def run(found: Exported, *args: Any, **kwargs: Any) -> Any:
    """Call the exported program, with torch's own checks of sizes."""
    with torch.no_grad():
        return found.entries[0].program.module()(*args, **kwargs)
