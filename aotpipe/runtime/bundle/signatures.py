"""Signs bundles, and checks signatures: OpenSSF model-signing with a pair of keys, without a network.

The signature lies beside the bundle, in `BUNDLE.sig`, and names each of its files with the SHA-256. A check
holds these against the manifest that was read, and `load` holds each file against the manifest when it reads
it: no file is read for the check alone, and none can be changed after it. `model_signing verify key BUNDLE`
takes the same signature, and `trusted` one that `model_signing sign key BUNDLE` wrote. Torch-free.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from os import PathLike
from pathlib import Path
from typing import Any, Final

from aotpipe.errors import BundleError, SignatureInvalid
from aotpipe.runtime.bundle import files
from aotpipe.runtime.bundle import manifest as manifests
from aotpipe.runtime.bundle.files import Trusted
from aotpipe.runtime.bundle.manifest import Manifest
from aotpipe.runtime.installed import is_installed
from aotpipe.runtime.store import typed_os_errors

# More than the names and digests of a manifest take; JSON takes some hundred MB to read then, not GBs.
_MAX_BYTES: Final = 4 << 20
_MOST_SAID: Final = 500


class _Digests:
    """What model-signing asks for the digests of a model's files; they are known already."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    def hash(self, *_: object, **__: object) -> Any:
        from hashlib import sha256

        from model_signing import manifest as signed
        from model_signing._hashing.hashing import Digest

        kind = signed.SerializationType.from_args(
            {"method": "files", "hash_type": "sha256", "allow_symlinks": False}
        )
        digests = {name: bytes.fromhex(file.sha256) for name, file in self._manifest.files.items()}
        digests[manifests.FILE_NAME] = sha256(manifests.write(self._manifest)).digest()
        items = [kind.new_item(name, Digest("sha256", digest)) for name, digest in digests.items()]
        return signed.Manifest(self._manifest.name, items, kind)

    def add_ignored_paths(self, **_: object) -> None:
        """A signature may name files that it does not speak of; a bundle has none beside the named ones."""


def beside(path: str | PathLike[str]) -> Path:
    """Where the signature of a bundle lies, unless it is told otherwise."""
    return Path(f"{os.path.abspath(path)}.sig")  # noqa: PTH100  # a link to a bundle has one of its own


def sign(
    path: str | PathLike[str], key: str | PathLike[str], *, signature: str | PathLike[str] | None = None
) -> Path:
    """Sign a bundle that is as it was packed.

    Args:
        path: The bundle.
        key: A file of PEM with the private key, of an elliptic curve (NIST P-256, P-384, P-521).
        signature: The file to write; `BUNDLE.sig` beside the bundle where None.

    Returns:
        The signature's path.

    Raises:
        BundleError: There is no bundle, or its files are not those that were packed.
        SignatureInvalid: The key cannot be used.
        StoreError: The signature cannot be written.
    """
    _require_installed()
    from model_signing import signing

    manifest = verify(path)
    out = beside(path) if signature is None else Path(signature)
    work = out.with_name(f".{out.name}.{os.getpid()}.partial")
    with typed_os_errors("the signature", out.parent):
        try:
            try:
                config = signing.Config().use_elliptic_key_signer(private_key=os.fspath(key))
            except Exception as error:  # whatever is in the file
                raise _unusable(key, error) from error
            config.set_hashing_config(_Digests(manifest)).sign(os.fspath(path), work)
            work.replace(out)
        finally:
            work.unlink(missing_ok=True)
    return out


def trusted(
    path: str | PathLike[str], key: str | PathLike[str], *, signature: str | PathLike[str] | None = None
) -> Trusted:
    """Open a bundle that was signed with the private key of a pair.

    What it gives stands for the manifest that was checked, in all that takes a bundle's path.

    Args:
        path: The bundle.
        key: A file of PEM with the public key.
        signature: The signature's file; `BUNDLE.sig` beside the bundle where None.

    Raises:
        BundleError: There is no bundle, or its manifest is none.
        SignatureInvalid: There is no signature of it by this key, or the key cannot be used.
    """
    _require_installed()
    from model_signing import verifying

    bundle = files.open_bundle(path)
    found = beside(path) if signature is None else Path(signature)
    try:
        config = verifying.Config().use_elliptic_key_verifier(public_key=os.fspath(key))
    except Exception as error:
        raise _unusable(key, error) from error
    if not found.is_file() or found.stat().st_size > _MAX_BYTES:
        raise SignatureInvalid(
            f"the bundle at {bundle.path} has no signature",
            reason=f"{found} is no file, or too large a one",
            hint="name its signature's file, or sign it: `aotpipe sign BUNDLE --key PRIVATE_KEY`",
        )
    try:
        with redirect_stdout(sys.stderr):  # it prints warnings there
            config.set_hashing_config(_Digests(bundle.manifest)).verify(bundle.path, found)
    except Exception as error:  # a forged file makes the libraries below raise what they like
        raise SignatureInvalid(
            f"the signature at {found} is not of this bundle and key",
            reason=(str(error) or type(error).__name__)[:_MOST_SAID],
            hint="do not load it; get the bundle and its signature anew from whoever signed it",
        ) from error
    return Trusted(bundle.path, bundle.manifest, begins=bundle.begins)


def verify(
    path: str | PathLike[str],
    key: str | PathLike[str] | None = None,
    *,
    signature: str | PathLike[str] | None = None,
) -> Manifest:
    """Check that a bundle holds the files that were packed, and no others; with `key` its signature, too.

    Returns:
        The manifest.

    Raises:
        BundleNotFound: There is no bundle.
        UnsupportedSchema: It is of another schema.
        BundleCorrupt: A file differs, is missing, or was added; the reason lists all of them.
        SignatureInvalid: As `trusted`.
    """
    bundle = files.open_bundle(path) if key is None else trusted(path, key, signature=signature)
    files.require_whole(bundle)
    return bundle.manifest


def _require_installed() -> None:
    if missing := [name for name in ("model_signing", "OpenSSL") if not is_installed(name)]:
        raise BundleError(
            "bundles cannot be signed, nor signatures checked, on this host",
            reason=f"the module {missing[0]} is not installed",
            hint="pip install 'aotpipe[sign]'",
        )


def _unusable(key: object, error: Exception) -> SignatureInvalid:
    return SignatureInvalid(
        f"the key at {key} cannot be used",
        reason=f"{type(error).__name__}: {error}"[:_MOST_SAID],
        hint="it is PEM of a key on NIST P-256, P-384 or P-521, without a password; docs/bundle.md makes one",
    )
