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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from aotpipe.backends import ModuleKey
from aotpipe.core.dtypes import Array
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Finding, Lowered
from aotpipe.errors import Buffer, SourceLine
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

    name: str
    lowered: Mapping[ModuleKey, Lowered]
    signatures: Mapping[str, Signature]
    asserts: Mapping[str, tuple[str, ...]]
    weights: Path
    weights_sha256: str
    initial_state: Mapping[str, Array]
    goldens: tuple[Golden, ...]
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
    index = {
        "name": prepared.name,
        "lowered": {
            module: {
                "dialect": each.dialect,
                "entry_points": list(each.entry_points),
                "digest": each.digest,
                "largest": {name: [_to_json(one) for one in some] for name, some in each.largest.items()},
                "remarks": dict(each.remarks),
            }
            for module, each in prepared.lowered.items()
        },
        "signatures": {name: signature.to_json() for name, signature in prepared.signatures.items()},
        "asserts": {name: list(messages) for name, messages in prepared.asserts.items()},
        "findings": [finding.to_json() for finding in prepared.findings],
        "digest": prepared.digest,
        "parts": prepared.parts.to_json() if prepared.parts else None,
    }

    def weights(path: Path) -> str:
        _link(prepared.weights, path)
        return prepared.weights_sha256

    return {
        _INDEX: json.dumps(index).encode(),
        **{_module(module): each.module for module, each in prepared.lowered.items()},
        WEIGHTS: weights,
        GOLDENS: goldens_file.dumps(prepared.goldens),
    }


def read(entry: Entry, folder: Path) -> Prepared:
    """Read what `files` gave; the weights are kept in `folder` too, so that the store may be trimmed."""
    index: dict[str, Any] = json.loads(entry.text(_INDEX))
    weights = folder / WEIGHTS
    _link(entry.path / WEIGHTS, weights)
    return Prepared(
        name=index["name"],
        lowered={
            cast("ModuleKey", module): Lowered(
                dialect=each["dialect"],
                module=entry.read(_module(module)),
                entry_points=tuple(each["entry_points"]),
                digest=each["digest"],
                largest={name: tuple(map(_from_json, some)) for name, some in each["largest"].items()},
                remarks=each["remarks"],
            )
            for module, each in index["lowered"].items()
        },
        signatures={name: Signature.from_json(data) for name, data in index["signatures"].items()},
        asserts={name: tuple(messages) for name, messages in index["asserts"].items()},
        weights=weights,
        weights_sha256=entry.files[WEIGHTS],
        initial_state={
            name.removeprefix(STATE_PREFIX): array
            for name, array in tensor_file.read(weights).items()
            if name.startswith(STATE_PREFIX)
        },
        goldens=goldens_file.loads(entry.read(GOLDENS)),
        findings=tuple(map(Finding.from_json, index["findings"])),
        digest=index["digest"],
        parts=Parts.from_json(index["parts"]) if index["parts"] else None,
    )


def _to_json(buffer: Buffer) -> list[Any]:
    where = [buffer.where.path, buffer.where.line] if buffer.where else None
    return [buffer.kind, buffer.name, buffer.size_bytes, where]


def _from_json(data: Sequence[Any]) -> Buffer:
    kind, name, size_bytes, where = data
    return Buffer(kind, name, size_bytes, SourceLine(*where) if where else None)


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
