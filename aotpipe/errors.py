"""The exceptions that aotpipe raises on purpose, each with its own exit code.

Anything else that escapes is a bug in aotpipe. Every error says what happened, where in the user's own
source where that is known, why, and one thing to do about it.

    AotpipeError                    1
      ModelError                    10  the model or its spec cannot be used
        ModelNotFound               11  no such file, module or attribute
        ModelImportFailed           12  the user's file raised while it was imported or built
        AmbiguousModel              13  several models and no name given
        NoExampleInputs             14  nothing says what the model is called with
        SpecInvalid                 15  a Spec contradicts itself or the model's forward
        TrainMode                   16  a module is in train mode
      TargetError                   18  a target cannot be used on this host
        UnknownTarget               17  not a target string; the nearest name is the hint
      ExportFailed                  20  torch.export refused the model
        StaticDim                   21  a dynamic Dim became a constant
        IslandsNotAllowed           28  a model calls Python that is no part of a program, and may not be cut
      Obstructed                    22  `check` found what keeps the model from becoming one program
      RewriteFailed                 23  no code was written that was proved to be the model
      TooManyPrograms               24  `recompiles` counted more programs than it was allowed
      TrainingNotSupported          27  a graph is differentiated, and programs have no backward pass
      UnsupportedOps                25  ops without a lowering, all of them at once
      NoBuckets                     26  a target needs sizes for a Dim, or other ones
        CannotPad                   29  an op would let the padding of a bucket change its results
      LowerFailed                   30  the importer refused a legal program: a bug of aotpipe
      MeshError                     31  a mesh, or how arrays are split over it, does not fit
      CompileError                  34
        CompileFailed               35  the compiler printed a diagnostic
        CompilerCrashed             36  the compiler died by a signal
        CompileTimeout              37  the compiler passed its time limit
        CompilerOutOfMemory         38  the compiler passed its memory limit
        DeviceMemoryExceeded        39  a program needs more memory than its chip has
      ParityError                   40  a program's numbers differ from eager's
      ProgramCrashed                41  a compiled program died or hung while it ran
      IslandFailed                  42  an eager island raised, or gave something else than at the build
      BundleError                   50
        BundleNotFound              51  no bundle at that path
        BundleCorrupt               52  a digest does not match
        MissingWeight               53  a program needs a weight that the bundle lacks
        UnsupportedSchema           54  a manifest of another schema version
        IncompatibleHost            55  CPU features, architecture or runtime version do not fit
        NoProgram                   56  the bundle has no program for that target
        IslandNotFound              57  the bundle needs a Python function that this host lacks
      InputError                    60
        UnknownInput                61
        MissingInput                62
        InputDtype                  63
        InputShape                  64  rank, a static dim, a dim range, or dims that disagree
          OutsideBuckets            67  no program was built for the sizes of a call
        InputValue                  65  a value outside the declared range
      AssertionViolated             66  an assert of the model failed in a program's run
      StoreError                    70
        DiskFull                    71
        ReadOnly                    72
      Interrupted                   130
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from aotpipe.core.stages import Parity


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A place in the user's own source; `str` gives `path:line`."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class AotpipeError(Exception):
    """Base of all; the message is one line, `reason` and `hint` one line each or empty.

    Args:
        message: What happened, without the place.
        reason: Why, where the message does not say it.
        hint: One thing to do.
        where: The user's own line.
        log: The path of a log that holds more.
    """

    exit_code: ClassVar[int] = 1
    stage: ClassVar[str] = "aotpipe"

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        hint: str = "",
        where: SourceLine | None = None,
        log: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.hint = hint
        self.where = where
        self.log = log

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        lines = [f"error[{self.stage}]: {place}{self.message}"]
        if self.reason:
            lines += ["  " + line for line in self.reason.splitlines()]
        if self.log:
            lines.append(f"  log: {self.log}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """The fields that `--json` prints for an error."""
        return {
            "error": type(self).__name__,
            "stage": self.stage,
            "exit_code": self.exit_code,
            "message": self.message,
            "reason": self.reason,
            "hint": self.hint,
            "where": str(self.where) if self.where else None,
            "log": self.log or None,
        }


class ModelError(AotpipeError):
    """The model or its spec cannot be used."""

    exit_code, stage = 10, "spec"


class ModelNotFound(ModelError):
    """No such file, module or attribute."""

    exit_code = 11


class ModelImportFailed(ModelError):
    """The user's file raised while it was imported or while it built the model."""

    exit_code = 12


