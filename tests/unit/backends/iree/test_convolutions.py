"""A module's convolutions decide how the compiler is to make them."""

import pytest

from aotpipe.backends.iree import flags
from aotpipe.backends.iree.convolutions import favors_loops
from aotpipe.targets import expand


def convolution(image: str, weight: str, result: str) -> bytes:
    numbers = "%arg0, %0, %1, %4, %5, %6, %false, %7, %int1"
    rest = "!torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int"
    return (
        f"%8 = torch.aten.convolution {numbers} : !torch.vtensor<[{image}],f32>, "
        f"!torch.vtensor<[{weight}],f32>, !torch.vtensor<[8],f32>, {rest} "
        f"-> !torch.vtensor<[{result}],f32> loc(#loc)\n"
    ).encode()


WIDE = convolution("1,32,112,112", "32,32,3,3", "1,32,112,112")
SMALL = convolution("1,256,14,14", "256,256,3,3", "1,256,14,14")


@pytest.mark.parametrize(
    ("module", "favors"),
    [
        (b"", False),
        (WIDE, True),
        (SMALL, False),
        (WIDE + SMALL, False),
        (WIDE * 5 + SMALL, True),
        (convolution("1,32,112,112", "32,32,3,3", "1,32,56,56"), False),
        (convolution("1,32,112,112", "512,32,1,1", "1,512,112,112"), False),
        (convolution("1,32,112,112", "32,1,3,3", "1,32,112,112"), False),
        (convolution("?,32,64,64", "32,32,3,3", "?,32,64,64"), True),
    ],
    ids=["none", "wide", "small", "both", "mostly wide", "strided", "of one element", "grouped", "any batch"],
)
def test_large_patches_are_not_made(module: bytes, favors: bool):
    assert favors_loops(module) is favors
    [host] = expand(["iree-cpu-host"])
    wants = any("im2col" in flag for flag in flags.choose(module, "torch", host))
    assert wants is (bool(module) and not favors)
