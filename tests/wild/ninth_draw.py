"""A ninth draw, at random from the packages whose name or summary names PyTorch and a kind of model."""

from __future__ import annotations

import torch
from torch import nn

from tests.wild.cases import Made, wild


@wild("torchesnufft", dims={"x": {1: ("points", 1, 24)}, "c": {2: ("points", 1, 24)}})
def fourier_of_points() -> Made:
    from torchesnufft.functional import nufft1

    class Modes(nn.Module):
        def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            return nufft1(x, c, (8, 6))

    return Modes(), ((torch.rand(2, 9) - 0.5) * 6, torch.randn(1, 2, 9, dtype=torch.complex64))


@wild("area-attention", dims={"q": {1: ("queries", 1, 12)}})
def attended_areas() -> Made:
    from area_attention import AreaAttention, MultiHeadAreaAttention

    area = AreaAttention(
        key_query_size=8,
        area_key_mode="max",
        area_value_mode="mean",
        max_area_height=2,
        max_area_width=2,
        memory_height=3,
        memory_width=4,
        top_k_areas=5,
    )
    heads = MultiHeadAreaAttention(area, 2, 16, 8, 12, 6)
    return heads, (torch.randn(2, 5, 16), torch.randn(2, 12, 16), torch.randn(2, 12, 12))


@wild(
    "srf-attention",
    dims={"q": {2: ("length", 1, 24)}, "k": {2: ("length", 1, 24)}, "v": {2: ("length", 1, 24)}},
)
def simplex_features() -> Made:
    from srf_attention.att import Attention

    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = Attention(d=8, causal=False, n_features=8, device="cpu")

        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return self.attention(q, k, v, mode="train", attn_fn="torch", chunk_size=8)

    return Features(), tuple(torch.randn(2, 2, 16, 8) for _ in range(3))


@wild(
    "tabular-transformers",
    "fttransformer",
    dims={"x_categ": {0: ("rows", 1, 8)}, "x_cont": {0: ("rows", 1, 8)}},
)
def tokenized_features() -> Made:
    from fttransformer.model import FeatureTokenizer, TransformerBlock

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = FeatureTokenizer([3, 5], 4, 16)
            self.block = TransformerBlock(16, 2, 0.0, 0.0)

        def forward(self, x_categ: torch.Tensor, x_cont: torch.Tensor) -> torch.Tensor:
            return self.block(self.tokens(x_categ, x_cont)).mean(1)

    return Rows(), (torch.randint(0, 3, (4, 2)), torch.randn(4, 4))


