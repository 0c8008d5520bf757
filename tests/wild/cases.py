"""How a module of this folder declares its models.

A case is a function without arguments that gives the model, as its package makes it, and its example inputs;
it draws both at random, and the caller seeds. `dims` names the sizes that may vary between calls.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Made = tuple[Callable[..., Any], tuple[Any, ...]]

MODULES: Final = (
    "vision",
    "sequences",
    "science",
    "assorted",
    "images_and_signals",
    "drawn",
    "second_draw",
    "third_draw",
    "fourth_draw",
    "fifth_draw",
    "sixth_draw",
    "seventh_draw",
    "eighth_draw",
    "ninth_draw",
    "tenth_draw",
    "eleventh_draw",
    "twelfth_draw",
    "thirteenth_draw",
    "fourteenth_draw",
)
"""The modules of this folder that declare cases."""


@dataclass(frozen=True, slots=True)
class Case:
    """One model.

    Attributes:
        package: The distribution that a user installs for it.
        module: What is imported to see whether it is installed.
        make: Gives the model and its example inputs.
        dims: Input name -> {dim: (name, lowest, highest)}.
        options: More options of `aotpipe.build`.
    """

    package: str
    module: str
    make: Callable[[], Made]
    dims: Mapping[str, Mapping[int, tuple[str, int, int]]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.package}/{self.make.__name__}"

    def is_installed(self) -> bool:
        return importlib.util.find_spec(self.module) is not None


_CASES: list[Case] = []


def wild(
    package: str,
    module: str | None = None,
    *,
    dims: Mapping[str, Mapping[int, tuple[str, int, int]]] | None = None,
    **options: Any,
) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Declare the decorated function as a case.

    Args:
        package: The distribution.
        module: What it is imported as, where that is not its name with `_` for `-`.
        dims: As `Case.dims`.
        **options: More options of `aotpipe.build`, such as `value_ranges`.
    """

    def declare(make: Callable[[], Made]) -> Callable[[], Made]:
        _CASES.append(Case(package, module or package.replace("-", "_"), make, dims or {}, options))
        return make

    return declare


def cases() -> list[Case]:
    """All, by package."""
    for module in MODULES:
        importlib.import_module(f"tests.wild.{module}")
    return sorted(_CASES, key=lambda case: case.name)
