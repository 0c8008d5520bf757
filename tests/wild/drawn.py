"""A draw from the packages of November 2026 that nothing here had been tried on."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.wild.cases import Made, wild


@wild("CoLT5-attention", "colt5_attention", dims={"x": {1: ("length", 2, 32)}})
def routed_feed_forward() -> Made:
    from colt5_attention import ConditionalRoutedFeedForward

    m = ConditionalRoutedFeedForward(32, num_heavy_tokens=4, light_ff_mult=0.5, heavy_ff_mult=2)
    return (m, (torch.randn(2, 16, 32),))


@wild("performer-pytorch", dims={"x": {1: ("length", 2, 32)}})
def performer() -> Made:
    from performer_pytorch import Performer

    return (
        Performer(dim=32, depth=1, heads=2, causal=False, dim_head=16, nb_features=16),
        (torch.randn(2, 12, 32),),
    )


@wild(
    "invariant-point-attention",
    dims={"x": {1: ("length", 2, 24)}, "r": {1: ("length", 2, 24)}, "t": {1: ("length", 2, 24)}},
)
def invariant_points() -> Made:
    from invariant_point_attention import IPABlock

    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.b = IPABlock(dim=16, heads=2, require_pairwise_repr=False)

        def forward(self, x: torch.Tensor, r: torch.Tensor, t: torch.Tensor) -> Any:
            return self.b(x, rotations=r, translations=t)

    q, _ = torch.linalg.qr(torch.randn(2, 8, 3, 3))
    return (M(), (torch.randn(2, 8, 16), q, torch.randn(2, 8, 3)))


@wild("compressive-transformer-pytorch", dims={"x": {1: ("length", 4, 64)}})
def compressive() -> Made:
    from compressive_transformer_pytorch import CompressiveTransformer

    m = CompressiveTransformer(
        num_tokens=50, dim=16, depth=1, heads=2, seq_len=64, mem_len=64, cmem_len=16, cmem_ratio=4
    ).eval()
    return (lambda x: m(x)[0], (torch.randint(0, 50, (1, 16)),))


@wild("product-key-memory", dims={"x": {1: ("length", 2, 32)}})
def product_keys() -> Made:
    from product_key_memory import PKM

    return (PKM(dim=32, heads=2, num_keys=8, topk=4, dim_head=16), (torch.randn(2, 10, 32),))


@wild("charformer-pytorch", dims={"x": {1: ("length", 8, 64)}})
def charformer() -> Made:
    from charformer_pytorch import GBST

    return (
        GBST(num_tokens=30, dim=16, max_block_size=3, downsample_factor=3, score_consensus_attn=True),
        (torch.randint(0, 30, (1, 31)),),
    )


@wild("g-mlp-pytorch", dims={"x": {0: ("batch", 1, 4)}})
def gmlp() -> Made:
    from g_mlp_pytorch import gMLPVision

    return (
        gMLPVision(image_size=16, patch_size=4, num_classes=5, dim=16, depth=2),
        (torch.randn(1, 3, 16, 16),),
    )


@wild("aft-pytorch", dims={"x": {0: ("batch", 1, 4)}})
def attention_free() -> Made:
    from aft_pytorch import AFTFull

    return (AFTFull(max_seqlen=12, dim=16, hidden_dim=8), (torch.randn(2, 12, 16),))


@wild("efficientnet-pytorch", dims={"inputs": {2: ("height", 40, 100), 3: ("width", 40, 100)}})
def efficientnet() -> Made:
    from efficientnet_pytorch import EfficientNet

    return (
        EfficientNet.from_name("efficientnet-b0", num_classes=7, image_size=64),
        (torch.randn(1, 3, 64, 64),),
    )


@wild("resnest", "resnest", dims={"x": {0: ("batch", 1, 4)}})
def resnest() -> Made:
    from resnest.torch import resnest50

    return (resnest50(pretrained=False), (torch.randn(1, 3, 64, 64),))


@wild("torchxrayvision", dims={"x": {0: ("batch", 1, 4)}})
def radiograph_densenet() -> Made:
    import torchxrayvision as x

    return (
        x.models.DenseNet(num_classes=4, growth_rate=8, block_config=(2, 2, 2, 2), num_init_features=16),
        (torch.randn(1, 1, 64, 64),),
    )


@wild("pycox", dims={"input": {0: ("batch", 1, 8)}, "time": {0: ("batch", 1, 8)}})
def survival_net() -> Made:
    from pycox.models.cox_time import MLPVanillaCoxTime

    return (
        MLPVanillaCoxTime(5, [8, 8], batch_norm=True, dropout=0.1),
        (torch.randn(4, 5), torch.randn(4, 1)),
    )


@wild("geoopt", dims={"x": {0: ("batch", 1, 16)}, "y": {0: ("batch", 1, 16)}})
def poincare_ball() -> Made:
    import geoopt

    b = geoopt.PoincareBall(c=1.0)
    return (
        lambda x, y: (
            b.dist(b.expmap0(x), b.expmap0(y)),
            b.mobius_add(b.expmap0(x), b.expmap0(y)),
            b.logmap0(b.expmap0(x)),
        ),
        (torch.randn(4, 3) * 0.3, torch.randn(4, 3) * 0.3),
    )


@wild("torch-kmeans", dims={"x": {1: ("length", 6, 32)}})
def torch_kmeans() -> Made:
    from torch_kmeans import KMeans

    m = KMeans(n_clusters=3, max_iter=10, init_method="rnd", verbose=False)

    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.m = m

        def forward(self, x: torch.Tensor, c: torch.Tensor) -> Any:
            return self.m(x, centers=c).labels

    return (M(), (torch.randn(2, 12, 2), torch.randn(2, 3, 2)))


@wild("fast-pytorch-kmeans", dims={"x": {0: ("length", 6, 32)}})
def fast_kmeans() -> Made:
    from fast_pytorch_kmeans import KMeans

    m = KMeans(n_clusters=3, mode="euclidean", max_iter=10)

    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.k = m

        def forward(self, x: torch.Tensor, c: torch.Tensor) -> Any:
            return self.k.fit_predict(x, centroids=c)

    return (M(), (torch.randn(12, 2), torch.randn(3, 2)))


@wild("deepxde", dims={"inputs": {0: ("batch", 1, 4)}})
def physics_net() -> Made:
    import os

    os.environ["DDE_BACKEND"] = "pytorch"
    import deepxde as dde

    return (dde.nn.pytorch.FNN([2] + [16] * 3 + [1], "tanh", "Glorot normal"), (torch.randn(3, 2),))


@wild("panns-inference", "panns_inference", dims={"input": {1: ("length", 32000, 40000)}})
def audio_tagging() -> Made:
    from panns_inference.models import Cnn14

    return (
        Cnn14(
            sample_rate=32000,
            window_size=1024,
            hop_size=320,
            mel_bins=64,
            fmin=50,
            fmax=14000,
            classes_num=10,
        ),
        (torch.randn(1, 32000) * 0.1,),
    )


@wild("pytorchvideo", dims={"x": {0: ("batch", 1, 2)}})
def x3d() -> Made:
    from pytorchvideo.models.x3d import create_x3d

    return (
        create_x3d(input_clip_length=4, input_crop_size=64, model_num_class=5, depth_factor=1.0),
        (torch.randn(1, 3, 4, 64, 64),),
    )


@wild("super-image", dims={"x": {2: ("height", 16, 48), 3: ("width", 16, 48)}})
def super_image() -> Made:
    from super_image.models.edsr.configuration_edsr import EdsrConfig
    from super_image.models.edsr.modeling_edsr import EdsrModel

    return (EdsrModel(EdsrConfig(scale=2, n_resblocks=2, n_feats=8)), (torch.rand(1, 3, 24, 24),))


@wild("mlp-mixer-pytorch", dims={"input": {0: ("batch", 1, 4)}})
def mlpmixer() -> Made:
    from mlp_mixer_pytorch import MLPMixer

    return (
        MLPMixer(image_size=16, channels=3, patch_size=4, dim=16, depth=2, num_classes=5),
        (torch.randn(1, 3, 16, 16),),
    )


@wild("pytorch-lattice", dims={"x": {0: ("batch", 1, 8)}})
def lattice() -> Made:
    from pytorch_lattice.layers import Lattice

    return (Lattice([2, 3], 1), (torch.rand(4, 2),))


@wild("nessai", dims={"x": {0: ("batch", 1, 8)}})
def nessai_flow() -> Made:
    from nessai.flows import RealNVP

    m = RealNVP(4, 8, 2, 2).eval()

    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.m = m

        def forward(self, x: torch.Tensor) -> Any:
            return (self.m.log_prob(x), self.m.forward(x)[0])

    return (M(), (torch.randn(4, 4),))


@wild("ncps", dims={"x": {1: ("length", 4, 32)}})
def ncps() -> Made:
    from ncps.torch import LTC

    m = LTC(3, 8, batch_first=True)
    return (lambda x: m(x)[0], (torch.randn(2, 10, 3),))


@wild("pomegranate", dims={"x": {0: ("batch", 1, 8)}})
def pomegranate_gmm() -> Made:
    from pomegranate.distributions import Normal
    from pomegranate.gmm import GeneralMixtureModel

    m = GeneralMixtureModel(
        [
            Normal([0.0, 0.0], [1.0, 1.0], covariance_type="diag"),
            Normal([2.0, 1.0], [1.0, 2.0], covariance_type="diag"),
        ]
    )

    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.m = m

        def forward(self, x: torch.Tensor) -> Any:
            return (self.m.log_probability(x), self.m.predict_proba(x))

    return (M(), (torch.randn(4, 2),))


@wild("pomegranate", dims={"x": {1: ("length", 3, 12)}})
def pomegranate_hmm() -> Made:
    from pomegranate.distributions import Normal
    from pomegranate.hmm import DenseHMM

    m = DenseHMM(
        [Normal([0.0], [1.0], covariance_type="diag"), Normal([2.0], [1.0], covariance_type="diag")],
        edges=[[0.7, 0.3], [0.4, 0.6]],
        starts=[0.5, 0.5],
        ends=[0.1, 0.1],
    )

    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.m = m

        def forward(self, x: torch.Tensor) -> Any:
            return (self.m.log_probability(x), self.m.predict_proba(x))

    return (M(), (torch.randn(2, 6, 1),))


@wild("torch-pca", dims={"x": {0: ("length", 8, 32)}})
def torch_pca() -> Made:
    from torch_pca import PCA

    p = PCA(n_components=2).fit(torch.randn(20, 4))
    return (lambda x: p.transform(x), (torch.randn(10, 4),))


@wild("torchscale", dims={"x": {1: ("length", 4, 32)}})
def torchscale() -> Made:
    from torchscale.architecture.config import EncoderConfig
    from torchscale.architecture.encoder import Encoder

    m = Encoder(
        EncoderConfig(
            encoder_embed_dim=16,
            encoder_ffn_embed_dim=32,
            encoder_attention_heads=2,
            encoder_layers=1,
            vocab_size=20,
            no_output_layer=True,
            embed_tokens=None,
        ),
        embed_tokens=nn.Embedding(20, 16),
    )
    return (lambda x: m(src_tokens=x)["encoder_out"], (torch.randint(1, 20, (2, 8)),))


@wild("token-shift-gpt", dims={"x": {1: ("length", 2, 30)}})
def token_shift() -> Made:
    from token_shift_gpt import TokenShiftGPT

    return (TokenShiftGPT(num_tokens=20, dim=16, max_seq_len=32, depth=2), (torch.randint(0, 20, (1, 16)),))


@wild("kan-gpt", dims={"x": {1: ("length", 2, 30)}})
def kolmogorov_gpt() -> Made:
    from kan_gpt.model import GPT

    c = GPT.get_default_config()
    c.model_type = None
    c.n_layer = 1
    c.n_head = 2
    c.n_embd = 8
    c.vocab_size = 20
    c.block_size = 32
    c.kan_implementation = "EFFICIENT_KAN"
    m = GPT(c).eval()
    return (lambda x: m(x)[0], (torch.randint(0, 20, (1, 8)),))


@wild("torch-audiomentations", dims={"x": {1: ("length", 512, 2048)}})
def audio_spectrum() -> Made:
    from torch_audiomentations.utils.fft import rfft

    return (lambda x: rfft(x, 512), (torch.randn(1, 1024),))


@wild("pytorch-ood", "pytorch_ood", dims={"x": {0: ("batch", 1, 4)}})
def wide_resnet() -> Made:
    from pytorch_ood.model import WideResNet

    return (WideResNet(num_classes=4, depth=10, widen_factor=1), (torch.randn(1, 3, 32, 32),))


@wild("momentfm", dims={"x": {0: ("batch", 1, 4)}})
def patches() -> Made:
    from momentfm.models.layers.embed import Patching

    return (Patching(8, 8), (torch.randn(2, 3, 64),))


@wild("rtdl_num_embeddings", dims={"x": {0: ("batch", 1, 8)}})
def periodic_embeddings() -> Made:
    from rtdl_num_embeddings import PeriodicEmbeddings

    return (PeriodicEmbeddings(5, 8, lite=False), (torch.randn(3, 5),))


@wild("rtdl_num_embeddings", dims={"x": {0: ("batch", 1, 8)}})
def piecewise_embeddings() -> Made:
    from rtdl_num_embeddings import PiecewiseLinearEmbeddings, compute_bins

    return (
        PiecewiseLinearEmbeddings(
            compute_bins(torch.randn(100, 4), n_bins=6), 8, activation=False, version="B"
        ),
        (torch.randn(3, 4),),
    )


@wild("tabm", dims={"x_num": {0: ("batch", 1, 8)}, "x_cat": {0: ("batch", 1, 8)}})
def tabm() -> Made:
    from tabm import TabM

    return (
        TabM.make(n_num_features=4, cat_cardinalities=[3, 2], d_out=1, k=4, n_blocks=1, d_block=16),
        (torch.randn(3, 4), torch.randint(0, 2, (3, 2))),
    )


@wild("deformable-attention", dims={"x": {0: ("batch", 1, 4)}})
def defattn() -> Made:
    from deformable_attention import DeformableAttention

    return (
        DeformableAttention(
            dim=16, dim_head=8, heads=2, downsample_factor=4, offset_scale=4, offset_kernel_size=6
        ),
        (torch.randn(1, 16, 16, 16),),
    )


@wild("ogb", dims={"x": {0: ("length", 3, 12)}})
def atom_encoder() -> Made:
    from ogb.graphproppred.mol_encoder import AtomEncoder

    return (AtomEncoder(8), (torch.zeros(5, 9, dtype=torch.long),))


@wild("torch-harmonics", dims={"x": {0: ("batch", 1, 4)}})
def spherical_harmonics() -> Made:
    from torch_harmonics import RealSHT

    return (RealSHT(8, 16, grid="equiangular"), (torch.randn(1, 8, 16),))


@wild("torch-harmonics", dims={"x": {0: ("batch", 1, 4)}})
def spherical_round_trip() -> Made:
    from torch_harmonics import InverseRealSHT, RealSHT

    a = RealSHT(8, 16)
    b = InverseRealSHT(8, 16)

    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = a
            self.b = b

        def forward(self, x: torch.Tensor) -> Any:
            return self.b(self.a(x))

    return (M(), (torch.randn(1, 8, 16),))


@wild("tensorly-torch", "tltorch", dims={"x": {0: ("batch", 1, 4)}})
def factorized_linear() -> Made:
    from tltorch import FactorizedLinear

    return (FactorizedLinear((4, 4), (4, 2), rank=2), (torch.randn(3, 16),))


@wild("tntorch", dims={"x": {0: ("batch", 1, 4)}})
def tensor_train() -> Made:
    import tntorch as tn

    t = tn.rand([4, 4, 4], ranks_tt=2)
    return (lambda x: torch.einsum("bi,ij->bj", x, t.torch().reshape(16, 4)), (torch.randn(2, 16),))


LLAMA = {
    "n_query_groups": 1,
    "norm_class_name": "RMSNorm",
    "mlp_class_name": "LLaMAMLP",
    "intermediate_size": 32,
    "bias": False,
    "rotary_percentage": 1.0,
}
TOKENS = {"idx": {1: ("length", 2, 24)}}


def gpt(**options: Any) -> Made:
    from litgpt import GPT, Config

    small = {"block_size": 32, "n_layer": 1, "n_head": 2, "n_embd": 16, "padded_vocab_size": 40}
    return GPT(Config(**small | options)), (torch.randint(0, 40, (1, 8)),)


@wild("litgpt", dims=TOKENS)
def litgpt_pythia() -> Made:
    return gpt(rotary_percentage=0.5)


@wild("litgpt", dims=TOKENS)
def litgpt_llama() -> Made:
    return gpt(**LLAMA)


@wild("litgpt", dims=TOKENS)
def litgpt_moe() -> Made:
    return gpt(**LLAMA | {"mlp_class_name": "LLaMAMoE", "n_expert": 4, "n_expert_per_token": 2})


@wild("litgpt", dims=TOKENS)
def litgpt_gemma2() -> Made:
    capped = {"attention_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    normed = {"post_attention_norm": True, "post_mlp_norm": True}
    sliding = {"n_layer": 2, "sliding_window_size": 4, "sliding_window_indices": [1, 0]}
    return gpt(**LLAMA | capped | normed | sliding | {"mlp_class_name": "GemmaMLP"})


@wild("piqa", dims={"x": {0: ("batch", 1, 4)}, "y": {0: ("batch", 1, 4)}})
def haar_similarity() -> Made:
    from piqa import HaarPSI

    return (HaarPSI(), (torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32)))


@wild("pyiqa", dims={"x": {2: ("height", 48, 64)}, "y": {2: ("height", 48, 64)}})
def gradient_similarity() -> Made:
    from pyiqa.archs.gmsd_arch import GMSD

    return (GMSD(), (torch.rand(1, 3, 48, 48), torch.rand(1, 3, 48, 48)))


@wild("geffnet", dims={"x": {0: ("batch", 1, 4)}})
def geffnet() -> Made:
    import geffnet

    return (
        geffnet.create_model("mobilenetv3_small_100", pretrained=False, num_classes=4),
        (torch.randn(1, 3, 64, 64),),
    )


@wild("taylor-series-linear-attention", dims={"x": {1: ("length", 2, 24)}})
def taylor() -> Made:
    from taylor_series_linear_attention import TaylorSeriesLinearAttn

    return (TaylorSeriesLinearAttn(dim=16, dim_head=8, heads=2), (torch.randn(1, 10, 16),))


@wild("deepinv", dims={"x": {2: ("height", 16, 48), 3: ("width", 16, 48)}})
def denoiser() -> Made:
    from deepinv.models import DnCNN

    return (DnCNN(in_channels=1, out_channels=1, depth=3, nf=8, pretrained=None), (torch.rand(1, 1, 24, 24),))


@wild("deepinv", dims={"x": {2: ("height", 16, 48)}})
def median_filter() -> Made:
    from deepinv.models import MedianFilter

    return (MedianFilter(kernel_size=3), (torch.rand(1, 1, 24, 24),))


@wild("pina-mathlab", "pina", dims={"x": {0: ("batch", 1, 4)}})
def fourier_operator() -> Made:
    import torch
    from pina.model import FNO

    return (
        FNO(
            lifting_net=nn.Linear(1, 4),
            projecting_net=nn.Linear(4, 1),
            n_modes=4,
            dimensions=1,
            inner_size=4,
            n_layers=1,
        ),
        (torch.randn(2, 16, 1),),
    )


@wild("curated-transformers", dims={"x": {1: ("length", 2, 24)}, "k": {1: ("length", 2, 24)}})
def curated_bert() -> Made:
    from curated_transformers.layers import AttentionMask
    from curated_transformers.models.bert import BERTConfig, BERTEncoder

    m = BERTEncoder(
        BERTConfig(
            embedding_width=16,
            hidden_width=16,
            intermediate_width=32,
            n_attention_heads=2,
            n_hidden_layers=1,
            n_pieces=30,
            attention_probs_dropout_prob=0,
            hidden_dropout_prob=0,
        )
    ).eval()
    return (
        lambda x, k: m(x, AttentionMask(k)).last_hidden_layer_state,
        (torch.randint(0, 30, (2, 8)), torch.ones(2, 8, dtype=torch.bool)),
    )


@wild("torch-pme", "torchpme", dims={"x": {0: ("length", 3, 12)}, "p": {0: ("length", 3, 12)}})
def coulomb_energies() -> Made:
    from torchpme import Calculator, CoulombPotential

    m = Calculator(CoulombPotential(smearing=None))

    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.m = m

        def forward(self, x: torch.Tensor, p: torch.Tensor, i: torch.Tensor, d: torch.Tensor) -> Any:
            return self.m(charges=x, cell=torch.eye(3), positions=p, neighbor_indices=i, neighbor_distances=d)

    return (
        M(),
        (torch.randn(4, 1), torch.randn(4, 3), torch.tensor([[0, 1], [1, 2], [2, 3]]), torch.rand(3) + 0.5),
    )


@wild("torch-uncertainty", dims={"inputs": {0: ("batch", 1, 4)}})
def packed_linear() -> Made:
    from torch_uncertainty.layers import PackedLinear

    return (PackedLinear(8, 4, num_estimators=2, alpha=2, first=True), (torch.randn(4, 8),))
