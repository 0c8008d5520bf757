"""A second draw from the packages of November 2026 that nothing here had been tried on."""

from __future__ import annotations

import torch
from torch import nn

from tests.wild.cases import Made, wild


@wild("pytorch-toolbelt", dims={"input": {2: ("height", 32, 80), 3: ("width", 32, 80)}})
def channel_gates() -> Made:

    from pytorch_toolbelt.modules import ChannelSpatialGate2d

    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), ChannelSpatialGate2d(8)), (torch.randn(1, 3, 40, 48),)


@wild("facexlib", dims={"x": {2: ("height", 32, 80), 3: ("width", 32, 80)}})
def faces_parsed() -> Made:
    from facexlib.parsing.bisenet import BiSeNet

    return BiSeNet(19), (torch.rand(1, 3, 64, 64),)


@wild("bpnet-lite", "bpnetlite", dims={"X": {2: ("length", 300, 500)}})
def bpnet() -> Made:
    from bpnetlite import BPNet

    return BPNet(n_filters=8, n_layers=3, n_outputs=1, n_control_tracks=0, trimming=10, verbose=False), (
        torch.eye(4)[torch.randint(0, 4, (2, 400))].mT.contiguous(),
    )


@wild("asteroid", dims={"wav": {2: ("samples", 400, 1200)}})
def conv_tasnet() -> Made:
    from asteroid.models import ConvTasNet

    return ConvTasNet(
        2,
        n_filters=16,
        kernel_size=16,
        stride=8,
        n_blocks=2,
        n_repeats=1,
        bn_chan=8,
        hid_chan=16,
        skip_chan=8,
    ), (torch.randn(2, 1, 800),)


@wild("gluonts", dims={"past_target": {0: ("batch", 1, 8)}})
def feed_forward() -> Made:
    from gluonts.torch.model.simple_feedforward import SimpleFeedForwardModel

    m = SimpleFeedForwardModel(prediction_length=6, context_length=12, hidden_dimensions=[16, 16])
    return m, (torch.randn(3, 12),)


