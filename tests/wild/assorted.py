"""A second draw: attention, separation, policies, samplers, solvers and decoders in plain Python."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from models._vision import make_torchvision_importable
from tests.wild.cases import Made, wild

SAMPLES = {"x": {0: ("batch", 1, 8)}}
SEQUENCE = {"x": {0: ("batch", 1, 4), 1: ("length", 4, 32)}}


# attention


@wild(
    "perceiver-pytorch",
    dims={"data": {0: ("batch", 1, 4), 1: ("points", 4, 32)}, "mask": {0: ("batch", 1, 4)}},
)
def perceiver() -> Made:
    from perceiver_pytorch import PerceiverIO

    model = PerceiverIO(
        dim=8,
        queries_dim=8,
        depth=1,
        num_latents=6,
        latent_dim=12,
        latent_heads=2,
        latent_dim_head=8,
        cross_dim_head=8,
        logits_dim=5,
        decoder_ff=True,
    )

    class Decode(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.queries = nn.Parameter(torch.randn(7, 8))

        def forward(self, data: Tensor, mask: Tensor) -> Tensor:
            return self.model(data, mask=mask[:, : data.shape[1]], queries=self.queries)

    return Decode(), (torch.randn(2, 10, 8), torch.rand(2, 32) > 0.2)


@wild("perceiver-pytorch", dims={"data": {0: ("batch", 1, 4), 1: ("height", 4, 16)}})
def image_perceiver() -> Made:
    from perceiver_pytorch import Perceiver

    model = Perceiver(
        input_channels=3,
        input_axis=2,
        num_freq_bands=3,
        max_freq=8.0,
        depth=2,
        num_latents=6,
        latent_dim=16,
        cross_heads=1,
        latent_heads=2,
        cross_dim_head=8,
        latent_dim_head=8,
        num_classes=4,
        weight_tie_layers=True,
    )
    return model, (torch.rand(2, 8, 8, 3),)


@wild("nystrom-attention", dims=SEQUENCE)
def nystrom() -> Made:
    from nystrom_attention import Nystromformer

    return Nystromformer(dim=16, dim_head=8, heads=2, depth=2, num_landmarks=4, pinv_iterations=4), (
        torch.randn(2, 12, 16),
    )


@wild(
    "tab-transformer-pytorch",
    dims={"x_categ": {0: ("batch", 1, 8)}, "x_cont": {0: ("batch", 1, 8)}},
    value_ranges={"x_categ": (0, 3)},
)
def tab_transformer() -> Made:
    from tab_transformer_pytorch import TabTransformer

    model = TabTransformer(
        categories=(4, 5, 6),
        num_continuous=3,
        dim=8,
        dim_out=2,
        depth=2,
        heads=2,
        mlp_act=nn.ReLU(),
        continuous_mean_std=torch.randn(3, 2).abs(),
    )
    return model, (torch.randint(0, 4, (4, 3)), torch.randn(4, 3))


@wild("mega-pytorch", dims=SEQUENCE)
def moving_averages() -> Made:
    from mega_pytorch import MegaLayer

    return MegaLayer(dim=16, ema_heads=4, attn_dim_qk=8, attn_dim_value=16, laplacian_attn_fn=True), (
        torch.randn(2, 12, 16),
    )


@wild("point-transformer-pytorch", dims={"x": {1: ("points", 6, 24)}, "pos": {1: ("points", 6, 24)}})
def point_transformer() -> Made:
    from point_transformer_pytorch import PointTransformerLayer

    model = PointTransformerLayer(dim=8, pos_mlp_hidden_dim=8, attn_mlp_hidden_mult=2, num_neighbors=4)
    return model, (torch.randn(2, 9, 8), torch.randn(2, 9, 3))


@wild("slot-attention", dims={"inputs": {0: ("batch", 1, 4), 1: ("features", 4, 32)}})
def slots() -> Made:
    from slot_attention import SlotAttention

    class Seeded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slots = SlotAttention(num_slots=3, dim=8, iters=3, hidden_dim=16)
            nn.init.constant_(self.slots.slots_logsigma, -30.0)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.slots(inputs)

    return Seeded(), (torch.randn(2, 10, 8),)


@wild("mambapy", dims={"x": {0: ("batch", 1, 4), 1: ("length", 2, 32)}})
def mamba() -> Made:
    from mambapy.mamba import Mamba, MambaConfig

    return Mamba(MambaConfig(d_model=8, n_layers=2, d_state=4)), (torch.randn(2, 11, 8),)


@wild("mambapy", dims={"x": {0: ("batch", 1, 4)}})
def mamba_steps() -> Made:
    from mambapy.mamba import Mamba, MambaConfig

    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Mamba(MambaConfig(d_model=8, n_layers=2, d_state=4))

        def forward(self, x: Tensor) -> Tensor:
            caches: Any = [(None, torch.zeros(x.shape[0], 16, 3)) for _ in range(2)]
            out = []
            for step in range(x.shape[1]):
                y, caches = self.model.step(x[:, step], caches)
                out.append(y)
            return torch.stack(out, 1)

    return Steps(), (torch.randn(2, 5, 8),)


@wild(
    "segment-anything",
    dims={"points": {1: ("clicks", 1, 6)}, "labels": {1: ("clicks", 1, 6)}},
    value_ranges={"labels": (0, 1), "points": (0.0, 63.0)},
)
def promptable_masks() -> Made:
    make_torchvision_importable()
    from segment_anything.modeling import ImageEncoderViT, MaskDecoder, PromptEncoder, TwoWayTransformer

    class Sam(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image = ImageEncoderViT(
                img_size=64,
                patch_size=16,
                embed_dim=16,
                depth=2,
                num_heads=2,
                out_chans=16,
                use_rel_pos=True,
                window_size=3,
                global_attn_indexes=(1,),
            )
            self.prompt = PromptEncoder(16, (4, 4), (64, 64), 4)
            self.masks = MaskDecoder(
                transformer_dim=16,
                iou_head_depth=2,
                iou_head_hidden_dim=16,
                transformer=TwoWayTransformer(2, 16, 2, 32),
            )

        def forward(self, image: Tensor, points: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            sparse, dense = self.prompt((points, labels), None, None)
            low, quality = self.masks(
                self.image(image), self.prompt.get_dense_pe(), sparse, dense, multimask_output=True
            )
            return low, quality

    return Sam(), (torch.rand(1, 3, 64, 64), torch.rand(1, 2, 2) * 63, torch.ones(1, 2, dtype=torch.int64))


# audio


@wild("openunmix", dims={"x": {3: ("frames", 2, 32)}})
def unmix() -> Made:
    from openunmix.model import OpenUnmix

    return OpenUnmix(nb_bins=33, nb_channels=2, hidden_size=16, nb_layers=1), (torch.rand(2, 2, 33, 12),)


@wild("openunmix", dims={"audio": {2: ("samples", 256, 1024)}})
def wiener_separation() -> Made:
    from openunmix.filtering import wiener
    from openunmix.transforms import make_filterbanks

    class Separate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stft, self.istft = make_filterbanks(64, 32, center=True)
            self.gain = nn.Parameter(torch.rand(33, 2))

        def forward(self, audio: Tensor) -> Tensor:
            mixture = self.stft(audio)
            magnitude = torch.view_as_complex(mixture).abs()
            estimates = magnitude.permute(0, 3, 2, 1)[..., None] * self.gain[:, None].softmax(-1)
            seen = mixture.permute(0, 3, 2, 1, 4)
            found = torch.stack([wiener(one, two, 1) for one, two in zip(estimates, seen, strict=True)])
            return self.istft(found.permute(0, 5, 3, 2, 1, 4).contiguous(), length=audio.shape[-1])

    return Separate(), (torch.randn(1, 2, 512),)


@wild(
    "auraloss",
    dims={
        "x": {0: ("batch", 1, 4), 2: ("samples", 256, 1024)},
        "y": {0: ("batch", 1, 4), 2: ("samples", 256, 1024)},
    },
)
def spectral_losses() -> Made:
    from auraloss.freq import MultiResolutionSTFTLoss
    from auraloss.time import SISDRLoss, SNRLoss

    class Losses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.spectral = MultiResolutionSTFTLoss(
                fft_sizes=[64, 128], hop_sizes=[16, 32], win_lengths=[32, 64]
            )
            self.sdr, self.snr = SISDRLoss(), SNRLoss()

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return self.spectral(x, y), self.sdr(x, y), self.snr(x, y)

    return Losses(), (torch.randn(2, 1, 500), torch.randn(2, 1, 500))


@wild("demucs", dims={"mix": {0: ("batch", 1, 2), 2: ("samples", 256, 1024)}})
def waveform_separation() -> Made:
    from demucs.demucs import Demucs

    return Demucs(
        ["a", "b"],
        audio_channels=1,
        channels=4,
        depth=2,
        lstm_layers=1,
        resample=False,
        dconv_attn=9,
        dconv_lstm=9,
        norm_starts=9,
    ), (torch.randn(1, 1, 600),)


@wild("demucs", dims={"mix": {0: ("batch", 1, 2)}})
def hybrid_separation() -> Made:
    from demucs.hdemucs import HDemucs

    model = HDemucs(
        ["a", "b"],
        audio_channels=1,
        channels=4,
        depth=2,
        nfft=64,
        cac=True,
        hybrid=True,
        time_stride=2,
        norm_starts=9,
        dconv_attn=9,
        dconv_lstm=9,
        multi_freqs=[],
    )
    return model, (torch.randn(1, 1, 1024),)


# molecules and graphs


@wild(
    "torch_geometric",
    dims={"x": {0: ("nodes", 6, 24)}, "edge_index": {1: ("edges", 4, 64)}},
    value_ranges={"edge_index": (0, 5)},
)
def graph_transformer() -> Made:
    from torch_geometric.nn import GraphNorm, JumpingKnowledge, TransformerConv

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = TransformerConv(4, 4, heads=2, edge_dim=3, beta=True)
            self.norm = GraphNorm(8)
            self.second = TransformerConv(8, 4, heads=2, edge_dim=3)
            self.jump = JumpingKnowledge("max")

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            attributes = torch.sin(edge_index.float().sum(0)[:, None] * torch.arange(1, 4))
            one = self.norm(self.first(x, edge_index, attributes)).relu()
            return self.jump([one, self.second(one, edge_index, attributes)])

    return Net(), (torch.randn(8, 4), torch.randint(0, 6, (2, 20)))


@wild("torch_geometric", dims={"pos": {0: ("points", 8, 32)}})
def dynamic_edge_convolution() -> Made:
    from torch_geometric.nn import EdgeConv
    from torch_geometric.nn.aggr import SoftmaxAggregation
    from torch_geometric.utils import dense_to_sparse

    class Edge(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = EdgeConv(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)), aggr="max")
            self.pool = SoftmaxAggregation(learn=True)

        def forward(self, pos: Tensor) -> tuple[Tensor, Tensor]:
            near = torch.cdist(pos, pos) < 1.0
            edge_index, _ = dense_to_sparse(near.float())
            h = self.conv(pos, edge_index)
            return h, self.pool(h, torch.zeros(h.shape[0], dtype=torch.int64), dim_size=1)

    return Edge(), (torch.randn(10, 3),)


@wild(
    "torch_geometric",
    dims={"edge_index": {1: ("edges", 4, 64)}},
    value_ranges={"edge_index": (0, 7), "x": (-3, 3)},
)
def label_propagation() -> Made:
    from torch_geometric.nn import APPNP, ChebConv, LabelPropagation
    from torch_geometric.utils import degree, to_dense_adj

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cheb = ChebConv(4, 3, K=3)
            self.propagate = APPNP(K=4, alpha=0.1)
            self.labels = LabelPropagation(3, 0.8)

        def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, ...]:
            out = self.propagate(self.cheb(x, edge_index), edge_index)
            labels = self.labels(out.argmax(-1), edge_index)
            return out, labels, degree(edge_index[0], 8), to_dense_adj(edge_index, max_num_nodes=8)

    return Net(), (torch.randn(8, 4), torch.randint(0, 8, (2, 20)))


@wild(
    "torch_geometric",
    dims={"x": {0: ("nodes", 4, 24)}, "batch": {0: ("nodes", 4, 24)}},
    value_ranges={"batch": (0, 2)},
)
def set_readouts() -> Made:
    from torch_geometric.nn.aggr import MultiAggregation, Set2Set, SortAggregation

    class Readouts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.set = Set2Set(4, processing_steps=2)
            self.many = MultiAggregation(["mean", "std", "max", "median"])
            self.sort = SortAggregation(k=3)

        def forward(self, x: Tensor, batch: Tensor) -> tuple[Tensor, ...]:
            return (
                self.set(x, batch, dim_size=3),
                self.many(x, batch, dim_size=3),
                self.sort(x, batch, dim_size=3),
            )

    return Readouts(), (torch.randn(8, 4), torch.tensor([0, 0, 0, 1, 1, 1, 2, 2]))


# policies, probability, numerics


@wild("stable-baselines3", dims={"obs": {0: ("batch", 1, 8)}})
def actor_critic() -> Made:
    import gymnasium as gym
    import numpy as np
    from stable_baselines3.common.policies import ActorCriticPolicy

    class Act(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            box = gym.spaces.Box(-np.ones(4, np.float32), np.ones(4, np.float32))
            act = gym.spaces.Box(-np.ones(2, np.float32), np.ones(2, np.float32))
            self.policy = ActorCriticPolicy(box, act, lambda _: 1e-3, net_arch=[8, 8])

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return self.policy(obs, deterministic=True)

    return Act(), (torch.randn(3, 4),)


@wild("torchquad", dims={"scale": {0: ("batch", 1, 8)}})
def quadrature() -> Made:
    from torchquad import Simpson, set_log_level

    set_log_level("ERROR")

    class Integral(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rule = Simpson()

        def forward(self, scale: Tensor) -> Tensor:
            domain = torch.tensor([[0.0, 1.0], [0.0, 2.0]])
            s = scale[0]
            return self.rule.integrate(
                lambda p: torch.sin(s * p[:, 0]) * p[:, 1], dim=2, N=121, integration_domain=domain
            )

    return Integral(), (torch.rand(2),)


@wild("geomloss", dims={"x": {0: ("points", 4, 32)}})
def sinkhorn_divergence() -> Made:
    from geomloss import SamplesLoss

    class Transport(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.loss = SamplesLoss("sinkhorn", p=2, blur=0.5, diameter=4.0, backend="tensorized")
            self.register_buffer("target", torch.randn(9, 2))

        def forward(self, x: Tensor) -> Tensor:
            return self.loss(x, self.target)

    return Transport(), (torch.randn(7, 2),)


@wild("pykan", "kan", dims=SAMPLES)
def kolmogorov_arnold() -> Made:
    from kan.KANLayer import KANLayer

    class Kan(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = KANLayer(3, 5, num=4), KANLayer(5, 2, num=4)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x)[0])[0]

    return Kan(), (torch.rand(4, 3),)


@wild("torchdyn", dims=SAMPLES)
def torchdyn_solver() -> Made:
    from torchdyn.numerics import odeint

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))

        def forward(self, x: Tensor) -> Tensor:
            return odeint(
                lambda t, y: self.net(y), x, torch.linspace(0, 1, 5), solver="dopri5", atol=1e-3, rtol=1e-3
            )[1]

    return Flow(), (torch.randn(3, 2),)


@wild("gpytorch", dims={"x": {0: ("points", 2, 24)}})
def spectral_mixture() -> Made:
    import gpytorch

    class Kernels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mixture = gpytorch.kernels.SpectralMixtureKernel(num_mixtures=3, ard_num_dims=2)
            self.periodic = gpytorch.kernels.PeriodicKernel() + gpytorch.kernels.RQKernel()
            self.deep = gpytorch.kernels.ArcKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            mixed = self.mixture(x).to_dense()
            return mixed, torch.linalg.cholesky(self.periodic(x).to_dense() + 0.1 * torch.eye(x.shape[0]))

    return Kernels(), (torch.rand(6, 2),)


@wild("zuko", dims=SAMPLES)
def mixture_and_continuous_flows() -> Made:
    import zuko

    class Flows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.masked = zuko.flows.MAF(3, 2, transforms=2, hidden_features=(8,))
            self.naive = zuko.flows.NICE(3, 2, transforms=2, hidden_features=(8,))
            self.mixture = zuko.mixtures.GMM(3, 2, components=2)

        def forward(self, x: Tensor, c: Tensor) -> tuple[Tensor, ...]:
            return self.masked(c).log_prob(x), self.naive(c).log_prob(x), self.mixture(c).log_prob(x)

    return Flows(), (torch.randn(3, 3), torch.randn(2))


@wild("linear-operator", dims={"x": {0: ("points", 3, 16)}})
def structured_solve() -> Made:
    from linear_operator.operators import (
        DiagLinearOperator,
        LowRankRootLinearOperator,
        ToeplitzLinearOperator,
    )

    class Solve(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            added = LowRankRootLinearOperator(x).add_diagonal(torch.tensor(0.5))
            right = x.sum(-1, keepdim=True)
            toeplitz = ToeplitzLinearOperator(torch.exp(-torch.arange(x.shape[0]).float()))
            return (
                added.solve(right),
                added.logdet(),
                (toeplitz + DiagLinearOperator(right[:, 0].exp())) @ right,
            )

    return Solve(), (torch.randn(5, 2),)


@wild("bayesian-torch", dims=SAMPLES)
def variational_layers() -> Made:
    from bayesian_torch.layers import LinearFlipout

    class Kl(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = LinearFlipout(4, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            weight = self.layer.mu_weight
            return nn.functional.linear(x, weight, self.layer.mu_bias), self.layer.kl_loss()

    return Kl(), (torch.randn(4, 4),)


@wild("kornia", dims={"image": {0: ("batch", 1, 2), 2: ("height", 16, 48), 3: ("width", 16, 48)}})
def color_and_filters() -> Made:
    import kornia as K

    class Pipeline(nn.Module):
        def forward(self, image: Tensor) -> tuple[Tensor, ...]:
            lab = K.color.rgb_to_lab(image)
            hsv = K.color.rgb_to_hsv(image)
            blurred = K.filters.bilateral_blur(image, (3, 3), 0.1, (1.5, 1.5))
            edges = K.filters.laplacian(image, 3)
            sharp = K.filters.unsharp_mask(K.filters.median_blur(image, (3, 3)), (3, 3), (1.0, 1.0))
            return lab, K.color.hsv_to_rgb(hsv), blurred, edges, sharp

    return Pipeline(), (torch.rand(1, 3, 20, 24),)


@wild("kornia", dims={"image": {2: ("height", 16, 48)}})
def warps_and_histograms() -> Made:
    import kornia as K

    class Pipeline(nn.Module):
        def forward(self, image: Tensor, angle: Tensor) -> tuple[Tensor, ...]:
            turned = K.geometry.rotate(image, angle)
            equal = K.enhance.equalize_clahe(turned, 4.0, (2, 2))
            pyramid = K.geometry.build_pyramid(turned, 2)
            corners = K.feature.harris_response(K.color.rgb_to_grayscale(image))
            return turned, equal, pyramid[1], K.geometry.subpix.nms2d(corners, (3, 3))

    return Pipeline(), (torch.rand(1, 3, 32, 32), torch.tensor([20.0]))


@wild("monai", dims={"x_in": {0: ("batch", 1, 2)}})
def medical_networks() -> Made:
    from monai.networks.nets import UNETR

    return UNETR(
        in_channels=1,
        out_channels=2,
        img_size=(16, 16),
        feature_size=4,
        hidden_size=16,
        mlp_dim=16,
        num_heads=2,
        spatial_dims=2,
    ), (torch.randn(1, 1, 16, 16),)


@wild("monai", dims={"x": {0: ("batch", 1, 2)}})
def dynamic_unet() -> Made:
    from monai.networks.nets import AttentionUnet

    return AttentionUnet(2, 1, 2, channels=(4, 8), strides=(2,)), (torch.randn(1, 1, 24, 32),)


@wild("monai", dims={"pred": {0: ("batch", 1, 4)}, "target": {0: ("batch", 1, 4)}})
def segmentation_metrics() -> Made:
    from monai.losses import DiceFocalLoss, TverskyLoss
    from monai.metrics import compute_dice, compute_iou

    class Metrics(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = DiceFocalLoss(sigmoid=True), TverskyLoss(sigmoid=True)

        def forward(self, pred: Tensor, target: Tensor) -> tuple[Tensor, ...]:
            hard = (pred > 0).float()
            return (
                self.one(pred, target),
                self.two(pred, target),
                compute_dice(hard, target),
                compute_iou(hard, target),
            )

    return Metrics(), (torch.randn(2, 2, 8, 8), (torch.rand(2, 2, 8, 8) > 0.5).float())


@wild("diffusers", dims={"sample": {0: ("batch", 1, 2), 2: ("height", 8, 32), 3: ("width", 8, 32)}})
def variational_autoencoder() -> Made:
    make_torchvision_importable()
    from diffusers import AutoencoderKL

    class Decode(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vae = AutoencoderKL(
                block_out_channels=(8,), layers_per_block=1, norm_num_groups=4, latent_channels=2
            )

        def forward(self, sample: Tensor) -> tuple[Tensor, Tensor]:
            posterior = self.vae.encode(sample).latent_dist
            return self.vae.decode(posterior.mode()).sample, posterior.kl()

    return Decode(), (torch.randn(1, 3, 16, 16),)


@wild("diffusers", dims={"latents": {0: ("batch", 1, 4)}})
def euler_sampling() -> Made:
    make_torchvision_importable()
    from diffusers import EulerDiscreteScheduler, UNet2DModel

    class Sample(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unet = UNet2DModel(
                sample_size=8,
                in_channels=2,
                out_channels=2,
                block_out_channels=(8, 8),
                layers_per_block=1,
                norm_num_groups=4,
                attention_head_dim=4,
                down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            )
            self.scheduler = EulerDiscreteScheduler()

        def forward(self, latents: Tensor) -> Tensor:
            self.scheduler.set_timesteps(3)
            latents = latents * self.scheduler.init_noise_sigma
            for t in self.scheduler.timesteps:
                scaled = self.scheduler.scale_model_input(latents, t)
                latents = self.scheduler.step(self.unet(scaled, t).sample, t, latents).prev_sample
            return latents

    return Sample(), (torch.randn(1, 2, 8, 8),)


@wild("diffusers", dims={"noise": {0: ("batch", 1, 4)}})
def ddim_sampling() -> Made:
    make_torchvision_importable()
    from diffusers import DDIMScheduler

    class Sample(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Conv2d(2, 2, 3, padding=1)
            self.scheduler = DDIMScheduler(num_train_timesteps=50, thresholding=True)
            self.scheduler.set_timesteps(5)

        def forward(self, noise: Tensor) -> Tensor:
            for t in self.scheduler.timesteps:
                noise = self.scheduler.step(self.net(noise), t, noise, eta=0.0).prev_sample
            return noise

    return Sample(), (torch.randn(1, 2, 8, 8),)


@wild(
    "torchmetrics",
    dims={"preds": {0: ("batch", 2, 16)}, "target": {0: ("batch", 2, 16)}},
    value_ranges={"target": (0, 3)},
)
def classification_metrics() -> Made:
    make_torchvision_importable()
    import torchmetrics.functional as F

    class Metrics(nn.Module):
        def forward(self, preds: Tensor, target: Tensor) -> tuple[Tensor, ...]:
            return (
                F.accuracy(preds, target, task="multiclass", num_classes=4),
                F.confusion_matrix(preds, target, task="multiclass", num_classes=4),
                F.f1_score(preds, target, task="multiclass", num_classes=4, average="macro"),
                F.calibration_error(preds.softmax(-1), target, task="multiclass", num_classes=4, n_bins=5),
            )

    return Metrics(), (torch.randn(8, 4), torch.randint(0, 4, (8,)))


@wild("torchmetrics", dims={"preds": {0: ("batch", 2, 16)}})
def running_metric() -> Made:
    make_torchvision_importable()
    from torchmetrics import MeanMetric, MeanSquaredError, MetricCollection, PearsonCorrCoef

    class Running(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.metrics = MetricCollection({"mse": MeanSquaredError(), "r": PearsonCorrCoef()})
            self.mean = MeanMetric()

        def forward(self, preds: Tensor) -> dict[str, Tensor]:
            target = preds.sin() + 0.1 * preds
            self.metrics.update(preds, target)
            self.mean.update(preds)
            return {**self.metrics.compute(), "mean": self.mean.compute()}

    return Running(), (torch.randn(8),)


@wild("torch", dims={"x": {0: ("batch", 1, 4)}})
def streaming_voice() -> Made:
    class Vad(nn.Module):
        """A recurrent voice detector that keeps the end of its last call."""

        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.Conv1d(1, 8, 16, 8)
            self.cell = nn.LSTMCell(8, 8)
            self.head = nn.Linear(8, 1)
            self.context = torch.zeros(0)
            self.last_batch = 0

        def forward(self, x: Tensor) -> Tensor:
            batch = x.shape[0]
            if not len(self.context):
                self.context = torch.zeros(batch, 8)
            x = torch.cat([self.context, x], dim=1)
            state = (x.new_zeros(batch, 8), x.new_zeros(batch, 8))
            for frame in self.encode(x[:, None]).relu().unbind(-1):
                state = self.cell(frame, state)
            self.context = x[:, -8:]
            return self.head(state[0]).sigmoid()

    return Vad(), (torch.randn(1, 40),)


# decoders and algorithms in plain Python


@wild("torch", dims={"log_probs": {0: ("frames", 1, 24)}})
def ctc_prefix_beam() -> Made:
    class PrefixBeam(nn.Module):
        """CTC prefix beam search, the beams as tensors."""

        def forward(self, log_probs: Tensor) -> tuple[Tensor, Tensor]:
            beams = 3
            tokens = torch.zeros(beams, 24, dtype=torch.int64)
            lengths = torch.zeros(beams, dtype=torch.int64)
            score = torch.full((beams,), -1e9)
            score[0] = 0.0
            for t in range(log_probs.shape[0]):
                total = score[:, None] + log_probs[t][None]
                best, index = total.flatten().topk(beams)
                source, token = index // log_probs.shape[1], index % log_probs.shape[1]
                tokens, lengths = tokens[source], lengths[source]
                last = torch.where(
                    lengths > 0, tokens.gather(1, (lengths - 1).clamp_min(0)[:, None])[:, 0], -1
                )
                grows = (token != 0) & (token != last)
                tokens = torch.where(
                    grows[:, None] & (torch.arange(24)[None] == lengths[:, None]), token[:, None], tokens
                )
                lengths = lengths + grows.long()
                score = best
            return tokens[0, : int(lengths[0])], score

    return PrefixBeam(), (torch.randn(9, 5).log_softmax(-1),)


@wild("torch", dims={"boxes": {0: ("boxes", 1, 24)}, "scores": {0: ("boxes", 1, 24)}})
def plain_non_max_suppression() -> Made:
    class Suppress(nn.Module):
        def forward(self, boxes: Tensor, scores: Tensor) -> Tensor:
            x1, y1, x2, y2 = boxes.unbind(1)
            areas = (x2 - x1) * (y2 - y1)
            order = scores.argsort(descending=True)
            keep = []
            while order.numel() > 0:
                i = order[0]
                keep.append(i)
                rest = order[1:]
                w = (torch.minimum(x2[i], x2[rest]) - torch.maximum(x1[i], x1[rest])).clamp(min=0)
                h = (torch.minimum(y2[i], y2[rest]) - torch.maximum(y1[i], y1[rest])).clamp(min=0)
                overlap = w * h / (areas[i] + areas[rest] - w * h)
                order = rest[overlap <= 0.5]
            return torch.stack(keep)

    corner = torch.rand(8, 2) * 4
    return Suppress(), (torch.cat([corner, corner + 1 + torch.rand(8, 2)], 1), torch.rand(8))


@wild("torch", dims={"cost": {0: ("rows", 2, 16), 1: ("columns", 2, 16)}})
def time_warping() -> Made:
    class Warp(nn.Module):
        """Dynamic time warping with its path."""

        def forward(self, cost: Tensor) -> tuple[Tensor, Tensor]:
            n, m = cost.shape
            table = torch.full((n + 1, m + 1), float("inf"))
            table[0, 0] = 0.0
            for i in range(n):
                for j in range(m):
                    table[i + 1, j + 1] = cost[i, j] + min(table[i, j], table[i, j + 1], table[i + 1, j])
            path = []
            i, j = n - 1, m - 1
            while i > 0 or j > 0:
                path.append((i, j))
                step = torch.stack([table[i, j], table[i, j + 1], table[i + 1, j]]).argmin().item()
                if step == 0:
                    i, j = i - 1, j - 1
                elif step == 1:
                    i -= 1
                else:
                    j -= 1
            return table[n, m], torch.tensor(path[::-1])

    return Warp(), (torch.rand(4, 5),)


@wild(
    "torch",
    dims={"a": {0: ("first", 1, 12)}, "b": {0: ("second", 1, 12)}},
    value_ranges={"a": (0, 5), "b": (0, 5)},
)
def edit_distance() -> Made:
    class Edit(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            previous = list(range(len(b) + 1))
            for i, x in enumerate(a):
                current = [i + 1]
                for j, y in enumerate(b):
                    if x == y:
                        current.append(previous[j])
                    else:
                        current.append(1 + min(previous[j], previous[j + 1], current[j]))
                previous = current
            return torch.tensor(previous[-1])

    return Edit(), (torch.randint(0, 6, (4,)), torch.randint(0, 6, (5,)))


@wild("torch", dims={"x": {0: ("points", 4, 24)}})
def density_clusters() -> Made:
    class Clusters(nn.Module):
        """DBSCAN over a matrix of distances."""

        def forward(self, x: Tensor) -> tuple[Tensor, int]:
            near = torch.cdist(x, x) < 0.8
            core = near.sum(1) >= 3
            labels = torch.full((x.shape[0],), -1)
            cluster = 0
            for i in range(x.shape[0]):
                if labels[i] != -1 or not core[i]:
                    continue
                member = torch.zeros(x.shape[0], dtype=torch.bool)
                member[i] = True
                while True:
                    grown = member | (near & (core & member)[:, None]).any(0)
                    if (grown == member).all():
                        break
                    member = grown
                labels[member & (labels == -1)] = cluster
                cluster += 1
            return labels, cluster

    return Clusters(), (torch.randn(8, 2),)


@wild("torch", dims={"x": {0: ("batch", 1, 8)}})
def adaptive_computation() -> Made:
    class Ponder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.halt = nn.GRUCell(4, 4), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            state, total = torch.zeros_like(x), x.new_zeros(x.shape[0])
            out, steps = torch.zeros_like(x), x.new_zeros(x.shape[0])
            while bool((total < 0.99).any()) and steps.max() < 10:
                state = self.cell(x, state)
                p = self.halt(state).sigmoid().squeeze(-1)
                running = total < 0.99
                p = torch.where(total + p > 0.99, 1 - total, p) * running
                out, total, steps = out + p[:, None] * state, total + p, steps + running
            return out, steps

    return Ponder(), (torch.randn(3, 4),)


@wild("torch", dims={"logits": {0: ("steps", 1, 16)}})
def transducer_greedy() -> Made:
    class Transducer(nn.Module):
        """Greedy decoding of an RNN transducer, at most three symbols a frame."""

        def __init__(self) -> None:
            super().__init__()
            self.embed, self.cell, self.join = nn.Embedding(6, 8), nn.GRUCell(8, 8), nn.Linear(8, 6)

        def forward(self, logits: Tensor) -> Tensor:
            state, token = torch.zeros(1, 8), torch.zeros(1, dtype=torch.int64)
            state = self.cell(self.embed(token), state)
            out: list[int] = []
            for frame in logits:
                for _ in range(3):
                    best = int((self.join(state)[0] + frame).argmax())
                    if best == 0:
                        break
                    out.append(best)
                    state = self.cell(self.embed(torch.tensor([best])), state)
            return torch.tensor(out)

    return Transducer(), (2 * torch.randn(5, 6),)


@wild("torch", dims={"x": {0: ("batch", 1, 8)}})
def newton_with_line_search() -> Made:
    class Newton(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.eye(3) * 2 + 0.1 * torch.randn(3, 3))

        def loss(self, w: Tensor, x: Tensor) -> Tensor:
            return ((x @ self.a @ w).tanh() - 0.3).pow(2).mean() + 0.01 * w.pow(2).sum()

        def forward(self, x: Tensor) -> tuple[Tensor, int]:
            w, n = torch.zeros(3), 0
            for _ in range(5):
                h = (x @ self.a @ w).tanh()
                j = (1 - h**2)[:, None] * (x @ self.a)
                g = 2 * j.T @ (h - 0.3) / x.shape[0] + 0.02 * w
                if g.norm() < 1e-4:
                    break
                step = torch.linalg.solve(2 * j.T @ j / x.shape[0] + 0.05 * torch.eye(3), g)
                t = 1.0
                while t > 0.05 and self.loss(w - t * step, x) > self.loss(w, x):
                    t *= 0.5
                w = w - t * step
                n += 1
            return w, n

    return Newton(), (torch.randn(4, 3),)


@wild("torch", dims={"tokens": {0: ("length", 1, 16)}}, value_ranges={"tokens": (0, 4)})
def stack_machine() -> Made:
    class Machine(nn.Module):
        """Postfix arithmetic with a Python list as its stack."""

        def forward(self, tokens: Tensor, values: Tensor) -> Tensor:
            stack = [values[0], values[0]]
            for i, token in enumerate(tokens):
                if token < 2:
                    stack.append(values[i])
                elif len(stack) >= 2:
                    b, a = stack.pop(), stack.pop()
                    if token == 2:
                        stack.append(a + b)
                    elif token == 3:
                        stack.append(a * b)
                    else:
                        stack.append(a - b)
            return stack[-1] + len(stack)

    return Machine(), (torch.tensor([0, 1, 2, 0, 3, 4]), torch.randn(16))


@wild("torch", dims={"x": {0: ("batch", 1, 6)}})
def running_normalizer() -> Made:
    class Normalizer(nn.Module):
        """Welford's statistics over calls, frozen after warm-up, with a dictionary of counters."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("m2", torch.ones(3))
            self.count = 0
            self.stats = {"clipped": 0, "calls": 0}

        def forward(self, x: Tensor) -> Tensor:
            self.stats["calls"] += 1
            if self.count < 20:
                for row in x:
                    self.count += 1
                    delta = row - self.mean
                    self.mean += delta / self.count
                    self.m2 += delta * (row - self.mean)
            z = (x - self.mean) / (self.m2 / max(self.count, 1)).sqrt()
            if z.abs().max() > 3:
                self.stats["clipped"] += int((z.abs() > 3).sum())
                z = z.clamp(-3, 3)
            return z

    return Normalizer(), (torch.randn(2, 3),)


