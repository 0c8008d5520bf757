"""A model ready for every compiler, and all that its programs are judged on.

`prepare` runs the chain of stages up to the compilers, which it starts as soon as there are modules, and
keeps the result: a request of which nothing has changed is answered from the store, without torch.
`files(prepared)` gives the files of a store entry, `read(entry, folder)` the same value back. The weights are
written and hashed once: the store's entry, the programs that are run and the bundle all take the same files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, get_args

from aotpipe.backends import ModuleKey
from aotpipe.build.cache import Cache
from aotpipe.build.chain import Chain, write_weights
from aotpipe.build.compile_stage import Compiling
from aotpipe.build.events import FrontStage, Recorder
from aotpipe.build.file_reads import ignore_this_thread, recorded_reads
from aotpipe.build.record import Record
from aotpipe.build.request import Request
from aotpipe.core.coverage import UNKNOWN, Coverage
from aotpipe.core.serialization import ELSEWHERE, dumps, from_json, to_json
from aotpipe.core.stages import Finding, Lowered
from aotpipe.model import source_files
from aotpipe.runtime import goldens as goldens_file
from aotpipe.runtime import tensor_file, toolchain
from aotpipe.runtime.bundle.files import parted
from aotpipe.runtime.bundle.manifest import GOLDENS, is_weights
from aotpipe.runtime.goldens import Golden
from aotpipe.runtime.store import Entry, Source, digest
from aotpipe.validate import Loadable

if TYPE_CHECKING:
    from torch.export import ExportedProgram

FRONT_STAGES: Final[tuple[FrontStage, ...]] = get_args(FrontStage)
_INDEX: Final = "prepared.json"
_OP: Final = re.compile(rb"\b(?:torch\.aten|torch\.prims|stablehlo|chlo)\.\w+(?:\.\w+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the stages that need torch have made.

    Attributes:
        digest: Of everything that can change what the programs compute or are compared with.
        materials: The SHA-256 of what the modules were made of, and of these (`manifest.Manifest`).
        source_diff: What became of the model's source (`Chain.source_diff`); no part of the digest.
    """

    __pydantic_config__: ClassVar = {"arbitrary_types_allowed": True}

    name: str
    lowered: Mapping[ModuleKey, Lowered]
    loadable: Loadable
    goldens: tuple[Golden, ...] = field(metadata=ELSEWHERE)
    findings: tuple[Finding, ...]
    digest: str
    coverage: Coverage = UNKNOWN
    materials: Mapping[str, str] = field(default_factory=dict)
    source_diff: str = ""

    @property
    def ops(self) -> dict[str, int]:
        """How often each op stands in the first module that is a text."""
        texts = (each.module for name, each in self.lowered.items() if name != "xla")
        found = Counter(match.decode() for match in _OP.findall(next(texts, b"")))
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A prepared model, its key in the store (None where it is not kept), and the chain that makes it."""

    prepared: Prepared
    key: str | None
    chain: Chain


def digest_of(loadable: Loadable, lowered: Mapping[ModuleKey, Lowered], goldens: bytes) -> str:
    """A Prepared's digest, from what is in its modules and its files, and how these are called."""
    modules = [each.digest for each in lowered.values()]
    called = to_json(loadable, derived=False)
    weights = [each.sha256 for each in loadable.weights]
    return digest([called, *weights, *modules, hashlib.sha256(goldens).hexdigest()])


def prepare(request: Request, compiling: Compiling, *, folder: Path, exclude: Sequence[Path]) -> Ready:
    """Prepare a model, or take it from the store where nothing has changed, and start the compilers.

    The compilers are started as soon as there are modules. The files of the weights go to `folder`; what
    aotpipe itself writes is in `exclude`, so that a model is not made of it.

    Raises:
        ModelError, ExportFailed, UnsupportedOps, LowerFailed
    """
    cache = compiling.cache
    cache.recorder.planned(dict.fromkeys(FRONT_STAGES, 1))
    if (ready := _from_store(request, cache, folder)) is not None:
        compiling.start(ready.prepared.lowered)
        return ready
    chain, key = Chain(request, cache.recorder), request.key
    if key is None or cache.store is None:
        made = _through_torch(chain, compiling, folder)
        return Ready(prepared=made, key=None, chain=chain)
    with recorded_reads(exclude=(*exclude, folder, cache.store.root)) as reads:
        made = _through_torch(chain, compiling, folder)
        dependencies = reads.dependencies(extra_packages=toolchain.PACKAGES)
    prepared_key = None
    if dependencies is not None:
        prepared_key = digest([key, dependencies.digest, made.digest])
        cache.put("prepared", prepared_key, lambda: files(made))
        before = Record.read(cache, key)
        Record(name=made.name, snapshot=dependencies, prepared=prepared_key).save(cache, key)
        if before is not None and before.prepared != prepared_key:
            cache.store.remove("prepared", before.prepared)  # nobody will ask for it again
    return Ready(prepared=made, key=prepared_key, chain=chain)


