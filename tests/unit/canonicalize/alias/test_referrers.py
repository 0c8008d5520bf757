"""Who holds a tensor: variables, containers, objects, modules."""

from __future__ import annotations

import torch

from aotpipe.canonicalize.alias import effects
from aotpipe.canonicalize.alias.tensor_storage import storage_of
from aotpipe.canonicalize.values.trace import Trace, started


class Holder(torch.nn.Module):
    def __init__(self, held: torch.Tensor) -> None:
        super().__init__()
        self.notes = {"a": [held]}


class Plain:
    def __init__(self, held: torch.Tensor) -> None:
        self.held = (held,)


def test_who_holds_a_tensor():
    held = torch.zeros(3)
    assert storage_of(held[1:]) in effects.held_storages()
    alone = storage_of(torch.zeros(5))
    assert alone not in effects.held_storages()
    deep = {"a": (torch.zeros(2), [torch.zeros(4)])}
    assert storage_of(deep["a"][1][0]) in effects.held_storages()
    plain = Plain(torch.zeros(2))
    assert storage_of(plain.held[0]) in effects.held_storages()


def test_what_a_module_holds():
    holder = [Holder(torch.zeros(3))]
    storage = storage_of(holder[0].notes["a"][0])
    with started(Trace()), effects.watching(holder.pop()):
        assert storage in effects.held_storages()
