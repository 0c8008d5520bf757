"""Special functions, to float32's accuracy; float64 has no lowering.

Formulas: Cephes (S. L. Moshier) for the Bessel functions and digamma; C. Lanczos for log gamma (coefficients
of P. Godfrey, g = 7, n = 9); M. Giles, "Approximating the erfinv function" (2010); erfc by W. H. Press and
others, "Numerical Recipes", 6.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch

from aotpipe.backends.iree.decompositions.transcendental import polynomial, single
from aotpipe.passes.decompositions.entries import Decomposition, Table
from aotpipe.passes.decompositions.pointwise import sum_of_powers

aten = torch.ops.aten


def _single(function: Callable[[torch.Tensor], torch.Tensor]) -> Decomposition:
    """A function of float32 for whatever dtype eager takes but float64 and complex numbers.

    The compiler takes minutes over a long function of a lone scalar: it is computed as one of two.
    """
    return single(lambda x: function(x) if x.dim() else function(x.reshape(1).expand(2))[0])


def _chebyshev(x: torch.Tensor, coefficients: tuple[float, ...]) -> torch.Tensor:
    """A Chebyshev series at x / 2; the highest order comes first."""
    before, now, last = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
    for coefficient in coefficients:
        before, now, last = now, x * now - before + coefficient, before
    return 0.5 * (now - last)


def acosh(x: torch.Tensor) -> torch.Tensor:
    over = x - 1
    near = torch.log1p(over + torch.sqrt(over) * torch.sqrt(over + 2))
    far = torch.log(x) + math.log(2)
    return torch.where(x < 1, math.nan, torch.where(x > 1e6, far, near))


def erfc(x: torch.Tensor) -> torch.Tensor:
    size = x.abs()
    tail = torch.exp(-size * size) * _scaled_erfc(size)
    tail = torch.where(size > 10.1, 0.0, tail)
    return torch.where(size < 0.5, 1 - torch.erf(x), torch.where(x < 0, 2 - tail, tail))


# exp(x^2) erfc(x) = t * P(t) with t = 1 / (1 + x / 2).
_ERFC: Final = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196,
    1.00002368, -1.26551223,
)  # fmt: skip


def _scaled_erfc(x: torch.Tensor) -> torch.Tensor:
    """exp(x^2) erfc(x) for x >= 0, relative error below 1.2e-7."""
    t = 1 / (1 + 0.5 * x)
    return t * torch.exp(polynomial(t, _ERFC))


_ERFINV_NEAR: Final = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
    -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_FAR: Final = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
    0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def erfinv(x: torch.Tensor) -> torch.Tensor:
    w = -torch.log1p(-x * x)
    near = polynomial(w - 2.5, _ERFINV_NEAR)
    far = polynomial(torch.sqrt(w) - 3, _ERFINV_FAR)
    edge = torch.where(x.abs() == 1, x * math.inf, torch.where(w < 5, near, far) * x)
    return torch.where(x.abs() > 1, math.nan, edge)


_LANCZOS: Final = (
    676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
    -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


def lgamma(x: torch.Tensor) -> torch.Tensor:
    # Near its zeros at 1 and 2 the function is the logarithm of something close to 1.
    reflected = x < 0.5
    z = torch.where(reflected, -x, x - 1)
    total = torch.full_like(x, 0.99999999999980993)
    for index, coefficient in enumerate(_LANCZOS):
        total = total + coefficient / (z + (index + 1))
    t = z + 7.5
    right = 0.5 * math.log(2 * math.pi) + (z + 0.5) * torch.log(t) - t + torch.log(total)
    rest = x - torch.round(x)
    left = math.log(math.pi) - torch.log(torch.sin(math.pi * rest).abs()) - right
    out = torch.where(reflected, left, right)
    out = torch.where((x <= 0) & (torch.floor(x) == x), math.inf, out)
    return torch.where(x.abs() == math.inf, math.inf, out)


_DIGAMMA: Final = (
    8.33333333333333333333e-2, -2.10927960927960927961e-2, 7.57575757575757575758e-3,
    -4.16666666666666666667e-3, 3.96825396825396825397e-3, -8.33333333333333333333e-3,
    8.33333333333333333333e-2,
)  # fmt: skip


def digamma(x: torch.Tensor) -> torch.Tensor:
    reflected = x < 0
    y = torch.where(reflected, 1 - x, x)
    low = y < 10
    total = torch.where(low, -sum_of_powers(y, 10, 1), 0.0)
    y = torch.where(low, y + 10, y)
    z = 1 / (y * y)
    value = total + torch.log(y) - 0.5 / y - z * polynomial(z, _DIGAMMA)
    rest = x - torch.round(x)
    value = torch.where(reflected, value - math.pi / torch.tan(math.pi * rest), value)
    value = torch.where((x < 0) & (rest == 0), math.nan, value)
    return torch.where(x == 0, torch.copysign(torch.full_like(x, math.inf), -x), value)


_I0_NEAR: Final = (
    -1.30002500998624804212e-8, 6.04699502254191894932e-8, -2.67079385394061173391e-7,
    1.11738753912010371815e-6, -4.41673835845875056359e-6, 1.64484480707288970893e-5,
    -5.75419501008210370398e-5, 1.88502885095841655729e-4, -5.76375574538582365885e-4,
    1.63947561694133579842e-3, -4.32430999505057594430e-3, 1.05464603945949983183e-2,
    -2.37374148058994688156e-2, 4.93052842396707084878e-2, -9.49010970480476444210e-2,
    1.71620901522208775349e-1, -3.04682672343198398683e-1, 6.76795274409476084995e-1,
)  # fmt: skip
_I0_FAR: Final = (
    3.39623202570838634515e-9, 2.26666899049817806459e-8, 2.04891858946906374183e-7,
    2.89137052083475648297e-6, 6.88975834691682398426e-5, 3.36911647825569408990e-3,
    8.04490411014108831608e-1,
)  # fmt: skip
_I1_NEAR: Final = (
    9.38153738649577178388e-9, -4.44505912879632808065e-8, 2.00329475355213526229e-7,
    -8.56872026469545474066e-7, 3.47025130813767847674e-6, -1.32731636560394358279e-5,
    4.78156510755005422638e-5, -1.61760815825896745588e-4, 5.12285956168575772895e-4,
    -1.51357245063125314899e-3, 4.15642294431288815669e-3, -1.05640848946261981558e-2,
    2.47264490306265168283e-2, -5.29459812080949914269e-2, 1.02643658689847095384e-1,
    -1.76416518357834055153e-1, 2.52587186443633654823e-1,
)  # fmt: skip
_I1_FAR: Final = (
    -3.83538038596423702205e-9, -2.63146884688951950684e-8, -2.51223623787020892529e-7,
    -3.88256480887769039346e-6, -1.10588938762623716291e-4, -9.76109749136146840777e-3,
    7.78576235018280120474e-1,
)  # fmt: skip


def i0e(x: torch.Tensor) -> torch.Tensor:
    size = x.abs()
    far = torch.clamp(size, min=8)
    near = _chebyshev(torch.clamp(size, max=8) / 2 - 2, _I0_NEAR)
    return torch.where(size <= 8, near, _chebyshev(32 / far - 2, _I0_FAR) / torch.sqrt(far))


def i1e(x: torch.Tensor) -> torch.Tensor:
    size = x.abs()
    far = torch.clamp(size, min=8)
    near = _chebyshev(torch.clamp(size, max=8) / 2 - 2, _I1_NEAR) * size
    value = torch.where(size <= 8, near, _chebyshev(32 / far - 2, _I1_FAR) / torch.sqrt(far))
    return torch.where(x < 0, -value, value)


def i0(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x.abs()) * i0e(x)


def i1(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x.abs()) * i1e(x)


def erfcx(x: torch.Tensor) -> torch.Tensor:
    size = x.abs()
    scaled = _scaled_erfc(size)
    near = torch.exp(x * x) * (1 - torch.erf(x))
    return torch.where(size < 0.5, near, torch.where(x < 0, 2 * torch.exp(x * x) - scaled, scaled))


DECOMPOSITIONS: Table = {
    aten.acosh.default: _single(acosh),
    aten.erfc.default: _single(erfc),
    aten.erfinv.default: _single(erfinv),
    aten.lgamma.default: _single(lgamma),
    aten.digamma.default: _single(digamma),
    aten.i0.default: _single(i0),
    aten.special_i0e.default: _single(i0e),
    aten.special_i1.default: _single(i1),
    aten.special_i1e.default: _single(i1e),
    aten.special_erfcx.default: _single(erfcx),
}