def _from_store(request: Request, cache: Cache, folder: Path) -> Ready | None:
    """The prepared model of an unchanged request; imports no torch."""
    if (record := Record.fresh(cache, request.key)) is None:
        return None
    if (found := cache.load("prepared", record.prepared, lambda entry: read(entry, folder))) is None:
        return None
    for stage in FRONT_STAGES:
        with cache.recorder.stage(stage) as running:
            running.cached = True
    cache.recorder.found(found.findings)
    return Ready(prepared=found, key=record.prepared, chain=Chain(request, Recorder()))


def _through_torch(chain: Chain, compiling: Compiling, folder: Path) -> Prepared:
    notes = chain.notes
    weights, state = chain.arrays()

    def write() -> tuple[tensor_file.Shard, ...]:
        with chain.recorder.stage("weights") as running:
            shards = write_weights(weights, state, folder)
            running.size_bytes = sum(each.size_bytes for each in shards)
        return shards

    # Hashing and writing leave the interpreter to the rest, eager among it, which puts other data into the
    # model's tensors meanwhile: the arrays are views of what these hold now.
    with ThreadPoolExecutor(1, thread_name_prefix="weights", initializer=ignore_this_thread) as beside:
        writing = beside.submit(write)
        found = chain.reference(compilers=compiling.start(chain.lowered))
        loadable = chain.loadable_from(writing.result(), state)
    return Prepared(
        name=chain.legal.name,
        lowered=chain.lowered,
        loadable=loadable,
        goldens=found.goldens,
        findings=(*chain.exported.findings, *notes, *found.findings),
        coverage=found.coverage,
        digest=digest_of(loadable, chain.lowered, goldens_file.dumps(found.goldens)),
        materials=_materials(chain),
        source_diff=chain.source_diff,
    )


def _materials(chain: Chain) -> dict[str, str]:
    named = chain.request.model
    sources = source_files.digests(named) if isinstance(named, str) else {}
    return {
        **{f"source/{name}": sha256 for name, sha256 in sources.items()},
        **{f"exported/{each.name}": _exported_digest(each.program) for each in chain.exported.entries},
        **{f"module/{name}": each.digest for name, each in chain.lowered.items()},
    }


def _exported_digest(program: ExportedProgram) -> str:
    """Of its graphs as Python, its signature and the ranges of its sizes: no line of the source is in it."""
    from torch.fx import GraphModule

    # A graph that torch.export cut out of another one has no code yet.
    graphs = [
        each.graph.python_code("self").src
        for each in program.graph_module.modules()
        if isinstance(each, GraphModule)
    ]
    ranges = sorted(f"{name}: {found}" for name, found in program.range_constraints.items())
    return digest([graphs, str(program.graph_signature), ranges])


def files(prepared: Prepared) -> dict[str, Source]:
    """The files that hold it."""

    def linked(shard: tensor_file.Shard, path: Path) -> str:
        _link(shard.path, path)
        return shard.sha256

    return {
        _INDEX: dumps(prepared),
        **{f"module.{module}": each.module for module, each in prepared.lowered.items()},
        **{each.path.name: partial(linked, each) for each in prepared.loadable.weights},
        GOLDENS: goldens_file.dumps(prepared.goldens),
    }


def read(entry: Entry, folder: Path) -> Prepared:
    """Read what `files` gave; the weights are kept in `folder` too, so that the store may be trimmed."""
    names = sorted(filter(is_weights, entry.files))
    weights = tuple(tensor_file.Shard(folder / name, entry.files[name]) for name in names)
    for each in weights:
        _link(entry.path / each.path.name, each.path)
    index = json.loads(entry.text(_INDEX))
    for name, each in index["lowered"].items():
        each["module"] = entry.read(f"module.{name}")
    _, state = parted(tensor_file.read_shards(weights))
    index["loadable"] |= {"weights": weights, "initial_state": state}
    goldens = goldens_file.loads(entry.read(GOLDENS))
    return from_json(Prepared, index | {"goldens": goldens})


def _link(source: Path, destination: Path) -> None:
    """Link a file under a second name; copy it where the file system has no hard links."""
    try:
        os.link(source, destination)
    except OSError:
        shutil.copyfile(source, destination)