class AmbiguousModel(ModelError):
    """Several models and no name given."""

    exit_code = 13


class NoExampleInputs(ModelError):
    """Nothing says what the model is called with."""

    exit_code = 14


class SpecInvalid(ModelError):
    """A Spec contradicts itself or the model's forward."""

    exit_code = 15


class TrainMode(ModelError):
    """A module is in train mode, so that export would keep dropout and batch statistics."""

    exit_code = 16


class TargetError(AotpipeError):
    """A target cannot be used on this host."""

    exit_code, stage = 18, "target"


class UnknownTarget(TargetError):
    """Not a target string."""

    exit_code = 17


class ExportFailed(AotpipeError):
    """torch.export refused the model; `code` is what `aotpipe check` calls the cause, where that is known."""

    exit_code, stage = 20, "export"

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        hint: str = "",
        where: SourceLine | None = None,
        log: str = "",
        code: str = "",
    ) -> None:
        super().__init__(message, reason=reason, hint=hint, where=where, log=log)
        self.code = code


class StaticDim(ExportFailed):
    """A Dim that was asked to be dynamic became a constant."""

    exit_code = 21


class RewriteFailed(AotpipeError):
    """No code was written that was proved to be the model: a call differs, or an op cannot be written."""

    exit_code, stage = 23, "rewrite"


class IslandsNotAllowed(ExportFailed):
    """A model calls Python that is no part of a program, and nothing said that it may be cut there."""

    exit_code = 28


@dataclass(frozen=True, slots=True)
class UnsupportedOp:
    """An op without a lowering: why, how often it is met, and the user's first line with it."""

    name: str
    reason: str
    count: int
    where: SourceLine | None


class UnsupportedOps(AotpipeError):
    """Ops without a lowering, all of them at once; `ops` holds each where they are known one by one."""

    exit_code, stage = 25, "legalize"

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        hint: str = "",
        where: SourceLine | None = None,
        log: str = "",
        ops: Sequence[UnsupportedOp] = (),
    ) -> None:
        super().__init__(message, reason=reason, hint=hint, where=where, log=log)
        self.ops = tuple(ops)


class NoBuckets(AotpipeError):
    """A target's programs have fixed sizes, and those of a Dim are not declared or do not fit."""

    exit_code, stage = 26, "lower"


class CannotPad(NoBuckets):
    """An op has no rule that keeps the padding of a bucket away from what counts."""

    exit_code = 29


class LowerFailed(AotpipeError):
    """The importer refused a legal program."""

    exit_code, stage = 30, "lower"


class MeshError(AotpipeError):
    """A mesh, or how arrays are split over it, does not fit the model or a target."""

    exit_code, stage = 31, "mesh"


class CompileError(AotpipeError):
    """A backend's compiler did not give a program."""

    exit_code, stage = 34, "compile"


class CompileFailed(CompileError):
    """The compiler printed a diagnostic."""

    exit_code = 35


class CompilerCrashed(CompileError):
    """The compiler died by a signal."""

    exit_code = 36


class CompileTimeout(CompileError):
    """The compiler passed its time limit."""

    exit_code = 37


class CompilerOutOfMemory(CompileError):
    """The compiler passed its memory limit."""

    exit_code = 38


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor of a program: a `weight`, `state`, `input`, or the `result` of an op at the user's line."""

    kind: str
    name: str
    size_bytes: int
    where: SourceLine | None = None


