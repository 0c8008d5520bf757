"""What a bundle's `manifest.json` says, as frozen values.

    schema        1
    name          of the model
    entry_points  name -> signature, asserts
    weights       names of the weights; `state/NAME` in the same files is an initial state
    programs      target, status, reason, file, flags, toolchain, host features, parity, estimates
    findings      what a user should know of the build
    parts         of a model with islands of Python: signatures and asserts of the programs' segments, and the
                  chain of steps of each entry point; absent otherwise
    quantization  how linear layers are quantized; absent where none is
    precision     what is computed in fewer bits; absent where nothing is
    materials     SHA-256 of what the programs were made of: source/FILE, exported/ENTRY_POINT,
                  module/COMPILER; older releases did not say so
    modules       what the compilers were given, without the weights; absent where that is not kept
    arrays        dtype and shape of each array in the files of weights; older releases did not say so
    files         every other file of the bundle: SHA-256 and size
    digest        SHA-256 of all the above

`read(write(manifest)) == manifest`, and the bytes are the only ones for that value: sorted keys (entry points
stand in the spec's order), no times, no paths. So a byte that differs anywhere is found.

Raises `BundleCorrupt`, `UnsupportedSchema`. Torch-free.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aotpipe.core.estimate import Estimate
from aotpipe.core.precision import Precision, Quantization
from aotpipe.core.serialization import OMIT_EMPTY, from_json, to_json
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Dialect, Finding, Partition, Schedule, Status
from aotpipe.errors import BundleCorrupt, UnsupportedSchema
from aotpipe.runtime.bundle import limits
from aotpipe.runtime.islands.chain import Parts, require_chains

SCHEMA: Final = 1
FILE_NAME: Final = "manifest.json"
WEIGHTS: Final = "weights"
"""The stem of the names of files of weights: one is `weights.safetensors`, for several see `write_shards`."""
WEIGHT_INDEX: Final = "weights.safetensors.index.json"
"""In which of several files an array lies, as other readers of the format ask; aotpipe does not read it."""
GOLDENS: Final = "goldens.safetensors"
TOKENIZER: Final = "tokenizer.json"
TOKENIZER_CONFIG: Final = "tokenizer_config.json"
"""Where a chat's template and the names of special tokens are; both files only of models of text."""
STATE_PREFIX: Final = "state/"
OF_COMPILED: Final = "flags toolchain host_features digest estimates dialect partition schedule"
"""The attributes that a program shares with the `Compiled` that it was packed from."""

_WEIGHTS: Final = re.compile(rf"{WEIGHTS}(-\d{{5}}-of-\d{{5}})?\.safetensors", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
# Of what is wrong: it may quote the manifest.
_MOST_SAID: Final = 500
# What a file that is no manifest makes json and this module raise.
_MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError)
# One or more plain names: nothing absolute, no `..`, no drive, no backslash, nothing hidden.
_PATH: Final = re.compile(r"\w[\w.+-]*(/\w[\w.+-]*)*", re.ASCII)

CODE: Final = re.compile(r"\.(py[cdowi]?|pth|so(\.[\w.]+)?|dylib|dll)$")
"""The names of files that Python, or the loader of shared libraries, takes; a bundle has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPoint:
    """One way to call the model; `asserts` has a message per assert result of its programs."""

    signature: Signature
    asserts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParitySummary:
    """How a program compared with the reference; the last fields tell of the worst output.

    Attributes:
        ratio: The largest share of the allowed error that an element used; 1 passes.
    """

    calls: int
    rule: str
    entry_point: str
    case: str
    output: str
    ratio: float
    max_abs_error: float
    eager_abs_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One target's program.

    Attributes:
        status: `executed` (it ran where it was built, at parity), `unproven` (it ran, and no
            output says whether it is right), `compiled` (it could not run there, and `reason` says why) or
            `failed` (there is no file; `stage` and `reason` say why).
        file: Its path in the bundle; empty where it failed.
        flags: Every compiler flag, in order.
        toolchain: Package -> exact version.
        host_features: CPU features that a host must have.
        digest: Of everything that could change the program.
        estimates: What its parts will cost on a chip that was not there; absent where nothing says it.
        dialect: What it was compiled from; None in bundles of releases that did not say so.
        partition: How it is spread over several devices; absent for one.
        schedule: What it does on the device; absent where the compiler does not say it.
        variants: Programs for CPUs that have more than the target asks for, each taken where it can run, the
            best first; absent where there is none. They have no variants of their own.
    """

    target: str
    status: Status
    reason: str = ""
    stage: str = ""
    file: str = ""
    flags: tuple[str, ...] = ()
    toolchain: Mapping[str, str] = field(default_factory=dict)
    host_features: tuple[str, ...] = ()
    digest: str = ""
    notes: tuple[str, ...] = ()
    parity: ParitySummary | None = None
    # What older releases did not write is not written for their bundles, whose digest stays what it is.
    estimates: tuple[Estimate, ...] = field(default=(), metadata=OMIT_EMPTY)
    dialect: Dialect | None = field(default=None, metadata=OMIT_EMPTY)
    partition: Partition | None = field(default=None, metadata=OMIT_EMPTY)
    schedule: Schedule | None = field(default=None, metadata=OMIT_EMPTY)
    variants: tuple[Program, ...] = field(default=(), metadata=OMIT_EMPTY)

    @property
    def all(self) -> tuple[Program, ...]:
        """The program and its variants."""
        return (self, *self.variants)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file as it was packed."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """What the programs of a class of devices were compiled from; the fields are those of a `Lowered`."""

    file: str
    dialect: Dialect
    entry_points: tuple[str, ...]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A bundle's manifest; see the module."""

    name: str
    entry_points: Mapping[str, EntryPoint]
    weights: tuple[str, ...]
    programs: tuple[Program, ...]
    findings: tuple[Finding, ...]
    files: Mapping[str, File]
    parts: Parts | None = field(default=None, metadata=OMIT_EMPTY)
    quantization: Quantization | None = field(default=None, metadata=OMIT_EMPTY)
    precision: Precision | None = field(default=None, metadata=OMIT_EMPTY)
    modules: Mapping[str, Module] = field(default_factory=dict, metadata=OMIT_EMPTY)
    arrays: Mapping[str, str] = field(default_factory=dict, metadata=OMIT_EMPTY)
    materials: Mapping[str, str] = field(default_factory=dict, metadata=OMIT_EMPTY)

    @property
    def weight_files(self) -> tuple[str, ...]:
        """The files of weights and initial state, in order."""
        return tuple(sorted(filter(is_weights, self.files)))

    @property
    def signatures(self) -> dict[str, Signature]:
        """The signature of each entry point."""
        return {name: entry.signature for name, entry in self.entry_points.items()}

    @property
    def asserts(self) -> dict[str, tuple[str, ...]]:
        """The messages of the asserts of each entry point."""
        return {name: entry.asserts for name, entry in self.entry_points.items()}

    @property
    def digest(self) -> str:
        """SHA-256 of the content, and so of every file of the bundle."""
        return _digest(_to_json(self))


