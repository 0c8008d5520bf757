r"""Devices in a grid, and how arrays are split over them. Torch-free.

    data=2,model=4      eight devices: two groups of four; the axes have these names
    2x4                 the same grid with the axes x and y

    layers\.\d+\.weight=(model, None)       of every array of such a name dim 0 is split over the axis model
    x=(data,)                             trailing dims that are not named stay whole
    x=(data+model, None)                  dim 0 is split over both

A pattern is a regular expression that must match a whole name: of a weight, a state, or an input. The first
one that matches counts; what none matches is on every device. `Mesh.parse(str(mesh)) == mesh`, and likewise
`Rule`.

Raises `MeshError`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self, TypeAlias

from aotpipe.core.serialization import Serializable, renamed
from aotpipe.errors import MeshError
from aotpipe.runtime.xla import clients

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_GRID: Final = re.compile(r"\d+(x\d+)*")
_DEFAULT_NAMES: Final = ("x", "y", "z")
_RULE: Final = re.compile(r"(?P<pattern>.+)=\s*\((?P<dims>[^()]*)\)\s*", re.DOTALL)
_EXAMPLE: Final = "such as --mesh data=2,model=2 or --mesh 2x2, whose axes are x and y"
_RULE_EXAMPLE: Final = r"such as --shard 'layers\.\d+\.weight=(model, None)'"

Split = tuple[str, ...]
"""The axes that one dim is split over; none where it stays whole."""
DeclaredSplits = Sequence[str | Sequence[str] | None]
DeclaredMesh: TypeAlias = "str | Mapping[str, int] | Mesh"
DeclaredRules = Mapping[str, DeclaredSplits] | Sequence[str]


@dataclass(frozen=True, slots=True)
class Mesh:
    """A grid of devices; `str` gives `data=2,model=4`."""

    axes: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)

    @classmethod
    def parse(cls, text: str) -> Mesh:
        """Read a mesh.

        Raises:
            MeshError: It is none.
        """
        plain = text.replace(" ", "")
        if _GRID.fullmatch(plain):
            sizes = plain.split("x")
            if len(sizes) > len(_DEFAULT_NAMES):
                raise MeshError(f"the axes of the mesh {text!r} need names", hint=_EXAMPLE)
            return cls.of(dict(zip(_DEFAULT_NAMES, map(int, sizes), strict=False)))
        pairs = [part.partition("=") for part in plain.split(",")]
        names = [name for name, _, _ in pairs]
        if not all(_NAME.fullmatch(name) and size.isdecimal() for name, _, size in pairs):
            raise MeshError(f"{text!r} is no mesh", hint=_EXAMPLE)
        if len(set(names)) < len(names):
            raise MeshError(f"two axes of the mesh {text!r} have one name", hint=_EXAMPLE)
        return cls.of({name: int(size) for name, _, size in pairs})

    @classmethod
    def of(cls, given: DeclaredMesh) -> Mesh:
        """Read what a caller gives: a mesh's text, or its axes by name.

        Raises:
            MeshError: It is no mesh.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, str):
            return cls.parse(given)
        assert isinstance(given, Mapping), given
        axes = tuple((str(name), int(size)) for name, size in given.items())
        if not axes or any(size < 1 or not _NAME.fullmatch(name) for name, size in axes):
            raise MeshError(f"{dict(given)} is no mesh", hint=_EXAMPLE)
        return cls(axes)

    @property
    def devices(self) -> int:
        """The number of devices."""
        return math.prod(size for _, size in self.axes)

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each axis, by its name."""
        return dict(self.axes)


@dataclass(frozen=True, slots=True)
class Rule:
    """How the arrays of some names are split; `str` gives `PATTERN=(model, None)`."""

    pattern: str
    splits: tuple[Split, ...]

    def __str__(self) -> str:
        return f"{self.pattern}={described(self.splits)}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a rule.

        Raises:
            MeshError: It is none.
        """
        found = _RULE.fullmatch(text)
        if not found:
            raise MeshError(f"{text!r} does not say how an array is split", hint=_RULE_EXAMPLE)
        words = [word.strip() for word in found["dims"].split(",")]
        if words and not words[-1]:
            words.pop()
        return cls.of(found["pattern"], [None if word == "None" else word for word in words])

    @classmethod
    def of(cls, pattern: str, dims: DeclaredSplits) -> Self:
        """Read the axes of each dim: a name, several as `a+b` or as a sequence, or None.

        Raises:
            MeshError: The pattern is no regular expression, or a dim has no such thing.
        """
        try:
            re.compile(pattern)
        except re.error as error:
            raise MeshError(f"{pattern!r} is no regular expression", reason=str(error)) from error
        splits = tuple(_split(dim) for dim in dims)
        names = [name for split in splits for name in split]
        if not all(map(_NAME.fullmatch, names)):
            raise MeshError(
                f"{described(splits)} does not name axes of a mesh, or None, for each dim", hint=_RULE_EXAMPLE
            )
        if len(set(names)) < len(names):
            raise MeshError(
                f"{pattern}={described(splits)} splits two dims over one axis",
                hint="an axis splits one dim of an array",
            )
        return cls(pattern, splits)


