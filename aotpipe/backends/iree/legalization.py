"""What legalization does for IREE's torch dialect, on CPUs and on GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import torch

from aotpipe.backends.iree import unsupported
from aotpipe.backends.iree.decompositions import float_to_int, table
from aotpipe.backends.iree.tuning import cpu, gpu
from aotpipe.passes import (
    complex_parts,
    decompositions,
    integer_division,
    join_gathers,
    split_reductions,
    unbacked_splits,
    zero_elements,
)
from aotpipe.passes.decompositions import Decomposition, experts
from aotpipe.passes.rules import LegalizationRules


def _table_with(convolution: Decomposition) -> Callable[[], Mapping[Any, Decomposition]]:
    def decompositions_now() -> Mapping[Any, Decomposition]:
        libraries = decompositions.of_libraries(experts.LIBRARIES)
        return {**table(), torch.ops.aten.convolution.default: convolution, **libraries}

    return decompositions_now


CPU: Final = LegalizationRules(
    dialect="torch",
    decompositions=_table_with(cpu.convolution),
    refusal=unsupported.refusal,
    size_refusal=unsupported.size_refusal,
    program_passes=(
        complex_parts.split,
        unbacked_splits.write_out,
        split_reductions.split,
        zero_elements.fill,
    ),
    range_passes=(integer_division.mend, join_gathers.join),
    graph_passes=(float_to_int.truncate,),
)
GPU: Final = replace(CPU, decompositions=_table_with(gpu.convolution))
