"""Complex intermediate values as pairs: what is left complex, and the numbers."""

from __future__ import annotations

import pytest
import torch
from torch.export import export

from aotpipe import Dim
from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.lower import importer
from aotpipe.core.targets import Target
from aotpipe.passes import complex_parts
from tests.programs import through
from tests.programs.through import check
from tests.sweep import sweep
from tests.unit.passes import legal


class Spectrum(torch.nn.Module):
    """Complex values in every rule, read by their parts, and one that is a result."""

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.fft.rfft(x) * 2
        z = y * torch.exp(1j * x[:, :1])
        mixed = torch.cat([y - 1j, z + x[:, :3], -c], 1).transpose(0, 1)
        chosen = torch.where(x[:, :1] > 0, y, z / 2)
        return (
            y.real,
            torch.view_as_real(z * c),
            z.abs(),
            torch.view_as_real(mixed.contiguous()),
            (c.conj() / y).sum(1).imag,
            chosen,
            (torch.ones(3, dtype=torch.complex64) * y[0]).real,
        )


class Few(torch.nn.Module):
    """What of it takes the compiler little time: a transform takes it seconds."""

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = c * 2
        z = y * torch.exp(1j * x[:, :1])
        return torch.view_as_real(z * c), torch.where(x[:, :1] > 0, y, z / 2)


class Numbers(torch.nn.Module):
    """Complex numbers of Python's as operands, and a convolution, which torch writes with one."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv1d(3, 2, 2, padding=1, dtype=torch.complex64)

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.convolution(c[None]) + (c / (1 + 2j)).sum() - x[0, 0] / (2 - 1j) + (1 - 3j)
        whole = torch.arange(4) / (0.5 + 1.5j)
        return torch.view_as_real(found - 2j + whole), torch.view_as_real((1j - c) * (x[:, :3] / c) * 0.5j)


class Kinds(torch.nn.Module):
    """Whole numbers and halves beside complex ones."""

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n, h = (x[:, :3] * 4).to(torch.int64), x[:, :3].half()
        found = (n / (0.5 + 1j), n * (0.5j), n - 0.5j, n / c, c * h / 3, torch.where(n > 0, n, c))
        return tuple(map(torch.view_as_real, (*found, torch.cat([c, n, h]), (0.3j + n) @ (c + h))))


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(3, 4), torch.randn(3, 3, dtype=torch.complex64)


@pytest.mark.parametrize("model", sweep([Few, Numbers, Spectrum], quick=1))
def test_program(model: type[torch.nn.Module]) -> None:
    check(model(), inputs())


def test_every_rule_gives_eagers_numbers() -> None:
    legal.check(Spectrum(), inputs())
    legal.check(Numbers(), inputs())
    legal.check(Kinds(), inputs())


# torch's own, when it copies a program.
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_leaves_real_programs_alone_and_splits_the_rest() -> None:
    class Turn(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pairs = torch.view_as_complex(x)
            return torch.view_as_real(torch.complex(x[..., 0], x[..., 1]) * pairs[0])

    class Real(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    real = export(Real(), (torch.randn(3),)).run_decompositions()
    assert not complex_parts.split(real.graph_module)
    x = torch.randn(4, 2)
    program = export(Turn(), (x,)).run_decompositions()
    assert complex_parts.split(program.graph_module)
    products = [node for node in program.graph.nodes if node.target is torch.ops.aten.mul.Tensor]
    assert products
    assert not any(node.meta["val"].is_complex() for node in products)
    torch.testing.assert_close(program.module()(x), Turn()(x))


class Double(torch.nn.Module):
    """complex128 beside float64, float32, complex64 and numbers: no part is rounded to float32."""

    def forward(self, z: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        single = z.to(torch.complex64)
        return (
            *(z + x, z * x, z / x, x / z, 0.1 - z, z * 0.1, z + 0.1j, z * z.conj(), z**2, z**x, z - single),
            *(single * x.float(), single * x, torch.cat([z, single]), torch.where(x > 0, z, single)),
            *(
                z.sum(0),
                z.mean(),
                z.abs(),
                z.angle(),
                torch.exp(z),
                torch.log(z),
                torch.sqrt(z),
                torch.tanh(z),
            ),
            *(z @ z.mH, torch.polar(x.abs(), x), z.cumsum(0), single.to(torch.complex128) * z, z == single),
            *(torch.tensor(1j) * x, torch.tensor([[0, -1j], [0.1j, 0]]).to(torch.complex128) @ z[:2]),
            *(torch.full((2,), 0.1 + 0.2j, dtype=torch.complex128), single.sum(0, dtype=torch.complex128)),
        )


def test_numbers_of_double_precision() -> None:
    draw = torch.Generator().manual_seed(0)
    z = torch.randn(3, 4, dtype=torch.complex128, generator=draw)
    program = through.legal(Double(), (z, torch.randn(3, 4, dtype=torch.float64, generator=draw)))
    payload = compiler.compile(importer.lower(program), Target.parse("iree-cpu-host")).payload
    with through.load_payload(program, payload, "local-sync") as runner:
        through.compare(
            runner, program, Double(), (z, torch.randn(3, 4, dtype=torch.float64, generator=draw))
        )


class Rows(torch.nn.Module):
    """A list of which only a run knows the length, as a complex tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, found = torch.zeros(3, dtype=torch.complex64), []
        for row in x:
            state = torch.complex((row + state).real.tanh(), (row + state).imag.tanh())
            found.append(state)
        return torch.stack(found)


def test_parts_have_the_sizes_of_the_whole() -> None:
    """Each part had a size of its own that only a run knows, and torch asked whether they are equal."""
    calls = [(torch.randn(n, 3, dtype=torch.complex64),) for n in (5, 2)]
    legal.check(Rows(), *calls, dynamic_shapes={"x": {0: Dim("n", min=2, max=9)}})
