"""The exceptions that aotpipe raises on purpose, each with its own exit code; docs/errors.md lists them all.

Anything else that escapes is a bug in aotpipe. Every error says what happened, where in the user's own
source where that is known, why, and one thing to do about it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

if TYPE_CHECKING:
    from aotpipe.core.stages import Parity


BUG: Final = 70
"""The exit code of a fault of aotpipe's own (EX_SOFTWARE); no error has it."""


class SourceLine(NamedTuple):
    """A place in the user's own source; `str` gives `path:line`."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(eq=False, repr=False, kw_only=True)
class AotpipeError(Exception):
    """The base of all errors; the message, the reason and the hint are one line each.

    Attributes:
        message: What happened, without the place.
        reason: Why it happened, where the message does not say it.
        hint: One thing to do.
        where: The user's own line.
        log: The path of a log that holds more.
    """

    exit_code: ClassVar[int] = 1
    stage: ClassVar[str] = "aotpipe"

    message: str = field(kw_only=False)
    reason: str = ""
    hint: str = ""
    where: SourceLine | None = None
    log: str = ""

    def __init_subclass__(cls, *, exit_code: int, stage: str | None = None) -> None:
        cls.exit_code = exit_code
        cls.stage = stage or cls.stage

    def __post_init__(self) -> None:
        super().__init__(self.message)

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


class ModelError(AotpipeError, exit_code=10, stage="spec"):
    """The model or its spec cannot be used."""


class ModelNotFound(ModelError, exit_code=11):
    """There is no such file, module or attribute."""


class ModelImportFailed(ModelError, exit_code=12):
    """The user's file raised while it was imported or while it built the model."""


class AmbiguousModel(ModelError, exit_code=13):
    """A file holds several models, and no name is given."""


class NoExampleInputs(ModelError, exit_code=14):
    """Nothing says what the model is called with."""


class SpecInvalid(ModelError, exit_code=15):
    """A Spec contradicts itself or the model's forward."""


class TrainMode(ModelError, exit_code=16):
    """A module is in train mode, so that export would keep dropout and batch statistics."""


class BudgetInvalid(AotpipeError, exit_code=19, stage="budget"):
    """A budget is none, or is for a target that is not built."""


class TargetError(AotpipeError, exit_code=18, stage="target"):
    """A target cannot be used on this host."""


class UnknownTarget(TargetError, exit_code=17):
    """A text is no target string; the hint is the nearest name."""


@dataclass(eq=False, repr=False, kw_only=True)
class ExportFailed(AotpipeError, exit_code=20, stage="export"):
    """torch.export refused the model; `code` is what `aotpipe check` calls the cause, where that is known."""

    code: str = ""
    of_sizes: bool = False  # whether the model could be exported for some sizes of the Dims


class StaticDim(ExportFailed, exit_code=21):
    """A Dim that should be dynamic became a constant."""


class IslandsNotAllowed(ExportFailed, exit_code=28):
    """A model calls Python that cannot be in a program, and the build does not allow islands."""


class Obstructed(AotpipeError, exit_code=22, stage="check"):
    """`check` found what keeps a model from becoming one program; nothing was built."""


class RewriteFailed(AotpipeError, exit_code=23, stage="rewrite"):
    """No code could be written and proved to be the model: a call differs, or an op cannot be written."""


class TooManyPrograms(AotpipeError, exit_code=24, stage="recompiles"):
    """`recompiles` counted more programs than it was allowed, or a call that no program answers."""


@dataclass(frozen=True, slots=True)
class UnsupportedOp:
    """An op without a lowering: why, how often the model uses it, and the user's first line that does."""

    name: str
    reason: str
    count: int
    where: SourceLine | None


@dataclass(eq=False, repr=False, kw_only=True)
class UnsupportedOps(AotpipeError, exit_code=25, stage="legalize"):
    """Ops have no lowering; the message names all of them, `ops` holds each where they are known."""

    ops: tuple[UnsupportedOp, ...] = ()


class NoBuckets(AotpipeError, exit_code=26, stage="lower"):
    """A target's programs have fixed sizes, and those of a Dim are not declared or do not fit."""


class CannotPad(NoBuckets, exit_code=29):
    """An op has no rule that keeps the padding of a bucket out of its results."""


class TrainingNotSupported(AotpipeError, exit_code=27, stage="dynamo"):
    """A graph of torch.compile is differentiated, and programs have no backward pass."""


class LowerFailed(AotpipeError, exit_code=30, stage="lower"):
    """The importer refused a legal program: a bug of aotpipe."""


class MeshError(AotpipeError, exit_code=31, stage="mesh"):
    """A mesh, or the way in which arrays are split over it, does not fit the model or a target."""


class CompileError(AotpipeError, exit_code=34, stage="compile"):
    """A backend's compiler did not give a program."""


class CompileFailed(CompileError, exit_code=35):
    """The compiler printed a diagnostic."""


class CompilerCrashed(CompileError, exit_code=36):
    """The compiler died by a signal."""


class CompileTimeout(CompileError, exit_code=37):
    """The compiler passed its time limit."""


