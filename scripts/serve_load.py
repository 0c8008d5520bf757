"""Measures `aotpipe serve`: requests/s, latency, start, memory; every answer is checked.

usage: scripts/bench serve [--seconds S] [--connections N] [--json FILE]
                           [--requests N | --peers [--rounds N] | --minilm [--rounds N]]

An MLP of 16 inputs is served; N connections ask as fast as they are answered, in JSON and in the binary form,
with and without batching. `--requests` is a soak instead: so many requests, with the resident memory of the
server and its workers after each tenth. `--peers` asks other servers of the same program in turns with ours,
in JSON: those whose Python the environment names (scripts/serve_peers.py says how). `--minilm` asks for the
embeddings of 8 sentences, in turns with the runtime in this process. The best round of each counts. The load
generator runs on the same cores as the servers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import serve_peers

Row = dict[str, Any]
ROWS = 256
MODEL = "m"
DATATYPES = {"float32": "FP32", "int64": "INT64"}
INPUTS = 16


class Server:
    """A server in a process of its own."""

    def __init__(self, bundle: Path, *options: str) -> None:
        start = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "aotpipe", "serve", f"{MODEL}={bundle}", "--port", "0", *options],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr
        for line in self.process.stderr:
            if found := re.search(r"ready on http://[^:]+:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            raise SystemExit("the server did not start")
        self.ready_s = time.perf_counter() - start

    def memory(self) -> Row:
        """MB that are resident in the server and its workers: of each process, and with shared pages once."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in (self.process.pid, *children)]
        return {
            f"{key.lower()}_mb": sum(
                int(re.findall(rf"^{key}:\s+(\d+)", each, re.MULTILINE)[0]) for each in texts
            )
            * 1024
            / 1e6
            for key in ("Rss", "Pss")
        }

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


@dataclass(frozen=True)
class Call:
    """Inputs by name, and the output that is right."""

    inputs: dict[str, np.ndarray]
    want: np.ndarray


class Client(asyncio.Protocol):
    """One connection, which asks again once it is answered."""

    def __init__(self, load: Load, place: int) -> None:
        self.load, self.place, self.received = load, place, b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        if self.load.is_over():
            self.transport.close()
            return
        self.place = (self.place + 1) % len(self.load.requests)
        self.since = time.perf_counter()
        self.transport.write(self.load.requests[self.place])

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        # The binary form has Inference-Header-Content-Length, too.
        if not found or len(body) < int(re.search(rb"\r\ncontent-length: (\d+)", head.lower())[1]):
            return
        self.received = b""
        self.load.answered(self.place, head, body, time.perf_counter() - self.since)
        self.ask()

    def connection_lost(self, _: Exception | None) -> None:
        self.load.open -= 1


class Load:
    """What is asked, until when, and what came back."""

    def __init__(self, calls: Sequence[Call], *, binary: bool, seconds: float = 0.0, count: int = 0) -> None:
        self.want, self.binary, self.count, self.open = [call.want for call in calls], binary, count, 0
        self.requests = [self._request(call.inputs) for call in calls]
        self.latencies: list[float] = []
        self.done = self.wrong = 0
        self.end = time.perf_counter() + seconds if seconds else None

    def is_over(self) -> bool:
        return self.done >= self.count if self.end is None else time.perf_counter() >= self.end

    def _request(self, inputs: dict[str, np.ndarray]) -> bytes:
        tensors, data, extra = [], b"", ""
        for name, x in inputs.items():
            tensor = {"name": name, "datatype": DATATYPES[x.dtype.name], "shape": list(x.shape)}
            if self.binary:
                tensor["parameters"] = {"binary_data_size": x.nbytes}
                data += x.tobytes()
            else:
                tensor["data"] = x.ravel().tolist()
            tensors.append(tensor)
        asked = {"inputs": tensors, **({"parameters": {"binary_data_output": True}} if self.binary else {})}
        text = json.dumps(asked).encode()
        if self.binary:
            extra = f"Inference-Header-Content-Length: {len(text)}\r\n"
        body = text + data
        form = "application/octet-stream" if self.binary else "application/json"
        head = f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nHost: x\r\nContent-Type: {form}\r\n{extra}"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def answered(self, place: int, head: bytes, body: bytes, seconds: float) -> None:
        self.done += 1
        if self.end is not None:
            self.latencies.append(seconds)
        want = self.want[place]
        if self.binary:
            got = np.frombuffer(body[-want.nbytes :], np.float32)
        else:
            is_answer = b" 200 " in head
            got = np.array(json.loads(body)["outputs"][0]["data"] if is_answer else [], np.float32)
        if b" 200 " not in head or got.size != want.size or not np.allclose(got, want.ravel(), atol=1e-5):
            self.wrong += 1

    def figures(self, seconds: float) -> Row:
        """What was counted in as many seconds."""
        row: Row = {"requests": self.done, "wrong": self.wrong, "per_s": self.done / seconds}
        if self.latencies:
            row |= {f"p{q}_ms": float(np.percentile(self.latencies, q)) * 1e3 for q in (50, 99)}
        return row

    async def run(self, port: int, connections: int) -> None:
        loop = asyncio.get_running_loop()
        for number in range(connections):
            self.open += 1
            await loop.create_connection(lambda n=number: Client(self, n * 7), "127.0.0.1", port)
        while self.open:
            await asyncio.sleep(0.02)


