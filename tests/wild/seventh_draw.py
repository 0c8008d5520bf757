"""A seventh draw, at random from the packages whose name or summary names PyTorch."""

from __future__ import annotations

import torch
from torch import nn

from models._vision import make_torchvision_importable
from tests.wild.cases import Made, wild


@wild("gsa-pytorch", dims={"img": {2: ("height", 2, 16), 3: ("width", 2, 16)}})
def global_self_attention() -> Made:
    from gsa_pytorch import GSA

    return GSA(dim=8, dim_out=12, heads=2, dim_key=8, rel_pos_length=16), (torch.randn(1, 8, 9, 11),)


@wild("compositional-attention-pytorch", dims={"x": {0: ("batch", 1, 4), 1: ("length", 1, 48)}})
def compositional_attention() -> Made:
    from compositional_attention_pytorch import CompositionalAttention

    return CompositionalAttention(dim=32, dim_head=8, num_searches=4, num_retrievals=2), (
        torch.randn(2, 17, 32),
    )


@wild("unet3d")
def volume_unet() -> Made:
    from unet3d.unet3d import UNet3d

    return UNet3d(c_in=1, c_out=2, c_start=4, layers=3), (torch.rand(1, 1, 16, 16, 16),)


@wild("torch-resnet", dims={"x": {0: ("batch", 1, 4), 2: ("height", 32, 64), 3: ("width", 32, 64)}})
def preactivation_resnet() -> Made:
    import torch_resnet

    model = torch_resnet.PreActResNet18()
    model.set_head(nn.Linear(model.out_planes, 7))
    return model, (torch.randn(2, 3, 40, 48),)


@wild("separableconv-torch", "separableconv", dims={"input": {2: ("length", 8, 128)}})
def separable_convolution() -> Made:
    import separableconv.nn

    return nn.Sequential(
        separableconv.nn.SeparableConv1d(10, 30, 3), nn.ReLU(), separableconv.nn.SeparableConv1d(30, 6, 3)
    ), (torch.randn(4, 10, 40),)


@wild("pydssp", dims={"coord": {0: ("batch", 1, 4), 1: ("residues", 8, 40)}})
def secondary_structure() -> Made:
    import pydssp

    class Assign(nn.Module):
        def forward(self, coord: torch.Tensor) -> torch.Tensor:
            return pydssp.assign(coord, out_type="index")

    return Assign(), (torch.randn(2, 21, 4, 3) * 3,)


@wild("egnlib", "egn", dims={"x": {0: ("batch", 1, 16)}})
def covariance_network() -> Made:
    from egn import EGN

    return EGN(num_classes=3, in_dim=6, input_kind="signal", dims=(6, 4), depth=1), (torch.randn(5, 6, 40),)


@wild("pynncml", dims={"input_attenuation": {1: ("time", 8, 40)}})
def wet_or_dry() -> Made:
    import pynncml

    return pynncml.scm.wet_dry.statistics_wet_dry(0.6, 5), (torch.rand(2, 24),)


@wild("pynncml", dims={"input_attenuation": {1: ("time", 2, 40)}, "input_wet_dry": {1: ("time", 2, 40)}})
def constant_baseline() -> Made:
    from pynncml.single_cml_methods.baseline.constant_baseline import ConstantBaseLine

    return ConstantBaseLine(), (torch.rand(2, 24), (torch.rand(2, 24) > 0.5).float())


@wild("prosper-nn")
def historically_consistent() -> Made:
    from prosper_nn.models.hcnn.hcnn import HCNN

    model = HCNN(n_state_neurons=8, n_features_Y=3, past_horizon=6, forecast_horizon=2)
    model.enable_calculate_forecast()
    return model, (torch.randn(6, 4, 3),)


@wild("psann", dims={"x": {0: ("batch", 1, 32)}})
def wave_resnet() -> Made:
    from psann.models.wave_resnet import WaveResNet

    return WaveResNet(input_dim=4, hidden_dim=16, depth=3, output_dim=2), (torch.randn(6, 4),)


