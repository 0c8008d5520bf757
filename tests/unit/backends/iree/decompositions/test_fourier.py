"""Fourier transforms as products of matrices: close to torch's own for every kind of size."""

from __future__ import annotations

import pytest
import torch

from aotpipe.backends.iree.decompositions import blas
from aotpipe.errors import UnsupportedOps
from tests.programs.through import check, legal
from tests.sweep import sweep
from tests.unit.backends.iree.decompositions.agree import check_op

SIZES = [1, 2, 3, 8, 31, 64, 67, 96, 400, 512, 1009, 1024]


@pytest.mark.parametrize("size", SIZES)
def test_close_to_torch(size: int) -> None:
    torch.manual_seed(size)
    real, both = torch.randn(2, size), torch.randn(2, size, dtype=torch.complex64)
    close = {"rtol": 1e-4, "atol": 1e-4 * size**0.5}
    torch.testing.assert_close(blas.c2c(both, [1], 0, True), torch.fft.fft(both), **close)
    torch.testing.assert_close(blas.c2c(both, [1], 2, False), torch.fft.ifft(both), **close)
    torch.testing.assert_close(blas.r2c(real, [1], 0, True), torch.fft.rfft(real), **close)
    half = torch.fft.rfft(real)
    torch.testing.assert_close(blas.c2r(half, [1], 2, size), torch.fft.irfft(half, size), **close)


def test_leaves_large_primes_and_double_precision() -> None:
    assert blas.c2c(torch.zeros(5003, dtype=torch.complex64), [0], 0, True) is NotImplemented
    assert blas.r2c(torch.zeros(8, dtype=torch.float64), [0], 0, True) is NotImplemented


@pytest.mark.parametrize(
    "op",
    sweep(
        ["stft", "fft_fft", "fft_ifft2", "fft_rfftn", "fft_irfft", "fft_hfft", "fft_ihfft", "fft_irfftn"],
        quick=2,
    ),
)
def test_equal_to_eager(op: str) -> None:
    check_op(op, "complex64" if op in {"fft_ifft2", "fft_irfft", "fft_irfftn", "fft_hfft"} else "float32")


class Mixing(torch.nn.Module):
    """Tokens mixed by the real part of a transform, and a spectrogram."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, x: torch.Tensor, sound: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mixed = torch.fft.fftn(torch.fft.fftn(x, dim=-1), dim=-2).real
        spectrum = torch.stft(sound, 16, 4, window=self.window, return_complex=True)
        back = torch.fft.irfft(torch.fft.rfft(sound) * 2)
        return mixed, spectrum.abs(), torch.view_as_real(spectrum), back


@pytest.mark.slow
def test_program() -> None:
    torch.manual_seed(0)
    check(Mixing(), (torch.randn(2, 12, 96), torch.randn(2, 64)))


class Inverted(torch.nn.Module):
    """A spectrum, and the sound that it is of."""

    def forward(self, sound: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spectrum = torch.fft.rfft(sound) * 2
        return torch.view_as_real(spectrum), torch.fft.irfft(spectrum)


@pytest.mark.slow
def test_program_of_a_real_transform_and_its_inverse() -> None:
    torch.manual_seed(0)
    check(Inverted(), (torch.randn(2, 6),))


class OfAnySize(torch.nn.Module):
    """Transforms of a size that varies, beside one that does not."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        size, both = x.shape[1], torch.complex(x, x.sin())
        return (
            torch.view_as_real(torch.fft.fft(both, dim=1)),
            torch.fft.ifft(both, dim=1, norm="ortho").imag,
            torch.view_as_real(torch.fft.rfft(x, dim=1, norm="forward")),
            torch.fft.irfft2(torch.fft.rfft2(x) * 2, s=x.shape[1:]),
            torch.fft.irfft(both, n=size, dim=1),
            torch.fft.irfft2(torch.fft.rfft2(x, dim=(2, 1)), s=(6, size), dim=(2, 1), norm="ortho"),
        )


class Filter(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(x, dim=1) * 2, n=x.shape[1], dim=1)


@pytest.mark.parametrize("model", [Filter(), pytest.param(OfAnySize(), marks=pytest.mark.slow)])
def test_program_of_any_size(model: torch.nn.Module) -> None:
    torch.manual_seed(0)
    calls = [(torch.randn(2, size, 6),) for size in (9, 2, 3, 64, 100)]
    check(model, *calls, dynamic_shapes={"x": {1: torch.export.Dim("size", min=2, max=100)}})


def test_leaves_a_size_that_may_be_too_large() -> None:
    class Spectrum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fft.rfft(x).abs()

    dims = {"x": {0: torch.export.Dim("size", min=2, max=8192)}}
    with pytest.raises(UnsupportedOps, match="dynamic or prime size beyond 4096"):
        legal(Spectrum(), (torch.randn(6),), dynamic_shapes=dims)
