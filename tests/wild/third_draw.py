"""A third draw from the packages of November 2026 that nothing here had been tried on."""

from __future__ import annotations

import torch
from torch import nn

from models._vision import make_torchvision_importable
from tests.wild.cases import Made, wild


@wild("h-transformer-1d", "h_transformer_1d", dims={"x": {1: ("length", 20, 120)}})
def hierarchical() -> Made:
    from h_transformer_1d import HTransformer1D

    m = HTransformer1D(
        num_tokens=50, dim=32, depth=2, causal=False, max_seq_len=128, heads=2, dim_head=16, block_size=8
    )
    return m, (torch.randint(0, 50, (1, 100)),)


@wild("sinkhorn-transformer", dims={"x": {0: ("batch", 1, 6)}})
def sinkhorn() -> Made:
    from sinkhorn_transformer import SinkhornTransformerLM

    m = SinkhornTransformerLM(50, 32, 64, 2, heads=2, bucket_size=16, causal=True)
    return m, (torch.randint(0, 50, (2, 64)),)


@wild("routing-transformer", dims={"x": {0: ("batch", 1, 6)}}, random="state")
def routing() -> Made:
    from routing_transformer import RoutingTransformerLM

    m = RoutingTransformerLM(
        50, 32, 2, 64, heads=4, dim_head=16, window_size=16, causal=True, local_attn_window_size=16
    )
    return m, (torch.randint(0, 50, (2, 64)),)


@wild("segformer-pytorch", dims={"x": {2: ("height", 64, 160), 3: ("width", 64, 160)}})
def segformer() -> Made:
    from segformer_pytorch import Segformer

    m = Segformer(dims=(16, 32, 48, 64), heads=(1, 2, 3, 4), num_layers=1, decoder_dim=32, num_classes=4)
    return m, (torch.randn(1, 3, 64, 64),)


@wild("hamburger-pytorch", dims={"x": {0: ("batch", 1, 8)}})
def hamburger() -> Made:
    from hamburger_pytorch import Hamburger

    return Hamburger(dim=16, n=64, ratio=4, K=4), (torch.randn(2, 16, 8, 8),)


@wild("feedback-transformer-pytorch", dims={"x": {0: ("batch", 1, 4)}})
def feedback() -> Made:
    from feedback_transformer_pytorch import FeedbackTransformer

    m = FeedbackTransformer(num_tokens=50, dim=32, depth=2, seq_len=2, mem_len=16, dim_head=16, heads=2)
    return m, (torch.randint(0, 50, (2, 8)),)


@wild("MEGABYTE-pytorch", dims={"ids": {1: ("length", 9, 60)}})
def megabyte() -> Made:
    from MEGABYTE_pytorch import MEGABYTE

    m = MEGABYTE(num_tokens=50, dim=(32, 16), max_seq_len=(16, 4), depth=(2, 1), dim_head=16, heads=2)
    return m, (torch.randint(0, 50, (1, 40)),)


@wild("st-moe-pytorch", dims={"x": {1: ("length", 8, 64)}}, random="state")
def soft_experts() -> Made:
    from st_moe_pytorch import MoE

    return MoE(dim=16, num_experts=4, gating_top_n=2), (torch.randn(2, 24, 16),)


@wild("block-recurrent-transformer-pytorch", dims={"x": {0: ("batch", 1, 4)}})
def block_recurrent() -> Made:
    from block_recurrent_transformer_pytorch import BlockRecurrentTransformer

    m = BlockRecurrentTransformer(
        num_tokens=50,
        dim=32,
        depth=2,
        dim_head=16,
        heads=2,
        max_seq_len=32,
        block_width=16,
        num_state_vectors=16,
        recurrent_layers=(2,),
        use_flash_attn=False,
    )
    return m, (torch.randint(0, 50, (2, 32)),)


@wild("timesformer-pytorch", dims={"video": {0: ("batch", 1, 4)}})
def timesformer() -> Made:
    from timesformer_pytorch import TimeSformer

    m = TimeSformer(
        dim=32, image_size=32, patch_size=8, num_frames=4, num_classes=5, depth=2, heads=2, dim_head=16
    )
    return m, (torch.randn(2, 4, 3, 32, 32),)


@wild("memory-efficient-attention-pytorch", dims={"x": {1: ("length", 20, 200)}})
def chunked_attention() -> Made:
    from memory_efficient_attention_pytorch import Attention

    m = Attention(
        dim=32, dim_head=16, heads=2, memory_efficient=True, q_bucket_size=32, k_bucket_size=64, causal=True
    )
    return m, (torch.randn(1, 100, 32),)


