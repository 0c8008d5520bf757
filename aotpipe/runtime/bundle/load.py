"""Loads a bundle's program. Neither torch nor a compiler is imported.

Raises:
    BundleNotFound, UnsupportedSchema, BundleCorrupt: The bundle cannot be read.
    NoProgram: It has no program for that target.
    IncompatibleHost: The program cannot run on this host, and what it lacks.
    MissingWeight: A weight that the program needs is not there.
    SignatureInvalid: It is not signed with the key that is asked for.
    IslandNotFound: A Python function that a chain needs is not allowed, or not there.
    ProgramCrashed: With `check`, the program died or hung in another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from os import PathLike
from typing import Final, Literal

from aotpipe.core.dtypes import Array
from aotpipe.core.targets import Target
from aotpipe.errors import BundleCorrupt, IncompatibleHost, MissingWeight, NoProgram, UnknownTarget
from aotpipe.runtime import loading, toolchain
from aotpipe.runtime.bundle import files, recorded, signatures
from aotpipe.runtime.bundle.files import Bundle, Trusted
from aotpipe.runtime.bundle.manifest import Manifest, Program
from aotpipe.runtime.islands.chain import Allowed
from aotpipe.runtime.islands.chain_runner import load_parts
from aotpipe.runtime.loading import Runner

# Of the programs that can run here the one of the first of these is taken: those made for this very machine
# are the fastest, bytecode is the slowest. A GPU's is taken where it is asked for, or nothing else can run.
_PREFERENCE: Final = ("cpu-host", "cpu-x86_64_v4", "cpu-x86_64_v3", "cpu-x86_64_v2", "cpu", "vmvx")
_COMPILER: Final = "iree-base-compiler"
_RUNTIME: Final = "iree-base-runtime"


def load(
    path: str | PathLike[str],
    target: str | Target | None = None,
    *,
    variants: bool = True,
    verify: bool = True,
    check: Literal["goldens"] | None = None,
    driver: str = "auto",
    threads: int | None = None,
    islands: Allowed = (),
    require_signature: str | PathLike[str] | None = None,
    signature: str | PathLike[str] | None = None,
) -> Runner:
    """Load a program of a bundle.

    Args:
        path: The bundle's folder.
        target: Which program; the best that this host can run where None.
        variants: Whether a variant of it is taken that this CPU can run: the same program for CPUs that have
            more than the target asks for.
        verify: Whether what is loaded is checked against its digest, which holds the weights in memory of
            this process. Where False they are mapped, shared between processes, and trusted.
        check: With `goldens`, the recorded calls are run in a process of their own before anything of the
            program comes into this one. A program that dies, hangs or answers otherwise is refused.
        driver: `local-sync` (in the calling thread), `local-task` (several threads), or `auto`.
        threads: Of `local-task`; one per core where None.
        islands: The names of the Python functions that a model with islands may call, as `aotpipe inspect`
            lists them, or functions by these names. One that is only named must be marked, and is imported
            from an installed module: never from the bundle or the working folder.
        require_signature: The file of a public key: a bundle that was not signed with its private key is
            refused, and `verify` is True.
        signature: The signature's file; `BUNDLE.sig` beside the bundle where None.

    Returns:
        A runner with the bundle's initial state, a context manager.
    """
    if require_signature is not None:
        path = signatures.trusted(path, require_signature, signature=signature)
    bundle = files.open_bundle(path)
    verify = verify or isinstance(bundle, Trusted)
    manifest = bundle.manifest
    program = choose(manifest, target)
    if variants:
        program = fitting(program)
    payload, weights, state = contents(bundle, program, verify=verify)
    if check:
        recorded.require_answers(bundle, program, payload=payload, state=state, islands=islands)
    chosen = Target.parse(program.target)
    return load_parts(
        partial(
            loading.runtime(chosen.backend).load,
            payload,
            weights=weights,
            driver=loading.driver(chosen) if driver == "auto" else str(driver),
            threads=threads,
        ),
        manifest.parts,
        signatures=manifest.signatures,
        initial_state=state,
        asserts=manifest.asserts,
        allowed=islands,
    )


def contents(
    bundle: Bundle, program: Program, *, verify: bool
) -> tuple[bytes, dict[str, Array], dict[str, Array]]:
    """Read a program's bytes, the weights and the initial state.

    Raises:
        BundleCorrupt: A file is missing, is not the one that was packed, or was added.
        MissingWeight: The file of weights lacks one that the manifest names.
    """
    files.require_as_named(bundle)
    arrays = files.arrays(bundle, verify=verify)
    weights, state = files.parted(arrays)
    if missing := [name for name in bundle.manifest.weights if name not in weights]:
        raise MissingWeight(
            f"the weight {missing[0]!r} is in no file of weights",
            reason=f"{len(missing)} of {len(bundle.manifest.weights)} weights are missing",
            hint="copy or build the bundle again",
        )
    wanted = bundle.manifest.arrays
    for name, found in files.layout(arrays).items():
        if found != wanted.get(name, found):
            raise BundleCorrupt(f"the array {name!r} is {found}, not {wanted[name]}")
    return files.content(bundle, program.file, verify=verify).tobytes(), weights, state


def choose(manifest: Manifest, target: str | Target | None = None) -> Program:
    """The program that `load` takes.

    Raises:
        NoProgram: There is none for that target.
        IncompatibleHost: It cannot run on this host.
    """
    programs = [program for program in manifest.programs if program.file]
    if target is not None:
        program = _named(manifest, programs, str(target))
        if reason := why_not_runnable(program):
            raise IncompatibleHost(
                f"the program for {program.target} cannot run on this host",
                reason=reason,
                hint=_others(programs),
            )
        return program
    if not programs:
        raise NoProgram("the bundle has no program", reason=_listed(manifest))
    reasons = {program.target: why_not_runnable(program) for program in programs}
    able = [program for program in programs if not reasons[program.target]]
    if not able:
        raise IncompatibleHost(
            "no program of the bundle can run on this host",
            reason="\n".join(f"{name}: {reason}" for name, reason in reasons.items()),
            hint="build it on this host, or for iree-vmvx, which runs on any",
        )
    return min(able, key=_rank)


def fitting(program: Program) -> Program:
    """The first of a program's variants that this host can run, or itself."""
    return next((each for each in program.variants if not why_not_runnable(each)), program)


