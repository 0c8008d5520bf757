"""Bundles: a model's programs, weights and recorded calls in one folder or archive, checked byte by byte.

`pack` writes one, `archive` makes a file of it, `load` gives a runner, `selftest` runs the recorded calls,
`verify` checks every file, `sign` signs it, `trusted` checks the signature, `attest` says what it was made
of, `open_bundle` reads the manifest, `push` and `pull` speak to registries, `package`
writes what other servers load.
A host that has only the runtime can do all of it: neither torch nor a compiler is imported.
"""

from __future__ import annotations

from aotpipe.runtime.bundle.attestations import attest
from aotpipe.runtime.bundle.files import Bundle, open_bundle
from aotpipe.runtime.bundle.load import load
from aotpipe.runtime.bundle.manifest import Manifest, Program
from aotpipe.runtime.bundle.oci import pull, push
from aotpipe.runtime.bundle.pack import archive, pack, require_replaceable
from aotpipe.runtime.bundle.packages import package
from aotpipe.runtime.bundle.selftest import SelfTest, TargetResult, selftest, steps
from aotpipe.runtime.bundle.signatures import sign, trusted, verify

__all__ = [
    "Bundle",
    "Manifest",
    "Program",
    "SelfTest",
    "TargetResult",
    "archive",
    "attest",
    "load",
    "open_bundle",
    "pack",
    "package",
    "pull",
    "push",
    "require_replaceable",
    "selftest",
    "sign",
    "steps",
    "trusted",
    "verify",
]