@wild("uformer-pytorch", dims={"x": {0: ("batch", 1, 3)}})
def uformer() -> Made:
    from uformer_pytorch import Uformer

    return Uformer(dim=16, stages=2, num_blocks=1, window_size=8, dim_head=16, heads=2), (
        torch.randn(1, 3, 32, 32),
    )


@wild("halonet-pytorch", dims={"x": {2: ("height", 16, 64), 3: ("width", 16, 64)}})
def halo() -> Made:
    from halonet_pytorch import HaloAttention

    return HaloAttention(dim=16, block_size=8, halo_size=4, dim_head=16, heads=2), (
        torch.randn(1, 16, 32, 32),
    )


@wild("enformer-pytorch", dims={"x": {1: ("length", 512, 2048)}})
def enformer() -> Made:
    from enformer_pytorch import Enformer

    m = Enformer.from_hparams(
        dim=96,
        depth=1,
        heads=2,
        output_heads={"human": 4},
        target_length=-1,
        num_downsamples=4,
        dim_divisible_by=16,
    )

    class Human(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = m

        def forward(self, x):
            return self.m(x)["human"]

    return Human(), (torch.randint(0, 5, (1, 1024)),)


@wild("openai-whisper", "whisper", dims={"tokens": {1: ("tokens", 2, 20)}})
def whisper_text() -> Made:
    from whisper.model import ModelDimensions, Whisper

    d = ModelDimensions(
        n_mels=8,
        n_audio_ctx=32,
        n_audio_state=32,
        n_audio_head=2,
        n_audio_layer=1,
        n_vocab=60,
        n_text_ctx=24,
        n_text_state=32,
        n_text_head=2,
        n_text_layer=1,
    )
    return Whisper(d), (torch.randn(1, 8, 64), torch.randint(0, 60, (1, 7)))


@wild("braindecode", dims={"x": {0: ("batch", 1, 8)}})
def eegnex() -> Made:
    from braindecode.models import EEGNeX

    return EEGNeX(n_chans=8, n_outputs=3, n_times=256, sfreq=128), (torch.randn(2, 8, 256),)


@wild("braindecode", dims={"x": {0: ("batch", 1, 8)}})
def fbcnet() -> Made:
    from braindecode.models import FBCNet

    return FBCNet(n_chans=8, n_outputs=3, n_times=256, sfreq=128, n_bands=3), (torch.randn(2, 8, 256),)


@wild("cebra", dims={"inp": {0: ("batch", 1, 8)}})
def cebra_offset() -> Made:
    import cebra.models

    return cebra.models.init("offset10-model", num_neurons=12, num_units=16, num_output=4), (
        torch.randn(3, 12, 10),
    )


@wild("pretrainedmodels", dims={"input": {0: ("batch", 1, 3)}})
def fbresnet() -> Made:
    make_torchvision_importable()
    import pretrainedmodels

    return pretrainedmodels.models.fbresnet152.__globals__["FBResNet"](
        pretrainedmodels.models.fbresnet152.__globals__["Bottleneck"], [1, 1, 1, 1], num_classes=10
    ), (torch.randn(1, 3, 224, 224),)


@wild("descript-audio-codec", "dac", dims={"audio_data": {2: ("samples", 600, 1600)}})
def dac_codes() -> Made:
    import dac

    m = dac.DAC(
        encoder_dim=4,
        encoder_rates=[2, 4],
        latent_dim=16,
        decoder_dim=16,
        decoder_rates=[4, 2],
        n_codebooks=3,
        codebook_size=16,
        codebook_dim=4,
    )
    return m, (torch.randn(1, 1, 1000),)


@wild(
    "torchsurv",
    dims={"x": {0: ("subjects", 3, 64)}, "event": {0: ("subjects", 3, 64)}, "time": {0: ("subjects", 3, 64)}},
)
def cox_loss() -> Made:
    make_torchvision_importable()
    from torchsurv.loss.cox import neg_partial_log_likelihood

    class Cox(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 1)

        def forward(self, x, event, time):
            return neg_partial_log_likelihood(self.net(x), event, time)

    return Cox(), (torch.randn(12, 6), torch.rand(12) > 0.4, torch.rand(12) * 10)


@wild("torchseg", dims={"x": {2: ("height", 64, 160), 3: ("width", 64, 160)}})
def torchseg_fpn() -> Made:
    make_torchvision_importable()
    import torchseg

    return torchseg.FPN("resnet10t", encoder_weights=None, in_channels=3, classes=2), (
        torch.randn(1, 3, 64, 96),
    )


@wild("sinabs", dims={"input": {1: ("time", 2, 20)}})
def sinabs_lif() -> Made:
    import sinabs.layers as sl

    return nn.Sequential(nn.Linear(8, 16), sl.LIF(tau_mem=20.0), nn.Linear(16, 4), sl.LIF(tau_mem=10.0)), (
        torch.rand(2, 10, 8) * 3,
    )


@wild("torch-kf", "torch_kf", dims={"z": {0: ("steps", 2, 20)}})
def kalman() -> Made:
    from torch_kf import GaussianState
    from torch_kf.ckf import constant_kalman_filter

    kf = constant_kalman_filter(1.0, 0.1, dim=2, order=1)

    class Filter(nn.Module):
        def __init__(self):
            super().__init__()
            self.kf = kf

        def forward(self, z):
            state = GaussianState(torch.zeros(4, 1), torch.eye(4) * 10)
            out = []
            for t in range(z.shape[0]):
                state = self.kf.predict(state)
                state = self.kf.update(state, z[t])
                out.append(state.mean)
            return torch.stack(out)

    return Filter(), (torch.randn(7, 2, 1),)


@wild("torchcfm", dims={"t": {0: ("batch", 1, 6)}, "x": {0: ("batch", 1, 6)}})
def flow_unet() -> Made:
    from torchcfm.models.unet import UNetModel

    m = UNetModel(dim=(1, 32, 32), num_channels=32, num_res_blocks=1, num_heads=2, num_head_channels=8)
    nn.init.normal_(m.out[-1].weight)  # it begins at zero, and would say nothing
    return m, (torch.rand(2), torch.randn(2, 1, 32, 32))


@wild("flow-matching", "flow_matching", dims={"x": {0: ("batch", 1, 16)}})
def flow_ode() -> Made:
    from flow_matching.solver import ODESolver
    from flow_matching.utils import ModelWrapper

    class Field(ModelWrapper):
        def forward(self, x, t, **extras):
            t = t.expand(x.shape[0]).unsqueeze(-1)
            return self.model(torch.cat([x, t], -1))

    class Sampler(nn.Module):
        def __init__(self):
            super().__init__()
            self.field = Field(nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2)))

        def forward(self, x):
            return ODESolver(self.field).sample(x, step_size=0.1, method="midpoint")

    return Sampler(), (torch.randn(4, 2),)


