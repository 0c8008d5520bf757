"""A twelfth draw, at random: half of it from the packages that many people download.

`random.Random(12).shuffle` of the rows of the package list of November 2026 that name torch and are in no
earlier draw, once those among the 15000 most downloaded and once all of them; of each the first that give
modules or functions of torch, and import here.
"""

from __future__ import annotations

import torch
from torch import nn

from models._vision import make_torchvision_importable
from tests.wild.cases import Made, wild


@wild("torcheval", dims={"scores": {0: ("samples", 2, 32)}, "labels": {0: ("samples", 2, 32)}})
def average_precision() -> Made:
    make_torchvision_importable()
    from torcheval.metrics.functional import multiclass_auprc

    class AveragePrecision(nn.Module):
        def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return multiclass_auprc(scores, labels, num_classes=3)

    return AveragePrecision(), (torch.rand(10, 3), torch.randint(0, 3, (10,)))


@wild("torcheval", dims={"scores": {0: ("samples", 1, 32)}, "labels": {0: ("samples", 1, 32)}})
def reciprocal_ranks() -> Made:
    make_torchvision_importable()
    from torcheval.metrics.functional import multiclass_f1_score, reciprocal_rank

    class Ranked(nn.Module):
        def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            f1 = multiclass_f1_score(scores, labels, num_classes=5, average="macro")
            return reciprocal_rank(scores, labels, k=3), f1

    return Ranked(), (torch.rand(10, 5), torch.randint(0, 5, (10,)))