class CompilerOutOfMemory(CompileError, exit_code=38):
    """The compiler passed its memory limit."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor of a program: a `weight`, `state`, `input`, or the `result` of an op at the user's line."""

    kind: str
    name: str
    size_bytes: int
    where: SourceLine | None = None


@dataclass(eq=False, repr=False, kw_only=True)
class DeviceMemoryExceeded(CompileError, exit_code=39):
    """A program needs more memory than its chip has; `buffers` holds the largest tensors, in order."""

    buffers: tuple[Buffer, ...] = ()


@dataclass(eq=False, repr=False, kw_only=True)
class ParityError(AotpipeError, exit_code=40, stage="validate"):
    """A program's numbers differ from eager's by more than the tolerance; `parity` holds all comparisons."""

    parity: Parity | None = None


@dataclass(eq=False, repr=False, kw_only=True)
class Unproven(AotpipeError, exit_code=44, stage="validate"):
    """No output of a program says whether it is right: each is empty, or one constant, in all calls."""

    parity: Parity | None = None


class NotCovered(AotpipeError, exit_code=45, stage="validate"):
    """The calls that programs were compared on reach less of the model than was required."""


class BudgetExceeded(AotpipeError, exit_code=47, stage="budget"):
    """A program takes more than its budget, or nothing says what it takes."""


class Regressed(AotpipeError, exit_code=46, stage="diff"):
    """`diff` found that a build is worse than the one before."""


class NotRepeatable(AotpipeError, exit_code=43, stage="reference"):
    """The model gives another answer to the same call: it draws a random number, or reads the clock."""


class ProgramCrashed(AotpipeError, exit_code=41, stage="run"):
    """A compiled program died, hung or reported a failure while it ran."""


class RunnerClosed(AotpipeError, RuntimeError, exit_code=48, stage="run"):
    """A runner was called after it was closed."""


class IslandFailed(AotpipeError, exit_code=42, stage="run"):
    """An eager island raised, or gave something else than at the build; the state is unchanged."""


class BundleError(AotpipeError, exit_code=50, stage="bundle"):
    """A bundle cannot be used."""


class BundleNotFound(BundleError, exit_code=51):
    """There is no bundle at that path."""


class BundleCorrupt(BundleError, exit_code=52):
    """A file of the bundle is not the one that its manifest names."""


class MissingWeight(BundleError, exit_code=53):
    """A program needs a weight that the bundle lacks."""


class UnsupportedSchema(BundleError, exit_code=54):
    """The manifest has a schema version that this aotpipe does not read."""


class IncompatibleHost(BundleError, exit_code=55):
    """This host lacks what the program was compiled for: CPU features, architecture or runtime version."""


class NoProgram(BundleError, exit_code=56):
    """The bundle has no program for that target that can run."""


class IslandNotFound(BundleError, exit_code=57):
    """The bundle needs a Python function that is not allowed, or that this host lacks."""


class SignatureInvalid(BundleError, exit_code=58):
    """A bundle is not signed, not with that key, or was changed since; or the key cannot be used."""


class RegistryError(BundleError, exit_code=59):
    """An OCI registry does not take or give a bundle."""


class InputError(AotpipeError, exit_code=60, stage="input"):
    """An input does not fit the signature; nothing was run."""


class UnknownInput(InputError, exit_code=61):
    """A call passes a name that the signature does not have."""


class MissingInput(InputError, exit_code=62):
    """A call lacks a name that the signature has."""


class InputDtype(InputError, exit_code=63):
    """An input has another dtype than the signature says."""


class InputShape(InputError, exit_code=64):
    """An input has another rank, a dim outside its range, or dims that disagree."""


class OutsideBuckets(InputShape, exit_code=67):
    """The sizes of a call fit the signature, and no program was built for them."""


class InputValue(InputError, exit_code=65):
    """A value lies outside the declared range."""


class AssertionViolated(AotpipeError, exit_code=66, stage="run"):
    """An assert or torch._check of the model failed in a program's run; its state is what eager leaves."""


class StoreError(AotpipeError, exit_code=73, stage="store"):
    """The cache or an output folder cannot be written."""


class DiskFull(StoreError, exit_code=71):
    """There is no space left on the device."""


class ReadOnly(StoreError, exit_code=72):
    """The folder cannot be written."""


class ServeError(AotpipeError, exit_code=80, stage="serve"):
    """A server cannot start or cannot answer a request."""


class RequestInvalid(ServeError, exit_code=81):
    """A request is not one of the Open Inference Protocol, or asks for what is not supported."""


class RequestTooLarge(ServeError, exit_code=82):
    """The body of a request has more bytes than the server takes."""


class UnknownModel(ServeError, exit_code=83):
    """No model, version, entry point or session has this name."""


class QueueFull(ServeError, exit_code=84):
    """As many requests wait as may, or as many sessions are open; ask again later."""


class NotReady(ServeError, exit_code=85):
    """The model is not ready: it is being loaded, its programs keep crashing, or the server is ending."""


class DeadlinePassed(ServeError, exit_code=86):
    """A request's time was over before it ran."""


class NotInJson(ServeError, exit_code=87):
    """An output has a value that JSON has no number for: NaN or an infinity."""


class Interrupted(AotpipeError, exit_code=130):
    """Ctrl-C or SIGTERM ended the command."""
