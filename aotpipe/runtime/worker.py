"""Runs a program in a process of its own, so that its crash is an error here and no more.

A compiled program can read foreign memory, die by a signal or never return. `Worker` starts
`python -m aotpipe.runtime.worker`, which imports neither torch nor a compiler, and talks to it over a
connection; weights go by the path of a file that it maps. Every call has a time limit, at which the process
is killed, be it in the middle of a message.

A message is a header of JSON, then each array's bytes in the header's order; there is no pickle in it, and
what a program that took its process over writes in its place is refused.

Raises:
    ProgramCrashed: The program died, hung, failed or wrote what is no answer; the signal and the last lines
        it wrote are named.
    AotpipeError: What the runtime in the worker raised, as the same class.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final, Self, cast

import numpy as np

from aotpipe import errors
from aotpipe.core.dtypes import Array, numpy_dtype, raw_bytes
from aotpipe.core.signature import Signature
from aotpipe.core.targets import Backend, Target
from aotpipe.errors import AotpipeError, BundleCorrupt, ProgramCrashed
from aotpipe.runtime import process, sandbox, tensor_file
from aotpipe.runtime.loading import Runner, driver, runtime

_CALL_TIMEOUT_S: Final = 300.0
# Bytecode is interpreted: an image through ResNet-50 takes 100 s.
_BYTECODE_TIMEOUT_S: Final = 3600.0
_LOAD_TIMEOUT_S: Final = 120.0
_TAIL_LINES: Final = 12
_ARRAYS: Final = "__arrays__"
_MAX_HEADER_BYTES: Final = 64 << 20
# What a message that is none makes json, numpy and this module raise.
_MALFORMED: Final = (ValueError, LookupError, TypeError, AttributeError, RecursionError, MemoryError)
# A thread that is there before the sandbox would stay outside of it.
_ONE_THREAD: Final = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a program took of its process so far; the first call is by entry point."""

    load_us: float
    first_call_us: Mapping[str, float]
    peak_rss_bytes: int


