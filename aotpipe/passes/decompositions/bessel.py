"""Bessel functions of orders 0 and 1, by the rational and Chebyshev approximations of S. L. Moshier's Cephes.

The coefficients and the ranges are those of ATen's `native/Math.h`, so that the values are eager's to a few
ulps in float32 and in float64. Spherical ones are in `pointwise`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from aotpipe.passes.decompositions.entries import Decomposition, Table, floating, polynomial

aten = torch.ops.aten

_PP0: Final = (
    0.0007969367292973471, 0.08283523921074408, 1.239533716464143, 5.447250030587687, 8.74716500199817,
    5.303240382353949, 1.0,
)  # fmt: skip
_PQ0: Final = (
    0.0009244088105588637, 0.08562884743544745, 1.2535274390105895, 5.470977403304171, 8.761908832370695,
    5.306052882353947, 1.0,
)  # fmt: skip
_QP0: Final = (
    -0.011366383889846916, -1.2825271867050931, -19.553954425773597, -93.20601521237683,
    -177.68116798048806, -147.07750515495118, -51.41053267665993, -6.050143506007285,
)  # fmt: skip
_QQ0: Final = (
    64.3178256118178, 856.4300259769806, 3882.4018360540163, 7240.467741956525, 5930.727011873169,
    2062.0933166032783, 242.0057402402914,
)  # fmt: skip
_RP0: Final = (
    -4794432209.782018, 1956174919465.5657, -249248344360967.72, 9708622510473064.0,
)  # fmt: skip
_RQ0: Final = (
    499.563147152651, 173785.4016763747, 48440965.83399621, 11185553704.535683, 2112775201154.892,
    310518229857422.56, 3.1812195594320496e+16, 1.7108629408104315e+18,
)  # fmt: skip
_YP0: Final = (
    15592.436785523574, -14663929.59039716, 5435264770.518765, -982136065717.9115, 87590639439536.7,
    -3466283033847297.0, 4.4273326857256984e+16, -1.8495080043698668e+16,
)  # fmt: skip
_YQ0: Final = (
    1041.2835366425984, 626107.330137135, 268919633.39381415, 86400248710.3935, 20297961275010.555,
    3171577528429750.5, 2.5059625617265306e+17,
)  # fmt: skip
_PP1: Final = (
    0.0007621256162081731, 0.07313970569409176, 1.1271960812968493, 5.112079511468076, 8.424045901417724,
    5.214515986823615, 1.0,
)  # fmt: skip
_PQ1: Final = (
    0.0005713231280725487, 0.06884559087544954, 1.105142326340617, 5.073863861286015, 8.399855543276042,
    5.209828486823619, 1.0,
)  # fmt: skip
_QP1: Final = (
    0.05108625947501766, 4.982138729512334, 75.82382841325453, 366.7796093601508, 710.8563049989261,
    597.4896124006136, 211.68875710057213, 25.207020585802372,
)  # fmt: skip
_QQ1: Final = (
    74.23732770356752, 1056.4488603826283, 4986.410583376536, 9562.318924047562, 7997.041604473507,
    2826.1927851763908, 336.0936078106983,
)  # fmt: skip
_RP1: Final = (
    -899971225.7055594, 452228297998.19403, -72749424522181.83, 3682957328638529.0,
)  # fmt: skip
_RQ1: Final = (
    620.8364781180543, 256987.25675774884, 83514679.14319493, 22151159547.97925, 4749141220799.914,
    784369607876235.9, 8.952223361846274e+16, 5.322786203326801e+18,
)  # fmt: skip
_YP1: Final = (
    1263204747.9017804, -647355876379.1603, 114509511541823.73, -8127702555013251.0,
    2.024394757135949e+17, -7.788771962659501e+17,
)  # fmt: skip
_YQ1: Final = (
    594.3015923461282, 235564.09294306856, 73481194.44597217, 18760131610.870617, 3882312774962.3857,
    620557727146953.8, 6.871410873553005e+16, 3.9727060811656064e+18,
)  # fmt: skip
_I0_NEAR: Final = (
    -4.4153416464793395e-18, 3.3307945188222384e-17, -2.431279846547955e-16, 1.715391285555133e-15,
    -1.1685332877993451e-14, 7.676185498604936e-14, -4.856446783111929e-13, 2.95505266312964e-12,
    -1.726826291441556e-11, 9.675809035373237e-11, -5.189795601635263e-10, 2.6598237246823866e-09,
    -1.300025009986248e-08, 6.046995022541919e-08, -2.670793853940612e-07, 1.1173875391201037e-06,
    -4.4167383584587505e-06, 1.6448448070728896e-05, -5.754195010082104e-05, 0.00018850288509584165,
    -0.0005763755745385824, 0.0016394756169413357, -0.004324309995050576, 0.010546460394594998,
    -0.02373741480589947, 0.04930528423967071, -0.09490109704804764, 0.17162090152220877,
    -0.3046826723431984, 0.6767952744094761,
)  # fmt: skip
_I0_FAR: Final = (
    -7.233180487874754e-18, -4.830504485944182e-18, 4.46562142029676e-17, 3.461222867697461e-17,
    -2.8276239805165836e-16, -3.425485619677219e-16, 1.7725601330565263e-15, 3.8116806693526224e-15,
    -9.554846698828307e-15, -4.150569347287222e-14, 1.54008621752141e-14, 3.8527783827421426e-13,
    7.180124451383666e-13, -1.7941785315068062e-12, -1.3215811840447713e-11, -3.1499165279632416e-11,
    1.1889147107846439e-11, 4.94060238822497e-10, 3.3962320257083865e-09, 2.266668990498178e-08,
    2.0489185894690638e-07, 2.8913705208347567e-06, 6.889758346916825e-05, 0.0033691164782556943,
    0.8044904110141088,
)  # fmt: skip
_I1_NEAR: Final = (
    2.7779141127610464e-18, -2.111421214358166e-17, 1.5536319577362005e-16, -1.1055969477353862e-15,
    7.600684294735408e-15, -5.042185504727912e-14, 3.223793365945575e-13, -1.9839743977649436e-12,
    1.1736186298890901e-11, -6.663489723502027e-11, 3.625590281552117e-10, -1.8872497517228294e-09,
    9.381537386495773e-09, -4.445059128796328e-08, 2.0032947535521353e-07, -8.568720264695455e-07,
    3.4702513081376785e-06, -1.3273163656039436e-05, 4.781565107550054e-05, -0.00016176081582589674,
    0.0005122859561685758, -0.0015135724506312532, 0.004156422944312888, -0.010564084894626197,
    0.024726449030626516, -0.05294598120809499, 0.1026436586898471, -0.17641651835783406,
    0.25258718644363365,
)  # fmt: skip
_I1_FAR: Final = (
    7.517296310842105e-18, 4.414348323071708e-18, -4.6503053684893586e-17, -3.209525921993424e-17,
    2.96262899764595e-16, 3.3082023109209285e-16, -1.8803547755107825e-15, -3.8144030724370075e-15,
    1.0420276984128802e-14, 4.272440016711951e-14, -2.1015418427726643e-14, -4.0835511110921974e-13,
    -7.198551776245908e-13, 2.0356285441470896e-12, 1.4125807436613782e-11, 3.2526035830154884e-11,
    -1.8974958123505413e-11, -5.589743462196584e-10, -3.835380385964237e-09, -2.6314688468895196e-08,
    -2.512236237870209e-07, -3.882564808877691e-06, -0.00011058893876262371, -0.009761097491361469,
    0.7785762350182801,
)  # fmt: skip
_K0_NEAR: Final = (
    1.374465435613523e-16, 4.25981614279661e-14, 1.0349695257633842e-11, 1.904516377220209e-09,
    2.5347910790261494e-07, 2.286212103119452e-05, 0.001264615411446926, 0.0359799365153615,
    0.3442898999246285, -0.5353273932339028,
)  # fmt: skip
_K0_FAR: Final = (
    5.300433772686263e-18, -1.6475804301524212e-17, 5.2103915050390274e-17, -1.678231096805412e-16,
    5.512055978524319e-16, -1.848593377343779e-15, 6.3400764774050706e-15, -2.2275133269916698e-14,
    8.032890775363575e-14, -2.9800969231727303e-13, 1.140340588208475e-12, -4.514597883373944e-12,
    1.8559491149547177e-11, -7.957489244477107e-11, 3.577397281400301e-10, -1.69753450938906e-09,
    8.574034017414225e-09, -4.660489897687948e-08, 2.766813639445015e-07, -1.8317555227191195e-06,
    1.39498137188765e-05, -0.00012849549581627802, 0.0015698838857300533, -0.0314481013119645,
    2.4403030820659555,
)  # fmt: skip
_K1_NEAR: Final = (
    -7.023863479386288e-18, -2.427449850519366e-15, -6.666901694199329e-13, -1.4114883926335278e-10,
    -2.213387630734726e-08, -2.4334061415659684e-06, -0.0001730288957513052, -0.006975723859639864,
    -0.12261118082265715, -0.3531559607765449, 1.5253002273389478,
)  # fmt: skip
_K1_FAR: Final = (
    -5.756744483665017e-18, 1.7940508731475592e-17, -5.689462558442859e-17, 1.838093544366639e-16,
    -6.057047248373319e-16, 2.038703165624334e-15, -7.019837090418314e-15, 2.4771544244813043e-14,
    -8.976705182324994e-14, 3.3484196660784293e-13, -1.2891739609510289e-12, 5.13963967348173e-12,
    -2.1299678384275683e-11, 9.218315187605006e-11, -4.1903547593418965e-10, 2.015049755197033e-09,
    -1.0345762465678097e-08, 5.7410841254500495e-08, -3.5019606030878126e-07, 2.406484947837217e-06,
    -1.936197974166083e-05, 0.00019521551847135162, -0.002857816859622779, 0.10392373657681724,
    2.7206261904844427,
)  # fmt: skip


_ORDERS: Final = ((_PP0, _PQ0, _QP0, _QQ0), (_PP1, _PQ1, _QP1, _QQ1))
"""What is far from 0, for orders 0 and 1."""
_ROOTS: Final = (
    (5.78318596294678452118, 30.4712623436620863991),
    (14.6819706421238932572, 49.2184563216946036703),
)
"""The squares of the first two roots of J0 and J1."""


def _chebyshev(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """A sum of Chebyshev polynomials by Clenshaw's rule; the highest degree comes first."""
    before, last, total = torch.zeros_like(x), torch.zeros_like(x), torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        before, last = last, total
        total = x * last - before + coefficient
    return 0.5 * (total - before)


