"""A structure gives the inputs of a program, and of them the arguments that the model takes."""

from __future__ import annotations

import torch

from aotpipe.canonicalize.inputs.structure import (
    MISSING,
    Attribute,
    Group,
    Leaf,
    Part,
    Structure,
    number_tensor,
)

X = torch.ones(2)


def call(batch, k=3, *, mode="sum"):
    return batch, k, mode


MASK = Part("batch.mask", "batch.mask.present", Leaf("batch.mask", ("batch", "mask"), "tensor", X), MISSING)
LEAVES = (
    Leaf("batch.x", ("batch", "x"), "tensor", X),
    Leaf("batch.mask", ("batch", "mask"), "tensor", X),
    Leaf("k", ("k",), "number", 4),
    Leaf("mode", ("mode",), "constant", "mean"),
)
BATCH = Group(("x", "mask"), (LEAVES[0], MASK), dict)
OWNER = torch.nn.Identity()
STRUCTURE = Structure(
    call=call,
    root=Group(("batch", "k", "mode"), (BATCH, *LEAVES[2:]), dict),
    attributes=(Attribute("self.scale", OWNER, "scale", 2.0),),
)


def test_the_inputs_are_tensors_numbers_and_flags():
    inputs = STRUCTURE.example()
    assert list(inputs) == ["batch.x", "batch.mask", "k", "self.scale", "batch.mask.present"]
    assert (inputs["k"].dtype, inputs["self.scale"].dtype) == (torch.int64, torch.float32)
    assert STRUCTURE.constants == {"mode": "mean"}
    (presence,) = STRUCTURE.presences()
    assert (presence.flag, presence.members, presence.absent) == (MASK.flag, ("batch.mask",), "missing")


def test_the_arguments_come_back():
    def arguments(*, there: bool):
        return STRUCTURE.arguments(
            STRUCTURE.example(),
            number=torch.Tensor.item,
            part=lambda part, built: built() if there else part.absent,
            mapping=lambda kind, items: kind(items),
            constants={"mode": "max"},
        )

    assert arguments(there=True) == (({"x": X, "mask": X}, 4), {"mode": "max"})
    assert arguments(there=False) == (({"x": X}, 4), {"mode": "max"})


def test_a_number_has_the_dtype_of_its_kind():
    assert [number_tensor(each).dtype for each in (True, 1, 1.0)] == [torch.bool, torch.int64, torch.float32]
