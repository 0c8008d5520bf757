"""Keeps what follows a convolution or a pool over a varying batch out of its kernel, for IREE's bytecode."""

from __future__ import annotations

from typing import Any, Final

from aotpipe.backends.iree.fixes.rewrites import Rewrite, fusion_barrier, replace_uses
from aotpipe.core.fixes import Fix


def _keep_apart(window: Any) -> bool:
    from aotpipe.backends.iree.lower.region_borders import builtin_type, convert, dynamic_dims

    result = window.results[0]
    plain = builtin_type(result.type)
    if str(plain.element_type) not in ("f32", "f64"):
        return False
    if [dim for dim in range(plain.rank) if plain.is_dynamic_dim(dim)] != [0]:
        return False

    def barred() -> Any:
        value = convert(result, plain)
        return convert(fusion_barrier(value, dynamic_dims(value)), result.type)

    replace_uses(result, barred)
    return True


FIX: Final = Fix(
    id="vmvx-windows",
    fault="IREE reserves memory for every row that a batch may have where a convolution or a pool over it "
    "is in one kernel with what follows: a call runs out of memory, or the compile fails (`'memref.alloca' "
    "op incorrect number of dynamic sizes`)",
    remedy="a fusion barrier makes it a kernel of its own",
    targets=("iree-vmvx",),
    program="`nn.AvgPool2d(2)`, or a convolution with what follows it, over a batch that varies "
    "(`models/mtcnn.py`)",
    diagnostic="RESOURCE_EXHAUSTED",
    apply=Rewrite(
        (
            "torch.aten.convolution",
            "torch.aten.avg_pool2d",
            "torch.aten.avg_pool3d",
            "torch.aten.max_pool2d",
            "torch.aten.max_pool3d",
            "torch.aten.max_pool2d_with_indices",
            "torch.aten.max_pool3d_with_indices",
        ),
        _keep_apart,
    ),
)
