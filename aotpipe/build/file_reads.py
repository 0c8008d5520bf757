"""Records which files, folders and variables a user's code reads while it builds a model.

    with recorded_reads(exclude=...) as reads:
        spec = load("model.py")
        ...
    dependencies = reads.dependencies()      # None where they cannot be trusted

Python tells of every file it opens (an audit hook). Modules come from `sys.modules`, since a cached `.pyc` is
read in place of the source. Libraries that open weights without Python are wrapped (`wrap_loaded`), or seen
in what the kernel says is mapped. Variables and folder listings count only where the user's own code asked,
not the libraries below it. Torch-free.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, wraps
from importlib import metadata
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, Final

from aotpipe.build.record import Snapshot, folder_digest, stamps, variable_digest

_OWN: Final = str(Path(__file__).resolve().parents[1]) + os.sep
_LIBRARY_KEYS: Final = ("stdlib", "platstdlib", "purelib", "platlib")
# What the interpreter and the C library read on their own account.
_SYSTEM: Final = tuple("/proc/ /sys/ /dev/ /run/ /etc/ /lib/ /lib64/ /usr/lib/ /usr/share/".split())
_CODE: Final = (".py", ".pyc", ".pyi", ".so", ".pyd", ".dylib", ".pth")
_WRITES: Final = os.O_WRONLY | os.O_RDWR
# Native code that opens files: module, attribute, position of `filename` (a class has `self` before it).
_NATIVE: Final = (
    ("safetensors", "safe_open", 0),
    ("torch._C", "import_ir_module", 1),  # torch.jit.load
    ("torch._C", "PyTorchFileReader", 1),  # torch.export.load
)
_wrapped: set[str] = set()


@dataclass(slots=True)
class RecordedReads:
    """What was read so far.

    `sound` is False where the user's code ran before the recording began: what it read then is unknown.
    """

    exclude: tuple[str, ...]
    sound: bool
    since_ns: int = field(default_factory=time.time_ns)
    read: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    mapped_before: frozenset[str] = field(default_factory=lambda: _mapped())

    def dependencies(self, extra_packages: Iterable[str] = ()) -> Snapshot | None:
        """What the model was made from; None where something was not recorded, or changed meanwhile."""
        if not self.sound:
            return None
        opened = self.read | (_mapped() - self.mapped_before)
        files = {path for path in map(os.path.realpath, opened) if self._counts(path)}
        files |= user_modules()
        files -= {os.path.realpath(path) for path in self.written}
        if (found := stamps({*files, *_package_records(extra_packages)}, since_ns=self.since_ns)) is None:
            return None
        return Snapshot(
            files=found,
            folders={path: folder_digest(path) for path in sorted(self.folders)},
            variables={name: variable_digest(name) for name in sorted(self.variables)},
        )

    def _counts(self, path: str) -> bool:
        # The source of what is cached is among the modules.
        if path.startswith((*_SYSTEM, *self.exclude, _OWN)) or "/__pycache__/" in path:
            return False
        if not Path(path).is_file():
            return False
        # A package's own code and metadata are covered by its record.
        return not (_is_library(path) and (path.endswith(_CODE) or ".dist-info/" in path or ".so." in path))


@contextmanager
def recorded_reads(*, exclude: Iterable[Path] = ()) -> Iterator[RecordedReads]:
    """Record what this process reads while the body runs, but for folders that aotpipe itself writes."""
    global _active
    _install()
    roots = tuple(os.path.realpath(path) + os.sep for path in exclude)
    # Of two builds in one process at once, nobody can say which of them reads a file.
    busy = _active is not None
    reads = RecordedReads(exclude=roots, sound=not busy and not user_modules(ignore_main=True))
    if busy:
        yield reads
        return
    with _recorded_variables():
        _active = reads
        try:
            yield reads
        finally:
            _active = None


def user_modules(*, ignore_main: bool = False) -> set[str]:
    """The files of imported modules that are neither Python's, nor installed, nor aotpipe's."""
    found = set()
    folders: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or (ignore_main and name in {"__main__", "__mp_main__"}):
            continue
        real = _resolved(path, folders)
        if not real.startswith((_OWN, *_SYSTEM)) and not _is_library(real) and Path(real).is_file():
            found.add(real)
    return found


def _resolved(path: str, folders: dict[str, str]) -> str:
    """As os.path.realpath, which walks up from each of thousands of files; `folders` remembers."""
    folder, name = os.path.split(path)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    resolved = os.path.join(folders[folder], name)  # noqa: PTH118  # pathlib takes as long as what this saves
    return os.path.realpath(resolved) if os.path.islink(resolved) else resolved  # noqa: PTH114


_active: RecordedReads | None = None
_inside = threading.local()


def ignore_this_thread() -> None:
    """What this thread opens from now on is not the user's."""
    _inside.busy = True


