"""A fourth draw from the packages of November 2026 that nothing here had been tried on."""

from __future__ import annotations

import torch
from torch import nn

from models._vision import make_torchvision_importable
from tests.wild.cases import Made, wild


@wild("torch-hd", "torchhd", dims={"x": {0: ("batch", 1, 8)}})
def hyperdimensional() -> Made:
    import torchhd

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.position = torchhd.embeddings.Random(9, 200)
            self.value = torchhd.embeddings.Level(11, 200)
            self.classes = torchhd.models.Centroid(200, 3)
            nn.init.normal_(self.classes.weight)

        def forward(self, x):
            hv = torchhd.multiset(torchhd.bind(self.position.weight, self.value(x)))
            return self.classes(torchhd.hard_quantize(hv))

    return Classifier(), (torch.rand(2, 9),)


@wild("caustics", dims={"x": {0: ("points", 1, 40)}, "y": {0: ("points", 1, 40)}})
def lens_deflection() -> Made:
    from caustics import SIE, FlatLambdaCDM

    lens = SIE(FlatLambdaCDM(name="cosmology"), z_l=0.5, z_s=1.0, x0=0.1, y0=0.0, q=0.7, phi=0.3, Rein=1.2)

    class Deflection(nn.Module):
        def forward(self, x, y):
            ax, ay = lens.reduced_deflection_angle(x, y)
            return ax, ay, lens.convergence(x, y)

    return Deflection(), (torch.randn(7), torch.randn(7))


@wild("tad-dftd3", "tad_dftd3", dims={"positions": {0: ("batch", 1, 4)}})
def dispersion_energy() -> Made:
    import tad_dftd3

    class Dispersion(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("numbers", torch.tensor([6, 1, 1, 1, 1]))

        def forward(self, positions):
            param = {k: positions.new_tensor(v) for k, v in {"a1": 0.4, "s8": 0.8, "a2": 4.9}.items()}
            numbers = self.numbers.expand(positions.shape[0], -1)
            return tad_dftd3.dftd3(numbers, positions, param)

    return Dispersion(), (torch.randn(2, 5, 3) * 3,)


@wild("cheetah-accelerator", "cheetah", dims={"k1": {0: ("batch", 1, 8)}})
def beam_optics() -> Made:
    import cheetah

    class Beam(nn.Module):
        def forward(self, k1):
            segment = cheetah.Segment(
                [
                    cheetah.Drift(length=torch.tensor(0.5)),
                    cheetah.Quadrupole(length=torch.tensor(0.2), k1=k1),
                    cheetah.Drift(length=torch.tensor(1.0)),
                ]
            )
            out = segment.track(
                cheetah.ParameterBeam.from_parameters(
                    sigma_x=torch.tensor(1e-3), sigma_y=torch.tensor(2e-3), energy=torch.tensor(1e8)
                )
            )
            return out.sigma_x, out.sigma_y

    return Beam(), (torch.tensor([3.0, -2.0, 1.0]),)


@wild("torch-struct", "torch_struct", dims={"x": {1: ("length", 2, 24)}})
def chain_partition() -> Made:
    from torch_struct import LinearChainCRF

    class Chain(nn.Module):
        def forward(self, x):
            chain = LinearChainCRF(x)
            return chain.partition, chain.max

    return Chain(), (torch.randn(2, 9, 3, 3),)


@wild("pyqtorch", dims={"theta": {0: ("batch", 1, 8)}})
def quantum_circuit() -> Made:
    import pyqtorch as pyq

    circuit = pyq.QuantumCircuit(
        3, [pyq.H(0), pyq.RX(0, "theta"), pyq.CNOT(0, 1), pyq.RY(1, "theta"), pyq.CNOT(1, 2)]
    )
    observable = pyq.Observable([pyq.Z(0), pyq.Z(2)])

    class Expectation(nn.Module):
        def __init__(self):
            super().__init__()
            self.circuit = circuit
            self.observable = observable

        def forward(self, theta):
            state = pyq.zero_state(3)
            return pyq.expectation(self.circuit, state, {"theta": theta}, self.observable)

    return Expectation(), (torch.rand(4),)


@wild("hypll", dims={"x": {0: ("batch", 1, 8)}})
def hyperbolic_perceptron() -> Made:
    from hypll import nn as hnn
    from hypll.manifolds.poincare_ball import Curvature, PoincareBall
    from hypll.tensors import TangentTensor

    ball = PoincareBall(Curvature(1.0))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = hnn.HLinear(6, 8, manifold=ball)
            self.r = hnn.HReLU(manifold=ball)
            self.b = hnn.HLinear(8, 3, manifold=ball)

        def forward(self, x):
            point = ball.expmap(TangentTensor(data=x, man_dim=-1, manifold=ball))
            return self.b(self.r(self.a(point))).tensor

    return Net(), (torch.randn(3, 6) * 0.3,)


@wild("cliffordlayers", dims={"x": {0: ("batch", 1, 4)}})
def clifford_net() -> Made:
    from cliffordlayers.models.models_2d import CliffordFourierBasicBlock2d, CliffordNet2d
    from torch.nn import functional

    class Block(CliffordFourierBasicBlock2d):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, modes1=4, modes2=4, **kwargs)

    return CliffordNet2d(
        g=[1, 1],
        block=Block,
        num_blocks=[1],
        in_channels=2,
        out_channels=1,
        hidden_channels=4,
        activation=functional.gelu,
        rotation=False,
        norm=True,
    ), (torch.randn(2, 2, 16, 16, 3),)


