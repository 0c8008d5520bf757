"""Writes a bundle: a folder that is there whole or not at all.

    manifest.json
    weights.safetensors           weights and initial state, once for all programs; where they are large,
                                  weights-00001-of-00002.safetensors and so on, and an index of these
    goldens.safetensors           recorded calls for `selftest`
    modules/KEY.mlir              what the compilers were given, where it is kept
    tokenizer.json                where the build was given one; tokenizer_config.json where one is beside it
    programs/TARGET/program.vmfb  (or program.xla; of a fat program TARGET+TARGET)

Equal contents give equal bytes, wherever they are built: no times, no paths. The folder is made beside its
destination and takes its place in one step; a bundle that lay there is replaced in the same step.

`archive` makes one file of it.

Raises `DiskFull`, `ReadOnly`, and `BundleError` where something else lies at the destination. Torch-free.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import Final, TypeVar

from aotpipe.core.dtypes import Array
from aotpipe.core.precision import Precision, Quantization
from aotpipe.core.serialization import attributes
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Finding, Lowered, Parity, Validated
from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError, BundleError, ParityError, SourceLine
from aotpipe.runtime import tensor_file
from aotpipe.runtime.bundle import atomic_replace, files, tar
from aotpipe.runtime.bundle import manifest as manifests
from aotpipe.runtime.bundle.files import Bundle
from aotpipe.runtime.bundle.manifest import (
    GOLDENS,
    OF_COMPILED,
    WEIGHT_INDEX,
    EntryPoint,
    File,
    Manifest,
    Module,
    ParitySummary,
    Program,
)
from aotpipe.runtime.goldens import Golden, dumps
from aotpipe.runtime.islands.chain import Island, Parts
from aotpipe.runtime.store import typed_os_errors

_LOCATION: Final = re.compile(rb'loc\("([^"]*)":(?=\d)')
Located = TypeVar("Located", Finding, Island)


def pack(
    out: str | PathLike[str],
    *,
    name: str,
    signatures: Mapping[str, Signature],
    asserts: Mapping[str, tuple[str, ...]],
    weights: Sequence[tensor_file.Shard],
    programs: Mapping[Target, Validated | AotpipeError],
    goldens: Sequence[Golden] = (),
    findings: Sequence[Finding] = (),
    parts: Parts | None = None,
    precision: Precision | None = None,
    quantization: Quantization | None = None,
    modules: Mapping[str, Lowered] | None = None,
    materials: Mapping[str, str] | None = None,
    tokenizer: Mapping[str, bytes] | None = None,
) -> Bundle:
    """Write a bundle.

    Args:
        out: Its folder; a bundle there is replaced.
        name: Of the model.
        signatures: By entry point.
        asserts: By entry point: a message per assert result.
        weights: The files that `tensor_file.write_shards` made of the weights and of each initial value
            under `STATE_PREFIX`, with the stem `WEIGHTS`. They are not to be changed afterwards.
        programs: By target: its program, or the error that stands in its place.
        goldens: Recorded calls, in order.
        findings: What a user should know of the build.
        parts: Of a model with islands.
        precision: What is computed in fewer bits.
        quantization: How linear layers are quantized.
        modules: What the compilers were given, as texts, to be kept.
        materials: What the programs were made of, by SHA-256.
        tokenizer: By name, the files of a tokenizer.
    """
    destination = Path(out).absolute()
    require_replaceable(destination)
    of_files = {shard.path.name: tensor_file.read(shard.path) for shard in weights}
    arrays = tensor_file.merged(of_files.values())
    with typed_os_errors("the bundle", destination.parent):
        destination.parent.mkdir(parents=True, exist_ok=True)
        with atomic_replace.folder(destination) as work:
            packed = {}
            for shard in weights:
                _take(shard.path, work / shard.path.name)
                packed[shard.path.name] = File(sha256=shard.sha256, size_bytes=shard.size_bytes)
            if len(weights) > 1:
                packed[WEIGHT_INDEX] = _bytes(work, WEIGHT_INDEX, _index(of_files))
            packed[GOLDENS] = _bytes(work, GOLDENS, dumps(goldens))
            for file, content in (tokenizer or {}).items():
                packed[file] = _bytes(work, file, content)
            for program in programs.values():
                for each in (program, *program.variants) if isinstance(program, Validated) else ():
                    file = f"programs/{each.compiled.file}"
                    if file not in packed:
                        packed[file] = _bytes(work, file, each.compiled.payload)
            kept = {key: _module(key, each) for key, each in (modules or {}).items()}
            for key, module in kept.items():
                content = _without_paths((modules or {})[key].module)
                packed[module.file] = _bytes(work, module.file, content)
            manifest = Manifest(
                name=name,
                entry_points={
                    key: EntryPoint(signature=signature, asserts=asserts.get(key, ()))
                    for key, signature in signatures.items()
                },
                weights=tuple(sorted(files.parted(arrays)[0])),
                arrays=files.layout(arrays),
                programs=tuple(_record(target, result) for target, result in programs.items()),
                findings=tuple(map(_without_folder, findings)),
                files=packed,
                parts=parts and _without_folders(parts),
                precision=precision,
                quantization=quantization,
                modules=kept,
                materials=materials or {},
            )
            written = manifests.write(manifest)
            manifests.read(written)  # so that no bundle passes a limit that its readers have
            _bytes(work, manifests.FILE_NAME, written)
    return Bundle(destination, manifest)


def archive(path: str | PathLike[str], out: str | PathLike[str]) -> Path:
    """Write a bundle as one file, which is taken wherever its folder is; equal bundles give equal bytes.

    Args:
        path: The bundle.
        out: The file; an archive of a bundle there is replaced.

    Returns:
        The file's path.

    Raises:
        BundleError: There is no bundle, its files are not those that were packed, or something else lies at
            `out`.
        DiskFull, ReadOnly, StoreError: It cannot be written.
    """
    bundle, destination = files.open_bundle(path), Path(out)
    files.require_as_named(bundle)
    if destination.exists():
        try:
            _replaceable(destination, is_file=True)
        except BundleError as error:
            raise BundleError(
                f"{destination} is there, and no archive that could be replaced",
                reason=error.message,
                hint="name another file, or remove it yourself",
            ) from error
    first = manifests.write(bundle.manifest)
    work = destination.with_name(f".{destination.name}.{os.getpid()}-{uuid.uuid4().hex}.partial")
    laid = tar.layout(bundle.manifest, len(first))
    with typed_os_errors("the archive", destination.parent):
        try:
            with work.open("xb") as file:
                for name, (_, frame) in zip_longest(laid.begins, laid.frames):
                    file.write(frame)
                    if name is not None:
                        file.write(first if name == manifests.FILE_NAME else files.content(bundle, name).data)
            work.replace(destination)
        finally:
            work.unlink(missing_ok=True)
    return destination


def require_replaceable(out: str | PathLike[str]) -> None:
    """Find out before any work whether a bundle may be written to a folder.

    Raises:
        BundleError: Something lies there that is no bundle, or a bundle with files of somebody else's.
    """
    root = Path(out)
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return
    try:
        manifest = _replaceable(root, is_file=False).manifest
    except BundleError as error:
        raise BundleError(
            f"{root} is not empty and no bundle that this aotpipe can replace",
            reason=error.message,
            hint="name another folder, or remove it yourself",
        ) from error
    others = [name for name in files.names(root) if name not in manifest.files]
    if others:
        raise BundleError(
            f"the bundle at {root} would be replaced, and {others[0]} in it is not part of it",
            hint="move that file elsewhere, or name another folder",
        )


def _replaceable(path: Path, *, is_file: bool) -> Bundle:
    if path.is_file() != is_file:
        raise BundleError(f"{path} is {'a folder' if is_file else 'a file'}")
    return files.open_bundle(path)


def _take(source: Path, destination: Path) -> None:
    """Link a file, or copy one that has two names already: a bundle shares its files with nobody else."""
    if source.stat().st_nlink == 1:
        with suppress(OSError):  # another file system, or one without such names
            os.link(source, destination)
            return
    shutil.copyfile(source, destination)


def _index(of_files: Mapping[str, Mapping[str, Array]]) -> bytes:
    """What Hugging Face's libraries read beside several files of safetensors."""
    total = sum(array.nbytes for arrays in of_files.values() for array in arrays.values())
    where = {name: file for file, arrays in of_files.items() for name in arrays}
    content = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
    return (json.dumps(content, indent=2) + "\n").encode()


