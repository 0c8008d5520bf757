"""`torch.inference_mode` in a model's code."""

from __future__ import annotations

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.core.dims import Dim
from aotpipe.export import export
from aotpipe.model.spec import as_spec


def exported(model, x):
    spec = as_spec(model, args=(x,), dynamic_shapes={"x": {0: Dim("n", min=4, max=32)}})
    return export(canonicalize(spec)).entries[0].program


@torch.inference_mode()
def selected(x):
    mask = x > 0
    return x[mask] / (x.abs()[mask] + x.cos()[mask])


@torch.inference_mode()
def decided(x):
    return x + 1 if (x > 0).sum() > 3 else x - 1


def nested(x):
    with torch.inference_mode():
        x = x + 2 * torch.is_inference_mode_enabled()
        with torch.inference_mode(mode=False):
            x = x + 3 * torch.is_inference_mode_enabled() + 5 * torch.is_grad_enabled()
        x = x + 7 * torch.is_grad_enabled()
    return x + 11 * torch.is_inference_mode_enabled()


@pytest.mark.filterwarnings("ignore")  # torch's own
def test_selections_by_one_mask_have_one_size():
    x = torch.randn(9)
    program = exported(selected, x)
    torch.testing.assert_close(program.module()(x), selected(x).clone())
    program.run_decompositions()


def test_a_decision_is_a_branch():
    program = exported(decided, torch.randn(9)).module()
    for x in (torch.ones(5), -torch.ones(5)):
        torch.testing.assert_close(program(x), decided(x).clone())


def test_modes_are_what_eager_has():
    x = torch.randn(9)
    torch.testing.assert_close(exported(nested, x).module()(x), nested(x))
    assert not torch.is_inference_mode_enabled()
    with torch.inference_mode():
        assert torch.is_inference_mode_enabled()
        assert x.cos().is_inference()
