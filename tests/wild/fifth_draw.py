"""A fifth draw from the packages of November 2026 that nothing here had been tried on."""

from __future__ import annotations

import torch
from torch import nn

from models._vision import make_torchvision_importable
from tests.wild.cases import Made, wild


@wild("hourglass-transformer-pytorch", dims={"x": {0: ("batch", 1, 4)}})
def hourglass() -> Made:
    from hourglass_transformer_pytorch import HourglassTransformerLM

    return HourglassTransformerLM(
        num_tokens=40, dim=32, max_seq_len=64, depth=(1, 2, 1), shorten_factor=2, heads=2, dim_head=16
    ), (torch.randint(0, 40, (2, 20)),)


@wild("simple-hierarchical-transformer", dims={"ids": {1: ("length", 2, 48)}})
def hierarchical_transformer() -> Made:
    from simple_hierarchical_transformer import HierarchicalTransformer

    return HierarchicalTransformer(
        num_tokens=40,
        dim=32,
        depth=1,
        seq_len=64,
        dim_head=16,
        heads=2,
        hierarchies=(1, 4),
        window_sizes=(16, None),
    ), (torch.randint(0, 40, (1, 21)),)


@wild("x-clip", dims={"text": {0: ("batch", 1, 4)}, "image": {0: ("batch", 1, 4)}})
def contrastive_pairs() -> Made:
    make_torchvision_importable()
    from x_clip import CLIP

    return CLIP(
        dim_text=32,
        dim_image=32,
        dim_latent=16,
        num_text_tokens=40,
        text_enc_depth=1,
        text_seq_len=12,
        text_heads=2,
        text_dim_head=16,
        visual_enc_depth=1,
        visual_image_size=32,
        visual_patch_size=8,
        visual_heads=2,
        visual_dim_head=16,
        use_all_token_embeds=True,
    ), (torch.randint(1, 40, (2, 12)), torch.randn(2, 3, 32, 32))


@wild("coca-pytorch", dims={"text": {1: ("length", 2, 20)}})
def captioner() -> Made:
    make_torchvision_importable()
    from coca_pytorch import CoCa
    from vit_pytorch.extractor import Extractor
    from vit_pytorch.simple_vit_with_patch_dropout import SimpleViT

    vit = SimpleViT(
        image_size=32, patch_size=8, num_classes=10, dim=32, depth=1, heads=2, mlp_dim=32, patch_dropout=0.5
    )
    return CoCa(
        dim=32,
        img_encoder=Extractor(vit, return_embeddings_only=True, detach=False),
        image_dim=32,
        num_tokens=40,
        unimodal_depth=1,
        multimodal_depth=1,
        num_img_queries=8,
        dim_head=16,
        heads=2,
    ), (torch.randint(1, 40, (2, 9)), torch.randn(2, 3, 32, 32))


@wild("gateloop-transformer", dims={"x": {1: ("length", 2, 48)}})
def gate_loop() -> Made:
    from gateloop_transformer import Transformer

    return Transformer(32, num_tokens=40, depth=1, dim_head=16, heads=2, use_gate_looped_attn=True), (
        torch.randint(0, 40, (1, 13)),
    )


@wild("bidirectional-cross-attention", dims={"x": {1: ("video", 2, 24)}, "context": {1: ("audio", 2, 24)}})
def two_way_attention() -> Made:
    from bidirectional_cross_attention import BidirectionalCrossAttentionTransformer

    return BidirectionalCrossAttentionTransformer(dim=32, depth=1, context_dim=24, heads=2, dim_head=16), (
        torch.randn(1, 9, 32),
        torch.randn(1, 7, 24),
    )


@wild("perceiver-ar-pytorch", dims={"x": {1: ("length", 20, 64)}})
def perceiver_ar() -> Made:
    from perceiver_ar_pytorch import PerceiverAR

    return PerceiverAR(
        num_tokens=40, dim=32, depth=1, dim_head=32, heads=2, max_seq_len=64, cross_attn_seq_len=16
    ), (torch.randint(0, 40, (1, 37)),)


@wild(
    "En-transformer", "en_transformer", dims={"coors": {1: ("atoms", 4, 20)}, "feats": {1: ("atoms", 4, 20)}}
)
def equivariant_transformer() -> Made:
    from en_transformer import EnTransformer

    return EnTransformer(dim=16, depth=1, heads=2, dim_head=64, neighbors=4, rel_pos_emb=True), (
        torch.randn(1, 9, 16),
        torch.randn(1, 9, 3),
    )


