"""A bundle on disk, a folder or an archive, and its files, which are checked before they are trusted.

Only files that the manifest names are opened, only below the bundle's folder, and what is hashed is what is
given back: a file that is changed meanwhile changes nothing.

Raises `BundleNotFound`, `BundleCorrupt`, `UnsupportedSchema`. Torch-free.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from os import PathLike, fspath
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from aotpipe.core.dtypes import Array, name_of
from aotpipe.errors import BundleCorrupt, BundleNotFound
from aotpipe.runtime import tensor_file
from aotpipe.runtime.bundle import limits, tar
from aotpipe.runtime.bundle import manifest as manifests
from aotpipe.runtime.bundle.manifest import Manifest
from aotpipe.runtime.goldens import Golden, loads


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle on disk; `os.fspath` gives its folder or archive.

    Attributes:
        begins: In an archive, where each file begins.
    """

    path: Path
    manifest: Manifest
    begins: Mapping[str, int] | None = field(default=None, kw_only=True)

    def __fspath__(self) -> str:
        return fspath(self.path)


@dataclass(frozen=True, slots=True)
class Trusted(Bundle):
    """A bundle whose manifest was checked before: by its signature, or by the server of a worker.

    It stands for the manifest that was read then.
    """


def open_bundle(folder: str | PathLike[str]) -> Bundle:
    """The bundle in a folder or an archive, its manifest read and nothing else; a `Trusted` one as it is.

    Raises:
        BundleNotFound: There is no bundle.
        UnsupportedSchema, BundleCorrupt: As `manifest.read`.
    """
    if isinstance(folder, Trusted):
        return folder
    try:
        root = Path(folder)
        is_file = root.is_file()
    except (TypeError, ValueError, OSError) as error:
        place = str(folder)[:200]
        raise BundleNotFound(f"there is no bundle at {place!r}", reason=str(error)[:200]) from error
    if is_file:
        with _opened(root.resolve()) as file:
            manifest, begins = tar.read(file, root)
            return Bundle(root, manifest, begins=begins)
    if not os.path.lexists(root / manifests.FILE_NAME):
        what = "no such folder" if not root.is_dir() else f"it has no {manifests.FILE_NAME}"
        raise BundleNotFound(
            f"{root} is no bundle", reason=what, hint="pass what `aotpipe build` or `aotpipe archive` wrote"
        )
    with _opened(locate(root, manifests.FILE_NAME)) as file:
        data = file.read(limits.SIZE_BYTES + 1)
    return Bundle(root, manifests.read(data))


