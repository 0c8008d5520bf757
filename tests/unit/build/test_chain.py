"""Each stage runs once; a prepared model comes from the store exactly where nothing has changed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aotpipe.build import file_reads
from aotpipe.build import prepared as prepared_module
from aotpipe.build.cache import Cache
from aotpipe.build.chain import Chain
from aotpipe.build.compile_stage import CompileSettings
from aotpipe.build.events import Event, Recorder, StageFinished
from aotpipe.build.prepared import FRONT_STAGES, Prepared
from aotpipe.build.record import FileStamp, Record, Snapshot
from aotpipe.build.request import Request
from aotpipe.canonicalize.trace import decisions
from aotpipe.core.dims import Dim
from aotpipe.core.stages import Compiled, Finding, Legal, Lowered
from aotpipe.core.targets import Backend
from aotpipe.errors import LowerFailed, SpecInvalid
from aotpipe.export import strategies
from aotpipe.passes.codegen import from_source
from aotpipe.passes.rules import LegalizationRules
from aotpipe.runtime import tensor_file
from aotpipe.runtime.bundle.manifest import STATE_PREFIX
from aotpipe.runtime.store import file_digest
from tests.unit.build import samples

REQUEST = Request.of("m.py")


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, unused: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.linear(x) * self.count


def counter(**options: Any) -> Request:
    args = (torch.randn(3, 4), torch.ones(1))
    return Request.of(Counter().eval(), ["iree-vmvx"], args, name="counter", **options)


class Compilers:
    """Stands in for the compilers: notes the modules that they are started with."""

    cache: Cache

    def __init__(self, recorder: Recorder | None = None, busy: int = 0) -> None:
        self.recorder = recorder or Recorder()
        self.started: list[Mapping[Backend, Lowered]] = []
        self.busy = busy

    def start(self, lowered: Mapping[Backend, Lowered]) -> int:
        self.started.append(lowered)
        return self.busy


def prepare(
    request: Request, folder: Path, compilers: Compilers | None = None, *, cache: bool = True
) -> prepared_module.Ready:
    folder.mkdir(exist_ok=True)
    compilers = compilers or Compilers()
    compilers.cache = Cache.open(compilers.recorder, enabled=cache)
    return prepared_module.prepare(request, compilers, folder=folder, exclude=[])


def stages(recorder: Recorder) -> list[str]:
    return [done.stage for done in recorder.finished]


def test_a_stage_runs_once_and_only_as_far_as_somebody_asks():
    one = Chain(counter(), Recorder())
    assert stages(one.recorder) == []
    assert one.exported.canonical is one.canonical
    assert stages(one.recorder) == ["load", "canonicalize", "export"]
    assert one.lowered["iree"].entry_points == ("forward",)
    assert one.reference().goldens
    assert stages(one.recorder) == [each for each in FRONT_STAGES if each != "weights"]
    assert one.parts is None
    assert one.lowerable is one.legals


def test_the_precision_is_that_of_the_exported_programs():
    one = Chain(counter(dtype="bf16"), Recorder())
    assert [finding.code for finding in one.exported.findings if finding.code == "precision"]
    assert torch.bfloat16 in {tensor.dtype for tensor in one.legal.weights.values()}


def test_programs_are_compiled_and_loaded_with_the_weights_and_the_state():
    one = Chain(counter(), Recorder())
    [program] = one.compiled(CompileSettings()).values()
    assert isinstance(program, Compiled)
    with one.loadable() as loadable:
        arrays = tensor_file.read_shards(loadable.weights)
        assert sorted(arrays) == ["linear.bias", "linear.weight", STATE_PREFIX + "count"]
        assert loadable.signatures["forward"] == one.legal.entries[0].signature
        # A product of [3, 4] by [4, 2], its matrix, and the elements of some ops that multiply nothing.
        assert 3 * 4 * 2 + 16 * 4 * 2 < loadable.signatures["forward"].products < 1000
        assert loadable.is_stateful
    assert not any(each.path.exists() for each in loadable.weights)


def test_a_model_is_prepared_stage_by_stage(tmp_path: Path):
    heard: list[Event] = []
    prepared = prepare(counter(), tmp_path, Compilers(Recorder(heard.append)), cache=False).prepared
    done = [event.stage for event in heard if isinstance(event, StageFinished)]
    assert [stage for stage in done if stage != "weights"] == [
        each for each in FRONT_STAGES if each != "weights"
    ]
    assert done.index("weights") > done.index("legalize")  # beside what follows
    assert "unused-input" in [event.code for event in heard if isinstance(event, Finding)]
    assert prepared.name == "counter"
    assert [leaf.name for leaf in prepared.loadable.signatures["forward"].state] == ["count"]
    assert sorted(tensor_file.read_shards(prepared.loadable.weights)) == [
        "linear.bias",
        "linear.weight",
        "state/count",
    ]
    assert all(file_digest(each.path) == each.sha256 for each in prepared.loadable.weights)
    assert prepared.goldens
    assert b"@forward" in prepared.lowered["iree"].module
    assert {finding.code for finding in prepared.findings} >= {"unused-input"}


def test_the_compilers_are_started_before_eager_is_asked(tmp_path: Path):
    heard: list[str] = []

    class Heard(Compilers):
        def start(self, lowered: Mapping[Backend, Lowered]) -> int:
            heard.extend(lowered)
            return super().start(lowered)

    recorder = Recorder(lambda event: heard.append(f"{type(event).__name__} {getattr(event, 'stage', '')}"))
    prepare(counter(), tmp_path, Heard(recorder), cache=False)
    assert heard.index("StageFinished lower") < heard.index("iree") < heard.index("StageStarted reference")


def test_eager_leaves_cores_to_the_compilers(monkeypatch: pytest.MonkeyPatch):
    from aotpipe.validate import reference

    seen: list[int] = []
    real = reference.reference

    def counted(*args: Any, **kwargs: Any) -> reference.Reference:
        seen.append(torch.get_num_threads())
        return real(*args, **kwargs)

    monkeypatch.setattr(reference, "reference", counted)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    before = torch.get_num_threads()
    one = Chain(counter(), Recorder())
    try:
        torch.set_num_threads(4)
        for busy in (0, 3, 6, 9):
            one.reference(compilers=busy)
            assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)
    assert seen == [4, 4, 2, 1]


class Front:
    """Stands in for the stages that need torch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dependencies: Snapshot | None) -> None:
        self.calls = 0
        monkeypatch.setattr(prepared_module, "_through_torch", self.prepare)
        monkeypatch.setattr(
            file_reads.RecordedReads, "dependencies", lambda self, extra_packages: dependencies
        )

    def prepare(self, _: Chain, compilers: Compilers, folder: Path) -> Prepared:
        self.calls += 1
        prepared = samples.prepared(folder)
        compilers.start(prepared.lowered)
        return prepared


