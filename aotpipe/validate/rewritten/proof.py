"""Proves written code: the same calls of the original and of it, one after another, must answer alike.

The calls are those that a program is judged on (`validate.inputs`: every size's ends, values that look like
the example's, sequences of calls of a model with state, with a reset between), and then others that are drawn
until each branch was taken both ways and each loop made no iteration, one and many, or nothing more is found.
The written code must also be taken by a plain `torch.export.export`, and that program must answer alike too.

Raises:
    RewriteFailed: The first call that differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch import nn

from aotpipe.canonicalize import modules
from aotpipe.canonicalize.inputs import pytrees
from aotpipe.core.dtypes import Array
from aotpipe.core.serialization import renamed
from aotpipe.core.signature import Signature
from aotpipe.core.stages import CanonicalEntry, Exported, ExportedEntry
from aotpipe.errors import RewriteFailed
from aotpipe.export import resized_examples
from aotpipe.export.strategies import torch_shapes
from aotpipe.export.tracing import quiet
from aotpipe.passes import hops
from aotpipe.passes.codegen.code import Code
from aotpipe.passes.codegen.nodes import writes
from aotpipe.passes.flatten import state_spec
from aotpipe.runtime.goldens import compare
from aotpipe.validate import reference
from aotpipe.validate.eager.eager import MUTATED, Eager, EagerFailed, FixedResult, OtherResults
from aotpipe.validate.inputs import Call, plan
from aotpipe.validate.parity import typed
from aotpipe.validate.rewritten.coverage import Coverage, counting, limited, variants
from aotpipe.validate.rewritten.loading import REPORT, loaded, made

# The same kernels run: another answer is not a matter of rounding, but for numbers of Python in float32.
_RELATIVE: Final = 1e-3
_ABSOLUTE: Final = 1e-4
_BUDGET_S: Final = 60.0
# What a build may take: it shows the source, and proves its programs.
_QUICK_S: Final = 0.3
_QUICK_MOST_S: Final = 10.0
_LATER: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was compared.

    Attributes:
        refused: How many both refused.
        sequences: How many times the state was reset.
        max_abs_error: The largest difference of any number.
        varies: Whether plain torch.export takes it with its Dims; else with the example's sizes only.
        coverage: For each branch and loop of the written code, how it went.
    """

    __pydantic_config__ = renamed(varies="exported_with_dims")

    calls: int
    refused: int
    sequences: int
    max_abs_error: float
    varies: bool = True
    coverage: tuple[Coverage, ...]


def prove(
    exported: Exported, model: nn.Module, methods: Mapping[str, str], path: str, *, resets: bool
) -> Proof:
    """Compare a written module with the original.

    `model` is the written module, with the original's weights, and `methods` its method for each entry point.

    Raises:
        RewriteFailed: An answer differs, or torch.export refuses the written module.
    """
    signatures = {entry.name: _with_state(exported, entry) for entry in exported.entries}
    mine = _calling(exported, model, methods)
    found = [_exported(entry) for entry in mine]
    programs = [replace(entry, module=module) for entry, (module, _) in zip(mine, found, strict=True)]
    varies = all(each for _, each in found)
    judge = _Judge(exported, signatures)
    calls = plan(signatures, judge.examples, seed=exported.canonical.spec.seed).calls
    with counting(path) as counters:
        judge.compare(Eager(mine, signatures), calls, "the written module")
        judge.more(lambda: Eager(mine, signatures), counters.is_covered)
    with limited():
        who = "the program that torch.export makes of it"
        judge.again(Eager(programs, signatures), who, varies=varies)
    if resets:
        _check_reset(model, signatures)
    return Proof(
        calls=judge.agreed,
        refused=judge.refused,
        sequences=sum(call.reset for call in calls),
        max_abs_error=judge.max_abs_error,
        coverage=counters.coverage(),
        varies=varies,
    )


