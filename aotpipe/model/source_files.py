"""The user's files that a model is made of, by their digests: the same wherever they lie. Torch-free."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final

from aotpipe.model import source

_PLAIN: Final = (type, FunctionType)


def digests(ref: str) -> dict[str, str]:
    """The SHA-256 of the file of a reference that was loaded, and of the user's modules that it names.

    A module counts where a name at the top of the file, or of another that counts, comes from it. Names of
    files are relative to the folder that Python finds the model's module in.
    """
    place = ref.partition(":")[0]
    own = getattr(sys.modules.get(place), "__file__", None) or place
    modules = _users()
    first = Path(os.path.realpath(own))
    root = first.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    found: dict[str, str] = {}
    waiting, seen = [str(first)], {str(first)}
    while waiting:
        path = Path(waiting.pop())
        name = str(path.relative_to(root)) if path.is_relative_to(root) else path.name
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        for each in _named(modules[str(path)]) if str(path) in modules else ():
            file = os.path.realpath(getattr(each, "__file__", None) or "")
            if file in modules and file not in seen:
                seen.add(file)
                waiting.append(file)
    return dict(sorted(found.items()))


def _users() -> dict[str, ModuleType]:
    """The user's modules by file."""
    files = ((getattr(module, "__file__", None), module) for module in list(sys.modules.values()))
    return {
        os.path.realpath(file): module
        for file, module in files
        if isinstance(file, str) and source.is_user_file(file) and Path(file).is_file()
    }


def _named(module: ModuleType) -> list[ModuleType | None]:
    """The modules that the names of one come from, and the packages that it is in."""
    found: list[ModuleType | None] = []
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            found.append(value)
        else:
            owner = value if isinstance(value, _PLAIN) else type(value)
            found.append(sys.modules.get(str(owner.__module__)))
    package = module.__package__ or ""
    while package:
        found.append(sys.modules.get(package))
        package = package.rpartition(".")[0]
    return found
