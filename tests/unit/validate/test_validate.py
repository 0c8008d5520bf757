"""Real programs: right ones are executed, wrong ones fail parity, crashing ones are typed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
import torch

from aotpipe.backends import legalization
from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.lower.importer import lower
from aotpipe.canonicalize import canonicalize
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Canonical, Compiled, Legal
from aotpipe.core.targets import Target
from aotpipe.errors import AssertionViolated, ParityError, ProgramCrashed
from aotpipe.export import export
from aotpipe.model.spec import Dim, Spec, as_spec
from aotpipe.model.torch_arrays import view_numpy
from aotpipe.passes import legalize
from aotpipe.runtime import tensor_file
from aotpipe.runtime.goldens import Golden
from aotpipe.runtime.input_checks import Packer
from aotpipe.validate import Loadable, _judge_call, validate
from aotpipe.validate.eager.eager import Eager
from aotpipe.validate.reference import Reference, reference

HOST = Target.parse("iree-cpu-host")


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(16, 8)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.norm(torch.relu(self.linear(x)))
        return {"y": y, "best": y.argmax(-1)}


class _Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 2


@dataclass(frozen=True)
class _Built:
    canonical: Canonical
    legal: Legal
    changed: Legal
    loadable: Loadable

    @cached_property
    def reference(self) -> Reference:
        return reference(self.canonical, self.legal)

    @cached_property
    def compiled(self) -> Compiled:
        return compiler.compile(lower(self.changed), HOST)

    def eager(self) -> Eager:
        return Eager(self.canonical.entries)


def _build(spec: Spec, folder: Path, change: Callable[[Legal], Legal] = lambda legal: legal) -> _Built:
    canonical = canonicalize(spec)
    legal = legalize(export(canonical), legalization())
    changed = change(legal)
    weights = {k: view_numpy(v) for k, v in changed.weights.items()}
    return _Built(
        canonical=canonical,
        legal=legal,
        changed=changed,
        loadable=Loadable(
            signatures={entry.name: entry.signature for entry in legal.entries},
            weights=tensor_file.write_shards(weights, folder, "weights"),
            initial_state={k: view_numpy(v) for k, v in legal.initial_state.items()},
            asserts={entry.name: entry.asserts for entry in legal.entries},
            threads=1,
        ),
    )


def _net_spec() -> Spec:
    return as_spec(
        _Net().eval(),
        args=(torch.randn(4, 16),),
        dynamic_shapes={"x": {0: Dim("batch", min=1, max=9)}},
        name="net",
    )


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> _Built:
    return _build(_net_spec(), tmp_path_factory.mktemp("net"))


def test_a_right_program_is_executed_and_timed(net: _Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aotpipe.validate.LATENCY_BUDGET_S", 0.2)
    validated = validate(net.compiled, net.loadable, net.reference.goldens, eager=net.eager())
    assert validated.status == "executed"
    assert validated.parity is not None
    assert validated.parity.passed
    assert validated.parity.calls == len(net.reference.goldens) >= 5
    assert validated.parity.worst is not None
    assert validated.parity.worst.ratio < 0.9
    (timing,) = validated.latency
    assert timing.program.samples >= 5
    assert 0 < timing.program.least_us <= timing.program.median_us
    assert timing.baselines["eager"].samples >= 1
    assert timing.load_us is not None
    assert timing.program.first_us is not None
    assert timing.peak_rss_bytes > 10**7


def test_the_goldens_cover_both_ends_of_the_batch(net: _Built) -> None:
    sizes = {golden.inputs["x"].shape[0] for golden in net.reference.goldens}
    assert {1, 4, 9} <= sizes


def test_the_goldens_are_a_function_of_the_model(net: _Built) -> None:
    from aotpipe.runtime import goldens

    again = reference(net.canonical, net.legal)
    assert goldens.dumps(again.goldens) == goldens.dumps(net.reference.goldens)


@pytest.mark.parametrize("error", [3e-3, 3e-5])
def test_a_perturbed_weight_fails_with_the_worst_element(net: _Built, tmp_path: Path, error: float) -> None:
    weights = {key: np.array(array) for key, array in tensor_file.read_shards(net.loadable.weights).items()}
    name = next(key for key in weights if weights[key].shape == (8, 16))
    weights[name][3, 5] += error
    written = tensor_file.write_shards(weights, tmp_path, "weights")
    with pytest.raises(ParityError) as caught:
        validate(net.compiled, replace(net.loadable, weights=written), net.reference.goldens)
    assert caught.value.exit_code == 40
    assert "eager gives" in caught.value.message
    assert caught.value.parity is not None
    worst = caught.value.parity.worst
    assert worst is not None
    assert worst.output == "y"
    assert worst.ratio > 1
    assert len(worst.worst_index) == 2


def test_a_program_of_another_model_fails(net: _Built, tmp_path: Path) -> None:
    class Other(_Net):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            y = self.norm(torch.nn.functional.gelu(self.linear(x)))
            return {"y": y, "best": y.argmax(-1)}

    spec = replace(_net_spec(), build=lambda: Other().eval())
    other = _build(spec, tmp_path)
    with pytest.raises(ParityError, match=r"iree-cpu-host: `(y|best)` of forward"):
        validate(other.compiled, other.loadable, net.reference.goldens)


def test_a_program_that_cannot_run_here_is_compiled_and_says_why(net: _Built) -> None:
    elsewhere = replace(net.compiled, host_features=(*net.compiled.host_features, "amx-telepathy"))
    validated = validate(elsewhere, net.loadable, net.reference.goldens)
    assert validated.status == "compiled"
    assert validated.reason == "this CPU lacks amx-telepathy"


def test_a_hanging_program_is_typed(net: _Built, monkeypatch: pytest.MonkeyPatch) -> None:
    from aotpipe.runtime import worker

    monkeypatch.setattr(worker, "_LOAD_TIMEOUT_S", 0.001)
    with pytest.raises(ProgramCrashed, match="did not answer"):
        validate(net.compiled, net.loadable, net.reference.goldens, worker=worker.Worker(timeout_s=0.001))


def test_a_slow_program_is_judged_on_some_calls_and_says_so(
    net: _Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aotpipe.validate.PARITY_BUDGET_S", 0.0)
    validated = validate(net.compiled, net.loadable, net.reference.goldens)
    assert validated.parity is not None
    assert validated.parity.calls == 1
    assert validated.notes[0].startswith(f"1 of {len(net.reference.goldens)} calls")


def test_state_is_judged_in_sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aotpipe.validate.LATENCY_BUDGET_S", 0.1)
    spec = as_spec(_Counter().eval(), args=(torch.ones(4),), name="counter")
    built = _build(spec, tmp_path)
    kept = [golden for golden in built.reference.goldens if not golden.reset]
    assert kept
    validated = validate(built.compiled, built.loadable, built.reference.goldens, eager=built.eager())
    assert validated.status == "executed"
    wrong = replace(built.loadable, initial_state={"total": np.full(4, 0.5, np.float32)})
    with pytest.raises(ParityError):
        validate(built.compiled, wrong, built.reference.goldens)


def test_a_weight_that_the_model_rescales_once_is_judged_right(tmp_path: Path) -> None:
    class Rescaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((4,), 8.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.weight.div_(2)
            return x * self.weight

    model = Rescaled().eval()
    built = _build(as_spec(model, args=(torch.ones(4),), name="rescaled"), tmp_path)
    validated = validate(built.compiled, built.loadable, built.reference.goldens)
    assert validated.status == "executed"
    # The reference has run the model many times and left its weight alone.
    assert built.reference.goldens[0].outputs["output"].tolist() == (model.weight / 2).tolist()


def test_a_call_that_the_model_refuses_is_left_out_with_a_note(tmp_path: Path) -> None:
    class Picky(torch.nn.Module):
        def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_compiling() and x[0, 0] > 0.5:
                raise ValueError("too large")
            return x + index

    spec = as_spec(
        Picky().eval(),
        args=(torch.zeros(2, 2), torch.zeros(2, 2)),
        value_ranges={"x": (-1.0, 1.0)},
        name="picky",
    )
    built = _build(spec, tmp_path)
    (finding,) = [f for f in built.reference.findings if "highest values" in f.message]
    assert "ValueError: too large" in finding.message
    assert all(golden.inputs["x"][0, 0] <= 0.5 for golden in built.reference.goldens)


class _Stub:
    """A program that refuses every call, or answers it."""

    def __init__(self, error: AssertionViolated | None) -> None:
        self.error = error

    def infer(self, inputs: object, *, entry_point: str) -> dict[str, np.ndarray]:
        if self.error is not None:
            raise self.error
        return {}


def test_what_eager_refuses_the_program_must_refuse() -> None:
    golden = Golden(
        entry_point="forward",
        case="found 1",
        reset=True,
        inputs={},
        outputs={},
        allowed={},
        raises="ValueError: x",
    )
    packer = Packer(Signature(inputs=(), outputs=()))
    [case] = _judge_call(_Stub(AssertionViolated("no")), golden, packer)  # type: ignore[arg-type]
    assert case.passed
    assert case.uninformative
    [case] = _judge_call(_Stub(None), golden, packer)  # type: ignore[arg-type]
    assert case.message == "the program answers, where eager raises ValueError: x"


def test_importing_validate_imports_no_torch() -> None:
    code = "import sys, aotpipe.validate; print([m for m in ('torch', 'iree.compiler') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