@wild("torch", dims={"x": {0: ("batch", 1, 4), 1: ("length", 2, 12)}})
def packed_recurrence() -> Made:
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(3, 4, batch_first=True, bidirectional=True)

        def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
            packed = pack_padded_sequence(
                x, lengths[: x.shape[0]].clamp(max=x.shape[1]), batch_first=True, enforce_sorted=False
            )
            out, (hidden, _) = self.rnn(packed)
            padded, _ = pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])
            return padded, hidden

    return Packed(), (torch.randn(2, 6, 3), torch.tensor([6, 4, 3, 2]))


@wild("torch", dims={"weights": {0: ("nodes", 2, 12), 1: ("nodes", 2, 12)}})
def shortest_paths() -> Made:
    class Dijkstra(nn.Module):
        def forward(self, weights: Tensor) -> tuple[Tensor, Tensor]:
            n = weights.shape[0]
            distance = torch.full((n,), math.inf)
            previous = torch.full((n,), -1)
            done = torch.zeros(n, dtype=torch.bool)
            distance[0] = 0
            for _ in range(n):
                u = torch.where(done, math.inf, distance).argmin()
                done[u] = True
                for v in range(n):
                    if not done[v] and distance[u] + weights[u, v] < distance[v]:
                        distance[v] = distance[u] + weights[u, v]
                        previous[v] = u
            return distance, previous

    return Dijkstra(), (torch.rand(5, 5),)