def test_an_unchanged_model_is_not_prepared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "m.py"
    path.write_text("one")
    stand_in = Front(monkeypatch, Snapshot(files={str(path): FileStamp.take(path)}, folders={}, variables={}))
    first = prepare(REQUEST, tmp_path / "first")
    second = prepare(REQUEST, tmp_path / "second")
    assert stand_in.calls == 1
    assert first.key == second.key
    digests = [[each.sha256 for each in made.prepared.loadable.weights] for made in (first, second)]
    assert digests[0] == digests[1]
    found = Record.fresh(Cache.open(Recorder()), REQUEST.key)
    assert found is not None
    assert (found.name, found.prepared) == ("tiny", first.key)
    path.write_text("two")
    assert Record.fresh(Cache.open(Recorder()), REQUEST.key) is None
    prepare(REQUEST, tmp_path / "third")
    assert stand_in.calls == 2


def test_a_changed_model_drops_the_prepared_one_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, keys = tmp_path / "m.py", []
    for text in ("one", "two"):
        path.write_text(text)
        files = {str(path): FileStamp.take(path)}
        Front(monkeypatch, Snapshot(files=files, folders={}, variables={}))
        keys.append(prepare(REQUEST, tmp_path / text).key)
    cache = Cache.open(Recorder())
    assert [cache.load("prepared", str(key), lambda _: True) for key in keys] == [None, True]