def _far(x: Tensor, order: int, *, second: bool) -> Tensor:
    """J, or Y, of what is beyond 5."""
    pp, pq, qp, qq = _ORDERS[order]
    inverse = 5.0 / x
    square = inverse * inverse if order else 25.0 / (x * x)
    p = polynomial(square, pp) / polynomial(square, pq)
    q = inverse * (polynomial(square, qp) / polynomial(square, qq))
    phase = x - math.pi * (0.75 if order else 0.25)
    wave = (
        p * torch.sin(phase) + q * torch.cos(phase) if second else p * torch.cos(phase) - q * torch.sin(phase)
    )
    return wave * math.sqrt(2 / math.pi) / torch.sqrt(x)


def _first_kind(x: Tensor, order: int) -> Tensor:
    size = x.abs()
    is_near = size <= 5.0
    near = torch.where(is_near, size, 0.0)
    square = near * near
    first, second = _ROOTS[order]
    over, under = ((_RP0, _RQ0), (_RP1, _RQ1))[order]
    ratio = polynomial(square, over) / polynomial(square, under)
    value = (square - first) * (square - second) * ratio
    value = value * near if order else torch.where(near < 1e-5, 1.0 - square / 4.0, value)
    value = torch.where(is_near, value, _far(torch.where(is_near, 6.0, size), order, second=False))
    return torch.where(x < 0, -value, value) if order else value


