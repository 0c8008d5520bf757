"""Runs recorded calls of a program in a sandboxed process, and judges the answers. Torch-free.

Islands that are allowed run here. Raises `ProgramCrashed`, and `BundleCorrupt` where a call is none
of the program's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from aotpipe.core.dtypes import Array
from aotpipe.core.stages import Parity, ParityCase
from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError, BundleCorrupt, BundleError, OutsideBuckets, ProgramCrashed
from aotpipe.runtime.bundle import files
from aotpipe.runtime.bundle.files import Bundle, Trusted
from aotpipe.runtime.bundle.manifest import GOLDENS, Program
from aotpipe.runtime.goldens import Golden, sequences
from aotpipe.runtime.islands.chain import Allowed
from aotpipe.runtime.islands.chain_runner import load_parts
from aotpipe.runtime.loading import Runner
from aotpipe.runtime.worker import Worker

# Who loads a program waits for it: bytecode has no more than that either.
_CALL_TIMEOUT_S: Final = 300.0


def judged(
    bundle: Bundle,
    program: Program,
    calls: Sequence[Golden],
    *,
    payload: bytes,
    state: Mapping[str, Array],
    islands: Allowed = (),
    timeout_s: float | None = None,
) -> Parity:
    """Compare the calls whose sizes a program was built for.

    `payload` and `state` are what was read of it, `islands` and `timeout_s` those of `load` and `Worker`.

    Raises:
        ProgramCrashed: It died, hung or failed.
        BundleCorrupt: A call is none that the program has.
        AotpipeError: What the program or an island raised.
    """
    with Worker(timeout_s=timeout_s, sandbox_calls=len(calls)) as process:
        runner = load_parts(
            partial(
                process.load,
                Target.parse(program.target),
                payload,
                weights=files.shards(bundle),
                # What was signed is judged, also where somebody writes to the bundle meanwhile.
                verify=isinstance(bundle, Trusted),
            ),
            bundle.manifest.parts,
            signatures=bundle.manifest.signatures,
            initial_state=state,
            asserts=bundle.manifest.asserts,
            allowed=islands,
        )
        return compared(runner, calls)


def compared(runner: Worker | Runner, calls: Sequence[Golden]) -> Parity:
    """Run the calls whose sizes a loaded program was built for, and compare the answers.

    Raises:
        BundleCorrupt: A call is none that the program has.
        AotpipeError: What the program raised.
    """
    cases: list[ParityCase] = []
    count = 0
    for sequence in sequences(calls):
        for golden in sequence:
            if golden.reset:
                runner.reset()
            try:
                got = runner.infer(golden.inputs, entry_point=golden.entry_point)
            except OutsideBuckets:
                break  # the program's state is not the reference's from here on
            try:
                cases += [golden.judge(name, got[name]) for name in golden.outputs]
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise BundleCorrupt(
                    f"a call in {GOLDENS} is none of the bundle's", reason=f"{type(error).__name__}: {error}"
                ) from error
            count += 1
    return Parity(cases=tuple(cases), calls=count, rule="")


def require_answers(
    bundle: Bundle, program: Program, *, payload: bytes, state: Mapping[str, Array], islands: Allowed = ()
) -> None:
    """Check that a program gives what was recorded; the arguments are those of `judged`.

    Raises:
        ProgramCrashed: It died, hung or failed.
        BundleCorrupt: An answer differs, or nothing is recorded that could be compared.
    """
    calls = files.goldens(bundle)
    said = f"the program for {program.target} does not answer as it did when it was built"
    try:
        parity = judged(
            bundle, program, calls, payload=payload, state=state, islands=islands, timeout_s=_CALL_TIMEOUT_S
        )
    except (BundleError, ProgramCrashed):
        raise
    except AotpipeError as error:
        raise BundleCorrupt(said, reason="\n".join(filter(None, (error.message, error.reason)))) from error
    worst = parity.worst
    if not parity.passed:
        assert worst is not None
        place = f"{worst.output} of {worst.entry_point}, {worst.case}"
        how = worst.message or f"is off by {worst.ratio:.3g} times what is allowed"
        raise BundleCorrupt(said, reason=f"{place} {how}", hint="`aotpipe selftest` shows every program")
    if worst is None:
        raise BundleCorrupt(
            f"no recorded call of the bundle says whether the program for {program.target} is right",
            reason=f"{len(calls)} calls are recorded, {parity.calls} were run, no output tells",
            hint="build it again with goldens, or load it without the check",
        )
