"""Target strings `BACKEND-DEVICE[-ARCH]` and what each stands for; `targets.toml` holds the table.

Torch-free, compiler-free. `Target.parse(str(target)) == target`.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, get_args

from aotpipe.errors import UnknownTarget

Backend = Literal["iree", "xla"]

DEFAULT: Final = ("iree-cpu-host",)
"""What is built for where no target is named."""

SHORTHANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "cpu": ("iree-cpu-host",),
    "tpu": ("xla-tpu-*",),
    "all": ("*",),
}


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """One program's destination; `str` gives the target string."""

    backend: Backend
    device: str
    arch: str = ""

    def __str__(self) -> str:
        return "-".join(part for part in (self.backend, self.device, self.arch) if part)

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read a target string.

        Raises:
            UnknownTarget: Not in the table; the nearest known name is the hint.
        """
        if text not in table():
            raise UnknownTarget(f"no target is called {text!r}", hint=_nearest(text))
        backend, device, *arch = text.split("-")
        assert backend in get_args(Backend), backend
        return cls(backend, device, "-".join(arch))  # type: ignore[arg-type]

    @property
    def row(self) -> TargetRow:
        """The row of the table that describes the target."""
        return table()[str(self)]

    @property
    def variants(self) -> tuple[Target, ...]:
        """The targets for better CPUs whose programs its bundles hold too, the best first."""
        return tuple(map(Target.parse, self.row.variants))

    @property
    def file_name(self) -> str:
        """The name of its program's file."""
        return "program.vmfb" if self.backend == "iree" else "program.xla"

    @property
    def is_host(self) -> bool:
        """Whether its programs fit CPUs like this one only."""
        return self.arch == "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow:
    """A target's row.

    Attributes:
        features: The features that a CPU must have, by LLVM's names.
        arch: The name of the machine's architecture, where the target's last part is another one.
        variants: Target strings of the same programs for better CPUs, the best first.
    """

    summary: str
    driver: str
    flags: tuple[str, ...]
    features: tuple[str, ...] = ()
    arch: str = ""
    variants: tuple[str, ...] = ()


@cache
def table() -> Mapping[str, TargetRow]:
    """The whole table, by target string, in the order of the file."""
    text = Path(__file__).with_name("targets.toml").read_text(encoding="utf-8")
    rows: dict[str, dict[str, Any]] = tomllib.loads(text)
    for row in rows.values():
        row.update({key: tuple(value) for key, value in row.items() if isinstance(value, list)})
    return {name: TargetRow(**row) for name, row in rows.items()}


def expand(names: Iterable[str]) -> tuple[Target, ...]:
    """Turn target strings, shorthands (`cpu`, `all`) and globs (`iree-*`) into targets, each once, in order.

    One text may name several, with commas between.

    Raises:
        UnknownTarget: A name that matches nothing.
    """
    found: dict[Target, None] = {}
    for name in names.split(",") if isinstance(names, str) else names:
        for pattern in SHORTHANDS.get(name, (name,)):
            if not any(char in pattern for char in "*?["):
                found[Target.parse(pattern)] = None
                continue
            if not (matches := fnmatch.filter(table(), pattern)):
                raise UnknownTarget(f"no target matches {name!r}", hint=_nearest(name))
            found.update((Target.parse(match), None) for match in matches)
    return tuple(found)


def _nearest(text: str) -> str:
    import difflib

    known = [*table(), *SHORTHANDS]
    close = difflib.get_close_matches(text, known, n=1, cutoff=0.4)
    nearest = f"did you mean {close[0]}? " if close else ""
    return f"{nearest}`aotpipe targets` lists them: {', '.join(known)}"
