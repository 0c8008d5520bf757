"""Models that reach every rule with padded axes: a function of inputs whose dims vary, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Shape = tuple[int | str, ...]


@dataclass(frozen=True)
class Case:
    """A function, and its inputs: a shape where `n`, `m` and `k` vary, and what draws the values."""

    function: Callable[..., Any]
    shapes: tuple[Shape, ...]
    draw: Callable[[Any], torch.Tensor] = torch.randn


def _complex(shape: Any) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.complex64)


def _indices(shape: Any) -> torch.Tensor:
    return torch.randint(0, 3, tuple(shape))


def _levels(shape: Any) -> torch.Tensor:
    return torch.randint(-3, 3, tuple(shape)).float()


def _ints(shape: Any) -> torch.Tensor:
    return torch.randint(-9, 9, tuple(shape))


def _case(
    function: Callable[..., Any], *shapes: Shape, draw: Callable[[Any], torch.Tensor] = torch.randn
) -> Case:
    return Case(function, shapes, draw)


_SQUARE = ("n", "m", 3)
_FLAT = ("n", "m")


def _scatter_add(x: torch.Tensor, i: torch.Tensor) -> Any:
    return torch.zeros(5, dtype=x.dtype).scatter_add(0, i.long().abs() % 5, x), torch.ones(5).scatter(
        0, i.long().abs() % 5, 2.0
    )


def _written_to_the_end(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y[1:] = 1
    return y


def _put(x: torch.Tensor, i: torch.Tensor) -> Any:
    places = i.long().abs() % 3
    return (
        torch.zeros(3, 4).index_put((places,), x, accumulate=True),
        x.index_put((places - 3,), torch.ones(4)),
        x.scatter(0, places[:, None].expand(-1, 4), x * 2),
    )


def _scan(x: torch.Tensor) -> Any:
    from torch._higher_order_ops.scan import scan

    def body(carry: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return carry * 0.5 + row, (carry - row).clone()

    return scan(body, torch.zeros(3), x, dim=0)


def _scan_back(x: torch.Tensor) -> Any:
    from torch._higher_order_ops.scan import scan

    def body(carry: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return carry * 0.5 + row, (carry - row).clone()

    return scan(body, torch.zeros(3), x, dim=0, reverse=True)


def _mapped(x: torch.Tensor) -> Any:
    from torch._higher_order_ops.map import map as over

    return over(lambda row: row.softmax(0) * row.sum(), x)


def _branch(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.flip(0) + 1, lambda x: x - x.mean(), (x,))


def _loop(x: torch.Tensor) -> Any:
    from torch._higher_order_ops.while_loop import while_loop

    return while_loop(
        lambda i, y: i < y.shape[0], lambda i, y: (i + 1, y * 0.5 + y.mean()), (torch.tensor(0), x)
    )


CASES: dict[str, Case] = {
    "elements": _case(
        lambda x, y: (x * y + 1, torch.where(x > 0, x, y), x.to(torch.float16).float(), x / x.shape[0]),
        _SQUARE,
        _SQUARE,
    ),
    "broadcast": _case(lambda x, y: x * y[:, None] + y.sum(), ("n", "m"), ("n",)),
    "copy": _case(lambda x: torch.empty_like(x).copy_(x[:1]), _FLAT),
    "size as a number": _case(lambda x: x * x.shape[0] + x.shape[1] ** 0.5 - x.shape[0] // 2, _FLAT),
    "sums": _case(
        lambda x: (x.sum(), x.sum(0), x.sum((0, 1)), x.mean(), x.mean(1, keepdim=True), x.prod(0), x.prod()),
        _SQUARE,
    ),
    "moments": _case(
        lambda x: (
            x.var(0),
            x.std(1),
            *torch.var_mean(x, 1, correction=0),
            *torch.std_mean(x, (0, 1)),
            x.var(),
        ),
        _SQUARE,
    ),
    "extremes": _case(
        lambda x: (
            x.amax(0),
            x.amin((0, 1)),
            x.max(),
            x.min(),
            *x.max(1),
            *x.min(0),
            x.argmax(),
            x.argmin(1),
        ),
        _SQUARE,
        draw=_levels,
    ),
    "integer extremes": _case(
        lambda x: (x.amax(0), x.max(), x.sum(0), x.argmin(0), x.cumsum(1), *x.sort(1)), _FLAT, draw=_ints
    ),
    "truth": _case(
        lambda x: (
            (x > 0).any(),
            (x > 0).all(0),
            (x > 0).any(1),
            torch.any(x > 2, (0, 1)),
            torch.all(x > -9, (0, 1)),
            (x > -9).all(),
        ),
        _FLAT,
    ),
    "softmax": _case(
        lambda x: (x.softmax(0), x.log_softmax(1), F.normalize(x, dim=1), x.logsumexp(0)), _SQUARE
    ),
    "running": _case(
        lambda x: (x.cumsum(0), x.cumprod(1), *x.cummax(0), *x.cummin(1), x.logcumsumexp(0)), _SQUARE
    ),
    "norms": _case(
        lambda x: (
            F.layer_norm(x, (3,)),
            F.group_norm(x.transpose(1, 2), 3),
            F.instance_norm(x.transpose(1, 2)),
        ),
        _SQUARE,
    ),
    "batch statistics": _case(lambda x: F.batch_norm(x, None, None, training=True), ("n", 4, "m")),
    "sort": _case(
        lambda x: (
            *x.sort(1),
            *x.sort(0, descending=True),
            x.argsort(1),
            *torch.sort(x, stable=True, dim=0),
            *x.topk(2, 0),
            *x.topk(2, 1, largest=False),
        ),
        _FLAT,
        draw=torch.randn,
    ),
    "products": _case(
        lambda x, y: (x @ y, x.t() @ x, y @ y.t(), torch.addmm(y[0], x, y, alpha=2), y @ y[0], x[0] @ y),
        ("n", "m"),
        ("m", 4),
    ),
    "batched products": _case(
        lambda x, y: (x @ y, x.mT @ x, torch.baddbmm(y[:1, :1], x, y)), ("n", 3, "m"), ("n", "m", 4)
    ),
    "vectors": _case(lambda x, y: (x.mv(y), y.dot(y), torch.addmv(x[:, 0], x, y)), ("n", "m"), ("m",)),
    "int8": _case(
        lambda x, y: torch._int_mm(x.to(torch.int8), y.to(torch.int8)), ("n", "m"), ("m", 4), draw=_ints
    ),
    "linear over three dims": _case(
        lambda x: (F.linear(x, torch.ones(5, 3)), F.linear(x, torch.ones(5, 3), torch.arange(5.0))), _SQUARE
    ),
    "attention": _case(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), ("n", 2, "m", 4)),
    "attention to others": _case(
        lambda x, y: F.scaled_dot_product_attention(x, y, y), ("n", 2, "m", 4), ("n", 2, "k", 4)
    ),
    "views": _case(
        lambda x: (
            x.flatten(),
            x.flatten(1),
            x.flatten(0, 1),
            x.reshape(3, -1),
            x[None].squeeze(0),
            x.unsqueeze(1),
            x.transpose(0, 1).flatten(0, 1),
            x.permute(2, 0, 1).reshape(-1, x.shape[0]),
        ),
        _SQUARE,
    ),
    "heads": _case(
        lambda x: (
            x.view(x.shape[0], x.shape[1], 2, 3)
            .transpose(1, 2)
            .reshape(2 * x.shape[0], x.shape[1], 3)
            .flatten(0, 1)
            .cumsum(0)
        ),
        ("n", "m", 6),
    ),
    "joined axes": _case(
        lambda x: (
            x.flatten(0, 1).cumsum(0),
            x.flatten(0, 1)[-1],
            x.flatten().max(0),
            x.flatten(0, 1) @ x.flatten(0, 1).t(),
        ),
        _SQUARE,
    ),
    "transposed": _case(lambda x: (x.t(), x.mT + x.mT, x.swapaxes(0, 1)), _FLAT),
    "expand": _case(lambda x: (x[:, None].expand(-1, x.shape[1], -1), x[:1].expand(x.shape[0], -1)), _FLAT),
    "joins": _case(
        lambda x, y: (
            torch.cat([x, y, x]),
            torch.cat([x, torch.ones(2, x.shape[1])]),
            torch.cat([torch.ones(2, x.shape[1]), y]),
            torch.stack([x, x * 2], 1),
        ),
        ("n", "m"),
        ("k", "m"),
    ),
    "parts": _case(
        lambda x: (
            *x.split([2, x.shape[0] - 2]),
            *x.split([x.shape[0] - 2, 2]),
            *x.t().split([1, x.shape[0] - 1], 1),
        ),
        _FLAT,
    ),
    "slices": _case(
        lambda x: (
            x[2:],
            x[:-1],
            x[-2:],
            x[1::2],
            x[-1],
            x[0],
            x[:, 1],
            x[:, -2],
            x[: x.shape[0] // 2],
            x[x.shape[0] // 2 :],
            x[:2],
        ),
        _FLAT,
    ),
    "chunks of fixed dims": _case(
        lambda x: (*x.chunk(3, -1), *x.unbind(-1), x.select(2, 1), *x.split(2, -1)), _SQUARE
    ),
    "writes": _case(
        lambda x: (
            x.slice_scatter(x[:2] * 2, 0, 0, 2),
            x.slice_scatter(x[:-1] * 2, 0, 1),
            _written_to_the_end(x),
            x.slice_scatter(x[-2:] * 2, 0, -2),
            x.select_scatter(x[0] * 2, 0, -1),
            x.select_scatter(x[:, 0], 1, 1),
        ),
        _FLAT,
    ),
    "diagonals": _case(lambda x: (x.diagonal(), x.tril(), x.triu(1), x.diagonal(1)), ("n", "n")),
    "diagonals_of_sizes": _case(lambda x: (x.triu(1 - x.shape[0] // 2), x.tril(x.shape[0] - 3)), ("n", "n")),
    "order": _case(
        lambda x: (x.flip(0), x.flip((0, 2)), x.roll(1, 0), x.roll((2, -1), (0, 1)), x.roll(3)), _SQUARE
    ),
    "repeat": _case(
        lambda x: (
            x.repeat(2, 1),
            x.repeat(1, 3).sum(1),
            x[None].repeat(2, 1, 2).flatten(),
            x[:1].repeat(x.shape[0], 1),
            x.repeat_interleave(2, 0),
            torch.arange(3.0).repeat(x.shape[0]),
            x.repeat(x.shape[1], 1),
        ),
        _FLAT,
    ),
    "pads": _case(
        lambda x: (
            F.pad(x, (1, 2)),
            F.pad(x, (1, 1, 2, 3), value=4.0),
            F.pad(x, (-1, 0)),
            F.pad(x, (0, 0, 0, x.shape[0])),
        ),
        _FLAT,
    ),
    "edges": _case(
        lambda x: (F.pad(x, (1, 2), mode="reflect"), F.pad(x, (2, 1), mode="replicate")), (2, "n", "m")
    ),
    "edges of planes": _case(
        lambda x: (F.pad(x, (1, 2, 0, 1), mode="reflect"), F.pad(x, (2, 1, 1, 1), mode="replicate")),
        (2, "n", 3, "m"),
    ),
    "edges of volumes": _case(
        lambda x: (
            F.pad(x, (1, 1, 0, 1, 1, 0), mode="reflect"),
            F.pad(x, (1, 1, 1, 1, 0, 1), mode="replicate"),
        ),
        (1, 2, "n", 3, "m"),
    ),
    "bits": _case(
        lambda x: (x.view(torch.int32), x[:, :, :2].contiguous().view(torch.float64)), ("n", "m", 2)
    ),
    "pairs": _case(lambda x: torch.view_as_real(torch.view_as_complex(x)), ("n", "m", 2)),
    "complex parts": _case(
        lambda x: (x.real, x.imag, x.conj().resolve_conj(), torch.complex(x.real, x.imag)),
        _FLAT,
        draw=_complex,
    ),
    "windows": _case(lambda x: (x.unfold(0, 2, 1), x.unfold(1, 2, 2)), _FLAT),
    "numbers from nothing": _case(
        lambda x: (
            torch.arange(x.shape[0]),
            torch.arange(x.shape[0], 0, -1),
            torch.ones(x.shape[0], 2),
            torch.eye(x.shape[0]),
            torch.eye(x.shape[0], x.shape[1]),
            torch.full((x.shape[0],), x.shape[1]),
            torch.zeros_like(x),
            torch.linspace(0, 1, 5) * x.shape[0],
        ),
        _FLAT,
    ),
    "index": _case(
        lambda x, i: (
            x[i],
            x.index_select(0, i),
            x[i - 3],
            x[:, None][i, 0],
            torch.take(x, i - 3),
            F.embedding(i, x),
        ),
        ("n", "m"),
        ("k",),
        draw=_indices,
    ),
    "gather": _case(lambda x, i: (x.gather(0, i), x.gather(1, i % 2)), ("n", 2), ("n", 2), draw=_indices),
    "scatter": _case(_scatter_add, ("n",), ("n",)),
    "put": _case(_put, ("n", 4), ("n",)),
    "convolution": _case(
        lambda x: (
            F.conv2d(x, torch.ones(4, 2, 3, 3), torch.arange(4.0), padding=1),
            F.conv2d(x, torch.ones(2, 1, 2, 3), stride=2, groups=2),
            F.conv_transpose2d(x, torch.ones(2, 3, 3, 3), stride=2, padding=1),
        ),
        ("n", 2, "m", "k"),
    ),
    "convolution of a line": _case(
        lambda x: F.conv1d(x, torch.ones(4, 2, 2), padding=2, dilation=2), ("n", 2, "m")
    ),
    "pools": _case(
        lambda x: (
            *F.max_pool2d(x, 2, 1, padding=1, return_indices=True),
            *F.max_pool2d(x, 3, 1, padding=1, return_indices=True),
            F.avg_pool2d(x, 2),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            F.avg_pool2d(x, 2, divisor_override=3),
            F.adaptive_avg_pool2d(x, 2),
            x.amax((2, 3)),
        ),
        ("n", 2, "m", "k"),
    ),
    "pools of a line": _case(
        lambda x: (F.avg_pool1d(x, 2), F.avg_pool1d(x, 3, 2, 1, count_include_pad=False)), ("n", 2, "m")
    ),
    "pools of volumes": _case(
        lambda x: (
            *F.max_pool3d(x, 2, 1, return_indices=True),
            F.avg_pool3d(x, 2, 1, 1),
            F.adaptive_avg_pool3d(x, 2),
        ),
        (1, 2, "n", "m", 3),
    ),
    "resampling": _case(
        lambda x: (
            F.interpolate(x, scale_factor=2.0, mode="bilinear"),
            F.interpolate(x, scale_factor=2, mode="nearest"),
            F.interpolate(x, (5, 7), mode="bilinear"),
        ),
        ("n", 2, "m", "k"),
    ),
    "fourier": _case(
        lambda x: (
            torch.fft.rfft(x, dim=1).abs(),
            torch.fft.fft(x, dim=-1).abs(),
            torch.fft.irfft(torch.fft.rfft(x)),
        ),
        ("n", 4, 6),
    ),
    "fourier along padded dims": _case(
        lambda x: (
            torch.view_as_real(torch.fft.fft(x, dim=1)),
            torch.fft.rfft(x, dim=1, norm="ortho").abs(),
            torch.fft.irfft(torch.fft.rfft(x, dim=1), n=x.shape[1], dim=1),
            torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[-2:]),
            torch.fft.irfft2(torch.fft.rfft2(x, dim=(2, 1)), s=(6, x.shape[1]), dim=(2, 1), norm="forward"),
            torch.fft.ifft(torch.complex(x, x.sin()), dim=1, norm="ortho").imag,
        ),
        (2, "n", 6),
    ),
    "scan": _case(_scan, ("n", 3)),
    "scan from the back": _case(_scan_back, ("n", 3)),
    "map": _case(_mapped, ("n", "m")),
    "branch": _case(_branch, ("n", "m")),
    "loop": _case(_loop, ("n", "m")),
}
