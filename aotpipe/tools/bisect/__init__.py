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

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from aotpipe.build import front
from aotpipe.build.cache import Cache
from aotpipe.build.compile_stage import CompileSettings, compile_all
from aotpipe.build.events import Listener, Recorder
from aotpipe.build.lowering_plan import Form
from aotpipe.build.source import Model
from aotpipe.build.unpacked import unpacked
from aotpipe.core.stages import Compiled, Legal, Lowered, ParityCase
from aotpipe.core.targets import Backend, Target, expand
from aotpipe.errors import AotpipeError, LowerFailed, ParityError, UnsupportedOps
from aotpipe.model.torch_arrays import view_all
from aotpipe.runtime.goldens import Golden
from aotpipe.runtime.xla.buckets import Declared
from aotpipe.tools.bisect.fault import Fault, Place, Reproducer
from aotpipe.tools.bisect.probes import Probe, Probes
from aotpipe.tools.bisect.search import search
from aotpipe.validate import Loadable, validate

__all__ = ["Fault", "Place", "Reproducer", "bisect"]


def bisect(
    model_or_spec: object,
    *,
    target: str,
    buckets: Mapping[str, Declared] | None = None,
    dialect: str | None = None,
    settings: CompileSettings | None = None,
    cache: bool = True,
    on_event: Listener | None = None,
) -> Fault | None:
    """Find the op that makes a model's program wrong on a target.

    Args:
        model_or_spec: A reference, a Spec, an nn.Module or a function, as `build` takes them.
        target: One target string, of a program that runs here.
        buckets: By Dim, the sizes that XLA programs are built for.
        dialect: What the model is lowered to for IREE.
        settings: How the compiler is run.
        cache: Keep programs, and use those of earlier builds.
        on_event: Told what happens while it happens.

    Returns:
        The op, or None where the program is right.

    Raises:
        AotpipeError: The model cannot be built, or its program cannot be run here.
    """
    [chosen] = expand([target])
    recorder = Recorder(on_event)
    form = Form.of([chosen], buckets, iree=dialect)
    model = front.canonical(Model(given=model_or_spec).load, recorder, form)
    [legal] = front.legalize(front.export(model, recorder), recorder, form.dialects).values()
    with _Bench.open(legal, chosen, settings or CompileSettings(), recorder, enabled=cache) as bench:
        lowered = front.lower(model, {legal.dialect: legal}, recorder, form)[chosen.backend]
        goldens = front.reference(model, legal, recorder, form).goldens
        failed = bench.failure(lowered, goldens)
        return None if failed is None else _find(bench, legal, _sequence(goldens, failed), failed)


def _find(bench: _Bench, legal: Legal, sequence: Sequence[Golden], failed: ParityCase) -> Fault:
    probes = Probes(legal, sequence)
    output = probes.value_of(failed.output)
    if output is None:
        raise LowerFailed(
            f"the output {failed.output!r} of {failed.entry_point} is no op's value, and differs",
            reason=failed.message,
        )
    cases: dict[str, ParityCase] = {}

    def trial(names: Sequence[str]) -> dict[str, bool] | None:
        found = bench.compare(probes.program(names))
        cases.update((case.output, case) for case in found or () if not case.passed)
        return None if found is None else {case.output: not case.passed for case in found}

    found = search(probes.order, probes.parents, output, trial)
    alone = probes.alone(found.culprit)
    judged = bench.compare(alone)
    is_alone = judged is not None and not judged[0].passed
    return Fault(
        target=str(bench.target),
        failed=failed,
        place=Place(found.culprit, probes.op(found.culprit), probes.line(found.culprit)),
        case=cases.get(found.culprit, failed),
        operands=tuple(str(spec) for spec in alone.legal.entries[0].signature.tensor_inputs),
        alone=judged[0] if is_alone and judged else None,
        cures=tuple(Place(name, probes.op(name), probes.line(name)) for name in found.cures),
        programs=found.trials + 2,
        reproducer=bench.reproducer(alone if is_alone else probes.program([found.culprit])),
    )


def _sequence(goldens: Sequence[Golden], failed: ParityCase) -> list[Golden]:
    """The call of a case, after those since the reset before it."""
    sequence: list[Golden] = []
    for golden in goldens:
        if golden.reset:
            sequence = []
        sequence.append(golden)
        if (golden.entry_point, golden.case) == (failed.entry_point, failed.case):
            return sequence
    raise AssertionError(f"no call {failed.case} of {failed.entry_point}")


@dataclass(frozen=True, slots=True)
class _Bench:
    """Compiles programs for one target, runs them on their calls, and compares."""

    target: Target
    settings: CompileSettings
    cache: Cache
    recorder: Recorder
    loadable: Loadable

    @classmethod
    @contextmanager
    def open(
        cls, legal: Legal, target: Target, settings: CompileSettings, recorder: Recorder, *, enabled: bool
    ) -> Iterator[_Bench]:
        """With the weights in a file for as long as the body runs."""
        cache = Cache.open(recorder, enabled=enabled)
        try:
            with unpacked(legal) as loadable:
                yield cls(target, settings, cache, recorder, loadable)
        finally:
            cache.close()

    def failure(self, lowered: Lowered, goldens: Sequence[Golden]) -> ParityCase | None:
        """The first comparison of the whole program that fails.

        Raises:
            AotpipeError: It does not compile, does not run here, or dies.
        """
        compiled = self._compiled(lowered)
        with self.recorder.stage("validate", str(self.target)):
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
            compiled = self._compiled(lower(probe, self.target.backend))
            with self.recorder.stage("validate", str(self.target)):
                parity = validate(compiled, loadable, [probe.golden]).parity
        except ParityError as error:
            parity = error.parity
        except AotpipeError:
            return None
        return parity.cases if parity else None

    def reproducer(self, probe: Probe) -> Reproducer:
        """What shows the fault again."""
        lowered = lower(probe, self.target.backend)
        compiled = self._compiled(lowered)
        weights = view_all(probe.legal.weights)
        return Reproducer(
            lowered=lowered,
            flags=compiled.flags,
            inputs=dict(probe.golden.inputs),
            weights=weights,
            wanted=dict(probe.golden.outputs),
        )

    def _compiled(self, lowered: Lowered) -> Compiled:
        results = compile_all(
            {self.target.backend: lowered},
            [self.target],
            settings=self.settings,
            cache=self.cache,
            recorder=self.recorder,
        )
        result = results[self.target]
        if isinstance(result, AotpipeError):
            raise result
        return result


def lower(probe: Probe, backend: Backend) -> Lowered:
    """A probe's module: of XLA, for the sizes of its call.

    Raises:
        LowerFailed, UnsupportedOps
    """
    if backend == "iree":
        return front.lower_for_iree(probe.legal)
    from aotpipe.backends.xla import lowering
    from aotpipe.validate.inputs import bound

    [entry] = probe.legal.entries
    signature = entry.signature
    sizes = bound(signature.tensor_inputs, signature.symbols, probe.golden.inputs)
    if sizes is None:
        raise UnsupportedOps("a size of this program follows from data")
    return lowering.lower(probe.legal, {}, examples={entry.name: sizes})
