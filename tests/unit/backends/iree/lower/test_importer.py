"""The module that comes out: functions, weights, constants, locations, digest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aotpipe.backends import legalization
from aotpipe.backends.iree.lower import importer
from aotpipe.core.dims import Dim
from aotpipe.core.stages import Legal
from aotpipe.errors import AssertionViolated, LowerFailed
from aotpipe.model.spec import EntryPoint
from aotpipe.runtime.iree import runtime
from tests.programs.through import check, legal, load

X = torch.linspace(-1.0, 1.0, 12).reshape(4, 3)


class Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return torch.relu(self.linear(x))


class Counter(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.count += 1
        return self.linear(x) + self.count


class Branches(Linear):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    def other(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.linear(x), lambda x: x * 3, (x,))


def bare(program: Legal) -> str:
    return re.sub(r" loc\(.*?\)+", "", importer.lower(program).module.decode())


def test_an_entry_point_is_a_function_of_state_and_inputs() -> None:
    text = bare(legal(Counter(), (X,)))
    signature = next(line for line in text.splitlines() if "func.func" in line)
    arguments, results = signature.split("->")
    assert re.search(r"public @forward\(%arg0: \S+<\[\],si64>.*%arg1: \S+<\[4,3\],f32>", arguments)
    assert re.search(r"<\[4,3\],f32>, \S+<\[\],si64>", results)


class HandsOn(torch.nn.Module):
    def forward(self, x):
        return x


def test_a_dtype_that_the_importer_lacks_is_named() -> None:
    program = legal(HandsOn(), (torch.ones(2, dtype=torch.uint64),))
    with pytest.raises(LowerFailed, match="forward takes or gives uint64"):
        importer.lower(program)


def test_weights_are_parameters_by_their_key() -> None:
    program = legal(Linear(), (X,))
    text = bare(program)
    for key in program.weights:
        assert f'#flow.parameter.named<"{importer.PARAMETER_SCOPE}"::"{key}">' in text
    assert text.count("util.global private") == len(program.weights)


def test_entry_points_share_weights_but_not_branches() -> None:
    model = Branches()
    points = {name: EntryPoint(args=(X,), method=name) for name in ("forward", "other")}
    from aotpipe.canonicalize import canonicalize
    from aotpipe.export import export
    from aotpipe.model import spec
    from aotpipe.passes import legalize

    program = legalize(export(canonicalize(spec.as_spec(model.eval(), entry_points=points))), legalization())
    lowered = importer.lower(program)
    assert lowered.entry_points == ("forward", "other")
    with load(program, lowered) as runner:
        for x in (X + 1, X - 1):
            for name in points:
                (value,) = runner.infer({"x": x.numpy()}, entry_point=name).values()
                expected = getattr(model, name)(x).detach()
                torch.testing.assert_close(torch.from_numpy(value), expected)


def test_the_same_model_gives_the_same_digest_and_leaves_the_legal_program_as_it_was() -> None:
    program = legal(Branches(), (X,))
    before = program.entries[0].graph.print_readable(print_output=False)
    first, second = importer.lower(program), importer.lower(program)
    assert first == second
    assert program.entries[0].graph.print_readable(print_output=False) == before
    assert importer.lower(legal(Branches(), (X,))).digest == first.digest
    assert importer.lower(legal(Linear(), (X,))).digest != first.digest


SCRIPT = """
import torch
from aotpipe.backends.iree.lower import importer
from tests.programs.through import legal
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(()))
    def forward(self, x):
        self.count.add_(1)
        y = x * torch.tensor([1.0, 2.0, 3.0])
        chosen = torch.cond(x.sum() > 0, lambda x: self.linear(x), lambda x: x * torch.tensor(2.0), (y,))
        return chosen, x[x > 0]
found = importer.lower(legal(Model(), (torch.ones(4, 3),))).digest
print(found)
"""


@pytest.mark.slow
def test_another_process_in_another_folder_gives_the_same_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    root = str(Path(__file__).parents[5])
    other = subprocess.run(
        [sys.executable, "-W", "ignore", script.name],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": root, "OMP_NUM_THREADS": "1", "PATH": "", "HOME": str(tmp_path)},
    )
    monkeypatch.chdir(root)
    found: dict[str, Any] = {}
    exec(compile(SCRIPT, "elsewhere/other.py", "exec"), found)
    assert len(found["found"]) == 64
    assert found["found"] == other.stdout.strip()


def test_ops_carry_the_users_line_and_the_digest_does_not() -> None:
    source = "def forward(self, x):\n    return x.sin()\n"

    def lowered(path: str) -> Any:
        scope: dict[str, Any] = {}
        exec(compile(source, path, "exec"), scope)
        return importer.lower(legal(type("Model", (torch.nn.Module,), scope)(), (X,)))

    one, two = lowered("/one/model.py"), lowered("/two/model.py")
    assert b"/one/model.py" in one.module
    assert one.digest == two.digest


DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool),
]


def values(dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        return torch.randn(2, 3, generator=generator).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 9, (2, 3), generator=generator).to(dtype)


class Held(torch.nn.Module):
    """Weights, constants and inputs of one dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("held", values(dtype))
        self.register_buffer("none", values(dtype)[:0])
        self.register_buffer("single", values(dtype)[0, 1].clone())

    def forward(self, x):
        return torch.where(x == self.held, x, self.single), torch.cat([x, self.none]), self.held.clone()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_read_from_weights_and_inputs(dtype: torch.dtype) -> None:
    check(Held(dtype), (values(dtype).flip(0),))


