"""The types that pass between stages: each says what has been done to a model.

    Spec -> Canonical -> Exported -> Legal -> Lowered -> Compiled -> Validated -> Bundle

All are frozen. A stage is a function from one to the next. `Spec` lives in `model/spec.py`, `Bundle` in
`runtime/bundle/files.py`; the rest is here. This module imports torch only for type checking, so that a host
without it can read the types that reach it (`Compiled`, `Validated`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from aotpipe.core.dims import Auto, Dim
from aotpipe.core.estimate import Estimate
from aotpipe.core.serialization import ELSEWHERE, OMIT_EMPTY, Serializable
from aotpipe.core.signature import Signature
from aotpipe.core.targets import Target
from aotpipe.errors import Buffer, SourceLine

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from aotpipe.canonicalize.inputs.flat_module import Adapter
    from aotpipe.canonicalize.state.slots import State
    from aotpipe.model.spec import EntryPoint, Spec

Dialect = Literal["torch", "stablehlo"]
Severity = Literal["note", "warning"]
NOISE_LIMIT: Final = 0.1
"""The noise above which there is no ratio."""
P90_SAMPLES: Final = 64
P99_SAMPLES: Final = 662
KEEPS_WRITES: Final = "aotpipe.keeps_writes"
"""Among the `custom` annotations of an assert: where it fails, the state keeps what was written before."""
Status = Literal["executed", "unproven", "compiled", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Serializable):
    """Something a user should know that does not stop the build.

    `code` is a stable kebab-case word such as `unused-input`; `entry_point` is empty when it concerns all.
    """

    severity: Severity
    code: str
    message: str
    hint: str = ""
    where: SourceLine | None = None
    entry_point: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalEntry:
    """One callable of the model whose inputs and outputs have names.

    Attributes:
        name: The entry point's name (`forward` when the model has just one).
        entry: As the spec gave it, with example inputs.
        input_names: One name per flattened leaf of `(args, kwargs)`, in pytree order, constants included.
        constants: Leaves that are no tensors: name -> value, fixed at export.
        output_names: One name per flattened leaf of the result, in pytree order.
        dims: What was asked to vary: input name -> axis -> Dim or AUTO (a number's only axis is 0).
        adapter: What makes one form of all calls, where calls may lack something or a number varies: `entry`,
            `module` and the names are then of that form.
        state: What the model keeps in Python between calls, where it does.
        refused: What was refused of it already, where all refusals are asked for.
        guarded: Whether its program may hold for some of the sizes only, which its guards name.
        specializes: The entry point of which it is the program for other sizes; empty where it is none.
        fixes_buffers: Whether Python may decide on what a small buffer holds, where no path writes it.
    """

    name: str
    entry: EntryPoint
    module: torch.nn.Module
    input_names: tuple[str, ...]
    constants: Mapping[str, object]
    output_names: tuple[str, ...]
    dims: Mapping[str, Mapping[int, Dim | Auto]] = field(default_factory=dict)
    adapter: Adapter | None = None
    state: State | None = None
    refused: frozenset[str] = frozenset()
    guarded: bool = False
    fixes_buffers: bool = False
    specializes: str = ""

    def finding(
        self, code: str, message: str, *, hint: str = "", where: SourceLine | None = None, warns: bool = False
    ) -> Finding:
        """A note or a warning about this entry point."""
        severity: Severity = "warning" if warns else "note"
        return Finding(
            severity=severity, code=code, message=message, hint=hint, where=where, entry_point=self.name
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Canonical:
    """A model that torch.export can take: in eval mode, inputs and outputs named."""

    spec: Spec
    model: torch.nn.Module
    entries: tuple[CanonicalEntry, ...]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedEntry:
    """One entry point as torch.export gave it, with its signature."""

    name: str
    program: ExportedProgram
    signature: Signature


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """torch.export's programs, one per entry point, over one set of weights and one state."""

    canonical: Canonical
    entries: tuple[ExportedEntry, ...]
    findings: tuple[Finding, ...]

    @property
    def signatures(self) -> dict[str, Signature]:
        """The signature of each entry point."""
        return {entry.name: entry.signature for entry in self.entries}


@dataclass(frozen=True, slots=True, kw_only=True)
class LegalEntry:
    """A pure function over a small closed set of ops.

    `graph` has flat placeholders in the order `weights`, then `signature.state`, then the tensor inputs
    of `signature.inputs`; it returns a flat tuple: the tensor outputs of `signature.outputs`, then the
    next value of each state, then, where `asserts` is not empty, one 0-d bool per assert. No op of it,
    nor of a subgraph of it, mutates or aliases its operands. Every node holds its fake value in
    `meta["val"]` and, where torch recorded one, the user's lines in `meta["stack_trace"]`. Every output
    is a tensor: numbers have become 0-d tensors.

    Attributes:
        weights: The weight's key in `Legal.weights` for each leading placeholder.
        range_constraints: From the ExportedProgram: symbol -> range.
        asserts: A message per assert output (`torch._check`, `assert`, unproven index bounds).
    """

    name: str
    graph: torch.fx.GraphModule
    weights: tuple[str, ...]
    signature: Signature
    range_constraints: Mapping[object, object] = field(default_factory=dict)
    asserts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Legal:
    """All entry points legalized for one dialect, with the weights and initial state they share.

    `weights` and `initial_state` hold contiguous CPU tensors by key; two names of one storage (tied weights)
    share one key.
    """

    name: str
    dialect: Dialect
    entries: tuple[LegalEntry, ...]
    weights: Mapping[str, torch.Tensor]
    initial_state: Mapping[str, torch.Tensor]

    @property
    def signatures(self) -> dict[str, Signature]:
        """The signature of each entry point."""
        return {entry.name: entry.signature for entry in self.entries}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """A compiler's input: for IREE an MLIR module (text), one function per entry point.

    Weights stay outside: the module names them by their key in scope `model`. For XLA it is a container of
    StableHLO modules, whose first arguments they are.

    Attributes:
        largest: By program, its largest tensors, where sizes are known. The digest covers neither these nor
            the remarks: a program is the same where a line has moved.
        remarks: By device, what its compiler does at great cost.
    """

    dialect: Dialect
    module: bytes = field(metadata=ELSEWHERE)
    entry_points: tuple[str, ...]
    digest: str
    largest: Mapping[str, tuple[Buffer, ...]] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileStats:
    """What a compile cost: seconds of wall time and the peak resident set of the compiler, in bytes."""

    wall_s: float
    peak_rss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition(Serializable):
    """How a program is spread over the devices of a mesh, and what they send each other.

    Attributes:
        mesh: Its axes, as `data=2,model=2`.
        devices: How many there are.
        splits: How the arrays are split that are not whole on every device, by name, as `(model, None)`.
        collectives: By kind, the instructions of the compiled program by which devices exchange data; of all
            its entry points and sizes together. One in the body of a loop counts once.
    """

    mesh: str
    devices: int
    splits: Mapping[str, str] = field(default_factory=dict)
    collectives: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        sent = ", ".join(f"{count} {kind}" for kind, count in self.collectives.items())
        count = len(self.splits)
        split = "1 array is split" if count == 1 else f"{count} arrays are split"
        return f"{self.devices} devices ({self.mesh}), {split}; {sent or 'no collectives'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Serializable):
    """What a program does on its device as IREE's compiler scheduled it: in calls, and when it is loaded.

    What a loop does counts once.

    Attributes:
        dispatches: Places from which kernels are started.
        copies, fills: Of buffers, outside of kernels.
        waits: Places where the host waits for the device, to decide a branch or a size.
        allocated_bytes: For results, values between kernels and weights in another layout, where sizes are
            known; the workspace that a runner keeps from call to call is not counted.
    """

    dispatches: int
    kernels: int
    copies: int
    fills: int
    waits: int
    allocated_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A program for one target.

    Attributes:
        payload: The program's bytes (a vmfb, an XLA executable).
        flags: Every compiler flag, in order.
        host_features: CPU features a host must have; empty for portable programs.
        digest: Of everything that can change the payload.
        notes: What a user should know of the compile, such as that the fast flags crashed the compiler.
        estimates: What each program that the payload holds will cost, where the compiler says it.
        partition: How it is spread over several devices; None for one.
        beside: The other targets for which the payload holds a program.
        schedule: What it does on the device, where the compiler says it.
    """

    target: Target = field(metadata=ELSEWHERE)
    payload: bytes = field(metadata=ELSEWHERE)
    flags: tuple[str, ...]
    toolchain: Mapping[str, str]
    host_features: tuple[str, ...]
    digest: str
    stats: CompileStats
    notes: tuple[str, ...] = ()
    estimates: tuple[Estimate, ...] = ()
    dialect: Dialect = "torch"
    partition: Partition | None = None
    beside: tuple[Target, ...] = field(default=(), metadata=ELSEWHERE)
    schedule: Schedule | None = None

    @property
    def file(self) -> str:
        """Its path below the folder of programs; the name is that of all of its targets."""
        return f"{'+'.join(map(str, sorted((self.target, *self.beside))))}/{self.target.file_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityCase(Serializable):
    """The comparison of one output of one call; `goldens.compare` alone knows no names.

    `max_abs_error` is the largest |program - reference|; `ratio` is the largest share of the allowed error,
    `atol + rtol * |reference|`, that any element used (above 1 fails). `note` says what a reader should know
    of a comparison that passed. No call says anything of an output that is `uninformative`.

    Of one that failed, `failing` of `elements` elements are off, and `profile` is the largest ratio in each
    of some parts of the flattened output, in order.
    """

    entry_point: str = ""
    case: str = ""
    output: str = ""
    max_abs_error: float = 0.0
    eager_abs_error: float = 0.0
    ratio: float = 0.0
    worst_index: tuple[int, ...] = ()
    got: float = 0.0
    want: float = 0.0
    message: str = ""
    note: str = ""
    uninformative: bool = False
    failing: int = field(default=0, metadata=OMIT_EMPTY)
    elements: int = field(default=0, metadata=OMIT_EMPTY)
    profile: tuple[float, ...] = field(default=(), metadata=OMIT_EMPTY)

    @property
    def passed(self) -> bool:
        """Whether every element is within its tolerance and shape, dtype and special values agree."""
        return not self.message and self.ratio <= 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity(Serializable):
    """All comparisons of one program, and the law that judged them; those that say nothing do not count."""

    derived: ClassVar = ("passed", "worst")

    cases: tuple[ParityCase, ...]
    calls: int
    rule: str

    @property
    def passed(self) -> bool:
        """Whether every case passed."""
        return all(case.passed for case in self.cases)

    @property
    def worst(self) -> ParityCase | None:
        """The case that used the largest share of its tolerance; failures come first."""
        counted = (case for case in self.cases if not (case.passed and case.uninformative))
        return max(counted, key=lambda case: (not case.passed, case.ratio), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing(Serializable):
    """What one way to call an entry point took: of warm calls alone, in microseconds.

    A quantile is there where there are enough samples to say it with a confidence of 99%, as MLPerf asks
    (https://docs.mlcommons.org/inference_policies/: 64 for the 90th percentile, 662 for the 99th).

    Attributes:
        per_s: Calls in a second, one after another.
        spread: How far the medians of the parts of the run lie apart, as a share of the least.
        points_us: The samples in order or, of many, some of them at equal steps from the least to the most.
        first_us: The first call, which is in no other figure.
    """

    samples: int
    least_us: float
    median_us: float
    per_s: float
    p90_us: float | None = None
    p99_us: float | None = None
    spread: float = 0.0
    points_us: tuple[float, ...] = ()
    first_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(Serializable):
    """Timings of a program and of other ways to run the model, in turns on the same inputs and threads.

    Attributes:
        baselines: By name: `eager`, `torch.compile`, `onnxruntime`, `openvino`.
        noise: How far this machine was from giving every run of a fixed kernel, and of the calls, the same
            time; above `NOISE_LIMIT` the figures of two runs are not to be compared.
        load_us: What loading the program took in a new process; the model's first call came after it.
        peak_rss_bytes: The most memory that the program's process held.
    """

    derived: ClassVar = ("noisy", "ratios")

    entry_point: str
    threads: int
    program: Timing
    baselines: Mapping[str, Timing] = field(default_factory=dict)
    noise: float = 0.0
    load_us: float | None = None
    peak_rss_bytes: int = 0

    @property
    def noisy(self) -> bool:
        """Whether something else took so much of the machine that a ratio would say nothing."""
        return self.noise > NOISE_LIMIT

    @property
    def ratios(self) -> dict[str, float]:
        """Program over baseline by the least of each, as other work only adds; none of a noisy run."""
        if self.noisy:
            return {}
        return {name: self.program.least_us / each.least_us for name, each in self.baselines.items()}

    def compared(self, baseline: str, quantile: str) -> tuple[float | None, str]:
        """The program's `least`, `p50` or `p90` over a baseline's; or None, and why it is not known."""
        if (other := self.baselines.get(baseline)) is None:
            known = ", ".join(self.baselines) or "nothing"
            return None, f"{baseline} was not timed beside it; {known} was"
        names = {"least": "least_us", "p50": "median_us", "p90": "p90_us"}
        mine, theirs = (getattr(each, names[quantile]) for each in (self.program, other))
        if mine is None or theirs is None:
            fewest = min(self.program.samples, other.samples)
            return None, f"{fewest} samples are too few for {quantile}, which takes {P90_SAMPLES}"
        if self.noisy:
            return None, f"the machine was too noisy ({self.noise:.0%})"
        spread = max(self.program.spread, other.spread)
        if quantile != "least" and spread > NOISE_LIMIT:
            return None, f"the run was too noisy: its medians lie {spread:.0%} apart"
        return mine / theirs, ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """A compiled program and what was seen when it ran; `reason` says why it did not.

    Attributes:
        variants: The programs of the same target for better CPUs that were executed too, the best first; this
            host loads the first.
    """

    compiled: Compiled = field(metadata=ELSEWHERE)
    status: Status
    reason: str = ""
    parity: Parity | None = None
    latency: tuple[Latency, ...] = ()
    notes: tuple[str, ...] = ()
    variants: tuple[Validated, ...] = field(default=(), metadata=ELSEWHERE)