@wild("enflows", dims={"inputs": {0: ("batch", 1, 32)}})
def autoregressive_flow() -> Made:
    from enflows import distributions, flows, transforms

    class LogProbability(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flow = flows.Flow(
                transform=transforms.CompositeTransform(
                    [
                        transforms.MaskedAffineAutoregressiveTransform(features=2, hidden_features=4),
                        transforms.RandomPermutation(features=2),
                    ]
                ),
                distribution=distributions.StandardNormal(shape=[2]),
            )

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.flow.log_prob(inputs)

    return LogProbability(), (torch.randn(7, 2),)


@wild("mrphy", dims={"spins": {1: ("spins", 1, 32)}, "field": {1: ("spins", 1, 32), 2: ("time", 1, 32)}})
def bloch_simulation() -> Made:
    from mrphy import dt0, slowsims, γH

    t1, t2 = torch.tensor([[1.0]]), torch.tensor([[0.04]])

    class Simulation(nn.Module):
        def forward(self, spins: torch.Tensor, field: torch.Tensor) -> torch.Tensor:
            return slowsims.blochsim(spins, field, T1=t1, T2=t2, γ=γH.float(), dt=dt0.float())

    return Simulation(), (
        torch.tensor([0.0, 0.0, 1.0]).expand(1, 5, 3).clone(),
        torch.randn(1, 5, 12, 3) * 0.1,
    )


@wild("pyrotation", dims={"x": {0: ("batch", 1, 32)}})
def rotations() -> Made:
    from pyrotation.conversion import axis_angle_from_matrix, matrix_from_quaternion, quaternion_from_matrix

    class Rotations(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            matrix = matrix_from_quaternion(x / x.norm(dim=-1, keepdim=True))
            return quaternion_from_matrix(matrix), axis_angle_from_matrix(matrix)

    return Rotations(), (torch.randn(5, 4),)


@wild("rectorch", dims={"x": {0: ("users", 1, 32)}})
def collaborative_autoencoder() -> Made:
    from rectorch.nets import MultiVAE_net

    return MultiVAE_net([8, 16, 40]), ((torch.rand(5, 40) > 0.7).float(),)


@wild("scalable-softmax", dims={"x": {0: ("batch", 1, 8), 1: ("length", 2, 64)}})
def scaled_softmax() -> Made:
    from scalable_softmax import ScalableSoftmax

    return ScalableSoftmax(), (torch.randn(3, 20),)


@wild("memory-caching", dims={"tokens": {0: ("batch", 1, 4), 1: ("length", 1, 32)}})
def cached_memory() -> Made:
    from memory_caching.models import TinyMemoryCachingLM

    return TinyMemoryCachingLM(
        vocab_size=40, d_model=16, num_heads=2, backend="linear", aggregation="grm", segment_size=4
    ), (torch.randint(0, 40, (2, 10)),)


@wild("random-fourier-features-pytorch", "rff", dims={"v": {0: ("height", 1, 16), 1: ("width", 1, 16)}})
def positional_features() -> Made:
    make_torchvision_importable()
    import rff

    return rff.layers.PositionalEncoding(sigma=1.0, m=10), (torch.randn(9, 7, 2),)


@wild("neuralfields", dims={"inputs": {1: ("time", 1, 24)}})
def neural_field() -> Made:
    from neuralfields import NeuralField

    return NeuralField(input_size=3, hidden_size=9, output_size=2), (torch.randn(2, 8, 3),)


@wild("torchperslay", "perslay", dims={"diagrams": {0: ("batch", 1, 4), 1: ("points", 1, 32)}})
def persistence_diagrams() -> Made:
    from perslay.models import PerslayRegressor

    return PerslayRegressor(
        image_size=[10, 10],
        image_bnds=[[0.0, 1.0], [0.0, 1.0]],
        sigma_x=0.1,
        sigma_y=0.1,
        hidden_dim=16,
        weight_type="normalized_learnable_power",
    ), (torch.rand(2, 9, 2),)


@wild("torch-fourier-shell-correlation", dims={"a": {0: ("batch", 1, 4)}, "b": {0: ("batch", 1, 4)}})
def ring_correlation() -> Made:
    from torch_fourier_shell_correlation import fourier_ring_correlation

    class Correlation(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return fourier_ring_correlation(a, b)

    return Correlation(), (torch.randn(2, 12, 12), torch.randn(2, 12, 12))


@wild("nlm-torch", "torch_nlm")
def nonlocal_means() -> Made:
    from torch_nlm import nlm2d

    class Denoise(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nlm2d(x, kernel_size=5, std=1.0, kernel_size_mean=3, sub_filter_size=8)

    return Denoise(), (torch.rand(16, 16),)


@wild("llms-from-scratch", dims={"in_idx": {0: ("batch", 1, 4), 1: ("length", 1, 32)}})
def small_qwen() -> Made:
    from llms_from_scratch.qwen3 import Qwen3Model

    return Qwen3Model(
        {
            "vocab_size": 64,
            "context_length": 64,
            "emb_dim": 32,
            "n_heads": 4,
            "n_layers": 2,
            "hidden_dim": 48,
            "head_dim": 8,
            "qk_norm": True,
            "n_kv_groups": 2,
            "rope_base": 10000.0,
            "dtype": torch.float32,
            "num_experts": 0,
        }
    ), (torch.randint(0, 64, (2, 9)),)


@wild("torch-linops", "linops", dims={"b": {0: ("size", 2, 24)}})
def conjugate_gradients() -> Made:
    from linops.cg import CG

    class Solve(nn.Module):
        def forward(self, b: torch.Tensor) -> torch.Tensor:
            return CG(lambda x: 3 * x + x.mean())(b)

    return Solve(), (torch.randn(9),)


@wild("cusrl", dims={"input": {0: ("batch", 1, 32)}})
def simba() -> Made:
    from cusrl.nn import Simba

    return Simba(input_dim=6, hidden_dim=16, num_blocks=2, output_dim=3), (torch.randn(5, 6),)


@wild("pytorch-mppi", random="state")
def path_integral_controller() -> Made:
    from pytorch_mppi import MPPI

    def dynamics(state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return state + 0.1 * torch.cat([state[:, 2:], action], dim=1)

    class Control(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.controller = MPPI(
                dynamics,
                lambda state, action: (state**2).sum(1) + 0.1 * (action**2).sum(1),
                4,
                torch.eye(2),
                num_samples=32,
                horizon=6,
                u_min=torch.tensor([-1.0, -1.0]),
                u_max=torch.tensor([1.0, 1.0]),
            )

        def forward(self, state: torch.Tensor) -> torch.Tensor:
            return self.controller.command(state)

    return Control(), (torch.randn(4),)