def why_not_runnable(program: Program) -> str:
    """Why a program cannot run on this host; empty where it can."""
    try:
        target = Target.parse(program.target)
    except UnknownTarget:
        return f"this aotpipe does not know the target {program.target}"
    if reason := loading.why_not_runnable(target, program.host_features):
        return reason
    if target.backend == "xla":
        # XLA promises nothing between versions: each package must be the very one.
        for package, built in program.toolchain.items():
            if (here := toolchain.version_of(package)) != built:
                return f"it was compiled by {package} {built}; this host has {here or 'none'}"
        return ""
    built, here = program.toolchain.get(_COMPILER, ""), toolchain.version_of(_RUNTIME)
    if here is None:
        return f"{_RUNTIME} is not installed"
    # IREE keeps the format of its programs within a minor version, and promises no more.
    if built and built.split(".")[:2] != here.split(".")[:2]:
        return f"it was compiled by {_COMPILER} {built}; this host has {_RUNTIME} {here}"
    return ""


def _named(manifest: Manifest, programs: Sequence[Program], target: str) -> Program:
    variants = (variant for program in programs for variant in program.variants)
    if found := next((each for each in (*programs, *variants) if each.target == target), None):
        return found
    failed = next((each for each in manifest.programs if each.target == target), None)
    raise NoProgram(
        f"the bundle has no program for {target!r}",
        reason=f"it failed in {failed.stage}: {failed.reason}" if failed else _listed(manifest),
        hint=f"build it with `-t {target}`, or {_others(programs)}",
    )


def _others(programs: Sequence[Program]) -> str:
    able = [program.target for program in programs if not why_not_runnable(program)]
    return f"load one that runs here: {', '.join(able)}" if able else "build it for this host"


def _listed(manifest: Manifest) -> str:
    rows = [f"{each.target} ({each.status})" for each in manifest.programs]
    return f"it has: {', '.join(rows) or 'none'}"


def _rank(program: Program) -> int:
    target = Target.parse(program.target)
    names = (f"{target.device}-{target.arch}", target.device)
    return next((place for place, name in enumerate(_PREFERENCE) if name in names), len(_PREFERENCE))
