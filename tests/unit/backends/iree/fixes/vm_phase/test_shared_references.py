"""References that a branch of the bytecode hands to two arguments of a block."""

from __future__ import annotations

import enum
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from aotpipe.backends import legalization
from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.fixes.rewrites import rewritten
from aotpipe.backends.iree.fixes.vm_phase import shared_references
from aotpipe.backends.iree.lower import importer
from aotpipe.canonicalize import canonicalize
from aotpipe.core.stages import Legal, Lowered
from aotpipe.core.targets import Target
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from aotpipe.passes import legalize
from tests.canaries import canary
from tests.programs import branching
from tests.programs.through import compare, legal, load_payload

_MODULE = """\
vm.module public @m {{
  vm.func private @f(%a: !vm.ref<!hal.buffer>, %b: !vm.ref<!hal.buffer>, %n: i32) {{
    vm.cond_br %n, ^bb1({first} : !vm.ref<!hal.buffer>, !vm.ref<!hal.buffer>, i32),
                   ^bb2(%a : !vm.ref<!hal.buffer>)
  ^bb1(%c: !vm.ref<!hal.buffer>, %d: !vm.ref<!hal.buffer>, %e: i32):
    vm.br ^bb1(%c, %d, %e : !vm.ref<!hal.buffer>, !vm.ref<!hal.buffer>, i32)
  ^bb2(%g: !vm.ref<!hal.buffer>):
    vm.return
  }}
}}
"""


def test_a_reference_is_handed_on_once() -> None:
    changed = rewritten(_MODULE.format(first="%a, %a, %n").encode(), [shared_references.FIX.apply])
    assert changed is not None
    text = changed.decode()
    assert text.count("vm.select.ref") == text.count("vm.cmp.nz.ref") == 1
    [line] = [line for line in text.splitlines() if "vm.cond_br" in line]
    first, second, _ = line.partition("^bb1(")[2].partition(" :")[0].split(", ")
    assert first != second


@pytest.mark.parametrize(
    ("first", "is_seen"), [("%r#0, %r#0", True), ("%a, %n, %a", True), ("%r#0, %r#1", False)]
)
def test_a_reference_handed_on_twice_is_seen(first: str, is_seen: bool) -> None:
    text = f"vm.br ^bb12({first} : !vm.ref<!hal.buffer>, !vm.ref<!hal.buffer>)".encode()
    assert bool(shared_references.FIX.apply.seen_as.search(text)) == is_seen


@pytest.mark.parametrize(
    ("text", "may_be"),
    [
        (b"scf.if %a {\n scf.if %b", True),
        (b"scf.if %a {\n scf.while (%b", True),
        (b"scf.while (%a\n scf.while (%b", True),
        (b"scf.if %a\n scf.yield", False),
    ],
)
def test_programs_of_several_branches_or_loops_are_looked_at(text: bytes, may_be: bool) -> None:
    assert bool(shared_references.FIX.apply.made_of.search(text)) == may_be


def test_other_branches_stay() -> None:
    assert rewritten(_MODULE.format(first="%a, %b, %n").encode(), [shared_references.FIX.apply]) is None


class Phase(enum.Enum):
    IDLE, SPEECH, HANG = range(3)


class Detector(torch.nn.Module):
    """Voice activity with hysteresis, and a count of calls that it still hangs over."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = Phase.IDLE
        self.hang = 0

    def forward(self, frame: torch.Tensor) -> tuple[bool, int, torch.Tensor]:
        energy = frame.pow(2).mean()
        if self.phase is Phase.IDLE:
            if energy > 0.5:
                self.phase = Phase.SPEECH
        elif self.phase is Phase.SPEECH:
            if energy < 0.2:
                self.phase = Phase.HANG
                self.hang = 2
        else:
            self.hang -= 1
            if energy > 0.5:
                self.phase = Phase.SPEECH
            elif self.hang == 0:
                self.phase = Phase.IDLE
        return self.phase is Phase.SPEECH, self.hang, energy


@cache
def detector() -> tuple[Legal, Lowered]:
    program = legal(Detector(), (torch.ones(8),))
    return program, importer.lower(program)


def run_detector() -> None:
    program, lowered = detector()
    payload = compiler.compile(lowered, Target.parse("iree-cpu-host")).payload
    model, random = Detector(), np.random.default_rng(0)
    with load_payload(program, payload, "local-sync") as runner:
        for _ in range(60):
            frame = (random.standard_normal(8) * random.choice([0.1, 0.3, 0.8, 2.0])).astype(np.float32)
            want = model(torch.from_numpy(frame))
            got = runner.infer({"frame": frame}).values()
            np.testing.assert_allclose([float(each) for each in got], [float(each) for each in want], 1e-5)


@pytest.mark.slow
def test_a_state_machine_runs() -> None:
    run_detector()


# A loop inside of one way of a branch, of the programs that the fuzzer of control flow writes.
_SEED = 2001


def run_generated(folder: Path) -> None:
    module = branching.load(branching.source(_SEED), folder / "program.py")
    model, calls = module.Model().eval(), branching.inputs()
    made = export(canonicalize(as_spec(model, args=calls[0])))
    program = legalize(made, legalization("torch"))
    payload = compiler.compile(importer.lower(program), Target.parse("iree-cpu-host")).payload
    with load_payload(program, payload, "local-sync") as runner:
        for call in calls:
            compare(runner, program, model, call)


@pytest.mark.slow
def test_a_loop_inside_of_a_branch_runs(tmp_path: Path) -> None:
    run_generated(tmp_path)


@pytest.mark.slow
@canary(shared_references.FIX)
def test_it_does_not_without(tmp_path: Path) -> None:
    run_generated(tmp_path)
