"""From what a user types to the object it names: `path.py`, `path.py:NAME`, `package.module:NAME`.

Gives a `Found`; raises `ModelNotFound`, `ModelImportFailed` (with the user's line, the cause kept) or
`AmbiguousModel`. A user's file is run as Python runs a script: its folder is put on `sys.path`. A file inside
a package is imported as that package's module, so that relative imports work. torch is imported only once
the file is known to exist; the random generators are seeded before it runs, so that two runs give one model.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import random
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

from aotpipe.errors import AmbiguousModel, AotpipeError, ModelImportFailed, ModelNotFound, SpecInvalid
from aotpipe.model import source

_T = TypeVar("_T")
_SEED: Final = 0
_WHOLE_TRACEBACK: Final = "run the file with Python alone to see the whole traceback"
_FACTORY_NAMES: Final = ("build_model", "get_model", "make_model")
_PLAIN_NAMES: Final = frozenset({"MODEL", "model", "SPEC", "spec", *_FACTORY_NAMES})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The object that a reference names, and the module it was found in."""

    value: object
    name: str
    module: ModuleType

    @property
    def path(self) -> str:
        """The module's file, or its name where it has none."""
        return self.module.__file__ or self.module.__name__

    @property
    def bundle_name(self) -> str:
        """The object's name where it says something, else the file's."""
        last = self.name.rpartition(".")[2]
        return Path(self.path).stem if last in _PLAIN_NAMES else last

    def setting(self, name: str) -> Any:
        """A module-level setting in upper or lower case, called where it is a function; None without one."""
        for spelling in (name, name.lower()):
            value = getattr(self.module, spelling, None)
            # The file may import a module of such a name (`import random`).
            if value is not None and not inspect.ismodule(value):
                return _call(value, self.module) if inspect.isfunction(value) else value
        return None


def find(ref: str, spec_type: type) -> Found:
    """Find the Spec, nn.Module or function that `ref` names; factories are called.

    Raises:
        ModelNotFound, ModelImportFailed, AmbiguousModel, SpecInvalid
    """
    place, _, name = ref.partition(":") if not re.match(r"^[A-Za-z]:[\\/]", ref) else ref.rpartition(":")
    home = module(place)
    name, value = (name, _attribute(home, name, ref)) if name else _only_candidate(home, spec_type, place)
    if isinstance(value, spec_type) or is_torch_module(value):
        return Found(value=value, name=name, module=home)
    if not callable(value):
        raise SpecInvalid(
            f"{ref} is a {type(value).__name__}, not a model",
            hint="name a Spec, an nn.Module, or a function that returns one",
        )
    made = _call(value, home)
    if not isinstance(made, spec_type) and not is_torch_module(made):
        raise SpecInvalid(
            f"{name}() gave a {type(made).__name__}, not a model",
            hint="return a Spec or an nn.Module",
            where=source.of_definition(value),
        )
    return Found(value=made, name=name, module=home)


def example_inputs(found: Found) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The args and kwargs that the model's method or its file gives; None where there are none."""
    method = getattr(found.value, "example_inputs", None)
    given = _call(method, found.module) if callable(method) else found.setting("EXAMPLE_INPUTS")
    return None if given is None else arguments(given)


