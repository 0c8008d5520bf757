"""A tenth draw, at random from the packages whose name or summary names torch.

`random.Random(10).shuffle` of the rows of the package list of November 2026 that name torch, are from 2022 or
later, and are in no earlier draw; then the first that give modules or functions of torch, and import here.
"""

from __future__ import annotations

import torch
from torch import nn

from models._vision import make_torchvision_importable
from tests.wild.cases import Made, wild


@wild("gpytorch-qr", dims={"x": {0: ("points", 1, 24)}})
def quantile_process() -> Made:
    import gpytorch
    from gpytorch_qr.models import DirectQuantileGP

    class Quantiles(DirectQuantileGP):
        def __init__(self) -> None:
            latents, tasks = torch.Size([2]), 3
            distribution = gpytorch.variational.CholeskyVariationalDistribution(6, batch_shape=latents)
            strategy = gpytorch.variational.LMCVariationalStrategy(
                gpytorch.variational.VariationalStrategy(
                    self, torch.rand(2, 6, 1), distribution, learn_inducing_locations=True
                ),
                num_tasks=tasks,
                num_latents=2,
            )
            mean = gpytorch.means.ConstantMean(batch_shape=latents)
            kernel = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.RBFKernel(batch_shape=latents), batch_shape=latents
            )
            super().__init__(strategy, mean, kernel)

    class Predicted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.process = Quantiles()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.process.mean_quantiles(x)

    return Predicted(), (torch.rand(7, 1),)