def j0(x: Tensor) -> Tensor:
    return _first_kind(x, 0)


def j1(x: Tensor) -> Tensor:
    return _first_kind(x, 1)


def _second_kind(x: Tensor, order: int) -> Tensor:
    is_near = x <= 5.0
    near = torch.where(is_near & (x > 0), x, 1.0)
    square = near * near
    over, under = ((_YP0, _YQ0), (_YP1, _YQ1))[order]
    ratio = polynomial(square, over) / polynomial(square, under)
    log = torch.log(near)
    if order:
        value = near * ratio + 2 / math.pi * (j1(near) * log - 1.0 / near)
    else:
        value = ratio + 2 / math.pi * log * j0(near)
    value = torch.where(is_near, value, _far(torch.where(is_near, 6.0, x), order, second=True))
    return torch.where(x == 0, -math.inf, torch.where(x < 0, math.nan, value))


def y0(x: Tensor) -> Tensor:
    return _second_kind(x, 0)


def y1(x: Tensor) -> Tensor:
    return _second_kind(x, 1)


def _modified(x: Tensor, near: Sequence[float], far: Sequence[float], *, odd: bool) -> Tensor:
    size = x.abs()
    is_near = size <= 8.0
    close = torch.where(is_near, size, 1.0)
    inner = _chebyshev(close / 2.0 - 2.0, near) * (close if odd else 1.0)
    distant = torch.where(is_near, 9.0, size)
    outer = _chebyshev(32.0 / distant - 2.0, far)
    growth = torch.exp(size)
    value = torch.where(is_near, inner * growth, growth * outer / torch.sqrt(distant))
    return torch.where(x < 0, -value, value) if odd else value