@cache
def _install() -> None:
    """Add the audit hook, once per process: Python has no way to remove one."""
    # Loaded now, so that no user's module can take its function before it is wrapped.
    import safetensors  # noqa: F401

    wrap_loaded(_note_native)
    sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    reads = _active
    if reads is None or event not in {"open", "os.listdir", "os.scandir"} or getattr(_inside, "busy", False):
        return
    _inside.busy = True  # what this function itself opens is not the user's
    try:
        wrap_loaded(_note_native)
        _note(reads, event, args)
    finally:
        _inside.busy = False


def _note_native(path: object) -> None:
    if _active is not None:
        _note(_active, "open", (path, None, os.O_RDONLY))


def _note(reads: RecordedReads, event: str, args: tuple[Any, ...]) -> None:
    path = args[0] if args and args[0] is not None else "."
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, (str, os.PathLike)):
        return  # a file descriptor, which came from an earlier open
    absolute = os.path.abspath(path)  # noqa: PTH100  # a pathlib call here would raise audit events itself
    if event != "open":
        if _asked_by_user():
            reads.folders.add(absolute)
    elif isinstance(args[2], int) and args[2] & _WRITES:
        reads.written.add(absolute)
    elif not (absolute.endswith(_CODE) and absolute.startswith(_library_roots())):
        # An import of transformers opens thousands of modules, which the packages' records cover.
        reads.read.add(absolute)


@contextmanager
def _recorded_variables() -> Iterator[None]:
    """Note the names of environment variables that the user's code reads."""
    kind = type(os.environ)
    original: Callable[[Any, str], str] = kind.__getitem__

    @wraps(original)
    def getitem(environ: Any, name: str) -> str:
        if _active is not None and _asked_by_user():
            _active.variables.add(str(name))
        return original(environ, name)

    kind.__getitem__ = getitem  # type: ignore[method-assign]
    try:
        yield
    finally:
        kind.__getitem__ = original  # type: ignore[method-assign]


def _asked_by_user() -> bool:
    """Whether the nearest caller outside of Python's library and of this file is the user's code."""
    # The only way to a caller's file without building a traceback.
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib"):
            return False
        if name != __file__ and not name.startswith("<") and not _is_standard(name):
            return not _is_library(name) and not name.startswith(_OWN)
        frame = frame.f_back
    return False


@cache
def _library_roots() -> tuple[str, ...]:
    roots = {sysconfig.get_path(key) for key in _LIBRARY_KEYS}
    roots |= {path for path in sys.path if path.endswith(("site-packages", "dist-packages"))}
    return tuple({spelling + os.sep for path in roots for spelling in (path, os.path.realpath(path))})


@cache
def _is_library(path: str) -> bool:
    return path.startswith(_library_roots())


@cache
def _is_standard(path: str) -> bool:
    roots = tuple(sysconfig.get_path(key) for key in ("stdlib", "platstdlib"))
    installed = "site-packages" in path or "dist-packages" in path
    return _is_library(path) and not installed and path.startswith(roots)


def _mapped() -> frozenset[str]:
    """The regular files mapped into this process, where the kernel shows them."""
    with suppress(OSError):
        text = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
        rows = (line.split(maxsplit=5) for line in text.splitlines())
        return frozenset(row[5] for row in rows if len(row) > 5 and row[5].startswith("/"))
    return frozenset()


def _package_records(extra: Iterable[str]) -> set[str]:
    """The record of each installed package that was imported: it changes with the package."""
    owners = metadata.packages_distributions()
    tops = {name.partition(".")[0] for name in list(sys.modules)}
    names = {owner for top in tops for owner in owners.get(top, ())} | set(extra)
    found = set()
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            # Private, but the only way to the folder of a distribution's metadata.
            folder = Path(getattr(metadata.distribution(name), "_path", None) or os.devnull)
            records = (folder / record for record in ("RECORD", "METADATA", "PKG-INFO"))
            found |= {os.path.realpath(path) for path in islice(filter(Path.is_file, records), 1)}
    return found


def wrap_loaded(note: Callable[[object], None]) -> None:
    """Wrap the libraries that open files in native code, where Python tells of nothing, once they are loaded.

    `note` is called with the path argument of every call, in the calling thread.
    """
    for module, attribute, position in _NATIVE if len(_wrapped) < len(_NATIVE) else ():
        original = getattr(sys.modules.get(module), attribute, None)
        if original is None or attribute in _wrapped:
            continue
        _wrapped.add(attribute)
        if attribute == "PyTorchFileReader":  # a class that others derive from
            original.__init__ = _telling(original.__init__, position, note)
            continue
        wrapped = _telling(original, position, note)
        # Others may have taken the function out of its module before.
        for other in list(sys.modules.values()):
            if getattr(other, "__dict__", {}).get(attribute) is original:
                setattr(other, attribute, wrapped)


def _telling(
    original: Callable[..., Any], position: int, note: Callable[[object], None]
) -> Callable[..., Any]:
    @wraps(original, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        note(args[position] if len(args) > position else kwargs.get("filename"))
        return original(*args, **kwargs)

    return call
