"""A fourteenth draw, at random, of packages with programs as well as layers.

`random.Random(1414).shuffle` of the rows of the package list of November 2026 that name torch, neural, deep
learning, differentiable or transformer, are of 2019 or later and occur in no earlier draw and no document; of
each the first with modules or functions of torch, and import here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from models._vision import make_torchvision_importable
from tests.wild.cases import Made, wild


class Calls(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> object:
        return self.function(x)


@wild("earlyon", dims={"x": {2: ("height", 6, 16), 3: ("width", 6, 16)}})
def staged_exits() -> Made:
    make_torchvision_importable()
    from earlyon.models.custom import custom_ee
    from earlyon.staged import staged_model

    backbone = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    wrapped = custom_ee(
        backbone, ["1", "3"], 4, input_shape=(1, 3, 8, 8), hidden_dim=8, confidence_thresholds=[0.27, 0.26]
    )

    class Classified(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.staged = staged_model(wrapped)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int, float]:
            found = self.staged.infer(x)
            return found.prediction, found.exit_taken, found.confidence

    return Classified(), (torch.randn(1, 3, 8, 9),)


@wild("silva-networks", dims={"x": {0: ("batch", 1, 6)}})
def anderson_equilibrium() -> Made:
    from silva_networks.implicit import TanhFixedPointBlock
    from silva_networks.solvers import SolverConfig

    class Equilibrium(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            config = SolverConfig(solver="anderson", max_iter=12, tol=1e-3, history=3, anderson_batch_dims=1)
            self.block = TanhFixedPointBlock(4, 6, config=config)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int, bool]:
            found = self.block(x, return_result=True)
            return found.z, found.iterations, found.converged

    return Equilibrium(), (torch.randn(3, 4),)


@wild("silva-networks", dims={"x": {0: ("nodes", 2, 8)}, "edges": {1: ("edges", 1, 16)}})
def graph_equilibrium() -> Made:
    from silva_networks.layers import SILVALayer
    from silva_networks.solvers import SolverConfig

    class Nodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = SILVALayer(
                3, 5, local="graph", config=SolverConfig(max_iter=15, tol=1e-2, alpha=0.6)
            )

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return self.layer(x, edges)

    return Nodes(), (torch.randn(4, 3), torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 0]]))


@wild("xitorch", dims={"x": {0: ("batch", 1, 6)}})
def equilibrium_root() -> Made:
    from xitorch.optimize import rootfinder

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("matrix", torch.eye(4) * 2 + torch.randn(4, 4) * 0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def residual(y: torch.Tensor, matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
                return y @ matrix + torch.tanh(y) - x

            return rootfinder(residual, torch.zeros_like(x), params=(self.matrix, x), method="broyden1")

    return Root(), (torch.randn(3, 4),)


@wild("xitorch", dims={"x": {0: ("points", 1, 16)}}, value_ranges={"x": (0.0, 1.0)})
def cubic_interpolation() -> Made:
    from xitorch.interpolate import Interp1D

    class Interpolated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("knots", torch.linspace(0, 1, 7))
            self.values = nn.Parameter(torch.randn(7))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Interp1D(self.knots, self.values, method="cspline")(x)

    return Interpolated(), (torch.rand(5),)


@wild(
    "elliptic-functions",
    "elliptic",
    dims={"u": {0: ("points", 1, 12)}, "m": {0: ("points", 1, 12)}},
    value_ranges={"u": (-3.0, 3.0), "m": (0.0, 0.95)},
)
def jacobi_functions() -> Made:
    from elliptic import ellipj
    from elliptic.carlson import carlsonRC, carlsonRF

    class Functions(nn.Module):
        def forward(self, u: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return *ellipj(u, m), carlsonRF(1 - m, torch.ones_like(m), m + 0.5), carlsonRC(m + 0.1, 1 - m)

    return Functions(), (torch.randn(5, dtype=torch.float64), torch.rand(5, dtype=torch.float64) * 0.9)


@wild("neurosush")
def spatial_pooler() -> Made:
    from neurosush.htm.spatial_pooler import SpatialPooler

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pooler = SpatialPooler(12, 10, potential_radius=6, density=0.2, boost_strength=2.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.pooler.compute(x)

    return Pooled(), (torch.rand(12) > 0.5,)


@wild("neurosush", dims={"values": {0: ("batch", 1, 8)}}, value_ranges={"values": (0.0, 10.0)})
def scalar_encoding() -> Made:
    from neurosush.htm.active_dendrites import ActiveDendrites
    from neurosush.htm.encoders import ScalarEncoder

    class Encoded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = ScalarEncoder(20, 4, 0.0, 10.0)
            self.dendrites = ActiveDendrites(20, 6, 20, 3, k=2)

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            code = self.encoder.encode(values).float()
            return self.dendrites(code, code)

    return Encoded(), (torch.rand(4) * 10,)


@wild("pysnn")
def spiking_layer() -> Made:
    from pysnn.connection import Linear
    from pysnn.neuron import Input, LIFNeuron

    class Spiking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.entry = Input((1, 1, 5), 1, 1.0, 0.8)
            self.synapses = Linear(5, 4, 1, 1, 2)
            self.neurons = LIFNeuron((1, 1, 4), 0.8, 0.0, 0.5, 1.0, 1, 3, 0.9, 0.8)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            spikes, trace = self.entry(x)
            return self.neurons(self.synapses(spikes, trace)[0])

    return Spiking(), (torch.rand(1, 1, 5) > 0.3,)


@wild("array-lstm", "arrayLSTM", dims={"x": {0: ("batch", 1, 4), 1: ("steps", 1, 10)}})
def memory_arrays() -> Made:
    from arrayLSTM import ArrayLSTM

    return ArrayLSTM(3, 5, k=2), (torch.randn(2, 4, 3),)


@wild("floydnet", dims={"x": {0: ("batch", 1, 3), 1: ("nodes", 2, 7), 2: ("nodes", 2, 7)}})
def pivotal_pairs() -> Made:
    from floydnet.functional import pivotal_attention

    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(4, 5 * 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            b, n = x.shape[:2]
            parts = self.project(x).view(b, n, n, 5, 2, 4).permute(3, 0, 4, 1, 2, 5).unbind(0)
            return pivotal_attention(*parts, softmax_cap=5.0)

    return Pairs(), (torch.randn(2, 4, 4, 4),)


@wild("neural-logic-machine")
def logic_machine() -> Made:
    from neural_logic_machine import UnpaddedNLM

    machine = UnpaddedNLM([[2, 2, 2]], [1, 2, 1], mlp_hidden_features=4)

    class Machine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.machine = machine

        def forward(self, first: torch.Tensor, second: torch.Tensor) -> list[torch.Tensor]:
            whole = [first.mean((0, 1)), second.mean((0, 1))]
            found = self.machine([whole, [first[:, 0], second[:, 0]], [first, second]], [3, 2])
            return [value for values in found for value in values]

    args = (torch.rand(3, 3, 1), torch.rand(2, 2, 1))
    Machine()(*args)  # makes the lazy layers
    return Machine(), args


@wild("torch-fps", dims={"points": {0: ("batch", 1, 4), 1: ("points", 6, 20)}})
def farthest_points() -> Made:
    from torch_fps._reference import fps_knn_reference

    class Sampled(nn.Module):
        def forward(self, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            mask = points[..., 0] > -2
            start = torch.zeros(points.shape[0], dtype=torch.int64)
            return fps_knn_reference(points, mask, start, 4, 3)

    return Sampled(), (torch.randn(2, 9, 3),)


@wild("liquidnn", dims={"input": {0: ("batch", 1, 4), 1: ("steps", 1, 12)}})
def liquid_layers() -> Made:
    from liquidnn.liquidnetwork import HDNN, LTCLayer

    return nn.Sequential(LTCLayer(3, 6, 2), HDNN(6, 5, 2, 2, 2)), (torch.randn(2, 5, 3),)


@wild("tranception-pytorch-dohlee", "tranception_pytorch", dims={"x": {0: ("batch", 1, 4)}})
def protein_transformer() -> Made:
    from tranception_pytorch import Tranception

    return Tranception(16, 4, 2, 12), (torch.randint(0, 20, (2, 12)),)


def _arm() -> tuple[torch.Tensor, torch.Tensor]:
    screws = torch.tensor([[0.0, 0, -1, 2, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0.1]]).T
    home = torch.tensor([[-1.0, 0, 0, 0], [0, 1, 0, 6], [0, 0, -1, 2], [0, 0, 0, 1]])
    return screws, home


@wild("pytorch-mr", value_ranges={"start": (-0.3, 0.3)})
def inverse_kinematics() -> Made:
    from pytorch_mr import FKinBody, IKinBody

    class Solved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            screws, home = _arm()
            self.register_buffer("screws", screws)
            self.register_buffer("home", home)
            wanted = FKinBody(home[None], screws[None], torch.tensor([[0.3, 0.2, 0.1]]))
            self.register_buffer("wanted", wanted)

        def forward(self, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return IKinBody(self.screws, self.home, self.wanted, start, 1e-3, 1e-3)

    return Solved(), (torch.tensor([[0.2, 0.1, 0.0]]),)


@wild("pytorch-mr", dims={"twist": {0: ("batch", 1, 5)}}, value_ranges={"twist": (-1.0, 1.0)})
def screw_motions() -> Made:
    from pytorch_mr import Adjoint, MatrixExp6, TransInv, VecTose3

    class Motions(nn.Module):
        def forward(self, twist: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            moved = MatrixExp6(VecTose3(twist))
            return moved, Adjoint(TransInv(moved))

    return Motions(), (torch.rand(3, 6) - 0.5,)


@wild(
    "pylightcurve-torch",
    "pylightcurve_torch",
    dims={"time": {1: ("samples", 4, 32)}},
    value_ranges={"time": (-1.0, 1.0)},
)
def transit_light_curve() -> Made:
    from pylightcurve_torch.functional import exoplanet_orbit, transit_flux_drop

    class Transit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("radius", torch.tensor([[0.1]], dtype=torch.float64))
            self.register_buffer("limb", torch.tensor([[0.4, 0.3]], dtype=torch.float64))
            self.register_buffer(
                "orbit", torch.tensor([3.5, 8.8, 0.1, 87.5, 30.0, 0.05], dtype=torch.float64)[:, None, None]
            )

        def forward(self, time: torch.Tensor) -> torch.Tensor:
            x, y, z = exoplanet_orbit(*self.orbit.unbind(0), time, n_pars=1, dtype=torch.float64)
            apart = torch.where(x < 0, 1 + 5 * torch.ones_like(x), torch.sqrt(y * y + z * z))
            return transit_flux_drop("quad", self.limb, self.radius, apart, n_pars=1)

    return Transit(), (torch.linspace(-0.4, 0.4, 9, dtype=torch.float64)[None],)


@wild("fastai", dims={"input": {0: ("batch", 1, 4), 2: ("height", 4, 12), 3: ("width", 4, 12)}})
def merged_layers() -> Made:
    make_torchvision_importable()
    from fastai.layers import (
        ConvLayer,
        MergeLayer,
        PixelShuffle_ICNR,
        SelfAttention,
        SequentialEx,
        SimpleSelfAttention,
    )

    return nn.Sequential(
        SequentialEx(ConvLayer(3, 8), ConvLayer(8, 3, act_cls=None), MergeLayer(dense=True)),
        nn.Conv2d(6, 8, 1),
        SelfAttention(8),
        SimpleSelfAttention(8, sym=True),
        PixelShuffle_ICNR(8, 3, blur=True),
    ), (torch.randn(2, 3, 6, 5),)


@wild("ttach", dims={"image": {0: ("batch", 1, 4)}})
def averaged_augmentations() -> Made:
    import ttach

    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))
    transforms = ttach.Compose([ttach.HorizontalFlip(), ttach.Rotate90([0, 90, 180]), ttach.Scale([1, 2])])
    return ttach.SegmentationTTAWrapper(network, transforms, merge_mode="tsharpen"), (torch.rand(2, 3, 6, 6),)


@wild("brevitas", dims={"input": {0: ("batch", 1, 6)}})
def quantized_layers() -> Made:
    import brevitas.nn as qnn

    return nn.Sequential(
        qnn.QuantIdentity(bit_width=8),
        qnn.QuantLinear(5, 8, bias=True, weight_bit_width=4),
        qnn.QuantReLU(bit_width=4),
        qnn.QuantLinear(8, 3, bias=True, weight_bit_width=3),
    ), (torch.randn(3, 5),)


@wild("imbalanced-losses", dims={"logits": {0: ("batch", 2, 6)}, "targets": {0: ("batch", 2, 6)}})
def queued_precision_loss() -> Made:
    from imbalanced_losses import SmoothAPLoss

    return SmoothAPLoss(3, queue_size=8, update_queue_in_eval=True), (
        torch.randn(4, 3),
        torch.tensor([0, 1, 2, 1]),
    )


@wild("imbalanced-losses", dims={"inputs": {0: ("batch", 2, 8)}, "targets": {0: ("batch", 2, 8)}})
def focal_losses() -> Made:
    from imbalanced_losses import SoftmaxFocalLoss

    return SoftmaxFocalLoss(gamma=2.0, ignore_index=-1), (torch.randn(5, 3), torch.tensor([0, -1, 2, 1, 0]))


@wild(
    "torchqubo",
    dims={
        "quadratic": {0: ("bits", 3, 10), 1: ("bits", 3, 10)},
        "start": {0: ("starts", 1, 6), 1: ("bits", 3, 10)},
    },
    value_ranges={"start": (0, 1)},
)
def binary_search() -> Made:
    from torchqubo.solvers import local_search

    class Searched(nn.Module):
        def forward(self, quadratic: torch.Tensor, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return local_search(quadratic, start.float(), iters=6)

    return Searched(), (torch.randn(5, 5), torch.randint(0, 2, (3, 5)))


@wild("kuat", dims={"x": {0: ("batch", 1, 8)}})
def rigid_transforms() -> Made:
    import kuat

    class Moved(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            turned = kuat.quat_unit(x[:, :4])
            moved = kuat.transform_from_rotation_translation(turned, x[:, 4:])
            matrices = kuat.rot33_from_quat(turned)
            angle, axis = kuat.angle_axis_from_quat(kuat.quat_from_rot33(matrices))
            return kuat.transform_apply(kuat.transform_inverse(moved), x[:, 4:] * 2), angle, axis

    return Moved(), (torch.randn(4, 7),)


@wild(
    "binned-cdf",
    dims={"logits": {0: ("batch", 1, 6)}, "value": {0: ("batch", 1, 6)}},
    value_ranges={"value": (-1.9, 1.9)},
)
def binned_distribution() -> Made:
    from binned_cdf import PiecewiseConstantBinnedCDF

    class Binned(nn.Module):
        def forward(self, logits: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found = PiecewiseConstantBinnedCDF(logits, -2.0, 2.0)
            return found.log_prob(value), found.cdf(value), found.icdf(torch.sigmoid(value)), found.mean

    return Binned(), (torch.randn(3, 6), torch.rand(3) * 3 - 1.5)


@wild(
    "torch-image-interpolation",
    dims={
        "image": {0: ("height", 4, 12), 1: ("width", 4, 12)},
        "coordinates": {0: ("points", 1, 16)},
        "values": {0: ("points", 1, 16)},
    },
    value_ranges={"coordinates": (-1.0, 5.0)},
)
def sampled_image() -> Made:
    from torch_image_interpolation import insert_into_image_2d, sample_image_2d

    class Sampled(nn.Module):
        def forward(
            self, image: torch.Tensor, coordinates: torch.Tensor, values: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            sampled = sample_image_2d(image, coordinates)
            return sampled, *insert_into_image_2d(values, coordinates, torch.zeros_like(image))

    return Sampled(), (torch.randn(6, 5), torch.rand(7, 2) * 5, torch.randn(7))


@wild("torch-fourier-rescale", "torch_fourier_rescale", dims={"x": {0: ("batch", 1, 3)}})
def fourier_rescaling() -> Made:
    from torch_fourier_rescale import fourier_rescale_2d

    return Calls(lambda x: fourier_rescale_2d(x, source_spacing=1.0, target_spacing=0.5)[0]), (
        torch.randn(2, 6, 8),
    )


@wild("unit-scaling", dims={"input": {0: ("batch", 1, 3), 1: ("words", 2, 10)}})
def unit_scaled_layer() -> Made:
    from unit_scaling import TransformerLayer

    return TransformerLayer(16, 4, mhsa_tau=0.5, mlp_tau=0.5, is_causal=True), (torch.randn(2, 5, 16),)


@wild("cluster-moe", "cluster_moe", dims={"x": {0: ("batch", 1, 3), 1: ("words", 1, 6)}})
def clustered_experts() -> Made:
    from cluster_moe.main import ClusterOfExpertsLayer, CoEConfig

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = ClusterOfExpertsLayer(
                CoEConfig(
                    d_model=8,
                    d_ff=16,
                    num_clusters=2,
                    experts_per_cluster=2,
                    top_k_clusters=1,
                    top_k_experts=1,
                )
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = self.layer(x)
            return found[0] if isinstance(found, tuple) else found

    return Experts(), (torch.randn(2, 3, 8),)


@wild("torchint", dims={"parameters": {0: ("batch", 1, 6)}})
def integrals() -> Made:
    from torchint.integrate import simpson_integrate

    class Integrals(nn.Module):
        def forward(self, parameters: torch.Tensor) -> torch.Tensor:
            def integrand(x: torch.Tensor, y: torch.Tensor, p: list[torch.Tensor]) -> torch.Tensor:
                return torch.exp(-(p[0] ** 2) * x) * torch.cos(p[1] * y)

            bounds = [(0.0, 1.0), (0.0, 2.0)]
            return simpson_integrate(integrand, parameters, bounds, [9, 11], lambda x, y: x + y < 2.5)

    return Integrals(), (torch.randn(3, 2),)


@wild("monotonicnetworks", dims={"x": {0: ("batch", 1, 8)}})
def monotonic_network() -> Made:
    from monotonicnetworks import GroupSort, LipschitzLinear, MonotonicWrapper, RMSNorm

    layers = nn.Sequential(
        LipschitzLinear(3, 8, kind="one-inf"), RMSNorm(8), GroupSort(4), LipschitzLinear(8, 1, kind="inf")
    )
    return MonotonicWrapper(layers, lipschitz_const=1.0, monotonic_constraints=[1, 0, -1]), (
        torch.randn(4, 3),
    )


@wild("iunets", dims={"x": {0: ("batch", 1, 3)}})
def invertible_unet() -> Made:
    from iunets import iUNet

    return iUNet(in_channels=4, dim=2, architecture=(1, 1), disable_custom_gradient=True), (
        torch.randn(2, 4, 8, 8),
    )


@wild("opt-einsum-fx", dims={"x": {0: ("batch", 1, 6)}})
def optimized_einsums() -> Made:
    from opt_einsum_fx import optimize_einsums_full

    class Contracted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.randn(5, 3, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = torch.einsum("bi,ij,jkl->bkl", x, self.left, self.right)
            return torch.einsum("bkl,bml->bkm", 4.0 * first, first)

    return optimize_einsums_full(Contracted(), (torch.randn(3, 4),)), (torch.randn(3, 4),)


@wild("onnx2torch", dims={"x": {0: ("batch", 1, 4)}})
def converted_graph() -> Made:
    make_torchvision_importable()
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper
    from onnx2torch import convert

    draws = np.random.default_rng(0)

    def constant(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(draws.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("HardSwish", ["c"], ["h"]),
        helper.make_node("Shape", ["h"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "minus"], ["t"], axis=0),
        helper.make_node("Reshape", ["h", "t"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
    ]
    whole = [numpy_helper.from_array(np.array([0]), "zero"), numpy_helper.from_array(np.array([-1]), "minus")]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 3, 5, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 2])],
        [constant("w", 4, 3, 3, 3), constant("m", 100, 2), *whole],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])

    class Converted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.graph = convert(model)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.graph(x)

    return Converted(), (torch.randn(2, 3, 5, 5),)


@wild("incremental-pca-torch", dims={"x": {0: ("samples", 8, 24)}})
def incremental_components() -> Made:
    from incremental_pca_torch import IncrementalPCA

    class Streamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pca = IncrementalPCA(n_components=2)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            self.pca.partial_fit(x)
            return self.pca.transform(x).abs(), self.pca.explained_variance_ratio_

    scale = torch.tensor([3.0, 2.0, 1.0, 0.5])
    return Streamed(), (torch.randn(12, 4) * scale,)


@wild("ema-pytorch")
def averaged_weights() -> Made:
    from ema_pytorch import EMA

    class Averaged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(3, 2)
            self.ema = EMA(
                self.net, beta=0.9, update_after_step=1, update_every=2, include_online_model=False
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.net.weight.mul_(0.9).add_(x.mean())
            self.ema.update()
            return self.ema(x)

    return Averaged(), (torch.randn(4, 3),)


@wild("torch-ema")
def shadow_parameters() -> Made:
    from torch_ema import ExponentialMovingAverage

    class Shadowed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(3, 2)
            self.ema = ExponentialMovingAverage(self.net.parameters(), decay=0.95)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            with torch.no_grad():
                self.net.bias.add_(x.mean())
            self.ema.update()
            with self.ema.average_parameters():
                averaged = self.net(x)
            return averaged, self.net(x)

    return Shadowed(), (torch.randn(4, 3),)


@wild("deepymod", dims={"x": {0: ("samples", 2, 12)}})
def sine_network() -> Made:
    from deepymod.model.func_approx import Siren

    class Approximated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Siren(2, [8, 8], 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)[0]

    return Approximated(), (torch.rand(5, 2),)


@wild("admin-torch", "admin_torch", dims={"x": {0: ("batch", 1, 4)}})
def scaled_residual() -> Made:
    from admin_torch import as_module

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.residual, self.linear = as_module(6), nn.Linear(5, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.residual(x, torch.tanh(self.linear(x)))

    return Residual(), (torch.randn(3, 5),)


@wild("torch-position-embedding", dims={"x": {0: ("batch", 1, 3), 1: ("words", 1, 10)}})
def position_embeddings() -> Made:
    from torch_position_embedding import PositionEmbedding

    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.added = PositionEmbedding(10, 4, mode=PositionEmbedding.MODE_ADD)
            self.expanded = PositionEmbedding(5, 4, mode=PositionEmbedding.MODE_EXPAND)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.added(x), self.expanded((x[..., 0] * 4).long())

    return Embedded(), (torch.randn(2, 6, 4),)