class Equilibrium(nn.Module):
    def __init__(self, solver: str) -> None:
        from torchdeq import get_deq

        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.deq = get_deq(f_solver=solver, f_max_iter=10, f_tol=1e-4)
        nn.init.normal_(self.linear.weight, 0, 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found, _ = self.deq(lambda z: torch.tanh(self.linear(z) + x), torch.zeros_like(x))
        last: torch.Tensor = found[-1]
        return last


@wild("torchdeq", dims={"x": {0: ("batch", 1, 8)}})
def equilibrium() -> Made:
    return Equilibrium("fixed_point_iter"), (torch.randn(3, 4),)


@wild("torchdeq", dims={"x": {0: ("batch", 1, 8)}})
def equilibrium_by_anderson() -> Made:
    return Equilibrium("anderson"), (torch.randn(3, 4),)


@wild("diffsort", dims={"x": {0: ("batch", 1, 8)}})
def diffsort() -> Made:
    from diffsort import DiffSortNet

    m = DiffSortNet("bitonic", 8, steepness=5)
    return (lambda x: m(x)), (torch.randn(3, 8),)


@wild("asteroid", dims={"wav": {2: ("samples", 400, 1200)}})
def dual_path_rnn() -> Made:
    from asteroid.models import DPRNNTasNet

    return DPRNNTasNet(
        2, n_filters=16, kernel_size=16, stride=8, bn_chan=8, hid_size=8, chunk_size=20, n_repeats=1
    ), (torch.randn(1, 1, 800),)


@wild("fair-esm", "esm", dims={"tokens": {1: ("length", 4, 24)}})
def esm2() -> Made:
    import esm
    from esm.model.esm2 import ESM2

    return ESM2(
        num_layers=2, embed_dim=32, attention_heads=4, alphabet=esm.data.Alphabet.from_architecture("ESM-1b")
    ), (torch.randint(4, 20, (2, 12)),)


@wild("fair-esm", "esm", dims={"tokens": {2: ("length", 4, 16)}})
def esm_msa() -> Made:
    import argparse

    import esm
    from esm.model.msa_transformer import MSATransformer

    a = argparse.Namespace(
        layers=1,
        embed_dim=16,
        ffn_embed_dim=32,
        attention_heads=2,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        max_tokens_per_msa=2**14,
        max_tokens=2**14,
        embed_positions_msa=True,
        logit_bias=True,
        max_positions=1024,
        embed_positions_msa_dim=16,
    )
    return MSATransformer(a, esm.data.Alphabet.from_architecture("msa_transformer")), (
        torch.randint(4, 20, (1, 3, 8)),
    )


@wild("ETSformer-pytorch", "etsformer_pytorch", dims={"x": {0: ("batch", 1, 8)}})
def etsformer() -> Made:
    from etsformer_pytorch import ETSFormer

    m = ETSFormer(time_features=4, model_dim=16, embed_kernel_size=3, layers=2, heads=2, K=2)
    return (lambda x: m(x, num_steps_forecast=4)), (torch.randn(1, 24, 4),)


@wild("flamingo-pytorch", dims={"x": {1: ("length", 2, 24)}})
def resampler() -> Made:
    from flamingo_pytorch import PerceiverResampler

    return PerceiverResampler(dim=16, depth=1, dim_head=8, heads=2, num_latents=4, num_media_embeds=4), (
        torch.randn(1, 3, 7, 16),
    )


@wild("glom-pytorch", dims={"img": {0: ("batch", 1, 8)}})
def glom() -> Made:
    from glom_pytorch import Glom

    return Glom(dim=16, levels=3, image_size=16, patch_size=4), (torch.randn(1, 3, 16, 16),)


@wild("infini-transformer-pytorch", dims={"x": {1: ("length", 2, 24)}})
def infini_transformer() -> Made:
    from infini_transformer_pytorch import InfiniTransformer

    return InfiniTransformer(num_tokens=30, dim=16, depth=1, dim_head=8, heads=2), (
        torch.randint(0, 30, (1, 12)),
    )


@wild("isab-pytorch", dims={"x": {1: ("length", 2, 24)}})
def induced_set_attention() -> Made:
    from isab_pytorch import ISAB

    return ISAB(dim=16, heads=2, num_latents=4), (torch.randn(2, 10, 16),)


@wild("pytorch-nlp", "torchnlp", dims={"query": {1: ("length", 2, 12)}})
def attention() -> Made:
    from torchnlp.nn import Attention

    return Attention(8), (torch.randn(2, 5, 8), torch.randn(2, 6, 8))


@wild("orb-models", dims={"x": {0: ("length", 4, 20)}})
def bessel_basis() -> Made:
    from orb_models.forcefield import rbf

    m = rbf.BesselBasis(r_max=5.0, num_bases=8) if hasattr(rbf, "BesselBasis") else rbf.ExpNormalSmearing()
    return m, (torch.rand(9) * 4 + 0.1,)


@wild("POT", "ot", dims={"x": {0: ("batch", 1, 8)}, "y": {0: ("batch", 1, 8)}})
def sinkhorn() -> Made:
    import ot

    return (
        lambda x, y: ot.sinkhorn(
            torch.ones(6) / 6,
            torch.ones(5) / 5,
            ((x[0][:, None] - y[0][None]) ** 2).sum(-1),
            1.0,
            numItermax=30,
        )
    ), (torch.rand(1, 6, 2), torch.rand(1, 5, 2))


@wild("PaLM-pytorch", "palm_pytorch", dims={"input": {1: ("length", 2, 24)}})
def palm() -> Made:
    from palm_pytorch import PaLM

    return PaLM(num_tokens=30, dim=16, depth=2, heads=2, dim_head=8), (torch.randint(0, 30, (1, 12)),)


@wild("protein-bert-pytorch", dims={"seq": {1: ("length", 2, 24)}})
def protein_bert() -> Made:
    from protein_bert_pytorch import ProteinBERT

    return ProteinBERT(
        num_tokens=21,
        num_annotation=20,
        dim=16,
        dim_global=16,
        depth=2,
        narrow_conv_kernel=3,
        wide_conv_kernel=3,
        wide_conv_dilation=2,
        attn_heads=2,
        attn_dim_head=8,
    ), (torch.randint(0, 21, (2, 12)), torch.rand(2, 20))


@wild("torch-rechub", dims={"x": {0: ("batch", 1, 8)}, "a": {0: ("batch", 1, 8)}, "b": {0: ("batch", 1, 8)}})
def deep_fm() -> Made:
    from torch_rechub.basic.features import DenseFeature, SparseFeature
    from torch_rechub.models.ranking import DeepFM

    d = [DenseFeature("d1")]
    s = [SparseFeature("s1", vocab_size=5, embed_dim=4), SparseFeature("s2", vocab_size=7, embed_dim=4)]
    m = DeepFM(d + s, s, {"dims": [8], "dropout": 0.0, "activation": "relu"})
    m.eval()
    return (lambda x, a, b: m({"d1": x, "s1": a, "s2": b})), (
        torch.rand(3),
        torch.randint(0, 5, (3,)),
        torch.randint(0, 7, (3,)),
    )


@wild("torch-rechub", dims={"x": {0: ("batch", 1, 8)}, "u": {0: ("batch", 1, 8)}, "t": {0: ("batch", 1, 8)}})
def deep_interest() -> Made:
    from torch_rechub.basic.features import SequenceFeature, SparseFeature
    from torch_rechub.models.ranking import DIN

    s = [SparseFeature("t", vocab_size=9, embed_dim=4)]
    h = [SequenceFeature("h", vocab_size=9, embed_dim=4, pooling="concat", shared_with="t")]
    m = DIN(
        features=[SparseFeature("u", vocab_size=5, embed_dim=4)],
        history_features=h,
        target_features=s,
        mlp_params={"dims": [8]},
        attention_mlp_params={"dims": [8]},
    )
    m.eval()
    return (lambda x, u, t: m({"u": u, "t": t, "h": x})), (
        torch.randint(0, 9, (3, 6)),
        torch.randint(0, 5, (3,)),
        torch.randint(0, 9, (3,)),
    )


@wild("res-mlp-pytorch", dims={"input": {0: ("batch", 1, 8)}})
def res_mlp() -> Made:
    from res_mlp_pytorch import ResMLP

    return ResMLP(image_size=32, patch_size=8, dim=16, depth=2, num_classes=5), (torch.randn(1, 3, 32, 32),)


@wild("facexlib", dims={"inputs": {2: ("height", 32, 80), 3: ("width", 32, 80)}})
def retinaface() -> Made:
    from facexlib.detection.retinaface import RetinaFace

    return RetinaFace("mobile0.25", device="cpu"), (torch.rand(1, 3, 64, 64),)


@wild("ring-attention-pytorch", dims={"x": {1: ("length", 2, 24)}})
def ring_attention() -> Made:
    from ring_attention_pytorch import RingAttention

    return RingAttention(dim=16, dim_head=8, heads=2, causal=True, auto_shard_seq=False, ring_attn=False), (
        torch.randn(1, 12, 16),
    )


@wild("asteroid", dims={"wav": {0: ("batch", 1, 8)}})
def sudormrf() -> Made:
    from asteroid.models import SuDORMRFNet

    return SuDORMRFNet(2, bn_chan=8, num_blocks=1, upsampling_depth=2, kernel_size=21, n_filters=16), (
        torch.randn(2, 1, 640),
    )


@wild("pytorch-nlp", "torchnlp", dims={"tokens": {1: ("length", 2, 24)}, "mask": {1: ("length", 2, 24)}})
def cnn_encoder() -> Made:
    from torchnlp.nn import CNNEncoder

    return CNNEncoder(embedding_dim=8, num_filters=4, ngram_filter_sizes=(2, 3)), (
        torch.randn(2, 10, 8),
        (torch.ones(2, 10)),
    )


@wild("zorro-pytorch", dims={"x": {0: ("batch", 1, 8)}, "y": {0: ("batch", 1, 8)}})
def zorro() -> Made:
    from zorro_pytorch import TokenTypes as T
    from zorro_pytorch import Zorro

    m = Zorro(
        dim=16,
        depth=1,
        heads=2,
        dim_head=8,
        ff_mult=2,
        num_fusion_tokens=4,
        audio_patch_size=16,
        video_patch_size=16,
        video_temporal_patch_size=2,
        video_channels=3,
        return_token_types=(T.AUDIO, T.FUSION),
    )
    return (lambda x, y: m(audio=y, video=x)), (torch.randn(2, 3, 4, 32, 32), torch.randn(2, 1024))
