"""From a case to a compiler's module by the product's stages, with what stopped it on the way."""

from __future__ import annotations

import hashlib
import os
import resource
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from aotpipe.backends import dialect, legalization, module_of, ruleset
from aotpipe.backends.iree.lower import importer
from aotpipe.backends.xla import lowering as stablehlo
from aotpipe.canonicalize import canonicalize
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Exported, Lowered
from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError, LowerFailed, UnsupportedOps
from aotpipe.export import export
from aotpipe.model import spec
from aotpipe.model.torch_arrays import view_numpy
from aotpipe.passes import legalize
from aotpipe.runtime.xla import container
from tests.opinfo.cases import Case
from tests.programs import with_kernels


class Stopped(Exception):
    """A case that gave no program: the verdict and why."""

    def __init__(self, verdict: str, reason: str) -> None:
        super().__init__(f"{verdict}: {reason}")
        self.verdict, self.reason = verdict, reason


@dataclass(frozen=True)
class Ready:
    """A case whose module is a function of its name, with what a run needs."""

    case: Case
    program: Lowered
    signature: Signature
    asserts: tuple[str, ...]
    weights: dict[str, np.ndarray[Any, Any]]


def lowered(case: Case, target: Target) -> Ready:
    """Take a case through every stage before the compiler.

    Raises:
        Stopped: torch.export does not take it, ops without a lowering are left, or a stage failed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exported = _exported(case)
        except Stopped:
            raise
        except Exception as error:
            raise Stopped("export", _first_line(error)) from error
        try:
            legal = legalize(exported, legalization(ruleset(module_of(target), dialect(target))))
            lower = importer.lower if target.backend == "iree" else stablehlo.lower
            program = lower(legal)
        except UnsupportedOps as error:
            # What torch itself fails to decompose has a cause.
            verdict = "failed" if error.__cause__ else "refused"
            raise Stopped(verdict, " | ".join(error.reason.splitlines())) from error
        except LowerFailed as error:
            raise Stopped("failed", f"{error.message}: {error.reason}") from error
    (entry,) = legal.entries
    weights = {key: view_numpy(value) for key, value in legal.weights.items()}
    return Ready(case, program, entry.signature, entry.asserts, weights)


def _exported(case: Case) -> Exported:
    entry = spec.EntryPoint(args=case.tensors)
    try:
        return export(canonicalize(spec.as_spec(case.module, entry_points={case.name: entry})))
    except AotpipeError as error:
        if error.__cause__ is None:
            raise Stopped("refused", str(error).splitlines()[0]) from error
        # torch's words say more than ours.
        raise error.__cause__ from error


def check_legal(context: ir.Context, program: Lowered, limit_s: int = 6) -> None:
    """Run IREE's own torch conversion of a module of that dialect, for its diagnostic, in a forked child.

    The conversion can abort or loop for ever, which must stay a verdict on one sample.

    Raises:
        Stopped: An op or a form of it is not legal.
    """
    if program.dialect != "torch":
        return
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # jax warns of its locks where another test has imported it; the child uses nothing of jax.
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + limit_s
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            # With our own ops as the compiler's: the kernels are no part of the torch dialect.
            text = with_kernels(program.module, "vmvx").decode()
            os.write(writer, _convert(context, text).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        message = stream.read().decode(errors="replace")
    _, status = os.waitpid(pid, 0)
    if status:
        raise Stopped("failed", f"torch-to-iree: died with signal {os.waitstatus_to_exitcode(status)}")
    if message:
        raise Stopped("failed", f"torch-to-iree: {message}")


def _convert(context: ir.Context, text: str) -> str:
    """The conversion's first diagnostic, or nothing."""
    module = ir.Module.parse(text, context=context)
    diagnostics: list[str] = []

    def keep(diagnostic: Any) -> bool:
        diagnostics.append(str(diagnostic.message))
        return True

    with context, context.attach_diagnostic_handler(keep):
        try:
            PassManager.parse("builtin.module(torch-to-iree)").run(module.operation)
        except ir.MLIRError as error:
            messages = diagnostics or [item.message for item in error.error_diagnostics]
            return (messages[0] if messages else str(error))[:300]
    return ""


def merged(context: ir.Context, programs: Sequence[Lowered]) -> Lowered:
    """One program with the functions of all."""
    if programs[0].dialect == "torch":
        module = _merged_text(context, [program.module.decode() for program in programs]).encode()
    else:
        read = [container.read(program.module) for program in programs]
        index = {"programs": [one for index, _ in read for one in index["programs"]]}
        module = container.write(index, {name: part for _, parts in read for name, part in parts.items()})
    return Lowered(
        dialect=programs[0].dialect,
        module=module,
        entry_points=tuple(name for program in programs for name in program.entry_points),
        digest=hashlib.sha256(module).hexdigest(),
    )


def _merged_text(context: ir.Context, texts: Sequence[str]) -> str:
    with context, ir.Location.unknown():
        target = ir.Module.create()
        for text in texts:
            module = ir.Module.parse(text, context=context)
            for operation in list(module.body.operations):
                target.body.append(operation.operation.detach_from_parent())
    return str(target)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    line = text.splitlines()[0] if text else ""
    return f"{type(error).__name__}: {line}"[:300]
