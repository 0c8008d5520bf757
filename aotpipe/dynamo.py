"""The backend of torch.compile under its public name: `torch.compile(model, backend="aotpipe")`.

`counts()` says which graphs were compiled and which fell back to eager, `reset()` begins a new count.
"""

from __future__ import annotations

from aotpipe.tools.torch_compile import *  # noqa: F403  # the public names of the package
from aotpipe.tools.torch_compile import __all__ as __all__
