"""Compiles StableHLO with XLA's own compilers, in a process of its own under a time and a memory limit.

`compile(lowered, target)` gives a `Compiled` that holds one executable for each program of the module, with
the exact version of jaxlib and, for CPUs, the features that the code was made for. Neither torch nor jax is
imported here.

Raises:
    CompileFailed, CompilerCrashed, CompileTimeout, CompilerOutOfMemory: With the compiler's own words.
    DeviceMemoryExceeded: A program is too large for its chip; with its largest tensors.
    TargetError: What the target takes is not installed.
"""

# ruff: noqa: ARG001  # what every compiler takes

from __future__ import annotations

import json
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aotpipe.backends.compiling import DEFAULT_TIMEOUT_S, backend_digest, limit_error
from aotpipe.backends.xla import tool
from aotpipe.backends.xla.estimate import chips
from aotpipe.backends.xla.estimate.figures import COLLECTIVES
from aotpipe.core.stages import Compiled, CompileStats, Lowered, Partition
from aotpipe.core.targets import Target
from aotpipe.errors import CompileError, CompileFailed, CompilerCrashed
from aotpipe.runtime import installed, process, store, toolchain
from aotpipe.runtime.xla import container

_PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "cpu": ("jaxlib",),
    "cuda": ("jaxlib", "jax-cuda12-pjrt", "jax-cuda12-plugin", "nvidia-cuda-nvcc-cu12"),
    "tpu": ("jaxlib", "libtpu"),
}
# libtpu looks for a TPU, asks the cloud what machine this is, and allows itself once per machine.
_ENVIRONMENT: Final = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
}
_FEATURES: Final = re.compile(rb"\+64bit(?:,[+-][\w.-]+)*")
# Of a program's entry in the module's index what the runtime reads, too.
_INDEX_KEYS: Final = ("entry_point", "sizes", "padded", "cut", "weights", "asserts", "spread")
_TAIL_LINES: Final = 12
_QUICK: Final = "compiled with the least effort: libtpu takes minutes over convolutions of float32 otherwise"


def compile(  # noqa: A001  # the stage's name; nothing here needs the builtin
    lowered: Lowered,
    target: Target,
    *,
    extra_flags: Sequence[str] = (),
    fallback: None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    memory_limit_bytes: int | None = None,
    log_dir: Path | None = None,
) -> Compiled:
    """Compile every program of a module for one target.

    The arguments are those of IREE's compiler; XLA has no more cautious flags, and leaves no module where it
    fails.

    Raises:
        CompileFailed, CompilerCrashed, CompileTimeout, CompilerOutOfMemory: How the compiler ended.
        DeviceMemoryExceeded: A program needs more memory than its chip has.
        DiskFull: The compiler's files have no space.
        TargetError: What the target's compiler needs is not installed.
    """
    packages = _PACKAGES[target.device]
    installed.require("jax", *packages)
    limit = process.default_memory_limit() if memory_limit_bytes is None else memory_limit_bytes
    flags = (*target.row.flags, *extra_flags)
    index, parts = container.read(lowered.module)
    by_module = {program["modules"][target.device]: program for program in index["programs"]}
    wanted = sorted(by_module)
    mesh = index.get("mesh", {"devices": 1})
    # What a chip of a mesh has of them only its compiler tells.
    for program in index["programs"] if "mesh" not in index else ():
        chips.require_room(program, target, lowered.largest.get(chips.name_of(program), ()))
    with store.workspace("compile") as folder:
        modules = {key: parts[key] for key in wanted}
        outcome = _run(folder, target, flags, modules, mesh, timeout_s, limit)
        if outcome.ending != "exited" or outcome.code != 0:
            log = _log(log_dir, target, lowered, outcome)
            raise limit_error("XLA", str(target), outcome, timeout_s, limit, log) or _error(
                outcome, target, lowered, by_module, log
            )
        made = {key: (folder / f"{key}.bin").read_bytes() for key in wanted}
        figures = {key: json.loads((folder / f"{key}.json").read_bytes()) for key in wanted}
        quick = json.loads((folder / tool.QUICK).read_bytes())
    features = _features(target, made.values())
    versions = _versions(target)
    programs, estimates = [], []
    for program in index["programs"]:
        key = program["modules"][target.device]
        kept = {name: program[name] for name in _INDEX_KEYS if name in program}
        programs.append({**kept, "executable": key, "results": figures[key].get("results", [])})
        if "matmuls" in figures[key]:
            estimates.append(chips.estimate(program, figures[key], chips.chip(target), mesh["devices"]))
    content = {
        "platform": target.device,
        "toolchain": versions,
        "host_features": list(features),
        "devices": mesh["devices"],
        "programs": programs,
    }
    return Compiled(
        target=target,
        payload=container.write(content, made),
        dialect=lowered.dialect,
        flags=flags,
        toolchain=versions,
        host_features=features,
        digest=digest(lowered, target, extra_flags),
        stats=CompileStats(wall_s=outcome.wall_s, peak_rss_bytes=outcome.peak_rss_bytes),
        notes=(*([_QUICK] if quick else []), *filter(None, [lowered.remarks.get(target.device)])),
        estimates=tuple(estimates),
        partition=_partition(mesh, figures.values()) if "mesh" in index else None,
    )


