"""What a backend gives, and which module serves which target.

A backend is two modules: a compiler, which a host that builds needs, and a runtime, which is all that a
serving host has. `compiler(target)` and `runtime(backend)` import them late. Torch-free itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, assert_never, cast

from aotpipe import toolchain
from aotpipe.targets import Backend, Target

if TYPE_CHECKING:
    from aotpipe.dtypes import Array
    from aotpipe.signature import Signature
    from aotpipe.stages import Compiled, Dialect, Lowered


class Runner(Protocol):
    """A loaded program with its own state; a context manager that owns the device's memory."""

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """By entry point."""
        ...

    @property
    def signature(self) -> Signature:
        """Of the entry point that `infer` calls unless told otherwise."""
        ...

    def infer(self, inputs: Mapping[str, Any], *, entry_point: str | None = None) -> dict[str, Array]:
        """Call the program on inputs by name, or a batch as the model takes it; outputs are the caller's."""
        ...

    def reset(self) -> None:
        """Go back to the initial state."""
        ...

    def close(self) -> None:
        """Free the program and its state."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Runtime(Protocol):
    """A module that runs programs: `backends/iree/runtime.py`, `backends/xla/runtime.py`."""

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


class Compiler(Protocol):
    """A module that compiles: `backends/iree/compiler.py`, `backends/xla/compiler.py`."""

    def compile(
        self,
        lowered: Lowered,
        target: Target,
        *,
        extra_flags: Sequence[str] = (),
        retreat: Any = None,
        timeout_s: float = ...,
        memory_limit_bytes: int | None = None,
        log_dir: Path | None = None,
    ) -> Compiled:
        """Compile a lowered module for one target."""
        ...

    def digest(
        self, lowered: Lowered, target: Target, extra_flags: Sequence[str] = (), retreat: Any = None
    ) -> str:
        """SHA-256 of everything that can change what `compile` gives."""
        ...

    def suspects(self, lowered: Lowered, target: Target, extra_flags: Sequence[str] = ()) -> Sequence[Any]:
        """What to compile with, in turn, where the program computes wrong numbers; each has a `name`."""
        ...


def dialect(target: Target, iree: Dialect = "torch") -> Dialect:
    """What a model is lowered to for a target, where `iree` is what IREE's are to be lowered to."""
    match target.backend:
        case "iree":
            return iree
        case "xla":
            return "stablehlo"
        case _:
            assert_never(target.backend)


def own_flags(target: Target, flags: Sequence[str]) -> tuple[str, ...]:
    """Those flags of a user that are for a target's compiler: XLA's begin with its name, IREE's do not."""
    return tuple(flag for flag in flags if flag.startswith("--xla") == (target.backend == "xla"))


def unrunnable(target: Target, needs: Sequence[str] = ()) -> str:
    """Why this host cannot run a target's programs; empty where it can.

    Args:
        target: The target.
        needs: The CPU features that the program was compiled for, beside those of the target.
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
        from aotpipe.backends.iree import devices

        return devices.lacking(row.driver, target.arch)
    return f"this machine has no {target.device} device"


def uncompilable(target: Target) -> str:
    """Why this host cannot compile for a target, as what to install; empty where it can."""
    wanted = {"iree": ("iree-base-compiler", "build"), "xla": ("jax", "xla")}[target.backend]
    more = {"tpu": ("libtpu", "tpu"), "cuda": ("jax-cuda12-pjrt", "cuda")} if target.backend == "xla" else {}
    for package, extra in (wanted, *([more[target.device]] if target.device in more else [])):
        if toolchain.version_of(package) is None:
            return f"{package} is not installed; pip install 'aotpipe[{extra}]'"
    return ""


def driver(target: Target) -> str:
    """What the runtime takes as `driver` where a user names none."""
    is_gpu = target.backend == "iree" and not target.row.driver.startswith("local-")
    return target.row.driver if is_gpu else "auto"


def runtime(backend: Backend) -> Runtime:
    """The module that runs a backend's programs."""
    match backend:
        case "iree":
            from aotpipe.backends.iree import runtime as iree_runtime

            return cast("Runtime", iree_runtime)
        case "xla":
            from aotpipe.backends.xla import runtime as xla_runtime

            return cast("Runtime", xla_runtime)
        case _:
            assert_never(backend)


def compiler(target: Target) -> Compiler:
    """The module that compiles for a target."""
    match target.backend:
        case "iree":
            from aotpipe.backends.iree import compiler as iree_compiler

            return cast("Compiler", iree_compiler)
        case "xla":
            from aotpipe.backends.xla import compiler as xla_compiler

            return cast("Compiler", xla_compiler)
        case _:
            assert_never(target.backend)