@wild("torch-affine-utils", dims={"angles": {0: ("poses", 1, 16)}, "shifts": {0: ("poses", 1, 16)}})
def composed_poses() -> Made:
    from torch_affine_utils.transforms_3d import Rx, Rz, T

    class Poses(nn.Module):
        def forward(self, angles: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
            return T(shifts) @ Rz(angles, zyx=True) @ Rx(angles * 2, zyx=True)

    return Poses(), (torch.rand(5) * 180, torch.randn(5, 3))


@wild("torch-wavelet-kan", dims={"input": {0: ("batch", 1, 16)}})
def morlet_wavelets() -> Made:
    from torch_wavelet_kan import WaveletKANLayer

    return nn.Sequential(WaveletKANLayer(4, 6), nn.LayerNorm(6), WaveletKANLayer(6, 2)), (torch.randn(5, 4),)


@wild("torchskradon", dims={"image": {0: ("batch", 1, 3)}})
def radon_and_back() -> Made:
    from torchskradon.functional import skiradon, skradon

    class Through(nn.Module):
        def forward(self, image: torch.Tensor, theta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            sinogram = skradon(image, theta=theta, circle=False)
            return sinogram, skiradon(sinogram, theta=theta, circle=False)

    return Through(), (torch.rand(2, 1, 16, 16), torch.arange(0.0, 180.0, 30.0))


@wild("mobius-activations", dims={"input": {0: ("batch", 1, 16)}})
def mobius_groups() -> Made:
    from mobius_activations.torch import MobiusActivation

    return nn.Sequential(
        nn.Linear(4, 6), MobiusActivation(6, mode="grouped", learnable=True), nn.Linear(6, 2)
    ), (torch.randn(5, 4),)


@wild("torchnodo", dims={"u": {0: ("parameters", 1, 32)}, "points": {0: ("points", 4, 12)}})
def spline_derivatives() -> Made:
    from torchnodo import bspline_curve

    class Curve(nn.Module):
        def forward(self, u: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
            return bspline_curve(u, points, degree=3, order=2, periodic=False, clamped=True)

    return Curve(), (torch.rand(9), torch.randn(7, 2))


@wild("torchnodo", dims={"uv": {0: ("samples", 1, 32)}})
def surface_curvatures() -> Made:
    from torchnodo import bspline_surface_curvatures

    class Curvatures(nn.Module):
        def forward(self, uv: torch.Tensor, points: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(
                bspline_surface_curvatures(
                    uv, points, degree=(2, 3), periodic=(True, False), clamped=(False, True)
                )
            )

    return Curvatures(), (torch.rand(9, 2), torch.randn(6, 7, 3))


@wild("pytorch-gmm", dims={"x": {0: ("samples", 2, 32)}})
def mixture_steps() -> Made:
    from pytorch_gmm import GMM

    class Mixture(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            mixture = GMM(torch.full((3,), 1 / 3), torch.eye(3, 2), torch.eye(2).expand(3, 2, 2).clone())
            for _ in range(3):
                mixture._em_(x)
            return mixture.w, mixture.mu, mixture.probability(x)

    return Mixture(), (torch.randn(12, 2),)


@wild("continual-inference", "continual", dims={"clips": {0: ("batch", 1, 4)}})
def continual_convolutions() -> Made:
    import continual as co

    class Stream(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = co.Sequential(co.Conv1d(3, 6, 3), nn.ReLU(), co.AvgPool1d(2, stride=1))

        def forward(self, clips: torch.Tensor) -> torch.Tensor:
            return self.net(clips)

    return Stream(), (torch.randn(2, 3, 12),)


@wild("continual-inference", "continual")
def continual_step() -> Made:
    import continual as co

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = co.Conv1d(3, 6, 3)
            with torch.no_grad():
                for _ in range(3):
                    self.net.forward_step(torch.zeros(2, 3))

        def forward(self, frame: torch.Tensor) -> torch.Tensor:
            return self.net.forward_step(frame)

    return Step(), (torch.randn(2, 3),)


@wild("mlm-pytorch", dims={"seq": {1: ("length", 4, 16)}})
def masked_tokens() -> Made:
    from mlm_pytorch.mlm_pytorch import mask_with_tokens

    class Kept(nn.Module):
        def forward(self, seq: torch.Tensor) -> torch.Tensor:
            kept = mask_with_tokens(seq, [0, 3])
            return seq.masked_fill(kept, 2)

    return Kept(), (torch.randint(0, 9, (2, 7)),)


@wild("torchfactor", dims={"X": {1: ("columns", 1, 16)}})
def factored_matrix() -> Made:
    from torchfactor.factorization.nmfnet import NMFNet

    return NMFNet(6, 3), (torch.rand(6, 9),)


@wild("diffgrf", dims={"points": {0: ("points", 1, 32)}})
def random_field() -> Made:
    from diffgrf import DifferentiableGRF

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.field = DifferentiableGRF("gau", 2, 1.0, [2.0, 1.0], mode_no=40, dtype=torch.float32)

        def forward(self, points: torch.Tensor) -> torch.Tensor:
            return self.field.unstructured(points)

    return Field(), (torch.rand(9, 2) * 10,)


@wild("torch-interpol", "interpol", dims={"image": {0: ("batch", 1, 3)}, "grid": {0: ("batch", 1, 3)}})
def deformed_by_splines() -> Made:
    import interpol

    class Pull(nn.Module):
        def forward(self, image: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
            return interpol.grid_pull(image, grid, interpolation=3, bound="dct2", prefilter=True)

    return Pull(), (torch.randn(2, 1, 8, 9), torch.rand(2, 5, 6, 2) * 8)


@wild("spline-resize")
def resized_volume() -> Made:
    from spline_resize import resize

    class Larger(nn.Module):
        def forward(self, im: torch.Tensor) -> torch.Tensor:
            return resize(im, size=(6, 8, 7))

    return Larger(), (torch.randn(1, 1, 4, 5, 6),)


@wild("torchdae", dims={"y0": {0: ("batch", 1, 4)}})
def implicit_steps() -> Made:
    from torchdae.bdf import bdf1_step

    class Pendulum(nn.Module):
        def forward(self, y0: torch.Tensor) -> torch.Tensor:
            def residual(t: float, y: torch.Tensor, yp: torch.Tensor) -> torch.Tensor:
                return torch.stack([yp[0] - y[1], yp[1] + torch.sin(y[0]), y[2] - y[0] * y[1]])

            y = y0
            for step in range(3):
                y = bdf1_step(residual, 0.1 * (step + 1), 0.1, y, tol=1e-5)
            return y

    return Pendulum(), (torch.randn(2, 3),)


@wild("torch-vectorized", "torchvectorized", dims={"x": {2: ("depth", 1, 6)}})
def symmetric_matrices() -> Made:
    from torchvectorized.utils import sym
    from torchvectorized.vlinalg import vExpm, vLogm

    class Round(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return vLogm(vExpm(sym(x)))

    return Round(), (torch.rand(1, 9, 3, 4, 2),)


@wild("bleu-torch", dims={"logits": {0: ("length", 4, 12)}})
def soft_bleu() -> Made:
    from bleu_torch.bleu_torch import DifferentiableBLEUModule

    class Score(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = DifferentiableBLEUModule(vocab_size=9, max_n=2)

        def forward(self, logits: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
            return self.score(logits, [reference])

    return Score(), (torch.randn(6, 9), torch.randint(0, 9, (7,)))


@wild("kornia", dims={"image": {0: ("batch", 1, 3)}})
def corners() -> Made:
    import kornia

    class Corners(nn.Module):
        def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            grey = kornia.color.rgb_to_grayscale(image)
            response = kornia.feature.gftt_response(grey)
            return kornia.geometry.nms2d(response, (3, 3)), kornia.filters.canny(image)[1]

    return Corners(), (torch.rand(2, 3, 16, 18),)
