"""An old bundle's modules, compiled by this toolchain and run on the bundle's recorded calls. Torch-free."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from os import PathLike

from aotpipe.backends import ModuleKey, module_of
from aotpipe.build import matrix
from aotpipe.build import report as reports
from aotpipe.build.cache import Cache
from aotpipe.build.compile_stage import CompileSettings, compile_all
from aotpipe.build.draft import origin
from aotpipe.build.events import Listener, Recorder
from aotpipe.build.report import Report, TargetReport
from aotpipe.build.rerun import Reopened, reopened
from aotpipe.core.stages import Compiled, Lowered
from aotpipe.core.targets import Target
from aotpipe.core.units import share
from aotpipe.errors import AotpipeError, BundleError
from aotpipe.runtime import toolchain
from aotpipe.runtime.bundle.manifest import Program
from aotpipe.validate import validate


def replay(
    bundle: str | PathLike[str],
    *,
    targets: Sequence[str] = (),
    compiling: CompileSettings | None = None,
    on_event: Listener | None = None,
) -> Report:
    """Compile a bundle's modules anew and compare the programs with the answers that the bundle recorded.

    All of its targets count where none is named.

    Raises:
        BundleError: The bundle cannot be read, has no such program, or keeps no modules.
    """
    start = time.perf_counter()
    recorder, settings = Recorder(on_event), compiling or CompileSettings()
    with reopened(bundle, targets) as opened:
        lowered = kept_modules(opened)
        chosen = {Target.parse(each.target): each for each in opened.programs}
        able = [target for target in chosen if module_of(target) in lowered]
        recorder.planned({"compile": len(able), "validate": len(able)})
        with closing(Cache.open(recorder, enabled=settings.cache)) as cache:
            programs = compile_all(lowered, able, settings=settings, cache=cache) if able else {}
        rows = []
        for target, program in chosen.items():
            with recorder.stage("validate", str(target)):
                result = _result(target, programs, opened)
            row = reports.row_of(target, result)
            rows.append(_with_past(row, program))
        return Report(
            name=opened.manifest.name,
            bundle=str(bundle),
            targets=tuple(rows),
            origin=origin(""),
            entry_points=opened.manifest.signatures,
            findings=opened.manifest.findings,
            stages=recorder.by_start,
            toolchain=toolchain.versions(),
            wall_s=time.perf_counter() - start,
        )


def kept_modules(opened: Reopened) -> dict[ModuleKey, Lowered]:
    """The modules of a bundle.

    Raises:
        BundleError: It keeps none.
    """
    if not opened.modules:
        raise BundleError(
            f"the bundle of {opened.manifest.name!r} keeps no modules that could be compiled anew",
            reason="it was built without --keep-modules, or for XLA targets alone",
            hint="build it with --keep-modules; `aotpipe selftest` runs the programs that it holds",
        )
    return dict(opened.modules)


def _with_past(row: TargetReport, program: Program) -> TargetReport:
    """A row, with what was seen when the bundle was built."""
    if program.parity is None:
        return row
    versions = ", ".join(f"{name} {version}" for name, version in program.toolchain.items())
    return replace(row, notes=(*row.notes, f"{share(program.parity.ratio)} when it was built ({versions})"))


def _result(
    target: Target, programs: Mapping[Target, Compiled | AotpipeError], opened: Reopened
) -> matrix.Result:
    program = programs.get(target)
    if program is None:
        return BundleError(f"{target}: the bundle keeps no module that it could be compiled from")
    if isinstance(program, AotpipeError):
        return program
    try:
        return matrix.proven(validate(program, opened.loadable, opened.goldens))
    except AotpipeError as error:
        return error