@wild("lampe", dims={"theta": {0: ("batch", 1, 8)}, "x": {0: ("batch", 1, 8)}})
def posterior_density() -> Made:
    from lampe.inference import NPE

    return NPE(3, 4, transforms=2, hidden_features=[16] * 2), (torch.randn(2, 3), torch.randn(2, 4))


@wild("pfhedge", dims={"given": {0: ("paths", 1, 16)}})
def european_price() -> Made:
    from pfhedge.nn import BSEuropeanOption

    class Greeks(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = BSEuropeanOption()

        def forward(self, given):
            moneyness, time, volatility = given.unbind(-1)
            return (
                self.m.price(moneyness, time, volatility),
                self.m.delta(moneyness, time, volatility),
                self.m.vega(moneyness, time, volatility),
            )

    return Greeks(), (torch.rand(3, 3) * 0.2 + 0.05,)


@wild("k-diffusion", dims={"x": {0: ("batch", 1, 3)}})
def heun_sampler() -> Made:
    make_torchvision_importable()
    import k_diffusion as K

    net = K.models.ImageDenoiserModelV1(3, 16, [1, 1], [16, 32], [False, True])
    nn.init.normal_(net.proj_out.weight, std=0.1)
    sigmas = K.sampling.get_sigmas_karras(3, 0.1, 10.0)

    class Sample(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = K.Denoiser(net)

        def forward(self, x):
            return K.sampling.sample_dpmpp_2m(self.m, x, sigmas, disable=True)

    return Sample(), (torch.randn(2, 3, 16, 16) * 10,)


@wild("torchcrepe", dims={"x": {0: ("frames", 1, 8)}})
def crepe_pitch() -> Made:
    import torchcrepe

    return torchcrepe.Crepe("tiny"), (torch.randn(3, 1024),)


@wild("skrl", dims={"observations": {0: ("batch", 1, 16)}}, random="state")
def gaussian_policy() -> Made:
    import gymnasium
    from skrl.utils.model_instantiators.torch import gaussian_model

    policy = gaussian_model(
        observation_space=gymnasium.spaces.Box(-1, 1, (4,)),
        action_space=gymnasium.spaces.Box(-1, 1, (2,)),
        device="cpu",
        network=[{"name": "net", "input": "OBSERVATIONS", "layers": [16, 16], "activations": "elu"}],
        output="ACTIONS",
        clip_actions=True,
    )
    policy.act({"observations": torch.randn(3, 4)}, role="policy")  # its layers are lazy

    class Act(nn.Module):
        def __init__(self):
            super().__init__()
            self.policy = policy

        def forward(self, observations):
            actions, more = self.policy.act({"observations": observations}, role="policy")
            return actions, more["log_prob"], more["mean_actions"]

    return Act(), (torch.randn(3, 4),)


@wild(
    "allrank",
    dims={"x": {1: ("slate", 2, 24)}, "mask": {1: ("slate", 2, 24)}, "indices": {1: ("slate", 2, 24)}},
)
def learned_ranking() -> Made:
    from allrank.config import PositionalEncoding, TransformerConfig
    from allrank.models.model import make_model

    model = make_model(
        {"sizes": [16], "input_norm": True, "activation": "ReLU", "dropout": 0.1},
        TransformerConfig(
            N=1,
            d_ff=32,
            h=2,
            dropout=0.1,
            positional_encoding=PositionalEncoding(strategy="fixed", max_indices=24),
        ),
        {"output_activation": "Sigmoid", "d_output": 1},
        6,
    )
    return model, (torch.randn(2, 9, 6), torch.rand(2, 9) < 0.2, torch.arange(9).expand(2, 9).contiguous())


@wild("yolov5", dims={"x": {0: ("batch", 1, 2)}})
def yolov5_nano() -> Made:
    make_torchvision_importable()
    from pathlib import Path

    import yolov5.models
    from yolov5.models.yolo import DetectionModel

    return DetectionModel(str(Path(yolov5.models.__file__).parent / "yolov5n.yaml")), (
        torch.randn(1, 3, 64, 96),
    )


@wild("captum", dims={"inputs": {0: ("batch", 1, 8)}})
def integrated_gradients() -> Made:
    from captum.attr import IntegratedGradients

    class Attribution(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))

        def forward(self, inputs):
            with torch.enable_grad():
                return IntegratedGradients(self.net).attribute(inputs, target=1, n_steps=8).detach()

    return Attribution(), (torch.randn(3, 5),)


@wild("laplace-torch", "laplace", dims={"x": {0: ("batch", 1, 8)}})
def laplace_posterior() -> Made:
    make_torchvision_importable()
    from laplace import Laplace
    from torch.utils.data import DataLoader, TensorDataset

    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    la = Laplace(net, "regression", subset_of_weights="last_layer", hessian_structure="full")
    la.fit(DataLoader(TensorDataset(torch.randn(20, 4), torch.randn(20, 2)), batch_size=10))

    class Predict(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return la(x)

    return Predict(), (torch.randn(3, 4),)


@wild("gliner", dims={"h": {1: ("words", 2, 16)}})
def span_scores() -> Made:
    make_torchvision_importable()
    from gliner.modeling.layers import LayersFuser
    from gliner.modeling.span_rep import SpanMarkerV0

    class Spans(nn.Module):
        def __init__(self):
            super().__init__()
            self.fuse = LayersFuser(2, 16)
            self.span = SpanMarkerV0(16, 3)

        def forward(self, h):
            words = self.fuse([h, h * 2, h + 1])
            starts = torch.arange(h.shape[1]).unsqueeze(1).expand(-1, 3)
            ends = (starts + torch.arange(3)).clamp(max=h.shape[1] - 1)
            return self.span(words, torch.stack([starts, ends], -1).view(1, -1, 2))

    return Spans(), (torch.randn(1, 7, 16),)


@wild("microsoft-aurora", "aurora")
def weather_model() -> Made:
    make_torchvision_importable()
    from datetime import UTC, datetime

    from aurora import Aurora, Batch, Metadata

    model = Aurora(
        surf_vars=("2t",),
        static_vars=("z",),
        atmos_vars=("t",),
        window_size=(1, 2, 4),
        encoder_depths=(1, 1),
        encoder_num_heads=(2, 4),
        decoder_depths=(1, 1),
        decoder_num_heads=(4, 2),
        latent_levels=2,
        embed_dim=16,
        num_heads=2,
        use_lora=False,
    )

    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = model

        def forward(self, temperature, air, z):
            batch = Batch(
                {"2t": temperature},
                {"z": z},
                {"t": air},
                Metadata(
                    torch.linspace(90, -90, 17),
                    torch.linspace(0, 360, 33)[:-1],
                    (datetime(2026, 1, 1, tzinfo=UTC),),
                    (100, 500),
                ),
            )
            out = self.m(batch)
            return out.surf_vars["2t"], out.atmos_vars["t"]

    return Step(), (torch.randn(1, 2, 17, 32), torch.randn(1, 2, 2, 17, 32), torch.randn(17, 32))


@wild(
    "torchkge",
    dims={"h": {0: ("triples", 1, 16)}, "t": {0: ("triples", 1, 16)}, "r": {0: ("triples", 1, 16)}},
)
def knowledge_graph() -> Made:
    from torchkge.models import ComplExModel

    class Score(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = ComplExModel(8, 10, 4)

        def forward(self, h, t, r):
            return self.m.scoring_function(h, t, r)

    return Score(), (torch.randint(0, 10, (5,)), torch.randint(0, 10, (5,)), torch.randint(0, 4, (5,)))


@wild("torchopt", dims={"x": {0: ("batch", 1, 8)}, "y": {0: ("batch", 1, 8)}})
def adapted_learner() -> Made:
    import torchopt

    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(4, 2) * 0.3)

        def forward(self, x, y):
            with torch.enable_grad():
                params = (self.w.clone().requires_grad_(),)
                opt = torchopt.adam(lr=0.1)
                state = opt.init(params)
                for _ in range(3):
                    loss = ((x @ params[0] - y) ** 2).mean()
                    updates, state = opt.update(torch.autograd.grad(loss, params), state, inplace=False)
                    params = torchopt.apply_updates(params, updates, inplace=False)
            return params[0].detach(), loss.detach()

    return Adapted(), (torch.randn(3, 4), torch.randn(3, 2))
