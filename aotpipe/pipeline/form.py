"""What a model is lowered to for a set of targets: the dialects, and where sizes are fixed the sizes.

Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from aotpipe.backends import dialect
from aotpipe.backends.xla.buckets import Buckets, Declared
from aotpipe.errors import NoBuckets, TargetError
from aotpipe.stages import Dialect
from aotpipe.targets import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The dialects, in a fixed order, and by Dim the sizes that there are to be programs for.

    `islands` says that what cannot be in a program may be cut out.
    """

    dialects: tuple[Dialect, ...] = ("torch",)
    buckets: Mapping[str, Buckets] = field(default_factory=dict)
    islands: bool = False

    @classmethod
    def of(
        cls,
        targets: Iterable[Target],
        buckets: Mapping[str, Declared] | None = None,
        *,
        islands: bool = False,
    ) -> Self:
        """What some targets need.

        Raises:
            NoBuckets: A bucket is no size, or none of the targets has buckets.
            TargetError: Islands are allowed, and a target has no chains.
        """
        found = {dialect(target) for target in targets}
        if islands and "stablehlo" in found:
            raise TargetError(
                "only IREE's programs run in a chain with islands of Python",
                hint="leave the XLA targets out, or --allow-islands",
            )
        sizes = {name: Buckets.of(name, given) for name, given in sorted((buckets or {}).items())}
        if sizes and "stablehlo" not in found:
            raise NoBuckets(
                "buckets are for XLA targets, and none is built",
                hint="leave them out, or add a target such as xla-cpu-host",
            )
        return cls(dialects=tuple(sorted(found, reverse=True)), buckets=sizes, islands=islands)

    def to_json(self) -> dict[str, Any]:
        """As JSON, the same for the same form."""
        return {
            "dialects": list(self.dialects),
            "buckets": {name: own.to_json() for name, own in self.buckets.items()},
            "islands": self.islands,
        }


DEFAULT_FORM: Final = Form()
"""For IREE alone."""
