"""Libraries that open files by name in native code, where no audit event of Python tells of it.

Each is wrapped once per process, as soon as its module is loaded; the wrapper tells the path and does what it
always did. Torch-free: nothing is imported here but safetensors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

Note = Callable[[object], None]

# (module, attribute, position of the path among the arguments, its keyword)
_FUNCTIONS: Final = (
    ("safetensors", "safe_open", 0, "filename"),
    ("torch._C", "import_ir_module", 1, "filename"),  # torch.jit.load
)
_CLASSES: Final = (("torch._C", "PyTorchFileReader", 0, "filename"),)  # torch.export.load

_done: set[str] = set()


def wrap_loaded(note: Note) -> None:
    """Wrap what is loaded by now and not wrapped yet.

    Args:
        note: Called with the path argument of every call, in the calling thread.
    """
    if len(_done) == len(_FUNCTIONS) + len(_CLASSES):
        return
    for module, attribute, position, keyword in (*_FUNCTIONS, *_CLASSES):
        home = sys.modules.get(module)
        original = getattr(home, attribute, None)
        if original is None or attribute in _done:
            continue
        _done.add(attribute)
        if (module, attribute, position, keyword) in _CLASSES:
            original.__init__ = _telling(original.__init__, position + 1, keyword, note)
            continue
        wrapped = _telling(original, position, keyword, note)
        # Others may have taken the function out of its module before.
        for other in list(sys.modules.values()):
            if getattr(other, "__dict__", {}).get(attribute) is original:
                setattr(other, attribute, wrapped)


def _telling(original: Callable[..., Any], position: int, keyword: str, note: Note) -> Callable[..., Any]:
    @wraps(original, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        note(args[position] if len(args) > position else kwargs.get(keyword))
        return original(*args, **kwargs)

    return call
