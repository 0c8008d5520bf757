"""Random straight-line programs that update tensors, join them and take parts by masks; alike for one seed.

`source(seed)` is the text of a `forward(x, v)`, which takes four rows of four floats and four floats. The
same tensors are updated, read and concatenated again and again, and the host reads how many elements a mask
has: what a compiler that writes in place has to keep apart.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn

_HEADER: Final = """
def forward(x, v):
    i, p = v.argmax()[None], torch.argsort(v)
"""
# M: four rows of four floats, V: four floats, D: a dim, P: a place.
_MATRICES: Final = (
    "{M} @ {M}.T * 0.3",
    "{M} * 2 - {M}",
    "torch.cat([{M}, {M}], {D})[:4, :4]",
    "torch.cat([{M}, {M}], {D})[-4:, -4:] * 1.5",
    "torch.stack([{V}, {V}, {V}, {V}], {D})",
    "{M}.index_put((i,), {V}[:1])",
    "{M}.scatter({D}, p[None].expand(2, 4), {M})",
    "{M}.scatter({D}, p[:, None].expand(4, 2), {M})",
    "{M}.index_add({D}, p, {M})",
    "torch.select_scatter({M}, {V}, {D}, {P})",
    "torch.slice_scatter({M}, {M}[:2], 0, 1, 3)",
    "{M}.cumsum({D}) * 0.5",
    "{M}.sort({D})[0]",
    "torch.where({M} > 0.1, {M}, {M})",
    "{M}.masked_fill({M} > 0.5, 0.25)",
    "{M}.flip({D})",
    "{M}.roll(1, {D})",
    "{M}[p]",
    "torch.tril({M}) + torch.eye(4)",
    "{M}.softmax({D})",
    "F.pad({M}, (1, 1, 0, 2))[1:5, :4]",
)
_VECTORS: Final = (
    "{M}.sum({D})",
    "{M}.amax({D})",
    "{M}[{P}] + {M}[:, {P}]",
    "torch.select_scatter({V}, {V}[{P}], 0, {P})",
)
_PARTS: Final = ("{M}[{M} > 0.2]", "{M}[{M} > -0.1]", "torch.nonzero({M} > 0.2)")
_NEAR: Final = 4
"""How many of the last values are taken for most operands."""


def source(seed: int) -> str:
    """The text of a program's function."""
    choose = random.Random(seed)
    names = {"M": ["x"], "V": ["v"]}
    lines: list[str] = []
    parts: list[str] = []

    def operand(kind: str) -> str:
        known = names[kind]
        return choose.choice(known[-_NEAR:] if choose.random() < 0.7 else known)

    def written(template: str) -> str:
        text = template
        for kind, value in (
            ("{M}", lambda: operand("M")),
            ("{V}", lambda: operand("V")),
            ("{D}", lambda: str(choose.randrange(2))),
            ("{P}", lambda: str(choose.randrange(4))),
        ):
            while kind in text:
                text = text.replace(kind, value(), 1)
        return text

    for number in range(choose.randint(5, 11)):
        kind = choose.choices("MVR", (21, 2, 3))[0]
        name = f"{kind.lower()}{number}"
        templates = {"M": _MATRICES, "V": _VECTORS, "R": _PARTS}[kind]
        lines.append(f"    {name} = {written(choose.choice(templates))}")
        if kind == "R":
            parts.append(name)
        else:
            names[kind].append(name)
    results = [*parts, *choose.sample(names["M"], min(len(names["M"]), choose.randint(1, 3))), operand("V")]
    given = ", ".join(name if name in parts else f"{name} * 1" for name in results)
    return _HEADER + "\n".join([*lines, f"    return {given}"]) + "\n"


def model(seed: int) -> nn.Module:
    """The program of a seed as a model."""
    space: dict[str, Any] = {"torch": torch, "F": nn.functional}
    exec(compile(source(seed), f"<updating {seed}>", "exec"), space)  # our own text
    return _Applied(space["forward"])


class _Applied(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, v: torch.Tensor) -> Any:
        return self.function(x, v)


def calls(seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What to call it with; the first is the example."""
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(4, 4, generator=generator), torch.randn(4, generator=generator)) for _ in range(3)]