@wild("torch-runstats", dims={"x": {0: ("samples", 1, 32)}, "kind": {0: ("samples", 1, 32)}})
def running_statistics() -> Made:
    from torch_runstats import Reduction, RunningStats

    class Statistics(nn.Module):
        def forward(self, x: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
            statistics = RunningStats(dim=(4,), reduction=Reduction.RMS, ignore_nan=True)
            statistics.accumulate_batch(x, accumulate_by=kind)
            statistics.accumulate_batch(2 * x)
            return statistics.current_result()

    return Statistics(), (torch.randn(9, 4), torch.randint(0, 3, (9,)))


@wild("pytorch-wpe", dims={"real": {2: ("frames", 12, 40)}, "imag": {2: ("frames", 12, 40)}})
def dereverberation() -> Made:
    from pytorch_wpe import wpe
    from torch_complex.tensor import ComplexTensor

    class Dereverberated(nn.Module):
        def forward(self, real: torch.Tensor, imag: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            clean = wpe(ComplexTensor(real, imag), taps=3, delay=2, iterations=2)
            return clean.real, clean.imag

    return Dereverberated(), (torch.randn(4, 2, 24), torch.randn(4, 2, 24))


@wild("torch-complex", dims={"real": {2: ("frames", 4, 40)}, "imag": {2: ("frames", 4, 40)}})
def minimum_variance_beamformer() -> Made:
    import torch_complex.functional as FC
    from torch_complex.tensor import ComplexTensor

    class Beamformed(nn.Module):
        def forward(self, real: torch.Tensor, imag: torch.Tensor) -> torch.Tensor:
            mixture = ComplexTensor(real, imag)
            covariance = FC.einsum("fct,fet->fce", [mixture, mixture.conj()]) / mixture.size(-1)
            covariance = covariance + 0.1 * torch.eye(3)
            weights = covariance.inverse()[..., 0]
            weights = weights / (FC.trace(covariance)[..., None] + 1e-6)
            enhanced = FC.einsum("fc,fct->ft", [weights.conj(), mixture])
            return enhanced.abs()

    return Beamformed(), (torch.randn(4, 3, 12), torch.randn(4, 3, 12))


@wild("kmeans-pytorch", dims={"x": {0: ("points", 2, 32)}})
def nearest_clusters() -> Made:
    from kmeans_pytorch import kmeans_predict

    class Assigned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("centers", torch.randn(5, 3))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            euclidean = kmeans_predict(x, self.centers, "euclidean")
            return euclidean, kmeans_predict(x, self.centers, "cosine")

    return Assigned(), (torch.randn(11, 3),)


@wild("torchsr", dims={"x": {0: ("batch", 1, 3), 2: ("height", 4, 24), 3: ("width", 4, 24)}})
def super_resolution() -> Made:
    make_torchvision_importable()
    from torchsr.models.rcan import RCAN

    return RCAN(n_resgroups=2, n_resblocks=2, n_feats=16, reduction=4, scale=2), (torch.rand(1, 3, 10, 12),)


@wild("smplx", dims={"betas": {0: ("batch", 1, 6)}, "pose": {0: ("batch", 1, 6)}})
def blend_skinning() -> Made:
    from smplx.lbs import lbs

    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("template", torch.randn(20, 3))
            self.register_buffer("shapes", torch.randn(20, 3, 4) * 0.1)
            self.register_buffer("poses", torch.randn(4 * 9, 20 * 3) * 0.1)
            self.register_buffer("joints", torch.rand(5, 20).softmax(1))
            self.register_buffer("parents", torch.tensor([-1, 0, 1, 1, 3]))
            self.register_buffer("weights", torch.randn(20, 5).softmax(1))

        def forward(self, betas: torch.Tensor, pose: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return lbs(
                betas, pose, self.template, self.shapes, self.poses, self.joints, self.parents, self.weights
            )

    return Body(), (torch.randn(3, 4), torch.randn(3, 15) * 0.5)


@wild("smplx", dims={"vertices": {0: ("batch", 1, 6)}, "pose": {0: ("batch", 1, 6)}})
def face_landmarks() -> Made:
    from smplx.lbs import find_dynamic_lmk_idx_and_bcoords, vertices2landmarks

    class Landmarks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("faces", torch.randint(0, 20, (12, 3)))
            self.register_buffer("contour_faces", torch.randint(0, 12, (79, 4)))
            self.register_buffer("contour_weights", torch.rand(79, 4, 3).softmax(-1))
            self.register_buffer("neck", torch.tensor([2, 1, 0]))

        def forward(self, vertices: torch.Tensor, pose: torch.Tensor) -> torch.Tensor:
            faces, weights = find_dynamic_lmk_idx_and_bcoords(
                vertices, pose, self.contour_faces, self.contour_weights, self.neck
            )
            return vertices2landmarks(vertices, self.faces, faces, weights)

    return Landmarks(), (torch.randn(3, 20, 3), torch.randn(3, 12) * 0.5)


@wild(
    "batchtensor",
    dims={
        "data.0": {0: ("batch", 1, 6), 1: ("steps", 2, 12)},
        "data.1": {0: ("batch", 1, 6), 1: ("steps", 2, 12)},
    },
)
def nested_sequences() -> Made:
    from batchtensor import nested

    class Summary(nn.Module):
        def forward(self, data: list[torch.Tensor]) -> dict[str, object]:
            named = {"a": data[0], "b": data[1]}
            ordered = nested.sort_along_seq(named)
            return {
                "median": nested.median_along_seq(named),
                "total": nested.cumsum_along_seq(nested.abs(named)),
                "halves": nested.chunk_along_seq(named, chunks=2),
                "ordered": ordered,
            }

    return Summary(), ([torch.randn(3, 6), torch.randn(3, 6)],)


@wild("pytorch-pretrained-bert", dims={"input_ids": {0: ("batch", 1, 4), 1: ("length", 2, 16)}})
def generative_transformer() -> Made:
    from pytorch_pretrained_bert.modeling_gpt2 import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(40, n_positions=32, n_ctx=32, n_embd=16, n_layer=2, n_head=2)
    return GPT2LMHeadModel(config), (torch.randint(0, 40, (2, 7)),)


@wild("loralib", dims={"input": {0: ("batch", 1, 6)}})
def low_rank_adapters() -> Made:
    import loralib

    model = nn.Sequential(
        loralib.MergedLinear(8, 12, r=2, lora_alpha=4, enable_lora=[True, False, True]),
        nn.ReLU(),
        loralib.Linear(12, 5, r=3),
    )
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model, (torch.randn(3, 8),)


@wild("opacus", dims={"x": {0: ("batch", 1, 4), 1: ("length", 1, 12)}})
def private_recurrence() -> Made:
    from opacus.layers import DPLSTM

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = DPLSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True)
            self.head = nn.Linear(12, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.lstm(x)[0])

    return Tagger(), (torch.randn(2, 7, 4),)


@wild(
    "opacus",
    dims={"query": {0: ("length", 1, 12)}, "key": {0: ("keys", 1, 12)}, "value": {0: ("keys", 1, 12)}},
)
def private_attention() -> Made:
    from opacus.layers import DPMultiheadAttention

    model = DPMultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True)
    return model, (torch.randn(5, 2, 8), torch.randn(7, 2, 8), torch.randn(7, 2, 8))


@wild("torchgeo", dims={"x": {0: ("batch", 1, 3), 1: ("steps", 1, 6)}})
def convolutional_memory() -> Made:
    make_torchvision_importable()
    from torchgeo.models import ConvLSTM

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.memory = ConvLSTM(3, 4, (3, 3), num_layers=2)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            outputs, states = self.memory(x)
            return outputs[0], states[0][1]

    return Last(), (torch.randn(2, 4, 3, 8, 8),)


@wild("torchgeo", dims={"x": {0: ("batch", 1, 6)}})
def temporal_attention() -> Made:
    make_torchvision_importable()
    from torchgeo.models import LTAE

    model = LTAE(in_channels=8, n_head=2, d_k=4, n_neurons=(16, 8), d_model=16, len_max_seq=7)
    return model, (torch.randn(3, 7, 8),)


@wild("pytorch-ignite", dims={"predicted": {0: ("batch", 1, 4)}, "image": {0: ("batch", 1, 4)}})
def structural_similarity() -> Made:
    make_torchvision_importable()
    from ignite.metrics import SSIM

    class Similarity(nn.Module):
        def forward(self, predicted: torch.Tensor, image: torch.Tensor) -> float:
            metric = SSIM(data_range=1.0, kernel_size=(5, 5), sigma=(1.0, 1.0))
            metric.update((predicted, image))
            return metric.compute()

    image = torch.rand(2, 3, 16, 16)
    return Similarity(), ((image + 0.1 * torch.rand(2, 3, 16, 16)).clamp(0, 1), image)


@wild("diffq", dims={"x": {0: ("batch", 1, 6)}})
def quantized_levels() -> Made:
    from diffq.uniform import uniform_quantize, uniform_unquantize

    class Quantized(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            levels, scales = uniform_quantize(x, torch.tensor(4.0))
            return uniform_unquantize(levels, scales, torch.tensor(4.0))

    return Quantized(), (torch.randn(3, 8),)


@wild("n-grammer-pytorch", dims={"x": {0: ("batch", 1, 4), 1: ("length", 1, 16)}})
def hashed_bigrams() -> Made:
    from n_grammer_pytorch import VQNgrammer

    model = VQNgrammer(num_clusters=16, num_heads=2, dim_per_head=8, ngram_vocab_size=97, ngram_emb_dim=4)
    return model, (torch.randn(2, 7, 16),)


@wild("metnet3", dims={"x": {0: ("batch", 1, 3)}})
def weather_vision_transformer() -> Made:
    from metnet3.maxvit import MaxViT

    model = MaxViT(num_classes=5, dim=16, depth=(1, 1), dim_head=8, window_size=2, num_register_tokens=2)
    return model, (torch.rand(2, 3, 16, 16),)


@wild("liquidnet", dims={"inputs": {0: ("batch", 1, 6)}, "state": {0: ("batch", 1, 6)}})
def liquid_cell() -> Made:
    from liquidnet.main import LiquidNet

    model = LiquidNet(5)
    arguments = (torch.randn(3, 4), torch.randn(3, 5))
    model(*arguments)  # makes its parameters
    return model, arguments


@wild("torchphm", dims={"mag_specgrams": {0: ("batch", 1, 4)}})
def harmonic_separation() -> Made:
    from torchphm.beta_hpss import HPSS

    return HPSS(kernel_size=5), (torch.rand(2, 1, 9, 8),)


@wild("torchphm", dims={"spectrogram": {3: ("frames", 2, 24)}})
def stretched_spectrogram() -> Made:
    from torchphm.layers import TimeStretch

    class Stretched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stretch = TimeStretch(hop_length=4, num_freqs=5, fixed_rate=1.25)

        def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
            return self.stretch(spectrogram)

    return Stretched(), (torch.randn(2, 1, 5, 12, 2),)


@wild("torchjd", dims={"matrix": {1: ("parameters", 3, 24)}})
def minimum_norm_descent() -> Made:
    from torchjd.aggregation import IMTLG, MGDA

    class Descent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.minimum, self.impartial = MGDA(max_iters=40), IMTLG()

        def forward(self, matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.minimum(matrix), self.impartial(matrix)

    return Descent(), (torch.randn(3, 8),)


@wild("torchjd", dims={"matrix": {0: ("losses", 5, 12), 1: ("parameters", 1, 24)}})
def robust_aggregation() -> Made:
    from torchjd.aggregation import Krum, TrimmedMean

    class Robust(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.krum, self.trimmed = Krum(n_byzantine=1, n_selected=2), TrimmedMean(trim_number=1)

        def forward(self, matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.krum(matrix), self.trimmed(matrix)

    return Robust(), (torch.randn(7, 9),)


@wild("cellseg-models-pytorch", dims={"x": {0: ("batch", 1, 3)}})
def star_convex_cells() -> Made:
    make_torchvision_importable()
    from cellseg_models_pytorch.models.stardist.stardist_unet import stardist_nuclei

    class Rays(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = stardist_nuclei(
                8, 3, depth=3, out_channels=(16, 8, 8), enc_name="resnet18", enc_pretrain=False
            )

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            nuclei = self.network(x)["nuc"]
            return nuclei.aux_map, nuclei.binary_map, nuclei.type_map

    return Rays(), (torch.rand(2, 3, 32, 32),)


@wild("torch-mist", dims={"x": {0: ("batch", 2, 12)}, "y": {0: ("batch", 2, 12)}})
def mutual_information() -> Made:
    from torch_mist.critic import joint_critic
    from torch_mist.estimators.discriminative.implementations import InfoNCE

    class Estimate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.estimator = InfoNCE(joint_critic(x_dim=3, y_dim=2, hidden_dims=[8]))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.estimator.mutual_information(x, y)

    return Estimate(), (torch.randn(5, 3), torch.randn(5, 2))


@wild("extorch", dims={"input": {0: ("batch", 1, 8)}})
def cluster_embedding() -> Made:
    make_torchvision_importable()
    from extorch.nn import DECLoss

    return DECLoss(reduction="batchmean"), (torch.randn(5, 4), torch.randn(3, 4))
