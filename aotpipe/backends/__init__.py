"""The compilers, IREE and XLA: which module compiles for which target, and what makes programs legal for it.

`compiler(target)` and `legalization(ruleset)` import late. Torch-free itself; what runs the programs
is `aotpipe.runtime`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, assert_never, cast

from aotpipe.core.targets import Target
from aotpipe.runtime import toolchain

if TYPE_CHECKING:
    from aotpipe.core.stages import Compiled, Dialect, Lowered
    from aotpipe.passes.rules import LegalizationRules

ModuleKey = Literal["iree", "iree-gpu", "xla"]
"""The modules that a model is lowered to: IREE's for CPUs (vmvx is one) and for GPUs, and XLA's."""
Ruleset = Literal["torch", "torch-gpu", "stablehlo"]
"""The names of the rules for legal programs: of a dialect, and of a class of devices where it matters."""
_GPUS: Final = frozenset({"cuda", "metal", "rocm", "vulkan"})


class Compiler(Protocol):
    """A module that compiles: `backends/iree/compile/compiler.py`, `backends/xla/compiler.py`."""

    def compile(
        self,
        lowered: Lowered,
        target: Target,
        *,
        extra_flags: Sequence[str] = (),
        fallback: Any = None,
        timeout_s: float = ...,
        memory_limit_bytes: int | None = None,
        log_dir: Path | None = None,
    ) -> Compiled:
        """Compile a lowered module for one target."""
        ...

    def digest(
        self, lowered: Lowered, target: Target, extra_flags: Sequence[str] = (), fallback: Any = None
    ) -> str:
        """SHA-256 of everything that can change what `compile` gives."""
        ...

    def fallbacks_for_numbers(
        self, lowered: Lowered, target: Target, extra_flags: Sequence[str] = ()
    ) -> Sequence[Any]:
        """What to compile with, in turn, where the program computes wrong numbers; each has a `name`."""
        ...


def dialect(target: Target, iree: Dialect = "torch") -> Dialect:
    """What a model is lowered to for a target, where `iree` is what IREE's are to be lowered to."""
    return iree if target.backend == "iree" else "stablehlo"


def module_of(target: Target) -> ModuleKey:
    """Which of a model's modules a target is compiled from."""
    return "iree-gpu" if target.backend == "iree" and target.device in _GPUS else target.backend


def ruleset(module: ModuleKey, dialect: Dialect) -> Ruleset:
    """The rules for the legal program that a module of a dialect is made of."""
    return "torch-gpu" if module == "iree-gpu" and dialect == "torch" else dialect


def legalization(rules: Ruleset = "torch") -> LegalizationRules:
    """What `passes.legalize` does for programs of a dialect on a class of devices."""
    match rules:
        case "torch" | "torch-gpu":
            from aotpipe.backends.iree import legalization as iree_legalization

            return iree_legalization.CPU if rules == "torch" else iree_legalization.GPU
        case "stablehlo":
            from aotpipe.backends.xla import legalization as xla_legalization

            return xla_legalization.RULES
        case _:
            assert_never(rules)


def own_flags(target: Target, flags: Sequence[str]) -> tuple[str, ...]:
    """Those flags of a user that are for a target's compiler: XLA's begin with its name, IREE's do not."""
    return tuple(flag for flag in flags if flag.startswith("--xla") == (target.backend == "xla"))


def why_not_compilable(target: Target) -> str:
    """Why this host cannot compile for a target, as what to install; empty where it can."""
    wanted = {"iree": ("iree-base-compiler", "build"), "xla": ("jax", "xla")}[target.backend]
    more = {"tpu": ("libtpu", "tpu"), "cuda": ("jax-cuda12-pjrt", "cuda")} if target.backend == "xla" else {}
    for package, extra in (wanted, *([more[target.device]] if target.device in more else [])):
        if toolchain.version_of(package) is None:
            return f"{package} is not installed; pip install 'aotpipe[{extra}]'"
    return ""


def compiler(target: Target) -> Compiler:
    """The module that compiles for a target."""
    match target.backend:
        case "iree":
            from aotpipe.backends.iree.compile import compiler as iree_compiler

            return cast("Compiler", iree_compiler)
        case "xla":
            from aotpipe.backends.xla import compiler as xla_compiler

            return cast("Compiler", xla_compiler)
        case _:
            assert_never(target.backend)