class Worker:
    """A process that holds one program; a context manager that ends it.

    On Linux it ends with the thread that makes it, too, and with that thread's process. Each call has
    `timeout_s`, or what is plenty for the program's target; `backend` is what it will run programs of, to
    import while it waits for one. With `sandbox_calls` the program is not trusted: it runs in
    `runtime.sandbox`, with the CPU time that so many calls may take.
    """

    def __init__(
        self,
        *,
        timeout_s: float | None = None,
        backend: Backend | None = None,
        sandbox_calls: int | None = None,
    ) -> None:
        self._is_given = timeout_s is not None
        self._sandbox_calls = sandbox_calls
        self._timeout_s = _CALL_TIMEOUT_S if timeout_s is None else timeout_s
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the worker
        self._connection, theirs = Pipe()
        fd = theirs.fileno()
        self._process = subprocess.Popen(
            # -P: a file of the user's folder must not stand in for a module that the worker imports.
            [
                *(sys.executable, "-P", "-m", "aotpipe.runtime.worker", str(fd), str(os.getpid())),
                *filter(None, [backend]),
            ],
            # What is compared must not depend on what a runtime pads inputs with.
            env={
                **os.environ,
                **(_ONE_THREAD if sandbox_calls is not None else {}),
                "PYTHONPATH": process.python_path(),
                "AOTPIPE_GARBAGE_PADDING": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=self._stderr,
            stderr=self._stderr,
            pass_fds=[fd],
            # Its own group: Ctrl-C reaches the build, and the build ends the worker.
            process_group=0,
        )
        theirs.close()

    def load(
        self,
        target: Target,
        payload: bytes,
        *,
        signatures: Mapping[str, Signature],
        weights: Sequence[tensor_file.Shard],
        verify: bool = False,
        initial_state: Mapping[str, Array],
        asserts: Mapping[str, tuple[str, ...]],
        threads: int | None = None,
    ) -> Self:
        """Load a program as the runtime's `load` does.

        With `verify` the files of the weights are read and must have their digests; else they are mapped,
        and trusted.
        """
        if not self._is_given:
            self._timeout_s = _BYTECODE_TIMEOUT_S if target.device == "vmvx" else _CALL_TIMEOUT_S
        timeout_s = max(_LOAD_TIMEOUT_S, self._timeout_s)
        calls = self._sandbox_calls
        self._ask(
            {
                "do": "load",
                "target": str(target),
                "signatures": {name: signature.to_json() for name, signature in signatures.items()},
                "weights": [(str(each.path.absolute()), each.sha256, each.part) for each in weights],
                "verify": verify,
                "asserts": dict(asserts),
                "threads": threads,
                "cpu_s": calls if calls is None else int(timeout_s * (calls + 1) * (os.cpu_count() or 1)),
            },
            {
                "payload": np.frombuffer(payload, np.uint8),
                **{f"state.{name}": array for name, array in initial_state.items()},
            },
            timeout_s=timeout_s,
        )
        return self

    def infer(self, inputs: Mapping[str, Array], *, entry_point: str) -> dict[str, Array]:
        """Call the program."""
        return self._ask({"do": "infer", "entry_point": entry_point}, inputs)[1]

    def reset(self) -> None:
        """Go back to the initial state."""
        self._ask({"do": "reset"})

    def time(
        self,
        inputs: Mapping[str, Array],
        *,
        entry_point: str,
        samples: int,
        reset: bool = False,
        arrivals_s: Sequence[float] = (),
    ) -> list[float]:
        """Microseconds of each of some calls, measured in the worker; as the runner's `time`."""
        message = {"do": "time", "entry_point": entry_point, "samples": samples, "reset": reset}
        message["arrivals_s"] = list(arrivals_s)
        limit_s = self._timeout_s * samples + max(arrivals_s, default=0.0)
        answer, _ = self._ask(message, inputs, timeout_s=limit_s)
        return [float(sample) for sample in answer["samples_us"]]

    def costs(self) -> Costs:
        """What loading, the first calls and all memory took."""
        answer, _ = self._ask({"do": "costs"})
        return Costs(**{name: answer[name] for name in ("load_us", "first_call_us", "peak_rss_bytes")})

    def close(self) -> None:
        """End the process."""
        process.kill_group(self._process)
        self._connection.close()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _ask(
        self,
        message: Mapping[str, Any],
        arrays: Mapping[str, Array] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        doing = " ".join(str(message[key]) for key in ("do", "entry_point") if key in message)
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill_group(self._process)

        # A thread, for a write or a read blocks wherever the other side stops in the middle of a message.
        watchdog = threading.Timer(min(limit_s, threading.TIMEOUT_MAX), end)
        watchdog.start()
        try:
            send(self._connection, message, arrays)
            answer, results = receive(self._connection)
            refusal = _told(answer["error"]) if "error" in answer else None
        except (EOFError, OSError):
            code = self._process.wait()
            how = f"died by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            if late.is_set():
                how = f"did not answer within {limit_s:g} s"
            raise ProgramCrashed(f"the program {how} ({doing})", reason=self._last_words()) from None
        except _MALFORMED as error:
            process.kill_group(self._process)
            raise ProgramCrashed(
                f"the program wrote what is no answer ({doing})", reason=f"{type(error).__name__}: {error}"
            ) from error
        finally:
            watchdog.cancel()
            watchdog.join()
        if refusal is not None:
            raise refusal
        return answer, results

    def _last_words(self) -> str:
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])


def _told(error: Any) -> AotpipeError:
    """The error that a worker tells of."""
    kind, *texts = map(str, map(error.get, ("kind", "message", "reason", "hint")))
    found = getattr(errors, kind, None)
    if not (isinstance(found, type) and issubclass(found, AotpipeError)):
        found = ProgramCrashed
    return found(texts[0], reason=texts[1], hint=texts[2])


