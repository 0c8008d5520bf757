"""`aotpipe targets`, `doctor` and `cache`: what this host can do, what is installed, what the cache holds."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from typing import Any, Final

import click

from aotpipe import __version__
from aotpipe.cli import options, text
from aotpipe.core.serialization import attributes
from aotpipe.core.targets import Target, table
from aotpipe.core.units import size
from aotpipe.errors import AotpipeError
from aotpipe.runtime.store import Store

_NEEDS: Final = {
    # What one wants to do: the modules that it takes, and what installs them.
    "load bundles": ("iree.runtime", "pip install aotpipe"),
    "build bundles": ("torch iree.compiler jinja2", "pip install 'aotpipe[build]'"),
    "build for XLA": ("torch jax jaxlib", "pip install 'aotpipe[build,xla]'"),
    "build for TPU": ("torch jax jaxlib libtpu", "pip install 'aotpipe[build,tpu]'"),
    "serve bundles": (
        "google.protobuf grpc httptools orjson prometheus_client uvicorn uvloop",
        "pip install 'aotpipe[serve]'",
    ),
    "sign bundles": ("model_signing OpenSSL", "pip install 'aotpipe[sign]'"),
    "confine self-tests": ("landlockpy seccompy", "pip install 'aotpipe[sandbox]' (Linux)"),
    "run XLA programs": ("jaxlib", "pip install jaxlib, of the version that built them"),
}
_DRIVERS: Final = ("cuda", "hip", "vulkan", "metal")


@click.command()
@options.as_json
def targets(*, as_json: bool) -> None:
    """List the targets, what this host can do for each (compile, run), and what would change that."""
    rows = [ability(Target.parse(name)) for name in table()]
    lines = [(row.target, row.here, row.summary, row.reason) for row in rows]
    head = ("target", "here", "what for", "what it lacks here")
    text.show(rows, lambda: text.table(head, lines), as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """What this host can do for a target.

    Attributes:
        reason: Why it cannot do all, and what would change that; empty where it can.
    """

    target: str
    summary: str
    compiles_here: bool
    runs_here: bool
    reason: str

    @property
    def here(self) -> str:
        """What this host can do, in a word or two."""
        able = {"compiles": self.compiles_here, "runs": self.runs_here}
        return ", ".join(name for name, can in able.items() if can) or "no"


def ability(target: Target) -> Ability:
    """Ask the compilers and the drivers of this host."""
    from aotpipe.backends import why_not_compilable
    from aotpipe.runtime.loading import why_not_runnable

    compiling, running = why_not_compilable(target), why_not_runnable(target)
    return Ability(
        target=str(target),
        summary=target.row.summary,
        compiles_here=not compiling,
        runs_here=not running,
        reason="; ".join(dict.fromkeys(filter(None, (compiling, running)))),
    )


@click.command()
@options.as_json
def doctor(*, as_json: bool) -> int:
    """Say what is installed, what can run here, and what to install.

    The exit code is 1 where this host cannot load bundles, else 0.
    """
    found = _examine()
    text.show(found, lambda: _shown(found), as_json=as_json)
    return 0 if found["abilities"]["load bundles"]["ready"] else 1


def _examine() -> dict[str, Any]:
    from aotpipe.runtime import installed, toolchain

    cache: dict[str, Any] = {}
    try:
        store = Store.default()
        cache = {"path": str(store.root), "max_bytes": store.max_bytes}
        cache["size_bytes"] = sum(row.size_bytes for row in store.usage())
        store.require_writable()
    except AotpipeError as error:
        cache["problem"] = error.message
    abilities = {}
    for name, (modules, remedy) in _NEEDS.items():
        missing = [module for module in modules.split() if not installed.is_installed(module)]
        abilities[name] = {"ready": not missing, "missing": missing, "remedy": remedy if missing else ""}
    return {
        "aotpipe": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "packages": {name: toolchain.version_of(name) for name in toolchain.PACKAGES},
        "host_features": list(toolchain.host_features()),
        "abilities": abilities,
        "devices": _devices() if abilities["load bundles"]["ready"] else {},
        "targets": {
            name: attributes(ability(Target.parse(name)), "compiles_here runs_here reason")
            for name in table()
        },
        "cache": cache,
    }


def _devices() -> dict[str, dict[str, Any]]:
    """By driver, the names of its devices, or why there is none."""
    from aotpipe.runtime.iree import devices

    return {
        driver: {"names": list(devices.names(driver)), "problem": devices.why_unavailable(driver)}
        for driver in _DRIVERS
    }


def _shown(found: dict[str, Any]) -> str:
    cache = found["cache"]
    head = {
        "aotpipe": found["aotpipe"],
        "python": f"{found['python']} ({sys.executable})",
        "platform": f"{found['platform']}, {found['cores']} cores",
        "cpu": " ".join(found["host_features"]),
        "cache": cache.get("path", "") + (f" – {cache['problem']}" if "problem" in cache else ""),
    }
    packages = {name: version or "not installed" for name, version in found["packages"].items()}
    abilities = {
        name: "ready" if ability["ready"] else f"no: {ability['remedy']}"
        for name, ability in found["abilities"].items()
    }
    devices = {
        driver: ", ".join(row["names"]) or f"none: {row['problem']}"
        for driver, row in found["devices"].items()
    }
    able = (Ability(target=name, summary="", **row) for name, row in found["targets"].items())
    targets = {row.target: row.here + (f": {row.reason}" if row.reason else "") for row in able}
    return "\n\n".join(map(text.fields, filter(None, (head, packages, abilities, devices, targets))))


@click.group()
def cache() -> None:
    """Look at or empty the cache of stage results.

    AOTPIPE_CACHE names its folder, AOTPIPE_CACHE_SIZE its cap (10GB). It can be removed at any time.
    """


@cache.command("ls")
@options.as_json
def list_entries(*, as_json: bool) -> None:
    """Show what the cache holds, by kind."""
    store = Store.default()
    usage = store.usage()
    total = sum(row.size_bytes for row in usage)
    kinds = {row.kind: attributes(row, "entries size_bytes") for row in usage}
    rows = [(row.kind, str(row.entries), size(row.size_bytes)) for row in usage]
    below = f"{size(total)} of {size(store.max_bytes)} in {store.root}"
    text.show(
        {"path": str(store.root), "max_bytes": store.max_bytes, "size_bytes": total, "kinds": kinds},
        lambda: text.table(("kind", "entries", "size"), rows) + f"\n\n{below}",
        as_json=as_json,
    )


@cache.command("size")
@options.as_json
def show_size(*, as_json: bool) -> None:
    """Print how many bytes the cache holds."""
    total = sum(row.size_bytes for row in Store.default().usage())
    text.show({"size_bytes": total}, lambda: str(total), as_json=as_json)


@cache.command("clear")
@options.as_json
def clear(*, as_json: bool) -> None:
    """Remove every entry."""
    freed = Store.default().clear()
    text.show({"freed_bytes": freed}, lambda: f"freed {size(freed)}", as_json=as_json)
