"""Which module runs the programs of a backend, and whether this host can. Torch-free.

`runtime(backend)` imports late: a host that runs IREE programs need not have jaxlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, assert_never, cast

from aotpipe.core.targets import Backend, Target
from aotpipe.runtime import process, toolchain
from aotpipe.runtime.runner import BaseRunner

if TYPE_CHECKING:
    from aotpipe.core.dtypes import Array
    from aotpipe.core.signature import Signature


Runner = BaseRunner[Any]
"""A loaded program with its own state; a context manager that owns the device's memory."""


class Runtime(Protocol):
    """A module that runs programs: `runtime/iree/runtime.py`, `runtime/xla/runtime.py`."""

    def load(
        self,
        payload: bytes,
        *,
        signatures: Mapping[str, Signature],
        weights: Mapping[str, Array],
        initial_state: Mapping[str, Array],
        driver: str = "auto",
        asserts: Mapping[str, tuple[str, ...]] | None = None,
        threads: int | None = None,
    ) -> Runner:
        """Load a program's bytes."""
        ...


def why_not_runnable(target: Target, needs: Sequence[str] = ()) -> str:
    """Why this host cannot run a target's programs; empty where it can.

    `needs` are the CPU features that the program was compiled for, beside those of the target.
    """
    row, here = target.row, toolchain.host_features()[0]
    if target.backend == "xla" and toolchain.version_of("jaxlib") is None:
        return "jaxlib is not installed; pip install 'aotpipe[xla]'"
    if target.device in {"cpu", "vmvx"}:
        wanted = row.arch or target.arch
        if wanted and not target.is_host and wanted != here:
            return f"it runs on {wanted}, and this machine is {here}"
        missing = toolchain.missing_features(dict.fromkeys((*row.features, *needs)))
        return f"this CPU lacks {', '.join(missing)}" if missing else ""
    if target.backend == "iree" and toolchain.version_of("iree-base-runtime") is not None:
        from aotpipe.runtime.iree import devices

        return devices.why_unavailable(row.driver, target.arch)
    return f"this machine has no {target.device} device"


def driver(target: Target) -> str:
    """What the runtime takes as `driver` where a user names none."""
    is_gpu = target.backend == "iree" and not target.row.driver.startswith("local-")
    return target.row.driver if is_gpu else "auto"


def runtime(backend: Backend) -> Runtime:
    """The module that runs a backend's programs."""
    with process.forks_held():  # a child of a fork would wait for an import that another thread began
        match backend:
            case "iree":
                from aotpipe.runtime.iree import runtime as iree_runtime

                return cast("Runtime", iree_runtime)
            case "xla":
                from aotpipe.runtime.xla import runtime as xla_runtime

                return cast("Runtime", xla_runtime)
            case _:
                assert_never(backend)
