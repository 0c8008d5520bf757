"""Who holds a tensor: variables, containers, objects, modules."""

from __future__ import annotations

import torch

from aotpipe.canonicalize.python import effects
from aotpipe.canonicalize.python.holders import is_held
from aotpipe.canonicalize.python.identities import storage_of


class Holder(torch.nn.Module):
    def __init__(self, held: torch.Tensor) -> None:
        super().__init__()
        self.notes = {"a": [held]}


class Plain:
    def __init__(self, held: torch.Tensor) -> None:
        self.held = (held,)


def test_who_holds_a_tensor():
    held = torch.zeros(3)
    assert is_held(storage_of(held[1:]))
    alone = storage_of(torch.zeros(5))
    assert not is_held(alone)
    deep = {"a": (torch.zeros(2), [torch.zeros(4)])}
    assert is_held(storage_of(deep["a"][1][0]))
    plain = Plain(torch.zeros(2))
    assert is_held(storage_of(plain.held[0]))


def test_what_a_module_holds():
    holder = [Holder(torch.zeros(3))]
    storage = storage_of(holder[0].notes["a"][0])
    with effects.watching(holder.pop(), kept=False):
        assert is_held(storage)
