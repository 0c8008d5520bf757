"""What does not fit into a chip's memory is told with the largest tensors and a way out."""

from __future__ import annotations

from typing import Any

import pytest

from aotpipe.backends.xla.estimate import chips
from aotpipe.core.targets import Target
from aotpipe.errors import Buffer, DeviceMemoryExceeded, SourceLine

V5E = Target.parse("xla-tpu-v5e")
PROGRAM: dict[str, Any] = {"entry_point": "forward", "sizes": {"seq": 64, "batch": 8}, "arguments_bytes": 0}
WEIGHT = Buffer("weight", "embed.weight", 20 * 2**30)
RESULT = Buffer("result", "float32[65536, 65536] of aten.mm.default", 2**34, SourceLine("net.py", 7))


def test_arguments_that_are_too_large_are_refused_before_the_compiler() -> None:
    chips.require_room({**PROGRAM, "arguments_bytes": 16 * 2**30}, V5E, [])
    chips.require_room({**PROGRAM, "arguments_bytes": 2**50}, Target.parse("xla-cpu-host"), [])
    with pytest.raises(DeviceMemoryExceeded) as caught:
        chips.require_room({**PROGRAM, "arguments_bytes": 20 * 2**30}, V5E, [WEIGHT, RESULT])
    error = caught.value
    assert error.buffers == (WEIGHT,)
    assert str(error).splitlines() == [
        (
            "error[compile]: the weights, state and inputs of 'forward batch=8 seq=64' are 21.5 GB, and "
            "xla-tpu-v5e has 17.2 GB"
        ),
        "  its largest tensors:",
        "    21.5 GB  weight embed.weight",
        (
            "  hint: hold the weights in fewer bytes: `model.bfloat16()`; or take a chip with more memory: "
            "-t xla-tpu-v4"
        ),
    ]


@pytest.mark.parametrize(
    "words",
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries "
            "(19.00G) exceeds available HBM (15.75G)."
        ),
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
            "Used 19.00G of 15.75G hbm. Exceeded hbm capacity by 3.25G.\n\nTotal hbm usage >= 19.3G:"
        ),
    ],
)
def test_a_compiler_s_words_become_an_error_with_the_user_s_line(words: str) -> None:
    error = chips.overflow(words, PROGRAM, V5E, [RESULT], log="all.log")
    assert error is not None
    assert (
        error.message
        == "the program 'forward batch=8 seq=64' takes 20.4 GB of memory, and xla-tpu-v5e has 16.9 GB"
    )
    assert error.where == SourceLine("net.py", 7)
    assert "17.2 GB  result float32[65536, 65536] of aten.mm.default, net.py:7" in error.reason
    assert error.hint.startswith("build it for smaller sizes")
    assert error.log == "all.log"
    assert error.exit_code == 39


def test_other_words_are_no_overflow() -> None:
    assert chips.overflow("UNIMPLEMENTED: no such thing", PROGRAM, V5E, []) is None


def test_where_no_chip_is_large_enough_none_is_named() -> None:
    error = chips.overflow(
        "Ran out of memory on HBM, the total memory required (9.00T) exceeds available HBM (15.75G)",
        PROGRAM,
        V5E,
        [],
    )
    assert error is not None
    assert "-t" not in error.hint
