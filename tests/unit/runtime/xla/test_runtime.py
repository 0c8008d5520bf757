"""The runner: refusals before anything runs, state kept where a call fails, no torch and no jax."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aotpipe.backends.xla import lowering
from aotpipe.core.stages import Legal, Lowered
from aotpipe.errors import (
    AssertionViolated,
    BundleCorrupt,
    IncompatibleHost,
    InputDtype,
    InputError,
    MissingWeight,
)
from aotpipe.model.torch_arrays import view_numpy
from aotpipe.runtime import tensor_file
from aotpipe.runtime.process import python_path
from aotpipe.runtime.xla import buffers, runtime
from tests.programs import on_xla, through


class Guarded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        torch._assert_async(x.sum() < 100, "too much")
        return self.linear(x) * self.count


@pytest.fixture(scope="module")
def made() -> tuple[Legal, Lowered]:
    torch.manual_seed(0)
    program = through.legal(Guarded(), (torch.ones(1, 4),), dialect="stablehlo")
    return program, lowering.lower(program)


X = np.ones((1, 4), np.float32)


def test_a_violated_assert_leaves_the_state(made: Any) -> None:
    with on_xla.load(*made) as runner:
        first = runner.infer({"x": X})["output"]
        with pytest.raises(AssertionViolated, match="too much"):
            runner.infer({"x": 100 * X})
        np.testing.assert_allclose(runner.infer({"x": X})["output"], 2 * first, rtol=1e-6)
        runner.reset()
        np.testing.assert_array_equal(runner.infer({"x": X})["output"], first)


def test_a_violated_assert_leaves_the_states_that_are_kept_as_the_program_says(made: Any) -> None:
    program, lowered = made
    (entry,) = program.entries
    kept = replace(entry.signature, kept_on_raise=tuple(spec.name for spec in entry.signature.state))
    given = on_xla.given(program, lowered)
    with runtime.load(**{**given, "signatures": {entry.name: kept}}) as runner:
        first = runner.infer({"x": X})["output"]
        with pytest.raises(AssertionViolated, match="too much"):
            runner.infer({"x": 100 * X})
        np.testing.assert_allclose(runner.infer({"x": X})["output"], 3 * first, rtol=1e-6)


def test_a_program_that_checks_its_inputs_has_them_for_itself(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads them for the assert and again for what the assert allows."""
    upload, copied = buffers.Memory.upload_all, []

    def noted(memory: Any, arrays: Any, *args: Any, **options: Any) -> Any:
        copied.extend((array.size, options["copied"]) for array in arrays)
        return upload(memory, arrays, *args, **options)

    with on_xla.load(*made) as runner:
        monkeypatch.setattr(buffers.Memory, "upload_all", noted)
        runner.infer({"x": X})
        assert copied == [(4, True)]


def test_outputs_are_the_callers_own(made: Any) -> None:
    with on_xla.load(*made) as runner:
        output = runner.infer({"x": X})["output"]
        kept = output.copy()
        runner.infer({"x": 2 * X})
    np.testing.assert_array_equal(output, kept)
    output += 1


def test_inputs_are_checked_and_a_closed_runner_refuses(made: Any) -> None:
    runner = on_xla.load(*made)
    with pytest.raises(InputDtype):
        runner.infer({"x": X.astype(np.float64)})
    with pytest.raises(InputError, match="no entry point"):
        runner.infer({"x": X}, entry_point="backward")
    runner.close()
    with pytest.raises(RuntimeError, match="closed"):
        runner.infer({"x": X})


def test_another_version_or_cpu_is_refused_before_the_program_is_loaded(made: Any) -> None:
    with pytest.raises(IncompatibleHost, match=r"jaxlib 0\.0\.1") as caught:
        on_xla.load(*made, toolchain={"jaxlib": "0.0.1"})
    assert caught.value.hint == "pip install jaxlib==0.0.1"
    with pytest.raises(IncompatibleHost, match="avx9"):
        on_xla.load(*made, host_features=["avx9"])


def test_foreign_bytes_and_missing_weights_are_typed(made: Any) -> None:
    program, lowered = made
    given = {"signatures": {"forward": program.entries[0].signature}, "initial_state": {}, "weights": {}}
    with pytest.raises(BundleCorrupt):
        runtime.load(b"no program", **given)
    payload = bytearray(on_xla.payload(lowered))
    payload[-1] ^= 1
    with pytest.raises(BundleCorrupt):
        runtime.load(bytes(payload), **given)
    with pytest.raises(MissingWeight, match="count"):
        runtime.load(on_xla.payload(lowered), **given)
    given["initial_state"] = {"count": np.zeros((), np.int64)}
    with pytest.raises(MissingWeight, match="linear"):
        runtime.load(on_xla.payload(lowered), **given)


