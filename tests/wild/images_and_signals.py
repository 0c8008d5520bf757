"""Images, sound, medical images, geometry, neural operators and forecasting: a second draw of packages."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from models._vision import make_torchvision_importable
from tests.wild.cases import Made, wild

PAIR = {"x": {0: ("batch", 1, 4)}, "y": {0: ("batch", 1, 4)}}
SIZED = {2: ("height", 16, 48), 3: ("width", 16, 48)}


@wild("spandrel", dims={"x": SIZED})
def hybrid_attention_upscaler() -> Made:
    make_torchvision_importable()
    from spandrel.architectures.HAT import HAT

    model = HAT(
        img_size=16,
        embed_dim=12,
        depths=(2,),
        num_heads=(2,),
        compress_ratio=2,
        squeeze_factor=4,
        window_size=8,
        upsampler="pixelshuffle",
        upscale=2,
        num_feat=8,
    )
    return model, (torch.rand(1, 3, 24, 32),)


@wild("spandrel", dims={"inp_img": {0: ("batch", 1, 4)}})
def fourier_deblurring() -> Made:
    make_torchvision_importable()
    from spandrel.architectures.FFTformer import FFTformer

    model = FFTformer(dim=8, num_blocks=[1, 1, 1], num_refinement_blocks=1)
    return model, (torch.rand(2, 3, 32, 32),)


@wild("spandrel", dims={"x": {0: ("batch", 1, 2), **SIZED}})
def shifted_window_upscaler() -> Made:
    make_torchvision_importable()
    from spandrel.architectures.SwinIR import SwinIR

    model = SwinIR(
        img_size=16,
        embed_dim=12,
        depths=[2],
        num_heads=[2],
        window_size=4,
        upscale=2,
        upsampler="pixelshuffledirect",
    )
    return model, (torch.rand(1, 3, 18, 22),)


@wild("spandrel", dims={"x0": {0: ("batch", 1, 4)}})
def plain_denoiser() -> Made:
    make_torchvision_importable()
    from spandrel.architectures.DRUNet import DRUNet

    return DRUNet(in_nc=4, out_nc=3, nc=[4, 8, 8, 16], nb=1), (torch.rand(1, 4, 24, 32),)


@wild("piqa", dims={"x": {0: ("batch", 1, 4), **SIZED}, "y": {0: ("batch", 1, 4), **SIZED}})
def structural_similarities() -> Made:
    make_torchvision_importable()
    import piqa

    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ssim = piqa.SSIM(reduction="none")
            self.psnr = piqa.PSNR(reduction="none")
            self.gmsd = piqa.GMSD(reduction="none")
            self.variation = piqa.TV(reduction="none")

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            return self.ssim(x, y), self.psnr(x, y), self.gmsd(x, y), self.variation(x)

    x = torch.rand(2, 3, 24, 32)
    return Scores(), (x, (x + 0.1 * torch.rand_like(x)).clamp(0, 1))


@wild("piqa", dims=PAIR)
def feature_similarities() -> Made:
    make_torchvision_importable()
    import piqa

    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fsim, self.vsi = piqa.FSIM(reduction="none"), piqa.VSI(reduction="none")
            self.haar, self.mdsi = piqa.HaarPSI(reduction="none"), piqa.MDSI(reduction="none")

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            return self.fsim(x, y), self.vsi(x, y), self.haar(x, y), self.mdsi(x, y)

    x = torch.rand(2, 3, 48, 48)
    return Scores(), (x, (x + 0.1 * torch.rand_like(x)).clamp(0, 1))


@wild("a-unet", dims={"x": {0: ("batch", 1, 4)}, "features": {0: ("batch", 1, 4)}})
def diffusion_unet() -> Made:
    from a_unet.apex import AttentionItem, ModulationItem, ResnetItem, SkipAdd, XBlock, XUNet

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            items = [ResnetItem, ModulationItem]
            self.net = XUNet(
                dim=1,
                in_channels=2,
                blocks=[
                    XBlock(channels=8, factor=1, items=items),
                    XBlock(channels=16, factor=2, items=[*items, AttentionItem]),
                ],
                skip_t=SkipAdd,
                resnet_groups=4,
                attention_features=8,
                attention_heads=2,
                modulation_features=12,
            )

        def forward(self, x: Tensor, features: Tensor) -> Tensor:
            return self.net(x, features=features)

    return Denoiser(), (torch.randn(1, 2, 32), torch.randn(1, 12))


@wild("bs-roformer", "bs_roformer", dims={"raw_audio": {0: ("batch", 1, 2)}})
def band_split_separation() -> Made:
    from bs_roformer import BSRoformer

    model = BSRoformer(
        dim=16,
        depth=1,
        time_transformer_depth=1,
        freq_transformer_depth=1,
        freqs_per_bands=(1, 4, 12, 16),
        dim_head=8,
        heads=2,
        flash_attn=False,
        stft_n_fft=64,
        stft_hop_length=16,
        stft_win_length=64,
        num_residual_streams=1,
        mask_estimator_depth=1,
    )
    return model, (torch.randn(1, 512),)


@wild("bs-roformer", "bs_roformer", dims={"raw_audio": {2: ("samples", 256, 1024)}})
def mel_band_separation() -> Made:
    from bs_roformer import MelBandRoformer

    model = MelBandRoformer(
        dim=16,
        depth=1,
        stereo=True,
        num_stems=2,
        time_transformer_depth=1,
        freq_transformer_depth=1,
        num_bands=8,
        dim_head=8,
        heads=2,
        flash_attn=True,
        dim_freqs_in=65,
        sample_rate=8000,
        stft_n_fft=128,
        stft_hop_length=32,
        stft_win_length=128,
    )
    return model, (torch.randn(1, 2, 512),)


@wild("snac", dims={"audio_data": {0: ("batch", 1, 4), 2: ("samples", 128, 1024)}})
def multi_scale_codec() -> Made:
    from snac import SNAC

    model = SNAC(
        sampling_rate=8000,
        encoder_dim=4,
        encoder_rates=[2, 4],
        decoder_dim=16,
        decoder_rates=[4, 2],
        attn_window_size=None,
        codebook_size=16,
        codebook_dim=4,
        vq_strides=[4, 2, 1],
        noise=False,
    )
    return model, (torch.randn(1, 1, 500),)


@wild("torch-pitch-shift", dims={"audio": {0: ("batch", 1, 4)}})
def shifted_pitch() -> Made:
    from torch_pitch_shift import pitch_shift

    class Shift(nn.Module):
        def forward(self, audio: Tensor) -> Tensor:
            return pitch_shift(audio, 5, 8000, n_fft=64, hop_length=16)

    return Shift(), (torch.randn(2, 1, 512),)


@wild("torch-stoi", dims={"est_targets": {0: ("batch", 1, 4)}, "targets": {0: ("batch", 1, 4)}})
def intelligibility() -> Made:
    from torch_stoi import NegSTOILoss

    clean = torch.randn(2, 6000)
    return NegSTOILoss(sample_rate=10000, use_vad=False), (clean + 0.3 * torch.randn(2, 6000), clean)


@wild("torch-stoi")
def intelligibility_of_speech_frames() -> Made:
    from torch_stoi import NegSTOILoss

    clean = torch.randn(1, 6000) * (torch.rand(1, 60).repeat_interleave(100, 1) > 0.3)
    return NegSTOILoss(sample_rate=8000, extended=True), (clean + 0.3 * torch.randn(1, 6000), clean)


@wild("torch-pesq", dims={"ref": {0: ("batch", 1, 2)}, "deg": {0: ("batch", 1, 2)}})
def perceived_quality() -> Made:
    from torch_pesq import PesqLoss

    clean = torch.randn(1, 8000)
    return PesqLoss(0.5, sample_rate=16000), (clean, clean + 0.3 * torch.randn(1, 8000))


@wild("torchlibrosa", dims={"wave": {0: ("batch", 1, 4), 1: ("samples", 256, 2048)}})
def log_mel_of_convolutions() -> Made:
    from torchlibrosa import LogmelFilterBank, Spectrogram

    class LogMel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.spectrogram = Spectrogram(n_fft=128, hop_length=32)
            self.mel = LogmelFilterBank(sr=8000, n_fft=128, n_mels=16, top_db=None)

        def forward(self, wave: Tensor) -> Tensor:
            return self.mel(self.spectrogram(wave))

    return LogMel(), (torch.randn(2, 1000),)


@wild("torchfcpe", dims={"mel": {0: ("batch", 1, 4), 1: ("frames", 4, 48)}})
def pitch_of_mels() -> Made:
    from torchfcpe.models import CFNaiveMelPE

    class Pitch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = CFNaiveMelPE(16, 24, hidden_dims=16, n_layers=1, n_heads=2)

        def forward(self, mel: Tensor) -> tuple[Tensor, Tensor]:
            return self.model(mel), self.model.infer(mel, decoder="local_argmax", threshold=0.04)

    return Pitch(), (torch.randn(1, 20, 16),)


@wild("dasp-pytorch", dims={"x": {0: ("batch", 1, 4)}, "gain": {0: ("batch", 1, 4)}})
def mastering_chain() -> Made:
    import dasp_pytorch

    class Chain(nn.Module):
        def forward(self, x: Tensor, gain: Tensor) -> Tensor:
            x = dasp_pytorch.functional.compressor(
                x, 8000, gain - 20, gain.abs() + 2, gain.abs() + 5, gain.abs() + 50, gain.abs() + 3, gain
            )
            x = dasp_pytorch.functional.stereo_widener(x, 8000, torch.sigmoid(gain)[:, None])
            return dasp_pytorch.functional.distortion(x, 8000, gain[:, None].expand(-1, 2))

    return Chain(), (torch.randn(2, 2, 512), torch.randn(2))


@wild("diffsptk", dims={"x": {0: ("samples", 128, 1024)}})
def mel_cepstrum() -> Made:
    import diffsptk

    class Cepstrum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stft = diffsptk.STFT(frame_length=64, frame_period=16, fft_length=64)
            self.cepstrum = diffsptk.MelCepstralAnalysis(fft_length=64, cep_order=6, alpha=0.3, n_iter=2)

        def forward(self, x: Tensor) -> Tensor:
            return self.cepstrum(self.stft(x))

    return Cepstrum(), (torch.randn(500),)


@wild("diffsptk", dims={"x": {0: ("frames", 1, 16)}})
def line_spectral_pairs() -> Made:
    import diffsptk

    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lpc = diffsptk.LPC(frame_length=32, lpc_order=4, eps=1e-4)
            self.pairs = diffsptk.LinearPredictiveCoefficientsToLineSpectralPairs(4)
            self.back = diffsptk.LineSpectralPairsToLinearPredictiveCoefficients(4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            pairs = self.pairs(self.lpc(x))
            return pairs, self.back(pairs)

    return Pairs(), (torch.randn(6, 32),)


@wild("diffsptk", dims={"x": {0: ("firsts", 4, 16)}, "y": {0: ("seconds", 4, 16)}})
def soft_time_warping() -> Made:
    import diffsptk

    return diffsptk.DynamicTimeWarping(softness=0.1), (torch.randn(7, 3), torch.randn(9, 3))


@wild("diffsptk", dims={"x": {1: ("samples", 128, 512)}})
def filter_banks() -> Made:
    import diffsptk

    class Banks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pqmf, self.inverse = diffsptk.PQMF(4, 15), diffsptk.IPQMF(4, 15)
            self.mdct, self.back = diffsptk.MDCT(32), diffsptk.IMDCT(32)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.inverse(self.pqmf(x)), self.back(self.mdct(x))

    return Banks(), (torch.randn(1, 320),)


@wild("noisereduce", dims={"x": {0: ("batch", 1, 4)}})
def spectral_gate() -> Made:
    from noisereduce.torchgate import TorchGate

    return TorchGate(sr=8000, n_fft=64), (torch.randn(2, 1024),)


@wild("noisereduce", dims={"x": {1: ("samples", 512, 2048)}})
def adaptive_spectral_gate() -> Made:
    from noisereduce.torchgate import TorchGate

    return TorchGate(sr=8000, n_fft=64, nonstationary=True), (torch.randn(1, 1000),)


@wild("hiera-transformer", "hiera", dims={"x": {0: ("batch", 1, 4)}})
def hierarchical_vision() -> Made:
    make_torchvision_importable()
    from hiera import Hiera

    model = Hiera(input_size=(32, 32), embed_dim=16, num_heads=1, stages=(1, 1, 1, 1), num_classes=5)
    return model, (torch.rand(2, 3, 32, 32),)


@wild(
    "dynamic-network-architectures", dims={"x": {0: ("batch", 1, 2), 2: ("depth", 2, 4), 3: ("height", 4, 8)}}
)
def residual_encoder_unet() -> Made:
    from dynamic_network_architectures.architectures.unet import ResidualEncoderUNet

    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = ResidualEncoderUNet(
                1, 3, (4, 8, 8), nn.Conv3d, 3, (1, 2, 2), (1, 1, 1), 3, (1, 1), True, nn.InstanceNorm3d,
                {"affine": True}, None, None, nn.LeakyReLU, {"inplace": True}, deep_supervision=True,
            )  # fmt: skip

        def forward(self, x: Tensor) -> list[Tensor]:
            x = nn.functional.interpolate(x, scale_factor=4, mode="nearest")
            return self.net(x)

    return Patches(), (torch.randn(1, 1, 2, 4, 4),)


@wild("torchkbnufft", dims={"omega": {1: ("points", 4, 64)}})
def non_uniform_fourier() -> Made:
    import torchkbnufft

    class Sampled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.forward_ = torchkbnufft.KbNufft(im_size=(8, 8), numpoints=4)
            self.adjoint = torchkbnufft.KbNufftAdjoint(im_size=(8, 8), numpoints=4)

        def forward(self, image: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
            sampled = self.forward_(torch.view_as_complex(image), omega)
            return torch.view_as_real(sampled), torch.view_as_real(self.adjoint(sampled, omega))

    return Sampled(), (torch.randn(1, 1, 8, 8, 2), (torch.rand(2, 20) - 0.5) * 6)


URDF = """<robot name="arm">
<link name="base"/><link name="one"/><link name="two"/><link name="tip"/>
<joint name="a" type="revolute"><parent link="base"/><child link="one"/><origin xyz="0 0 0.3"/>
  <axis xyz="0 0 1"/><limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
