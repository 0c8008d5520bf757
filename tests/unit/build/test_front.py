"""The stages that need torch, where they refuse a model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from aotpipe.build import front
from aotpipe.build.chain import Chain
from aotpipe.build.events import Recorder
from aotpipe.build.request import Request
from aotpipe.core.stages import Legal
from aotpipe.errors import LowerFailed, SpecInvalid
from aotpipe.passes.rules import LegalizationRules

REQUEST = Request.of(torch.nn.Linear(2, 2).eval(), ["iree-vmvx", "xla-cpu-host"], (torch.ones(1, 2),))


def test_a_model_that_refuses_its_own_example_is_the_users(monkeypatch: pytest.MonkeyPatch):
    from aotpipe.validate import reference
    from aotpipe.validate.eager.eager import EagerFailed

    def refuse(*_: object, **__: object) -> None:
        raise EagerFailed("ValueError: too small")

    monkeypatch.setattr(reference, "reference", refuse)
    with pytest.raises(SpecInvalid, match="raises on its own example inputs") as caught:
        Chain(REQUEST, Recorder()).reference()
    assert "too small" in caught.value.reason


def test_the_dialects_share_their_weights_and_agree_on_signatures(monkeypatch: pytest.MonkeyPatch):
    import aotpipe.passes

    chain = Chain(REQUEST, Recorder())
    torch_, stablehlo = chain.legals.values()
    assert torch_.weights.keys() == stablehlo.weights.keys()
    real = aotpipe.passes.legalize

    def other_weights(exported: object, rules: LegalizationRules, **options: object) -> Legal:
        legal = real(exported, rules, **options)
        return replace(
            legal, weights={key: tensor + (rules.dialect == "torch") for key, tensor in legal.weights.items()}
        )

    monkeypatch.setattr(aotpipe.passes, "legalize", other_weights)
    torch_, stablehlo = front.legalize(chain.exported, Recorder(), REQUEST).values()
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
        front.legalize(chain.exported, Recorder(), REQUEST)


def test_a_cpu_and_a_gpu_get_modules_of_their_own_and_share_one_where_the_rules_are_the_same():
    model, x = torch.nn.Conv2d(2, 4, 1).eval(), torch.ones(1, 2, 4, 4)
    lowered = Chain(Request.of(model, ["iree-vmvx", "iree-vulkan"], (x,)), Recorder()).lowered
    assert b"torch.aten.convolution" in lowered["iree-gpu"].module
    assert b"torch.aten.convolution" not in lowered["iree"].module
    same = Chain(
        Request.of(model, ["iree-vmvx", "iree-vulkan"], (x,), dialect="stablehlo"), Recorder()
    ).lowered
    assert same["iree"] is same["iree-gpu"]
