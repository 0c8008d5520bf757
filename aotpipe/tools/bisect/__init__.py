"""Finds the op that makes a program's numbers wrong.

    fault = bisect("model.py", target="iree-cpu-host")
    fault.op, fault.where          # aten.exp.default, model.py:12
    fault.alone                    # how wrong the op is in a program of its own; None: it is right there

The program is built and compared as in a build. From the first output that differs, `search` goes back
through the values of the legal graph by programs that give some of them too, until it stands at an op whose
value is wrong though all that it is computed from is right. `save` writes what a report to the compiler's
authors needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Unpack

from aotpipe.backends import module_of
from aotpipe.build.cache import Cache
from aotpipe.build.chain import Chain, lower_for_iree
from aotpipe.build.compile_stage import CompileSettings, compile_all, program_of
from aotpipe.build.events import Listener, Recorder
from aotpipe.build.request import ModelOptions, Request
from aotpipe.core.stages import Compiled, Legal, Lowered, ParityCase
from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError, LowerFailed, ParityError, SpecInvalid, UnsupportedOps
from aotpipe.model.torch_arrays import view_all
from aotpipe.runtime.goldens import Golden, sequences
from aotpipe.tools.bisect.fault import Fault, GraphValue, Reproducer, search
from aotpipe.tools.bisect.probes import Probe, Probes
from aotpipe.validate import Loadable, validate

__all__ = ["Fault", "GraphValue", "Reproducer", "bisect"]


def bisect(
    model_or_spec: object,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    target: str,
    settings: CompileSettings | None = None,
    cache: bool = True,
    on_event: Listener | None = None,
    **options: Unpack[ModelOptions],
) -> Fault | None:
    """Find the op that makes a model's program wrong on a target.

    The model, `args`, `kwargs` and options are those that the program was built with, as `build` takes them;
    `target` is one target string, of a program that runs here. With `cache`, programs are kept, and those of
    earlier builds are used, where the settings do so.

    Returns:
        The op, or None where the program is right.

    Raises:
        AotpipeError: The model cannot be built, or its program cannot be run here.
        SpecInvalid: It is a chain of programs and islands.
    """
    settings = settings or CompileSettings()
    chain = Chain(Request.of(model_or_spec, [target], args, kwargs, **options), Recorder(on_event))
    if chain.parts is not None:
        raise SpecInvalid(
            f"{chain.legal.name!r} is a chain with islands of Python, and bisect examines one program",
            reason=f"its islands are: {', '.join(island.name for island in chain.parts.islands)}",
            hint="bisect what comes before an island as a model of its own",
        )
    opened = Cache.open(chain.recorder, enabled=cache and settings.cache)
    with closing(opened), chain.loadable() as loadable:
        trials = _Trials(chain.request, settings, opened, loadable)
        lowered = chain.lowered[module_of(trials.target)]
        goldens = chain.reference().goldens
        failed = trials.failure(lowered, goldens)
        return None if failed is None else _find(trials, chain.legal, _sequence(goldens, failed), failed)


def _find(trials: _Trials, legal: Legal, sequence: Sequence[Golden], failed: ParityCase) -> Fault:
    probes = Probes(legal, sequence)
    output = probes.value_of(failed.output)
    if output is None:
        raise LowerFailed(
            f"the output {failed.output!r} of {failed.entry_point} is no op's value, and differs",
            reason=failed.message,
        )
    cases: dict[str, ParityCase] = {}

    def trial(names: Sequence[str]) -> dict[str, bool] | None:
        found = trials.compare(probes.program(names))
        cases.update((case.output, case) for case in found or () if not case.passed)
        return None if found is None else {case.output: not case.passed for case in found}

    found = search(probes.order, probes.parents, output, trial)
    alone = probes.alone(found.culprit)
    wrong = next((case for case in trials.compare(alone) or () if not case.passed), None)
    return Fault(
        target=str(trials.target),
        failed=failed,
        place=probes.place(found.culprit),
        case=cases.get(found.culprit, failed),
        operands=tuple(str(spec) for spec in alone.legal.entries[0].signature.tensor_inputs),
        alone=wrong,
        cures=tuple(map(probes.place, found.cures)),
        programs=found.trials + 2,
        reproducer=trials.reproducer(alone if wrong else probes.program([found.culprit])),
    )


def _sequence(goldens: Sequence[Golden], failed: ParityCase) -> Sequence[Golden]:
    """The call of a case, after those since the reset before it.

    Raises:
        LowerFailed: One of those raises.
    """
    named = [(golden.entry_point, golden.case) for golden in goldens]
    run = sequences(goldens[: named.index((failed.entry_point, failed.case)) + 1])[-1]
    if any(golden.raises for golden in run[:-1]):
        raise LowerFailed(
            f"the output {failed.output!r} of {failed.entry_point} ({failed.case}) differs after a call that "
            "raises, by what that leaves of the state; bisect examines calls that answer",
            reason=failed.message,
        )
    return run


@dataclass(frozen=True, slots=True)
class _Trials:
    """Compiles programs for one target, runs them on their calls, and compares."""

    request: Request
    settings: CompileSettings
    cache: Cache
    loadable: Loadable

    @property
    def target(self) -> Target:
        """What the programs are for."""
        [target] = self.request.targets
        return target

    def failure(self, lowered: Lowered, goldens: Sequence[Golden]) -> ParityCase | None:
        """The first comparison of the whole program that fails.

        Raises:
            AotpipeError: It does not compile, does not run here, or dies.
        """
        compiled = self._compiled(lowered)
        with self.cache.recorder.stage("validate", str(self.target)):
            try:
                validated = validate(compiled, self.loadable, goldens)
            except ParityError as error:
                cases = error.parity.cases if error.parity else ()
                return next(case for case in cases if not case.passed)
        if validated.parity is None:
            raise LowerFailed(f"{self.target} does not run here", reason=validated.reason)
        return None

    def compare(self, probe: Probe) -> tuple[ParityCase, ...] | None:
        """The comparison of each value that a program gives; None where there is no such program."""
        [entry] = probe.legal.entries
        loadable = replace(
            self.loadable,
            signatures={entry.name: entry.signature},
            initial_state={},
            asserts={entry.name: ()},
        )
        try:
            compiled = self._compiled(lower(probe, self.request))
            with self.cache.recorder.stage("validate", str(self.target)):
                parity = validate(compiled, loadable, [probe.golden]).parity
        except ParityError as error:
            parity = error.parity
        except AotpipeError:
            return None
        return parity.cases if parity else None

    def reproducer(self, probe: Probe) -> Reproducer:
        """What shows the fault again."""
        lowered = lower(probe, self.request)
        flags = self._compiled(lowered).flags
        if self.target.backend == "iree":
            from aotpipe.backends.iree.compile import compiler

            # What the compiler takes without aotpipe.
            lowered = replace(lowered, module=compiler.given(lowered.module, [self.target]))
        return Reproducer(
            lowered=lowered,
            flags=flags,
            inputs=probe.golden.inputs,
            weights=view_all(probe.legal.weights),
            wanted=probe.golden.outputs,
        )

    def _compiled(self, lowered: Lowered) -> Compiled:
        results = compile_all(
            {module_of(self.target): lowered}, [self.target], settings=self.settings, cache=self.cache
        )
        return program_of(results[self.target])


def lower(probe: Probe, request: Request) -> Lowered:
    """A probe's module: of XLA, for the sizes of its call and over the mesh of the whole program.

    Raises:
        LowerFailed, UnsupportedOps
    """
    if "xla" not in request.backends:
        return lower_for_iree(probe.legal)
    from aotpipe.backends.xla import lowering
    from aotpipe.validate.inputs import bound

    [entry] = probe.legal.entries
    sizes = bound(entry.signature, probe.golden.inputs)
    if sizes is None:
        raise UnsupportedOps("a size of this program follows from data")
    names = [*probe.legal.weights, *(spec.name for spec in entry.signature.tensor_inputs)]
    # A rule that matches no array is refused, and a probe has some of the program's arrays only.
    rules = [rule for rule in request.rules if any(re.fullmatch(rule.pattern, name) for name in names)]
    return lowering.lower(probe.legal, examples={entry.name: sizes}, mesh=request.mesh, rules=rules)