@wild("vit-pytorch", dims={"img": {0: ("batch", 1, 4)}})
def cross_attention_vits() -> Made:
    make_torchvision_importable()
    from vit_pytorch.cct import CCT
    from vit_pytorch.max_vit import MaxViT

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cct = CCT(
                img_size=16,
                embedding_dim=16,
                num_layers=1,
                num_heads=2,
                mlp_ratio=1,
                num_classes=4,
                kernel_size=3,
                n_conv_layers=1,
                positional_embedding="learnable",
            )
            self.max = MaxViT(num_classes=4, dim=8, dim_conv_stem=8, dim_head=8, depth=(1, 1), window_size=2)

        def forward(self, img: Tensor) -> tuple[Tensor, Tensor]:
            return self.cct(img), self.max(img)

    return Both(), (torch.rand(2, 3, 16, 16),)


@wild("x-transformers", dims={"x": {1: ("length", 2, 24)}}, value_ranges={"x": (0, 31)})
def odd_decoder() -> Made:
    from x_transformers import Decoder, TransformerWrapper

    return TransformerWrapper(
        num_tokens=32,
        max_seq_len=32,
        num_memory_tokens=2,
        attn_layers=Decoder(
            dim=16,
            depth=2,
            heads=2,
            attn_dim_head=8,
            rotary_pos_emb=True,
            attn_qk_norm=True,
            sandwich_norm=True,
            ff_glu=True,
            attn_num_mem_kv=2,
            shift_tokens=1,
            attn_kv_heads=1,
            residual_attn=True,
            use_rmsnorm=True,
        ),
    ), (torch.randint(0, 32, (2, 9)),)