def test_the_compilers_are_started_once_wherever_the_modules_come_from(tmp_path: Path, monkeypatch):
    Front(monkeypatch, Snapshot(files={}, folders={}, variables={}))
    compilers = Compilers()
    for name in ("made", "stored"):
        prepare(REQUEST, tmp_path / name, compilers)
    assert compilers.started == [{"iree": samples.LOWERED}] * 2


def test_what_is_not_wholly_known_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stand_in = Front(monkeypatch, None)
    for request in (REQUEST, REQUEST, Request.of(object())):
        assert prepare(request, tmp_path).key is None
    assert stand_in.calls == 3


def test_stages_that_were_spared_are_told_as_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    Front(monkeypatch, Snapshot(files={}, folders={}, variables={}))
    prepare(REQUEST, tmp_path / "first")
    compilers = Compilers()
    prepare(REQUEST, tmp_path / "again", compilers)
    assert stages(compilers.recorder) == list(FRONT_STAGES)
    assert all(done.cached for done in compilers.recorder.finished)


BOTH = Request.of(torch.nn.Linear(2, 2).eval(), ["iree-vmvx", "xla-cpu-host"], (torch.ones(1, 2),))


def test_a_model_that_refuses_its_own_example_is_the_users(monkeypatch: pytest.MonkeyPatch):
    from aotpipe.validate import reference
    from aotpipe.validate.eager.eager import EagerFailed

    def refuse(*_: object, **__: object) -> None:
        raise EagerFailed("ValueError: too small")

    monkeypatch.setattr(reference, "reference", refuse)
    with pytest.raises(SpecInvalid, match="raises on its own example inputs") as caught:
        Chain(BOTH, Recorder()).reference()
    assert "too small" in caught.value.reason


def test_the_dialects_share_their_weights_and_agree_on_signatures(monkeypatch: pytest.MonkeyPatch):
    import aotpipe.passes

    chain = Chain(BOTH, Recorder())
    torch_, stablehlo = chain.legals.values()
    assert torch_.weights.keys() == stablehlo.weights.keys()
    real = aotpipe.passes.legalize

    def other_weights(exported: object, rules: LegalizationRules, **options: object) -> Legal:
        legal = real(exported, rules, **options)
        return replace(
            legal, weights={key: tensor + (rules.dialect == "torch") for key, tensor in legal.weights.items()}
        )

    monkeypatch.setattr(aotpipe.passes, "legalize", other_weights)
    torch_, stablehlo = Chain(BOTH, Recorder(), exported=chain.exported).legals.values()
    assert {f"stablehlo.{key}" for key in torch_.weights} == stablehlo.weights.keys()
    assert set(stablehlo.entries[0].weights) == stablehlo.weights.keys()

    def other_signature(exported: object, rules: LegalizationRules, **options: object) -> Legal:
        legal = real(exported, rules, **options)
        signature = (
            replace(legal.entries[0].signature, outputs=())
            if rules.dialect == "torch"
            else legal.entries[0].signature
        )
        return replace(legal, entries=(replace(legal.entries[0], signature=signature),))

    monkeypatch.setattr(aotpipe.passes, "legalize", other_signature)
    with pytest.raises(LowerFailed, match="disagree on 'forward'"):
        Chain(BOTH, Recorder(), exported=chain.exported).legals  # noqa: B018  # runs the stage


def test_a_cpu_and_a_gpu_get_modules_of_their_own_and_share_one_where_the_rules_are_the_same():
    model, x = torch.nn.Conv2d(2, 4, 1).eval(), torch.ones(1, 2, 4, 4)
    lowered = Chain(Request.of(model, ["iree-vmvx", "iree-vulkan"], (x,)), Recorder()).lowered
    assert b"torch.aten.convolution" in lowered["iree-gpu"].module
    assert b"torch.aten.convolution" not in lowered["iree"].module
    same = Chain(
        Request.of(model, ["iree-vmvx", "iree-vulkan"], (x,), dialect="stablehlo"), Recorder()
    ).lowered
    assert same["iree"] is same["iree-gpu"]