def content(bundle: Bundle, name: str, *, verify: bool = True) -> NDArray[np.uint8]:
    """A file's bytes: the very ones that were packed, unless `verify` is False.

    Raises:
        BundleCorrupt: It is missing or not the file that the manifest names.
    """
    want = bundle.manifest.files.get(name)
    if want is None:
        raise BundleCorrupt(f"the bundle has no {name}")
    path, part = place(bundle, name)
    with _opened(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if bundle.begins is None and size_bytes != want.size_bytes:
            raise BundleCorrupt(f"{name} has {size_bytes} bytes, not the {want.size_bytes} that were packed")
        data = tensor_file.read_bytes(file, part)
    if verify and hashlib.sha256(data.data).hexdigest() != want.sha256:
        raise BundleCorrupt(
            f"{name} is not the file that was packed",
            reason=f"its SHA-256 is not {want.sha256}",
            hint="copy or build the bundle again",
        )
    return data


def arrays(bundle: Bundle, *, verify: bool) -> dict[str, Array]:
    """The weights, and the initial state under `STATE_PREFIX`.

    With `verify` the digests are checked and the files held in memory; else they are mapped and trusted.

    Raises:
        BundleCorrupt: A file is missing, is not the one that was packed, or holds no arrays; or two hold the
            same array.
    """
    names = bundle.manifest.weight_files
    if not names:
        raise BundleCorrupt(f"the bundle has no file of {manifests.WEIGHTS}")
    try:
        return tensor_file.merged([_arrays(bundle, name, verify=verify) for name in names])
    except ValueError as error:
        raise BundleCorrupt("the files of weights do not fit together", reason=str(error)) from error


def _arrays(bundle: Bundle, name: str, *, verify: bool) -> dict[str, Array]:
    try:
        if verify:
            return tensor_file.parse(content(bundle, name))
        path, part = place(bundle, name)
        with _opened(path) as file:
            return tensor_file.mapped(file, part)
    except ValueError as error:
        raise BundleCorrupt(f"{name} holds no arrays", reason=str(error)) from error


def shards(bundle: Bundle) -> tuple[tensor_file.Shard, ...]:
    """The files of weights, where they lie.

    Raises:
        BundleCorrupt: As `locate`.
    """
    return tuple(
        tensor_file.Shard(path, bundle.manifest.files[name].sha256, part)
        for name in bundle.manifest.weight_files
        for path, part in [place(bundle, name)]
    )


def layout(arrays: Mapping[str, Array]) -> dict[str, str]:
    """The dtype and shape of each array, as `float32[4, 8]`."""
    return {
        name: f"{name_of(array.dtype)}[{', '.join(map(str, array.shape))}]" for name, array in arrays.items()
    }


def parted(arrays: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """The weights in a model's file of them, and the initial state, which is there under `STATE_PREFIX`."""
    state = {name for name in arrays if name.startswith(manifests.STATE_PREFIX)}
    weights = {name: array for name, array in arrays.items() if name not in state}
    return weights, {name.removeprefix(manifests.STATE_PREFIX): arrays[name] for name in sorted(state)}


def goldens(bundle: Bundle) -> tuple[Golden, ...]:
    """The recorded calls, in order.

    Raises:
        BundleCorrupt: The file is missing, is not the one that was packed, or holds no recorded calls.
    """
    try:
        return loads(content(bundle, manifests.GOLDENS).tobytes())
    except ValueError as error:
        raise BundleCorrupt(f"{manifests.GOLDENS} holds no recorded calls", reason=str(error)) from error


def locate(root: Path, name: str) -> Path:
    """The path of a file below a bundle's folder.

    Raises:
        BundleCorrupt: It is missing, no regular file, or a link leads out of the bundle.
    """
    try:
        real = (root / name).resolve(strict=True)
        mode = real.stat().st_mode
    except (OSError, RuntimeError) as error:
        raise BundleCorrupt(f"{name} is missing", hint="copy or build the bundle again") from error
    if not real.is_relative_to(root.resolve()):
        raise BundleCorrupt(f"{name} is a link out of the bundle", reason=f"it leads to {real}")
    if not stat.S_ISREG(mode):
        raise BundleCorrupt(f"{name} is no regular file")
    return real


def place(bundle: Bundle, name: str) -> tuple[Path, tensor_file.Part]:
    """The file on disk in which a file that the manifest names lies, and where in it.

    Raises:
        BundleCorrupt: As `locate`.
    """
    if bundle.begins is None:
        return locate(bundle.path, name), tensor_file.WHOLE
    return bundle.path.resolve(), (bundle.begins[name], bundle.manifest.files[name].size_bytes)


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    """A file that was located, open for reading; `BundleCorrupt` where it cannot be read."""
    name = path.name
    try:
        # Were it a pipe by now, a plain open would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:  # noqa: PTH123  # a Path opens by a name
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BundleCorrupt(f"{name} is no regular file")
            yield file
    except OSError as error:
        raise BundleCorrupt(f"{name} cannot be read", reason=str(error)) from error
    except MemoryError as error:
        raise BundleCorrupt(f"{name} is larger than this machine's memory") from error


def is_in_place(bundle: Bundle) -> bool:
    """Whether the manifest on disk still is the one that was read; what it names is not looked at.

    Raises:
        BundleCorrupt: It is missing or cannot be read.
    """
    wanted = manifests.write(bundle.manifest)
    if bundle.begins is None:
        path, begins, most = locate(bundle.path, manifests.FILE_NAME), 0, len(wanted) + 1
    else:
        path, begins, most = bundle.path.resolve(), bundle.begins[manifests.FILE_NAME], len(wanted)
    with _opened(path) as file:
        file.seek(begins)
        return file.read(most) == wanted


def names(root: Path) -> Iterator[str]:
    """Every file that lies below a folder, the manifest left out."""
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_dir():
            name = path.relative_to(root).as_posix()
            if name != manifests.FILE_NAME:
                yield name


def require_as_named(bundle: Bundle) -> None:
    """Check that a folder holds what its manifest names and nothing else, without a look into the files.

    Hidden files count where they are code: others are a mount's or a file system's (`..data`, `.nfs0123`).

    Raises:
        BundleCorrupt: Something was added, or is no regular file of the bundle.
    """
    for name in bundle.manifest.files if bundle.begins is None else ():
        if os.path.lexists(bundle.path / name):  # those of other targets need not be there
            locate(bundle.path, name)
    if added := next(_added(bundle), None):
        raise BundleCorrupt(
            f"{added} was added to the bundle",
            reason="its manifest does not name it",
            hint="move it elsewhere, or copy or build the bundle again",
        )


def _added(bundle: Bundle) -> Iterator[str]:
    named = {manifests.FILE_NAME, *bundle.manifest.files}
    if bundle.begins is not None:
        return  # an archive with more is refused when it is opened
    folders = {str(parent) for name in named for parent in PurePosixPath(name).parents}

    def below(folder: str) -> Iterator[str]:
        with os.scandir(bundle.path / folder) as entries:
            for entry in entries:
                name = str(PurePosixPath(folder, entry.name))
                if name in folders and entry.is_dir():
                    yield from below(name)
                elif name not in named and (
                    not entry.name.startswith(".") or manifests.CODE.search(entry.name)
                ):
                    yield name

    try:
        yield from below(".")
    except OSError as error:
        raise BundleCorrupt(f"{bundle.path} cannot be read", reason=str(error)) from error


def require_whole(bundle: Bundle) -> None:
    """Check that a bundle holds the files that were packed, and no others.

    Raises:
        BundleCorrupt: A file differs, is missing, or was added; the reason lists all of them.
    """
    problems = []
    for name in bundle.manifest.files:
        try:
            content(bundle, name)
        except BundleCorrupt as error:
            problems.append(error.message)
    problems += [f"{name} was added" for name in sorted(_added(bundle))]
    if problems:
        raise BundleCorrupt(
            problems[0] if len(problems) == 1 else f"{len(problems)} files of the bundle are not as packed",
            reason="\n".join(problems),
            hint="copy or build the bundle again",
        )
