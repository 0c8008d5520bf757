"""Servers as an operator starts them: `aotpipe serve` in a process of its own."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from torch import nn

import aotpipe

ROOT = Path(__file__).parents[4]


class Count(nn.Module):
    """Adds up what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        self.total += x.sum()
        return self.total * 1


class Rooted(nn.Module):
    """Refuses negative numbers, row by row."""

    def forward(self, x):
        assert (x >= 0).all(), "a number is negative"
        return x.sqrt()


class Centred(nn.Module):
    """A row's answer depends on the other rows."""

    def forward(self, x):
        return x - x.mean(0)


class Sum(nn.Module):
    """A decoder of four slots whose next token is that of the sum of a text; 0 ends it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(4, dtype=torch.int64))

    def prefill(self, tokens, slot, temperature, top_p, uniform):
        self.sums.index_copy_(0, slot, tokens.sum(1))
        return self.after(tokens.sum(1), temperature, top_p, uniform)

    def decode(self, tokens, positions, temperature, top_p, uniform):
        self.sums.copy_(torch.where(positions == 0, 0, self.sums + tokens))
        return self.after(self.sums, temperature, top_p, uniform)

    def after(self, sums, temperature, top_p, uniform):
        drawn = (uniform * top_p * VOCABULARY).to(torch.int64)
        token = (sums * 3 + 1 + torch.where(temperature > 0, drawn, 0)) % VOCABULARY
        return {"token": token, "is_end": token == 0}


VOCABULARY = 97


def summed(prompt: list[int], most: int) -> list[int]:
    """The tokens that `Sum` gives after a prompt."""
    found: list[int] = []
    while len(found) < most and (token := (3 * sum((*prompt, *found)) + 1) % VOCABULARY):
        found.append(token)
    return found


def write_tokenizer(folder: Path) -> Path:
    """A tokenizer of the printable characters, and a chat's template beside it."""
    characters = {chr(31 + token): token for token in range(1, VOCABULARY - 1)}
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"<end>": 0, **characters, "?!": VOCABULARY - 1}, unk_token="?!")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = tokenizers.decoders.Fuse()
    template = (
        "{% for each in messages %}{% if each.role == 'x' %}{{ raise_exception('no x') }}{% endif %}"
        "{{ each.role[0] }}:{{ each.content }};{% endfor %}a:"
    )
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": template, "eos_token": "<end>"})
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


class Server:
    """A running server; `log` is what it wrote."""

    def __init__(self, *arguments: str, log: Path, modules: Path = ROOT) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "aotpipe", "serve", "--port", "0", *arguments],
                stderr=file,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(modules)])},
            )
        self.port = 0
        for _ in range(9000):
            if found := re.search(r"ready on https?://[^:]+:(\d+)", self.log):
                self.port = int(found[1])
                break
            if self.process.poll() is not None:
                break
            time.sleep(0.02)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def ask(
        self, path: str, body: Any = None, *, method: str = "", headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """The status and the JSON of an answer; `body` is JSON, or the bytes themselves."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data,
            headers or {},
            method=method or ("GET" if data is None else "POST"),
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        try:
            return status, json.loads(text) if text else None
        except ValueError:
            return status, text.decode()

    def infer(self, model: str, name: str, data: list[Any], shape: list[int], **more: Any) -> tuple[int, Any]:
        """Call a model of one float32 input."""
        tensor = {"name": name, "datatype": "FP32", "shape": shape, "data": data}
        return self.ask(f"/v2/models/{model}/infer", {"inputs": [tensor], **more})

    def workers(self) -> list[int]:
        """The PIDs of its workers."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in found]

    def stop(self) -> int:
        """End it as a supervisor does; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def mutated(numbers: random.Random, request: bytes) -> bytes:
    """A request of one row of four numbers in which a few bytes, or its shape, are others."""
    body = bytearray(request)
    for _ in range(numbers.randint(0, 5)):
        place = numbers.randrange(len(body))
        match numbers.randrange(4):
            case 0:
                body[place] = numbers.randrange(256)
            case 1:
                del body[place : place + numbers.randint(1, 9)]
            case 2:
                body[place:place] = numbers.choice([b"[", b"-", b"9" * 30, b"null", b'"', b"{}", b"1e400"])
            case 3:
                sizes = [
                    numbers.choice([0, 1, 4, 2**31, 2**63, 2**70, -1]) for _ in range(numbers.randint(0, 5))
                ]
                body = bytearray(bytes(body).replace(b"[1, 4]", json.dumps(sizes).encode()))
        body = body or bytearray(b" ")
    return bytes(body)


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of bundles: `mlp`, `root` and `centred` over a batch, `count` with state, a decoder `sum`."""
    folder = tmp_path_factory.mktemp("served")
    torch.manual_seed(0)
    batch = aotpipe.Dim("batch", min=1, max=64)
    mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    models: dict[str, tuple[nn.Module, torch.Tensor, Any]] = {
        "mlp": (mlp, torch.randn(4, 4), {"input": {0: batch}}),
        "root": (Rooted(), torch.rand(4, 2), {"x": {0: batch}}),
        "centred": (Centred(), torch.randn(4, 2), {"x": {0: batch}}),
        "count": (Count(), torch.randn(3), None),
    }
    for name, (model, x, dims) in models.items():
        aotpipe.build(
            model.eval(), args=(x,), dynamic_shapes=dims, targets=["iree-cpu-host"], out=folder / name
        )
    aotpipe.build(
        Sum().eval(),
        entry_points=decoding(),
        targets=["iree-cpu-host"],
        out=folder / "sum",
        tokenizer=write_tokenizer(folder),
        latency=False,
    )
    return folder


def decoding() -> dict[str, aotpipe.EntryPoint]:
    """The entry points of a decoder of four slots, as `--decoder` makes them."""
    tokens = {"tokens": (0, VOCABULARY - 1), "temperature": (0, 2), "top_p": (0, 1), "uniform": (0, 1)}
    numbers = [(torch.zeros(count), torch.ones(count), torch.zeros(count)) for count in (1, 4)]
    return {
        "prefill": aotpipe.EntryPoint(
            args=(torch.tensor([[3, 4, 5]]), torch.tensor([1]), *numbers[0]),
            dynamic_shapes={"tokens": {1: aotpipe.Dim("length", min=1, max=64)}},
            value_ranges={**tokens, "slot": (0, 3)},
            method="prefill",
        ),
        "decode": aotpipe.EntryPoint(
            args=(torch.arange(4), torch.arange(4), *numbers[1]),
            value_ranges={**tokens, "positions": (0, 99_999)},
            method="decode",
        ),
    }


@pytest.fixture
def serve(bundles: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts a server of some of the bundles, by name, with options."""
    started = []

    def start(*names: str, options: tuple[str, ...] = ()) -> Server:
        paths = [f"{name}={bundles / name}" for name in names]
        started.append(Server(*paths, *options, log=tmp_path / f"{len(started)}.log"))
        return started[-1]

    yield start
    for server in started:
        server.process.kill()
        server.process.wait()


@pytest.fixture(scope="session")
def served(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server of all models that tests share; nothing that a test does to it lasts."""
    paths = [f"{name}={bundles / name}" for name in ("mlp", "root", "centred", "count", "sum")]
    server = Server(*paths, log=tmp_path_factory.mktemp("log") / "log")
    yield server
    server.process.kill()
    server.process.wait()