def built(folder: Path) -> tuple[Path, list[Call]]:
    """The MLP's bundle, and calls of a row each."""
    import torch

    import aotpipe

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(INPUTS, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).eval()
    batch = aotpipe.Dim("batch", min=1, max=64)
    x = torch.randn(ROWS, INPUTS)
    aotpipe.build(
        model,
        args=(x[:4],),
        dynamic_shapes={"input": {0: batch}},
        targets=["iree-cpu-host"],
        out=folder / "mlp",
    )
    with torch.no_grad():
        wanted = model(x).numpy()
    return folder / "mlp", [
        Call({"input": row[None]}, want) for row, want in zip(x.numpy(), wanted, strict=True)
    ]


def sentences(asked: argparse.Namespace) -> list[Row]:
    """MiniLM, 8 sentences of 64 tokens: calls a second of a server and of the runtime in this process."""
    import uvloop

    import aotpipe

    rows: list[Row] = []
    numbers = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder, "minilm")
        aotpipe.build("models/minilm.py", targets=["iree-cpu-host"], out=bundle, latency=False)
        with aotpipe.load(bundle) as runner:
            calls = []
            for _ in range(4):
                ids = numbers.integers(0, 30_000, (8, 64))
                inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
                calls.append(Call(inputs, runner.infer(inputs)["embedding"]))
            server = Server(bundle)
            try:
                for number in range(asked.rounds):
                    done, start = 0, time.perf_counter()
                    while time.perf_counter() < start + asked.seconds:
                        runner.infer(calls[done % len(calls)].inputs)
                        done += 1
                    own = done / (time.perf_counter() - start)
                    load = Load(calls, binary=True, seconds=asked.seconds)
                    uvloop.run(load.run(server.port, 2))
                    row = {"round": number, "runtime_per_s": own, **load.figures(asked.seconds)}
                    print(said(row), flush=True)
                    rows.append(row)
            finally:
                server.stop()
    ours, own = (max(row[key] for row in rows) for key in ("per_s", "runtime_per_s"))
    print(f"served {ours:.2f} calls/s, the runtime alone {own:.2f}: {ours / own:.2f} of it")
    return rows


def against_peers(bundle: Path, calls: Sequence[Call], asked: argparse.Namespace) -> list[Row]:
    """The best round of each server, ours first."""
    import uvloop

    rows: list[Row] = []
    servers: dict[str, Server | serve_peers.Peer] = {
        "aotpipe": Server(bundle),
        "aotpipe, batching": Server(bundle, "--max-batch-size", "16"),
    }
    with tempfile.TemporaryDirectory() as folder:
        try:
            servers |= serve_peers.started(bundle, Path(folder))
            for number in range(asked.rounds):
                for name, server in servers.items():
                    load = Load(calls, binary=False, seconds=asked.seconds)
                    uvloop.run(load.run(server.port, asked.connections))
                    row = {"server": name, "round": number, **load.figures(asked.seconds)}
                    print(said(row), flush=True)
                    rows.append(row)
        finally:
            for server in servers.values():
                server.stop()
    ours = max(row["per_s"] for row in rows if row["server"] == "aotpipe")
    for name in servers:
        best = max((row for row in rows if row["server"] == name), key=lambda row: row["per_s"])
        p99 = min(row["p99_ms"] for row in rows if row["server"] == name)
        print(
            f"{name}: {best['per_s']:.0f}/s, ours is {ours / best['per_s']:.2f} of it; least p99 {p99:.2f} ms"
        )
    return rows


def said(row: Row) -> str:
    """A row as a line."""
    return "  ".join(
        f"{key} {value:.2f}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()
    )


def alone(bundle: Path, calls: Sequence[Call], asked: argparse.Namespace) -> list[Row]:
    """What our server does in each form, or in a soak."""
    import uvloop

    rows: list[Row] = []
    for options in ((), ("--max-batch-size", "16")):
        server = Server(bundle, *options)
        for binary in (False, True):
            row: Row = {
                "options": " ".join(options),
                "form": "binary" if binary else "json",
                "ready_s": server.ready_s,
            }
            resident: list[float] = []
            failed = 0
            for part in range(10 if asked.requests else 1):
                count = asked.requests // 10
                load = Load(calls, binary=binary, seconds=0 if count else asked.seconds, count=count)
                start = time.perf_counter()
                uvloop.run(load.run(server.port, asked.connections))
                row |= load.figures(time.perf_counter() - start) | server.memory()
                print(f"{part}: {said(row)}" if count else said(row), flush=True)
                resident.append(row["rss_mb"])
                failed += load.wrong
            if asked.requests:
                # The first part fills what a server keeps for its busiest moment.
                slope = float(np.polyfit(np.arange(9), resident[1:], 1)[0]) * 1e5 / count
                row |= {"wrong": failed, "rss_mb_per_100k": slope}
                print(f"{failed} of {10 * count} answers were wrong; RSS grew by {slope:.3f} MB per 100,000")
            rows.append(row)
        server.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--minilm", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.minilm:
        rows = sentences(asked)
    else:
        with tempfile.TemporaryDirectory() as folder:
            measure = against_peers if asked.peers else alone
            rows = measure(*built(Path(folder)), asked)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
