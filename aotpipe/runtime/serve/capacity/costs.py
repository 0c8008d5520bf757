"""Measures what the parts of a server take on this host: a bundle's program by batch size, a request, memory.

A program is timed in a worker of the server's own pool, with the first recorded call, whose first row is
repeated where calls are batched. The rest is measured on a server that answers one request after another,
with pauses between them, and on one that always has more to answer.

Raises:
    ServeError: The model keeps state or generates text, or it cannot be served.
"""

from __future__ import annotations

import asyncio
import os
import re
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import orjson

from aotpipe.core.dtypes import Array, raw_bytes
from aotpipe.errors import ServeError
from aotpipe.runtime import process
from aotpipe.runtime.bundle import files
from aotpipe.runtime.goldens import Golden
from aotpipe.runtime.serve import opening
from aotpipe.runtime.serve.capacity.open_loop import Connection
from aotpipe.runtime.serve.capacity.simulation import Costs, Idle
from aotpipe.runtime.serve.metrics import Metrics
from aotpipe.runtime.serve.pool import Pool
from aotpipe.runtime.serve.repository import Model, Options
from aotpipe.runtime.serve.scheduler import Call
from aotpipe.runtime.serve.tensors import DATATYPES, Tensor

_SECONDS_OF_A_SIZE: Final = 0.5
_FEWEST_RUNS: Final = 8
_MOST_RUNS: Final = 1000
_WARM_UP_RUNS: Final = 3
_PAUSES_S: Final = (0.0, 0.001, 0.005, 0.02)
_BUSY_CONNECTIONS: Final = 32
_READY: Final = re.compile(r"ready on http://[^:]+:(\d+)")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is asked: a bundle's first recorded call.

    Attributes:
        rows: Of one request; 1 where calls are batched.
    """

    bundle: Path
    options: Options
    entry: str
    inputs: Mapping[str, Array]
    rows: int

    @classmethod
    def of(cls, bundle: Path, options: Options) -> Subject:
        """The call of a bundle.

        Raises:
            ServeError: Its model keeps state.
        """
        opened = files.open_bundle(bundle)
        names = [name for name, each in opened.manifest.signatures.items() if not each.specializes]
        entry = "forward" if "forward" in names else names[0]
        if any(signature.state for signature in opened.manifest.signatures.values()):
            raise ServeError(
                f"{opened.manifest.name!r} keeps state, and calls of sessions are not planned for",
                reason="the calls of a session go to one worker, one after another",
            )
        goldens = [each for each in files.goldens(opened) if each.entry_point == entry]
        if not goldens:
            raise ServeError(f"the bundle has no recorded call of {entry!r} to time")
        is_batched = options.limits.max_batch_size > 1
        inputs = _rows_of(goldens[0], 1) if is_batched else dict(goldens[0].inputs)
        return cls(bundle, options, entry, inputs, 1)

    def without_delay(self) -> Subject:
        """The same, in a server that waits for no other calls to batch."""
        limits = replace(self.options.limits, max_queue_delay_s=0.0)
        return replace(self, options=replace(self.options, limits=limits))

    def request(self) -> bytes:
        """An HTTP request of it, in the binary form."""
        parts = [raw_bytes(np.ascontiguousarray(array)).tobytes() for array in self.inputs.values()]
        said = [
            {
                "name": name,
                "datatype": DATATYPES[array.dtype.name],
                "shape": array.shape,
                "parameters": {"binary_data_size": len(part)},
            }
            for (name, array), part in zip(self.inputs.items(), parts, strict=True)
        ]
        parameters = {"binary_data_output": True, "entry_point": self.entry}
        head = orjson.dumps({"inputs": said, "parameters": parameters})
        size = len(head) + sum(map(len, parts))
        lines = (
            "POST /v2/models/model/infer HTTP/1.1",
            "Host: 127.0.0.1",
            f"Inference-Header-Content-Length: {len(head)}",
            f"Content-Length: {size}",
        )
        return "\r\n".join([*lines, "", ""]).encode() + head + b"".join(parts)


def measure(subject: Subject) -> Costs:
    """Measure what the parts of a server take for a call; takes some seconds.

    Raises:
        ServeError: The model cannot be served, or a call fails.
    """
    runs, batch_s = asyncio.run(_timed(subject))
    run_s = float(np.median(runs[min(runs)]))
    # No more than may wait, nor than are soon answered once nobody asks.
    most = min(subject.options.limits.max_queue_size, int(_SECONDS_OF_A_SIZE / run_s))
    with server(subject.without_delay(), workers=1) as (port, pid):
        request = subject.request()
        idle = [_idle(port, pid, request, pause_s, run_s) for pause_s in _PAUSES_S]
        busy_s = _busy_s(port, pid, request, max(1, min(_BUSY_CONNECTIONS, most)))
        [worker, *_] = _children(pid)
        return Costs(
            runs=runs,
            batch_s=batch_s,
            request_s=min(busy_s, *(each.request_s for each in idle)),
            idle=tuple(idle),
            server_bytes=_resident_bytes(pid),
            worker_bytes=_resident_bytes(worker),
        )


def _idle(port: int, pid: int, request: bytes, pause_s: float, run_s: float) -> Idle:
    """What requests take that come so long after the answer before."""
    connection = Connection(port)
    latencies: list[float] = []
    for _ in range(_WARM_UP_RUNS):
        _require(connection.ask(request))
    spent = -_on_cpu_s(pid)
    for _ in _repeated():
        if pause_s:
            time.sleep(pause_s)
        start = time.perf_counter()
        _require(connection.ask(request))
        latencies.append(time.perf_counter() - start)
    spent += _on_cpu_s(pid)
    connection.socket.close()
    request_s = spent / len(latencies)
    # Without a pause, too, the server is idle while its client reads the answer.
    idle_s = pause_s + max(float(np.median(latencies)) - request_s - run_s, 0.0) / 2
    return Idle(idle_s=idle_s, request_s=request_s, latencies_s=np.sort(latencies))


def _busy_s(port: int, pid: int, request: bytes, count: int) -> float:
    """What an event loop takes for a request that always has others to read or to answer."""
    connections = [Connection(port) for _ in range(count)]
    with selectors.DefaultSelector() as selector:
        for each in connections:
            selector.register(each.socket, selectors.EVENT_READ, each)
            each.send(request)
        spent, answers, end = -_on_cpu_s(pid), 0, time.perf_counter() + _SECONDS_OF_A_SIZE
        while time.perf_counter() < end or answers < _FEWEST_RUNS:
            for key, _ in selector.select():
                connection: Connection = key.data
                if (status := connection.receive()) is not None:
                    _require(status)
                    answers += 1
                    connection.send(request)
        spent += _on_cpu_s(pid)
        for each in connections:
            each.socket.close()
    return spent / answers


@contextmanager
def server(subject: Subject, *, workers: int) -> Iterator[tuple[int, int]]:
    """A server of a bundle in a process of its own, while the body runs: its port and its PID.

    Raises:
        ServeError: It did not become ready.
    """
    options, limits = subject.options, subject.options.limits
    arguments = {
        "--workers": workers,
        "--threads": options.threads,
        "--target": options.target,
        "--max-batch-size": limits.max_batch_size,
        "--max-queue-delay-us": round(limits.max_queue_delay_s * 1e6),
        "--max-queue-size": limits.max_queue_size,
        "--port": 0,
    }
    words = [str(word) for each in arguments.items() if each[1] is not None for word in each]
    words += [word for size in limits.preferred_batch_size for word in ("--preferred-batch-size", str(size))]
    started = subprocess.Popen(
        [sys.executable, "-P", "-m", "aotpipe", "serve", f"model={subject.bundle}", *words],
        env={**os.environ, "PYTHONPATH": process.python_path()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    said: list[str] = []
    try:
        assert started.stderr is not None
        for line in started.stderr:
            said.append(line)
            if found := _READY.search(line):
                yield int(found[1]), started.pid
                return
        raise ServeError("the server did not become ready", reason="".join(said).strip())
    finally:
        started.terminate()
        started.communicate()


async def _timed(subject: Subject) -> tuple[dict[int, Array], float]:
    """The seconds of runs by rows, and what a worker takes for a batch beside its run."""
    options = replace(subject.options, workers=1)
    model = Model("model", opening.read(subject.bundle, options.require_signature), options, Metrics())
    if model.generates:
        raise ServeError(f"{model.name!r} generates text, which is not planned for")
    await model.start()
    try:
        most = subject.options.limits.max_batch_size
        sizes = sorted(
            {1, *(1 << power for power in range(most.bit_length()) if 1 << power <= most), most} - {0}
        )
        runs = {}
        for rows in sizes if most > 1 else (1,):
            tensors = _tensors(subject.inputs, rows)
            for _ in range(_WARM_UP_RUNS):
                await _call(model.pool, subject.entry, tensors)
            runs[rows] = np.sort([await _call(model.pool, subject.entry, tensors) for _ in _repeated()])
        return runs, await _beside(model.pool, subject.entry, _tensors(subject.inputs, 1))
    finally:
        await model.close()


async def _call(pool: Pool, entry: str, tensors: tuple[Tensor, ...]) -> float:
    """The seconds of one run."""
    call = _made(entry, tensors)
    pool.submit(call)
    await call.future
    return call.run_ns / 1e9


async def _beside(pool: Pool, entry: str, tensors: tuple[Tensor, ...]) -> float:
    """What a worker that always has calls takes for one beside its run: the least of some tries."""
    least = float("inf")
    for _ in range(5):
        calls = [_made(entry, tensors) for _ in range(min(64, pool.limits.max_queue_size))]
        start = time.perf_counter()
        for call in calls:
            pool.submit(call)
        await asyncio.gather(*(call.future for call in calls))
        spent = time.perf_counter() - start
        least = min(least, (spent - sum(call.run_ns for call in calls) / 1e9) / len(calls))
        if spent > _SECONDS_OF_A_SIZE:
            break
    return max(least, 0.0)


def _made(entry: str, tensors: tuple[Tensor, ...]) -> Call:
    loop = asyncio.get_running_loop()
    return Call(entry=entry, inputs=tensors, future=loop.create_future(), received=loop.time())


def _tensors(inputs: Mapping[str, Array], rows: int) -> tuple[Tensor, ...]:
    repeated = {name: np.repeat(array, rows, 0) if rows > 1 else array for name, array in inputs.items()}
    return tuple(
        Tensor(name, array.dtype.name, array.shape, raw_bytes(np.ascontiguousarray(array)).tobytes())
        for name, array in repeated.items()
    )


def _rows_of(golden: Golden, rows: int) -> dict[str, Array]:
    return {name: np.ascontiguousarray(array[:rows]) for name, array in golden.inputs.items()}


def _repeated() -> Iterator[int]:
    """Counts while a measurement goes on."""
    end = time.perf_counter() + _SECONDS_OF_A_SIZE
    for number in range(_MOST_RUNS):
        if number >= _FEWEST_RUNS and time.perf_counter() > end:
            return
        yield number


def _require(status: int) -> None:
    if status != 200:
        raise ServeError(f"the server answered its own recorded call with status {status}")


def _on_cpu_s(pid: int) -> float:
    """For how long a process's first thread has run."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