def check(exported: Exported, code: Code) -> None:
    """Compare edited source with the original on its examples, and on more calls for less than a second.

    Nothing is exported again, and not all calls are made that `prove` makes.

    Raises:
        RewriteFailed: It does not run, or an answer differs.
    """
    signatures = {entry.name: _with_state(exported, entry) for entry in exported.entries}
    judge = _Judge(exported, signatures)
    later = _LATER if any(each.state for each in signatures.values()) else 0
    with loaded(code, "model.py") as (module, path), counting(str(path), _QUICK_MOST_S) as counters:
        model = made(module, code, exported.canonical.model)
        mine = _calling(exported, model, code.methods)
        for entry, inputs in judge.examples.items():
            first = Call(entry_point=entry, case="example", reset=True, inputs=inputs)
            again = [replace(first, case=f"example/{n + 1}", reset=False) for n in range(later)]
            judge.compare(Eager(mine, signatures), [first, *again], "the written module")
        judge.more(lambda: Eager(mine, signatures), counters.is_covered, _QUICK_S)


def _calling(exported: Exported, model: nn.Module, methods: Mapping[str, str]) -> list[CanonicalEntry]:
    """The entry points, of a written module."""
    return [
        replace(entry, module=modules.entry_module(model, methods[entry.name]))
        for entry in exported.canonical.entries
    ]


def _with_state(exported: Exported, entry: ExportedEntry) -> Signature:
    """The signature with what a call changes: buffers, and the inputs that it writes."""
    buffers, changed = writes(entry.program)
    names = next(each.input_names for each in exported.canonical.entries if each.name == entry.name)
    inputs = {leaf.name: leaf for leaf in entry.signature.tensor_inputs}
    mutated = [replace(inputs[names[index]], name=f"{MUTATED}{names[index]}") for index in changed]
    state = tuple(state_spec(path, hops.held(entry.program, path)) for path in buffers)
    return replace(entry.signature, state=state, outputs=(*entry.signature.outputs, *mutated))


def _check_reset(model: nn.Module, signatures: Mapping[str, Signature]) -> None:
    """Change the state, and see that `reset` puts it back."""
    names = {leaf.name for signature in signatures.values() for leaf in signature.state}
    state = {name: buffer for name, buffer in model.named_buffers() if name in names}
    before = {name: buffer.clone() for name, buffer in state.items()}
    with torch.no_grad():
        for buffer in state.values():
            buffer.copy_(torch.ones_like(buffer) if not bool(buffer.any()) else torch.zeros_like(buffer))
        model.reset()  # type: ignore[operator]  # a written module with state has it
    for name, buffer in state.items():
        if not torch.equal(buffer, before[name]):
            raise RewriteFailed(f"reset of the rewritten model leaves {name!r} other than it was")


