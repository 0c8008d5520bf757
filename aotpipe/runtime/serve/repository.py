"""The models of a server: where their bundles are, which are ready, and how one is loaded anew under load.

A model is a bundle, or a folder of bundles named by numbers, which are its versions; the highest is served.
A model that is loaded again answers from its old bundle until the new one is ready, and what runs on the old
one ends there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from aotpipe.errors import AotpipeError, NotInJson, NotReady, RequestInvalid, ServeError, UnknownModel
from aotpipe.runtime.bundle import files
from aotpipe.runtime.bundle.load import choose, fitting
from aotpipe.runtime.serve import opening, protocol
from aotpipe.runtime.serve.channel import sent
from aotpipe.runtime.serve.generation import Generator, Sizes
from aotpipe.runtime.serve.metrics import Metrics, ModelMetrics
from aotpipe.runtime.serve.opening import Opened
from aotpipe.runtime.serve.pool import Pool
from aotpipe.runtime.serve.protocol import Entry
from aotpipe.runtime.serve.scheduler import Call, Limits
from aotpipe.runtime.serve.tensors import Tensor, batch_symbol
from aotpipe.runtime.serve.text import Tokenizer

_EXAMPLE_BYTES: Final = 1 << 14
_NAME: Final = re.compile(r"[\w.-]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How models are run.

    Attributes:
        target: Which program of a bundle; the best that this host can run where None.
        workers: Processes of each model.
        threads: Of each process; None leaves it to the runtime.
        islands: The Python functions that a model with islands may call.
        require_signature: The file of the public key with which each bundle must be signed, in `BUNDLE.sig`.
        limits: What may wait, and what is batched.
    """

    target: str | None = None
    workers: int = 1
    threads: int | None = None
    islands: tuple[str, ...] = ()
    require_signature: Path | None = None
    limits: Limits = field(default_factory=Limits)


