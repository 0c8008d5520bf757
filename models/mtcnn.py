"""Two nets of the MTCNN face detector, with the weights of facenet-pytorch.

PNet is fully convolutional: it scans an image of any even size, 12 x 12 pixels a window. ONet judges crops of
48 x 48. The package itself pins torch 2.2 and numpy 1, so the nets stand here; the names of their layers are
those of its weight files.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from aotpipe import Dim, EntryPoint, Spec
from models._packages import package_file


class PNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1 = nn.Conv2d(3, 10, 3), nn.PReLU(10)
        self.pool1 = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.conv2, self.prelu2 = nn.Conv2d(10, 16, 3), nn.PReLU(16)
        self.conv3, self.prelu3 = nn.Conv2d(16, 32, 3), nn.PReLU(32)
        self.conv4_1, self.conv4_2 = nn.Conv2d(32, 2, 1), nn.Conv2d(32, 4, 1)

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.pool1(self.prelu1(self.conv1(image)))
        x = self.prelu3(self.conv3(self.prelu2(self.conv2(x))))
        return {"face": self.conv4_1(x).softmax(1), "box": self.conv4_2(x)}


class ONet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1 = nn.Conv2d(3, 32, 3), nn.PReLU(32)
        self.pool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2, self.prelu2 = nn.Conv2d(32, 64, 3), nn.PReLU(64)
        self.pool2 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv3, self.prelu3 = nn.Conv2d(64, 64, 3), nn.PReLU(64)
        self.pool3 = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.conv4, self.prelu4 = nn.Conv2d(64, 128, 2), nn.PReLU(128)
        self.dense5, self.prelu5 = nn.Linear(1152, 256), nn.PReLU(256)
        self.dense6_1, self.dense6_2, self.dense6_3 = nn.Linear(256, 2), nn.Linear(256, 4), nn.Linear(256, 10)

    def forward(self, crops: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.pool1(self.prelu1(self.conv1(crops)))
        x = self.pool2(self.prelu2(self.conv2(x)))
        x = self.prelu4(self.conv4(self.pool3(self.prelu3(self.conv3(x)))))
        x = self.prelu5(self.dense5(x.permute(0, 3, 2, 1).flatten(1)))
        return {"face": self.dense6_1(x).softmax(1), "box": self.dense6_2(x), "landmarks": self.dense6_3(x)}


def build(net: type[nn.Module], weights: str) -> nn.Module:
    model = net()
    model.load_state_dict(torch.load(package_file("facenet_pytorch", weights), weights_only=True))
    return model.eval()


PNET = Spec(
    name="mtcnn_pnet",
    build=partial(build, PNet, "data/pnet.pt"),
    entry_points={
        "forward": EntryPoint(
            args=(torch.linspace(-1.0, 1.0, 3 * 40 * 56).reshape(1, 3, 40, 56),),
            # torch.export cannot prove its guards on a pooling that rounds up unless both sides are even.
            dynamic_shapes={
                "image": {2: 2 * Dim("rows", min=6, max=160), 3: 2 * Dim("columns", min=6, max=160)}
            },
        )
    },
)
SPEC = Spec(
    name="mtcnn_onet",
    build=partial(build, ONet, "data/onet.pt"),
    entry_points={
        "forward": EntryPoint(
            args=(torch.linspace(-1.0, 1.0, 2 * 3 * 48 * 48).reshape(2, 3, 48, 48),),
            dynamic_shapes={"crops": {0: Dim("batch", min=1, max=32)}},
        )
    },
)