class Small(torch.nn.Module):
    """A weight of a dtype that nothing is computed in."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("held", values(torch.float32).to(dtype))

    def forward(self, x):
        return x + self.held.to(torch.float32)


class Each(torch.nn.Module):
    """Models that have an input each, as one."""

    def __init__(self, *models: torch.nn.Module) -> None:
        super().__init__()
        self.models = torch.nn.ModuleList(models)

    def forward(self, *inputs):
        return [model(x) for model, x in zip(self.models, inputs, strict=True)]


def test_dtypes_of_one_program_are_read_from_weights_and_inputs() -> None:
    some = [torch.float32, torch.bfloat16, torch.int32, torch.bool]
    inputs = tuple(values(dtype).flip(0) for dtype in some)
    small = [Small(torch.float8_e4m3fn), Small(torch.float8_e5m2)]
    check(Each(*map(Held, some), *small), (*inputs, *[values(torch.float32)] * 2))


def test_complex_weights_multiply() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", torch.complex(values(torch.float32), values(torch.float32) * 2))

        def forward(self, x):
            return x * self.held * torch.tensor([1j, 2.0, 1 + 1j])

    check(Model(), (torch.complex(values(torch.float32), values(torch.float32)),))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 3), (1, 1)], ids=str)
def test_a_constant_of_any_dtype_and_shape_is_text_that_parses(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    value = torch.ones(shape).to(dtype)
    with importer.ir.Context() as context:
        element = importer._UserLines(context).dtype_to_type(dtype)
        dims = ",".join(map(str, shape))
        constant = f"torch.vtensor.literal({importer._dense(value, element)})"
        text = f"func.func @f() {{ %0 = {constant} : !torch.vtensor<[{dims}],{element}> return }}"
        assert importer.ir.Module.parse(text).operation.verify()


def test_sizes_in_height_and_width_may_vary() -> None:
    torch.manual_seed(0)
    model = torch.nn.Conv2d(3, 4, 3, stride=2)
    sizes = {"input": {2: Dim("height", min=4, max=32), 3: Dim("width", min=4, max=32)}}
    calls = [(torch.randn(1, 3, height, width),) for height, width in ((16, 12), (4, 32), (5, 4))]
    check(model, *calls, dynamic_shapes=sizes)


@pytest.mark.parametrize("large_bytes", [1, 1 << 30], ids=["kept buffer", "new buffer"])
def test_a_row_that_a_failed_call_wrote_to_the_state_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, large_bytes: int
) -> None:
    monkeypatch.setattr(runtime, "_LARGE_BYTES", large_bytes)

    class Cache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(64, 8))

        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            self.rows.index_copy_(0, at, x)
            torch._assert_async((x < 50).all(), "too large")
            return self.rows.sum()

    program = legal(Cache(), (torch.ones(1, 8), torch.tensor([1])))
    with load(program, importer.lower(program)) as runner:

        def call(value: float, at: int) -> float:
            inputs = {"x": np.full((1, 8), value, np.float32), "at": np.array([at])}
            return float(runner.infer(inputs)["output"])

        for written in range(1, 5):
            assert call(1, written) == 8 * written
            with pytest.raises(AssertionViolated, match="too large"):
                call(100, 7)
        runner.reset()
        assert call(1, 1) == 8


def test_states_that_share_a_buffer_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_LARGE_BYTES", 1)

    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("now", torch.zeros(64))
            self.register_buffer("before", torch.zeros(64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._assert_async((x < 50).all(), "too large")
            old = self.now + 0
            self.now.copy_(torch.where(x > 0, self.now + x, self.before))
            self.before.copy_(torch.where(x > 0, old, self.now))
            return self.now.sum() - self.before.sum() * 3

    calls = [(torch.tensor(float(value)),) for value in (1, 2, -1, 3, -1, -1, 2, 1)]
    model = Twice().eval()
    program = legal(model, calls[0])
    with load(program, importer.lower(program)) as runner:
        for (x,) in calls:
            assert float(runner.infer({"x": x.numpy()})["output"]) == float(model(x))
