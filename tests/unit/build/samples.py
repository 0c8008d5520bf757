"""A prepared model, and stage results, made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aotpipe.backends.iree.compile import compiler
from aotpipe.build.chain import write_weights
from aotpipe.build.prepared import Prepared
from aotpipe.core.estimate import Estimate
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.core.stages import Compiled, CompileStats, Finding, Lowered
from aotpipe.core.targets import Target
from aotpipe.errors import Buffer, CompileFailed, SourceLine
from aotpipe.runtime.goldens import Golden
from aotpipe.runtime.store import digest
from aotpipe.validate import Loadable

SIGNATURE = Signature(
    inputs=(TensorSpec("x", "float32", (2,)),),
    outputs=(TensorSpec("y", "float32", (2,)),),
    state=(TensorSpec("count", "int64", ()),),
)
LOWERED = Lowered(
    dialect="torch",
    module=b"module {}",
    entry_points=("forward",),
    digest="1" * 64,
    largest={"forward": (Buffer("weight", "w", 24), Buffer("result", "y", 8, SourceLine("m.py", 3)))},
    remarks={"tpu": "slowly"},
)


def prepared(folder: Path) -> Prepared:
    weights = {"w": np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3), "b": np.ones(2, np.float32)}
    state = {"count": np.array(3)}
    x = np.ones(2, np.float32)
    return Prepared(
        name="tiny",
        lowered={"iree": LOWERED},
        loadable=Loadable(
            signatures={"forward": SIGNATURE},
            weights=write_weights(weights, state, folder),
            initial_state=state,
            asserts={"forward": ("x is small",)},
        ),
        goldens=(
            Golden(
                entry_point="forward",
                case="example",
                reset=True,
                inputs={"x": x},
                outputs={"y": x},
                allowed={},
            ),
        ),
        findings=(Finding(severity="note", code="some-code", message="look", where=SourceLine("m.py", 2)),),
        digest="2" * 64,
    )


def compiled(target: str = "iree-vmvx") -> Compiled:
    return Compiled(
        target=Target.parse(target),
        payload=b"program of " + target.encode(),
        flags=("--a", "--b"),
        toolchain={"iree-base-compiler": "3.13.0"},
        host_features=(),
        digest=digest(target),
        stats=CompileStats(wall_s=1.5, peak_rss_bytes=1000),
        notes=("slowly",),
        estimates=(Estimate(entry_point="forward", sizes={"batch": 2}, flops=6, bytes_accessed=24),),
    )


class Compiler:
    """Stands in for the real one; counts what it is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.settings: dict[str, Any] = {}
        self.failing: set[Target] = set()
        monkeypatch.setattr(compiler, "compile", self.compile)

    def compile(self, lowered: Lowered, target: Target, **settings: Any) -> Compiled:
        self.calls.append(str(target))
        self.settings = settings
        if target in self.failing:
            raise CompileFailed(f"no {target}")
        return compiled(str(target))
