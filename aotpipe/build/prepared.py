"""A model ready for every compiler, and all that its programs are judged on. Torch-free.

`files(prepared)` gives the files of a store entry, `read(entry, folder)` the same value back: a build that
goes on from here imports no torch. The weights are written and hashed once: the store's entry, the programs
that are run and the bundle all take the one file.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from aotpipe.backends import ModuleKey
from aotpipe.core.dtypes import Array
from aotpipe.core.serialization import ELSEWHERE, dumps, from_json
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Finding, Lowered
from aotpipe.runtime import goldens as goldens_file
from aotpipe.runtime import tensor_file
from aotpipe.runtime.bundle.manifest import GOLDENS, STATE_PREFIX, WEIGHTS
from aotpipe.runtime.goldens import Golden
from aotpipe.runtime.islands.chain import Parts
from aotpipe.runtime.store import Entry, Source, digest, typed_os_errors

_INDEX: Final = "prepared.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the stages that need torch have made.

    Attributes:
        lowered: The modules, for every target that was asked for.
        asserts: By entry point: a message per assert result.
        weights: A file of `runtime.tensor_file` with the weights and, under `state/NAME`, the initial state.
        weights_sha256: Of that file.
        digest: Of everything that can change what the programs compute or are compared with.
        parts: Of a model with islands: what its programs hold in place of its entry points.
    """

    __pydantic_config__: ClassVar = {"arbitrary_types_allowed": True}

    name: str
    lowered: Mapping[ModuleKey, Lowered]
    signatures: Mapping[str, Signature]
    asserts: Mapping[str, tuple[str, ...]]
    weights: Path = field(metadata=ELSEWHERE)
    weights_sha256: str = field(metadata=ELSEWHERE)
    initial_state: Mapping[str, Array] = field(metadata=ELSEWHERE)
    goldens: tuple[Golden, ...] = field(metadata=ELSEWHERE)
    findings: tuple[Finding, ...]
    digest: str
    parts: Parts | None = None


def digest_of(models: Sequence[str], lowered: Mapping[ModuleKey, Lowered], goldens: bytes) -> str:
    """A Prepared's digest, from those of the legal models (weights included) and of what was made of them."""
    modules = [each.digest for each in lowered.values()]
    return digest([*models, *modules, hashlib.sha256(goldens).hexdigest()])


def write_weights(
    weights: Mapping[str, Array], initial_state: Mapping[str, Array], folder: Path
) -> tuple[Path, str]:
    """Write a model's arrays to the file that everybody takes; its path and SHA-256."""
    path = folder / WEIGHTS
    state = {STATE_PREFIX + name: array for name, array in initial_state.items()}
    with typed_os_errors("the weights", folder, hint="free space there, or set TMPDIR to another folder"):
        return path, tensor_file.write({**weights, **state}, path)


def files(prepared: Prepared) -> dict[str, Source]:
    """The files that hold it."""

    def weights(path: Path) -> str:
        _link(prepared.weights, path)
        return prepared.weights_sha256

    return {
        _INDEX: dumps(prepared),
        **{_module(module): each.module for module, each in prepared.lowered.items()},
        WEIGHTS: weights,
        GOLDENS: goldens_file.dumps(prepared.goldens),
    }


def read(entry: Entry, folder: Path) -> Prepared:
    """Read what `files` gave; the weights are kept in `folder` too, so that the store may be trimmed."""
    weights = folder / WEIGHTS
    _link(entry.path / WEIGHTS, weights)
    index = json.loads(entry.text(_INDEX))
    for name, each in index["lowered"].items():
        each["module"] = entry.read(_module(name))
    elsewhere = {
        "weights": weights,
        "weights_sha256": entry.files[WEIGHTS],
        "initial_state": {
            name.removeprefix(STATE_PREFIX): array
            for name, array in tensor_file.read(weights).items()
            if name.startswith(STATE_PREFIX)
        },
        "goldens": goldens_file.loads(entry.read(GOLDENS)),
    }
    return from_json(Prepared, index | elsewhere)


def _module(module: str) -> str:
    return f"module.{module}"


def _link(source: Path, destination: Path) -> None:
    """One file under two names; a copy where the file system has no such thing."""
    try:
        os.link(source, destination)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, destination)
