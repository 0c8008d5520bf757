"""Takes a model through every stage to an XLA program of this CPU, compiled in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch

from aotpipe.backends.xla import lowering
from aotpipe.core.stages import Legal, Lowered
from aotpipe.model.torch_arrays import view_numpy
from aotpipe.runtime import toolchain
from aotpipe.runtime.xla import clients, container, runtime
from tests.programs import through

Call = tuple[Any, ...]


@cache
def executable(module: bytes) -> bytes:
    """A module's executable; as the compiler's own process makes it."""
    xla = clients.bindings()
    device = clients.devices("cpu", 1)[0]
    devices = xla.DeviceList((device,))
    return bytes(device.client.compile_and_load(module, devices, xla.CompileOptions()).serialize())


def payload(lowered: Lowered, **changes: Any) -> bytes:
    """The program of a lowered module."""
    index, parts = container.read(lowered.module)
    made = {name: executable(parts[name]) for name in {each["modules"]["cpu"] for each in index["programs"]}}
    programs = [{**each, "executable": each["modules"]["cpu"]} for each in index["programs"]]
    content = {
        "platform": "cpu",
        "toolchain": {"jaxlib": toolchain.version_of("jaxlib")},
        "host_features": [],
        "programs": programs,
    }
    return container.write({**content, **changes}, made)


def load(program: Legal, lowered: Lowered, **changes: Any) -> runtime.Runner:
    """Load a lowered program with its weights."""
    return runtime.load(**given(program, lowered, **changes))


def given(program: Legal, lowered: Lowered, **changes: Any) -> dict[str, Any]:
    """What `runtime.load` takes of a lowered program."""
    return {
        "payload": payload(lowered, **changes),
        "signatures": {entry.name: entry.signature for entry in program.entries},
        "weights": {key: view_numpy(value) for key, value in program.weights.items()},
        "initial_state": {key: view_numpy(value) for key, value in program.initial_state.items()},
    }


def check(
    module: torch.nn.Module, *calls: Call, buckets: Mapping[str, Any] | None = None, **options: Any
) -> Lowered:
    """Compare program and eager over calls, of which the first is the example input."""
    program = through.legal(module, calls[0], dialect="stablehlo", **options)
    lowered = lowering.lower(program, buckets)
    with load(program, lowered) as runner:
        for call in calls:
            through.compare(runner, program, module, call)
    return lowered


@contextmanager
def garbage(fill: Any) -> Iterator[None]:
    """Lets the runtime pad with what must not matter: a number, indices out of bounds, True."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(runtime.GARBAGE, "1")
        plain = runtime._garbage
        patch.setattr(runtime, "_garbage", lambda dtype: plain(dtype) if dtype.kind in "iub" else fill)
        yield


def check_padded(
    module: torch.nn.Module,
    *calls: Call,
    buckets: Mapping[str, Any],
    fills: tuple[float, ...] = (float("nan"),),
    **options: Any,
) -> Lowered:
    """As `check`, with garbage in the padding."""
    program = through.legal(module, calls[0], dialect="stablehlo", **options)
    lowered = lowering.lower(program, buckets)
    with load(program, lowered) as runner:
        for fill in fills:
            with garbage(fill):
                for call in calls:
                    through.compare(runner, program, module, call)
    return lowered
