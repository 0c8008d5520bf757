"""The options of the backend: `torch.compile(model, backend="aotpipe", options={...})`. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Self, get_args

from aotpipe.build.request import ModelOptions, Request
from aotpipe.core.targets import Target, expand
from aotpipe.errors import SpecInvalid

Fallback = Literal["eager", "error"]
_FALLBACKS: Final = get_args(Fallback)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How graphs are compiled.

    Attributes:
        target: An IREE target that runs on this host.
        fallback: What happens to a graph that has no program: it runs `eager`, or its `error` is raised.
        verify: Whether the first answer of each program is compared with eager's.
        cache: Whether programs are kept for the next process.
        dtype, keep_float32, dialect: As `build` takes them. With a dtype, or the dialect stablehlo, a graph
            with an op that has no lowering has no program: no part of it can be run eagerly.
    """

    target: Target
    fallback: Fallback = "eager"
    verify: bool = True
    cache: bool = True
    dtype: str | None = None
    keep_float32: Sequence[str] = ()
    dialect: str | None = None

    @property
    def model_options(self) -> ModelOptions:
        """What the request for a graph's program has."""
        is_whole = bool(self.dtype) or self.dialect == "stablehlo"
        return {
            "dtype": self.dtype,
            "keep_float32": self.keep_float32,
            "dialect": self.dialect,
            "allow_islands": not is_whole,
        }

    @classmethod
    def of(cls, options: Mapping[str, Any] | None = None, mode: str | None = None) -> Self:
        """Read what a user passes.

        Raises:
            SpecInvalid: An option that there is not, or a value that it does not take.
            TargetError: The dialect is none of IREE's.
            UnknownTarget: No target of that name.
        """
        given = dict(options or {})
        known = [field.name for field in fields(cls)]
        unknown = sorted(given.keys() - set(known))
        if unknown:
            raise SpecInvalid(
                f"the backend has no option {unknown[0]!r}", hint=f"the options are {', '.join(known)}"
            )
        if mode not in (None, "default"):
            raise SpecInvalid(f"the backend has no mode {mode!r}", hint="leave it out")
        if given.get("fallback", "eager") not in _FALLBACKS:
            raise SpecInvalid(
                f"the option fallback is {given['fallback']!r}", hint=f"give one of {', '.join(_FALLBACKS)}"
            )
        targets = expand([str(given.pop("target", "iree-cpu-host"))])
        if len(targets) != 1 or targets[0].backend != "iree":
            raise SpecInvalid("the option target takes one IREE target", hint="such as iree-cpu-host")
        settings = cls(target=targets[0], **given)
        Request.of(None, [str(settings.target)], **settings.model_options)
        return settings
