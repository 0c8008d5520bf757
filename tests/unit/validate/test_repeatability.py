"""A model that gives another answer to the same call is refused, with the line that draws a number."""

from __future__ import annotations

import datetime as dt
import os
import platform
import random
import resource
import secrets
import socket
import sys
import threading
import time
import uuid
import warnings
from pathlib import Path
from time import perf_counter_ns

import numpy as np
import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.errors import NotRepeatable
from aotpipe.model.spec import as_spec
from aotpipe.validate.eager.eager import Eager
from aotpipe.validate.inputs import Call
from aotpipe.validate.repeatability import require_repeatable

X = torch.tensor([1.0, -0.5, 0.25, 2.0])


def asked(function):
    """Ask eager twice, as a build does; gives the warnings."""

    class Model(torch.nn.Module):
        def forward(self, x):
            return function(x)

    canonical = canonicalize(as_spec(Model().eval(), args=(X,)))
    eager = Eager(canonical.entries)
    call = Call(entry_point="forward", case="example", reset=True, inputs={"x": X.numpy()})
    return require_repeatable(eager, [(call, eager.infer(call.inputs))])


VARYING = {
    "random.random": lambda x: x * random.random(),
    "random.choice": lambda x: x * random.choice(range(100_000)),
    "np.random.rand": lambda x: x + np.random.rand(),
    "an array": lambda x: x * torch.tensor(np.random.rand(4), dtype=torch.float32),
    "a shuffle": lambda x: x + torch.tensor(random.sample(range(1000), 4)),
    "torch.rand": lambda x: x + torch.rand(4),
    "torch.randperm": lambda x: x + torch.randperm(1000)[:4],
    "secrets": lambda x: x * secrets.randbelow(1_000_000),
    "os.urandom": lambda x: x * int.from_bytes(os.urandom(4), "big"),
    "uuid": lambda x: x * (uuid.uuid4().int % 1_000_003),
    "time.time": lambda x: x + time.time(),
    "a clock by its own name": lambda x: x + perf_counter_ns(),
    "datetime": lambda x: x + dt.datetime.now(dt.UTC).microsecond,
    "the year": lambda x: x + dt.datetime.utcnow().year // 20,  # noqa: DTZ003
    "the hour": lambda x: x + dt.datetime.today().hour,  # noqa: DTZ002
    "the date": lambda x: x + dt.date.today().year,  # noqa: DTZ011
    "the process": lambda x: x * (os.getpid() % 1000),
    "the thread": lambda x: x * (threading.get_ident() % 1009),
    "the host": lambda x: x + len(socket.gethostname()),
    "the host's name": lambda x: x + len(platform.node()),
    "an identity": lambda x: x * (id(x) % 1_000_003),
    "the hash of a string": lambda x: x * (hash(("a", 1)) % 1009),
    "the calendar": lambda x: x + time.localtime().tm_yday,
    "the calendar as a text": lambda x: x + int(time.strftime("%j")),
    "cores": lambda x: x + os.cpu_count(),
    "threads of torch": lambda x: x + torch.get_num_threads(),
    "the folder": lambda x: x + len(os.getcwd()),  # noqa: PTH109
    "the load": lambda x: x + os.getloadavg()[0],
    "memory": lambda x: x * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss % 97),
    "arguments": lambda x: x + len(sys.argv),
    "an attribute of a class": lambda x: x * counted(),
}


class Counter:
    calls = 0


def counted() -> int:
    Counter.calls += 1
    return Counter.calls


OF_TORCH = ("torch.rand", "torch.randperm")


@pytest.mark.parametrize("name", VARYING)
def test_what_varies_is_refused_with_its_line(name) -> None:
    function = VARYING[name]
    with pytest.raises(NotRepeatable, match="another answer to the same call") as raised:
        asked(function)
    if name == "an attribute of a class":
        assert raised.value.where is not None
        assert raised.value.where.line == counted.__code__.co_firstlineno + 1
    elif name not in OF_TORCH:  # a program has no such op: the model is refused with the op's line before
        assert raised.value.where is not None
        assert raised.value.where.line == function.__code__.co_firstlineno


def timed(x):
    start = time.perf_counter()
    y = x * 2
    return y, time.perf_counter() - start > 1e5 and False


def with_noise_that_does_not_count(x):
    return x * 2 if random.random() < 2 else x


KNOWN: dict[int, float] = {}


def looked_up_by_identity(x):
    return x * KNOWN.setdefault(id(KNOWN), 2.0) * (hash((1, 2.5)) % 7)