@wild("torchspin", dims={"spectra": {0: ("batch", 1, 8)}, "field": {0: ("points", 8, 64)}})
def resampled_spectra() -> Made:
    from torchspin.ml import cosine_loss, normalize, resample, rmsd

    class Compared(nn.Module):
        def forward(
            self, spectra: torch.Tensor, field: torch.Tensor, measured: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            axis = torch.linspace(330.0, 350.0, spectra.shape[-1], dtype=torch.float64)
            seen = normalize(resample(axis, field, measured), "maxabs")
            found = normalize(spectra, "maxabs")
            return cosine_loss(found, seen), rmsd(found, seen)

    field = torch.linspace(329.0, 351.0, 40, dtype=torch.float64)
    return Compared(), (
        torch.randn(3, 32, dtype=torch.float64),
        field,
        torch.randn(3, 40, dtype=torch.float64)[0],
    )


@wild("torchspin", dims={"spectrum": {0: ("points", 8, 64)}})
def modulated_spectrum() -> Made:
    from torchspin.dataproc import fieldmod_t

    class Modulated(nn.Module):
        def forward(self, spectrum: torch.Tensor) -> torch.Tensor:
            field = torch.linspace(330.0, 350.0, spectrum.shape[0], dtype=torch.float64)
            return fieldmod_t(field, spectrum, 0.6, harmonic=1)

    return Modulated(), (torch.rand(33, dtype=torch.float64),)


@wild("torchclust", dims={"x": {0: ("points", 1, 64)}})
def nearest_centroids() -> Made:
    from torchclust.centroid import KMeans

    class Labels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.clusters = KMeans(num_clusters=3)
            self.clusters.fit(torch.cat([torch.randn(20, 2) + 4 * k for k in range(3)]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.clusters.predict(x)

    return Labels(), (torch.randn(11, 2) * 4,)


@wild("torchclust", dims={"x": {0: ("points", 4, 24)}})
def shifted_means() -> Made:
    from torchclust.centroid import MeanShift

    class Clustered(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return MeanShift(band_width=1, max_iter=20).fit_predict(x)

    return Clustered(), (torch.cat([torch.randn(6, 2) + 8 * k for k in range(2)]),)


@wild("byol-pytorch", dims={"x": {0: ("batch", 1, 6)}})
def byol_embedding() -> Made:
    make_torchvision_importable()
    from byol_pytorch import BYOL

    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    learner = BYOL(net, image_size=16, hidden_layer=-2, projection_size=16, projection_hidden_size=32)

    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.learner = learner

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.learner(x, return_embedding=True)

    return Embedded(), (torch.randn(2, 3, 16, 16),)


@wild("pystemma", dims={"x": {0: ("batch", 1, 8)}})
def masked_edges() -> Made:
    from pystemma.nn.graph.masking import GlobalEdgeMask

    class Propagated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask = GlobalEdgeMask(5)
            with torch.no_grad():
                self.mask.scores.copy_(torch.randn(5, 5))
            self.adjacency = nn.Parameter(torch.rand(5, 5))
            self.linear = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear((self.adjacency * self.mask()).softmax(-1) @ x)

    return Propagated(), (torch.randn(2, 5, 4),)


@wild("torchdde", dims={"y0": {0: ("batch", 1, 8)}})
def neural_ode() -> Made:
    from torchdde import AdaptiveStepSizeController, Dopri5, integrate

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

        def forward(self, t: torch.Tensor, y: torch.Tensor, args: object) -> torch.Tensor:
            return self.net(y)

    class Solved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.field = Field()

        def forward(self, y0: torch.Tensor) -> torch.Tensor:
            ts = torch.linspace(0.0, 1.0, 5)
            return integrate(
                self.field,
                Dopri5(),
                ts[0],
                ts[-1],
                ts,
                y0,
                func_args=None,
                stepsize_controller=AdaptiveStepSizeController(1e-3, 1e-6),
                dt0=torch.tensor(0.1),
                discretize_then_optimize=True,
            )

    return Solved(), (torch.randn(3, 2),)


@wild("torchdde", dims={"y0": {0: ("batch", 1, 8)}})
def delayed_equation() -> Made:
    from torchdde import RK4, integrate

    class Delayed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 2)

        def forward(
            self, t: torch.Tensor, y: torch.Tensor, args: object, *, history: list[torch.Tensor]
        ) -> torch.Tensor:
            return torch.tanh(self.net(torch.cat([y, history[0]], dim=-1)))

    class Solved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.field = Delayed()

        def forward(self, y0: torch.Tensor) -> torch.Tensor:
            ts = torch.linspace(0.0, 2.0, 9)
            return integrate(
                self.field,
                RK4(),
                ts[0],
                ts[-1],
                ts,
                lambda t: y0,
                func_args=None,
                dt0=ts[1] - ts[0],
                delays=torch.tensor([0.5]),
                discretize_then_optimize=True,
            )

    return Solved(), (torch.randn(3, 2),)


@wild("neuralcrystal", dims={"pictures": {0: ("batch", 1, 4)}})
def light_through_glass() -> Made:
    from neuralcrystal import Crystal

    plane = {"kind": "learned", "dist_mm": 0.05}
    model = {
        "N": 32,
        "dx_um": 1.0,
        "wholeGlass": True,
        "winUm": 24.0,
        "absorbRim": True,
        "ext": 50,
        "inGap_mm": 0.05,
        "quad": {"n": 2, "levels": 17, "gains": [2.0], "res": 0.25},
        "planes": [
            {
                **plane,
                "phi": (torch.rand(32, 32) * 6).tolist(),
                "phis": [None, (torch.rand(32, 32) * 6).tolist()],
            }
            for _ in range(2)
        ],
    }

    class Brightness(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.crystal = Crystal(model, device="cpu")

        def forward(self, pictures: torch.Tensor) -> torch.Tensor:
            field, _ = self.crystal.run(pictures)
            return field.real**2 + field.imag**2

    return Brightness(), (torch.rand(2, 8, 8),)


@wild("topologies")
def topology_xlnet() -> Made:
    from topologies.models.xlnet import XLNet

    return XLNet(), (torch.randint(0, 32, (2, 8)),)


@wild("topologies", dims={"tokens": {1: ("length", 1, 32)}})
def topology_retention() -> Made:
    from topologies.models.retnet import RetNet

    return RetNet(mode="chunkwise", chunk_size=4), (torch.randint(0, 128, (2, 10)),)


@wild("torchcurves", dims={"input": {0: ("batch", 1, 16)}})
def spline_network() -> Made:
    import torchcurves as tc

    return nn.Sequential(
        tc.BSplineCurve(3, 4, knots_config=6),
        tc.Sum(dim=-2),
        tc.LegendreCurve(4, 5, degree=3),
        tc.Sum(dim=-2),
    ), (torch.randn(7, 3),)


@wild("torch-2dtm", dims={"rotations": {0: ("orientations", 1, 8)}})
def matched_templates() -> Made:
    from torch_2dtm import match_template_dft_2d

    class Matched(nn.Module):
        def forward(
            self, image: torch.Tensor, template: torch.Tensor, rotations: torch.Tensor, filters: torch.Tensor
        ) -> torch.Tensor:
            return match_template_dft_2d(image, template, rotations, filters).amax((0, 1))

    image = torch.fft.rfft2(torch.randn(20, 20))
    template = torch.fft.fftshift(torch.fft.rfftn(torch.randn(12, 12, 12)), dim=(0, 1))
    rotations, _ = torch.linalg.qr(torch.randn(3, 3, 3))
    return Matched(), (image, template, rotations, torch.rand(2, 12, 7))


@wild("flowtorch", dims={"x": {0: ("batch", 1, 16)}})
def spline_flow() -> Made:
    import flowtorch.bijectors as bij
    import flowtorch.distributions as dist
    import flowtorch.parameters as params

    base = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(3), torch.ones(3)), 1)
    bijector = bij.SplineAutoregressive(params_fn=params.DenseAutoregressive(hidden_dims=(16,)), count_bins=5)

    class Density(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flow = dist.Flow(base, bijector)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.flow.log_prob(x)

    return Density(), (torch.randn(5, 3),)


@wild("flowtorch", dims={"x": {0: ("batch", 1, 16)}})
def affine_flow() -> Made:
    import flowtorch.bijectors as bij
    import flowtorch.distributions as dist
    import flowtorch.parameters as params

    base = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(3), torch.ones(3)), 1)
    bijector = bij.Compose(
        [
            bij.AffineAutoregressive(params_fn=params.DenseAutoregressive(hidden_dims=(16, 16))),
            bij.AffineAutoregressive(params_fn=params.DenseAutoregressive(hidden_dims=(16, 16))),
        ]
    )

    class Density(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flow = dist.Flow(base, bijector)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.flow.log_prob(x)

    return Density(), (torch.randn(5, 3),)


@wild("vformer", dims={"x": {0: ("batch", 1, 4)}})
def pyramid_vision() -> Made:
    make_torchvision_importable()
    from vformer.models import PVTClassification

    return PVTClassification(
        img_size=64,
        n_classes=5,
        embed_dims=[8, 16, 16, 32],
        num_heads=[1, 2, 2, 4],
        depths=[1, 1, 1, 1],
        ape=False,
    ), (torch.randn(2, 3, 64, 64),)


@wild("vformer", dims={"x": {1: ("length", 1, 24)}, "queries": {0: ("queries", 1, 12)}})
def perceiver_io() -> Made:
    make_torchvision_importable()
    from vformer.models import PerceiverIO

    return PerceiverIO(
        dim=16,
        depth=2,
        latent_dim=24,
        num_latents=6,
        num_latent_heads=2,
        cross_head_dim=8,
        latent_head_dim=8,
        queries_dim=16,
        logits_dim=5,
    ), (torch.randn(2, 9, 16), torch.randn(4, 16))


@wild("opengdn", dims={"x": {1: ("time", 1, 24)}})
def gated_delta_chunks() -> Made:
    from opengdn import GatedDeltaMixer

    return GatedDeltaMixer(16, 2, backend="chunkwise", chunk_size=4), (torch.randn(2, 10, 16),)


@wild("opengdn")
def gated_delta_continued() -> Made:
    from opengdn import GatedDeltaMixer

    class Continued(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mixer = GatedDeltaMixer(16, 2)

        def forward(self, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            one, state = self.mixer(first, return_state=True)
            return one, self.mixer(second, state)

    return Continued(), (torch.randn(2, 5, 16), torch.randn(2, 3, 16))


@wild("tversky", dims={"x": {0: ("batch", 1, 8), 1: ("length", 1, 12)}})
def tversky_projection() -> Made:
    from tversky.nn import TverskyProjection

    return TverskyProjection(8, 5, 12, "contrast", normalize=True, difference_reduction="substractmatch"), (
        torch.randn(2, 6, 8),
    )


@wild("torchorthopolys", dims={"x": {0: ("nodes", 1, 32)}}, value_ranges={"x": (-0.9, 0.9)})
def orthogonal_polynomials() -> Made:
    from torchorthopolys import Jacobi

    class Basis(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.polynomials = Jacobi(alpha=0.5, beta=1.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.polynomials(5, x)

    return Basis(), (torch.rand(9) * 1.8 - 0.9,)


@wild("torchpwl", dims={"x": {0: ("batch", 1, 16)}})
def piecewise_linear() -> Made:
    import torchpwl

    return torchpwl.MonoPWL(4, num_breakpoints=5), (torch.randn(6, 4),)


@wild("torchpwl", dims={"x": {0: ("batch", 1, 16)}})
def calibrated_points() -> Made:
    import torchpwl

    return torchpwl.Calibrator(torch.linspace(-2, 2, 9)[None], torch.ones(1)), (torch.randn(6, 1),)


@wild("mistify", dims={"x": {0: ("batch", 1, 16)}})
def fuzzy_controller() -> Made:
    import mistify

    class Controller(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fuzzify = mistify.fuzzify.IsoscelesFuzzifier.from_linspace(5, 2)
            self.both = mistify.infer.MinMax(10, 6)
            self.either = mistify.infer.MaxProd(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.either(self.both(self.fuzzify(x).flatten(1)))

    return Controller(), (torch.rand(4, 2),)


@wild("genagg", dims={"x": {0: ("nodes", 6, 24)}, "index": {0: ("nodes", 6, 24)}})
def generalised_aggregation() -> Made:
    from genagg import GenAgg

    class Aggregated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.aggregate = GenAgg()

        def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            return self.aggregate(x, index, dim_size=4)

    return Aggregated(), (torch.randn(9, 3), torch.tensor([0, 0, 1, 1, 1, 2, 3, 3, 3]))


@wild("torch-modules-compilation", dims={"x": {2: ("height", 4, 16), 3: ("width", 4, 16)}})
def learned_tokens() -> Made:
    from torch_modules_compilation.modules import FeatureMapSelfAttention, PatchMerger, TokenLearner

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = FeatureMapSelfAttention(8)
            self.tokens = TokenLearner(8, 4)
            self.merge = PatchMerger(8, 2, norm=True, scale=True)
            nn.init.ones_(self.attention.gamma)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.merge(self.tokens(self.attention(x)))

    return Tokens(), (torch.randn(2, 8, 6, 7),)


@wild("torch-relativistic", dims={"x": {0: ("batch", 1, 8)}})
def spiking_network() -> Made:
    from torch_relativistic import TerrellPenroseSNN

    return TerrellPenroseSNN(6, 10, 3, simulation_steps=5), (torch.rand(3, 6) * 2,)


@wild("torch-relativistic", dims={"x": {1: ("length", 2, 16)}})
def relativistic_attention() -> Made:
    from torch_relativistic import RelativisticSelfAttention, TerrellPenroseTransform

    class Attended(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = RelativisticSelfAttention(16, num_heads=2)
            self.transform = TerrellPenroseTransform(16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.transform(self.attention(x))

    return Attended(), (torch.randn(2, 7, 16),)