def is_weights(name: str) -> bool:
    """Whether a file of that name holds weights."""
    return _WEIGHTS.fullmatch(name) is not None


def write(manifest: Manifest) -> bytes:
    """The bytes of a manifest's file."""
    content = _to_json(manifest)
    return _dump(dict(sorted({**content, "digest": _digest(content)}.items())))


def read(data: bytes) -> Manifest:
    """Read what `write` gave.

    Raises:
        UnsupportedSchema: It is of another schema.
        BundleCorrupt: It is not the file that was written.
    """
    try:
        content = limits.parsed(data)
        schema = content["schema"]
    except _MALFORMED as error:
        raise _not_one(error) from error
    if schema != SCHEMA:
        raise UnsupportedSchema(
            f"the bundle is of schema {repr(schema)[:40]}",
            reason=f"this aotpipe reads schema {SCHEMA}",
            hint="use the aotpipe that built it, or build it again",
        )
    try:
        rest = {key: value for key, value in content.items() if key != "digest"}
        if _dump(content) != data or content.get("digest") != _digest(rest):
            raise BundleCorrupt(
                f"{FILE_NAME} was changed",
                reason="its digest does not match",
                hint="copy or build the bundle again",
            )
        return _from_json(content)
    except _MALFORMED as error:
        raise _not_one(error) from error


def _not_one(error: Exception) -> BundleCorrupt:
    return BundleCorrupt(f"{FILE_NAME} is not a manifest", reason=str(error)[:_MOST_SAID])


def _from_json(content: dict[str, Any]) -> Manifest:
    manifest = from_json(Manifest, content)
    signatures = [manifest.signatures, manifest.parts.signatures if manifest.parts else {}]
    named = [each.file for program in manifest.programs for each in program.all]
    named += [module.file for module in manifest.modules.values()]
    limits.require(
        [*manifest.weights, *manifest.files, *manifest.materials, *signatures[0], *signatures[1]],
        [signature for each in signatures for signature in each.values()],
        programs=len(named),
    )
    if manifest.parts:
        require_chains(manifest.parts, manifest.signatures)
    unsafe = [name for name in manifest.files if not _PATH.fullmatch(name) or name == FILE_NAME]
    unsafe += filter(CODE.search, manifest.files)
    unsafe += [name for name, file in manifest.files.items() if not _DIGEST.fullmatch(file.sha256)]
    unsafe += [name for name in named if name and name not in manifest.files]
    if unsafe:
        raise ValueError(f"it names what is no file of a bundle: {unsafe[0]!r}")
    return manifest


def _to_json(manifest: Manifest) -> dict[str, Any]:
    plain = to_json(manifest, derived=False)
    for finding in plain["findings"]:
        # Findings of manifests name the parts of a line; what reports and commands write is a pair.
        if where := finding["where"]:
            finding["where"] = {"path": where[0], "line": where[1]}
    content = json.loads(json.dumps({"schema": SCHEMA, **plain}, sort_keys=True))
    # Their order is the spec's: the last one is the one that runs most.
    entries = content["entry_points"]
    return {**content, "entry_points": {name: entries[name] for name in manifest.entry_points}}


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_dump(content)).hexdigest()


def _dump(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()