class Model:
    """One version of a model, and its workers."""

    def __init__(self, name: str, opened: Opened, options: Options, metrics: Metrics) -> None:
        self.name = name
        self.version, bundle = opened.version, opened.bundle
        manifest = bundle.manifest
        program = fitting(choose(manifest, options.target))
        self.target, self.digest, self._bundle = program.target, manifest.digest, bundle
        is_batched = options.limits.max_batch_size > 1
        self.entries = {
            entry: Entry(entry, signature, batch_symbol(signature) if is_batched else "")
            for entry, signature in manifest.signatures.items()
            if not signature.specializes
        }
        if is_batched and not any(entry.batch for entry in self.entries.values()):
            raise ServeError(
                f"{name!r} has no entry point whose calls can be batched",
                reason="each input and output must have one dynamic size in front, and no state",
                hint="serve it without --max-batch-size, or build it with a Dim for the batch",
            )
        if manifest.parts and any(signature.state for signature in manifest.signatures.values()):
            raise ServeError(f"{name!r} keeps state and has islands, whose state no session could own")
        chains = manifest.parts.chains if manifest.parts else {}
        called = {entry: [island.name for island in chain.islands] for entry, chain in chains.items()}
        self.metrics = ModelMetrics(metrics, name, self.version, called)
        load = {"target": program.target, "threads": options.threads, "islands": list(options.islands)}
        self.pool = Pool(
            config={"load": load, "bundle": sent(bundle), "max_batch_size": options.limits.max_batch_size},
            count=options.workers,
            limits=options.limits,
            on_ran=self.metrics.ran,
            on_restart=self.metrics.restarted,
        )
        self.tokenizer = Tokenizer(bundle)
        sizes = Sizes.of(manifest.signatures)
        self._generator = Generator(sizes, self.pool, self.metrics.generated) if sizes else None

    async def start(self) -> None:
        """Start the workers and wait until the first is ready.

        Raises:
            AotpipeError: The program cannot be loaded, or does not give the recorded answers.
        """
        try:
            await self.pool.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Let what waits and runs end, then end the workers."""
        if self._generator:
            await self._generator.close()
        await self.pool.close()

    @property
    def generates(self) -> bool:
        """Whether it is a decoder."""
        return self._generator is not None

    def require_generator(self) -> Generator:
        """What generates its tokens.

        Raises:
            RequestInvalid: It is no decoder.
        """
        if self._generator is None:
            raise RequestInvalid(
                f"the model {self.name!r} generates no text",
                hint="build it with --decoder cache=1024,slots=8",
            )
        return self._generator

    @property
    def slots(self) -> int:
        """How many texts are gone on with."""
        return self._generator.used if self._generator else 0

    @property
    def is_ready(self) -> bool:
        """Whether a call would run."""
        return self.pool.is_ready

    @property
    def waiting(self) -> int:
        """How many calls and texts wait."""
        return self.pool.waiting + (self._generator.waiting if self._generator else 0)

    @property
    def running(self) -> int:
        """How many calls a worker has."""
        return self.pool.running

    @property
    def sessions(self) -> int:
        """How many sessions are open."""
        return self.pool.sessions

    async def answer(self, call: Call) -> tuple[Tensor, ...]:
        """The outputs of a call, once it has run.

        Raises:
            AotpipeError: It is refused, or fails.
        """
        if call.spans is not None:
            call.spans.queued(self.name, self.version, call.entry)
        self.pool.submit(call)
        outputs = await call.future
        self.metrics.answered(call, asyncio.get_running_loop().time())
        return outputs

    def described(self) -> dict[str, Any]:
        """The metadata of the model; what it has beside those of the protocol stands under `parameters`."""
        entries = {name: entry.described() for name, entry in self.entries.items()}
        first = entries.get("forward") or next(iter(entries.values()))
        return {
            "name": self.name,
            "versions": [self.version],
            "platform": f"aotpipe_{self.target}",
            **first,
            "parameters": {"digest": self.digest, "target": self.target, "entry_points": entries},
        }

    def example(self) -> dict[str, Any]:
        """A recorded call as a request.

        Raises:
            UnknownModel: None is small enough, or JSON has no numbers for it.
        """
        if self._example is None:
            raise UnknownModel(f"no recorded call can be shown as JSON of {_EXAMPLE_BYTES} bytes")
        return self._example

    @cached_property
    def _example(self) -> dict[str, Any] | None:
        name = "forward" if "forward" in self.entries else next(iter(self.entries))
        entry = self.entries[name]
        for golden in files.goldens(self._bundle):
            arrays = {each: golden.inputs[each] for each in entry.inputs if each in golden.inputs}
            if golden.entry_point == name and sum(each.nbytes for each in arrays.values()) <= _EXAMPLE_BYTES:
                with suppress(NotInJson):
                    return protocol.example(arrays, has_state=bool(entry.signature.state))
        return None


class Repository:
    """The models by name; all in the thread of the event loop."""

    def __init__(self, opened: Mapping[str, Opened], options: Options, metrics: Metrics) -> None:
        self._paths = {name: each.path for name, each in opened.items()}
        self._opened = dict(opened)
        self._options = options
        self._metrics = metrics
        self._models: dict[str, Model] = {}
        self._reasons = dict.fromkeys(opened, "it is being loaded")
        self._wanted = set(opened)
        self._locks = {name: asyncio.Lock() for name in opened}
        self._closing: set[asyncio.Task[None]] = set()
        metrics.watch(self.__iter__)

    def names(self) -> list[str]:
        """What can be loaded."""
        return list(self._paths)

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    @property
    def is_ready(self) -> bool:
        """Whether every model answers that was not unloaded."""
        return all(name in self._models and self._models[name].is_ready for name in self._wanted)

    def model(self, name: str, version: str = "") -> Model:
        """A model that is loaded.

        Raises:
            UnknownModel: There is none of this name, or not this version of it.
            NotReady: It is not loaded.
        """
        model = self._models.get(name)
        if model is None:
            self._require(name)
            raise NotReady(f"the model {name!r} is not loaded", reason=self._reasons[name])
        if version and version != model.version:
            raise UnknownModel(
                f"{name!r} has no version {version[:20]!r}",
                reason=f"the version that is served is {model.version}",
            )
        return model

    def index(self) -> list[dict[str, str]]:
        """Each model's name, version, state and the reason of it."""
        rows = []
        for name in self._paths:
            model = self._models.get(name)
            row = {"name": name, "version": model.version if model else ""}
            if model and model.is_ready:
                rows.append({**row, "state": "READY", "reason": ""})
            else:
                rows.append(
                    {
                        **row,
                        "state": "UNAVAILABLE",
                        "reason": model.pool.reason if model else self._reasons[name],
                    }
                )
        return rows

    async def load(self, name: str) -> None:
        """Load a model from its folder, again where it is loaded; the old one stays where the new one fails.

        Raises:
            UnknownModel: There is none of this name.
            AotpipeError: Its bundle cannot be used.
        """
        self._require(name)
        async with self._locks[name]:
            try:
                opened = self._opened.pop(name, None) or await opening.opened(
                    self._paths[name], self._options.require_signature
                )
                model = Model(name, opened, self._options, self._metrics)
                await model.start()
            except AotpipeError as error:
                if name not in self._models:
                    self._reasons[name] = error.message
                raise
            old, self._models[name] = self._models.get(name), model
            self._wanted.add(name)
        if old is not None:
            self._end(old)

    async def reload(self, name: str) -> None:
        """Load a model because a caller says so.

        Raises:
            UnknownModel: There is none of this name.
            RequestInvalid: Its bundle cannot be used, and why.
        """
        try:
            await self.load(name)
        except UnknownModel:
            raise
        except AotpipeError as error:
            raise RequestInvalid(
                f"the model cannot be loaded: {error.message}", reason=error.reason
            ) from error

    async def unload(self, name: str) -> None:
        """Let a model's calls end, and end its workers.

        Raises:
            UnknownModel: There is none of this name.
        """
        self._require(name)
        async with self._locks[name]:
            self._wanted.discard(name)
            if old := self._models.pop(name, None):
                self._reasons[name] = "it was unloaded"
                self._end(old)

    async def close(self) -> None:
        """Unload all models and wait until what runs has ended."""
        for name in list(self._models):
            await self.unload(name)
        await asyncio.gather(*self._closing)

    def _end(self, model: Model) -> None:
        task = asyncio.get_running_loop().create_task(model.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _require(self, name: str) -> None:
        if name not in self._paths:
            raise UnknownModel(
                f"no model is called {name[:80]!r}", reason=f"the models are: {', '.join(self._paths)}"
            )


def named(bundles: tuple[str, ...], opened: Sequence[Opened]) -> dict[str, Opened]:
    """The bundles by the name in `NAME=PATH`; without one it is that in the bundle's manifest.

    Raises:
        ServeError: Two have one name.
    """
    found: dict[str, Opened] = {}
    for text, each in zip(bundles, opened, strict=True):
        name = opening.named(text)[0] or each.bundle.manifest.name
        if not _NAME.fullmatch(name):
            raise ServeError(
                f"{name!r} is no name for a model in the path of a request", hint=f"name it: NAME={each.path}"
            )
        if name in found:
            raise ServeError(f"two models are called {name!r}", hint="name them: NAME=BUNDLE")
        found[name] = each
    return found