class _Judge:
    """Compares runners with the original, which answers each call once."""

    def __init__(self, exported: Exported, signatures: Mapping[str, Signature]) -> None:
        self._canonical = exported.canonical
        self._signatures = signatures
        self.examples = {entry.name: reference.example_inputs(entry) for entry in exported.canonical.entries}
        self._kept: list[tuple[Call, Mapping[str, Array] | None]] = []
        self.agreed = 0
        self.refused = 0
        self.max_abs_error = 0.0

    def compare(self, runner: Eager, calls: Sequence[Call], who: str) -> None:
        """Make the same calls of the original and of a runner."""
        original = Eager(self._canonical.entries, self._signatures)
        refused = False
        for call in calls:
            if call.reset:
                original.reset()
                runner.reset()
            elif refused:
                continue  # what a refused call leaves in the original is its own affair
            answer = None
            with suppress(EagerFailed, FixedResult, OtherResults):
                answer = original.infer(call.inputs, entry_point=call.entry_point)
            refused = answer is None
            self._compare(runner, call, answer, who)

    def more(
        self, make: Callable[[], Eager], is_covered: Callable[[], bool], budget_s: float = _BUDGET_S
    ) -> None:
        """Draw further calls until all is covered or the time is over, each from the initial state."""
        start = time.monotonic()
        for entry, example in self.examples.items():
            for case, inputs in variants(self._signatures[entry], example, self._canonical.spec.seed):
                if is_covered() or time.monotonic() - start > budget_s:
                    return
                first = Call(entry_point=entry, case=case, reset=True, inputs=inputs)
                # What a model keeps shows in the calls after the first.
                later = _LATER if any(each.state for each in self._signatures.values()) else 0
                again = [replace(first, case=f"{case}/{n + 1}", reset=False) for n in range(later)]
                self.compare(make(), [first, *again], "the written module")

    def again(self, runner: Eager, who: str, *, varies: bool) -> None:
        """Make all calls so far of another runner; of sizes other than the example's, if it takes them."""
        kept, self._kept = self._kept, []
        for call, answer in kept:
            example = self.examples[call.entry_point]
            if not varies and any(array.shape != example[name].shape for name, array in call.inputs.items()):
                continue
            if call.reset:
                runner.reset()
            self._compare(runner, call, answer, who)

    def _compare(self, runner: Eager, call: Call, want: Mapping[str, Array] | None, who: str) -> None:
        self._kept.append((call, want))
        try:
            got = runner.infer(call.inputs, entry_point=call.entry_point)
        except (EagerFailed, FixedResult, OtherResults) as error:
            if want is None:
                self.refused += 1
                return
            raise _failed(call, f"{who} raises {error}") from error
        if want is None:
            return  # eager refuses it: there is nothing to compare with
        if got.keys() != want.keys():
            raise _failed(call, f"{who} gives {', '.join(got)}; the original gives {', '.join(want)}")
        dtypes = {leaf.name: leaf.dtype for leaf in self._signatures[call.entry_point].tensor_outputs}
        for name, answer in want.items():
            dtype = dtypes.get(name, answer.dtype.name)
            mine, other = typed(answer, dtype), got[name]
            if mine is not answer:  # a number, of which written code may give the tensor that it comes of
                other = typed(other, dtype)
            measure = compare(other, mine, *_allowed(mine))
            self.max_abs_error = max(self.max_abs_error, measure.max_abs_error)
            if not measure.passed:
                shown = f"is {measure.got:.7g} at {measure.worst_index}, not {measure.want:.7g}"
                raise _failed(call, f"{name!r} of {who} {measure.message or shown}")
        self.agreed += 1


def _allowed(want: Array) -> tuple[float, float]:
    if want.dtype.kind not in "fc" or not want.size:
        return _ABSOLUTE, _RELATIVE
    finite = np.abs(want[np.isfinite(want)])
    # Sums of large numbers cancel: what is near zero is off by as much as they are.
    return max(_ABSOLUTE, 1e-5 * float(finite.max(initial=0.0))), _RELATIVE


def _failed(call: Call, what: str) -> RewriteFailed:
    return RewriteFailed(
        f"the rewritten model differs in the call {call.case!r} of {call.entry_point}",
        reason=what,
        hint=REPORT,
    )


def _exported(entry: CanonicalEntry) -> tuple[nn.Module, bool]:
    """What plain torch.export makes of a written entry point, and whether its Dims vary in it.

    torch.export may fix a size for good, as 0 and 1 are special. Where it does not let the Dims vary, it
    is asked to take the example's sizes.
    """
    changed, _ = resized_examples.inside(entry)
    args, kwargs = pytrees.clone_tensors(resized_examples.resized(entry, changed))
    shapes = torch_shapes(entry, args, kwargs)
    wanted = [(args, kwargs, shapes)]
    if shapes is not None:
        args, kwargs = pytrees.clone_tensors((entry.entry.args, dict(entry.entry.kwargs)))
        wanted.append((args, kwargs, None))
    first: Exception | None = None
    for args, kwargs, shapes in wanted:
        with torch.no_grad(), quiet():
            try:
                program = torch.export.export(entry.module, args, kwargs, dynamic_shapes=shapes)
            except Exception as error:  # noqa: BLE001  # torch.export raises what the module raises
                first = first or error
                continue
        return program.module(check_guards=False), first is None
    assert first is not None
    lines = str(first).strip().splitlines()
    raise RewriteFailed(
        f"torch.export refuses the rewritten {entry.name}",
        reason=f"{type(first).__name__}: {lines[0] if lines else ''}",
        hint=REPORT,
    ) from first