def send(to: Connection, message: Mapping[str, Any], arrays: Mapping[str, Array] | None = None) -> None:
    """Write a message.

    Raises:
        OSError: The other side is gone.
    """
    dense = {name: np.asarray(array, order="C") for name, array in (arrays or {}).items()}
    described = [(name, array.dtype.name, array.shape) for name, array in dense.items()]
    to.send_bytes(json.dumps({**message, _ARRAYS: described}).encode())
    for array in dense.values():
        to.send_bytes(raw_bytes(array).data)


def receive(source: Connection) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read a message.

    Raises:
        EOFError, OSError: The other side is gone, or wrote more than it said.
        ValueError, LookupError, TypeError, AttributeError: It is none.
    """
    message: dict[str, Any] = json.loads(source.recv_bytes(_MAX_HEADER_BYTES))
    arrays = {}
    room = process.default_memory_limit()
    for name, dtype, shape in message.pop(_ARRAYS):
        size_bytes = prod(shape) * numpy_dtype(dtype).itemsize
        room -= size_bytes
        if room < 0:
            raise ValueError("it is larger than this machine's memory")
        # A length is read before what follows is: of more than was told nothing is taken.
        content = np.frombuffer(bytearray(source.recv_bytes(size_bytes)), np.uint8)
        arrays[name] = content.view(numpy_dtype(dtype)).reshape(shape)
    return message, arrays


def main() -> None:
    """Answer the messages of the connection that the first argument names, until it or the parent ends."""
    fd, parent, *backends = sys.argv[1:]
    if not process.become_child(int(parent)):
        return
    connection = Connection(int(fd))
    for backend in backends:
        runtime(cast("Backend", backend))
        # The first value that is read imports pydantic.
        Signature.from_json(Signature(inputs=(), outputs=()).to_json())
    runner: Runner | None = None
    load_us, first_call_us = 0.0, dict[str, float]()
    while True:
        try:
            message, arrays = receive(connection)
        except (EOFError, OSError):
            return
        answer: dict[str, Any] = {}
        results: dict[str, Array] = {}
        start = time.perf_counter_ns()
        try:
            match message.pop("do"):
                case "load":
                    runner = _load(message, arrays)
                    load_us = (time.perf_counter_ns() - start) / 1000
                case "infer" if runner:
                    results = runner.infer(arrays, **message)
                    first_call_us.setdefault(message["entry_point"], (time.perf_counter_ns() - start) / 1000)
                case "reset" if runner:
                    runner.reset()
                case "time" if runner:
                    answer = {"samples_us": runner.time(arrays, **message)}
                    first_call_us.setdefault(message["entry_point"], answer["samples_us"][0])
                case "costs":
                    peak = process.peak_bytes(os.getpid())
                    answer = {"load_us": load_us, "first_call_us": first_call_us, "peak_rss_bytes": peak}
                case unknown:
                    raise AssertionError(unknown)
        except AotpipeError as error:
            fields = {"message": error.message, "reason": error.reason, "hint": error.hint}
            answer = {"error": {"kind": type(error).__name__, **fields}}
        send(connection, answer, results)


def _load(message: Mapping[str, Any], arrays: Mapping[str, Array]) -> Runner:
    target = Target.parse(message["target"])
    shards = [tensor_file.Shard(Path(path), sha256, part) for path, sha256, part in message["weights"]]
    try:
        weights = tensor_file.read_shards(shards, verify=message["verify"])
    except ValueError as error:
        raise BundleCorrupt("the weights are not those that were packed", reason=str(error)) from error
    load = runtime(target.backend).load
    if message["cpu_s"] is not None:
        sandbox.enter(target, cpu_s=message["cpu_s"])
    return load(
        arrays["payload"].tobytes(),
        signatures={name: Signature.from_json(data) for name, data in message["signatures"].items()},
        weights=weights,
        initial_state={
            name.removeprefix("state."): array for name, array in arrays.items() if name.startswith("state.")
        },
        driver=driver(target),
        asserts={name: tuple(texts) for name, texts in message["asserts"].items()},
        threads=message["threads"],
    )


if __name__ == "__main__":
    main()
