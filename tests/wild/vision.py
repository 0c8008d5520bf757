"""Vision, geometry, medical images and generative models."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

from models._vision import make_torchvision_importable
from tests.wild.cases import Made, wild

IMAGE = {"x": {0: ("batch", 1, 8)}}


def _make_importable() -> None:
    """Let import what imports torchvision or, where it finds it, torchaudio."""
    make_torchvision_importable()
    try:
        import torchaudio  # noqa: F401
    except ImportError:
        return
    except OSError:  # as torchvision's, its wheel's library does not load beside a CPU build of torch
        sys.modules["torchaudio"] = None  # type: ignore[assignment]


@wild("kornia", dims={"input": {0: ("batch", 1, 8)}})
def canny() -> Made:
    import kornia

    return kornia.filters.Canny(), (torch.rand(2, 3, 32, 32),)


@wild("kornia", dims={"source": {1: ("points", 8, 64)}, "target": {1: ("points", 8, 64)}})
def homography_warp() -> Made:
    from kornia.geometry import find_homography_dlt_iterated, transform_points, warp_perspective

    class Stitch(nn.Module):
        def forward(self, image: Tensor, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            homography = find_homography_dlt_iterated(
                source, target, torch.ones_like(source[..., 0]), n_iter=3
            )
            error = (transform_points(homography, source) - target).norm(dim=-1)
            return warp_perspective(image, homography, (24, 32)), error

    source = torch.rand(1, 16, 2) * 24
    return Stitch(), (torch.rand(1, 3, 24, 32), source, source * 1.1 + 1 + 0.1 * torch.randn(1, 16, 2))


@wild("kornia")
def sift() -> Made:
    import kornia

    return kornia.feature.SIFTFeature(num_features=16), (torch.rand(1, 1, 48, 48),)


@wild("kornia", dims={"image": {2: ("height", 32, 96), 3: ("width", 32, 96)}})
def disk_keypoints() -> Made:
    import kornia

    class Keypoints(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.disk = kornia.feature.DISK(desc_dim=16)

        def forward(self, image: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
            found = self.disk(image, n=20, pad_if_not_divisible=True)
            return [(one.keypoints, one.descriptors, one.detection_scores) for one in found]

    return Keypoints(), (torch.rand(1, 3, 48, 64),)


@wild("kornia", dims={"first": {0: ("firsts", 4, 40)}, "second": {0: ("seconds", 4, 40)}})
def patch_matching() -> Made:
    import kornia

    class Matching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.descriptor = kornia.feature.HardNet(pretrained=False)

        def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
            return kornia.feature.match_smnn(self.descriptor(first), self.descriptor(second), 0.98)

    first = torch.rand(12, 1, 32, 32)
    return Matching(), (
        first,
        torch.cat((first[:5] + 0.02 * torch.rand(5, 1, 32, 32), torch.rand(4, 1, 32, 32))),
    )


@wild("kornia", dims={"first": {1: ("points", 8, 64)}, "second": {1: ("points", 8, 64)}})
def relative_pose() -> Made:
    from kornia.geometry import epipolar

    class RelativePose(nn.Module):
        def forward(self, first: Tensor, second: Tensor, camera: Tensor) -> tuple[Tensor, ...]:
            fundamental = epipolar.find_fundamental(first, second, torch.ones_like(first[..., 0]))
            essential = epipolar.essential_from_fundamental(fundamental, camera, camera)
            pose = epipolar.motion_from_essential_choose_solution(essential, camera, camera, first, second)
            return (*pose, epipolar.sampson_epipolar_distance(first, second, fundamental))

    camera = torch.tensor([[[50.0, 0, 16], [0, 50, 16], [0, 0, 1]]])
    points = torch.randn(1, 20, 3) + torch.tensor([0.0, 0, 6])
    seen = [(points + shift) @ camera.mT for shift in (torch.zeros(3), torch.tensor([0.5, 0.1, 0.2]))]
    first, second = (one[..., :2] / one[..., 2:] for one in seen)
    return RelativePose(), (first, second, camera)


@wild("kornia", dims={"image": {0: ("batch", 1, 6)}})
def contrast_and_morphology() -> Made:
    import kornia

    class Enhance(nn.Module):
        def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
            light, a, b = kornia.color.rgb_to_lab(image).split(1, dim=1)
            light = kornia.enhance.equalize_clahe(light / 100, clip_limit=4.0, grid_size=(4, 4))
            enhanced = kornia.color.lab_to_rgb(torch.cat((light * 100, a, b), dim=1))
            return enhanced, kornia.morphology.top_hat(enhanced, torch.ones(5, 5))

    return Enhance(), (torch.rand(2, 3, 32, 32),)


@wild(
    "kornia",
    dims={
        "image": {2: ("height", 8, 64), 3: ("width", 8, 64)},
        "depth": {2: ("height", 8, 64), 3: ("width", 8, 64)},
    },
)
def depth_warp() -> Made:
    import kornia

    class Warp(nn.Module):
        def forward(
            self, image: Tensor, depth: Tensor, motion: Tensor, camera: Tensor
        ) -> tuple[Tensor, Tensor]:
            warped = kornia.geometry.depth.warp_frame_depth(image, depth, motion, camera)
            return warped, kornia.geometry.depth.depth_to_normals(depth, camera)

    camera = torch.tensor([[[20.0, 0, 12], [0, 20, 10], [0, 0, 1]]])
    motion = torch.eye(4)[None].clone()
    motion[:, :3, 3] = torch.tensor([0.1, -0.05, 0.02])
    return Warp(), (torch.rand(1, 3, 20, 24), 1 + torch.rand(1, 1, 20, 24), motion, camera)


@wild("segmentation-models-pytorch", dims=IMAGE)
def unet_plus_plus() -> Made:
    _make_importable()
    import segmentation_models_pytorch as smp

    model = smp.UnetPlusPlus(
        "resnet18", encoder_depth=3, encoder_weights=None, decoder_channels=(32, 16, 8), classes=3
    )
    return model, (torch.randn(2, 3, 32, 32),)


@wild(
    "segmentation-models-pytorch",
    dims={"image": {0: ("batch", 1, 8)}, "mask": {0: ("batch", 1, 8)}},
    value_ranges={"mask": (0, 3)},
)
def segformer_with_loss() -> Made:
    _make_importable()
    import segmentation_models_pytorch as smp

    class Scored(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = smp.Segformer(
                "mit_b0", encoder_weights=None, decoder_segmentation_channels=16, classes=4
            )
            self.loss = smp.losses.LovaszLoss("multiclass", per_image=False)

        def forward(self, image: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            logits = self.model(image)
            counts = smp.metrics.get_stats(logits.argmax(1), mask, mode="multiclass", num_classes=4)
            return logits, self.loss(logits, mask), smp.metrics.iou_score(*counts, reduction="micro")

    return Scored(), (torch.randn(2, 3, 64, 64), torch.randint(0, 4, (2, 64, 64)))


def _yolo(*head: list[Any]) -> dict[str, Any]:
    backbone = [
        [-1, 1, "Conv", [8, 3, 2]],
        [-1, 1, "Conv", [16, 3, 2]],
        [-1, 1, "C2f", [16, True]],
        [-1, 1, "Conv", [32, 3, 2]],
        [-1, 1, "SPPF", [32, 5]],
    ]
    neck = [[-1, 1, "nn.Upsample", [None, 2, "nearest"]], [[-1, 2], 1, "Concat", [1]], [-1, 1, "C2f", [16]]]
    return {"nc": 3, "backbone": backbone, "head": [*neck, *head]}


@wild("ultralytics")
def yolo_non_max_suppression() -> Made:
    from ultralytics.nn.tasks import DetectionModel
    from ultralytics.utils.nms import non_max_suppression

    class Detect(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = DetectionModel(_yolo([[4, 7], 1, "Detect", [3]]), verbose=False)
            for one in self.model.model[-1].cv3:
                nn.init.zeros_(one[-1].bias)

        def forward(self, x: Tensor) -> list[Tensor]:
            return non_max_suppression(self.model(x), conf_thres=0.25, iou_thres=0.5, max_det=10)

    return Detect(), (torch.rand(2, 3, 64, 64),)


@wild("ultralytics", dims=IMAGE)
def yolo_end_to_end() -> Made:
    from ultralytics.nn.tasks import DetectionModel

    return DetectionModel(_yolo([[4, 7], 1, "v10Detect", [3]]), verbose=False), (torch.rand(2, 3, 64, 64),)


@wild("ultralytics", dims=IMAGE)
def yolo_segment() -> Made:
    from ultralytics.nn.tasks import SegmentationModel

    return SegmentationModel(_yolo([[4, 7], 1, "Segment", [3, 4, 16]]), verbose=False), (
        torch.rand(2, 3, 64, 64),
    )


@wild("effdet")
def efficientdet_soft_nms() -> Made:
    _make_importable()
    from effdet import DetBenchPredict, EfficientDet, get_efficientdet_config

    config = get_efficientdet_config("tf_efficientdet_lite0")
    config.update(
        backbone_name="mobilenetv3_small_050", fpn_channels=16, fpn_cell_repeats=1, box_class_repeats=1
    )
    config.update(image_size=(128, 128), num_classes=4, max_detection_points=50, max_det_per_image=5)
    config.update(soft_nms=True)
    return DetBenchPredict(EfficientDet(config, pretrained_backbone=False)), (torch.randn(1, 3, 128, 128),)


@wild("vit-pytorch")
def na_vit() -> Made:
    _make_importable()
    from vit_pytorch.na_vit import NaViT

    model = NaViT(
        image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=48, dim_head=16
    )
    return model, ([[torch.randn(3, 32, 32), torch.randn(3, 16, 24)], [torch.randn(3, 24, 16)]],)


@wild("vit-pytorch", dims=IMAGE)
def region_vit() -> Made:
    _make_importable()
    from vit_pytorch.regionvit import RegionViT

    model = RegionViT(dim=(16, 32, 32, 32), depth=(1, 1, 1, 1), window_size=2, num_classes=5, use_peg=True)
    return model, (torch.randn(2, 3, 64, 64),)


@wild("vit-pytorch", dims={"img": {0: ("batch", 1, 8)}})
def fft_vit() -> Made:
    _make_importable()
    from vit_pytorch.simple_vit_with_fft import SimpleViT

    model = SimpleViT(
        image_size=32,
        patch_size=8,
        freq_patch_size=8,
        num_classes=5,
        dim=32,
        depth=1,
        heads=2,
        mlp_dim=48,
        dim_head=16,
    )
    return model, (torch.randn(2, 3, 32, 32),)


def _unet(**options: Any) -> Any:
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(8, 16),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=12,
        attention_head_dim=4,
        norm_num_groups=4,
        **options,
    )


@wild(
    "diffusers",
    dims={
        "sample": {0: ("batch", 1, 4)},
        "encoder_hidden_states": {0: ("batch", 1, 4), 1: ("tokens", 2, 20)},
    },
)
def unet_conditional() -> Made:
    _make_importable()
    return _unet(), (torch.randn(2, 4, 8, 8), torch.tensor(7), torch.randn(2, 6, 12))


@wild("diffusers", dims={"prompt": {1: ("tokens", 2, 20)}})
def text_to_image() -> Made:
    _make_importable()
    from diffusers import AutoencoderKL, DDIMScheduler

    class Guided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unet = _unet()
            self.vae = AutoencoderKL(
                block_out_channels=(8, 8),
                down_block_types=("DownEncoderBlock2D",) * 2,
                up_block_types=("UpDecoderBlock2D",) * 2,
                norm_num_groups=4,
            )
            self.scheduler = DDIMScheduler(num_train_timesteps=100)

        def forward(self, latents: Tensor, prompt: Tensor) -> Tensor:
            self.scheduler.set_timesteps(3)
            prompts = torch.cat((torch.zeros_like(prompt), prompt))
            for step in self.scheduler.timesteps:
                given = self.scheduler.scale_model_input(torch.cat((latents, latents)), step)
                without, found = self.unet(given, step, prompts).sample.chunk(2)
                latents = self.scheduler.step(without + 5.0 * (found - without), step, latents).prev_sample
            image = self.vae.decode(latents / self.vae.config.scaling_factor).sample
            return (image / 2 + 0.5).clamp(0, 1)

    return Guided(), (torch.randn(1, 4, 8, 8), torch.randn(1, 6, 12))


@wild("diffusers", dims={"sample": {0: ("batch", 1, 4), 2: ("height", 8, 32), 3: ("width", 8, 32)}})
def controlled_unet() -> Made:
    _make_importable()
    from diffusers import ControlNetModel

    class Controlled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unet = _unet()
            self.control = ControlNetModel.from_unet(
                self.unet, conditioning_embedding_out_channels=(4, 8, 8, 8)
            )
            for parameter in self.control.parameters():
                nn.init.normal_(parameter, std=0.1)

        def forward(self, sample: Tensor, step: Tensor, prompt: Tensor, edges: Tensor) -> Tensor:
            prompt, edges = (one.expand(sample.shape[0], *one.shape[1:]) for one in (prompt, edges))
            edges = nn.functional.interpolate(edges, [8 * side for side in sample.shape[-2:]])
            down, middle = self.control(sample, step, prompt, edges, return_dict=False)
            return self.unet(
                sample,
                step,
                prompt,
                down_block_additional_residuals=down,
                mid_block_additional_residual=middle,
            ).sample

    return Controlled(), (
        torch.randn(2, 4, 8, 8),
        torch.tensor([3]),
        torch.randn(1, 6, 12),
        torch.rand(1, 3, 64, 64),
    )


@wild(
    "diffusers",
    dims={"hidden_states": {0: ("batch", 1, 4)}, "class_labels": {0: ("batch", 1, 4)}},
    value_ranges={"class_labels": (0, 9)},
)
def dit() -> Made:
    _make_importable()
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=4,
        num_layers=2,
        sample_size=8,
        num_embeds_ada_norm=10,
    )
    return model, (torch.randn(2, 4, 8, 8), torch.tensor([5]), torch.tensor([1, 4]))


@wild("diffusers", dims={"sample": {0: ("batch", 1, 4)}})
def dpm_solver() -> Made:
    _make_importable()
    from diffusers import DPMSolverMultistepScheduler, UNet2DModel

    class Denoise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unet = UNet2DModel(
                sample_size=8,
                block_out_channels=(8, 16),
                layers_per_block=1,
                down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                up_block_types=("AttnUpBlock2D", "UpBlock2D"),
                attention_head_dim=8,
                norm_num_groups=4,
            )
            self.scheduler = DPMSolverMultistepScheduler(num_train_timesteps=100, use_karras_sigmas=True)

        def forward(self, sample: Tensor) -> Tensor:
            self.scheduler.set_timesteps(4)
            sample = sample * self.scheduler.init_noise_sigma
            for step in self.scheduler.timesteps:
                found = self.unet(self.scheduler.scale_model_input(sample, step), step).sample
                sample = self.scheduler.step(found, step, sample).prev_sample
            return sample

    return Denoise(), (torch.randn(2, 3, 8, 8),)


@wild("monai", dims={"x_in": {0: ("batch", 1, 4)}})
def swin_unetr() -> Made:
    _make_importable()
    from monai.networks.nets import SwinUNETR

    model = SwinUNETR(
        in_channels=1,
        out_channels=2,
        depths=(1, 1, 1, 1),
        num_heads=(1, 2, 2, 4),
        feature_size=12,
        window_size=3,
        spatial_dims=2,
    )
    return model, (torch.randn(2, 1, 64, 64),)


@wild("monai", dims={"volume": {2: ("slices", 12, 40)}})
def sliding_window() -> Made:
    _make_importable()
    from monai.inferers import sliding_window_inference
    from monai.networks.nets import SegResNet

    class Segment(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = SegResNet(init_filters=8, out_channels=2, blocks_down=(1, 1, 1), blocks_up=(1, 1))

        def forward(self, volume: Tensor) -> Tensor:
            found = sliding_window_inference(
                volume, (16, 16, 16), 2, self.model, overlap=0.25, mode="gaussian"
            )
            return found.softmax(dim=1)

    return Segment(), (torch.randn(1, 1, 24, 20, 16),)


@wild("monai", dims={"moving": {0: ("batch", 1, 4)}, "fixed": {0: ("batch", 1, 4)}})
def voxel_morph() -> Made:
    _make_importable()
    from monai.networks.nets import VoxelMorph, VoxelMorphUNet

    backbone = VoxelMorphUNet(
        spatial_dims=2, in_channels=2, unet_out_channels=8, channels=(8, 8, 8, 8), final_conv_channels=(8,)
    )
    model = VoxelMorph(backbone=backbone, integration_steps=3, spatial_dims=2)
    return model, (torch.rand(2, 1, 32, 32), torch.rand(2, 1, 32, 32))


@wild("monai")
def retinanet_detector() -> Made:
    _make_importable()
    from monai.apps.detection.networks.retinanet_detector import RetinaNetDetector
    from monai.apps.detection.networks.retinanet_network import RetinaNet, resnet_fpn_feature_extractor
    from monai.apps.detection.utils.anchor_utils import AnchorGeneratorWithAnchorShape
    from monai.networks.nets import ResNet

    backbone = ResNet(
        "basic", [1, 1, 1, 1], [4, 8, 16, 32], spatial_dims=2, n_input_channels=1, conv1_t_stride=2
    )
    features = resnet_fpn_feature_extractor(backbone, 2, pretrained_backbone=False, returned_layers=(1, 2))
    anchors = AnchorGeneratorWithAnchorShape((1, 2, 4), base_anchor_shapes=((6, 6), (8, 5)))
    network = RetinaNet(2, num_classes=3, num_anchors=2, feature_extractor=features, size_divisible=16)
    for name, parameter in network.named_parameters():
        if name.endswith("cls_logits.weight"):
            nn.init.normal_(parameter, std=0.5)
    detector = RetinaNetDetector(network, anchors, size_divisible=16)
    detector.set_box_selector_parameters(
        score_thresh=0.02, topk_candidates_per_level=20, detections_per_img=10
    )
    return detector, (torch.rand(2, 1, 64, 64),)


@wild("compressai", dims=IMAGE)
def scale_hyperprior() -> Made:
    _make_importable()
    from compressai.models import ScaleHyperprior

    model = ScaleHyperprior(8, 12)
    nn.init.normal_(model.g_a[-1].weight, std=2.0)
    nn.init.normal_(model.h_a[-1].weight, std=2.0)
    return model, (torch.rand(2, 3, 64, 64),)


@wild("compressai", dims=IMAGE)
def joint_autoregressive_codec() -> Made:
    _make_importable()
    from compressai.models import Cheng2020Attention

    model = Cheng2020Attention(N=8)
    nn.init.normal_(model.h_a[-1].weight, std=2.0)
    return model, (torch.rand(1, 3, 64, 64),)


@wild(
    "torchmetrics",
    dims={
        "preds": {0: ("batch", 1, 4), 2: ("height", 41, 80), 3: ("width", 41, 80)},
        "target": {0: ("batch", 1, 4), 2: ("height", 41, 80), 3: ("width", 41, 80)},
    },
    value_ranges={"preds": (0.0, 1.0), "target": (0.0, 1.0)},
)
def image_quality() -> Made:
    _make_importable()
    from torchmetrics.functional import image as metrics

    class Quality(nn.Module):
        def forward(self, preds: Tensor, target: Tensor) -> tuple[Tensor, ...]:
            return (
                metrics.structural_similarity_index_measure(preds, target, data_range=1.0),
                metrics.error_relative_global_dimensionless_synthesis(preds, target),
                metrics.universal_image_quality_index(preds, target),
                metrics.spectral_angle_mapper(preds, target),
                metrics.peak_signal_noise_ratio(preds, target, data_range=1.0),
            )

    target = torch.rand(2, 3, 48, 44)
    return Quality(), ((target + 0.1 * torch.randn(2, 3, 48, 44)).clamp(0, 1), target)


@wild(
    "piq",
    dims={"distorted": {0: ("batch", 1, 4)}, "image": {0: ("batch", 1, 4)}},
    value_ranges={"distorted": (0.0, 1.0), "image": (0.0, 1.0)},
)
def perceptual_metrics() -> Made:
    _make_importable()
    import piq

    class Metrics(nn.Module):
        def forward(self, distorted: Tensor, image: Tensor) -> tuple[Tensor, ...]:
            return tuple(
                metric(distorted, image, reduction="none", data_range=1.0)
                for metric in (piq.fsim, piq.vsi, piq.mdsi, piq.haarpsi, piq.gmsd, piq.vif_p)
            )

    image = torch.rand(2, 3, 64, 64)
    return Metrics(), ((image + 0.1 * torch.randn(2, 3, 64, 64)).clamp(0, 1), image)


@wild("lpips", dims={"in0": {0: ("batch", 1, 4)}, "in1": {0: ("batch", 1, 4)}})
def learned_similarity() -> Made:
    _make_importable()
    import lpips

    model = lpips.LPIPS(net="squeeze", pnet_rand=True, spatial=True, verbose=False)
    return model, (torch.rand(2, 3, 48, 48) * 2 - 1, torch.rand(2, 3, 48, 48) * 2 - 1)


@wild("facenet-pytorch")
def face_proposals() -> Made:
    _make_importable()
    from facenet_pytorch.models.mtcnn import PNet, RNet

    class Proposals(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.propose, self.refine = PNet(pretrained=False), RNet(pretrained=False)

        def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
            boxes = []
            scale = 1.0
            while min(image.shape[-2:]) * scale >= 16:
                size = [int(side * scale) for side in image.shape[-2:]]
                offsets, scores = self.propose(nn.functional.interpolate(image, size, mode="area"))
                y, x = torch.nonzero(scores[0, 1] > scores[0, 1].mean(), as_tuple=True)
                corner = torch.stack((x, y), dim=1) * 2 / scale
                boxes.append(torch.cat((corner, corner + 12 / scale), dim=1) + offsets[0][:, y, x].T)
                scale *= 0.709
            found = torch.cat(boxes)
            crops = [image[:, :, int(y) : int(y) + 12, int(x) : int(x) + 12] for x, y in found[:4, :2].abs()]
            crops = [nn.functional.interpolate(crop, (24, 24), mode="area") for crop in crops]
            return found, self.refine(torch.cat(crops))[1]

    return Proposals(), (torch.rand(1, 3, 32, 40),)


@wild("torchvision", dims={"image1": {0: ("batch", 1, 4)}, "image2": {0: ("batch", 1, 4)}})
def optical_flow() -> Made:
    _make_importable()
    import torchvision

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.raft = torchvision.models.optical_flow.raft_small(weights=None)

        def forward(self, image1: Tensor, image2: Tensor) -> list[Tensor]:
            return self.raft(image1, image2, num_flow_updates=2)

    image = torch.rand(1, 3, 128, 128) * 2 - 1
    return Flow(), (image, image.roll(3, dims=-1))


@wild("torchvision", dims={"input": {0: ("batch", 1, 4), 2: ("height", 32, 96), 3: ("width", 32, 96)}})
def lraspp() -> Made:
    _make_importable()
    from torchvision.models import segmentation

    model = segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3)
    return model, (torch.randn(2, 3, 40, 48),)


@wild(
    "open-clip-torch",
    "open_clip",
    dims={"image": {0: ("images", 1, 8)}, "text": {0: ("prompts", 1, 8)}},
    value_ranges={"text": (1, 63)},
)
def clip_zero_shot() -> Made:
    _make_importable()
    import open_clip

    class ZeroShot(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.clip = open_clip.CLIP(
                embed_dim=24,
                vision_cfg=open_clip.CLIPVisionCfg(
                    layers=2, width=32, head_width=16, patch_size=8, image_size=32
                ),
                text_cfg=open_clip.CLIPTextCfg(context_length=10, vocab_size=64, width=32, heads=2, layers=2),
            )

        def forward(self, image: Tensor, text: Tensor) -> Tensor:
            images = self.clip.encode_image(image, normalize=True)
            texts = self.clip.encode_text(text, normalize=True)
            return (self.clip.logit_scale.exp() * images @ texts.T).softmax(dim=-1)

    return ZeroShot(), (torch.randn(2, 3, 32, 32), torch.randint(1, 64, (3, 10)))


@wild(
    "open-clip-torch",
    "open_clip",
    dims={"image": {0: ("batch", 1, 8)}, "text": {0: ("batch", 1, 8)}},
    value_ranges={"text": (1, 63)},
)
def coca() -> Made:
    _make_importable()
    import open_clip
    from open_clip.coca_model import MultimodalCfg

    model = open_clip.CoCa(
        embed_dim=24,
        multimodal_cfg=MultimodalCfg(context_length=9, vocab_size=64, width=24, heads=2, layers=1),
        text_cfg=open_clip.CLIPTextCfg(
            context_length=10, vocab_size=64, width=24, heads=2, layers=1, embed_cls=True, output_tokens=True
        ),
        vision_cfg=open_clip.CLIPVisionCfg(
            layers=1,
            width=32,
            head_width=16,
            patch_size=8,
            image_size=32,
            attentional_pool=True,
            attn_pooler_queries=8,
            attn_pooler_heads=2,
            output_tokens=True,
        ),
    )
    nn.init.normal_(model.text_decoder.text_projection, std=0.2)  # the package leaves it as allocated
    return model, (torch.randn(2, 3, 32, 32), torch.randint(1, 64, (2, 10)))


@wild("lightly", dims={"first": {0: ("batch", 2, 8)}, "second": {0: ("batch", 2, 8)}})
def contrastive_pair() -> Made:
    _make_importable()
    from lightly.loss import NTXentLoss, VICRegLoss
    from lightly.models.modules import SimCLRProjectionHead

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Sequential(
                nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
            )
            self.head = SimCLRProjectionHead(32, 24, 16)
            self.contrast, self.variance = NTXentLoss(temperature=0.2), VICRegLoss()

        def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
            first, second = self.head(self.backbone(first)), self.head(self.backbone(second))
            return self.contrast(first, second), self.variance(first, second)

    image = torch.rand(4, 3, 16, 16)
    return Pair(), (image, image + 0.1 * torch.randn(4, 3, 16, 16))


@wild(
    "lightly",
    dims={"images": {0: ("batch", 1, 8)}, "keep": {0: ("batch", 1, 8)}, "hidden": {0: ("batch", 1, 8)}},
    value_ranges={"keep": (0, 16), "hidden": (1, 16)},
)
def masked_autoencoder() -> Made:
    _make_importable()
    from lightly.models import utils
    from lightly.models.modules import MAEDecoderTIMM, MaskedVisionTransformerTIMM
    from timm.models.vision_transformer import VisionTransformer

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            vit = VisionTransformer(
                img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=0
            )
            self.encoder = MaskedVisionTransformerTIMM(vit=vit)
            self.decoder = MAEDecoderTIMM(
                16, 8, embed_dim=32, decoder_embed_dim=16, decoder_depth=1, decoder_num_heads=2
            )

        def forward(self, images: Tensor, keep: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
            encoded = self.decoder.embed(self.encoder.encode(images=images, idx_keep=keep))
            masked = utils.repeat_token(self.decoder.mask_token, (images.shape[0], 17))
            decoded = self.decoder.decode(utils.set_at_index(masked, keep, encoded.type_as(masked)))
            found = self.decoder.predict(utils.get_at_index(decoded, hidden))
            patches = utils.get_at_index(utils.patchify(images, 8), hidden - 1)
            return found, nn.functional.mse_loss(found, patches)

    order = torch.stack([torch.randperm(16) + 1 for _ in range(2)])
    keep = torch.cat((torch.zeros(2, 1, dtype=torch.long), order[:, :6]), dim=1)
    return Masked(), (torch.rand(2, 3, 32, 32), keep, order[:, 6:])


@wild("axial-attention", dims=IMAGE)
def axial_transformer() -> Made:
    from axial_attention import AxialImageTransformer

    return AxialImageTransformer(16, 2, heads=2, axial_pos_emb_shape=(8, 8)), (torch.randn(2, 16, 8, 8),)


@wild("lambda-networks", dims=IMAGE)
def lambda_layer() -> Made:
    from lambda_networks import LambdaLayer

    return LambdaLayer(dim=16, dim_out=24, r=5, dim_k=8, heads=4, dim_u=2), (torch.randn(2, 16, 12, 12),)


@wild("bottleneck-transformer-pytorch", dims=IMAGE)
def bottleneck_transformer() -> Made:
    from bottleneck_transformer_pytorch import BottleStack

    model = BottleStack(dim=16, fmap_size=8, dim_out=32, num_layers=2, heads=2, dim_head=8, rel_pos_emb=True)
    return model, (torch.randn(2, 16, 8, 8),)


@wild("denoising-diffusion-pytorch", dims={"x_start": {0: ("batch", 1, 4)}, "noise": {0: ("batch", 1, 4)}})
def diffusion_loss() -> Made:
    _make_importable()
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            unet = Unet(dim=8, dim_mults=(1, 2), attn_dim_head=8, attn_heads=2, flash_attn=False)
            self.diffusion = GaussianDiffusion(unet, image_size=16, timesteps=20)

        def forward(self, x_start: Tensor, noise: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
            steps = step.expand(x_start.shape[0])
            noised = self.diffusion.q_sample(x_start, steps, noise)
            found = self.diffusion.model_predictions(noised, steps, clip_x_start=True)
            return self.diffusion.p_losses(x_start, steps, noise), found.pred_x_start

    return Loss(), (torch.rand(2, 3, 16, 16) * 2 - 1, torch.randn(2, 3, 16, 16), torch.tensor(9))


@wild("ptwt", dims={"image": {0: ("batch", 1, 4), 1: ("height", 16, 64), 2: ("width", 16, 64)}})
def wavelet_denoising() -> Made:
    import ptwt

    class Denoise(nn.Module):
        def forward(self, image: Tensor) -> Tensor:
            coarse, *details = ptwt.wavedec2(image, "db3", level=2, mode="reflect")
            kept = [tuple(nn.functional.softshrink(one, 0.2) for one in detail) for detail in details]
            return ptwt.waverec2((coarse, *kept), "db3")

    return Denoise(), (torch.rand(2, 24, 32),)


@wild("normflows", dims=IMAGE)
def glow_likelihood() -> Made:
    import normflows as nf

    flows = [
        [nf.flows.GlowBlock(3 * 2 ** (3 - level), 8) for _ in range(2)] + [nf.flows.Squeeze()]
        for level in (0, 1)
    ]
    base = [nf.distributions.DiagGaussian(shape) for shape in ((24, 4, 4), (6, 8, 8))]
    model = nf.MultiscaleFlow(base, flows, [nf.flows.Merge()], class_cond=False)

    class Likelihood(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            return self.model.log_prob(x, None)

    return Likelihood(), (torch.rand(2, 3, 16, 16),)


@wild("FrEIA", dims={"x_or_z": {0: ("batch", 1, 8)}})
def invertible_network() -> Made:
    from FrEIA.framework import SequenceINN
    from FrEIA.modules import GLOWCouplingBlock, HaarDownsampling, PermuteRandom

    def subnet(before: int, after: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(before, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, after, 3, padding=1)
        )

    model = SequenceINN(3, 16, 16)
    for _ in range(2):
        model.append(HaarDownsampling)
        model.append(PermuteRandom)
        model.append(GLOWCouplingBlock, subnet_constructor=subnet)
    return model, (torch.randn(2, 3, 16, 16),)


@wild("roma", dims={"source": {1: ("points", 4, 64)}, "target": {1: ("points", 4, 64)}})
def rigid_registration() -> Made:
    import roma

    class Register(nn.Module):
        def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, ...]:
            rotation, shift = roma.rigid_points_registration(source, target)
            turn = roma.rotmat_to_unitquat(rotation)
            half = roma.unitquat_slerp(roma.identity_quat(turn.shape[:1]), turn, torch.tensor([0.25, 0.5]))
            return rotation, shift, half, roma.rotmat_geodesic_distance(rotation[:1], rotation[1:])

    source = torch.randn(2, 12, 3)
    return Register(), (source, source @ roma.random_rotmat(2).mT + 0.05 * torch.randn(2, 12, 3) + 1)


@wild("pypose", dims={"points": {0: ("points", 6, 64)}, "pixels": {0: ("points", 6, 64)}})
def bundle_step() -> Made:
    import pypose as pp

    class Step(nn.Module):
        def forward(
            self, points: Tensor, pixels: Tensor, pose: Tensor, camera: Tensor
        ) -> tuple[Tensor, Tensor]:
            at = pp.SE3(pose)
            error = pp.reprojerr(points, pixels, camera, at, reduction="norm")
            return error, (pp.se3(0.01 * error[:6]).Exp() @ at).matrix()

    camera = torch.tensor([[20.0, 0, 12], [0, 20, 10], [0, 0, 1]])
    points = torch.randn(10, 3) + torch.tensor([0.0, 0, 6])
    pose = torch.tensor([0.1, 0.2, 0.0, 0.0, 0.1, 0.0, 0.995])
    return Step(), (points, torch.rand(10, 2) * 20, pose / pose[3:].norm(), camera)


@wild("pytorch-metric-learning", value_ranges={"labels": (0, 2)})
def mined_triplets() -> Made:
    _make_importable()
    from pytorch_metric_learning import distances, losses, miners

    class Mined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(12, 8)
            self.miner = miners.TripletMarginMiner(margin=0.2, distance=distances.CosineSimilarity())
            self.loss = losses.TripletMarginLoss(margin=0.2, distance=distances.CosineSimilarity())

        def forward(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            embedded = self.embed(features)
            anchors, positives, negatives = self.miner(embedded, labels)
            return self.loss(embedded, labels, (anchors, positives, negatives)), anchors

    return Mined(), (torch.randn(10, 12), torch.arange(10) % 3)


@wild(
    "pytorch-metric-learning",
    dims={"features": {0: ("batch", 2, 16)}, "labels": {0: ("batch", 2, 16)}},
    value_ranges={"labels": (0, 3)},
)
def margin_classifiers() -> Made:
    _make_importable()
    from pytorch_metric_learning import losses

    class Classifiers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.losses = nn.ModuleList(
                (
                    losses.ArcFaceLoss(4, 12),
                    losses.SoftTripleLoss(4, 12, centers_per_class=3),
                    losses.ProxyAnchorLoss(4, 12),
                )
            )

        def forward(self, features: Tensor, labels: Tensor) -> list[Tensor]:
            return [loss(features, labels) for loss in self.losses]

    return Classifiers(), (torch.randn(6, 12), torch.randint(0, 4, (6,)))


@wild("torch-dct", dims={"x": {0: ("batch", 1, 8), 1: ("height", 2, 12), 2: ("width", 2, 12)}})
def block_transform_codec() -> Made:
    import torch_dct

    class Codec(nn.Module):
        def forward(self, x: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
            levels = torch.round(torch_dct.dct_2d(x - 128, norm="ortho") / table)
            return torch_dct.idct_2d(levels * table, norm="ortho") + 128, (levels != 0).sum(dim=(-1, -2))

    table = 8 + 4 * (torch.arange(8)[:, None] + torch.arange(8))
    return Codec(), (torch.rand(2, 4, 5, 8, 8) * 255, table)


@wild("vector-quantize-pytorch", dims={"x": {0: ("batch", 1, 4)}})
def quantized_autoencoder() -> Made:
    from vector_quantize_pytorch import LFQ, ResidualVQ

    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.Conv2d(3, 8, 4, 4)
            self.residual = ResidualVQ(dim=8, num_quantizers=3, codebook_size=16)
            self.binary = LFQ(dim=8, codebook_size=256)
            self.decode = nn.ConvTranspose2d(8, 3, 4, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            encoded = self.encode(x)
            quantized, codes, _ = self.residual(encoded.flatten(2).mT)
            quantized = quantized.mT.unflatten(2, encoded.shape[2:])
            bits, indices, _ = self.binary(encoded)
            return self.decode(quantized + bits), codes, indices

    return Quantized(), (torch.randn(2, 3, 16, 16),)


@wild("transformers")
def superpoint() -> Made:
    _make_importable()
    from transformers import SuperPointConfig, SuperPointForKeypointDetection

    config = SuperPointConfig(
        encoder_hidden_sizes=[8, 8, 16, 16],
        decoder_hidden_size=16,
        keypoint_decoder_dim=65,
        descriptor_decoder_dim=16,
        keypoint_threshold=0.01,
        max_keypoints=20,
        border_removal_distance=2,
        initializer_range=0.3,
    )
    return SuperPointForKeypointDetection(config), (torch.rand(1, 3, 48, 48),)


@wild("transformers", dims={"pixel_values": {0: ("batch", 1, 4)}})
def depth_estimation() -> Made:
    _make_importable()
    from transformers import GLPNConfig, GLPNForDepthEstimation

    config = GLPNConfig(
        hidden_sizes=[8, 16, 16, 16],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 2],
        decoder_hidden_size=8,
    )
    return GLPNForDepthEstimation(config), (torch.randn(2, 3, 64, 64),)