@pytest.mark.parametrize(
    "function", [with_noise_that_does_not_count, looked_up_by_identity, lambda x: x.sum()]
)
def test_the_same_answer_is_no_matter(function) -> None:
    assert asked(function) == ()


def test_what_another_process_may_read_otherwise_is_said() -> None:
    codes = [each.code for each in asked(lambda x: x * (len(os.environ.get("AOTPIPE_NONE", "a")) > 0))]
    assert codes == ["baked-environment"]
    assert [each.code for each in asked(timed)] == ["baked-time", "baked-time"]
    assert [each.code for each in asked(lambda x: x * (os.getpid() > 0))] == ["baked-process"]
    assert not {"id", "hash"} & globals().keys()


@pytest.mark.parametrize("value", [None, "3", "1.5", "on", "word"])
def test_an_answer_that_depends_on_the_environment_is_refused(monkeypatch, value) -> None:
    if value is not None:
        monkeypatch.setenv("AOTPIPE_ASKED", value)
    function = lambda x: x * sum(map(ord, os.getenv("AOTPIPE_ASKED", "none")))  # noqa: E731
    with pytest.raises(NotRepeatable, match="reads the environment") as raised:
        asked(function)
    assert raised.value.where is not None
    assert raised.value.where.line == function.__code__.co_firstlineno
    assert os.getenv("AOTPIPE_ASKED") == value


def test_what_raises_with_another_value_is_said_only(monkeypatch) -> None:
    monkeypatch.setenv("AOTPIPE_ASKED", "word")
    found = asked(lambda x: x * {"word": 2}[os.environ["AOTPIPE_ASKED"]])
    assert [each.code for each in found] == ["baked-environment"]


OF_FILES = {
    "Path.read_text": lambda x: x * float(FILE.read_text()),
    "numpy.loadtxt": lambda x: x * float(np.loadtxt(FILE)),
    "os.path.exists": lambda x: x * (2 if os.path.exists(FILE) else 3),  # noqa: PTH110
    "Path.is_file": lambda x: x * (2 if FILE.is_file() else 3),
    "os.stat": lambda x: x * (FILE.stat().st_mtime % 100),
    "os.listdir": lambda x: x * len(os.listdir(FILE.parent)),  # noqa: PTH208
    "Path.glob": lambda x: x * len(list(FILE.parent.glob("*.txt"))),
}
FILE = Path()


@pytest.mark.parametrize("name", OF_FILES)
def test_a_file_that_each_call_reads_is_refused_with_its_line(name, tmp_path, monkeypatch) -> None:
    path = tmp_path / "scale.txt"
    path.write_text("3")
    monkeypatch.setitem(globals(), "FILE", path)
    function = OF_FILES[name]
    with pytest.raises(NotRepeatable, match="reads files in each call") as raised:
        asked(function)
    assert raised.value.where is not None
    assert raised.value.where.line == function.__code__.co_firstlineno


def test_a_file_that_the_first_call_reads_is_said_only(tmp_path) -> None:
    path = tmp_path / "scale.txt"
    path.write_text("3")
    kept = []

    def lazily(x):
        if not kept:
            kept.append(float(path.read_text()))
        return x * kept[0]

    kept.clear()
    assert asked(lazily) == ()


def test_a_file_that_came_with_a_package_is_part_of_it(tmp_path) -> None:
    """A package's tables change with its code alone: torchrtm reads its own in each call."""
    path = tmp_path / "site-packages" / "made" / "table.csv"
    path.parent.mkdir(parents=True)
    path.write_text("3")

    def reading(x):
        return x * float(path.read_text()) if path.exists() and os.path.getsize(path) else x  # noqa: PTH202

    assert {each.code for each in asked(reading)} == {"file-at-build"}


def test_a_file_that_is_written_is_no_matter(tmp_path) -> None:
    def logging(x):
        with open(tmp_path / "log.txt", "a") as file:  # noqa: PTH123
            file.write("called")
        return x * 2

    assert [each.code for each in asked(logging)] == ["file-at-build"]


def test_a_warning_that_shows_its_line_reads_no_file_of_the_model() -> None:
    def warning(x):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("that is large", stacklevel=1)
        return x * 2

    with pytest.warns(UserWarning, match="that is large"):
        assert asked(warning) == ()


def test_generators_and_clocks_are_as_before() -> None:
    states = random.getstate(), torch.get_rng_state(), np.random.get_state()[1].copy()
    clock = time.time
    with pytest.raises(NotRepeatable):
        asked(lambda x: x + perf_counter_ns())
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert (np.random.get_state()[1] == states[2]).all()
    assert time.time is clock
    assert perf_counter_ns is time.perf_counter_ns
