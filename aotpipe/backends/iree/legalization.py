"""What legalization does for IREE's torch dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from aotpipe.backends.iree import unsupported
from aotpipe.backends.iree.decompositions import float_to_int, table
from aotpipe.passes import (
    complex_parts,
    decompositions,
    integer_division,
    join_gathers,
    split_reductions,
    unbacked_splits,
    zero_elements,
)
from aotpipe.passes.decompositions import experts
from aotpipe.passes.rules import LegalizationRules


def _decompositions() -> Mapping[Any, Callable[..., Any]]:
    return {**table(), **decompositions.of_libraries(experts.LIBRARIES)}


RULES: Final = LegalizationRules(
    dialect="torch",
    decompositions=_decompositions,
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
