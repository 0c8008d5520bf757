"""An eighth draw, at random from the packages whose name or summary names PyTorch and a field."""

from __future__ import annotations

import torch
from torch import nn

from tests.wild.cases import Made, wild


@wild("df0-pitch", "df0", dims={"x": {0: ("batch", 1, 4)}})
def differentiable_yin() -> Made:
    import df0

    return df0.dyin.dYIN(fs=8000, frame_size=800, hop_size=160, f0_min=80.0, f0_max=800.0), (
        torch.randn(2, 2400),
    )


@wild("discrete-key-value-bottleneck-pytorch", dims={"x": {0: ("batch", 1, 4), 1: ("length", 1, 32)}})
def key_value_bottleneck() -> Made:
    from discrete_key_value_bottleneck_pytorch import DiscreteKeyValueBottleneck

    return DiscreteKeyValueBottleneck(dim=16, num_memories=12, num_memory_codebooks=2, dim_memory=5), (
        torch.randn(2, 7, 16),
    )


@wild("haar-pytorch", dims={"input": {0: ("batch", 1, 4)}})
def haar_transform() -> Made:
    from haar_pytorch import HaarForward, HaarInverse

    return nn.Sequential(HaarForward(), nn.Hardshrink(0.5), HaarInverse()), (torch.randn(2, 3, 12, 16),)


@wild("htm-pytorch", dims={"queries": {1: ("length", 1, 16)}, "memories": {1: ("memories", 16, 64)}})
def hierarchical_memory() -> Made:
    from htm_pytorch import HTMBlock

    return HTMBlock(dim=16, topk_mems=2, mem_chunk_size=4, heads=2, dim_head=8), (
        torch.randn(2, 5, 16),
        torch.randn(2, 27, 16),
    )


@wild("octconv", dims={"input": {0: ("batch", 1, 4)}})
def octave_convolutions() -> Made:
    from octconv import OctConv2d

    return nn.Sequential(
        OctConv2d(3, 8, 3, padding=1, alpha=(0, 0.5)),
        OctConv2d(8, 8, 3, padding=1, alpha=0.5),
        OctConv2d(8, 4, 3, padding=1, alpha=(0.5, 0)),
    ), (torch.randn(2, 3, 16, 16),)