FILE = """import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if x.sum() > 0:
            x = x + 1
        return x, self.calls


def other():
    pass


MODEL = Net().eval()
EXAMPLE_INPUTS = (torch.ones(3),)
"""


def of_file(folder: Path, text: str = FILE, **options: Any) -> Request:
    path = folder / "net.py"
    path.write_text(text)
    return Request.of(f"{path}:MODEL", ["iree-vmvx"], **options)


def test_what_became_of_the_source_is_shown(tmp_path: Path):
    diff = Chain(of_file(tmp_path), Recorder()).source_diff
    assert diff.startswith("--- net.py\n+++ net.py\n@@")
    assert "-        if x.sum() > 0:\n" in diff
    assert "+        x = torch.cond(x.sum() > 0, true_fn, false_fn, (x,))\n" in diff
    assert "+        self.register_buffer('calls', torch.tensor(0), persistent=False)\n" in diff
    # The rest of the file stays.
    assert "def other" not in diff
    assert "-MODEL" not in diff
    assert str(tmp_path) not in diff


def test_the_dtype_of_a_policy_is_not_that_of_the_source(tmp_path: Path):
    plain = Chain(of_file(tmp_path), Recorder()).source_diff
    assert Chain(of_file(tmp_path, dtype="bf16"), Recorder()).source_diff == plain


def test_nothing_is_shown_where_no_line_changes(tmp_path: Path):
    assert Chain(counter(), Recorder()).source_diff == ""
    plain = FILE.replace("        self.calls += 1\n", "").replace("if x.sum() > 0", "if x.dim() > 0")
    one = Chain(of_file(tmp_path, plain), Recorder())
    assert one.source_diff == ""
    assert one.decisions == ()


def test_nothing_is_shown_of_source_that_has_no_such_form_or_answers_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    late = FILE.replace("        self.calls += 1\n", "        self.last = getattr(self, 'last', x) + x\n")
    assert Chain(of_file(tmp_path, late), Recorder()).source_diff == ""
    one = Chain(of_file(tmp_path), Recorder())
    edited = from_source.edit_source(one.exported, one.decisions)
    wrong = {lines: text.replace("x + 1", "x + 2") for lines, text in edited.edits.items()}
    monkeypatch.setattr(from_source, "edit_source", lambda *_: replace(edited, edits=wrong))
    assert one.source_diff == ""


def test_a_trace_that_is_given_up_decides_nothing():
    class Net(torch.nn.Module):
        def helped(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.max() > 2 else x

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.sum() > 0:
                x = self.helped(x)
            return self.helped(x + 1)

    request = Request.of(
        Net().eval(), ["iree-vmvx"], (torch.ones(3),), dynamic_shapes={"x": {0: Dim("n", min=2, max=8)}}
    )
    one = Chain(request, Recorder())
    with decisions.recorded() as noted:
        exported = one.exported
    assert [each.kind for each in noted] == [each.kind for each in one.decisions]
    with decisions.recorded() as again:
        strategies.trace(exported.canonical.entries[0])
    assert again == []  # a trace gives them, and the export of all keeps them
    # The branch of `forward`, twice at most in the one trace that is kept, and the choices of `helped`.
    assert sum(each.kind == "branch" for each in one.decisions) <= 2


def test_the_store_keeps_what_became_of_the_source_and_no_digest_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    known = Snapshot(files={}, folders={}, variables={})
    monkeypatch.setattr(file_reads.RecordedReads, "dependencies", lambda self, extra_packages: known)
    request = of_file(tmp_path)
    first = prepare(request, tmp_path / "first")
    assert first.prepared.source_diff.startswith("--- net.py\n")
    recorder = Recorder()
    again = prepare(request, tmp_path / "again", Compilers(recorder))
    assert [done.stage for done in recorder.finished if not done.cached] == []
    assert again.prepared.source_diff == first.prepared.source_diff
    monkeypatch.setattr(Chain, "source_diff", "")
    without = prepare(request, tmp_path / "without", cache=False)
    assert without.prepared.source_diff == ""
    assert without.prepared.digest == first.prepared.digest