def test_a_state_of_no_entry_point_is_ignored(made: Any) -> None:
    program, lowered = made
    arrays = {key: view_numpy(value) for key, value in {**program.weights, **program.initial_state}.items()}
    with runtime.load(
        on_xla.payload(lowered),
        signatures={"forward": program.entries[0].signature},
        weights=arrays,
        initial_state={"count": arrays["count"], "other": np.zeros(3)},
    ) as runner:
        assert np.all(np.isfinite(runner.infer({"x": X})["output"]))


_FORKED = """\
import os, pickle, sys
import numpy as np
from aotpipe.errors import ProgramCrashed
from aotpipe.runtime.xla import runtime

given = pickle.load(open(sys.argv[1], "rb"))
call = {"x": np.ones((1, 4), np.float32)}
with runtime.load(**given) as runner:
    want = runner.infer(call)["output"]
    if not (child := os.fork()):
        try:
            runner.infer(call)
        except ProgramCrashed as error:
            assert "forked" in str(error)
        try:
            runtime.load(**given)
        except ProgramCrashed as error:
            assert "forked" in str(error)
            sys.exit(7)
    _, status = os.waitpid(child, 0)
    runner.reset()
    assert np.array_equal(runner.infer(call)["output"], want)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_is_refused(made: Any, tmp_path: Path) -> None:
    """It waited for the threads of its parent's client, or for a lock that one of them had, for ever."""
    program, lowered = made
    (tmp_path / "given").write_bytes(pickle.dumps(on_xla.given(program, lowered)))
    argv = [sys.executable, "-c", _FORKED, str(tmp_path / "given")]
    assert subprocess.run(argv, timeout=60, env={**os.environ, "PYTHONPATH": python_path()}).returncode == 7


_FORKED_IN_A_CALL = """
import os, pickle, sys, threading, time
import numpy as np
from aotpipe.errors import ProgramCrashed
from aotpipe.runtime.xla import runtime

given = pickle.load(open(sys.argv[1], "rb"))
call = {"x": np.ones((1, 4), np.float32)}
with runtime.load(**given) as runner:
    thread = threading.Thread(target=runner.infer, args=(call,))
    thread.start()
    children = []
    for _ in range(3):
        if not (child := os.fork()):
            try:
                runtime.load(**given)
            except ProgramCrashed:
                os._exit(7)
        children.append(child)
        time.sleep(0.002)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    thread.join()
sys.exit(0 if ended == [7] * 3 and "jax" not in sys.modules else 1)
"""


def test_a_child_that_is_forked_in_the_first_call_is_refused(made: Any, tmp_path: Path) -> None:
    """In the first call of a process jaxlib imported jax under a lock, which the child found locked."""
    (tmp_path / "given").write_bytes(pickle.dumps(on_xla.given(*made)))
    argv = [sys.executable, "-c", _FORKED_IN_A_CALL, str(tmp_path / "given")]
    assert subprocess.run(argv, timeout=60, env={**os.environ, "PYTHONPATH": python_path()}).returncode == 0


def test_it_runs_without_torch_and_jax(made: Any, tmp_path: Path) -> None:
    program, lowered = made
    (tmp_path / "program").write_bytes(on_xla.payload(lowered))
    weights = {**program.weights, **program.initial_state}
    tensor_file.write({key: view_numpy(value) for key, value in weights.items()}, tmp_path / "w")
    signature = json.dumps(program.entries[0].signature.to_json())
    code = f"""
import json, sys
sys.modules["jax"] = sys.modules["torch"] = None
import numpy as np
from pathlib import Path
from aotpipe.runtime import tensor_file as tensors
from aotpipe.runtime.xla import buffers, runtime
from aotpipe.core.signature import Signature
folder = Path({str(tmp_path)!r})
arrays = tensors.read(folder / "w")
signature = Signature.from_json(json.loads({signature!r}))
with runtime.load((folder / "program").read_bytes(), signatures={{"forward": signature}}, weights=arrays,
                  initial_state={{"count": arrays["count"]}}, threads=1) as runner:
    print(runner.infer({{"x": np.ones((1, 4), np.float32)}})["output"].tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=through.ROOT
    )
    with on_xla.load(*made) as runner:
        assert done.stdout.strip() == str(runner.infer({"x": X})["output"].tolist())
