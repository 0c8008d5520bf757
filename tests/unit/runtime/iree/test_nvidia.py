"""The NVIDIA driver's library is asked as its manual says; a library that is none, and one that refuses."""

from __future__ import annotations

import ctypes

import pytest

from aotpipe.errors import IncompatibleHost
from aotpipe.runtime.iree import nvidia


class Library:
    """A driver with one GPU of compute capability 9.0."""

    status = 0

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return self.status

    def cuDeviceGetAttribute(self, value: ctypes.Array, attribute: int, device: int) -> int:  # noqa: N802
        value._obj.value = {75: 9, 76: 0}[attribute]
        return 0


def test_the_capability_of_the_first_gpu() -> None:
    assert nvidia.capability(Library()) == 90


def test_a_driver_that_refuses() -> None:
    refusing = Library()
    refusing.status = 100
    with pytest.raises(IncompatibleHost, match="does not answer") as caught:
        nvidia.capability(refusing)
    assert caught.value.reason == "CUDA error 100"


def test_a_machine_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(f"{name}: cannot open")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    with pytest.raises(IncompatibleHost, match="no NVIDIA driver"):
        nvidia.capability()
