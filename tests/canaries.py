"""Canaries: tests that show another's fault without its workaround, and say when to remove that.

A canary compiles or runs a record's smallest program and asserts that it is right. It is expected to fail; on
the day upstream mends the fault it passes, which pytest reports as a failure with the record's id.

What it says changes with the version of that software alone: with one that was seen to have the fault it is
slow, and with any other it runs among the quick tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import wraps
from importlib import metadata
from typing import Any
from unittest import mock

import pytest
import torch
from packaging.specifiers import SpecifierSet

from aotpipe.backends.iree.compile import compiler, flags
from aotpipe.backends.iree.lower import importer
from aotpipe.core.fixes import Fix, without
from aotpipe.core.stages import Compiled, Legal, Lowered
from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError
from aotpipe.runtime.loading import Runner
from tests.programs.through import compare, legal, load_payload, require_vulkan


class FaultShown(Exception):
    """The fault that a record describes is still there."""


def canary(fix: Fix, *hiding: Fix) -> Callable[[Callable[..., None]], Any]:
    """Run a test without a workaround, and expect it to show the fault that the record describes.

    Args:
        fix: The workaround.
        hiding: Other workarounds, which change the smallest program so that it does not show the fault.
    """

    def decorate(test: Callable[..., None]) -> Any:
        @wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            with ExitStack() as off:
                for each in (fix, *hiding):
                    off.enter_context(without(each))
                try:
                    test(*args, **kwargs)
                except (AssertionError, AotpipeError) as error:
                    if fix.diagnostic in f"{error} {getattr(error, 'reason', '')}":
                        # Alone: pytest prints a chain's arguments, and a closed program's may be gone.
                        raise FaultShown(f"{fix.id}: {error}") from None
                    raise

        marked = pytest.mark.slow(run) if _was_seen(fix) else run
        reason = f"remove me: {fix.id}: {fix.package} computes the smallest program right without it"
        return pytest.mark.xfail(strict=True, raises=FaultShown, reason=reason)(marked)

    return decorate


def _was_seen(fix: Fix) -> bool:
    """Whether the installed version was seen to have the fault."""
    try:
        return metadata.version(fix.package) in SpecifierSet(fix.versions)
    except metadata.PackageNotFoundError:
        return False


def compile_once(
    lowered: Lowered,
    target: str,
    extra_flags: tuple[str, ...] = (),
    *,
    beside: Sequence[Target] = (),
    device: Sequence[str] | None = None,
) -> Compiled:
    """Compile by the fast flags only: no fallback hides a fault.

    Args:
        lowered: The module.
        target: What to compile for.
        extra_flags: Flags that are passed last.
        beside: The other targets of a program for several devices.
        device: Flags in place of those of the target's row.
    """
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(flags, "fallbacks", return_value=()))
        if device is not None:
            patches.enter_context(mock.patch.object(flags, "target_flags", return_value=tuple(device)))
        return compiler.compile(lowered, Target.parse(target), extra_flags=extra_flags, beside=beside)


def load_once_on_vulkan(program: Legal) -> Runner:
    """Compile a program for Vulkan by the fast flags and load it, past what the tests' run has compiled."""
    require_vulkan()
    return load_payload(program, compile_once(importer.lower(program), "iree-vulkan").payload, "vulkan")


def check_compiled(model: torch.nn.Module, *calls: Any, **options: Any) -> None:
    """Compare program and eager over calls, compiled for this CPU as a build does, without its fallbacks."""
    program = legal(model, calls[0], **options)
    payload = compile_once(importer.lower(program), "iree-cpu-host").payload
    with load_payload(program, payload, "local-sync") as runner:
        for call in calls:
            compare(runner, program, model, call)
