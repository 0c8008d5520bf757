import ctypes
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from aotpipe.core.signature import Signature, Symbol, TensorSpec
from aotpipe.errors import IncompatibleHost
from aotpipe.runtime.iree import devices
from tests import programs

SMALL = np.zeros(4, np.float32)
LARGE = np.zeros(1 << 20, np.uint8)


def signature(text, *symbols):
    return Signature(inputs=(TensorSpec.parse(text),), outputs=(), symbols=tuple(map(Symbol.parse, symbols)))


ROWS = signature("x: float32[n, 64]", "n=1..64")


@pytest.mark.parametrize(
    ("inputs", "weight", "state", "threads", "cores", "driver"),
    [
        (ROWS, SMALL, SMALL, None, 8, "local-sync"),
        (ROWS, LARGE, SMALL, None, 8, "local-task"),
        (ROWS, SMALL, LARGE, None, 8, "local-task"),
        (ROWS, LARGE, SMALL, 4, 1, "local-task"),
        (ROWS, LARGE, SMALL, None, 1, "local-sync"),
        (ROWS, LARGE, SMALL, 1, 8, "local-sync"),
        (signature("x: float32[n, 32]", "n=1.."), SMALL, SMALL, None, 8, "local-sync"),
        (signature("x: float32[1, 3, 224, 224]"), SMALL, SMALL, None, 8, "local-task"),
        (signature("x: float32[1, 3, h, w]", "h=12..", "w=12.."), SMALL, SMALL, None, 8, "local-task"),
        (signature("x: float32[8 // (n - 64)]", "n=1..64"), SMALL, SMALL, None, 8, "local-sync"),
        (signature("x: float32[unknown]"), SMALL, SMALL, None, 8, "local-sync"),
    ],
)
def test_the_driver_suits_the_model_and_the_machine(
    monkeypatch, inputs, weight, state, threads, cores, driver
):
    monkeypatch.setattr(devices, "cores", lambda: cores)
    assert devices.choose([inputs], {"w": weight}, {"s": state}, threads) == driver


def test_a_program_that_waits_for_its_kernels_stays_on_one_thread_longer(monkeypatch):
    monkeypatch.setattr(devices, "cores", lambda: 8)
    for megabytes, waits, driver in [
        (2, False, "local-task"),
        (2, True, "local-sync"),
        (8, True, "local-task"),
    ]:
        weights = {"w": np.zeros(megabytes << 20, np.uint8)}
        assert devices.choose([ROWS], weights, {}, None, waits=waits) == driver


@pytest.mark.parametrize(
    ("products", "threads", "driver"),
    [
        ((5_000_000,), 2, "local-sync"),
        ((60_000_000,), 2, "local-task"),
        ((12_000_000,), 2, "local-sync"),
        ((12_000_000,), 16, "local-task"),
        ((5_000_000,), 16, "local-sync"),
        ((1000, 60_000_000), 2, "local-task"),
        ((1000, 0), 2, "local-task"),
    ],
)
def test_few_products_stay_on_one_thread(products, threads, driver):
    signatures = [replace(ROWS, products=each) for each in products]
    assert devices.choose(signatures, {"w": LARGE}, {}, threads) == driver


def test_devices_are_made_once():
    assert devices.device("local-sync") is devices.device("local-sync", threads=3)
    assert devices.device("local-task", threads=1) is devices.device("local-task", threads=1)
    assert devices.device("local-task", threads=1) is not devices.device("local-task", threads=2)
    assert devices.instance() is devices.instance()


def test_a_driver_that_is_not_there():
    with pytest.raises(IncompatibleHost, match="'none' does not work"):
        devices.device("none")


COUNT = """
import os, sys
from aotpipe.runtime.iree import devices
def count():
    return len(os.listdir("/proc/self/task"))
devices.device("local-sync")
before = count()
devices.device("local-task", threads=1)
one = count() - before
devices.device("local-task", threads=3)
print(count() - before - 2 * one)
"""


def test_a_device_has_the_threads_that_were_asked_for():
    """Also the second one, whatever the first was asked."""
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 2


def test_what_a_host_lacks_is_named_with_its_remedy():
    assert devices.why_unavailable("local-sync") == ""
    assert devices.names("local-sync") == ("default",)
    assert "that of macOS has it" in devices.why_unavailable("metal")
    assert devices.names("metal") == ()


@pytest.mark.parametrize(("arch", "lacks"), [("sm_80", False), ("sm_90", False), ("sm_100", True)])
def test_a_gpu_must_be_as_new_as_the_program(monkeypatch, arch, lacks):
    monkeypatch.setattr(devices, "_found", lambda driver: (("a GPU",), ""))
    monkeypatch.setattr(devices, "cuda_capability", lambda: 90)
    found = devices.why_unavailable.__wrapped__("cuda", arch)
    assert found == (f"it is for {arch} and newer, and this GPU is sm_90" if lacks else "")