@wild("the-well", "the_well", dims={"x": {0: ("batch", 1, 4)}})
def axial_vit() -> Made:
    make_torchvision_importable()
    from the_well.benchmark.models.avit import AViT

    return AViT(3, 2, 2, (32, 32), hidden_dim=48, num_heads=4, processor_blocks=2), (
        torch.randn(1, 32, 32, 3),
    )


@wild("the-well", "the_well", dims={"x": {0: ("batch", 1, 3)}})
def convnext_unet() -> Made:
    make_torchvision_importable()
    from the_well.benchmark.models.unet_convnext import UNetConvNext

    return UNetConvNext(3, 2, 2, (32, 32), stages=2, init_features=8), (torch.randn(2, 3, 32, 32),)


@wild("azula", dims={"x": {2: ("height", 16, 40), 3: ("width", 16, 40)}})
def azula_unet() -> Made:
    from azula.nn.unet import UNet

    return UNet(2, 2, hid_channels=(8, 16), hid_blocks=(1, 1), mod_features=4), (
        torch.randn(1, 2, 24, 24),
        torch.randn(1, 4),
    )


@wild("azula", dims={"x": {0: ("batch", 1, 8)}}, random="state")
def ddim_sampler() -> Made:
    from azula.denoise import KarrasDenoiser
    from azula.noise import VPSchedule
    from azula.sample import DDIMSampler

    class Backbone(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 32), nn.SiLU(), nn.Linear(32, 2))

        def forward(self, x, t):
            return self.net(torch.cat([x, t.expand(x.shape[0], 1)], -1))

    class Sample(nn.Module):
        def __init__(self):
            super().__init__()
            self.sampler = DDIMSampler(KarrasDenoiser(Backbone(), VPSchedule()), steps=6, silent=True)

        def forward(self, x):
            return self.sampler(x)

    return Sample(), (torch.randn(4, 2),)