@wild("torchoptics", dims={"x": {0: ("batch", 1, 4)}})
def propagate() -> Made:
    from torchoptics import Field

    class Optics(nn.Module):
        def forward(self, x):
            f = Field(x.to(torch.cfloat), wavelength=7e-7, spacing=1e-5)
            return f.propagate_to_z(0.1).intensity()

    return Optics(), (torch.rand(1, 32, 32),)


@wild("torchtt", dims={"x": {0: ("batch", 1, 8)}})
def tensor_train_layer() -> Made:
    import torchtt

    return torchtt.nn.LinearLayerTT([4, 4], [3, 5], [1, 2, 1]), (torch.randn(2, 4, 4),)


@wild("torchdr", dims={"points": {0: ("points", 8, 40)}})
def entropic_affinity() -> Made:
    from torchdr import EntropicAffinity

    class Affinity(nn.Module):
        def forward(self, points):
            return EntropicAffinity(perplexity=5, sparsity=False)(points)

    return Affinity(), (torch.randn(20, 3),)


@wild("torchbnn", dims={"input": {0: ("batch", 1, 8)}})
def torchbnn_frozen() -> Made:
    import torchbnn as bnn

    m = nn.Sequential(bnn.BayesLinear(0, 0.1, 8, 16), nn.ReLU(), bnn.BayesLinear(0, 0.1, 16, 2))
    bnn.utils.freeze(m)
    return m, (torch.randn(3, 8),)


@wild("blitz-bayesian-pytorch", "blitz", dims={"x": {0: ("batch", 1, 8)}})
def blitz_frozen() -> Made:
    from blitz.modules import BayesianLinear, BayesianLSTM

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = BayesianLSTM(4, 8)
            self.b = BayesianLinear(8, 2)
            for m in self.modules():
                if hasattr(m, "freeze") and m is not self:
                    m.freeze = True

        def forward(self, x):
            y, _ = self.a(x)
            return self.b(y[:, -1])

    return Net(), (torch.randn(3, 6, 4),)