def digest(lowered: Lowered, target: Target, extra_flags: Sequence[str] = (), fallback: None = None) -> str:
    """SHA-256 of everything that can change `compile`'s payload, known before it runs."""
    key = {
        "module": lowered.digest,
        "target": str(target),
        "flags": (*target.row.flags, *extra_flags),
        "toolchain": _versions(target),
        "source": backend_digest("xla"),
        "host": toolchain.host_features() if target.device == "cpu" else [],
    }
    return store.digest(key)


def fallbacks_for_numbers(
    lowered: Lowered, target: Target, extra_flags: Sequence[str] = ()
) -> tuple[Any, ...]:
    """What to compile with where a program computes wrong numbers: XLA has nothing more cautious."""
    return ()


def _versions(target: Target) -> dict[str, str]:
    packages = _PACKAGES[target.device]
    installed.require(*packages)
    return {package: toolchain.version_of(package) or "" for package in packages}


def _run(
    folder: Path,
    target: Target,
    flags: Sequence[str],
    modules: Mapping[str, bytes],
    mesh: Mapping[str, Any],
    timeout_s: float,
    limit: int,
) -> process.Outcome:
    for key, module in modules.items():
        (folder / f"{key}.mlir").write_bytes(module)
    chip = chips.chip(target)
    request = {
        "platform": target.device,
        "topology": chips.topology(target, mesh["devices"]),
        "devices": mesh["devices"],
        "config": chip.config if chip else "",
        "modules": list(modules),
    }
    (folder / tool.REQUEST).write_text(json.dumps(request), encoding="utf-8")
    return process.run(
        # -P: a file of this folder must not stand in for a module that the tool imports.
        [sys.executable, "-P", "-m", tool.__name__],
        folder=folder,
        timeout_s=timeout_s,
        memory_limit_bytes=limit,
        env={**_ENVIRONMENT, "PYTHONPATH": process.python_path(), "XLA_FLAGS": " ".join(flags)},
    )


def _partition(mesh: Mapping[str, Any], figures: Iterable[Mapping[str, Any]]) -> Partition:
    """How the programs are spread, with the collectives of all of them."""
    counts = sum((Counter(counted.get("collectives", {})) for counted in figures), Counter[str]())
    return Partition(
        mesh=mesh["axes"],
        devices=mesh["devices"],
        splits=mesh["splits"],
        collectives={kind: counts[kind] for kind in COLLECTIVES if counts[kind]},
    )


def _features(target: Target, executables: Any) -> tuple[str, ...]:
    """The CPU features that the executables name, as far as a host can be asked for them."""
    if target.device != "cpu":
        return ()
    arch, *present = toolchain.host_features()
    named: set[str] = set()
    for executable in executables:
        found = _FEATURES.search(executable)
        if found is None:
            # Nothing says what is used: all that was there may be.
            return (arch, *present)
        named.update(word[1:] for word in found[0].decode().split(",") if word.startswith("+"))
    return (arch, *(feature for feature in present if feature in named))


def _error(
    outcome: process.Outcome, target: Target, lowered: Lowered, programs: Mapping[str, Any], log: str
) -> CompileError:
    if outcome.ending == "exited" and outcome.code == tool.REFUSED:
        _, _, words = outcome.stderr.rpartition("aotpipe: ")
        name, _, said = words.partition("\n")
        if program := programs.get(name.strip()):
            largest = lowered.largest.get(chips.name_of(program), ())
            if too_large := chips.overflow(words, program, target, largest, log):
                return too_large
        reason = "\n".join(said.splitlines()[:_TAIL_LINES])
        return CompileFailed(f"XLA refused the program for {target}", reason=reason, log=log)
    tail = "\n".join(outcome.stderr.strip().splitlines()[-_TAIL_LINES:])
    how = (
        f"died by {signal.Signals(outcome.code).name}"
        if outcome.ending == "signalled"
        else f"ended with code {outcome.code}"
    )
    return CompilerCrashed(f"XLA's compiler {how} for {target}", reason=tail, log=log)


def _log(log_dir: Path | None, target: Target, lowered: Lowered, outcome: process.Outcome) -> str:
    if log_dir is None:
        return ""
    log_dir.mkdir(parents=True, exist_ok=True)
    path = log_dir / f"xla-compile-{target}-{lowered.digest}.log"
    path.write_text(outcome.stderr, encoding="utf-8")
    return str(path)
