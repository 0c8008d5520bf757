"""A thirteenth draw, at random: half of it from the packages that many people download.

`random.Random(13).shuffle` of the rows of the package list of November 2026 that name torch or neural and are
in no earlier draw, once those among the 15000 most downloaded and once all; of each the first with modules
or functions of torch, and import here.
"""

from __future__ import annotations

import torch
from torch import nn

from models._vision import make_torchvision_importable
from tests.wild.cases import Made, wild


@wild(
    "torch-dftd",
    dims={"kinds": {0: ("atoms", 2, 12)}, "positions": {0: ("atoms", 2, 12)}, "edges": {1: ("edges", 1, 24)}},
    value_ranges={"kinds": (1, 18), "edges": (0, 1)},
)
def dispersion_energy() -> Made:
    from torch_dftd.nn.dftd3_module import DFTD3Module

    class Dispersion(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            parameters = {"s6": 1.0, "rs6": 1.217, "s18": 0.722, "rs18": 1.0, "alp": 14.0}
            self.module = DFTD3Module(parameters)

        def forward(self, kinds: torch.Tensor, positions: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return self.module.calc_energy_batch(kinds, positions, edges)

    edges = torch.tensor([[0, 0, 1, 1, 0], [1, 1, 0, 0, 1]])
    return Dispersion(), (torch.randint(1, 18, (5,)), torch.randn(5, 3) * 3, edges)


@wild("pytorch-fid", dims={"input": {0: ("batch", 1, 3)}})
def inception_block() -> Made:
    make_torchvision_importable()
    from pytorch_fid.inception import FIDInceptionA, FIDInceptionC

    return nn.Sequential(FIDInceptionA(8, pool_features=4), FIDInceptionC(228, channels_7x7=8)), (
        torch.rand(2, 8, 9, 9),
    )


@wild("fairscale", dims={"input": {0: ("batch", 1, 6)}})
def checkpointed_layers() -> Made:
    from fairscale.nn import checkpoint_wrapper
    from fairscale.nn.misc import FlattenParamsWrapper

    layers = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh())
    return nn.Sequential(checkpoint_wrapper(layers), FlattenParamsWrapper(nn.Linear(8, 3))), (
        torch.randn(4, 6),
    )


@wild("fairscale", random="state")
def gated_experts() -> Made:
    from fairscale.nn import Top2Gate

    return Top2Gate(6, 4), (torch.randn(8, 6),)


@wild("pipablepytorch3d", "pytorch3d", dims={"motion": {0: ("batch", 1, 8)}})
def rigid_motions() -> Made:
    from pytorch3d.transforms import matrix_to_euler_angles, matrix_to_quaternion, se3_exp_map, se3_log_map

    class Motions(nn.Module):
        def forward(self, motion: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            matrices = se3_exp_map(motion)
            rotations = matrices[:, :3, :3].transpose(1, 2)
            angles = matrix_to_euler_angles(rotations, "XYZ")
            return se3_log_map(matrices), matrix_to_quaternion(rotations), angles

    return Motions(), (torch.randn(4, 6) * 0.4,)


@wild("pipablepytorch3d", "pytorch3d", dims={"points": {0: ("batch", 1, 6), 1: ("points", 1, 16)}})
def composed_transforms() -> Made:
    from pytorch3d.transforms import Transform3d, axis_angle_to_matrix

    class Moved(nn.Module):
        def forward(self, points: torch.Tensor, axes: torch.Tensor) -> torch.Tensor:
            turned = Transform3d().scale(2.0).rotate(axis_angle_to_matrix(axes)).translate(1.0, 0.0, -1.0)
            return turned.inverse().transform_normals(turned.transform_points(points))

    return Moved(), (torch.randn(3, 5, 3), torch.randn(3) * 0.5)


@wild(
    "compressed-tensors",
    dims={"x": {0: ("rows", 1, 16)}, "scale": {0: ("rows", 1, 16)}, "zero_point": {0: ("rows", 1, 16)}},
    value_ranges={"scale": (0.01, 0.5)},
)
def grouped_fake_quantization() -> Made:
    make_torchvision_importable()
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import fake_quantize

    class Quantized(nn.Module):
        def forward(self, x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor) -> torch.Tensor:
            arguments = QuantizationArgs(num_bits=4, strategy="group", group_size=4, symmetric=False)
            return fake_quantize(x, scale, zero_point, arguments)

    return Quantized(), (
        torch.randn(5, 8),
        torch.rand(5, 2) * 0.2 + 0.05,
        torch.randint(-8, 8, (5, 2)).float(),
    )


@wild(
    "bert-score",
    dims={
        "reference": {0: ("batch", 1, 4), 1: ("words", 1, 12)},
        "reference_mask": {0: ("batch", 1, 4), 1: ("words", 1, 12)},
        "reference_idf": {0: ("batch", 1, 4), 1: ("words", 1, 12)},
        "candidate": {0: ("batch", 1, 4), 1: ("other_words", 1, 12)},
        "candidate_mask": {0: ("batch", 1, 4), 1: ("other_words", 1, 12)},
        "candidate_idf": {0: ("batch", 1, 4), 1: ("other_words", 1, 12)},
    },
)
def greedy_matching() -> Made:
    from bert_score.utils import greedy_cos_idf

    class Matched(nn.Module):
        def forward(
            self,
            reference: torch.Tensor,
            reference_mask: torch.Tensor,
            reference_idf: torch.Tensor,
            candidate: torch.Tensor,
            candidate_mask: torch.Tensor,
            candidate_idf: torch.Tensor,
        ) -> tuple[torch.Tensor, ...]:
            return greedy_cos_idf(
                reference, reference_mask, reference_idf, candidate, candidate_mask, candidate_idf
            )

    return Matched(), (
        torch.randn(2, 5, 8),
        torch.ones(2, 5, dtype=torch.int64),
        torch.rand(2, 5) + 0.1,
        torch.randn(2, 4, 8),
        torch.ones(2, 4, dtype=torch.int64),
        torch.rand(2, 4) + 0.1,
    )


@wild("alias-free-torch", dims={"x": {0: ("batch", 1, 3), 2: ("height", 6, 20), 3: ("width", 6, 20)}})
def alias_free_activation() -> Made:
    from alias_free_torch import Activation2d

    return Activation2d(nn.SiLU()), (torch.randn(2, 3, 8, 10),)


@wild("pytorch-revgrad", dims={"input": {0: ("batch", 1, 8)}})
def domain_classifier() -> Made:
    from pytorch_revgrad import RevGrad

    return nn.Sequential(nn.Linear(4, 6), RevGrad(alpha=0.5), nn.ReLU(), nn.Linear(6, 2)), (
        torch.randn(3, 4),
    )


@wild("rsl-rl-lib", "rsl_rl")
def recurrent_policy() -> Made:
    from rsl_rl.modules import RNN

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.memory = RNN(5, hidden_dim=6, num_layers=2, type="lstm")
            self.head = nn.Linear(6, 3)

        def forward(self, observed: torch.Tensor, dones: torch.Tensor) -> torch.Tensor:
            self.memory.reset(dones)
            return self.head(self.memory(observed).squeeze(0))

    return Policy(), (torch.randn(4, 5), torch.tensor([0, 1, 0, 0]))


@wild("rsl-rl-lib", "rsl_rl", dims={"x": {0: ("batch", 2, 12)}})
def empirical_normalization() -> Made:
    from rsl_rl.modules import EmpiricalNormalization

    class Normalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = EmpiricalNormalization(3, until=20)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.norm.train()
            self.norm.update(x)
            return self.norm(x)

    return Normalized(), (torch.randn(5, 3),)


@wild(
    "pytorch-optimizer",
    dims={
        "y_pred": {0: ("images", 1, 4), 1: ("pixels", 1, 24)},
        "y_true": {0: ("images", 1, 4), 1: ("pixels", 1, 24)},
    },
)
def lovasz_loss() -> Made:
    from pytorch_optimizer.loss import LovaszHingeLoss

    return LovaszHingeLoss(), (torch.randn(3, 12), torch.randint(0, 2, (3, 12)))


@wild("pytorch-optimizer", dims={"predictions": {0: ("batch", 1, 8)}, "targets": {0: ("batch", 1, 8)}})
def tempered_loss() -> Made:
    from pytorch_optimizer.loss import BiTemperedLogisticLoss

    model = BiTemperedLogisticLoss(t1=0.8, t2=1.3, label_smooth=0.1, ignore_index=2)
    return model, (torch.randn(5, 4), torch.tensor([0, 2, 3, 1, 2]))


@wild("optimum-quanto", "optimum", dims={"input": {0: ("batch", 1, 8)}})
def quantized_perceptron() -> Made:
    make_torchvision_importable()
    from optimum.quanto import freeze, qint8, quantize

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    quantize(model, weights=qint8)
    freeze(model)
    return model, (torch.randn(3, 8),)


@wild(
    "pytorch-histogram-matching",
    dims={"dst": {2: ("height", 2, 8)}, "ref": {2: ("ref_height", 2, 8)}},
    value_ranges={"dst": (0, 0.99), "ref": (0, 0.99)},
)
def matched_histograms() -> Made:
    from pytorch_histogram_matching import Histogram_Matching

    return Histogram_Matching(), (torch.rand(1, 2, 5, 6) * 0.98, torch.rand(1, 2, 4, 6) * 0.98)


@wild(
    "diff-nurbs",
    dims={"x": {0: ("points", 1, 16)}, "y": {0: ("points", 1, 16)}},
    value_ranges={"x": (0.0, 1.0), "y": (0.0, 1.0)},
)
def spline_surface() -> Made:
    from diff_nurbs.nurbs import evaluate_nurbs_surface_flex

    class Surface(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.points = nn.Parameter(torch.randn(6, 5, 3))
            self.weights = nn.Parameter(torch.rand(6, 5, 1) + 0.5)
            self.register_buffer("knots_x", torch.tensor([0, 0, 0, 0.25, 0.5, 0.75, 1, 1, 1]))
            self.register_buffer("knots_y", torch.tensor([0, 0, 0, 0.4, 0.6, 1, 1, 1]))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return evaluate_nurbs_surface_flex(
                x, y, 2, 2, self.points, self.weights, self.knots_x, self.knots_y
            )

    return Surface(), (torch.tensor([0.0, 0.3, 0.61, 1.0]), torch.tensor([0.5, 1.0, 0.61, 0.2]))


@wild("bbobtorch", dims={"x": {0: ("population", 1, 16)}})
def gallagher_peaks() -> Made:
    from bbobtorch import create_f17, create_f22

    peaks, valleys = create_f22(4, seed=3), create_f17(4, seed=3)

    class Scores(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return peaks(x), valleys(x)

    return Scores(), (torch.randn(6, 4) * 2,)


@wild("cerebral-lstm", dims={"x": {0: ("steps", 1, 10), 1: ("batch", 1, 4)}})
def cerebral_recurrence() -> Made:
    from cerebral_lstm import CerebralLSTM

    return CerebralLSTM(4, 6, num_layers=2), (torch.randn(5, 2, 4),)


@wild(
    "pytorch-text-crf",
    "crf",
    dims={"logits": {1: ("length", 2, 12)}, "tags": {1: ("length", 2, 12)}, "mask": {1: ("length", 2, 12)}},
)
def tag_likelihood() -> Made:
    from crf.crf import ConditionalRandomField

    labels = {0: "O", 1: "B-X", 2: "I-X"}

    class Likelihood(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.crf = ConditionalRandomField(3, "BIO", labels)

        def forward(self, logits: torch.Tensor, tags: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.crf(logits, tags, mask)

    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    return Likelihood(), (torch.randn(2, 5, 3), torch.randint(0, 3, (2, 5)), mask)


@wild("pytorch-text-crf", "crf")
def viterbi_tags() -> Made:
    from crf.crf import ConditionalRandomField

    class Tags(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.crf = ConditionalRandomField(3, "BIO", {0: "O", 1: "B-X", 2: "I-X"})

        def forward(self, logits: torch.Tensor, mask: torch.Tensor) -> list[tuple[list[int], float]]:
            return self.crf.viterbi_tags(logits, mask)

    return Tags(), (torch.randn(2, 5, 3), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]))


@wild(
    "ct-loss",
    "ct",
    dims={
        "input": {0: ("batch", 1, 4), 1: ("length", 8, 24)},
        "target": {0: ("batch", 1, 4), 1: ("length", 8, 24)},
    },
)
def contrastive_tokens() -> Made:
    from ct.ct_loss import ContrastiveTokenLoss

    return ContrastiveTokenLoss(), (torch.randn(2, 12, 9), torch.randint(0, 9, (2, 12)))


@wild("polyloss", dims={"outputs": {0: ("batch", 1, 8)}, "targets": {0: ("batch", 1, 8)}})
def polynomial_loss() -> Made:
    from polyloss import PolyLoss

    return PolyLoss(), (torch.randn(4, 5), torch.randint(0, 5, (4,)))


@wild("ndc", dims={"signal": {0: ("steps", 5, 24)}})
def numerical_derivative() -> Made:
    from ndc import differentiate_numerically

    class Derivative(nn.Module):
        def forward(self, signal: torch.Tensor) -> torch.Tensor:
            return differentiate_numerically(signal, [-2, -1, 0, 1, 2], order=2, step_size=0.5)

    return Derivative(), (torch.randn(12, 3),)


@wild("torchConvNd", "torchConvNd", dims={"x": {0: ("batch", 1, 4)}})
def unrolled_convolution() -> Made:
    from torchConvNd import ConvNd

    return ConvNd(2, 3, [3, 2], stride=[2, 1], padding=1), (torch.randn(2, 2, 7, 6),)


@wild("kpt", dims={"roots": {0: ("batch", 1, 6)}, "rotations": {0: ("batch", 1, 6)}})
def forward_kinematics() -> Made:
    from kpt.model.skeleton import TorchSkeleton

    skeleton = TorchSkeleton(
        {
            "Hips": {"offsets": [0, 0, 0], "children": ["Spine", "Leg"], "parent": None},
            "Spine": {"offsets": [0, 1, 0], "children": ["Head"], "parent": "Hips"},
            "Leg": {"offsets": [0.2, -1, 0], "children": ["Foot"], "parent": "Hips"},
            "Head": {"offsets": [0, 0.5, 0.1], "children": [], "parent": "Spine"},
            "Foot": {"offsets": [0, -0.8, 0.1], "children": [], "parent": "Leg"},
        }
    )

    class Posed(nn.Module):
        def forward(self, roots: torch.Tensor, rotations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return skeleton.forward_kinematics(roots, rotations)

    return Posed(), (torch.randn(3, 3), nn.functional.normalize(torch.randn(3, 3, 4), dim=-1))


@wild("medeval", dims={"predicted": {0: ("batch", 1, 4)}, "truth": {0: ("batch", 1, 4)}})
def overlap_scores() -> Made:
    make_torchvision_importable()
    from medeval.metrics.segmentation import dice_score, jaccard_index

    class Overlap(nn.Module):
        def forward(self, predicted: torch.Tensor, truth: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return dice_score(predicted, truth), jaccard_index(predicted, truth)

    return Overlap(), (torch.rand(2, 3, 6, 6), torch.rand(2, 3, 6, 6))


@wild("revisionlab", dims={})
def residual_memory() -> Made:
    from revisionlab.memory import ResidualMemory, delta_write

    class Memory(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.memory = ResidualMemory(6, 0.5, dtype=torch.float32)

        def forward(self, key: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            answer = self.memory.read(key)
            written = delta_write(self.memory.values[:, None], key, target, self.memory.rate).squeeze(-1)
            self.memory.values.copy_(written)
            self.memory.writes.add_(1)
            return answer

    return Memory(), (torch.rand(6), torch.randn(1))


@wild("predicateneuron", dims={"input": {0: ("batch", 1, 8)}})
def fuzzy_predicates() -> Made:
    from predicateneuron.torch.layers import MinimalJointPredicateLayer, PredicateLayer

    return nn.Sequential(PredicateLayer(4, hard_forward=True), MinimalJointPredicateLayer(6)), (
        torch.rand(3, 4),
    )


@wild("fastqml", dims={"re": {0: ("batch", 1, 4)}, "im": {0: ("batch", 1, 4)}})
def quantum_circuit() -> Made:
    from fastqml.gate_fusion import (
        apply_disjoint_two_qubit_layer,
        apply_su2_layer,
        build_cry_4x4,
        build_rot_gates,
        compute_two_qubit_plans,
    )

    class Circuit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.angles, self.controlled = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(4))

        def forward(self, re: torch.Tensor, im: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            re, im = apply_su2_layer(re, im, *build_rot_gates(*self.angles))
            edges = [(0, 1), (1, 2), (2, 3), (3, 0)]
            for plan in compute_two_qubit_plans(edges, 4, re.device, re.dtype):
                gates = build_cry_4x4(self.controlled[plan["k_idx"]])
                re, im = apply_disjoint_two_qubit_layer(re, im, plan, *gates)
            return re, im

    return Circuit(), (torch.randn(2, 2, 2, 2, 2), torch.randn(2, 2, 2, 2, 2))


@wild("broccoli-ml", "broccoli", dims={"x": {0: ("batch", 1, 4)}})
def rotary_encoder() -> Made:
    from broccoli.transformer import TransformerEncoder

    model = TransformerEncoder(
        9,
        32,
        2,
        2,
        relative_position_embedding=True,
        source_size=(9,),
        bos_tokens=2,
        pre_norm=True,
        post_norm=False,
    )
    return model, (torch.randn(2, 9, 32),)


@wild("neural-ssm", dims={"u": {0: ("batch", 1, 4), 1: ("steps", 2, 16)}})
def deep_state_space() -> Made:
    from neural_ssm import DeepSSM

    return DeepSSM(3, 2, d_model=4, d_state=6, n_layers=2), (torch.randn(2, 7, 3),)


@wild(
    "diffabs",
    dims={"low": {0: ("batch", 1, 4)}, "width": {0: ("batch", 1, 4)}},
    value_ranges={"width": (0.0, 1.0)},
)
def abstract_interpretation() -> Made:
    from diffabs import DeeppolyDom

    domain = DeeppolyDom()
    network = nn.Sequential(domain.Linear(3, 5), domain.ReLU(), domain.Linear(5, 2))

    class Bounds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, low: torch.Tensor, width: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            bounds = self.network(domain.Ele.by_intvl(low, low + width))
            return bounds.lb(), bounds.ub()

    return Bounds(), (torch.randn(2, 3), torch.rand(2, 3))


@wild("fastica-torch", dims={"x": {0: ("samples", 12, 40)}})
def independent_components() -> Made:
    from fastica_torch import FastICA

    class Components(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("first", torch.eye(3) + 0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return FastICA(n_components=3, w_init=self.first, max_iter=20).fit_transform(x)

    return Components(), (torch.rand(24, 3) @ torch.randn(3, 3),)


@wild("torch-activation", dims={"input": {0: ("batch", 1, 4)}})
def assorted_activations() -> Made:
    import torch_activation as activations

    return nn.Sequential(
        activations.PTaLU(), activations.TanhSoft2(), activations.PiecewiseMexicanHat(), activations.PAU()
    ), (torch.randn(3, 6, 4),)
