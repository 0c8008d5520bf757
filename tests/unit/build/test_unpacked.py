"""The weights of a model that no bundle holds are in a file for as long as they are needed."""

from __future__ import annotations

import numpy as np
import torch

from aotpipe.backends import legalization
from aotpipe.build.unpacked import unpacked
from aotpipe.canonicalize import canonicalize
from aotpipe.core.stages import Legal
from aotpipe.export import export
from aotpipe.model import spec
from aotpipe.passes import legalize
from aotpipe.runtime import tensor_file
from aotpipe.runtime.bundle.manifest import STATE_PREFIX


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(3.0))
        self.register_buffer("count", torch.tensor(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x * self.weight + self.count


def legal() -> Legal:
    return legalize(
        export(canonicalize(spec.as_spec(Counter().eval(), args=(torch.ones(3),)))), legalization()
    )


def test_weights_and_state_are_in_one_file_while_the_body_runs():
    found = legal()
    with unpacked(found) as loadable:
        arrays = tensor_file.read(loadable.weights)
        [weight] = found.weights
        np.testing.assert_array_equal(arrays[weight], [0, 1, 2])
        [state] = loadable.initial_state
        assert arrays[STATE_PREFIX + state] == loadable.initial_state[state] == 4
        assert loadable.signatures["forward"] == found.entries[0].signature
        assert loadable.is_stateful
    assert not loadable.weights.exists()


def test_the_weights_may_be_those_of_another_form_of_the_model():
    found = legal()
    with unpacked(found, signatures={}, weights_of=(found, found)) as loadable:
        assert loadable.signatures == {}
        assert set(found.weights) <= set(tensor_file.read(loadable.weights))
