"""Other ways to run a model, to be timed beside its programs: each on as many threads, on the same inputs.

    eager            PyTorch, as the model is
    torch.compile    with frozen weights
    onnxruntime      of torch.onnx's export; with `pip install onnxruntime onnxscript`
    openvino         of the same file, in float32; with `pip install openvino onnxscript`

Needs torch.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch

from aotpipe.core.dtypes import Array
from aotpipe.core.signature import Signature
from aotpipe.core.stages import CanonicalEntry
from aotpipe.errors import TargetError
from aotpipe.runtime.store import workspace
from aotpipe.validate.eager.eager import Eager
from aotpipe.validate.timing import Timed

NAMES: Final = ("eager", "torch.compile", "onnxruntime", "openvino")
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "onnxruntime": ("onnxruntime", "onnxscript"),
    "openvino": ("openvino", "onnxscript"),
}


def made(
    names: Iterable[str],
    entries: tuple[CanonicalEntry, ...],
    signatures: Mapping[str, Signature],
    threads: int,
) -> dict[str, Timed]:
    """The named baselines; compiling and loading is part of their first calls.

    Raises:
        TargetError: A package of one is not installed.
    """
    found: dict[str, Timed] = {}
    for name in names:
        if missing := [package for package in _NEEDS.get(name, ()) if not find_spec(package)]:
            raise TargetError(
                f"{name} cannot be timed: {', '.join(missing)} is not installed",
                hint=f"pip install {' '.join(missing)}",
            )
        match name:
            case "eager":
                found[name] = Eager(entries, signatures)
            case "torch.compile":
                found[name] = _Frozen(entries, signatures)
            case "onnxruntime":
                found[name] = _Exported(entries, lambda path: _onnxruntime(path, threads))
            case _:
                found[name] = _Exported(entries, lambda path: _openvino(path, threads))
    return found


class _Frozen(Eager):
    """torch.compile with weights that it may take as constants."""

    def __init__(self, entries: Iterable[CanonicalEntry], signatures: Mapping[str, Signature]) -> None:
        super().__init__(tuple(replace(entry) for entry in entries), signatures)
        # The module is compiled as a function: its attributes stay those of the model.
        self._compiled = {
            name: torch.compile(entry.module, options={"freezing": True})
            for name, entry in self._entries.items()
        }

    def time(
        self, inputs: Mapping[str, Array], *, entry_point: str, samples: int, reset: bool = False
    ) -> list[float]:
        """As eager's."""
        durations = []
        with torch.no_grad(), self._contents:
            for _ in range(samples):
                if reset:
                    self.reset()
                args, kwargs = self._arguments(inputs, entry_point)
                start = time.perf_counter_ns()
                self._compiled[entry_point](*args, **kwargs)
                durations.append((time.perf_counter_ns() - start) / 1000)
        return durations


class _Exported:
    """A model as an ONNX file in another runtime; one without state, whose example it is exported for."""

    def __init__(
        self, entries: Iterable[CanonicalEntry], load: Callable[[Path], Callable[[list[Array]], Any]]
    ) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._load = load
        self._loaded: dict[str, Callable[[list[Array]], Any]] = {}

    def time(
        self, inputs: Mapping[str, Array], *, entry_point: str, samples: int, reset: bool = False
    ) -> list[float]:
        """From host arrays to host arrays; a model with state has none here."""
        if reset:
            raise NotImplementedError("a model with state")
        durations = []
        arrays = list(inputs.values())
        for _ in range(samples):
            start = time.perf_counter_ns()
            if entry_point not in self._loaded:
                self._loaded[entry_point] = self._exported(entry_point)
            self._loaded[entry_point](arrays)
            durations.append((time.perf_counter_ns() - start) / 1000)
        return durations

    def _exported(self, entry_point: str) -> Callable[[list[Array]], Any]:
        entry = self._entries[entry_point]
        args, kwargs = entry.entry.args, dict(entry.entry.kwargs)
        with workspace("onnx") as folder:
            path = folder / "model.onnx"
            with warnings.catch_warnings():
                # torch 2.13 copies a class of its own that it says is deprecated.
                warnings.simplefilter("ignore", FutureWarning)
                torch.onnx.export(entry.module, args, path, kwargs=kwargs, dynamo=True, verbose=False)
            return self._load(path)


def _onnxruntime(path: Path, threads: int) -> Callable[[list[Array]], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))


def _openvino(path: Path, threads: int) -> Callable[[list[Array]], Any]:
    import openvino

    # Its default computes in bfloat16 where the CPU can: another program.
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = openvino.compile_model(path, "CPU", options).create_infer_request()
    return lambda arrays: request.infer(arrays)
