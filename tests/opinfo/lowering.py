"""From a case to a torch-dialect function, with what stopped it on the way."""

from __future__ import annotations

import os
import resource
import warnings
from typing import Any

import torch
from iree.compiler import ir
from iree.compiler.extras.fx_importer import FxImporter
from iree.compiler.passmanager import PassManager
from torch.export import ExportedProgram

from aotpipe.errors import UnsupportedOps
from aotpipe.legalize import decompose, decompositions
from aotpipe.signature import Signature
from aotpipe.stages import ExportedEntry


class Stopped(Exception):
    """A case that gave no program: the verdict and why."""

    def __init__(self, verdict: str, reason: str) -> None:
        super().__init__(f"{verdict}: {reason}")
        self.verdict, self.reason = verdict, reason


def legal_program(module: torch.nn.Module, tensors: tuple[torch.Tensor, ...]) -> ExportedProgram:
    """Export a call and decompose it.

    Raises:
        Stopped: torch.export or a decomposition refused it, or ops without a lowering are left.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exported = torch.export.export(module, tensors)
        except Exception as error:
            raise Stopped("export", _first_line(error)) from error
        try:
            entry = ExportedEntry(name="call", program=exported, signature=Signature(inputs=(), outputs=()))
            legal = decompose.decompose(entry, "torch")
        except UnsupportedOps as error:
            raise Stopped("failed", f"decompose: {error.reason}") from error
    _drop_asserts(legal.graph_module)
    left = decompositions.unsupported(legal.graph_module)
    if left:
        raise Stopped("refused", "; ".join(f"{item.op}: {item.reason}" for item in left))
    return legal


def _drop_asserts(module: torch.fx.GraphModule) -> None:
    """Without the asserts, which `legalize` makes results of the program."""
    for node in reversed(module.graph.nodes):
        if "_assert" in str(node.target) or (
            node.is_impure() is False and not node.users and node.op != "output" and node.op != "placeholder"
        ):
            module.graph.erase_node(node)
    module.recompile()


def torch_dialect(context: ir.Context, program: ExportedProgram, name: str) -> ir.Module:
    """Import a program as `func.func @name`.

    Raises:
        Stopped: The importer does not know something in it.
    """
    importer = FxImporter(context=context, config_check=False)
    try:
        importer.import_program(program, func_name=name, import_symbolic_shape_expressions=False)
    except Exception as error:
        raise Stopped("failed", f"import: {_first_line(error)}") from error
    return importer.module


def check_legal(context: ir.Context, module: ir.Module, limit_s: int = 6) -> None:
    """Run the compiler's own torch conversion on a copy, for its diagnostic, in a forked child.

    The conversion can abort or loop for ever, which must stay a verdict on one sample.

    Raises:
        Stopped: An op or a form of it is not legal.
    """
    text = str(module)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + limit_s
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
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
    copy = ir.Module.parse(text, context=context)
    diagnostics: list[str] = []

    def keep(diagnostic: Any) -> bool:
        diagnostics.append(str(diagnostic.message))
        return True

    with context, context.attach_diagnostic_handler(keep):
        try:
            PassManager.parse("builtin.module(torch-to-iree)").run(copy.operation)
        except ir.MLIRError as error:
            messages = diagnostics or [item.message for item in error.error_diagnostics]
            return (messages[0] if messages else str(error))[:300]
    return ""


def merged(context: ir.Context, modules: list[ir.Module]) -> ir.Module:
    """One module with the functions of all."""
    with context, ir.Location.unknown():
        target = ir.Module.create()
        for module in modules:
            for operation in list(module.body.operations):
                target.body.append(operation.operation.detach_from_parent())
    return target


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    line = text.splitlines()[0] if text else ""
    return f"{type(error).__name__}: {line}"[:300]
