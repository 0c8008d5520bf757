"""The order of the stages, from what a user asks to programs: nothing else knows it.

    load -> canonicalize -> export -> legalize -> cut -> lower -> reference      (with torch, for all targets)
                                                        lower -> compile         (per target)

`Chain(request, recorder)` runs them up to the one whose result somebody asks for: `chain.exported` exports,
`chain.lowered` goes on to the modules for the compilers. torch is imported by the first of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

from aotpipe.backends import ModuleKey, Ruleset, legalization
from aotpipe.build.cache import Cache
from aotpipe.build.compile_stage import CompileSettings, compile_all
from aotpipe.build.events import Recorder
from aotpipe.build.request import Request
from aotpipe.core.dims import Dim
from aotpipe.core.dtypes import Array
from aotpipe.core.signature import PRODUCTS_OF_MOVED, Symbol, largest_sizes
from aotpipe.core.stages import Canonical, Compiled, Dialect, Exported, Finding, Legal, Lowered
from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError, LowerFailed, ParityError, RewriteFailed, SpecInvalid, StoreError
from aotpipe.islands.sites import recording
from aotpipe.model.garbage_collector import import_torch, rarer_collections
from aotpipe.runtime.bundle.manifest import STATE_PREFIX, WEIGHTS
from aotpipe.runtime.islands.chain import Parts
from aotpipe.runtime.store import typed_os_errors, workspace
from aotpipe.runtime.tensor_file import Shard, write_shards
from aotpipe.runtime.xla.buckets import Buckets, Ladder, described, within
from aotpipe.validate import Loadable

# A rewritten model with larger weights is not compared with the model: it would be a copy of it.
_MOST_COPIED_BYTES: Final = 2**27

if TYPE_CHECKING:
    import torch

    from aotpipe.canonicalize.trace.decisions import Decision
    from aotpipe.validate.inputs import Call
    from aotpipe.validate.reference import Reference


class Chain:
    """What each stage gave for one request; a stage runs once, when its result is first asked for.

    A property raises what its stage raises, and what those before it raise.

    `exported` are programs in the model's own dtypes, where they were exported already; `rulesets` are what
    programs are legalized by, in place of the request's; `specialize` says whether an entry point may become
    several programs, each for a part of its sizes.

    Attributes:
        decisions: What the traces of `exported` made part of the graphs, once that was asked for.
    """

    def __init__(
        self,
        request: Request,
        recorder: Recorder,
        *,
        exported: Exported | None = None,
        rulesets: Sequence[Ruleset] = (),
        specialize: bool = True,
    ) -> None:
        self.request = request
        self.recorder = recorder
        self._specialize = specialize and not request.islands
        self.rulesets = tuple(rulesets) or request.rulesets
        self._original: Canonical | None = None  # the model in floats, where it is quantized
        self._traced: Exported | None = None  # before it is in another precision
        self.decisions: tuple[Decision, ...] = ()
        if exported is not None:
            self.canonical = exported.canonical
            self.exported = self._narrowed(exported)

    def in_dialect(self, dialect: Dialect) -> Chain:
        """The same exported programs, to be lowered to another dialect for IREE."""
        request = replace(self.request, backends={**self.request.backends, "iree": dialect})
        made = Chain(request, self.recorder, specialize=self._specialize)
        made.canonical, made.exported = self.canonical, self.exported
        return made

    @cached_property
    def canonical(self) -> Canonical:
        """The model, ready for export.

        Raises:
            TargetError: A package that building needs is not installed.
            ModelError: There is no model, or it cannot be used as it is.
        """
        self.request.require_installed()
        with self._tracing():
            with self.recorder.stage("load"):
                import_torch()  # counted here, and not in the first stage that happens to need it
                spec = self.request.load()
            with self.recorder.stage("canonicalize"):
                from aotpipe.canonicalize import canonicalize

                model = canonicalize(spec)
                if self.request.quantization is not None:
                    self._original, model = model, _quantized(model)
            if self.request.islands:
                from aotpipe.islands.tracing import discover

                discover(model)
            return model

    @cached_property
    def exported(self) -> Exported:
        """The exported programs, in the precision that is asked for.

        Raises:
            ExportFailed, StaticDim: The model cannot be one graph for all that may vary.
        """
        model = self.canonical
        with self._tracing(go_on=True):
            with self.recorder.stage("export"):
                from aotpipe.canonicalize.trace import decisions
                from aotpipe.export import export

                with decisions.recorded() as decided:
                    exported = export(model, specialize=self._specialize)
                decisions.keep(decided)
            self.recorder.found(exported.findings)
            self._traced, self.decisions = exported, tuple(decided)
            return self._narrowed(exported)

    @cached_property
    def source_diff(self) -> str:
        """A unified diff from the file of the model's class to the same model as it became a graph.

        What it shows answered the example as the model does. It is empty where no value of a tensor decided
        and no attribute is state, for a model of which only its graph could be written, and for a large one,
        whose copy would take what compilers need.

        Raises:
            ExportFailed, StaticDim: The model cannot be one graph for all that may vary.
        """
        self.exported  # noqa: B018  # it makes what is read here
        if self._traced is None or self.request.islands:
            return ""  # what an island does is in no graph
        if sum(each.nbytes for each in self.canonical.model.parameters()) > _MOST_COPIED_BYTES:
            return ""
        from aotpipe.passes.codegen.expression_rewrites import Unsupported
        from aotpipe.passes.codegen.from_source import edit_source, may_change
        from aotpipe.validate.rewritten.proof import check

        if not may_change(self._traced, self.decisions):
            return ""
        try:
            edited = edit_source(self._traced, self.decisions)
            if not edited.edits:
                return ""
            check(self._traced, edited.code())
        except Unsupported:
            return ""
        # What is written may not be right, or not be loaded: the programs were made of the graph. A value of
        # no form in Python is a TypeError of its writer; a file that was edited meanwhile may be no Python.
        except (RewriteFailed, StoreError, TypeError, SyntaxError):
            return ""
        return edited.diff()

    def _narrowed(self, exported: Exported) -> Exported:
        """The same programs, of which a policy decides what is computed in fewer bits."""
        if (precision := self.request.precision) is None:
            return exported
        from aotpipe.passes.precision import lower

        finding = Finding(severity="note", code="precision", message=f"computed in {precision}")
        return replace(lower(exported, precision), findings=(*exported.findings, finding))

    @cached_property
    def legals(self) -> Mapping[Ruleset, Legal]:
        """The legal program by each set of rules, over one set of weights.

        Ops without a lowering are left where islands are allowed.

        Raises:
            UnsupportedOps: Ops have no lowering, and no islands are allowed.
            LowerFailed: A fault of aotpipe.
        """
        exported, supported = self.exported, not self.request.islands
        with self._tracing(go_on=True), self.recorder.stage("legalize"):
            from aotpipe.passes import legalize

            return _joined(
                {each: legalize(exported, legalization(each), supported=supported) for each in self.rulesets}
            )

    @property
    def legal(self) -> Legal:
        """The legal program by the first rules, before it is cut: what eager is compared with."""
        return next(iter(self.legals.values()))

    @cached_property
    def _cut(self) -> tuple[Parts | None, Mapping[Ruleset, Legal]]:
        if not self.request.islands:
            return None, self.legals
        from aotpipe.islands.cut import cut
        from aotpipe.passes.rules import refusal

        [(name, legal)] = self.legals.items()
        rules = legalization(name)
        found = cut(legal, lambda node: refusal(node, rules))
        return (found.parts, {name: found.legal}) if found.parts.islands else (None, self.legals)

    @property
    def parts(self) -> Parts | None:
        """The chain of programs and Python that a model with islands becomes; None where it has none.

        Raises:
            UnsupportedOps: The model is nothing but islands.
        """
        return self._cut[0]

    @property
    def lowerable(self) -> Mapping[Ruleset, Legal]:
        """What is lowered: the legal programs, or what is left of them beside their islands."""
        return self._cut[1]

    @cached_property
    def notes(self) -> tuple[Finding, ...]:
        """What is told of islands, and of the sizes that were planned for XLA's programs.

        Raises:
            NoBuckets: They do not fit the Dim.
        """
        said = [
            ("eager-island", f"`{island.name}` stays Python: {island.reason}", island.where)
            for island in (self.parts.islands if self.parts else ())
        ]
        said += [
            ("bucket-plan", described(symbol, ladder), None)
            for symbol, ladder in self._ladders()
            if ladder.planned
        ]
        found = tuple(
            Finding(severity="note", code=code, message=message, where=where) for code, message, where in said
        )
        kept = {state for each in self.exported.signatures.values() for state in each.kept_on_raise}
        if self.parts is not None and kept:
            names = ", ".join(f"`{name}`" for name in sorted(kept))
            taken_back = f"with an island, a call that raises takes back what it wrote before that: {names}"
            found += (Finding(severity="warning", code="state-before-raise", message=taken_back),)
        self.recorder.found(found)
        return found

    @cached_property
    def buckets(self) -> Mapping[str, Buckets]:
        """What the request declares of each Dim, within the sizes that the model takes."""
        from aotpipe.backends.xla.lowering import whole_ranges

        dims = chain.from_iterable(
            axes.values() for entry in self.exported.canonical.entries for axes in entry.dims.values()
        )
        given = {dim.name: dim for dim in dims if isinstance(dim, Dim)}
        taken = whole_ranges(self.legal.signatures) if self.request.buckets else {}
        return {
            name: within(own, given[name].min, given[name].max, taken[name])
            if name in given and name in taken
            else own
            for name, own in self.request.buckets.items()
        }

    def _ladders(self) -> list[tuple[Symbol, Ladder]]:
        """The sizes that XLA's programs are built for, of each symbol."""
        from aotpipe.backends.xla.lowering import ladders, whole_ranges

        signatures = self.legal.signatures
        symbols = whole_ranges(signatures)
        found = ladders(signatures, self.buckets)
        return [(symbols[name], ladder) for name, ladder in found.items()]

    @cached_property
    def lowered(self) -> Mapping[ModuleKey, Lowered]:
        """The module for each compiler.

        Raises:
            LowerFailed, UnsupportedOps: The model has no form that the compiler takes.
            NoBuckets, MeshError: The buckets, or the mesh, do not fit the model.
        """
        lowerable = self.lowerable
        with rarer_collections(), self.recorder.stage("lower") as running:

            @cache  # one module serves all of IREE's devices that follow the same rules
            def lower(is_xla: bool, rules: Ruleset) -> Lowered:
                return (self._lower_for_xla if is_xla else lower_for_iree)(lowerable[rules])

            lowered = {key: lower(key == "xla", rules) for key, rules in self.request.modules.items()}
            running.size_bytes = sum(len(each.module) for each in lowered.values())
            return lowered

    def _lower_for_xla(self, legal: Legal) -> Lowered:
        from aotpipe.backends.xla import lowering
        from aotpipe.validate.reference import example_sizes

        return lowering.lower(
            legal,
            self.buckets,
            examples=example_sizes(self.exported.canonical, legal.signatures),
            mesh=self.request.mesh,
            rules=self.request.rules,
        )

    def reference(self, calls: Sequence[Call] | None = None, *, compilers: int = 0) -> Reference:
        """Eager's answers to the calls that programs are judged on.

        `calls` are made in place of planned ones; `compilers` run meanwhile, each on a core.

        Raises:
            SpecInvalid: The model raises on its own example inputs.
            ParityError: A result that is fixed in the programs is another one in eager.
        """
        legal, request = self.legal, self.request
        with _leaving_cores(compilers), self.recorder.stage("reference"):
            from aotpipe.validate import samples
            from aotpipe.validate.eager.eager import EagerFailed, FixedResult
            from aotpipe.validate.reference import reference

            # The sizes at which programs with buckets may differ from each other.
            ladders = self._ladders() if self.buckets else ()
            edges = {symbol.name: ladder.edges(symbol.min) for symbol, ladder in ladders}
            try:
                found = reference(
                    self.exported.canonical,
                    legal,
                    edges,
                    calls=calls,
                    policy=request.precision,
                    # The functions that stay Python are called in these, too.
                    exported=None if request.islands else self.exported,
                    more=samples.calls(request.samples, legal.signatures) if request.samples else (),
                    special=request.special_values,
                )
            except FixedResult as error:
                raise ParityError(
                    f"a result of {legal.name!r} that is no tensor changes from call to call",
                    reason=str(error),
                    hint="return it as a tensor, or keep what decides it in one",
                ) from error
            except EagerFailed as error:
                raise SpecInvalid(
                    f"the model {legal.name!r} raises on its own example inputs",
                    reason=str(error),
                    hint="give example inputs that the model takes",
                ) from error
            if self._original is not None and calls is None:
                from aotpipe.validate.accuracy import accuracy

                beside = accuracy(self._original, legal.signatures, found.goldens)
                found = replace(found, findings=(*found.findings, *beside))
        self.recorder.found(found.findings)
        return found

    def compiled(self, settings: CompileSettings) -> dict[Target, Compiled | AotpipeError]:
        """The program of each target; an error stands in a failed one's place.

        Raises:
            ReadOnly, DiskFull, StoreError: Programs are to be kept, and the store cannot be written at the
                start; a program that cannot be kept later is remarked on.
        """
        with closing(Cache.open(self.recorder, enabled=settings.cache)) as cache:
            return compile_all(self.lowered, self.request.targets, settings=settings, cache=cache)

    @contextmanager
    def loadable(self) -> Iterator[Loadable]:
        """What the programs are loaded with, while the body runs: the weights are in a temporary file.

        Raises:
            DiskFull, ReadOnly: The weights cannot be written.
        """
        weights, state = self.arrays()
        with workspace("weights") as folder:
            yield self.loadable_from(write_weights(weights, state, folder), state)

    def loadable_from(self, weights: tuple[Shard, ...], initial_state: Mapping[str, Array]) -> Loadable:
        """What the programs are loaded with, given the files of the weights and the arrays of the state."""
        from aotpipe.validate.work import work

        legal = self.legal
        costs = {each.name: work(each, of_moved=PRODUCTS_OF_MOVED) for each in legal.entries}
        return Loadable(
            signatures={
                name: replace(signature, products=round(costs[name](largest_sizes(signature))))
                for name, signature in legal.signatures.items()
            },
            weights=weights,
            initial_state=initial_state,
            asserts={entry.name: entry.asserts for entry in self.legal.entries},
            parts=self.parts,
            islands=self.island_names,
        )

    @property
    def island_names(self) -> tuple[str, ...]:
        """What the model itself calls may run where its programs are compared with it."""
        return tuple(island.name for island in self.parts.islands) if self.parts else ()

    def arrays(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """The weights of all programs, and the initial state: views of what the model's tensors hold now."""
        from aotpipe.model.torch_arrays import view_all

        weights = {key: tensor for each in self.lowerable.values() for key, tensor in each.weights.items()}
        return view_all(weights), view_all(self.legal.initial_state)

    @contextmanager
    def _tracing(self, *, go_on: bool = False) -> Iterator[None]:
        with rarer_collections(), recording(go_on=go_on) if self.request.islands else nullcontext():
            yield


def _quantized(original: Canonical) -> Canonical:
    from aotpipe.canonicalize import canonicalize
    from aotpipe.canonicalize.modules import is_function
    from aotpipe.model.quantization import quantized

    if is_function(original.model):
        raise SpecInvalid(
            f"{original.spec.name!r} is a function, and its layers cannot be quantized",
            hint="give the nn.Module; EntryPoint(method=...) names another method than forward",
        )
    found = quantized(original.model)
    kept = f"; {', '.join(found.kept)} stay as they are" if found.kept else ""
    message = f"{found.layers} linear layers are computed in int8{kept}"
    finding = Finding(severity="note", code="quantization", message=message)
    made = canonicalize(replace(original.spec, build=lambda: found.model))
    return replace(made, findings=(*made.findings, finding))


def write_weights(
    weights: Mapping[str, Array], initial_state: Mapping[str, Array], folder: Path
) -> tuple[Shard, ...]:
    """Write a model's arrays to the files that everybody takes."""
    state = {STATE_PREFIX + name: array for name, array in initial_state.items()}
    with typed_os_errors("the weights", folder, hint="free space there, or set TMPDIR to another folder"):
        return write_shards({**weights, **state}, folder, WEIGHTS)


@contextmanager
def _leaving_cores(busy: int) -> Iterator[None]:
    """Leave so many cores to the compilers: OpenMP's threads spin while one of them waits for a core."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, min(before, (os.cpu_count() or 1) - busy)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def lower_for_iree(legal: Legal) -> Lowered:
    """Lower a model for IREE, from the dialect that it is legal in.

    Raises:
        LowerFailed, UnsupportedOps: It has no form that the compiler takes.
    """
    match legal.dialect:
        case "torch":
            from aotpipe.backends.iree.lower import importer

            return importer.lower(legal)
        case "stablehlo":
            from aotpipe.backends.iree.lower import stablehlo

            return stablehlo.lower(legal)
        case _:
            assert_never(legal.dialect)


def _joined(legals: Mapping[Ruleset, Legal]) -> dict[Ruleset, Legal]:
    """The same model by several sets of rules over one set of weights.

    A value that was computed at build time may be another one under the same name: it gets one of its own.
    """
    first, *others = legals.items()
    weights = dict(first[1].weights)
    result = dict([first])
    for name, legal in others:
        names = {
            key: key if key not in weights or _is_same(weights[key], tensor) else f"{name}.{key}"
            for key, tensor in legal.weights.items()
        }
        entries = tuple(
            replace(entry, weights=tuple(names[key] for key in entry.weights)) for entry in legal.entries
        )
        for entry, other in zip(entries, first[1].entries, strict=True):
            if entry.signature != other.signature:
                raise LowerFailed(f"the programs for {first[0]} and {name} disagree on {entry.name!r}")
        renamed = {names[key]: tensor for key, tensor in legal.weights.items()}
        weights.update(renamed)
        result[name] = replace(legal, entries=entries, weights=renamed)
    return result


def _is_same(left: torch.Tensor, right: torch.Tensor) -> bool:
    is_alike = left.dtype == right.dtype and left.shape == right.shape
    is_one = left is right or left.data_ptr() == right.data_ptr() != 0
    return is_alike and (is_one or bool((left == right).all()))
