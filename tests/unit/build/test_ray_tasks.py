"""Compiles as tasks of Ray; only under --all, where ray is installed."""

from __future__ import annotations

import pickle
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import aotpipe
from aotpipe.core.targets import Target
from aotpipe.errors import CompileError, CompileFailed, Interrupted

pytest.importorskip("ray")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # ray's own
    import ray

    from aotpipe.build import ray_tasks

TARGETS = ["iree-cpu-x86_64", "iree-vmvx", "iree-cpu-host"]


@pytest.fixture(scope="module")
def _cluster() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


def built(out: Path, **options: Any) -> aotpipe.Built:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()).eval()
    return aotpipe.build(model, args=(torch.ones(2, 4),), targets=TARGETS, out=out, latency=False, **options)


@pytest.mark.slow
@pytest.mark.usefixtures("_cluster", "own_cache")
@pytest.mark.filterwarnings("ignore")
def test_a_build_by_tasks_gives_the_same_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    run = ray_tasks.compile

    def counting(lowered: Any, target: Target, **options: Any) -> Any:
        sent.append(str(target))
        return run(lowered, target, **options)

    monkeypatch.setattr(ray_tasks, "compile", counting)
    by_tasks = built(tmp_path / "by_tasks", engine="ray")
    assert "iree-vmvx" in sent
    assert "iree-cpu-host" not in sent  # the CPU of another host may be another
    assert {row.status for row in by_tasks.report.targets} == {"executed"}
    sent.clear()
    here = built(tmp_path / "here", cache=False)
    assert here.manifest.digest == by_tasks.manifest.digest
    assert sent == []


@pytest.mark.slow
@pytest.mark.usefixtures("_cluster")
@pytest.mark.filterwarnings("ignore")
def test_what_a_task_raises_is_raised_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: Any = "no module"
    stop = threading.Event()
    with pytest.raises(CompileError, match="no task of Ray gave a program"):
        ray_tasks.compile(lowered, Target.parse("iree-vmvx"), stop, tmp_path, unknown=1)
    monkeypatch.setattr(ray_tasks.toolchain, "tools_digest", lambda: "another")
    with pytest.raises(CompileError, match="has other compilers"):
        ray_tasks.compile(lowered, Target.parse("iree-vmvx"), stop, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("_cluster")
@pytest.mark.filterwarnings("ignore")
def test_a_task_ends_with_its_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_tasks, "_compile", ray.remote(lambda *_: time.sleep(600)))
    stop = threading.Event()
    threading.Timer(1.0, stop.set).start()
    lowered: Any = None
    with pytest.raises(Interrupted):
        ray_tasks.compile(lowered, Target.parse("iree-vmvx"), stop, tmp_path)


def test_a_typed_error_stays_what_it_is_on_its_way() -> None:
    error = CompileFailed("a", reason="b", hint="c", log=Path("d"))
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found)) == (CompileFailed, str(error))
