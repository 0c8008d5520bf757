"""What a model is lowered to for some targets: a dialect for each compiler, and sizes where they are fixed.

Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, get_args

from aotpipe.backends import dialect
from aotpipe.backends.xla.mesh import topologies
from aotpipe.core.precision import Precision
from aotpipe.core.stages import Dialect
from aotpipe.core.targets import Backend, Target
from aotpipe.errors import MeshError, NoBuckets, SpecInvalid, TargetError
from aotpipe.runtime.xla.buckets import Buckets, Declared
from aotpipe.runtime.xla.mesh import DeclaredMesh, DeclaredRules, Mesh, Rule, rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The compilers that take part, with the dialect that each is given.

    Attributes:
        backends: By backend, in a fixed order.
        buckets: By Dim, the sizes that there are to be XLA programs for.
        islands: What cannot be in a program may be cut out.
        mesh: The devices that each program is for; one where None.
        rules: How arrays are split over them.
        precision: What is computed in fewer bits.
    """

    backends: Mapping[Backend, Dialect] = field(default_factory=lambda: {"iree": "torch"})
    buckets: Mapping[str, Buckets] = field(default_factory=dict)
    islands: bool = False
    mesh: Mesh | None = None
    rules: tuple[Rule, ...] = ()
    precision: Precision | None = None

    @classmethod
    def of(
        cls,
        targets: Iterable[Target],
        buckets: Mapping[str, Declared] | None = None,
        *,
        islands: bool = False,
        iree: str | None = None,
        mesh: DeclaredMesh | None = None,
        shard: DeclaredRules = (),
        precision: Precision | None = None,
    ) -> Self:
        """What some targets need.

        Args:
            targets: What is compiled for.
            buckets: By Dim, the sizes of XLA's programs.
            islands: Whether a model may be cut at what cannot be in a program.
            iree: The dialect of IREE's programs, where one is named.
            mesh: The devices that each program is for.
            shard: How arrays are split over them.
            precision: What is computed in fewer bits.

        Raises:
            NoBuckets: A bucket is no size, or none of the targets has buckets.
            TargetError: Islands are allowed, and a target has no chains; the dialect is none of IREE's, or
                no target is.
            MeshError: It is no mesh, or a target has none of so many devices; arrays are split over no mesh.
            SpecInvalid: Islands are allowed, and another precision is asked for.
        """
        named, chosen = _named(iree), tuple(targets)
        found = {target.backend: dialect(target, named or "torch") for target in chosen}
        if islands and "stablehlo" in found.values():
            raise TargetError(
                "only IREE's programs of the torch dialect run in a chain with islands of Python",
                hint="leave the XLA targets and --dialect out, or --allow-islands",
            )
        if named and "iree" not in found:
            raise TargetError(
                f"the dialect {named} is for IREE targets, and none is built",
                reason="XLA's programs are made of StableHLO always",
                hint="leave it out, or add a target such as iree-cpu-host",
            )
        if islands and precision:
            raise SpecInvalid(
                "islands of Python get the model's own dtypes, and another one is asked for",
                hint="leave --dtype out, or --allow-islands",
            )
        sizes = {name: Buckets.of(name, given) for name, given in sorted((buckets or {}).items())}
        if sizes and "xla" not in found:
            raise NoBuckets(
                "buckets are for XLA targets, and none is built",
                hint="leave them out, or add a target such as xla-cpu-host",
            )
        devices, splits = _spread(chosen, mesh, shard)
        backends = dict(sorted(found.items()))
        return cls(
            backends=backends,
            buckets=sizes,
            islands=islands,
            mesh=devices,
            rules=splits,
            precision=precision,
        )

    @property
    def dialects(self) -> tuple[Dialect, ...]:
        """Each once, in a fixed order."""
        return tuple(sorted(set(self.backends.values()), reverse=True))

    def to_json(self) -> dict[str, Any]:
        """As JSON, the same for the same form."""
        return {
            "backends": dict(self.backends),
            "buckets": {name: own.to_json() for name, own in self.buckets.items()},
            "islands": self.islands,
            "mesh": str(self.mesh or ""),
            "rules": list(map(str, self.rules)),
            **({"precision": [self.precision.dtype, *self.precision.keep]} if self.precision else {}),
        }


def _spread(
    targets: Iterable[Target], mesh: DeclaredMesh | None, shard: DeclaredRules
) -> tuple[Mesh | None, tuple[Rule, ...]]:
    splits = rules(shard)
    if mesh is None:
        if splits:
            raise MeshError(
                f"--shard {splits[0]} splits an array over no mesh",
                hint="name the devices: --mesh data=2,model=2",
            )
        return None, ()
    devices = Mesh.of(mesh)
    for target in targets:
        topologies.require(target, devices)
    return devices, splits


def _named(iree: str | None) -> Dialect | None:
    if iree is None:
        return None
    for known in get_args(Dialect):
        if iree == known:
            return known  # type: ignore[no-any-return]
    raise TargetError(
        f"IREE's programs are made of no dialect {iree!r}",
        hint=f"take one of: {', '.join(get_args(Dialect))}",
    )


DEFAULT_FORM: Final = Form()
"""For IREE alone."""
