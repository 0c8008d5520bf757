"""An eleventh draw, at random from the packages whose name or summary names torch.

`random.Random(11).shuffle` of the rows of the package list of November 2026 that name torch, are from 2022 or
later, and are in no earlier draw; then the first that give modules or functions of torch, and import here.
"""

from __future__ import annotations

import torch
from torch import nn

from tests.wild.cases import Made, wild


@wild(
    "torchnep",
    dims={"rij": {0: ("pairs", 4, 64)}, "first": {0: ("pairs", 4, 64)}, "second": {0: ("pairs", 4, 64)}},
)
def neuroevolution_potential() -> Made:
    from torchnep.model import NEPModel

    class Energies(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.potential = NEPModel(
                {
                    "num_types": 2,
                    "type_names": ["C", "H"],
                    "cutoff_radial": 5.0,
                    "cutoff_angular": 4.0,
                    "n_max_radial": 3,
                    "n_max_angular": 2,
                    "basis_size_radial": 4,
                    "basis_size_angular": 3,
                    "l_max": [4, 2, 0],
                    "neuron": 8,
                }
            ).float()

        def forward(
            self, rij: torch.Tensor, first: torch.Tensor, second: torch.Tensor, types: torch.Tensor
        ) -> torch.Tensor:
            return self.potential(rij, rij, first, second, first, second, types, types.shape[0])

    pairs = torch.tensor([(i, j) for i in range(6) for j in range(6) if i != j])
    places = torch.rand(6, 3) * 3
    rij = places[pairs[:, 1]] - places[pairs[:, 0]]
    return Energies(), (rij, pairs[:, 0], pairs[:, 1], torch.tensor([0, 1, 1, 0, 1, 0]))


def moonvit(layers: int) -> nn.Module:
    from open_moonvit.main import MoonViT, MoonViTConfig

    encoder: nn.Module = MoonViT(
        MoonViTConfig(
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=layers,
            num_attention_heads=2,
            patch_size=4,
            abs_pos_embed_grid_size=4,
        )
    )
    return encoder


@wild("open-moonvit", dims={"image": {1: ("height", 8, 40), 2: ("width", 8, 40)}})
def native_resolution() -> Made:
    class Encoded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = moonvit(layers=2)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return self.encoder([image]).last_hidden_state

    return Encoded(), (torch.randn(3, 24, 20),)


@wild("open-moonvit")
def two_resolutions() -> Made:
    class Encoded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = moonvit(layers=1)

        def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
            return self.encoder([first, second]).last_hidden_state

    return Encoded(), (torch.randn(3, 16, 16), torch.randn(3, 8, 20))


@wild("deeplp", dims={"tb": {0: ("points", 1, 32)}})
def physics_informed() -> Made:
    from deeplp.models import PINN

    return PINN(in_dim=2, out_dim=5, model_type="other"), (torch.rand(7, 2),)


@wild("torchist", dims={"x": {0: ("samples", 2, 64)}})
def histogram_of_points() -> Made:
    import torchist

    class Counted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torchist.histogramdd(x, bins=[4, 5])

    return Counted(), (torch.randn(20, 2),)


@wild("torchist", dims={"x": {0: ("samples", 2, 64)}, "y": {0: ("others", 2, 64)}})
def distance_of_histograms() -> Made:
    import torchist
    from torchist.metrics import em_distance

    class Distance(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            p = torchist.histogram(x, bins=6, low=0.0, upp=1.0) / x.shape[0]
            q = torchist.histogram(y, bins=6, low=0.0, upp=1.0) / y.shape[0]
            return em_distance(p, q)

    return Distance(), (torch.rand(20), torch.rand(15) ** 2)


@wild("torch-slices", "slices", dims={"x": {0: ("batch", 1, 4), 1: ("length", 1, 24)}})
def structured_recurrence() -> Made:
    from slices import StackedSLiCE

    class Stacked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = StackedSLiCE(
                num_layers=2, data_dim=3, hidden_dim=8, label_dim=4, tokens=False, use_parallel=False
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

    return Stacked(), (torch.randn(2, 9, 3),)


@wild("torch-slices", "slices", dims={"x": {0: ("batch", 1, 4)}})
def scanned_recurrence() -> Made:
    from slices import SLiCE

    class Scanned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scan = SLiCE(4, 8, block_size=2, use_parallel=True, chunk_size=4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scan(x)

    return Scanned(), (torch.randn(2, 10, 4),)


@wild("torchcwt", dims={"signal": {0: ("channels", 1, 6), 1: ("time", 16, 100)}})
def morlet_wavelets() -> Made:
    from torchcwt import cwt_torch

    class Scalogram(nn.Module):
        def forward(self, signal: torch.Tensor) -> torch.Tensor:
            coefficients, _ = cwt_torch(signal, 100.0, 10.0, 40.0, 6)
            return coefficients.abs()

    return Scalogram(), (torch.randn(2, 50),)


@wild("sympytorch", dims={"x": {0: ("points", 1, 32)}})
def symbolic_formula() -> Made:
    import sympy
    import sympytorch

    x, y, a = sympy.symbols("x y a")
    formulas = [
        sympy.cos(x) * a + sympy.Max(x, y) ** 2,
        sympy.tanh(x - y) * sympy.pi,
        sympy.log(1 + sympy.Abs(x * y)) / 3,
    ]
    module = sympytorch.SymPyModule(expressions=formulas)

    class Evaluated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.formulas = module

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.formulas(x=x, y=y, a=0.5 * x)

    return Evaluated(), (torch.randn(9), torch.randn(1))


@wild(
    "spilsnet-torch", "spilsnet", dims={"x_in": {0: ("batch", 1, 8)}, "internal_state": {0: ("batch", 1, 8)}}
)
def structural_dynamics() -> Made:
    from spilsnet.models import SPILSNetCore

    config = {
        "input_size": 24,
        "dimension": 2,
        "encoder_structure": [{"out": 8, "k": 3, "s": 1, "p": 1}, {"out": 12, "k": 3, "s": 2, "p": 1}],
        "bottleneck_pool_size": 3,
        "latent_dim": 8,
        "gru_hidden_size": 10,
        "gru_layers": 2,
        "latent_encoder_mlp": [16],
        "internal_state_size": 4,
        "internal_input_mlp": [8],
        "internal_output_mlp": [8],
        "latent_decoder_structure": [16],
        "dtype": "float32",
    }
    return SPILSNetCore(config), (torch.randn(3, 24), torch.randn(3, 4))


@wild("destripe", dims={"image": {0: ("height", 8, 24), 1: ("width", 8, 24)}})
def removed_stripes() -> Made:
    from destripe import UniversalStripeRemover

    class Cleaned(nn.Module):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return UniversalStripeRemover(device="cpu").process(image, iterations=60, tol=1e-2)

    return Cleaned(), (torch.rand(12, 14) * 0.5 + torch.rand(14) * 0.3,)


@wild("dinosaur-torch", dims={"field": {0: ("layers", 1, 6)}})
def spectral_transform() -> Made:
    from dinosaur_torch.spherical_harmonic import Grid, GridSpec

    class Filtered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.grid = Grid(GridSpec.construct(max_wavenumber=7, gaussian_nodes=6))

        def forward(self, field: torch.Tensor) -> torch.Tensor:
            modal = self.grid.clip_wavenumbers(self.grid.to_modal(field))
            return self.grid.to_nodal(self.grid.laplacian(modal))

    spec = GridSpec.construct(max_wavenumber=7, gaussian_nodes=6)
    return Filtered(), (torch.randn(3, *spec.nodal_mesh[0].shape),)


def _config() -> object:
    from lmt.models.config import ModelConfig

    return ModelConfig(
        context_length=32, vocab_size=40, num_layers=2, num_heads=2, embed_dim=16, dropout=0.0, num_kv_heads=1
    )


@wild("pylmt", "lmt", dims={"in_idx": {0: ("batch", 1, 4), 1: ("length", 1, 24)}})
def language_mamba() -> Made:
    from lmt.models.mamba.mamba import Mamba

    return Mamba(_config(), d_state=4), (torch.randint(0, 40, (2, 9)),)


@wild("pylmt", "lmt", dims={"in_idx": {1: ("length", 2, 24)}})
def language_experts() -> Made:
    from lmt.models.deepseek.deepseek import DeepSeekV2

    model = DeepSeekV2(
        _config(), kv_compress_dim=8, q_compress_dim=8, rope_dim=4, num_shared_experts=1, num_dense_layers=1
    )
    return model, (torch.randint(0, 40, (2, 9)),)


@wild("pylmt", "lmt", dims={"input": {1: ("length", 2, 24)}})
def language_delta() -> Made:
    from lmt.layers.attention.gated_delta_net import GatedDeltaNet
    from lmt.layers.attention.ssd import SSDAttention

    return nn.Sequential(GatedDeltaNet(_config()), SSDAttention(_config())), (torch.randn(2, 9, 16),)


@wild("pylmt", "lmt", dims={"x": {1: ("length", 2, 24)}})
def language_depths() -> Made:
    from lmt.layers.blocks import BlockConfig
    from lmt.layers.blocks.mixture_of_depths import MoDBlock

    return MoDBlock(_config(), BlockConfig(), capacity=0.5), (torch.randn(2, 9, 16),)


@wild("qandle", dims={"angles": {0: ("batch", 1, 8)}})
def quantum_circuit() -> Made:
    import qandle

    class Measured(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.circuit = qandle.Circuit(
                layers=[
                    qandle.AngleEmbedding(name="angles", qubits=[0, 1, 2]),
                    qandle.RX(qubit=0),
                    qandle.RY(qubit=1),
                    qandle.CNOT(0, 1),
                    qandle.RZ(qubit=2),
                    qandle.CNOT(1, 2),
                    qandle.MeasureProbability(),
                ],
                num_qubits=3,
            )

        def forward(self, angles: torch.Tensor) -> torch.Tensor:
            return self.circuit(angles=angles)

    return Measured(), (torch.randn(4, 3),)


@wild("mpm-pytorch", dims={"x": {0: ("particles", 8, 64)}, "v": {0: ("particles", 8, 64)}})
def material_points() -> Made:
    from mpm_pytorch import MPMSolver

    class Steps(nn.Module):
        def forward(self, x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            solver = MPMSolver(x, num_grids=6, device="cpu")
            c = torch.zeros(x.shape[0], 3, 3)
            f = torch.eye(3).expand(x.shape[0], 3, 3)
            for _ in range(3):
                stress = 1e4 * (f - torch.eye(3))
                x, v, c, f = solver(x, v, c, f, stress)
            return x, f

    return Steps(), (torch.rand(20, 3) * 0.4 + 0.3, torch.randn(20, 3))


@wild("torchebm", dims={"x": {0: ("batch", 1, 4)}, "cond": {0: ("batch", 1, 4)}})
def energy_transformer() -> Made:
    from torchebm.models import ConditionalTransformer2D

    model = ConditionalTransformer2D(
        in_channels=2,
        out_channels=2,
        input_size=8,
        patch_size=2,
        embed_dim=16,
        depth=2,
        num_heads=2,
        cond_dim=16,
    )
    for parameter in model.parameters():  # at first it answers 0, whatever it is asked
        nn.init.normal_(parameter, std=0.2)
    return model, (torch.randn(2, 2, 8, 8), torch.randn(2, 16))


@wild("torchebm", dims={"x": {0: ("batch", 1, 8)}})
def integrated_flow() -> Made:
    from torchebm.integrators import RK4Integrator

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            drift = lambda x, t: self.net(x) - t[:, None] * x  # noqa: E731
            return RK4Integrator().integrate({"x": x}, step_size=0.1, n_steps=8, drift=drift)["x"]

    return Flow(), (torch.randn(3, 2),)


@wild("torchebm", dims={"x": {0: ("batch", 1, 8)}})
def adaptive_flow() -> Made:
    from torchebm.integrators import Dopri5Integrator

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            drift = lambda x, t: self.net(x) * 4  # noqa: E731
            return Dopri5Integrator().integrate({"x": x}, step_size=0.1, n_steps=8, drift=drift)["x"]

    return Flow(), (torch.randn(3, 2),)


@wild("torchgist", dims={"x": {0: ("batch", 1, 3)}})
def gist_descriptor() -> Made:
    from torchgist.models.models import GIST

    model = GIST(orientations_per_scale=(3, 2), num_blocks=2, image_size=(24, 24), boundary_extension=4)
    return model, (torch.rand(2, 3, 24, 24),)


@wild(
    "mdot-tnt",
    dims={
        "r": {0: ("rows", 3, 12)},
        "c": {0: ("columns", 3, 12)},
        "cost": {0: ("rows", 3, 12), 1: ("columns", 3, 12)},
    },
)
def transport_newton() -> Made:
    from mdot_tnt import solve_OT

    class Solved(nn.Module):
        def forward(self, r: torch.Tensor, c: torch.Tensor, cost: torch.Tensor) -> torch.Tensor:
            return solve_OT(r, c, cost, gamma_f=64.0)

    r, c = (torch.rand(size, dtype=torch.float64) + 0.1 for size in (6, 5))
    return Solved(), (r / r.sum(), c / c.sum(), torch.rand(6, 5, dtype=torch.float64))