@wild("perceiver-io-pytorch", "perceiver_io", dims={"inputs": {1: ("length", 1, 48)}})
def queried_perceiver() -> Made:
    from perceiver_io import PerceiverDecoder, PerceiverEncoder, PerceiverIO

    class Queried(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            encoder = PerceiverEncoder(
                num_latents=6, latent_dim=16, input_dim=12, num_blocks=2, num_self_attn_heads=2
            )
            self.model = PerceiverIO(encoder, PerceiverDecoder(latent_dim=16, query_dim=8, projection_dim=5))
            self.query = nn.Parameter(torch.randn(1, 4, 8))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.model(inputs, query=self.query.expand(inputs.shape[0], 4, 8))

    return Queried(), (torch.randn(2, 20, 12),)


@wild("pyharmx", dims={"x": {0: ("points", 1, 32)}})
def polyharmonic_spline() -> Made:
    from pyharmx import PolyHarmInterpolator

    centres = torch.rand(1, 15, 2)
    return PolyHarmInterpolator(c=centres, f=centres.sum(-1, keepdim=True).sin(), order=2), (
        torch.rand(1, 9, 2),
    )


@wild("pytorch-ggd", dims={"x": {0: ("batch", 1, 8)}})
def generalized_gaussian() -> Made:
    from pytorch_ggd.GGD import DynamicGGD

    return DynamicGGD(12, channels_last=True), (torch.randn(4, 12),)


@wild("torch-legendre", dims={"input": {0: ("batch", 1, 16)}})
def legendre_layers() -> Made:
    from torch_legendre import LegendreLayer

    return nn.Sequential(LegendreLayer(3, 4, 6), nn.Tanh(), LegendreLayer(6, 2, 1)), (torch.randn(5, 3),)


@wild("minimamba", dims={"input_ids": {0: ("batch", 1, 4), 1: ("length", 1, 24)}})
def selective_scan() -> Made:
    from minimamba import MambaForCausalLM, MambaLMConfig

    return MambaForCausalLM(MambaLMConfig(d_model=16, n_layer=2, vocab_size=30, d_state=4)), (
        torch.randint(0, 30, (2, 9)),
    )


@wild("torchxlstm", dims={"x": {0: ("batch", 1, 4)}})
def scalar_and_matrix_lstm() -> Made:
    from torchxlstm import xLSTM

    return xLSTM(input_size=8, head_size=4, num_heads=2, layers="ms", batch_first=True), (
        torch.randn(3, 5, 8),
    )


@wild("rcps-pytorch", "rcps", dims={"input": {0: ("batch", 1, 4), 2: ("bases", 16, 80)}})
def reverse_complement() -> Made:
    from rcps import RCPS, RCPSBatchNorm, RCPSOutput

    return nn.Sequential(RCPS(2, 6, 5), RCPSBatchNorm(6), nn.ReLU(), RCPS(6, 4, 3), RCPSOutput()), (
        torch.randn(2, 4, 40),
    )


@wild("mobileone-pytorch", dims={"x": {0: ("batch", 1, 4)}})
def mobile_blocks() -> Made:
    from mobileone_pytorch import mobileone_s0

    return mobileone_s0(num_classes=10), (torch.randn(2, 3, 32, 32),)


@wild("torch-ppr", dims={"edges": {1: ("edges", 1, 64)}})
def page_ranks() -> Made:
    from torch_ppr import page_rank

    class Ranks(nn.Module):
        def forward(self, edges: torch.Tensor) -> torch.Tensor:
            return page_rank(edge_index=edges, num_nodes=10, max_iter=20, add_identity=True)

    return Ranks(), (torch.randint(0, 10, (2, 25)),)


@wild("torch-nl", dims={"pos": {0: ("atoms", 1, 16)}})
def neighbours() -> Made:
    from torch_nl import compute_distances, compute_neighborlist_n2

    class Lengths(nn.Module):
        def forward(self, pos: torch.Tensor, cell: torch.Tensor) -> torch.Tensor:
            pbc = torch.tensor([True, True, True])
            batch = torch.zeros(pos.shape[0], dtype=torch.long)
            mapping, batch_mapping, shifts = compute_neighborlist_n2(1.5, pos, cell, pbc, batch)
            cell_shifts = torch.einsum("jn,jnm->jm", shifts, cell.view(-1, 3, 3)[batch_mapping])
            return compute_distances(pos, mapping, cell_shifts)

    return Lengths(), (torch.rand(7, 3) * 3, torch.eye(3) * 3)


@wild("pytorch-beam-search", dims={"start": {0: ("batch", 1, 4)}})
def beams_of_characters() -> Made:
    from pytorch_beam_search import autoregressive

    class Search(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            index = autoregressive.Index(["hello", "world", "held", "word"])
            self.model = autoregressive.LSTM(index, embedding_dimension=8, hidden_units=12, layers=1)

        def forward(self, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return autoregressive.beam_search(self.model, start, predictions=4, beam_width=3)

    return Search(), (torch.randint(0, 3, (2, 3)),)


@wild("socialforce", dims={"state": {0: ("pedestrians", 2, 12)}})
def crowd() -> Made:
    import socialforce

    class Crowd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.simulator = socialforce.Simulator(
                ped_ped=socialforce.potentials.PedPedPotential(sigma=0.5), oversampling=2
            )

        def forward(self, state: torch.Tensor) -> torch.Tensor:
            return self.simulator(state)

    return Crowd(), (torch.randn(5, 6) * 3,)


@wild("torch-fis", "fuzzy_torch", dims={"x": {0: ("batch", 1, 16)}})
def fuzzy_tipping() -> Made:
    import fuzzy_torch as fuzzy

    class Tip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            food, tip = fuzzy.FuzzyVariable("food", 0, 10), fuzzy.FuzzyVariable("tip", 0, 30)
            for variable in (food, tip):
                high = variable.range_max
                variable.add_term("low", fuzzy.TriangularMF(-1.0, 0.0, high * 0.6))
                variable.add_term("high", fuzzy.TriangularMF(high * 0.3, high, high + 1.0))
            rules = [
                fuzzy.FuzzyRule([(food, "low")], (tip, "low")),
                fuzzy.FuzzyRule([(food, "high")], (tip, "high")),
            ]
            self.system = fuzzy.MamdaniSystem([food], tip, rules)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.system({"food": x})

    return Tip(), (torch.rand(6) * 10,)


@wild("torch-fourier-shift", dims={"image": {0: ("batch", 1, 4)}, "shifts": {0: ("batch", 1, 4)}})
def shifted_images() -> Made:
    from torch_fourier_shift import fourier_shift_image_2d

    class Shift(nn.Module):
        def forward(self, image: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
            return fourier_shift_image_2d(image, shifts)

    return Shift(), (torch.randn(2, 12, 15), torch.randn(2, 2))


@wild("torchcvnn", dims={"input": {0: ("batch", 1, 4)}})
def complex_pooling() -> Made:
    import torchcvnn.nn as c_nn

    return nn.Sequential(
        nn.Conv2d(1, 4, 3, dtype=torch.complex64),
        c_nn.BatchNorm2d(4),
        c_nn.modReLU(),
        c_nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 3, dtype=torch.complex64),
        c_nn.Mod(),
    ), (torch.randn(2, 1, 10, 10, dtype=torch.complex64),)


@wild("hyperlight", dims={"h": {0: ("batch", 1, 8)}})
def hypernetwork() -> Made:
    import hyperlight as hl

    class Predict(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = hl.HyperNet(
                input_shapes={"h": (2,)}, output_shapes={"weight": (3, 4), "bias": (3,)}, hidden_sizes=[8]
            )

        def forward(self, h: torch.Tensor) -> dict[str, torch.Tensor]:
            return self.net(h=h)

    return Predict(), (torch.rand(4, 2),)


@wild("difftmm", dims={"thickness": {0: ("batch", 1, 4)}, "theta": {0: ("batch", 1, 4)}})
def thin_films() -> Made:
    from difftmm import create_jones_matrix_isotropic

    class Film(nn.Module):
        def forward(self, thickness: torch.Tensor, theta: torch.Tensor) -> tuple[torch.Tensor, ...]:
            layers = torch.tensor([1.46, 2.3, 1.46], dtype=torch.complex64).expand(thickness.shape[0], 3)
            wave = torch.tensor([0.45, 0.55, 0.65]).expand(thickness.shape[0], 3)
            return tuple(create_jones_matrix_isotropic(layers, thickness, wave, 1.0, 1.5, theta))

    return Film(), (torch.rand(2, 3) * 0.2, torch.rand(2, 4) * 0.5)


@wild("box-embeddings", dims={"x": {0: ("batch", 1, 8)}})
def box_containment() -> Made:
    from box_embeddings.modules.intersection import GumbelIntersection
    from box_embeddings.modules.volume import BesselApproxVolume
    from box_embeddings.parameterizations import BoxTensor

    class Contains(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.meet = GumbelIntersection(intersection_temperature=0.1)
            self.volume = BesselApproxVolume(volume_temperature=1.0, intersection_temperature=0.1)
            self.weight = nn.Parameter(torch.randn(20, 2, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            one, other = BoxTensor(self.weight[x[:, 0]]), BoxTensor(self.weight[x[:, 1]])
            return self.volume(self.meet(one, other)) - self.volume(other)

    return Contains(), (torch.randint(0, 20, (5, 2)),)


@wild("pytorch-minimize", "torchmin", dims={"x": {0: ("size", 2, 12)}})
def minimized() -> Made:
    from torchmin import minimize

    class Minimum(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return minimize(lambda z: ((z - x.sin()) ** 2).sum(), x, method="bfgs", max_iter=8).x

    return Minimum(), (torch.randn(4),)


@wild("torchflows", dims={"x": {0: ("batch", 1, 16)}})
def coupling_flow() -> Made:
    from torchflows.bijections.finite.autoregressive.architectures import RealNVP
    from torchflows.flows import Flow

    class LogProbability(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flow = Flow(RealNVP(3, n_layers=2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.flow.log_prob(x)

    return LogProbability(), (torch.randn(5, 3),)


@wild("torchvine", dims={"u": {0: ("samples", 1, 32)}})
def pair_copula() -> Made:
    from torchvine import Bicop

    class Density(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.copula = Bicop.from_family("clayton", parameters=torch.tensor([1.5]))

        def forward(self, u: torch.Tensor) -> torch.Tensor:
            return self.copula.pdf(u)

    return Density(), (torch.rand(9, 2),)


@wild("torchstain", dims={"image": {1: ("height", 8, 32), 2: ("width", 8, 32)}})
def stain_normalization() -> Made:
    import torchstain

    class Normalize(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.normalizer = torchstain.normalizers.MacenkoNormalizer(backend="torch")
            self.normalizer.fit(torch.randint(20, 200, (3, 16, 16)).float())

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return self.normalizer.normalize(I=image, stains=False)[0]

    return Normalize(), (torch.randint(20, 200, (3, 12, 16)).float(),)


@wild("torchrtm", dims={"traits": {0: ("leaves", 1, 4)}, "n": {0: ("leaves", 1, 4)}})
def leaf_reflectance() -> Made:
    from torchrtm.leaf.prospect import prospectd

    class Leaf(nn.Module):
        def forward(self, traits: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
            return prospectd(traits, n, print_both=False, with_power=True)

    return Leaf(), (torch.rand(2, 6) * torch.tensor([40.0, 8, 1, 0.1, 0.02, 0.01]), 1 + torch.rand(2))
