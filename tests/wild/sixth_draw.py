"""A sixth draw, at random from the packages whose summary names PyTorch."""

from __future__ import annotations

import torch
from torch import nn

from models._vision import make_torchvision_importable
from tests.wild.cases import Made, wild


@wild("agent-attention-pytorch", dims={"x": {0: ("batch", 1, 4), 1: ("length", 2, 40)}})
def agent_transformer() -> Made:
    from agent_attention_pytorch import AgentTransformer

    return AgentTransformer(dim=32, num_agent_tokens=8, depth=2, heads=2, dim_head=16), (
        torch.randn(2, 21, 32),
    )


@wild("dc1d", dims={"input": {2: ("length", 8, 64)}})
def deformable_conv() -> Made:
    from dc1d import PackedDeformConv1d

    return PackedDeformConv1d(8, 12, 3, padding="same", modulated=True), (torch.randn(2, 8, 32),)


@wild("bi-lstm-crf", dims={"xs": {0: ("batch", 1, 4)}})
def tagger() -> Made:
    from bi_lstm_crf import BiRnnCrf

    ids = torch.randint(1, 40, (3, 11))
    ids[1, 8:] = 0
    return BiRnnCrf(vocab_size=40, tagset_size=5, embedding_dim=16, hidden_dim=16), (ids,)


@wild("conv-lstm", dims={"input_tensor": {1: ("time", 1, 12)}})
def convolutional_lstm() -> Made:
    from conv_lstm import ConvLSTM

    return ConvLSTM(input_dim=3, hidden_dim=[8, 4], kernel_size=[3, 3], num_layers=2), (
        torch.randn(2, 5, 3, 8, 8),
    )


@wild("gaussian-adaptive-attention", dims={"x": {1: ("length", 2, 32)}})
def gaussian_attention() -> Made:
    from gaussian_adaptive_attention import MultiHeadGaussianAdaptiveAttention

    return MultiHeadGaussianAdaptiveAttention(norm_axis=1, num_heads=2, num_gaussians=3), (
        torch.randn(2, 10, 16),
    )


@wild("titans-unofficial", "titans", dims={"x": {1: ("length", 1, 48)}})
def memory_as_context() -> Made:
    from titans import TitansMAC

    return TitansMAC(d_model=32, n_layers=1, n_heads=2, persistent_tokens=4, chunk_size=8), (
        torch.randn(2, 20, 32),
    )


@wild("titans-unofficial", "titans")
def memory_as_gate() -> Made:
    from titans import TitansMAG

    return TitansMAG(d_model=32, n_layers=1, n_heads=2, persistent_tokens=4, window_size=8), (
        torch.randn(2, 20, 32),
    )


@wild("inkan", dims={"x": {0: ("batch", 1, 64)}})
def spline_network() -> Made:
    from inkan import KANNetwork

    return KANNetwork([4, 8, 2]), (torch.rand(10, 4) * 2 - 1,)


@wild("fdwt", "dwt", dims={"x": {1: ("length", 8, 64)}})
def wavelets() -> Made:
    from dwt import DWT1D

    return DWT1D("db2"), (torch.randn(2, 32, 3),)


@wild("attn-res", dims={"tokens": {0: ("batch", 1, 4), 1: ("length", 1, 48)}})
def attention_residuals() -> Made:
    from attn_res import AttnResTransformer, TransformerConfig

    config = TransformerConfig(
        d_model=32, n_layers=4, n_heads=4, n_kv_heads=2, vocab_size=40, max_seq_len=64, n_blocks=2
    )
    return AttnResTransformer(config), (torch.randint(0, 40, (2, 13)),)