<joint name="b" type="revolute"><parent link="one"/><child link="two"/><origin xyz="0.2 0 0.1" rpy="0 0.3 0"/>
  <axis xyz="0 1 0"/><limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
<joint name="c" type="prismatic"><parent link="two"/><child link="tip"/><origin xyz="0.4 0 0"/>
  <axis xyz="1 0 0"/><limit lower="0" upper="1" effort="1" velocity="1"/></joint>
</robot>"""


@wild("pytorch-kinematics", dims={"angles": {0: ("poses", 1, 16)}})
def arm_kinematics() -> Made:
    import pytorch_kinematics

    class Arm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.chain = pytorch_kinematics.build_serial_chain_from_urdf(URDF, "tip")

        def forward(self, angles: Tensor) -> tuple[Tensor, Tensor]:
            return self.chain.forward_kinematics(angles).get_matrix(), self.chain.jacobian(angles)

    return Arm(), (torch.randn(3, 3),)


@wild("siren-pytorch", dims={"points": {0: ("points", 1, 64)}})
def modulated_field() -> Made:
    from siren_pytorch.siren_pytorch import Modulator, SirenNet

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = SirenNet(dim_in=2, dim_hidden=16, dim_out=3, num_layers=2, w0_initial=30.0)
            self.modulator = Modulator(dim_in=8, dim_hidden=16, num_layers=2)

        def forward(self, points: Tensor, latent: Tensor) -> Tensor:
            return self.net(points, self.modulator(latent))

    return Field(), (torch.rand(20, 2), torch.randn(8))


@wild("torchgeometry", dims={"image": {0: ("batch", 1, 4)}, "angle": {0: ("batch", 1, 4)}})
def rotated_images() -> Made:
    import torchgeometry

    class Rotate(nn.Module):
        def forward(self, image: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
            center = torch.full_like(angle[:, None].expand(-1, 2), 8.0)
            motion = torchgeometry.get_rotation_matrix2d(center, angle, torch.ones_like(angle))
            quaternion = torchgeometry.angle_axis_to_quaternion(angle[:, None].expand(-1, 3))
            return torchgeometry.warp_affine(image, motion, (16, 20)), quaternion

    return Rotate(), (torch.rand(2, 3, 16, 20), 30 * torch.rand(2))


@wild("continuiti", dims={"u": {0: ("batch", 1, 4)}, "x": {0: ("batch", 1, 4)}, "y": {0: ("batch", 1, 4)}})
def fourier_neural_operator() -> Made:
    from continuiti.operators import FourierNeuralOperator, OperatorShapes
    from continuiti.operators.shape import TensorShape

    shape = TensorShape(1, torch.Size([16]))
    model = FourierNeuralOperator(OperatorShapes(shape, shape, shape, shape), depth=1, width=4)
    return model, (torch.rand(2, 1, 16), torch.randn(2, 1, 16), torch.rand(2, 1, 16))


@wild("continuiti", dims={"y": {2: ("points", 4, 32)}})
def deep_operator() -> Made:
    from continuiti.operators import DeepONet, OperatorShapes
    from continuiti.operators.shape import TensorShape

    sensors, points = TensorShape(1, torch.Size([16])), TensorShape(2, torch.Size([10]))
    model = DeepONet(OperatorShapes(sensors, sensors, points, TensorShape(1, torch.Size([10]))), 8, 2, 8, 2)
    return model, (torch.rand(2, 1, 16), torch.randn(2, 1, 16), torch.rand(2, 2, 10))


@wild("neurodiffeq", dims={"x": {0: ("points", 2, 32)}, "y": {0: ("points", 2, 32)}})
def boundary_conditions() -> Made:
    from neurodiffeq.conditions import DirichletBVP2D
    from neurodiffeq.networks import FCNN, SinActv

    class Solution(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = FCNN(2, 1, hidden_units=(8, 8), actv=SinActv)
            self.condition = DirichletBVP2D(0, torch.sin, 1, torch.sin, 0, torch.cos, 1, torch.cos)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.condition.enforce(self.net, x, y)

    return Solution(), (torch.rand(5, 1), torch.rand(5, 1))


@wild("e2cnn", dims={"image": {0: ("batch", 1, 4)}})
def steerable_convolutions() -> Made:
    import numpy as np

    for name, kind in (("float", float), ("int", int), ("complex", complex), ("bool", bool)):
        if name not in vars(np):
            setattr(np, name, kind)
    from e2cnn import gspaces
    from e2cnn import nn as enn

    class Steerable(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            space = gspaces.Rot2dOnR2(N=4)
            self.given = enn.FieldType(space, [space.trivial_repr])
            hidden = enn.FieldType(space, 2 * [space.regular_repr])
            self.net = enn.SequentialModule(
                enn.R2Conv(self.given, hidden, kernel_size=3, padding=1),
                enn.InnerBatchNorm(hidden),
                enn.ReLU(hidden, inplace=True),
                enn.GroupPooling(hidden),
            )

        def forward(self, image: Tensor) -> Tensor:
            return self.net(enn.GeometricTensor(image, self.given)).tensor

    return Steerable(), (torch.randn(2, 1, 9, 9),)


@wild("se3-transformer-pytorch", dims={"feats": {1: ("atoms", 4, 16)}, "coors": {1: ("atoms", 4, 16)}})
def equivariant_transformer() -> Made:
    from se3_transformer_pytorch import SE3Transformer

    model = SE3Transformer(
        dim=8, heads=2, dim_head=4, depth=1, num_degrees=2, num_neighbors=3, valid_radius=10
    )
    return model, (torch.randn(1, 8, 8), torch.randn(1, 8, 3))


@wild("equiformer-pytorch", dims={"inputs": {0: ("batch", 1, 3)}, "coors": {0: ("batch", 1, 3)}})
def equiformer() -> Made:
    from equiformer_pytorch import Equiformer

    model = Equiformer(
        dim=(4, 4), dim_head=(4, 4), heads=(1, 1), num_degrees=2, depth=1, num_tokens=None, num_neighbors=3
    )
    return model, (torch.randn(1, 6, 4), torch.randn(1, 6, 3))


@wild("geometric-vector-perceptron", dims={"feats": {0: ("atoms", 1, 32)}, "vectors": {0: ("atoms", 1, 32)}})
def vector_perceptron() -> Made:
    from geometric_vector_perceptron import GVP, GVPLayerNorm

    class Vectors(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = GVP(dim_vectors_in=4, dim_vectors_out=6, dim_feats_in=8, dim_feats_out=5)
            self.norm = GVPLayerNorm(5)

        def forward(self, feats: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
            return self.norm(*self.first((feats, vectors)))

    return Vectors(), (torch.randn(7, 8), torch.randn(7, 4, 3))


@wild(
    "invariant-point-attention", dims={"x": {1: ("residues", 2, 16)}, "quaternions": {1: ("residues", 2, 16)}}
)
def structure_block() -> Made:
    from invariant_point_attention import IPABlock

    class Structure(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = IPABlock(dim=16, heads=2, require_pairwise_repr=False)
            self.update = nn.Linear(16, 3)

        def forward(self, x: Tensor, quaternions: Tensor) -> tuple[Tensor, Tensor]:
            w, i, j, k = nn.functional.normalize(quaternions, dim=-1).unbind(-1)
            rotations = torch.stack(
                (
                    *(1 - 2 * (j * j + k * k), 2 * (i * j - k * w), 2 * (i * k + j * w)),
                    *(2 * (i * j + k * w), 1 - 2 * (i * i + k * k), 2 * (j * k - i * w)),
                    *(2 * (i * k - j * w), 2 * (j * k + i * w), 1 - 2 * (i * i + j * j)),
                ),
                dim=-1,
            ).unflatten(-1, (3, 3))
            translations = torch.zeros_like(x[..., :3])
            for _ in range(2):
                x = self.block(x, rotations=rotations, translations=translations)
                translations = translations + (rotations @ self.update(x)[..., None]).squeeze(-1)
            return x, translations

    return Structure(), (torch.randn(1, 6, 16), torch.randn(1, 6, 4))


@wild("chronos-forecasting", "chronos", dims={"context": {0: ("series", 1, 4), 1: ("steps", 4, 48)}})
def quantile_forecast() -> Made:
    make_torchvision_importable()
    from chronos.chronos_bolt import ChronosBoltModelForForecasting
    from transformers import T5Config

    config = T5Config(
        d_model=16,
        d_kv=8,
        d_ff=16,
        num_layers=1,
        num_heads=2,
        feed_forward_proj="gated-gelu",
        vocab_size=2,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    config.chronos_config = {
        "context_length": 64,
        "prediction_length": 8,
        "input_patch_size": 8,
        "input_patch_stride": 8,
        "quantiles": [0.1, 0.5, 0.9],
        "use_reg_token": True,
    }

    class Forecast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = ChronosBoltModelForForecasting(config)

        def forward(self, context: Tensor) -> Tensor:
            return self.model(context).quantile_preds

    context = torch.randn(2, 27)
    context[0, :5] = torch.nan
    return Forecast(), (context,)


@wild("nbeats-pytorch", dims={"backcast": {0: ("series", 1, 8)}})
def basis_expansion() -> Made:
    from nbeats_pytorch.model import NBeatsNet

    model = NBeatsNet(
        stack_types=("trend", "seasonality", "generic"),
        nb_blocks_per_stack=1,
        thetas_dim=(2, 4, 4),
        hidden_layer_units=8,
    )
    return model, (torch.randn(3, 10),)


@wild("x-unet", dims={"x": {0: ("batch", 1, 4)}})
def nested_unet() -> Made:
    from x_unet import XUnet

    model = XUnet(
        dim=8,
        dim_mults=(1, 2),
        num_blocks_per_stage=(1, 1),
        num_self_attn_per_stage=(0, 1),
        nested_unet_depths=(1, 0),
        nested_unet_dim=8,
        attn_heads=2,
        attn_dim_head=8,
        weight_standardize=True,
    )
    return model, (torch.randn(1, 3, 16, 16),)


@wild("swin-transformer-pytorch", dims={"img": {0: ("batch", 1, 4)}})
def shifted_windows() -> Made:
    from swin_transformer_pytorch import SwinTransformer

    model = SwinTransformer(
        hidden_dim=8,
        layers=(2, 2, 2, 2),
        heads=(1, 1, 2, 2),
        head_dim=8,
        window_size=2,
        downscaling_factors=(2, 2, 2, 1),
        num_classes=5,
    )
    return model, (torch.rand(2, 3, 32, 32),)


@wild("pytorch-wavelets", dims={"x": {0: ("batch", 1, 4), 2: ("height", 16, 32)}})
def wavelet_transforms() -> Made:
    warnings.filterwarnings("ignore", message="pkg_resources")
    from pytorch_wavelets import DWTForward, DWTInverse

    class Denoise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.there = DWTForward(J=2, wave="db3", mode="symmetric")
            self.back = DWTInverse(wave="db3", mode="symmetric")

        def forward(self, x: Tensor) -> Tensor:
            low, highs = self.there(x)
            return self.back((low, [nn.functional.softshrink(high, 0.1) for high in highs]))

    return Denoise(), (torch.randn(1, 2, 16, 24),)


@wild("pytorch-wavelets", dims={"x": {0: ("batch", 1, 4)}})
def dual_tree_wavelets() -> Made:
    from pytorch_wavelets import DTCWTForward, DTCWTInverse

    class Trees(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.there, self.back = DTCWTForward(J=2), DTCWTInverse()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            low, highs = self.there(x)
            return highs[1].abs(), self.back((low * 0.5, highs))

    return Trees(), (torch.randn(1, 2, 16, 24),)


@wild("complextorch", dims={"x": {0: ("batch", 1, 4)}})
def complex_network() -> Made:
    import complextorch.nn as cnn

    class Complex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(
                cnn.Conv2d(2, 4, 3, padding=1), cnn.BatchNorm2d(4), cnn.modReLU(), cnn.Conv2d(4, 2, 3)
            )

        def forward(self, x: Tensor) -> Tensor:
            return torch.view_as_real(self.net(torch.view_as_complex(x)))

    return Complex(), (torch.randn(2, 2, 8, 8, 2),)


@wild("resize-right", dims={"image": {0: ("batch", 1, 4)}})
def antialiased_resize() -> Made:
    from resize_right import interp_methods, resize_right

    class Resize(nn.Module):
        def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
            small = resize_right.resize(image, scale_factors=[0.5, 0.75], interp_method=interp_methods.cubic)
            return small, resize_right.resize(
                small, out_shape=[20, 30], interp_method=interp_methods.lanczos3
            )

    return Resize(), (torch.rand(2, 3, 16, 24),)


@wild("pytorchcv", dims={"x": {0: ("batch", 1, 4)}})
def channel_shuffle_backbone() -> Made:
    from pytorchcv.models.shufflenetv2 import ShuffleNetV2

    model = ShuffleNetV2(
        channels=[[32, 32], [64, 64]], init_block_channels=8, final_block_channels=32, in_size=(112, 112),
        num_classes=5, use_se=True,
    )  # fmt: skip
    return model, (torch.rand(2, 3, 112, 112),)


@wild("pytorchcv", dims={"x": {0: ("batch", 1, 2)}})
def pyramid_segmentation() -> Made:
    from pytorchcv.models.lednet import LEDNet

    model = LEDNet(channels=[32, 64, 128], dilations=[[0, 1, 1], [0, 1], [0, 1]], dropout_rates=[0.0] * 3,
                   fixed_size=False, in_size=(64, 128), num_classes=3)  # fmt: skip
    return model, (torch.rand(1, 3, 64, 128),)


@wild("unet", dims={"x": {0: ("batch", 1, 2), 2: ("depth", 8, 24)}})
def volume_unet() -> Made:
    from unet import UNet3D

    model = UNet3D(
        in_channels=1, out_classes=2, num_encoding_blocks=2, out_channels_first_layer=4,
        normalization="batch", padding=True, upsampling_type="linear", residual=True,
    )  # fmt: skip
    return model, (torch.randn(1, 1, 8, 8, 12),)


@wild("pesto-pitch", "pesto", dims={"x": {0: ("batch", 1, 8)}})
def self_supervised_pitch() -> Made:
    from pesto.model import Resnet1d

    return Resnet1d(n_bins_in=64, output_dim=32, n_chan_layers=[4, 4, 4, 1]), (torch.randn(3, 1, 64),)
