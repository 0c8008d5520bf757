"""The former place of `aotpipe.tensors`, which the worker of a build uses too."""

from aotpipe.tensors import ALIGNMENT, parse, read, read_bytes, write

__all__ = ["ALIGNMENT", "parse", "read", "read_bytes", "write"]
