"""A backend of torch.compile: graphs run as IREE programs, and what cannot is run eagerly and counted.

    compiled = torch.compile(model, backend="aotpipe")
    print(aotpipe.dynamo.counts())

Each graph goes through the stages of a build at its first call, sizes that vary as such, and its first answer
is compared with eager's. The backend is for inference. Importing this package registers it where the
installed entry point has not.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

from torch._dynamo.backends import registry  # public as torch._dynamo.register_backend alone

from aotpipe.tools.torch_compile.backend import aotpipe
from aotpipe.tools.torch_compile.results import COUNTERS, Counts, Graph

__all__ = ["NAME", "Counts", "Graph", "aotpipe", "counts", "reset"]

NAME: Final = "aotpipe"


def counts() -> Counts:
    """The graphs and calls of this process, and what fell back with its reasons."""
    return COUNTERS.counts()


def reset() -> None:
    """Begin to count anew; programs stay."""
    COUNTERS.reset()


def _register() -> None:
    installed = {each.name for each in entry_points(group="torch_dynamo_backends")}
    # torch takes a name once, and registers what an entry point names by itself.
    if NAME not in installed and NAME not in registry.list_backends(()):
        registry.register_backend(aotpipe, name=NAME)


_register()