@wild("pfrl", dims={"x": {0: ("batch", 1, 8)}})
def dueling() -> Made:
    from pfrl.q_functions import DistributionalFCStateQFunctionWithDiscreteAction

    q = DistributionalFCStateQFunctionWithDiscreteAction(4, 3, 11, -1, 1, 16, 1)

    class Greedy(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = q

        def forward(self, x):
            v = self.q(x)
            return v.greedy_actions, v.max, v.q_values

    return Greedy(), (torch.randn(3, 4),)


@wild("neuromancer", dims={"x": {0: ("batch", 1, 8)}})
def neural_ode_block() -> Made:
    from neuromancer.dynamics.integrators import RK4
    from neuromancer.modules import blocks

    return RK4(blocks.MLP(4, 4, hsizes=[16, 16]), h=0.1), (torch.randn(3, 4),)


@wild("vmaf-torch", "vmaf_torch", dims={"ref": {2: ("height", 64, 120)}, "dist": {2: ("height", 64, 120)}})
def vif_scores() -> Made:
    from vmaf_torch import VMAF

    class Score(nn.Module):
        def __init__(self):
            super().__init__()
            self.v = VMAF()

        def forward(self, ref, dist):
            return self.v(ref, dist)

    r = torch.rand(2, 1, 96, 96) * 255
    return Score(), (r, (r + torch.randn_like(r) * 5).clamp(0, 255))


@wild("qpth", dims={"p": {0: ("batch", 1, 6)}})
def quadratic_program() -> Made:
    from qpth.qp import QPFunction

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 4)
            self.register_buffer("G", torch.cat([torch.eye(4), -torch.eye(4)]).double())

        def forward(self, p):
            q = self.fc(p).double()
            h = torch.ones(8).double()
            e = torch.empty(0).double()
            return QPFunction(verbose=-1)(torch.eye(4).double(), q, self.G, h, e, e)

    return Layer(), (torch.randn(3, 5),)


