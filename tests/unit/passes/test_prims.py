"""Torch's own `prims` in a model: views of every kind, one that is written through, and products."""

from __future__ import annotations

import torch

from tests.unit.passes.legal import check, model, targets

prims = torch.ops.prims


def test_views_and_products_are_eagers():
    def forward(model, x):
        rows = prims.split_dim(x, 0, 2)
        square = prims.squeeze(x[:, :, None, None], [2, 3])
        views = prims.view_of(x), rows, prims.transpose(rows, [2, 0, 1]), prims.collapse_view(rows, 0, 1)
        products = prims.prod(x, [0, 1]), prims.prod(rows, [2]), prims.prod(x, [])
        return *views, square, *products

    auto = torch.export.Dim.AUTO
    program = check(
        model(forward), (torch.randn(4, 3),), (torch.randn(6, 5),), dynamic_shapes={"x": {0: auto, 1: auto}}
    )
    assert not [name for name in targets(program) if name.startswith("prims.")]


def test_what_is_written_to_a_view_is_in_its_base():
    def forward(model, x):
        y = x.clone()
        view = prims.collapse_view(y, 0, 1) if x.dim() > 1 else prims.view_of(y)
        view.mul_(2)
        prims.squeeze(y[:1], [0]).add_(1)
        return y, view

    check(model(forward), (torch.randn(4, 3),), (torch.randn(4, 3),))
    check(model(forward), (torch.randn(4),))


def test_in_a_branch():
    def forward(model, x):
        whole, parts = prims.view_of, prims.split_dim
        return torch.cond(x.sum() > 0, lambda x: whole(x) * 2, lambda x: parts(x, 0, 3)[:, 0] * 3, (x,))

    check(model(forward), (torch.ones(3, 3),), (-torch.rand(3, 3),))
