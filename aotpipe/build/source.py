"""Gets a `Prepared` for what a user asked: from the store where nothing has changed, else through torch.

The model itself is made again only if somebody asks for it (to be timed beside a program).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from aotpipe.build import prepared as prepared_file
from aotpipe.build.cache import Cache
from aotpipe.build.events import Recorder, Stage
from aotpipe.build.file_reads import watching
from aotpipe.build.lowering_plan import Form
from aotpipe.build.prepared import OnLowered, Prepared, ignore_lowered
from aotpipe.build.record import FrontRecord, front_key
from aotpipe.runtime import toolchain
from aotpipe.runtime.store import digest

if TYPE_CHECKING:
    from aotpipe.core.stages import Canonical
    from aotpipe.model.spec import Spec

FRONT_STAGES: Final[tuple[Stage, ...]] = (
    "load",
    "canonicalize",
    "export",
    "legalize",
    "lower",
    "reference",
    "weights",
)
assert set(FRONT_STAGES) <= set(get_args(Stage))


@dataclass(frozen=True, kw_only=True)
class Model:
    """What a user wants built: a reference such as `model.py`, or an object with its example inputs.

    Attributes:
        overrides: `name`, and for objects the fields of an EntryPoint, as `spec.as_spec` takes them.
        form: What it is lowered to.
    """

    given: object
    overrides: Mapping[str, Any] = field(default_factory=dict)
    form: Form = field(default_factory=Form)

    def load(self) -> Spec:
        """Find or make the Spec; raises ModelError."""
        from aotpipe.model import spec

        found = spec.load(self.given) if isinstance(self.given, str) else self.given
        return spec.as_spec(found, **{key: value for key, value in self.overrides.items() if value})

    @cached_property
    def key(self) -> str | None:
        """The digest of this request; None where objects are part of it.

        To be read before `load`, which may add the user's folder to `sys.path`.
        """
        given = {name for name, value in self.overrides.items() if value}
        if not isinstance(self.given, str) or given - {"name", "optional", "tensorize"}:
            return None
        varied: dict[str, Any] = {key: list(self.overrides[key]) for key in sorted(given - {"name"})}
        name = self.overrides.get("name") or ""
        return front_key(self.given, {"name": name, "form": self.form.to_json(), **varied})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A prepared model, its key in the store (None where it is not kept), and how to get the model."""

    prepared: Prepared
    key: str | None
    canonical: Callable[[], Canonical]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """The name of a prepared model of an unchanged request, and its key in the store."""

    name: str
    prepared: str


def unchanged(model: Model, cache: Cache) -> Unchanged | None:
    """Whether a model is what it was when it was last prepared; reads nothing but what it was made of."""
    key = model.key
    record = FrontRecord.fresh(cache, key) if key else None
    return Unchanged(name=record.name, prepared=record.prepared) if record else None


def prepared(
    model: Model,
    cache: Cache,
    recorder: Recorder,
    *,
    folder: Path,
    exclude: Sequence[Path],
    on_lowered: OnLowered = ignore_lowered,
) -> Ready:
    """A prepared model, from the store where nothing has changed.

    Args:
        model: What is wanted.
        cache: Where it may lie.
        recorder: Told of each stage.
        folder: Where the file of the weights is put.
        exclude: Folders that aotpipe itself writes, so that a model is not made of them.
        on_lowered: Told of the modules for the compilers, as soon as they are there.
    """
    recorder.planned(dict.fromkeys(FRONT_STAGES, 1))
    ready = _from_store(model, cache, recorder, folder)
    if ready is not None:
        on_lowered(ready.prepared.lowered)
        return ready
    return _through_torch(model, cache, recorder, folder, (*exclude, folder), on_lowered)


def _from_store(model: Model, cache: Cache, recorder: Recorder, folder: Path) -> Ready | None:
    """The prepared model of an unchanged request; imports no torch."""
    key = model.key
    record = FrontRecord.fresh(cache, key) if key else None
    found = (
        cache.load("prepared", record.prepared, lambda entry: prepared_file.read(entry, folder))
        if record
        else None
    )
    if record is None or found is None:
        return None
    for stage in FRONT_STAGES:
        with recorder.stage(stage) as running:
            running.cached = True
    for finding in found.findings:
        recorder.found(finding)
    return Ready(prepared=found, key=record.prepared, canonical=partial(_again, model))


def _again(model: Model) -> Canonical:
    from aotpipe.build import front

    return front.canonical(model.load, Recorder())


def _through_torch(
    model: Model,
    cache: Cache,
    recorder: Recorder,
    folder: Path,
    exclude: Sequence[Path],
    on_lowered: OnLowered,
) -> Ready:
    """Prepare a model, and keep the result if all that it was made of is known."""
    from aotpipe.build import front

    key = model.key
    if key is None or cache.store is None:
        made = front.prepare(model.load, recorder, folder, model.form, on_lowered)
        return Ready(prepared=made.prepared, key=None, canonical=lambda: made.canonical)
    with watching(exclude=(*exclude, cache.store.root)) as watch:
        made = front.prepare(model.load, recorder, folder, model.form, on_lowered)
        dependencies = watch.dependencies(extra_packages=toolchain.PACKAGES)
    prepared_key = None
    if dependencies is not None:
        prepared_key = digest([key, dependencies.digest, made.prepared.digest])
        cache.put("prepared", prepared_key, lambda: prepared_file.files(made.prepared))
        record = FrontRecord(name=made.prepared.name, dependencies=dependencies, prepared=prepared_key)
        record.save(cache, key)
    return Ready(prepared=made.prepared, key=prepared_key, canonical=lambda: made.canonical)