def i0(x: Tensor) -> Tensor:
    return _modified(x, _I0_NEAR, _I0_FAR, odd=False)


def i1(x: Tensor) -> Tensor:
    return _modified(x, _I1_NEAR, _I1_FAR, odd=True)


def _modified_second(x: Tensor, order: int, *, scaled: bool) -> Tensor:
    is_near = x <= 2.0
    near = torch.where(is_near & (x > 0), x, 1.0)
    if order:
        inner = torch.log(0.5 * near) * i1(near) + _chebyshev(near * near - 2.0, _K1_NEAR) / near
    else:
        inner = _chebyshev(near * near - 2.0, _K0_NEAR) - torch.log(0.5 * near) * i0(near)
    distant = torch.where(is_near, 3.0, x)
    outer = _chebyshev(8.0 / distant - 2.0, _K1_FAR if order else _K0_FAR)
    if scaled:
        inner = inner * torch.exp(near)
    else:
        outer = torch.exp(-distant) * outer
    value = torch.where(is_near, inner, outer / torch.sqrt(distant))
    return torch.where(x == 0, math.inf, torch.where(x < 0, math.nan, value))


def k0(x: Tensor, *, scaled: bool = False) -> Tensor:
    return _modified_second(x, 0, scaled=scaled)


def k1(x: Tensor, *, scaled: bool = False) -> Tensor:
    return _modified_second(x, 1, scaled=scaled)


def _of_floats(function: Callable[[Tensor], Tensor]) -> Decomposition:
    return lambda x: function(floating(x))


DECOMPOSITIONS: Table = {
    aten.special_bessel_j0.default: _of_floats(j0),
    aten.special_bessel_j1.default: _of_floats(j1),
    aten.special_bessel_y0.default: _of_floats(y0),
    aten.special_bessel_y1.default: _of_floats(y1),
    aten.special_modified_bessel_i0.default: _of_floats(i0),
    aten.special_modified_bessel_i1.default: _of_floats(i1),
    aten.special_modified_bessel_k0.default: _of_floats(k0),
    aten.special_modified_bessel_k1.default: _of_floats(k1),
    aten.special_scaled_modified_bessel_k0.default: _of_floats(lambda x: k0(x, scaled=True)),
    aten.special_scaled_modified_bessel_k1.default: _of_floats(lambda x: k1(x, scaled=True)),
}