class DeviceMemoryExceeded(CompileError):
    """A program needs more memory than its chip has; `buffers` holds the largest, the largest first."""

    exit_code = 39

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        hint: str = "",
        where: SourceLine | None = None,
        log: str = "",
        buffers: Sequence[Buffer] = (),
    ) -> None:
        super().__init__(message, reason=reason, hint=hint, where=where, log=log)
        self.buffers = tuple(buffers)


class ParityError(AotpipeError):
    """A program's numbers differ from eager's by more than its tolerance; `parity` holds all comparisons."""

    exit_code, stage = 40, "validate"

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        hint: str = "",
        where: SourceLine | None = None,
        log: str = "",
        parity: Parity | None = None,
    ) -> None:
        super().__init__(message, reason=reason, hint=hint, where=where, log=log)
        self.parity = parity


class ProgramCrashed(AotpipeError):
    """A compiled program died, hung or reported a failure while it ran."""

    exit_code, stage = 41, "run"


class BundleError(AotpipeError):
    """A bundle cannot be used."""

    exit_code, stage = 50, "bundle"


class BundleNotFound(BundleError):
    """No bundle at that path."""

    exit_code = 51


class BundleCorrupt(BundleError):
    """A file of the bundle is not the one its manifest names."""

    exit_code = 52


class MissingWeight(BundleError):
    """A program needs a weight that the bundle lacks."""

    exit_code = 53


class UnsupportedSchema(BundleError):
    """A manifest of a schema version that this aotpipe does not read."""

    exit_code = 54


class IncompatibleHost(BundleError):
    """This host lacks what the program was compiled for."""

    exit_code = 55


class NoProgram(BundleError):
    """The bundle has no runnable program for that target."""

    exit_code = 56


class IslandNotFound(BundleError):
    """The bundle needs a Python function that this host lacks."""

    exit_code = 57


class IslandFailed(AotpipeError):
    """An eager island raised, or gave something else than at the build; the state is unchanged."""

    exit_code, stage = 42, "run"


class InputError(AotpipeError):
    """An input does not fit the signature; nothing was run."""

    exit_code, stage = 60, "input"


class UnknownInput(InputError):
    """A name that the signature does not have."""

    exit_code = 61


class MissingInput(InputError):
    """A name that the signature has and the call lacks."""

    exit_code = 62


class InputDtype(InputError):
    """Another dtype than the signature's."""

    exit_code = 63


class InputShape(InputError):
    """Another rank, a dim outside its range, or dims that disagree."""

    exit_code = 64


class OutsideBuckets(InputShape):
    """The sizes fit the signature, and no program was built for them."""

    exit_code = 67


class InputValue(InputError):
    """A value outside the declared range."""

    exit_code = 65


class AssertionViolated(AotpipeError):
    """An assert or torch._check of the model failed in a program's run; its state is unchanged."""

    exit_code, stage = 66, "run"


class StoreError(AotpipeError):
    """The cache or an output folder cannot be written."""

    exit_code, stage = 70, "store"


class DiskFull(StoreError):
    """No space left on the device."""

    exit_code = 71


class ReadOnly(StoreError):
    """The folder cannot be written."""

    exit_code = 72


class Obstructed(AotpipeError):
    """`check` found what keeps a model from becoming one program; nothing was built."""

    exit_code, stage = 22, "check"


class TooManyPrograms(AotpipeError):
    """`recompiles` counted more programs than it was allowed, or a call that no program answers."""

    exit_code, stage = 24, "recompiles"


class TrainingNotSupported(AotpipeError):
    """A graph of torch.compile is differentiated, and programs have no backward pass."""

    exit_code, stage = 27, "dynamo"


class Interrupted(AotpipeError):
    """Ctrl-C or SIGTERM."""

    exit_code = 130