@wild("coral-pytorch", "coral_pytorch", dims={"x": {0: ("batch", 1, 8)}})
def coral() -> Made:
    from coral_pytorch.dataset import proba_to_label
    from coral_pytorch.layers import CoralLayer

    class Ordinal(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = CoralLayer(6, 5)

        def forward(self, x):
            p = torch.sigmoid(self.l(x))
            return p, proba_to_label(p)

    return Ordinal(), (torch.randn(4, 6),)


@wild("pytorch-tsmixer", "torchtsmixer", dims={"x_hist": {0: ("batch", 1, 8)}})
def tsmixer() -> Made:
    from torchtsmixer import TSMixer

    return TSMixer(12, 4, input_channels=3, output_channels=3), (torch.randn(2, 12, 3),)


@wild("dnc", dims={"x": {1: ("steps", 2, 8)}})
def neural_computer() -> Made:
    from dnc import DNC

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = DNC(
                input_size=6,
                hidden_size=16,
                rnn_type="lstm",
                num_layers=1,
                nr_cells=8,
                cell_size=4,
                read_heads=2,
                batch_first=True,
                gpu_id=-1,
            )

        def forward(self, x):
            y, _ = self.m(x, (None, None, None), reset_experience=True)
            return y

    return Net(), (torch.randn(2, 5, 6),)


@wild("hear21passt", "hear21passt", dims={"x": {0: ("batch", 1, 2)}})
def passt_mel() -> Made:
    from hear21passt.models.preprocess import AugmentMelSTFT

    return AugmentMelSTFT(n_mels=16, sr=8000, win_length=200, hopsize=80, n_fft=256, freqm=0, timem=0), (
        torch.randn(1, 4000),
    )


@wild("beat-this", "beat_this", dims={"x": {1: ("frames", 30, 120)}})
def beats() -> Made:
    from beat_this.model.beat_tracker import BeatThis

    return BeatThis(spect_dim=128, transformer_dim=64, n_layers=1, head_dim=32, stem_dim=32), (
        torch.randn(1, 64, 128),
    )


@wild("fastervit", dims={"x": {0: ("batch", 1, 3)}})
def fastervit() -> Made:
    make_torchvision_importable()
    from fastervit.models.faster_vit import FasterViT

    m = FasterViT(
        depths=[1, 1, 2, 1],
        num_heads=[1, 1, 2, 2],
        window_size=[7, 7, 7, 7],
        ct_size=2,
        dim=16,
        in_dim=16,
        mlp_ratio=2,
        resolution=224,
        drop_path_rate=0.0,
        num_classes=7,
        hat=[False, False, True, False],
    )
    return m, (torch.randn(1, 3, 224, 224),)


@wild("nequip", dims={"x": {0: ("edges", 2, 40)}})
def bessel_edges() -> Made:
    from mace.modules.radial import BesselBasis, PolynomialCutoff

    class Radial(nn.Module):
        def __init__(self):
            super().__init__()
            self.b = BesselBasis(5.0, 6)
            self.c = PolynomialCutoff(5.0, 6)

        def forward(self, x):
            return self.b(x) * self.c(x)

    return Radial(), (torch.rand(9, 1) * 6 + 0.1,)


@wild("torchphysics", dims={"x": {0: ("points", 1, 40)}})
def physics_fcn() -> Made:
    import torchphysics as tp

    space = tp.spaces.R2("x")
    net = tp.models.FCN(input_space=space, output_space=tp.spaces.R1("u"), hidden=(16, 16))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = net

        def forward(self, x):
            return self.m(tp.spaces.Points(x, space)).as_tensor

    return Net(), (torch.rand(7, 2),)


@wild("labml-nn", "labml_nn", dims={"x": {0: ("length", 2, 20)}})
def switch_feed_forward() -> Made:
    from labml_nn.transformers.feed_forward import FeedForward
    from labml_nn.transformers.switch import SwitchFeedForward

    m = SwitchFeedForward(
        capacity_factor=2.0,
        drop_tokens=False,
        is_scale_prob=True,
        n_experts=3,
        expert=FeedForward(8, 16, 0.0),
        d_model=8,
    )
    return m, (torch.randn(6, 2, 8),)


@wild("labml-nn", "labml_nn", dims={"x": {0: ("batch", 1, 6)}})
def capsules() -> Made:
    from labml_nn.capsule_networks import Router, Squash

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.s = Squash()
            self.r = Router(12, 4, 3, 5, 3)

        def forward(self, x):
            return self.r(self.s(x))

    return Net(), (torch.randn(2, 12, 3),)


@wild("rtdl", dims={"x_num": {0: ("batch", 1, 8)}, "x_cat": {0: ("batch", 1, 8)}})
def ft_transformer() -> Made:
    import rtdl

    m = rtdl.FTTransformer.make_default(
        n_num_features=4, cat_cardinalities=[3, 5], n_blocks=1, last_layer_query_idx=[-1], d_out=2
    )
    return m, (torch.randn(3, 4), torch.stack([torch.randint(0, 3, (3,)), torch.randint(0, 5, (3,))], 1))


@wild("DISTS-pytorch", "DISTS_pytorch", dims={"input": {2: ("height", 64, 128)}})
def l2pooling() -> Made:
    make_torchvision_importable()
    from DISTS_pytorch.DISTS_pt import L2pooling

    return L2pooling(channels=3), (torch.rand(1, 3, 64, 64),)


@wild("mace-torch", "mace", dims={"x": {0: ("batch", 1, 6)}})
def mace_readout() -> Made:
    from e3nn import o3
    from mace.modules.blocks import NonLinearReadoutBlock

    m = NonLinearReadoutBlock(
        o3.Irreps("8x0e"), o3.Irreps("4x0e"), torch.nn.functional.silu, o3.Irreps("1x0e")
    )
    return m, (torch.randn(3, 8),)


@wild(
    "pykeen", dims={"h": {0: ("triples", 1, 20)}, "r": {0: ("triples", 1, 20)}, "t": {0: ("triples", 1, 20)}}
)
def rotate_scores() -> Made:
    from pykeen.nn.modules import RotatEInteraction

    class Score(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(10, 16)
            self.r = nn.Embedding(3, 16)
            self.i = RotatEInteraction()

        def forward(self, h, r, t):
            def c(w):
                return torch.view_as_complex(w.view(w.shape[0], -1, 2))

            return self.i(c(self.e(h)), c(self.r(r)), c(self.e(t)))

    return Score(), (torch.randint(0, 10, (5,)), torch.randint(0, 3, (5,)), torch.randint(0, 10, (5,)))


@wild("easyocr", dims={"image": {3: ("width", 40, 200)}})
def ocr_crnn() -> Made:
    make_torchvision_importable()
    from easyocr.model.vgg_model import Model

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = Model(1, 32, 32, 20)

        def forward(self, image):
            return self.m(image, "")

    return Net(), (torch.randn(1, 1, 32, 100),)


@wild("python-doctr", "doctr", dims={"x": {0: ("batch", 1, 3)}})
def doctr_crnn() -> Made:
    from doctr.models.recognition.crnn.pytorch import CRNN

    m = CRNN(
        nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.MaxPool2d((4, 2))),
        "abc",
        rnn_units=8,
        input_shape=(3, 32, 64),
        exportable=True,
    )

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = m

        def forward(self, x):
            return self.m(x)["logits"]

    return Net(), (torch.randn(1, 3, 32, 64),)
