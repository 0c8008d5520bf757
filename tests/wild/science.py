"""Graphs, molecules, Gaussian processes, distributions, flows, differential equations and linear algebra."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from tests.wild.cases import Made, wild

GRAPH = {"x": {0: ("nodes", 6, 24)}, "edge_index": {1: ("edges", 4, 64)}}
INDEX = {"edge_index": (0, 5)}
SAMPLES = {"x": {0: ("batch", 1, 8)}}


def _mlp(*sizes: int) -> nn.Sequential:
    pairs = pairwise(sizes)
    return nn.Sequential(*(layer for pair in pairs for layer in (nn.Linear(*pair), nn.Tanh())))[:-1]


@wild("torch_geometric", dims=GRAPH, value_ranges=INDEX)
def gcn() -> Made:
    from torch_geometric.nn import GCN

    return GCN(4, 8, num_layers=2, out_channels=3), (torch.randn(8, 4), torch.randint(0, 6, (2, 20)))


@wild("torch_geometric", dims=GRAPH, value_ranges=INDEX)
def gat_v2() -> Made:
    from torch_geometric.nn import GAT

    model = GAT(4, 8, num_layers=2, out_channels=3, heads=2, v2=True, jk="cat")
    return model, (torch.randn(8, 4), torch.randint(0, 6, (2, 20)))


@wild(
    "torch_geometric",
    dims={"x": {0: ("nodes", 6, 24)}, "edge_index": {1: ("edges", 4, 64)}, "batch": {0: ("nodes", 6, 24)}},
    value_ranges={"edge_index": (0, 5), "batch": (0, 1)},
)
def gin_readout() -> Made:
    from torch_geometric.nn import GIN, global_max_pool, global_mean_pool

    class GraphClassifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gin = GIN(4, 8, num_layers=2)
            self.head = nn.Linear(16, 3)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            h = self.gin(x, edge_index, batch=batch)
            pooled = torch.cat(
                [global_mean_pool(h, batch, size=2), global_max_pool(h, batch, size=2)], dim=-1
            )
            return self.head(pooled).log_softmax(-1)

    batch = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    return GraphClassifier(), (torch.randn(8, 4), torch.randint(0, 6, (2, 20)), batch)


@wild("torch_geometric", dims=GRAPH, value_ranges=INDEX)
def sage_top_k() -> Made:
    from torch_geometric.nn import SAGEConv, TopKPooling, global_mean_pool

    class TopK(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = SAGEConv(4, 8)
            self.pool = TopKPooling(8, ratio=0.5)
            self.second = SAGEConv(8, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.first(x, edge_index).relu()
            h, edge_index, _, batch, _, _ = self.pool(h, edge_index)
            return global_mean_pool(self.second(h, edge_index), batch, size=1)

    return TopK(), (torch.randn(8, 4), torch.randint(0, 6, (2, 20)))


@wild(
    "torch_geometric",
    dims={"z": {0: ("atoms", 2, 16)}, "pos": {0: ("atoms", 2, 16)}},
    value_ranges={"z": (1, 9)},
)
def schnet() -> Made:
    from torch_geometric.nn import SchNet

    class WithinCutoff(nn.Module):
        def forward(self, pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
            near = (torch.cdist(pos, pos) < 4.0) & (batch[:, None] == batch[None, :])
            edge_index = near.fill_diagonal_(fill_value=False).nonzero().t()
            return edge_index, (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=-1)

    model = SchNet(8, 8, num_interactions=2, num_gaussians=6, cutoff=4.0, interaction_graph=WithinCutoff())
    return model, (torch.randint(1, 10, (5,)), torch.randn(5, 3))


@wild("gpytorch", dims={"x": {0: ("points", 2, 32)}})
def exact_gp() -> Made:
    import gpytorch

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, x: Tensor, y: Tensor, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=2))

        def forward(self, x: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    class Predict(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            x = torch.rand(12, 2)
            self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
            self.gp = Exact(x, x.sum(-1).sin(), self.likelihood)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            predicted = self.likelihood(self.gp(x))
            lower, upper = predicted.confidence_region()
            return predicted.mean, lower, upper

    return Predict(), (torch.rand(5, 2),)


@wild("gpytorch", dims={"x": {0: ("points", 2, 32)}})
def variational_gp() -> Made:
    import gpytorch
    from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

    class Variational(gpytorch.models.ApproximateGP):
        def __init__(self, inducing: Tensor) -> None:
            distribution = CholeskyVariationalDistribution(inducing.size(0))
            super().__init__(VariationalStrategy(self, inducing, distribution))
            self.mean = gpytorch.means.LinearMean(2)
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    class Classify(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gp = Variational(torch.rand(6, 2))
            self.gp(torch.rand(2, 2))  # a strategy's first call initializes its distribution
            self.likelihood = gpytorch.likelihoods.BernoulliLikelihood()

        def forward(self, x: Tensor) -> Tensor:
            return self.likelihood(self.gp(x)).probs

    return Classify(), (torch.rand(5, 2),)


@wild("botorch", dims={"X": {0: ("candidates", 1, 16)}})
def log_expected_improvement() -> Made:
    from botorch.acquisition import LogExpectedImprovement
    from botorch.models import SingleTaskGP

    x = torch.rand(8, 2, dtype=torch.double)
    y = x.sum(-1, keepdim=True).sin()
    return LogExpectedImprovement(SingleTaskGP(x, y), best_f=y.max()), (
        torch.rand(3, 1, 2, dtype=torch.double),
    )


@wild("botorch")
def upper_confidence_bound_of_samples() -> Made:
    from botorch.acquisition import qUpperConfidenceBound
    from botorch.models import SingleTaskGP
    from botorch.sampling import SobolQMCNormalSampler

    x = torch.rand(8, 2, dtype=torch.double)
    model = SingleTaskGP(x, x.prod(-1, keepdim=True))
    sampler = SobolQMCNormalSampler(torch.Size([16]), seed=0)
    return qUpperConfidenceBound(model, beta=0.2, sampler=sampler), (torch.rand(3, 2, 2, dtype=torch.double),)


@wild("pyro-ppl", "pyro", dims={"x": {0: ("points", 1, 16)}, "y": {0: ("points", 1, 16)}})
def log_joint() -> Made:
    import pyro
    import pyro.distributions as dist

    class Regression(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3))
            self.scale = nn.Parameter(torch.tensor(0.7))

        def program(self, x: Tensor, y: Tensor) -> None:
            weight = pyro.sample("weight", dist.Normal(torch.zeros(3), 1.0).to_event(1))
            scale = pyro.sample("scale", dist.HalfCauchy(torch.tensor(1.0)))
            with pyro.plate("points", x.shape[0]):
                pyro.sample("y", dist.StudentT(4.0, x @ weight, scale), obs=y)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            given = pyro.poutine.condition(
                self.program, data={"weight": self.weight, "scale": self.scale.exp()}
            )
            return pyro.poutine.trace(given).get_trace(x, y).log_prob_sum()

    return Regression(), (torch.randn(6, 3), torch.randn(6))


@wild("pyro-ppl", "pyro", dims={"value": {0: ("batch", 1, 8)}})
def gaussian_hmm() -> Made:
    import pyro.distributions as dist

    class Filter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transition = nn.Parameter(0.3 * torch.randn(2, 2))
            self.observation = nn.Parameter(torch.randn(2, 3))

        def forward(self, value: Tensor) -> tuple[Tensor, Tensor]:
            state = dist.MultivariateNormal(torch.zeros(2), torch.eye(2))
            noise = dist.Normal(torch.zeros(3), 0.5).to_event(1)
            hmm = dist.GaussianHMM(state, self.transition, state, self.observation, noise, duration=6)
            return hmm.log_prob(value), hmm.filter(value).mean

    return Filter(), (torch.randn(2, 6, 3),)


@wild("torch", dims=SAMPLES)
def mixture_log_prob() -> Made:
    from torch import distributions as dist

    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = nn.Parameter(torch.randn(4))
            self.mean = nn.Parameter(torch.randn(4, 3))
            self.scale = nn.Parameter(torch.rand(4, 3) + 0.2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            weights = dist.Categorical(logits=self.logits, validate_args=True)
            parts = dist.Independent(dist.Normal(self.mean, self.scale, validate_args=True), 1)
            mixture = dist.MixtureSameFamily(weights, parts, validate_args=True)
            return mixture.log_prob(x), mixture.variance, weights.entropy()

    return Mixture(), (torch.randn(5, 3),)


@wild("torch", dims=SAMPLES)
def divergences() -> Made:
    from torch import distributions as dist

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = _mlp(4, 8, 6)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            mean, raw = self.net(x).chunk(2, dim=-1)
            scale = nn.functional.softplus(raw) + 0.1
            normal = dist.kl_divergence(dist.Normal(mean, scale), dist.Normal(0.0, 1.0)).sum(-1)
            gamma = dist.kl_divergence(dist.Gamma(scale, scale + 1.0), dist.Gamma(2.0, 1.0)).sum(-1)
            beta = dist.Beta(scale + 1.0, scale + 2.0).log_prob(mean.sigmoid()).sum(-1)
            return normal, gamma, beta

    return Encoder(), (torch.randn(5, 4),)


@wild("zuko", dims=SAMPLES)
def neural_spline_flow() -> Made:
    import zuko

    class Density(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flow = zuko.flows.NSF(features=3, context=2, transforms=2, hidden_features=(8, 8), bins=4)

        def forward(self, x: Tensor, context: Tensor) -> Tensor:
            return self.flow(context).log_prob(x)

    return Density(), (torch.randn(4, 3), torch.randn(2))


@wild("nflows", dims={"inputs": {0: ("batch", 1, 8)}})
def autoregressive_flow() -> Made:
    from nflows import distributions, flows, transforms

    class Density(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            rational = transforms.MaskedPiecewiseRationalQuadraticAutoregressiveTransform(
                features=3, hidden_features=8, num_bins=4, tails="linear", tail_bound=3.0, num_blocks=1
            )
            steps = [transforms.LULinear(3), rational, transforms.ReversePermutation(3)]
            steps += [
                transforms.MaskedAffineAutoregressiveTransform(features=3, hidden_features=8, num_blocks=1)
            ]
            base = distributions.StandardNormal([3])
            self.flow = flows.Flow(transforms.CompositeTransform(steps), base)

        def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
            return self.flow.log_prob(inputs), self.flow.transform_to_noise(inputs)

    return Density(), (torch.randn(4, 3),)


@wild("normflows", dims=SAMPLES)
def real_nvp() -> Made:
    import normflows as nf

    class Density(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            flows: list[nn.Module] = []
            for _ in range(2):
                flows += [
                    nf.flows.AffineCouplingBlock(nf.nets.MLP([2, 8, 4])),
                    nf.flows.Permute(4, mode="swap"),
                ]
            flows += [nf.flows.CoupledRationalQuadraticSpline(4, 1, 8, num_bins=4)]
            self.flow = nf.NormalizingFlow(nf.distributions.DiagGaussian(4), flows)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.flow.log_prob(x), self.flow.inverse(x)

    return Density(), (torch.randn(4, 4),)


@wild("FrEIA", dims={"x_or_z": {0: ("batch", 1, 8)}})
def invertible_sequence() -> Made:
    import FrEIA

    def subnet(inputs: int, outputs: int) -> nn.Module:
        return _mlp(inputs, 8, outputs)

    model = FrEIA.framework.SequenceINN(6)
    model.append(FrEIA.modules.AllInOneBlock, subnet_constructor=subnet, permute_soft=True)
    model.append(FrEIA.modules.RNVPCouplingBlock, subnet_constructor=subnet)
    model.append(FrEIA.modules.ActNorm)
    model(torch.randn(16, 6))  # ActNorm takes its statistics from its first call
    return model, (torch.randn(4, 6),)


@wild("torchdiffeq", dims={"y": {0: ("batch", 1, 8)}})
def adaptive_neural_ode() -> Made:
    from torchdiffeq import odeint

    class NeuralOde(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = _mlp(2, 8, 2)
            self.register_buffer("times", torch.linspace(0.0, 1.0, 4))

        def field(self, t: Tensor, y: Tensor) -> Tensor:
            return self.net(y**3) * (1 + t)

        def forward(self, y: Tensor) -> Tensor:
            return odeint(self.field, y, self.times, method="dopri5", rtol=1e-4, atol=1e-5)

    return NeuralOde(), (torch.randn(3, 2),)


@wild(
    "torchdiffeq",
    dims={"y": {0: ("batch", 1, 8)}, "times": {0: ("moments", 2, 12)}},
    value_ranges={"times": (0.01, 0.3)},
)
def fixed_step_ode() -> Made:
    from torchdiffeq import odeint

    class Pendulum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.damping = nn.Parameter(torch.rand(()))
            self.stiffness = nn.Parameter(1 + torch.rand(()))

        def field(self, t: Tensor, y: Tensor) -> Tensor:
            angle, speed = y.unbind(-1)
            return torch.stack([speed, t.cos() - self.damping * speed - self.stiffness * angle.sin()], dim=-1)

        def forward(self, y: Tensor, times: Tensor) -> Tensor:
            return odeint(self.field, y, times.cumsum(0), method="rk4")

    return Pendulum(), (torch.randn(3, 2), 0.01 + 0.2 * torch.rand(5))


@wild("torchode", dims={"y": {0: ("batch", 1, 8)}})
def parallel_ode() -> Made:
    import torchode

    class VanDerPol(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stiffness = nn.Parameter(torch.tensor(1.5))
            term = torchode.ODETerm(self.field)
            controller = torchode.IntegralController(atol=1e-4, rtol=1e-3, term=term)
            self.solver = torchode.AutoDiffAdjoint(torchode.Tsit5(term=term), controller)

        def field(self, t: Tensor, y: Tensor) -> Tensor:
            x, v = y[:, 0], y[:, 1]
            return torch.stack((v, self.stiffness * (1 - x**2) * v - x), dim=1)

        def forward(self, y: Tensor) -> Tensor:
            times = torch.linspace(0.0, 2.0, 5).repeat(y.shape[0], 1)
            return self.solver.solve(torchode.InitialValueProblem(y0=y, t_eval=times)).ys

    return VanDerPol(), (torch.randn(3, 2),)


@wild("torchsde", dims={"y": {0: ("batch", 1, 8)}, "noise": {1: ("batch", 1, 8)}})
def sde_on_a_given_path() -> Made:
    import torchsde

    class GivenPath(torchsde.BaseBrownian):
        def __init__(self, path: Tensor, step: float) -> None:
            self.path, self.step = path, step

        def __call__(self, ta: Any, tb: Any = None, **_: Any) -> Tensor:
            return self.path[round(float(tb) / self.step)] - self.path[round(float(ta) / self.step)]

        def __repr__(self) -> str:
            return "GivenPath()"

        dtype = property(lambda self: self.path.dtype)
        device = property(lambda self: self.path.device)
        shape = property(lambda self: self.path.shape[1:])
        levy_area_approximation = "none"

    class Diffusion(torchsde.SDEIto):
        def __init__(self) -> None:
            super().__init__(noise_type="diagonal")
            self.drift = _mlp(3, 8, 2)
            self.volatility = nn.Parameter(torch.rand(2))

        def f(self, t: Tensor, y: Tensor) -> Tensor:
            return self.drift(torch.cat([y, t.expand(y.shape[0], 1)], dim=-1))

        def g(self, t: Tensor, y: Tensor) -> Tensor:
            return self.volatility * y.sin()

    class Simulate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sde = Diffusion()

        def forward(self, y: Tensor, noise: Tensor) -> Tensor:
            path = torch.cat([torch.zeros_like(noise[:1]), math.sqrt(0.125) * noise.cumsum(0)])
            times = torch.tensor([0.0, 0.5, 1.0])
            return torchsde.sdeint(self.sde, y, times, bm=GivenPath(path, 0.125), method="euler", dt=0.125)

    return Simulate(), (torch.randn(3, 2), torch.randn(8, 3, 2))


@wild("torchcde", dims={"x": {0: ("batch", 1, 8)}})
def controlled_equation() -> Made:
    import torchcde

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = _mlp(4, 8, 12)

        def forward(self, t: Tensor, z: Tensor) -> Tensor:
            return self.net(z).tanh().unflatten(-1, (4, 3))

    class NeuralCde(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 4)
            self.field = Field()

        def forward(self, x: Tensor) -> Tensor:
            path = torchcde.CubicSpline(torchcde.hermite_cubic_coefficients_with_backward_differences(x))
            z = self.first(path.evaluate(path.interval[0]))
            options = {"step_size": 1.0}
            return torchcde.cdeint(
                path, self.field, z, path.interval, adjoint=False, method="rk4", options=options
            )[:, -1]

    return NeuralCde(), (torch.randn(2, 6, 3),)


@wild(
    "e3nn",
    dims={
        "features": {0: ("nodes", 6, 16)},
        "pos": {0: ("nodes", 6, 16)},
        "edge_index": {1: ("edges", 2, 48)},
    },
    value_ranges=INDEX,
)
def equivariant_convolution() -> Made:
    from e3nn import nn as enn
    from e3nn import o3
    from e3nn.math import soft_one_hot_linspace

    class Convolution(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.harmonics = o3.Irreps.spherical_harmonics(2)
            product = o3.FullyConnectedTensorProduct(
                "4x0e + 2x1o", self.harmonics, "4x0e + 2x1o + 1x2e", shared_weights=False
            )
            self.product = product
            self.radial = enn.FullyConnectedNet([5, 8, product.weight_numel], torch.nn.functional.silu)

        def forward(self, features: Tensor, pos: Tensor, edge_index: Tensor) -> Tensor:
            sender, receiver = edge_index
            across = pos[receiver] - pos[sender]
            angular = o3.spherical_harmonics(
                self.harmonics, across, normalize=True, normalization="component"
            )
            radial = soft_one_hot_linspace(
                across.norm(dim=1), 0.0, 3.0, 5, basis="smooth_finite", cutoff=True
            )
            messages = self.product(features[sender], angular, self.radial(radial * 5**0.5))
            return messages.new_zeros(pos.shape[0], messages.shape[1]).index_add_(0, receiver, messages)

    return Convolution(), (torch.randn(7, 10), torch.randn(7, 3), torch.randint(0, 6, (2, 18)))


@wild("e3nn", dims=SAMPLES)
def gated_irreps() -> Made:
    from e3nn import nn as enn
    from e3nn import o3

    gate = enn.Gate("4x0e", [torch.nn.functional.silu], "2x0e", [torch.sigmoid], "2x1o")
    layers = [o3.Linear("5x0e + 2x1o", gate.irreps_in), gate, o3.Norm(gate.irreps_out)]

    class Invariant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*layers)

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x)

    return Invariant(), (torch.randn(4, 11),)


@wild(
    "egnn-pytorch",
    dims={"feats": {1: ("nodes", 4, 16)}, "coors": {1: ("nodes", 4, 16)}, "mask": {1: ("nodes", 4, 16)}},
)
def egnn() -> Made:
    from egnn_pytorch import EGNN

    class Refine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = EGNN(dim=8, m_dim=4, norm_coors=True)
            self.second = EGNN(dim=8, m_dim=4, num_nearest_neighbors=3)

        def forward(self, feats: Tensor, coors: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            feats, coors = self.first(feats, coors, mask=mask)
            return self.second(feats, coors, mask=mask)

    return Refine(), (torch.randn(2, 6, 8), torch.randn(2, 6, 3), torch.rand(2, 6) > 0.1)


@wild(
    "en-transformer",
    dims={"feats": {1: ("nodes", 4, 16)}, "coors": {1: ("nodes", 4, 16)}},
    value_ranges={"feats": (0, 9)},
)
def en_transformer() -> Made:
    from en_transformer import EnTransformer

    model = EnTransformer(dim=8, depth=2, dim_head=32, heads=2, num_tokens=10, neighbors=3)
    return model, (torch.randint(0, 10, (2, 6)), torch.randn(2, 6, 3))


@wild("torchani", dims={"coordinates": {0: ("molecules", 1, 8)}})
def ani_energy() -> Made:
    from torchani.aev import AEVComputer, ANIAngular, ANIRadial
    from torchani.nn import ANINetworks, AtomicNetwork

    class Energy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            radial = ANIRadial.cover_linearly(start=0.9, cutoff=5.2, eta=19.7, num_shifts=4)
            angular = ANIAngular.cover_linearly(
                start=0.9, cutoff=3.5, eta=12.5, zeta=14.1, num_shifts=2, num_sections=2
            )
            self.aev = AEVComputer(radial=radial, angular=angular, num_species=2)
            sizes = (self.aev.out_dim, 8, 8, 1)
            self.networks = ANINetworks({symbol: AtomicNetwork(sizes) for symbol in ("H", "C")})

        def forward(self, coordinates: Tensor) -> Tensor:
            species = torch.tensor([1, 0, 0, 0, 0]).repeat(coordinates.shape[0], 1)
            return self.networks(species, self.aev(species, coordinates))

    corners = torch.tensor([[0.0, 0, 0], [1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    return Energy(), (0.63 * corners + 0.05 * torch.randn(2, 5, 3),)


@wild("neuraloperator", "neuralop", dims={"x": {0: ("batch", 1, 8)}})
def fourier_operator() -> Made:
    from neuralop.models import FNO

    return FNO(n_modes=(4, 4), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2), (
        torch.randn(2, 1, 12, 12),
    )


@wild("neuraloperator", "neuralop", dims={"x": {0: ("batch", 1, 4), 2: ("points", 16, 48)}})
def factorized_operator() -> Made:
    from neuralop.models import TFNO

    model = TFNO(n_modes=(6,), in_channels=2, out_channels=1, hidden_channels=8, n_layers=2, rank=0.5)
    return model, (torch.randn(2, 2, 24),)


@wild(
    "roma",
    dims={"x": {0: ("batch", 1, 8), 1: ("points", 4, 32)}, "y": {0: ("batch", 1, 8), 1: ("points", 4, 32)}},
)
def weighted_registration() -> Made:
    import roma

    class Register(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            rotation, shift, scale = roma.rigid_points_registration(x, y, compute_scaling=True)
            return rotation, shift, scale

    x = torch.randn(2, 10, 3)
    y = 1.3 * x @ roma.random_rotmat(2).transpose(-1, -2) + torch.randn(2, 1, 3)
    return Register(), (x, y + 0.01 * torch.randn_like(y))


@wild("roma", dims={"rotvec": {0: ("batch", 1, 8)}})
def rotation_formats() -> Made:
    import roma

    class Interpolate(nn.Module):
        def forward(self, rotvec: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            rotation = roma.special_gramschmidt(roma.rotvec_to_rotmat(rotvec)[..., :2])
            quaternion = roma.rotmat_to_unitquat(rotation)
            between = roma.unitquat_slerp(
                roma.identity_quat(rotvec.shape[:1]), quaternion, torch.linspace(0, 1, 4)
            )
            return quaternion, between, roma.rotmat_to_euler("xyz", rotation)

    return Interpolate(), (torch.randn(3, 3),)


@wild("pypose", dims={"tangent": {0: ("poses", 2, 12)}})
def pose_chain() -> Made:
    import pypose as pp

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.offset = pp.Parameter(pp.randn_se3(1))

        def forward(self, tangent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            poses = pp.cumprod(pp.se3(tangent).Exp() @ self.offset.Exp(), dim=0)
            moved = poses.Inv().Act(torch.ones(3))
            return poses.tensor(), moved, poses.Log().tensor()

    return Chain(), (0.3 * torch.randn(4, 6),)


@wild("pypose", dims={"source": {0: ("points", 6, 24)}})
def iterative_closest_point() -> Made:
    import pypose as pp

    class Align(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.icp = pp.module.ICP()
            self.register_buffer("target", torch.randn(20, 3))

        def forward(self, source: Tensor) -> Tensor:
            return self.icp(source, self.target).tensor()

    model = Align()
    return model, (pp.SE3(torch.tensor([0.1, 0.0, 0.1, 0.0, 0.0, 0.1, 0.995])).Act(model.target[:10]),)


@wild("geotorch", dims=SAMPLES)
def on_manifolds() -> Made:
    import geotorch

    class Constrained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rotate = nn.Linear(6, 6)
            self.squeeze = nn.Linear(6, 4)
            self.metric = nn.Linear(4, 4, bias=False)
            geotorch.orthogonal(self.rotate, "weight")
            geotorch.low_rank(self.squeeze, "weight", rank=2)
            geotorch.positive_definite(self.metric, "weight")

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.squeeze(self.rotate(x).tanh())
            return h, (h * self.metric(h)).sum(-1)

    return Constrained(), (torch.randn(4, 6),)


@wild("ptwt", dims={"x": {0: ("batch", 1, 8)}})
def wavelet_denoise() -> Made:
    import ptwt

    class Denoise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            rough, *details = ptwt.wavedec(x, "db2", mode="reflect", level=2)
            kept = [torch.sign(d) * (d.abs() - 0.3).relu() for d in details]
            return ptwt.waverec([rough, *kept], "db2")

    return Denoise(), (torch.randn(2, 32),)


@wild("kymatio", dims=SAMPLES)
def scattering() -> Made:
    from kymatio import Scattering1D

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scattering = Scattering1D(J=3, shape=64, Q=2, frontend="torch")
            self.head = nn.LazyLinear(4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.log(self.scattering(x).abs() + 1e-3).flatten(1))

    model, x = Classifier(), torch.randn(2, 64)
    model(x)  # gives the lazy layer its size
    return model, (x,)


@wild("torch-dct", "torch_dct", dims={"x": {0: ("batch", 1, 8), 1: ("rows", 4, 16)}})
def cosine_compression() -> Made:
    import torch_dct

    class Compress(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            spectrum = torch_dct.dct_2d(x, norm="ortho")
            kept = torch.where(spectrum.abs() > 0.5, spectrum, 0.0)
            return torch_dct.idct_2d(kept, norm="ortho"), (kept != 0).sum((-2, -1))

    return Compress(), (torch.randn(2, 8, 12),)


@wild("fft-conv-pytorch", dims={"signal": {0: ("batch", 1, 8), 2: ("samples", 16, 64)}})
def fourier_convolution() -> Made:
    from fft_conv_pytorch import FFTConv1d

    return FFTConv1d(2, 4, kernel_size=5, padding=2, dilation=2), (torch.randn(2, 2, 33),)


@wild("torch", dims={"measured": {1: ("steps", 1, 16)}})
def kalman_filter() -> Made:
    class Kalman(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("transition", torch.tensor([[1.0, 0.1], [0.0, 0.98]]))
            self.register_buffer("observe", torch.tensor([[1.0, 0.0]]))
            self.log_noise = nn.Parameter(torch.tensor(-1.0))

        def forward(self, measured: Tensor) -> tuple[Tensor, Tensor]:
            mean = measured.new_zeros(measured.shape[0], 2)
            cov = torch.eye(2).expand(measured.shape[0], 2, 2)
            means = []
            for step in range(measured.shape[1]):
                mean = mean @ self.transition.T
                cov = self.transition @ cov @ self.transition.T + 0.01 * torch.eye(2)
                innovation = self.observe @ cov @ self.observe.T + self.log_noise.exp() * torch.eye(1)
                gain = torch.linalg.solve(innovation, self.observe @ cov).mT
                mean = mean + (gain @ (measured[:, step] - mean @ self.observe.T)[..., None])[..., 0]
                cov = cov - gain @ self.observe @ cov
                means.append(mean)
            return torch.stack(means, dim=1), cov

    return Kalman(), (torch.randn(2, 6, 1),)


@wild("torch", dims={"points": {0: ("points", 6, 48)}})
def k_means() -> Made:
    class KMeans(nn.Module):
        def forward(self, points: Tensor) -> tuple[Tensor, Tensor, int]:
            centers = points[:3]
            count = 0
            while count < 20:
                label = torch.cdist(points, centers).argmin(dim=1)
                member = nn.functional.one_hot(label, 3).to(points.dtype)
                moved = (member.T @ points) / member.sum(0).clamp(min=1.0)[:, None]
                shift = (moved - centers).abs().max()
                centers = moved
                count += 1
                if shift < 1e-4:
                    break
            return centers, torch.cdist(points, centers).argmin(dim=1), count

    return KMeans(), (torch.randn(15, 2),)


@wild("torch", dims={"x": {0: ("points", 8, 40)}, "y": {0: ("points", 8, 40)}})
def ransac_line() -> Made:
    class Ransac(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("pairs", torch.stack([torch.randperm(8)[:2] for _ in range(10)]))

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            best = torch.zeros_like(x, dtype=torch.bool)
            for first, second in self.pairs:
                run = x[second] - x[first]
                if run.abs() < 1e-3:
                    continue
                slope = (y[second] - y[first]) / run
                inlier = (y - y[first] - slope * (x - x[first])).abs() < 0.3
                if inlier.sum() > best.sum():
                    best = inlier
            weight = best.to(x.dtype)[:, None]
            design = torch.stack([x, torch.ones_like(x)], dim=-1) * weight
            gram = design.T @ design + 1e-6 * torch.eye(2)
            return torch.linalg.solve(gram, design.T @ (y[:, None] * weight))[:, 0], best

    x = torch.rand(20)
    y = torch.where(torch.rand(20) < 0.3, torch.randn(20), 2 * x - 0.5 + 0.05 * torch.randn(20))
    return Ransac(), (x, y)


@wild(
    "torch",
    dims={"matrix": {0: ("unknowns", 2, 16), 1: ("unknowns", 2, 16)}, "right": {0: ("unknowns", 2, 16)}},
)
def conjugate_gradient() -> Made:
    def solve(matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        matrix = matrix @ matrix.T + matrix.shape[0] * torch.eye(matrix.shape[0])
        x = torch.zeros_like(right)
        residual = direction = right
        for _ in range(16):
            if residual.norm() < 1e-4 * right.norm():
                break
            product = matrix @ direction
            step = residual.dot(residual) / direction.dot(product)
            x = x + step * direction
            new = residual - step * product
            direction = new + new.dot(new) / residual.dot(residual) * direction
            residual = new
        return x, residual.norm()

    return solve, (torch.randn(6, 6), torch.randn(6))


@wild("torch", dims={"x": {0: ("batch", 1, 8), 1: ("rows", 4, 24)}})
def cholesky_regression() -> Made:
    class Ridge(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log_penalty = nn.Parameter(torch.tensor(-1.0))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            features, target = x[..., :3], x[..., 3:]
            gram = features.mT @ features + self.log_penalty.exp() * torch.eye(3)
            factor = torch.linalg.cholesky(gram)
            weights = torch.cholesky_solve(features.mT @ target, factor)
            return weights, 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    return Ridge(), (torch.randn(2, 9, 4),)


@wild(
    "torch",
    dims={
        "points": {0: ("sets", 1, 8), 1: ("members", 1, 24)},
        "mask": {0: ("sets", 1, 8), 1: ("members", 1, 24)},
    },
)
def deep_sets() -> Made:
    class DeepSets(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each = _mlp(3, 8, 8)
            self.all = _mlp(16, 8, 2)

        def forward(self, points: Tensor, mask: Tensor) -> Tensor:
            h = self.each(points)
            total = (h * mask[..., None]).sum(1)
            largest = h.masked_fill(~mask[..., None], -1e4).amax(1)
            return self.all(torch.cat([total, largest], dim=-1))

    return DeepSets(), (torch.randn(3, 7, 3), torch.rand(3, 7) > 0.2)


@wild("torch", dims={"bounds": {0: ("intervals", 1, 16)}})
def adaptive_quadrature() -> Made:
    class Integrate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = _mlp(1, 8, 1)

        def area(self, low: Tensor, high: Tensor, pieces: int) -> Tensor:
            at = low + (high - low) * torch.linspace(0.0, 1.0, pieces + 1)[:, None]
            return torch.trapezoid(self.net((3 * at)[..., None])[..., 0], at, dim=0)

        def forward(self, bounds: Tensor) -> tuple[Tensor, int]:
            low, high = bounds.amin(1), bounds.amax(1)
            pieces = 2
            old = self.area(low, high, pieces)
            while pieces < 256:
                pieces *= 2
                new = self.area(low, high, pieces)
                error, old = (new - old).abs().max(), new
                if error < 1e-3:
                    break
            return old, pieces

    return Integrate(), (torch.randn(5, 2),)