def _bytes(work: Path, name: str, content: bytes) -> File:
    path = work / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return File(sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))


def _module(key: str, lowered: Lowered) -> Module:
    return Module(file=f"modules/{key}.mlir", **attributes(lowered, "dialect entry_points digest"))


def _without_paths(module: bytes) -> bytes:
    """A module whose lines name a file without its folder, which would differ from one machine to another."""
    return _LOCATION.sub(lambda found: b'loc("%s":' % found[1].rpartition(b"/")[2], module)


def _record(target: Target, program: Validated | AotpipeError) -> Program:
    if isinstance(program, AotpipeError):
        return Program(
            target=str(target),
            status="failed",
            stage=program.stage,
            reason=program.message,
            parity=_summary(program.parity if isinstance(program, ParityError) else None),
        )
    compiled = program.compiled
    return Program(
        target=str(target),
        file=f"programs/{compiled.file}",
        notes=(*compiled.notes, *program.notes),
        parity=_summary(program.parity),
        variants=tuple(_record(each.compiled.target, each) for each in program.variants),
        **attributes(program, "status reason"),
        **attributes(compiled, OF_COMPILED),
    )


def _summary(parity: Parity | None) -> ParitySummary | None:
    if parity is None or parity.worst is None:
        return None
    of_worst = attributes(parity.worst, "entry_point case output ratio max_abs_error eager_abs_error")
    return ParitySummary(calls=parity.calls, rule=parity.rule, **of_worst)


def _without_folders(parts: Parts) -> Parts:
    chains = {
        name: replace(
            chain,
            steps=tuple(_without_folder(step) if isinstance(step, Island) else step for step in chain.steps),
        )
        for name, chain in parts.chains.items()
    }
    return replace(parts, chains=chains)


def _without_folder(value: Located) -> Located:
    """Keep a source file's name alone, so that the folder of a build changes no byte of its bundle."""
    where = value.where
    return replace(value, where=where and SourceLine(Path(where.path).name, where.line))
