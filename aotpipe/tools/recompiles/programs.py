"""Runs calls through aotpipe's programs: one per entry point and target, or one per bucket for XLA.

`run(chain, calls, settings)` compiles the model for each target and gives a `Way` each. A call
that a program does not admit is refused with its reason, nothing else is compiled for it; all other answers
are compared with eager's by the law of a build.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from aotpipe.build.chain import Chain
from aotpipe.build.compile_stage import CompileSettings
from aotpipe.core.dtypes import Array
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Canonical, CanonicalEntry, Compiled
from aotpipe.errors import AotpipeError, InputError, ParityError, SpecInvalid
from aotpipe.model.torch_arrays import to_numpy
from aotpipe.runtime.goldens import Golden
from aotpipe.runtime.input_checks import Checker, Packer
from aotpipe.runtime.xla import container
from aotpipe.runtime.xla.buckets import takes
from aotpipe.tools.recompiles.calls import ModelCall, leaves
from aotpipe.tools.recompiles.results import Refused, Way
from aotpipe.validate import Loadable, validate
from aotpipe.validate.inputs import Call

_Admitted = Mapping[int, tuple[Call, Mapping[str, int]]]
"""By number, the calls that the signature takes, and the size of each symbol in them."""


def run(chain: Chain, calls: Sequence[ModelCall], settings: CompileSettings) -> tuple[Way, ...]:
    """Compile a model for each target and make the calls.

    Raises:
        AotpipeError: A stage refused the model before its targets came into it.
    """
    chain.lowered  # noqa: B018  # what cannot be lowered is refused before eager is asked
    signatures = chain.legal.signatures
    admitted, refused = _admitted(chain.canonical, signatures, calls)
    reference = None
    with suppress(SpecInvalid):  # where eager refuses every call, there is nothing to compare
        reference = chain.reference([call for call, _ in admitted.values()]) if admitted else None
    notes = tuple(finding.message for finding in reference.findings) if reference else ()
    compiled = chain.compiled(settings)
    with chain.loadable() as loadable:
        ways = []
        for target, program in compiled.items():
            if isinstance(program, AotpipeError):
                ways.append(Way(name=str(target), so_far=(), error=program))
                continue
            so_far, outside = _used(len(calls), admitted, program)
            unanswered = tuple(sorted((*refused, *outside), key=lambda each: each.call))
            way = Way(name=str(program.target), so_far=so_far, refused=unanswered, notes=notes)
            ways.append(_judged(way, program, loadable, reference.goldens) if reference else way)
    return tuple(ways)


def _judged(way: Way, program: Compiled, loadable: Loadable, goldens: Sequence[Golden]) -> Way:
    try:
        validated = validate(program, loadable, goldens)
    except ParityError as error:
        return replace(way, error=error)
    except AotpipeError as error:
        return replace(way, so_far=(), error=error)
    parity = validated.parity
    if parity is None:
        return replace(way, notes=(*way.notes, validated.reason))
    ratio = parity.worst.ratio if parity.worst else 0.0
    return replace(way, compared=parity.calls, ratio=ratio, notes=(*way.notes, *validated.notes))


def _admitted(
    canonical: Canonical, signatures: Mapping[str, Signature], calls: Sequence[ModelCall]
) -> tuple[_Admitted, tuple[Refused, ...]]:
    """The calls that a program takes, by number, and those that it refuses."""
    entries = {entry.name: entry for entry in canonical.entries}
    checkers = {name: Checker(signature) for name, signature in signatures.items()}
    admitted: dict[int, tuple[Call, Mapping[str, int]]] = {}
    refused = []
    for number, call in enumerate(calls, 1):
        try:
            inputs = _inputs(entries[call.entry_point], call, signatures[call.entry_point])
            arrays, sizes = checkers[call.entry_point].check(inputs)
        except InputError as error:
            refused.append(Refused(call=number, reason=error.message))
            continue
        made = Call(
            entry_point=call.entry_point,
            case=f"call {number}",
            # The worker goes back to the initial state before what begins a sequence.
            reset=call.reset or not admitted,
            # What a call lacks is there by now, at sizes that fit the rest.
            inputs={
                leaf.name: array
                for leaf, array in zip(signatures[call.entry_point].tensor_inputs, arrays, strict=True)
            },
        )
        admitted[number] = (made, sizes)
    return admitted, tuple(refused)


def _inputs(entry: CanonicalEntry, call: ModelCall, signature: Signature) -> dict[str, Array]:
    """The arrays of a call, by name.

    Raises:
        InputError: What was fixed when the model was exported is another value in this call.
    """
    arrays: dict[str, Array] = {}
    given = Packer(signature).unpack(leaves(entry, call))
    for name, leaf in given.items():
        if isinstance(leaf, torch.Tensor) or (name in entry.dims and name not in entry.constants):
            array = to_numpy(leaf)
            assert array is not None
            arrays[name] = array
        elif name not in entry.constants:
            raise InputError(f"no input is called {name!r}")
        elif type(fixed := entry.constants[name]) is not type(leaf) or fixed != leaf:
            raise InputError(f"the input {name!r} is fixed at {fixed!r}, and this call gives {leaf!r}")
    for name, value in entry.constants.items():
        if name in entry.input_names and name not in given and value is not None:
            raise InputError(f"the input {name!r} is fixed at {value!r}, and this call leaves it out")
    return arrays


def _used(count: int, admitted: _Admitted, program: Compiled) -> tuple[tuple[int, ...], list[Refused]]:
    """How many programs were used up to each call, and the calls that a target has none for.

    IREE has one program per entry point, XLA one per choice of sizes.
    """
    built = None
    if program.target.backend == "xla":
        index, _ = container.read(program.payload)
        # The smallest first.
        built = sorted(index["programs"], key=lambda each: math.prod(each["sizes"].values()))
    used: set[str | int] = set()
    counts, outside = [], []
    for number in range(1, count + 1):
        if number in admitted:
            call, sizes = admitted[number]
            own = call.entry_point if built is None else _chosen(built, call.entry_point, sizes)
            if own is not None:
                used.add(own)
            else:
                shown = ", ".join(f"{name}={size}" for name, size in sorted(sizes.items()))
                outside.append(Refused(call=number, reason=f"no program was built for {shown}"))
        counts.append(len(used))
    return tuple(counts), outside


def _chosen(built: Sequence[Mapping[str, Any]], entry_point: str, sizes: Mapping[str, int]) -> int | None:
    """The index of the program that a call runs in; None where there is none."""
    for index, each in enumerate(built):
        if each["entry_point"] == entry_point and takes(each["sizes"], each["padded"], sizes):
            return index
    return None
