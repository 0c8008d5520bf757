"""Checks a bundle's every byte against its manifest, and the manifest against itself. Torch-free."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from aotpipe.errors import BundleCorrupt
from aotpipe.runtime.bundle import files
from aotpipe.runtime.bundle.manifest import Manifest


def verify(path: str | PathLike[str]) -> Manifest:
    """Check that a bundle holds the files that were packed, and no others.

    Returns:
        The manifest.

    Raises:
        BundleNotFound: There is no bundle.
        UnsupportedSchema: It is of another schema.
        BundleCorrupt: A file differs, is missing, or was added; the reason lists all of them.
    """
    root = Path(path)
    manifest = files.read_manifest(root)
    problems = []
    for name in manifest.files:
        try:
            files.content(root, manifest, name)
        except BundleCorrupt as error:
            problems.append(error.message)
    problems += [f"{name} was added" for name in files.names(root) if name not in manifest.files]
    if problems:
        raise BundleCorrupt(
            problems[0] if len(problems) == 1 else f"{len(problems)} files of the bundle are not as packed",
            reason="\n".join(problems),
            hint="copy or build the bundle again",
        )
    return manifest