@wild("tabicl", dims={"x": {1: ("rows", 10, 30)}})
def in_context_classes() -> Made:
    from tabicl._model.tabicl import TabICL

    m = TabICL(
        max_classes=4,
        embed_dim=16,
        col_num_blocks=1,
        col_nhead=2,
        col_num_inds=4,
        row_num_blocks=1,
        row_nhead=2,
        row_num_cls=2,
        icl_num_blocks=1,
        icl_nhead=2,
        zero_init=False,
    )

    class Predict(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = m

        def forward(self, x, y):
            return self.m(x, y)

    return Predict(), (torch.randn(1, 14, 5), torch.randint(0, 3, (1, 8)).float())


@wild("torchfm", dims={"x": {0: ("batch", 1, 16)}})
def extreme_factorization() -> Made:
    from torchfm.model.xdfm import ExtremeDeepFactorizationMachineModel

    m = ExtremeDeepFactorizationMachineModel(
        [5, 7, 4], embed_dim=8, mlp_dims=(16,), dropout=0.1, cross_layer_sizes=(8, 8)
    )
    return m, (torch.stack([torch.randint(0, n, (6,)) for n in (5, 7, 4)], 1),)


@wild("torchfm", dims={"x": {0: ("batch", 1, 16)}})
def attentional_interactions() -> Made:
    from torchfm.model.afi import AutomaticFeatureInteractionModel

    m = AutomaticFeatureInteractionModel([5, 7, 4], 8, 8, 2, 2, (16,), (0.1, 0.1, 0.1))
    return m, (torch.stack([torch.randint(0, n, (6,)) for n in (5, 7, 4)], 1),)


@wild("d3rlpy", dims={"x": {0: ("batch", 1, 16)}})
def quantile_q_function() -> Made:
    from d3rlpy.models import QRQFunctionFactory, VectorEncoderFactory, create_discrete_q_function

    _, forwarder = create_discrete_q_function(
        (4,), 3, VectorEncoderFactory([16, 16]), QRQFunctionFactory(n_quantiles=8), "cpu", False, 2
    )

    class Greedy(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.ModuleList(f._q_func for f in forwarder._forwarders)

        def forward(self, x):
            q = forwarder.compute_expected_q(x)
            return q, q.argmax(dim=-1)

    return Greedy(), (torch.randn(3, 4),)


@wild("d3rlpy", dims={"x": {0: ("batch", 1, 4)}, "a": {0: ("batch", 1, 4)}, "r": {0: ("batch", 1, 4)}})
def decision_transformer() -> Made:
    from d3rlpy.constants import PositionEncodingType
    from d3rlpy.models import VectorEncoderFactory, create_discrete_decision_transformer

    m = create_discrete_decision_transformer(
        (4,),
        3,
        VectorEncoderFactory([16]),
        num_heads=2,
        max_timestep=20,
        num_layers=1,
        context_size=6,
        attn_dropout=0.0,
        resid_dropout=0.0,
        embed_dropout=0.0,
        activation_type="gelu",
        embed_activation_type="tanh",
        position_encoding_type=PositionEncodingType.SIMPLE,
        device="cpu",
        enable_ddp=False,
    )

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = m

        def forward(self, x, a, r):
            steps = torch.arange(1, 7).expand(x.shape[0], -1)
            return self.m(x, a, r, steps, torch.ones_like(steps))

    return Policy(), (torch.randn(2, 6, 4), torch.randint(0, 3, (2, 6, 1)), torch.randn(2, 6, 1))


@wild("sbi", dims={"theta": {0: ("batch", 2, 16)}, "x": {0: ("batch", 2, 16)}})
def spline_posterior() -> Made:
    from sbi.neural_nets.net_builders.flow import build_nsf

    flow = build_nsf(torch.randn(50, 2), torch.randn(50, 3), hidden_features=16, num_transforms=2, num_bins=4)

    class LogProb(nn.Module):
        def __init__(self):
            super().__init__()
            self.flow = flow

        def forward(self, theta, x):
            return self.flow.log_prob(theta.unsqueeze(0), condition=x)

    return LogProb(), (torch.randn(4, 2), torch.randn(4, 3))


@wild(
    "graph-transformer-pytorch",
    dims={"nodes": {1: ("nodes", 2, 16)}, "adj": {1: ("nodes", 2, 16), 2: ("nodes", 2, 16)}},
)
def graph_transformer() -> Made:
    from graph_transformer_pytorch import GraphTransformer

    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = GraphTransformer(
                dim=16,
                depth=1,
                dim_head=8,
                heads=2,
                with_feedforwards=True,
                rel_pos_emb=True,
                accept_adjacency_matrix=True,
            )

        def forward(self, nodes, adj):
            return self.m(nodes, adj_mat=adj)

    return Graph(), (torch.randn(1, 7, 16), torch.randint(0, 2, (1, 7, 7)))


@wild(
    "adjacent-attention-pytorch",
    "adjacent_attention_network",
    dims={"x": {0: ("batch", 1, 4)}, "adj": {0: ("batch", 1, 4)}},
    random="state",
)
def adjacent_attention() -> Made:
    from adjacent_attention_network import AdjacentAttentionNetwork

    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = AdjacentAttentionNetwork(dim=16, depth=1, dim_head=8, heads=2, num_neighbors_cutoff=4)

        def forward(self, x, adj):
            return self.m(x, adj.bool())

    return Graph(), (torch.randn(1, 9, 16), (torch.rand(1, 9, 9) < 0.3).int())


@wild("pytorch-tree-lstm", "treelstm")
def tree_lstm() -> Made:
    from treelstm import TreeLSTM, calculate_evaluation_orders

    edges = torch.tensor([[0, 1], [0, 2], [1, 3], [1, 4], [2, 5], [2, 6]])
    nodes, order = calculate_evaluation_orders(edges.numpy(), 7)
    m = TreeLSTM(5, 8)
    return m, (torch.randn(7, 5), torch.from_numpy(nodes), edges, torch.from_numpy(order))


@wild("VN-transformer", "VN_transformer", dims={"coors": {1: ("points", 2, 32)}})
def vector_neurons() -> Made:
    from VN_transformer import VNTransformer

    class Points(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = VNTransformer(
                dim=8, depth=1, dim_head=4, heads=2, dim_feat=4, translation_equivariance=True
            )

        def forward(self, coors, feats):
            return self.m(coors, feats=feats.expand(-1, coors.shape[1], -1))

    return Points(), (torch.randn(1, 12, 3), torch.randn(1, 1, 4))


@wild(
    "gotennet-pytorch",
    "gotennet_pytorch",
    dims={"atoms": {0: ("batch", 1, 3)}, "coors": {0: ("batch", 1, 3)}},
)
def goten_net() -> Made:
    from gotennet_pytorch import GotenNet

    m = GotenNet(dim=16, depth=1, max_degree=2, heads=2, dim_head=8, dim_edge_refinement=16)
    return m, (torch.randint(0, 14, (1, 6)), torch.randn(1, 6, 3))


@wild(
    "rectified-flow-pytorch",
    "rectified_flow_pytorch",
    dims={"x": {0: ("batch", 1, 3)}, "times": {0: ("batch", 1, 3)}},
)
def flow_unet_image() -> Made:
    make_torchvision_importable()
    from rectified_flow_pytorch import Unet

    return Unet(dim=8, dim_mults=(1, 2), attn_heads=2, attn_dim_head=8), (
        torch.randn(2, 3, 16, 16),
        torch.rand(2),
    )


@wild("audio-encoders-pytorch", dims={"x": {2: ("samples", 64, 256)}})
def audio_autoencoder() -> Made:
    from audio_encoders_pytorch import AutoEncoder1d, TanhBottleneck

    m = AutoEncoder1d(
        in_channels=2,
        channels=8,
        multipliers=[1, 1, 2],
        factors=[2, 2],
        num_blocks=[1, 1],
        patch_size=2,
        resnet_groups=4,
        bottleneck=TanhBottleneck(),
    )
    return m, (torch.randn(1, 2, 160),)


@wild("torchsynth")
def synth_voice() -> Made:
    from torchsynth.config import SynthConfig
    from torchsynth.module import ADSR, VCA, ControlRateUpsample, SineVCO

    config = SynthConfig(
        batch_size=4, sample_rate=4000, control_rate=100, buffer_size_seconds=1.0, reproducible=False
    )

    class Voice(nn.Module):
        def __init__(self):
            super().__init__()
            self.adsr = ADSR(config)
            self.up = ControlRateUpsample(config)
            self.vco = SineVCO(config)
            self.vca = VCA(config)

        def forward(self, midi, duration):
            envelope = self.up(self.adsr(duration))
            return self.vca(self.vco(midi, envelope), envelope)

    return Voice(), (torch.rand(4) * 60 + 30, torch.rand(4))


@wild("pytorch-tdnn", "pytorch_tdnn", dims={"x": {2: ("frames", 20, 80)}})
def time_delay_net() -> Made:
    from pytorch_tdnn.tdnn import TDNN
    from pytorch_tdnn.tdnnf import TDNNF

    m = nn.Sequential(TDNN(8, 16, [-2, 0, 2]), nn.ReLU(), TDNNF(16, 16, 8, 1))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.r, self.b = m

        def forward(self, x):
            return self.b(self.r(self.a(x)))

    return Net(), (torch.randn(1, 8, 40),)


@wild("cqt-pytorch", dims={"x": {0: ("batch", 1, 3)}})
def constant_q() -> Made:
    from cqt_pytorch import CQT

    class Transform(nn.Module):
        def __init__(self):
            super().__init__()
            self.t = CQT(num_octaves=3, num_bins_per_octave=8, sample_rate=4000, block_length=2048)

        def forward(self, x):
            z = self.t.encode(x)
            return z.abs(), self.t.decode(z)

    return Transform(), (torch.randn(1, 2, 2048),)


@wild("torch-mdct", dims={"waveform": {1: ("samples", 128, 1024)}})
def modified_cosine() -> Made:
    from torch_mdct import IMDCT, MDCT

    class RoundTrip(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = MDCT(win_length=128)
            self.i = IMDCT(win_length=128)

        def forward(self, waveform):
            s = self.f(waveform)
            return s, self.i(s)

    return RoundTrip(), (torch.randn(2, 700),)


@wild("ltntorch", "ltn", dims={"x": {0: ("people", 2, 12)}, "y": {0: ("others", 2, 12)}})
def logic_tensor_net() -> Made:
    import ltn

    class Satisfied(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 8), nn.ELU(), nn.Linear(8, 1), nn.Sigmoid())

        def forward(self, x, y):
            p = ltn.Predicate(self.net)
            both = ltn.Connective(ltn.fuzzy_ops.AndProd())
            implies = ltn.Connective(ltn.fuzzy_ops.ImpliesReichenbach())
            every = ltn.Quantifier(ltn.fuzzy_ops.AggregPMeanError(p=2), quantifier="f")
            a, b = ltn.Variable("a", x), ltn.Variable("b", y)
            return every([a, b], implies(both(p(a), p(b)), p(a))).value

    return Satisfied(), (torch.randn(5, 3), torch.randn(4, 3))


@wild("neuralhydrology", dims={"x": {1: ("days", 4, 40)}})
def entity_aware_lstm() -> Made:
    from neuralhydrology.modelzoo.ealstm import EALSTM
    from neuralhydrology.utils.config import Config

    config = Config(
        {
            "model": "ealstm",
            "head": "regression",
            "hidden_size": 8,
            "dynamic_inputs": ["rain", "warmth"],
            "static_attributes": ["area", "slope", "forest"],
            "target_variables": ["flow"],
            "output_dropout": 0.1,
            "initial_forget_bias": 3,
            "seq_length": 10,
        }
    )

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = EALSTM(config)

        def forward(self, x, s):
            return self.m({"x_d": {"rain": x[..., :1], "warmth": x[..., 1:]}, "x_s": s})["y_hat"]

    return Flow(), (torch.randn(2, 10, 2), torch.randn(2, 3))


@wild("torch-cubic-spline-grids", dims={"u": {0: ("points", 1, 40)}})
def spline_grid() -> Made:
    from torch_cubic_spline_grids import CubicBSplineGrid2d

    m = CubicBSplineGrid2d(resolution=(5, 6), n_channels=2)
    nn.init.normal_(m._data)
    return m, (torch.rand(7, 2),)


@wild(
    "pytorch-msssim",
    dims={
        "X": {2: ("height", 170, 200), 3: ("width", 170, 200)},
        "Y": {2: ("height", 170, 200), 3: ("width", 170, 200)},
    },
)
def multiscale_similarity() -> Made:
    from pytorch_msssim import MS_SSIM

    a = torch.rand(1, 1, 176, 180)
    return MS_SSIM(data_range=1.0, channel=1), (a, (a + torch.randn_like(a) * 0.1).clamp(0, 1))


@wild("native-sparse-attention-pytorch", dims={"inp": {1: ("length", 4, 64)}})
def native_sparse() -> Made:
    from native_sparse_attention_pytorch import SparseAttention

    return SparseAttention(
        dim=32,
        dim_head=16,
        heads=2,
        sliding_window_size=2,
        compress_block_size=4,
        compress_block_sliding_stride=2,
        selection_block_size=4,
        num_selected_blocks=2,
        causal=True,
    ), (torch.randn(1, 31, 32),)


@wild("pointnet", dims={"x": {2: ("points", 8, 64)}})
def pointnet_classes() -> Made:
    from pointnet import PointNetCls

    m = PointNetCls(3, 4)
    return m, (torch.randn(2, 3, 24),)


@wild("pointnet", dims={"x": {0: ("batch", 1, 3)}})
def pointnet2_classes() -> Made:
    from pointnet import PointNet2ClsSSG

    m = PointNet2ClsSSG(3, 4)
    return m, (torch.randn(2, 3, 600), torch.rand(2, 3, 600))


@wild("transformer-lens", "transformer_lens", dims={"input": {1: ("length", 2, 24)}})
def hooked_transformer() -> Made:
    make_torchvision_importable()
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    m = HookedTransformer(
        HookedTransformerConfig(
            n_layers=2, d_model=16, n_ctx=32, d_head=8, n_heads=2, act_fn="gelu_new", d_vocab=40, device="cpu"
        )
    )
    return m, (torch.randint(0, 40, (1, 9)),)


@wild("torchtune", dims={"tokens": {1: ("length", 2, 24)}})
def torchtune_llama() -> Made:
    from torchtune.models.llama2 import lora_llama2

    m = lora_llama2(
        ["q_proj", "v_proj"],
        vocab_size=40,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        embed_dim=32,
        max_seq_len=32,
        lora_rank=2,
        lora_alpha=4,
    )
    return m, (torch.randint(0, 40, (1, 9)),)


@wild("torchtune", dims={"tokens": {1: ("length", 2, 24)}})
def torchtune_gemma2() -> Made:
    from torchtune.models.gemma2 import gemma2

    m = gemma2(
        vocab_size=40,
        num_layers=2,
        num_heads=2,
        head_dim=8,
        num_kv_heads=1,
        embed_dim=16,
        intermediate_dim=32,
        max_seq_len=32,
        sliding_window_size=4,
    )
    return m, (torch.randint(0, 40, (1, 9)),)


@wild("neuralforecast", dims={"x": {0: ("batch", 1, 6)}})
def hierarchical_interpolation() -> Made:
    make_torchvision_importable()
    from neuralforecast.models import NHITS

    class Forecast(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = NHITS(h=6, input_size=24, mlp_units=[[16, 16]] * 3, accelerator="cpu")

        def forward(self, x):
            batch = {"insample_y": x, "insample_mask": torch.ones_like(x)}
            return self.m(batch | {"hist_exog": None, "futr_exog": None, "stat_exog": None})

    return Forecast(), (torch.randn(2, 24, 1),)


@wild("neuralforecast", dims={"x": {0: ("batch", 1, 6)}})
def times_net() -> Made:
    make_torchvision_importable()
    from neuralforecast.models import TimesNet

    class Forecast(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = TimesNet(
                h=6,
                input_size=24,
                hidden_size=8,
                conv_hidden_size=8,
                top_k=2,
                num_kernels=2,
                encoder_layers=1,
            )

        def forward(self, x):
            batch = {"insample_y": x, "insample_mask": torch.ones_like(x)}
            return self.m(batch | {"hist_exog": None, "futr_exog": None, "stat_exog": None})

    return Forecast(), (torch.randn(2, 24, 1),)


@wild("bindsnet", dims={"x": {0: ("steps", 2, 20)}})
def spiking_network() -> Made:
    make_torchvision_importable()
    from bindsnet.network import Network
    from bindsnet.network.nodes import Input, LIFNodes
    from bindsnet.network.topology import Connection

    class Spikes(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = Network(dt=1.0, learning=False)
            a, b = Input(n=8), LIFNodes(n=6)
            self.n.add_layer(a, name="a")
            self.n.add_layer(b, name="b")
            self.n.add_connection(Connection(a, b, w=torch.rand(8, 6) * 6), source="a", target="b")

        def forward(self, x):
            self.n.reset_state_variables()
            self.n.run(inputs={"a": x}, time=x.shape[0])
            return self.n.layers["b"].v

    return Spikes(), ((torch.rand(10, 1, 8) < 0.4).float(),)


@wild("mpc", dims={"x": {0: ("batch", 1, 4)}})
def linear_quadratic_control() -> Made:
    from mpc import mpc

    class Control(nn.Module):
        def forward(self, x):
            n, steps = x.shape[0], 4
            c = torch.eye(3).expand(steps, n, 3, 3)
            f = torch.cat([torch.eye(2) * 0.9, torch.ones(2, 1)], 1).expand(steps, n, 2, 3)
            solver = mpc.MPC(2, 1, steps, lqr_iter=3, exit_unconverged=False, n_batch=n)
            return solver(x, mpc.QuadCost(c, torch.zeros(steps, n, 3)), mpc.LinDx(f))[:2]

    return Control(), (torch.randn(2, 2),)


@wild("torchgw")
def gromov_wasserstein() -> Made:
    from torchgw import sampled_gw

    class Plan(nn.Module):
        def forward(self, x, y):
            return sampled_gw(
                x,
                y,
                distance_mode="precomputed",
                dist_source=torch.cdist(x, x),
                dist_target=torch.cdist(y, y),
                max_iter=3,
            )

    return Plan(), (torch.randn(8, 2), torch.randn(9, 2))


@wild("hypnettorch", dims={"x": {0: ("batch", 1, 8)}})
def hypernetwork() -> Made:
    from hypnettorch.hnets import HMLP
    from hypnettorch.mnets import MLP

    class Conditioned(nn.Module):
        def __init__(self):
            super().__init__()
            self.main = MLP(n_in=3, n_out=2, hidden_layers=(8,), no_weights=True, verbose=False)
            self.hyper = HMLP(
                self.main.param_shapes, layers=(16,), num_cond_embs=4, cond_in_size=4, verbose=False
            )

        def forward(self, x):
            return self.main(x, weights=self.hyper(cond_id=2))

    return Conditioned(), (torch.randn(3, 3),)


@wild("odak")
def holographic_propagation() -> Made:
    from odak.learn.wave import propagate_beam, wavenumber

    class Propagate(nn.Module):
        def forward(self, phase):
            field = torch.exp(1j * phase)
            out = propagate_beam(
                field, wavenumber(515e-9), 1e-3, 8e-6, 515e-9, propagation_type="Bandlimited Angular Spectrum"
            )
            return out.abs() ** 2

    return Propagate(), (torch.rand(32, 32) * 6,)


@wild("differentiable-robot-model", "differentiable_robot_model", dims={"q": {0: ("batch", 1, 8)}})
def arm_kinematics() -> Made:
    from differentiable_robot_model import DifferentiableKUKAiiwa

    arm = DifferentiableKUKAiiwa(device="cpu")

    class Arm(nn.Module):
        def __init__(self):
            super().__init__()
            self.arm = arm

        def forward(self, q):
            position, rotation = self.arm.compute_forward_kinematics(q, "iiwa_link_ee")
            return position, rotation, self.arm.compute_lagrangian_inertia_matrix(q)

    return Arm(), (torch.randn(3, 7),)


@wild("borzoi-pytorch", dims={"x": {0: ("batch", 1, 2)}})
def borzoi() -> Made:
    make_torchvision_importable()
    from borzoi_pytorch import Borzoi
    from borzoi_pytorch.config_borzoi import BorzoiConfig

    m = Borzoi(
        BorzoiConfig(
            dim=64,
            depth=1,
            heads=2,
            attn_dim_key=16,
            attn_dim_value=32,
            bins_to_return=16,
            return_center_bins_only=True,
        )
    )
    return m, (torch.nn.functional.one_hot(torch.randint(0, 4, (1, 4096)), 4).float().transpose(1, 2),)


@wild("deeptime", dims={"inputs": {0: ("batch", 2, 16)}})
def vampnet_lobe() -> Made:
    from deeptime.util.torch import MLP

    return MLP([6, 16, 4], nn.ELU, initial_batchnorm=True, output_nonlinearity=nn.Softmax), (
        torch.randn(5, 6),
    )
