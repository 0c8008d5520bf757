"""The whole MTCNN face detector in one program: pyramid, three nets and NMS, with facenet-pytorch's weights.

The steps and numbers are those of the package's `detect_face`, for one image: every scale is scanned, boxes
that overlap are dropped, and what is left is judged twice, at 24 and at 48 pixels. The package goes through
numpy, which no graph holds; here the same is written in torch, over at most `MOST` boxes a scale. How many
there are, and whether a net runs at all, Python's own `while` and `if` decide.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import interpolate

from aotpipe import EntryPoint, Spec
from models._packages import package_file
from models.mtcnn import ONet, PNet

ROWS, COLUMNS = 96, 80
MOST = 24
CELL, STRIDE = 12, 2
# A face as ellipses: the middle from that of the image, half the height and width, the colour. With more
# contrast several windows score exactly 1.0 in float32, and which of them `topk` gives first is not defined.
FACE = (
    (-4, 0, 32, 23, (84, 82, 80)),
    (0, 0, 28, 20, (114, 106, 101)),
    (-10, -8, 2, 5, (84, 81, 80)),
    (-10, 8, 2, 5, (84, 81, 80)),
    (-6, -8, 3, 4, (80, 80, 80)),
    (-6, 8, 3, 4, (80, 80, 80)),
    (6, 0, 2, 4, (102, 94, 91)),
    (14, 0, 3, 7, (102, 86, 86)),
)


class RNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1 = nn.Conv2d(3, 28, 3), nn.PReLU(28)
        self.pool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2, self.prelu2 = nn.Conv2d(28, 48, 3), nn.PReLU(48)
        self.pool2 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv3, self.prelu3 = nn.Conv2d(48, 64, 2), nn.PReLU(64)
        self.dense4, self.prelu4 = nn.Linear(576, 128), nn.PReLU(128)
        self.dense5_1, self.dense5_2 = nn.Linear(128, 2), nn.Linear(128, 4)

    def forward(self, crops: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.pool1(self.prelu1(self.conv1(crops)))
        x = self.prelu3(self.conv3(self.pool2(self.prelu2(self.conv2(x)))))
        x = self.prelu4(self.dense4(x.permute(0, 3, 2, 1).flatten(1)))
        return {"face": self.dense5_1(x).softmax(1), "box": self.dense5_2(x)}


def nms(
    boxes: torch.Tensor, scores: torch.Tensor, there: torch.Tensor, threshold: float, *, method: str = "union"
) -> torch.Tensor:
    """Which boxes are kept: the best one, then the best that does not overlap it, and so on."""
    edge = 1.0 if method == "min" else 0.0
    area = (boxes[:, 2] - boxes[:, 0] + edge) * (boxes[:, 3] - boxes[:, 1] + edge)
    kept = torch.zeros_like(there)
    left = there
    while left.any():
        best = torch.where(left, scores, -1.0).argmax()
        kept[best] = True
        low = torch.maximum(boxes[best, :2], boxes[:, :2])
        high = torch.minimum(boxes[best, 2:4], boxes[:, 2:4])
        shared = (high - low + edge).clamp(min=0).prod(1)
        if method == "min":
            overlap = shared / torch.minimum(area[best], area)
        else:
            overlap = shared / (area[best] + area - shared)
        left = left & ~(overlap > threshold)
        left[best] = False
    return kept


def moved(boxes: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Boxes moved by parts of their own sides."""
    size = boxes[:, 2:4] - boxes[:, :2] + 1
    return boxes + by * size.repeat(1, 2)


def square(boxes: torch.Tensor) -> torch.Tensor:
    """Boxes of the same middle, as wide as high."""
    size = boxes[:, 2:4] - boxes[:, :2]
    longest = size.amax(1, keepdim=True)
    corner = boxes[:, :2] + size * 0.5 - longest * 0.5
    return torch.cat([corner, corner + longest], 1)


def shares(first: torch.Tensor, last: torch.Tensor, length: int, size: int) -> torch.Tensor:
    """How `size` bins over the pixels from `first` to `last` average a row: `(boxes, size, length)`."""
    number = torch.arange(size)
    span = (last - first)[:, None]
    low = first[:, None] + number * span // size
    high = first[:, None] - (-(number + 1) * span) // size
    pixel = torch.arange(length)
    inside = (pixel >= low[..., None]) & (pixel < high[..., None])
    return inside / inside.sum(-1, keepdim=True).clamp(min=1)