@wild("minimal-zoom-fft", dims={"x": {0: ("rows", 1, 8)}})
def zoomed_spectrum() -> Made:
    from minimal_zoom_fft import zoom_fft

    class Band(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return zoom_fft(x, n_out=24, k_start=0.2, k_end=1.1).abs()

    return Band(), (torch.randn(3, 40),)


@wild("bayesnn", dims={"x": {0: ("batch", 1, 64)}}, random="state")
def bayesian_linear() -> Made:
    from bayesnn import BayesianLinear

    return BayesianLinear(6, 3), (torch.randn(8, 6),)


@wild("gsmc-torch", dims={"x_seq": {0: ("batch", 1, 8), 1: ("time", 1, 24)}})
def spiking_memory() -> Made:
    from gsmc_torch import GSMCv2

    return GSMCv2(6, 12), (torch.randn(2, 9, 6),)


@wild("gsmc-torch", dims={"x_seq": {1: ("time", 1, 24)}})
def fused_spiking_memory() -> Made:
    from gsmc_torch import FusedGSMCv2

    return FusedGSMCv2(6, 12), (torch.randn(2, 9, 6),)


@wild("SNGP", "sngp", dims={"X": {0: ("batch", 1, 32)}})
def gaussian_process_head() -> Made:
    from sngp import SNGP

    backbone = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
    return SNGP(3, backbone, backbone_output_features=16, num_inducing=32), (torch.randn(5, 6),)


@wild("engression-pytorch", dims={"y": {0: ("batch", 1, 32)}, "preds": {0: ("batch", 1, 32)}})
def energy_score() -> Made:
    from engression_pytorch import EnergyScoreLoss

    return EnergyScoreLoss(), (torch.randn(5, 3), torch.randn(5, 4, 3))


@wild("rmi-pytorch", "rmi")
def mutual_information() -> Made:
    from rmi import RMILoss

    return RMILoss(with_logits=True), (torch.randn(2, 3, 24, 24), torch.randint(0, 2, (2, 3, 24, 24)).float())


@wild("allencrf", dims={"inputs": {1: ("length", 1, 16)}, "tags": {1: ("length", 1, 16)}})
def field_of_tags() -> Made:
    from allencrf.conditional_random_field import ConditionalRandomField

    return ConditionalRandomField(5), (torch.randn(3, 7, 5), torch.randint(0, 5, (3, 7)))


@wild("deel-torchlip", "deel", dims={"input": {0: ("batch", 1, 16)}})
def lipschitz_classifier() -> Made:
    from deel import torchlip

    return torchlip.Sequential(
        torchlip.SpectralConv2d(1, 8, 3, padding=1),
        torchlip.GroupSort2(),
        torchlip.ScaledL2NormPool2d(2),
        nn.Flatten(),
        torchlip.SpectralLinear(8 * 16, 4),
    ), (torch.randn(3, 1, 8, 8),)


@wild("timm-3d")
def volume_resnet() -> Made:
    make_torchvision_importable()
    import timm_3d

    return timm_3d.create_model("resnet10t", pretrained=False, num_classes=4, in_chans=1), (
        torch.randn(1, 1, 32, 32, 32),
    )


@wild("timm-3d")
def volume_convnext() -> Made:
    make_torchvision_importable()
    import timm_3d

    return timm_3d.create_model("convnext_atto", pretrained=False, num_classes=4), (
        torch.randn(1, 3, 32, 32, 32),
    )


@wild("ezgatr", dims={"x": {1: ("tokens", 1, 32)}})
def geometric_algebra_transformer() -> Made:
    from ezgatr.nets.mv_only_gatr import MVOnlyGATrConfig, MVOnlyGATrModel

    return MVOnlyGATrModel(
        MVOnlyGATrConfig(
            num_layers=2,
            size_context=64,
            size_channels_in=2,
            size_channels_out=1,
            size_channels_hidden=8,
            size_channels_intermediate=8,
            attn_num_heads=2,
        )
    ), (torch.randn(2, 9, 2, 16),)


@wild("complexNN", dims={"x": {0: ("batch", 1, 16)}})
def complex_perceptron() -> Made:
    from complexNN.nn import cMLP

    return cMLP(6, 12, 3, 2), (torch.randn(4, 6, dtype=torch.complex64),)


@wild("complexNN", dims={"sequence": {0: ("time", 1, 16)}})
def complex_recurrent() -> Made:
    from complexNN.nn import cLSTM

    start = torch.zeros(2, 3, 8, dtype=torch.complex64)
    return cLSTM(6, 8, 2), (torch.randn(5, 3, 6, dtype=torch.complex64), (start, start.clone()))


@wild("complexNN", dims={"sequence": {0: ("time", 1, 16)}})
def complex_gates() -> Made:
    from complexNN.nn import cGRU

    start = torch.zeros(2, 3, 8, dtype=torch.complex64)
    return cGRU(6, 8, 2), (torch.randn(5, 3, 6, dtype=torch.complex64), start)


@wild(
    "e3tools",
    dims={
        "node_attr": {0: ("nodes", 2, 32)},
        "edge_index": {1: ("edges", 1, 64)},
        "edge_attr": {0: ("edges", 1, 64)},
        "edge_sh": {0: ("edges", 1, 64)},
    },
)
def equivariant_block() -> Made:
    import e3nn
    from e3tools.nn import TransformerBlock

    block = TransformerBlock(
        irreps_in=e3nn.o3.Irreps("4x0e + 2x1o"),
        irreps_out=e3nn.o3.Irreps("4x0e + 2x1o"),
        irreps_sh=e3nn.o3.Irreps("1x0e + 1x1o"),
        edge_attr_dim=6,
        num_heads=2,
    )
    return block, (torch.randn(7, 10), torch.randint(0, 7, (2, 15)), torch.rand(15, 6), torch.randn(15, 4))


@wild("auto-esn", dims={"input": {0: ("time", 40, 80)}})
def echo_state() -> Made:
    from auto_esn.esn.esn import DeepESN

    return DeepESN(input_size=2, hidden_size=20, output_dim=1, washout=3), (torch.randn(50, 2),)


@wild(
    "cross-transformers-pytorch",
    dims={"img_query": {0: ("queries", 1, 4)}, "img_supports": {0: ("queries", 1, 4)}},
)
def few_shot() -> Made:
    from cross_transformers_pytorch import CrossTransformer

    class Matcher(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Conv2d(3, 16, 4, stride=4)
            self.head = CrossTransformer(dim=16, dim_key=8, dim_value=8)

        def forward(self, img_query: torch.Tensor, img_supports: torch.Tensor) -> torch.Tensor:
            return self.head(self.backbone, img_query, img_supports)

    return Matcher(), (torch.randn(1, 3, 16, 16), torch.randn(1, 2, 4, 3, 16, 16))


@wild("torch-crps", "torch_crps", dims={"x": {1: ("members", 2, 16)}})
def probability_score() -> Made:
    from torch_crps import crps_ensemble

    class Score(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return crps_ensemble(x, y)

    return Score(), (torch.randn(4, 9), torch.randn(4))


@wild("high-order-layers-torch", dims={"x": {0: ("batch", 1, 32)}})
def piecewise_polynomial() -> Made:
    make_torchvision_importable()
    from high_order_layers_torch.networks import HighOrderMLP

    return HighOrderMLP(
        layer_type="continuous",
        n=3,
        in_width=4,
        out_width=2,
        hidden_layers=1,
        hidden_width=8,
        in_segments=4,
        out_segments=4,
        hidden_segments=4,
    ), (torch.rand(6, 4) * 2 - 1,)


@wild("high-order-layers-torch", dims={"x": {0: ("batch", 1, 32)}})
def fourier_layers() -> Made:
    make_torchvision_importable()
    from high_order_layers_torch.networks import HighOrderMLP

    return HighOrderMLP(
        layer_type="fourier", n=5, in_width=4, out_width=2, hidden_layers=1, hidden_width=8
    ), (torch.rand(6, 4) * 2 - 1,)
