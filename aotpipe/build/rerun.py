"""A finished bundle's programs as the validate stage takes them: to be judged or timed once more.

Every byte is checked against the manifest before anything runs. Torch-free.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from aotpipe import backends
from aotpipe.core.stages import Compiled, CompileStats
from aotpipe.core.targets import Target, expand
from aotpipe.errors import NoProgram
from aotpipe.runtime import goldens as goldens_file
from aotpipe.runtime import tensor_file
from aotpipe.runtime.bundle import verify
from aotpipe.runtime.bundle.load import why_not_runnable
from aotpipe.runtime.bundle.manifest import GOLDENS, STATE_PREFIX, WEIGHTS, Manifest, Program
from aotpipe.runtime.goldens import Golden
from aotpipe.validate import Loadable


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """A bundle's content.

    Attributes:
        programs: Those that were asked for, whether they can run here or not.
        variants: By target, the programs that it has for CPUs that have more.
        goldens: The recorded calls.
    """

    manifest: Manifest
    programs: tuple[Compiled, ...]
    variants: Mapping[Target, tuple[Compiled, ...]]
    loadable: Loadable
    goldens: tuple[Golden, ...]


def _chosen(name: str, found: Collection[Target]) -> list[Target]:
    """Those of a bundle's programs that a target string, a shorthand or a glob names."""
    matches = [target for target in expand([name]) if target in found]
    if not matches:
        raise NoProgram(
            f"the bundle has no program for {name}", reason=f"it has: {', '.join(map(str, found))}"
        )
    return matches


@contextmanager
def reopened(root: Path, targets: Sequence[str] = ()) -> Iterator[Reopened]:
    """Open a bundle for as long as the body runs.

    Args:
        root: Its folder.
        targets: Target strings, shorthands and globs, of whose matches those count that the bundle has, as
            variants too; all of its targets where empty.

    Raises:
        BundleError: The bundle cannot be read, or has no such program.
    """
    manifest = verify(root)
    own = {Target.parse(each.target): each for each in manifest.programs if each.file}
    found = {Target.parse(each.target): each for program in own.values() for each in program.variants} | own
    chosen = tuple(dict.fromkeys(each for name in targets for each in _chosen(name, found))) or tuple(own)
    with TemporaryDirectory(prefix="aotpipe-rerun-") as folder:
        # Workers map the file for as long as they run, whatever happens to the bundle meanwhile.
        weights = Path(folder) / WEIGHTS
        shutil.copyfile(root / WEIGHTS, weights)
        yield Reopened(
            manifest=manifest,
            programs=tuple(_compiled(root, found[target]) for target in chosen),
            variants={
                target: tuple(_compiled(root, each) for each in found[target].variants) for target in chosen
            },
            loadable=Loadable(
                signatures=manifest.signatures,
                weights=weights,
                initial_state={
                    name.removeprefix(STATE_PREFIX): array
                    for name, array in tensor_file.read(weights).items()
                    if name.startswith(STATE_PREFIX)
                },
                asserts=manifest.asserts,
                parts=manifest.parts,
            ),
            goldens=goldens_file.loads((root / GOLDENS).read_bytes()),
        )


def why_not_here(reopened: Reopened, target: Target) -> str:
    """Why a program of a bundle cannot run on this host; empty where it can."""
    every = (each for program in reopened.manifest.programs for each in program.all)
    return next(why_not_runnable(each) for each in every if each.target == str(target))


def fitting(reopened: Reopened, program: Compiled) -> Compiled:
    """What is loaded on this host for a target's program: a variant of it, or itself."""
    able = (each for each in reopened.variants[program.target] if not why_not_here(reopened, each.target))
    return next(able, program)


def _compiled(root: Path, program: Program) -> Compiled:
    target = Target.parse(program.target)
    return Compiled(
        target=target,
        payload=(root / program.file).read_bytes(),
        dialect=program.dialect or backends.dialect(target),
        partition=program.partition,
        schedule=program.schedule,
        flags=program.flags,
        toolchain=program.toolchain,
        host_features=program.host_features,
        digest=program.digest,
        stats=CompileStats(wall_s=0.0, peak_rss_bytes=0),
        notes=program.notes,
        estimates=program.estimates,
    )