def test_only_the_hosts_own_drivers_share_its_memory():
    assert devices.shares_memory("local-task")
    assert not devices.shares_memory("vulkan")


SUM = """
  func.func @forward(%x: !torch.vtensor<[?],f32>) -> !torch.vtensor<[],f32>
      attributes {torch.assume_strict_symbolic_shapes} {
    %none = torch.constant.none
    %sum = torch.aten.sum %x, %none : !torch.vtensor<[?],f32>, !torch.none -> !torch.vtensor<[],f32>
    return %sum : !torch.vtensor<[],f32>
  }"""


_HOLDS = """
import resource, sys
from pathlib import Path
import numpy as np
from aotpipe.runtime.iree import runtime
from aotpipe.core.signature import Signature, Symbol, TensorSpec

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt * resource.getpagesize()

signature = Signature(
    inputs=(TensorSpec.parse("x: float32[n]"),),
    outputs=(TensorSpec.parse("sum: float32[]"),),
    symbols=(Symbol.parse("n=1.."),),
)
given = {"signatures": {"forward": signature}, "weights": {}, "initial_state": {}, "driver": sys.argv[2]}
x = np.ones(1 << 24, np.float32)
with runtime.load(Path(sys.argv[1]).read_bytes(), **given) as runner:
    for _ in range(2):
        assert runner.infer({"x": x})["sum"] == 1 << 24
    before = faults()
    runner.infer({"x": x})
    assert faults() - before < x.nbytes / 16
    held = resident_bytes()
    assert runner.infer({"x": x[:4]})["sum"] == 4
    assert held - resident_bytes() > x.nbytes / 2
    runner.infer({"x": x})
    held = resident_bytes()
assert held - resident_bytes() > x.nbytes / 2
"""


@pytest.mark.parametrize("driver", ["local-sync", pytest.param("local-task", marks=pytest.mark.slow)])
def test_a_call_of_the_same_sizes_takes_the_memory_of_the_one_before(driver, tmp_path):
    """In a process of its own: where the heap has room for it, freeing a buffer gives the system nothing."""
    (tmp_path / "program").write_bytes(programs.compile_text(f"module @sum {{{SUM}\n}}\n"))
    command = [sys.executable, "-c", _HOLDS, tmp_path / "program", driver]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Library:
    """A driver with one GPU of compute capability 9.0."""

    status = 0

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return self.status

    def cuDeviceGetAttribute(self, value: ctypes.Array, attribute: int, device: int) -> int:  # noqa: N802
        value._obj.value = {75: 9, 76: 0}[attribute]
        return 0


def test_the_capability_of_the_first_gpu() -> None:
    assert devices.cuda_capability(Library()) == 90


def test_a_driver_that_refuses() -> None:
    refusing = Library()
    refusing.status = 100
    with pytest.raises(IncompatibleHost, match="does not answer") as caught:
        devices.cuda_capability(refusing)
    assert caught.value.reason == "CUDA error 100"


def test_a_machine_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(f"{name}: cannot open")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    with pytest.raises(IncompatibleHost, match="no NVIDIA driver"):
        devices.cuda_capability()


class Cuda:
    """A `libcuda` whose context is current in the thread that made it alone."""

    def __init__(self, refuses=0):
        self.current, self.refuses = {threading.get_ident(): 7}, refuses

    def cuCtxGetCurrent(self, context):  # noqa: N802  # CUDA's own name
        context._obj.value = self.current.get(threading.get_ident())
        return 0

    def cuCtxSetCurrent(self, context):  # noqa: N802
        self.current[threading.get_ident()] = context.value
        return self.refuses


def test_every_thread_enters_the_context_that_cuda_made(monkeypatch):
    cuda = Cuda()
    monkeypatch.setattr(devices, "_cuda", lambda: cuda)
    monkeypatch.setattr(devices, "_contexts", {})
    devices.enter("cuda")
    devices._note_context("local-sync")
    assert devices._contexts == {}
    devices._note_context("cuda")
    other = threading.Thread(target=devices.enter, args=("cuda",))
    other.start()
    other.join()
    assert list(cuda.current.values()) == [7, 7]
    monkeypatch.setattr(devices, "_cuda", lambda: Cuda(refuses=201))
    with pytest.raises(IncompatibleHost, match="201"):
        devices.enter("cuda")


def test_cuda_keeps_the_buffers_of_a_call(monkeypatch):
    asked = []
    driver = type("Driver", (), {"create_default_device": lambda self, allocators: asked.append(allocators)})
    monkeypatch.setattr(devices, "create_hal_driver", lambda name: driver())
    monkeypatch.setattr(devices, "_note_context", lambda name: None)
    for name in ("cuda", "local-sync", "vulkan"):
        devices._create(name, None)
    assert asked == [["caching"], ["caching"], None]
