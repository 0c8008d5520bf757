"""A small bundle and what it is made of; its programs are compiled from MLIR written by hand."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

from aotpipe.core.stages import Compiled, CompileStats, Finding, Parity, ParityCase, Validated
from aotpipe.core.targets import Target
from aotpipe.errors import CompileFailed, SourceLine
from aotpipe.runtime import bundle, tensor_file
from aotpipe.runtime.bundle import manifest as manifests
from aotpipe.runtime.goldens import Golden
from aotpipe.runtime.toolchain import host_features
from tests import programs

VMVX = "iree-vmvx"
HOST = "iree-cpu-host"
_FOLDER = tempfile.TemporaryDirectory()
TOOLCHAIN = {"aotpipe": "0.1.0", "iree-base-compiler": "3.13.0"}


def parity(*, ratio=0.25):
    case = ParityCase(
        entry_point="forward",
        case="seed 0",
        output="y",
        max_abs_error=1e-7,
        eager_abs_error=2e-7,
        ratio=ratio,
        worst_index=(0, 1),
        got=1.0,
        want=1.0,
    )
    return Parity(cases=(case,), calls=3, rule="4 x eager")


def validated(target=VMVX, backend="vmvx", *, needs=None, toolchain=None):
    if needs is None:
        needs = host_features() if target == HOST else ()
    return Validated(
        compiled=Compiled(
            target=Target.parse(target),
            payload=programs.compiled("accumulate", backend),
            flags=("--iree-hal-target-device=local",),
            toolchain=TOOLCHAIN if toolchain is None else toolchain,
            host_features=needs,
            digest="ab" * 32,
            stats=CompileStats(wall_s=1.5, peak_rss_bytes=10**8),
        ),
        status="executed",
        parity=parity(),
    )


def goldens():
    ones = np.ones((2, 4), np.float32)
    ids = np.array([0, 3])
    weight = np.arange(4, dtype=np.float32)
    first = {"y": np.stack([weight, weight]), "positive": np.array([False, True])}
    second = {"y": first["y"] + 2, "positive": first["positive"]}
    allowed = {"y": (1e-6, 1e-6)}
    inputs = {"x": ones, "ids": ids}
    return (
        Golden(
            entry_point="forward", case="seed 0", reset=True, inputs=inputs, outputs=first, allowed=allowed
        ),
        Golden(
            entry_point="forward",
            case="seed 0/1",
            reset=False,
            inputs=inputs,
            outputs=second,
            allowed=allowed,
        ),
        Golden(
            entry_point="decode",
            case="seed 0/2",
            reset=False,
            inputs={"x": ones[0]},
            outputs={"count": np.array(2), "same": ones[0]},
            allowed={},
        ),
    )


def findings():
    return (
        Finding(
            severity="warning",
            code="unused-input",
            message="`mask` is never read",
            where=SourceLine("/home/somebody/model.py", 7),
        ),
    )


def weight_files(*, most_bytes=tensor_file.SHARD_BYTES, **weights):
    """The files of the sample's weights, of some in place of its own."""
    folder = Path(tempfile.mkdtemp(dir=_FOLDER.name))
    state = {manifests.STATE_PREFIX + name: array for name, array in programs.accumulate_state().items()}
    arrays = {**programs.accumulate_weights(), **state, **weights}
    return tensor_file.write_shards(arrays, folder, manifests.WEIGHTS, most_bytes=most_bytes)


def contents(**changes):
    given = {
        "name": "accumulate",
        "signatures": programs.ACCUMULATE,
        "asserts": programs.ACCUMULATE_ASSERTS,
        "weights": weight_files(),
        "programs": [validated(), (Target.parse("iree-cpu-x86_64"), CompileFailed("it crashed"))],
        "goldens": goldens(),
        "findings": findings(),
    }
    given |= changes
    results = (
        each if isinstance(each, tuple) else (each.compiled.target, each) for each in given["programs"]
    )
    return {**given, "programs": dict(results)}


def packed(out, **changes):
    return bundle.pack(out, **contents(**changes))


def call(batch=2, value=1.0):
    return {"x": np.full((batch, 4), value, np.float32), "ids": np.arange(batch)}


def rewrite_manifest(root: Path, change) -> None:
    """Change a manifest as a forger would: with a digest that fits."""
    path = root / manifests.FILE_NAME
    content = json.loads(path.read_bytes())
    change(content)
    content.pop("digest")
    content["digest"] = manifests._digest(content)
    path.write_bytes(manifests._dump(content))


def flip(path: Path, offset: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def keys(folder: Path, name: str) -> tuple[Path, Path]:
    """A private and a public key, in files."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public