def arguments(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The args and kwargs that a user means: a tuple or a list of args, a dict of kwargs, or one value."""
    if isinstance(given, Mapping):
        return (), dict(given)
    return (tuple(given) if isinstance(given, (tuple, list)) else (given,)), {}


def is_torch_module(value: object) -> bool:
    """Whether a value is an nn.Module; imports nothing, since such a value brings torch with it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def module(place: str) -> ModuleType:
    """Import `path.py` or `package.module`.

    Raises:
        ModelNotFound, ModelImportFailed
    """
    if place.endswith(".py") or "/" in place or Path(place).is_dir():
        return _import_file(Path(place))
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        # A console script lacks the working folder, which `python -m` has.
        sys.path.insert(0, str(Path.cwd()))
    parts = place.split(".")
    spec = None
    if all(part.isidentifier() for part in parts):
        with suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(parts[0])
    if spec is None:
        raise _not_found(place)
    return _run(lambda: importlib.import_module(place), place)


def _not_found(place: str) -> ModelNotFound:
    files = [path.name for path in Path.cwd().glob("*.py")]
    close = difflib.get_close_matches(f"{place}.py", files, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return ModelNotFound(
        f"no module is called {place!r}", hint=f"{hint}MODEL is path.py, path.py:NAME or package.module:NAME"
    )


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        folder = path.parent
        names = [entry.name for entry in folder.glob("*.py")] if folder.is_dir() else []
        close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.5)
        hint = f"did you mean {folder / close[0]}?" if close else "check the path"
        if path.is_dir():
            hint = "name a Python file in that folder"
        raise ModelNotFound(f"no such file: {path}", hint=hint)
    path = path.resolve()
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").is_file():
        folder, parts = folder.parent, [folder.name, *parts]
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    if len(parts) > 1:
        return _run(lambda: importlib.import_module(".".join(parts)), str(path))
    return _run(lambda: execute(path), str(path))


def execute(path: Path) -> ModuleType:
    """Run a file as a module under a name of its own: `random.py` must not replace Python's `random`.

    Raises:
        BaseException: What the file raises.
    """
    name = base = f"{source.FILE_MODULE}{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}"
    count = 1
    while name in sys.modules and sys.modules[name].__file__ != str(path):
        count += 1
        name = f"{base}_{count}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    # Dataclasses, inspect and torch look a module up by its name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _run(action: Callable[[], _T], place: str) -> _T:
    """Run the user's code, seeded; what it raises becomes a `ModelImportFailed` with the user's line."""
    try:
        _seed()
        return action()
    except (AotpipeError, KeyboardInterrupt, MemoryError, GeneratorExit):
        raise
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise _not_found(place) from error
        # Packages that import lazily raise their own, which names no module; its cause may.
        package = (error.name or getattr(error.__cause__, "name", None) or "").partition(".")[0]
        hint = f"install it: pip install {package}" if package else _WHOLE_TRACEBACK
        raise _import_failed(error, place, hint) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(error, place, _WHOLE_TRACEBACK) from error


def _import_failed(error: BaseException, place: str, hint: str) -> ModelImportFailed:
    if isinstance(error, SyntaxError) and error.text and error.offset:
        return _no_python(error, place)
    return ModelImportFailed(
        f"{source.shown(place)} raised {type(error).__name__}",
        reason=str(error),
        hint=hint,
        where=source.from_exception(error),
    )


def _no_python(error: SyntaxError, place: str) -> ModelImportFailed:
    """The error for a file with a syntax error; shows the line and the place that Python points at."""
    text, at = (error.text or "").rstrip(), (error.offset or 1) - 1
    until = (error.end_offset or 0) - 1 if error.end_lineno == error.lineno else len(text)
    row = f"{error.lineno:>4} | "
    version = ".".join(map(str, sys.version_info[:3]))
    return ModelImportFailed(
        f"{source.shown(place)} is not Python {version}: {error.msg}",
        reason=f"{row}{text}\n{'|':>{len(row) - 1}} {' ' * at}{'^' * max(until - at, 1)}",
        hint="mend the line; where a later Python takes it, run aotpipe with that one",
        where=source.from_exception(error),
    )


def _seed() -> None:
    import numpy as np
    import torch

    random.seed(_SEED)
    np.random.seed(_SEED)
    torch.manual_seed(_SEED)


def _call(function: Any, module: ModuleType) -> Any:
    return _run(function, module.__file__ or module.__name__)


def _attribute(module: ModuleType, name: str, ref: str) -> object:
    value: object = module
    for part in name.split("."):
        if not hasattr(value, part):
            names = [key for key in getattr(value, "__dict__", ()) if not key.startswith("_")]
            close = difflib.get_close_matches(part, names, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}?" if close else f"it has: {', '.join(names[:12]) or 'nothing'}"
            raise ModelNotFound(f"{ref}: {source.shown(module.__file__ or '')} has no {part!r}", hint=hint)
        value = getattr(value, part)
    return value


def _only_candidate(module: ModuleType, spec_type: type, place: str) -> tuple[str, object]:
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    if isinstance(public.get("SPEC"), spec_type):
        return "SPEC", public["SPEC"]
    own = {
        name: value for name, value in public.items() if getattr(value, "__module__", "") == module.__name__
    }
    kinds: tuple[tuple[str, dict[str, object]], ...] = (
        ("Specs", {n: v for n, v in public.items() if isinstance(v, spec_type)}),
        ("models", {n: v for n, v in public.items() if is_torch_module(v)}),
        ("functions", {n: v for n, v in own.items() if _is_factory(n, v, spec_type)}),
        ("classes", {n: v for n, v in own.items() if _is_module_class(v) and needed(v) == []}),
    )
    for kind, found in kinds:
        # Two names of one object are one model.
        distinct = list({id(value): (name, value) for name, value in reversed(found.items())}.values())
        if len(distinct) == 1:
            return distinct[0]
        if distinct:
            names = sorted(name for name, _ in distinct)
            raise AmbiguousModel(
                f"{place} holds {len(names)} {kind} and no name is given: {', '.join(names)}",
                hint=f"name one: {place}:{names[0]}",
            )
    raise ModelNotFound(
        f"{place} holds no model",
        hint="define `SPEC = aotpipe.Spec(...)`, an nn.Module, or a function annotated to return one",
    )


def _is_factory(name: str, function: object, spec_type: type) -> bool:
    if not inspect.isfunction(function) or needed(function) != []:
        return False
    returned = None
    with suppress(NameError, TypeError, ValueError):
        returned = inspect.signature(function, eval_str=True).return_annotation
    gives_model = inspect.isclass(returned) and (
        issubclass(returned, spec_type) or _is_module_class(returned)
    )
    return gives_model or name in _FACTORY_NAMES


def _is_module_class(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and inspect.isclass(value) and issubclass(value, torch.nn.Module)


def needed(function: Callable[..., Any]) -> list[str] | None:
    """The arguments that a call must pass; None for functions of C that do not tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in free]