def rules(given: DeclaredRules) -> tuple[Rule, ...]:
    """Read rules as a caller gives them: by pattern, or as texts.

    Raises:
        MeshError: One is no rule.
    """
    if isinstance(given, Mapping):
        return tuple(Rule.of(pattern, dims) for pattern, dims in given.items())
    return tuple(map(Rule.parse, given))


def described(splits: Sequence[Split]) -> str:
    """The axes of each dim as `(data+model, None)`."""
    words = ["+".join(split) or "None" for split in splits]
    return f"({words[0]},)" if len(words) == 1 else f"({', '.join(words)})"


def _split(dim: str | Sequence[str] | None) -> Split:
    if dim is None:
        return ()
    return tuple(word.strip() for word in dim.split("+")) if isinstance(dim, str) else tuple(dim)


@dataclass(frozen=True, slots=True)
class Sharding(Serializable):
    """Which part of an array each device has.

    Attributes:
        tile_indices: By device, the part's number along each dim.
        text: The same in XLA's own notation; empty for results, which are only read.
    """

    __pydantic_config__: ClassVar = renamed(tile_indices="places")

    tiles: tuple[int, ...]
    tile_indices: tuple[tuple[int, ...], ...]
    text: str = ""

    @classmethod
    def of(cls, mesh: Mesh, splits: Sequence[Split], rank: int) -> Self:
        """The sharding of an array of some rank on a mesh, whose devices count along the last axis first."""
        whole = (*splits, *((),) * (rank - len(splits)))
        tiles = tuple(math.prod(mesh.sizes[name] for name in split) for split in whole)
        text = _hlo_sharding(mesh, splits, tiles)
        sharding = clients.bindings().HloSharding.from_string(text)
        return replace(cls.of_xla(sharding, rank, mesh.devices), text=text)

    @classmethod
    def of_xla(cls, sharding: Any, rank: int, devices: int) -> Self:
        """An `HloSharding` of jaxlib's; each device has the whole array where it is None or has no tiles."""
        if sharding is None or not sharding.is_tiled():
            return cls((1,) * rank, ((0,) * rank,) * devices)
        dims = sharding.tile_assignment_dimensions()
        places = itertools.product(*map(range, dims))
        indices = dict(zip(sharding.tile_assignment_devices(), places, strict=True))
        return cls(tuple(dims[:rank]), tuple(indices[device][:rank] for device in range(devices)))

    @property
    def is_replicated(self) -> bool:
        """Whether every device has the whole array."""
        return all(tiles == 1 for tiles in self.tiles)

    def part(self, device: int, shape: Sequence[int]) -> tuple[slice, ...]:
        """Where a device's part of an array of some shape is; the last part of a dim may be smaller."""
        steps = [-(-size // tiles) for size, tiles in zip(shape, self.tiles, strict=True)]
        return tuple(
            slice(min(index * step, size), min((index + 1) * step, size))
            for index, step, size in zip(self.tile_indices[device], steps, shape, strict=True)
        )


def _hlo_sharding(mesh: Mesh, splits: Sequence[Split], tiles: Sequence[int]) -> str:
    """A sharding as XLA's text of it, such as `{devices=[2,1,2]<=[2,2]T(0,1) last_tile_dim_replicate}`."""
    used = [name for split in splits for name in split]
    if math.prod(tiles) == 1:
        return "{replicated}"
    names = list(mesh.sizes)
    order = [names.index(name) for name in (*used, *(name for name in names if name not in used))]
    copies = mesh.devices // math.prod(tiles)
    grid = ",".join(map(str, (*tiles, *([copies] if copies > 1 else []))))
    shape = ",".join(str(size) for _, size in mesh.axes)
    turned = f"T({','.join(map(str, order))})" if len(names) > 1 else ""
    rest = " last_tile_dim_replicate" if copies > 1 else ""
    return f"{{devices=[{grid}]<=[{shape}]{turned}{rest}}}"