def crops(image: torch.Tensor, boxes: torch.Tensor, size: int) -> torch.Tensor:
    """The image inside of each box, averaged to `size` x `size` pixels."""
    rows, columns = image.shape[1:]
    x, y, ex, ey = boxes.trunc().long().unbind(1)
    down = shares(y.clamp(min=1) - 1, ey.clamp(max=rows), rows, size)
    across = shares(x.clamp(min=1) - 1, ex.clamp(max=columns), columns, size)
    cut = torch.einsum("bip,cpq,bjq->bcij", down, image, across)
    return (cut - 127.5) * 0.0078125


class Detector(nn.Module):
    """Faces of an image `(rows, columns, 3)`: boxes, probabilities, five points each, and how many."""

    def __init__(self, min_face: int = 20, factor: float = 0.709) -> None:
        super().__init__()
        self.pnet, self.rnet, self.onet = PNet(), RNet(), ONet()
        self.min_face, self.factor = min_face, factor
        self.thresholds = (0.6, 0.7, 0.7)

    def scan(self, image: torch.Tensor, scale: float) -> tuple[torch.Tensor, ...]:
        """The best windows of one scale, as boxes; their scores, and which of them count."""
        rows, columns = image.shape[1:]
        size = (int(rows * scale + 1), int(columns * scale + 1))
        small = (interpolate(image[None], size=size, mode="area") - 127.5) * 0.0078125
        found = self.pnet(small)
        probability, place = found["face"][0, 1].flatten().topk(min(MOST, found["face"][0, 1].numel()))
        corner = torch.stack([place % found["face"].shape[3], place // found["face"].shape[3]], 1)
        low = ((STRIDE * corner + 1) / scale).floor()
        high = ((STRIDE * corner + CELL) / scale).floor()
        boxes = torch.cat([low, high], 1)
        kept = nms(boxes, probability, probability >= self.thresholds[0], 0.5)
        return boxes, probability, found["box"][0].flatten(1).T[place], kept

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor | int]:
        pixels = image.permute(2, 0, 1).float()
        scale = CELL / self.min_face
        found = []
        while min(ROWS, COLUMNS) * scale >= CELL:
            found.append(self.scan(pixels, scale))
            scale *= self.factor
        boxes, scores, by, kept = (torch.cat(each) for each in zip(*found, strict=True))

        kept = nms(boxes, scores, kept, 0.7)
        size = (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)
        boxes = square(boxes + by * size)
        boxes, scores, kept = self.best(boxes, scores, kept)
        points = torch.zeros(MOST, 5, 2)

        if kept.any():
            judged = self.rnet(crops(pixels, boxes, 24))
            scores = judged["face"][:, 1]
            kept = nms(boxes, scores, kept & (scores > self.thresholds[1]), 0.7)
            boxes = square(moved(boxes, judged["box"]))

        if kept.any():
            judged = self.onet(crops(pixels, boxes, 48))
            scores = judged["face"][:, 1]
            kept = kept & (scores > self.thresholds[2])
            size = boxes[:, 2:] - boxes[:, :2] + 1
            points = (
                judged["landmarks"].view(-1, 2, 5).transpose(1, 2) * size[:, None] + boxes[:, None, :2] - 1
            )
            boxes = moved(boxes, judged["box"])
            kept = nms(boxes, scores, kept, 0.7, method="min")

        order = torch.where(kept, scores, -1.0).argsort(descending=True)
        count = int(kept.sum())
        there = torch.arange(MOST) < count
        return {
            "boxes": torch.where(there[:, None], boxes[order], 0.0),
            "probabilities": torch.where(there, scores[order], 0.0),
            "points": torch.where(there[:, None, None], points[order], 0.0),
            "count": count,
        }

    def best(self, boxes: torch.Tensor, scores: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """At most so many boxes go on to be judged."""
        scores, place = torch.where(kept, scores, -1.0).topk(MOST)
        return boxes[place], scores, kept[place]


def face() -> torch.Tensor:
    """An image on which the detector finds one face; on noise it finds none, and answers zeros."""
    image = torch.full((ROWS, COLUMNS, 3), 90, dtype=torch.uint8)
    rows, columns = torch.arange(ROWS)[:, None] - ROWS // 2, torch.arange(COLUMNS) - COLUMNS // 2
    for row, column, height, width, colour in FACE:
        distance = ((rows - row) / height) ** 2 + ((columns - column) / width) ** 2
        image[distance < 1] = torch.tensor(colour, dtype=torch.uint8)
    return image


def build() -> nn.Module:
    model = Detector()
    for name in ("pnet", "rnet", "onet"):
        weights = torch.load(package_file("facenet_pytorch", f"data/{name}.pt"), weights_only=True)
        getattr(model, name).load_state_dict(weights)
    return model.eval()


SPEC = Spec(
    name="mtcnn",
    build=build,
    entry_points={"forward": EntryPoint(args=(face(),), value_ranges={"image": (0, 255)})},
)
