"""`aotpipe doctor`: what is installed, what this host can do, and what to install for the rest."""

from __future__ import annotations

import os
import platform
import sys
from importlib.util import find_spec
from typing import Any, Final

import click

from aotpipe.cli import options, text

_NEEDS: Final = {
    # what one wants to do: the modules it takes
    "load bundles": ("iree.runtime",),
    "build bundles": ("torch", "iree.compiler", "jinja2"),
    "build for XLA": ("torch", "jax", "jaxlib"),
    "build for TPU": ("torch", "jax", "jaxlib", "libtpu"),
    "run XLA programs": ("jaxlib",),
}
_REMEDY: Final = {
    "load bundles": "pip install aotpipe",
    "build bundles": "pip install 'aotpipe[build]'",
    "build for XLA": "pip install 'aotpipe[build,xla]'",
    "build for TPU": "pip install 'aotpipe[build,tpu]'",
    "run XLA programs": "pip install jaxlib, of the version that built them",
}
_DRIVERS: Final = ("cuda", "hip", "vulkan", "metal")


@click.command()
@options.as_json
def doctor(*, as_json: bool) -> int:
    """Say what is installed, what can run here, and what to install.

    Exits with 1 where this host cannot even load bundles.
    """
    found = _examine()
    if as_json:
        text.echo_json(found)
    else:
        click.echo(_shown(found))
    return 0 if found["abilities"]["load bundles"]["ready"] else 1


def _examine() -> dict[str, Any]:
    from aotpipe import __version__
    from aotpipe.cli.inspect import ability
    from aotpipe.core.targets import Target, table
    from aotpipe.errors import AotpipeError
    from aotpipe.runtime import toolchain
    from aotpipe.runtime.store import Store

    cache: dict[str, Any] = {}
    try:
        store = Store.default()
        cache = {"path": str(store.root), "max_bytes": store.max_bytes}
        cache["size_bytes"] = sum(row.size_bytes for row in store.usage())
        store.require_writable()
    except AotpipeError as error:
        cache["problem"] = error.message
    abilities = {}
    for name, modules in _NEEDS.items():
        missing = [module for module in modules if not _is_there(module)]
        abilities[name] = {
            "ready": not missing,
            "missing": missing,
            "remedy": _REMEDY[name] if missing else "",
        }
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
            name: {"compiles_here": row.compiles_here, "runs_here": row.runs_here, "reason": row.reason}
            for name in table()
            for row in (ability(Target.parse(name)),)
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


def _is_there(module: str) -> bool:
    """Whether a module can be found; its parent package is imported, the module is not."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


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
    does = {(True, True): "compiles, runs", (True, False): "compiles", (False, True): "runs"}
    targets = {
        name: f"{does.get((row['compiles_here'], row['runs_here']), 'no')}"
        + (f": {row['reason']}" if row["reason"] else "")
        for name, row in found["targets"].items()
    }
    return "\n\n".join(map(text.fields, filter(None, (head, packages, abilities, devices, targets))))
