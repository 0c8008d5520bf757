"""Bundles: a model's programs, weights and recorded calls in one folder, checked byte by byte.

`pack` writes one, `load` gives a runner, `selftest` runs the recorded calls, `verify` checks every file,
`open_bundle` reads the manifest. A host that has only the runtime can do all of it: neither torch nor a
compiler is imported.
"""

from __future__ import annotations

from aotpipe.bundle.load import load
from aotpipe.bundle.manifest import Manifest, Program
from aotpipe.bundle.pack import Bundle, open_bundle, pack, require_replaceable
from aotpipe.bundle.selftest import Answer, SelfTest, TargetResult, selftest
from aotpipe.bundle.verify import verify

__all__ = [
    "Answer",
    "Bundle",
    "Manifest",
    "Program",
    "SelfTest",
    "TargetResult",
    "load",
    "open_bundle",
    "pack",
    "require_replaceable",
    "selftest",
    "verify",
]
