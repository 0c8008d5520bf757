"""Which casts a precision policy asks of one op, in a graph and in eager alike.

`Casting(policy).trials(op, dtypes)` gives what to try for an op, in order: the first that torch takes is it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch

from aotpipe.core.precision import Precision

Cast = Callable[[torch.dtype], torch.dtype]
"""From the dtype that an operand has to the one that it gets."""


def lower_dtype(policy: Precision) -> torch.dtype:
    """The dtype that products are computed in."""
    found = getattr(torch, policy.dtype)
    assert isinstance(found, torch.dtype)
    return found


def name_of(op: Any) -> str:
    """An op's name in ATen, without its overload; of another library's op nothing."""
    return str(op.overloadpacket.__name__) if getattr(op, "namespace", "") == "aten" else ""


class Casting:
    """The casts of a policy, each a map of dtypes."""

    def __init__(self, policy: Precision) -> None:
        self.policy = policy
        self.lower: Final = lower_dtype(policy)

    def down(self, dtype: torch.dtype) -> torch.dtype:
        """Float32 to the lower dtype."""
        return self.lower if dtype is torch.float32 else dtype

    def up(self, dtype: torch.dtype) -> torch.dtype:
        """The lower dtype to float32."""
        return torch.float32 if dtype is self.lower else dtype

    def same(self, dtype: torch.dtype) -> torch.dtype:
        """As it is."""
        return dtype

    def trials(
        self, name: str, dtypes: Sequence[torch.dtype], *, mutable: bool = False
    ) -> Iterator[tuple[Cast, Cast]]:
        """What to try for an op: the cast of its operands, and that of its results.

        Args:
            name: Of an op of ATen, or of torch's function of that name.
            dtypes: Of its operands.
            mutable: Whether it writes to an operand, which is never cast.
        """
        kind = self.policy.kind(name)
        if torch.float32 not in dtypes and self.lower not in dtypes:
            kind = "other"
        if kind == "product" and not mutable:
            yield self.down, self.same
        if kind == "island" and not mutable:
            # A sum over float32 alone stays one.
            yield self.up, self.down if self.lower in dtypes else self.same
        yield self.same, self.same
        if mutable:
            # What is written to comes first, and stays what it is.
            yield lambda dtype: dtypes[0] if dtype in (torch.float32, self.lower) else dtype, self.same
            return
        # Some ops refuse operands of different dtypes.
        yield self.up, self.same
        yield self.down, self.same


def is_mutable(op: Any) -> bool:
    """Whether an op writes to an operand."""
    return bool(op._schema.is_mutable)  # noqa: SLF001  # an op shows its schema nowhere else
