"""What a call costs over the runtime itself: the same uploads, call and downloads, without any check.

Both are timed in turns, by the processor's time, since others may have the machine meanwhile; the least of
each counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.trust import models

WANTED = "a call takes at most 8 µs over the raw runtime, with all checks on"
UNITS = ["iree-cpu-host", "iree-vmvx", "xla-cpu-host"]
_ROUNDS, _CALLS = 60, 400


def run(unit: str, folder: Path) -> dict[str, float]:
    import aotpipe

    models.build("picked", folder / "b", unit)
    inputs = {"x": np.ones((4, 4), np.float32), "ids": np.arange(4)}
    with aotpipe.load(folder / "b", unit, driver="local-sync") as runner:
        raw = (_raw_xla if unit.startswith("xla") else _raw_iree)(runner, list(inputs.values()))
        np.testing.assert_array_equal(raw(), runner.infer(inputs)["output"])
        checked_us, raw_us = _least_us(lambda: runner.infer(inputs), raw)
    print(f"{unit}: {checked_us:.2f} µs, raw {raw_us:.2f} µs")
    if unit.startswith("xla"):  # which names no raw call: sizes between buckets are padded and cut
        return {"most_xla_over_us": checked_us - raw_us}
    return {"targets": 1, "most_over_us": checked_us - raw_us}


def judge(counts: Any) -> tuple[str, bool]:
    over = counts["most_over_us"]
    figure = (
        f"at most {over:.1f} µs over IREE's runtime on {counts['targets']:.0f} targets, "
        f"{counts['most_xla_over_us']:.1f} µs over jaxlib's"
    )
    return figure, 0 < over <= 8 and counts["most_xla_over_us"] <= 8


def _least_us(*calls: Callable[[], Any]) -> list[float]:
    least = [float("inf")] * len(calls)
    for _ in range(_ROUNDS):
        for place, call in enumerate(calls):
            start = time.process_time_ns()
            for _ in range(_CALLS):
                call()
            least[place] = min(least[place], (time.process_time_ns() - start) / 1000 / _CALLS)
    return least


def _raw_iree(runner: Any, arrays: list[Any]) -> Callable[[], Any]:
    """IREE's own Python API, called as its examples do: arguments copied in, results copied out."""
    import iree.runtime as iree

    from aotpipe.runtime.iree import devices

    (entry,) = runner._entries.values()
    context, function = runner._context, entry.function
    upload = devices.Memory(runner._device, is_shared=True).upload
    elements = [devices.element(array.dtype) for array in arrays]
    workspace = devices.Memory(runner._device, is_shared=True).allocate(1 << 16)

    def call() -> Any:
        arguments = iree.VmVariantList(3)
        for array, element in zip(arrays, elements, strict=True):
            arguments.push_ref(upload(array, element))
        if entry.has_workspace:
            arguments.push_ref(workspace)
        results = iree.VmVariantList(1)
        context.invoke(function, arguments, results)
        view = results.get_as_object(0, iree.HalBufferView)
        return np.frombuffer(view.map(), np.float32).reshape(view.shape).copy()

    return call


def _raw_xla(runner: Any, arrays: list[Any]) -> Callable[[], Any]:
    """jaxlib's own executable on the bucket of these very sizes; its last argument are the true sizes."""
    (entry,) = runner._entries.values()
    program = entry.programs[0]
    memory = runner._memory
    padding = [memory.upload(np.array([4], np.int32))] * bool(program.padded)

    def call() -> Any:
        arguments = [*program.weights, *memory.upload_all(arrays, (), copied=False), *padding]
        results = program.executable.execute_sharded(arguments).consume_with_handlers(program.results)
        return np.array(memoryview(results[0]))

    return call