@wild("vector-quantize-pytorch", dims={"x": {0: ("batch", 1, 4), 1: ("length", 2, 16)}})
def grouped_quantizers() -> Made:
    from vector_quantize_pytorch import GroupedResidualVQ, LatentQuantize, SimVQ

    class Quantizers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.grouped = GroupedResidualVQ(dim=8, num_quantizers=2, groups=2, codebook_size=8)
            self.sim = SimVQ(dim=8, codebook_size=16)
            self.latent = LatentQuantize(levels=[3, 5], dim=8)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return (*self.grouped(x)[:2], *self.sim(x)[:2], self.latent(x.mT[..., None])[0])

    return Quantizers(), (torch.randn(2, 6, 8),)


@wild("snntorch", dims={"x": {1: ("batch", 1, 4)}})
def synaptic_network() -> Made:
    import snntorch as snn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 2)
            self.synaptic = snn.Synaptic(alpha=0.9, beta=0.8)
            self.alpha = snn.RLeaky(beta=0.7, linear_features=2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            syn, mem = self.synaptic.reset_mem()
            spk, out = self.alpha.reset_mem()
            spikes = []
            for step in range(x.size(0)):
                s, syn, mem = self.synaptic(self.one(x[step]), syn, mem)
                spk, out = self.alpha(self.two(s), spk, out)
                spikes.append(spk)
            return torch.stack(spikes), out

    return Net(), (torch.rand(5, 2, 4),)


@wild("speechbrain", dims={"x": {0: ("batch", 1, 2), 1: ("samples", 800, 2400)}})
def x_vectors() -> Made:
    from speechbrain.lobes.features import Fbank
    from speechbrain.lobes.models.Xvector import Xvector

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = Fbank(sample_rate=8000, n_fft=200, n_mels=12)
            self.net = Xvector(
                in_channels=12,
                tdnn_blocks=2,
                tdnn_channels=[8, 8],
                tdnn_kernel_sizes=[5, 1],
                tdnn_dilations=[1, 1],
                lin_neurons=6,
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.net(self.features(x))

    return Net(), (torch.randn(1, 1600),)


@wild("lightly", dims={"a": {0: ("batch", 2, 8)}, "b": {0: ("batch", 2, 8)}})
def self_supervised_losses() -> Made:
    make_torchvision_importable()
    from lightly.loss import BarlowTwinsLoss, SwaVLoss, VICRegLoss

    class Losses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.barlow, self.vic, self.swav = BarlowTwinsLoss(), VICRegLoss(), SwaVLoss()

        def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
            return self.barlow(a, b), self.vic(a, b), self.swav([a, b], [])

    return Losses(), (torch.randn(4, 6), torch.randn(4, 6))


@wild("einx", dims={"x": {0: ("batch", 1, 4), 1: ("length", 2, 16)}})
def named_axes() -> Made:
    import einx

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(8, 2, 4))

        def forward(self, x: Tensor) -> Tensor:
            h = einx.dot("b n c, c h d -> b n h d", x, self.w)
            scores = einx.dot("b q h d, b k h d -> b h q k", h, h)
            h = einx.dot("b h q k, b k h d -> b q (h d)", einx.softmax("b h q [k]", scores), h)
            return einx.mean("b [n] c", h)

    return Net(), (torch.randn(2, 5, 8),)
