"""The Hurwitz zeta function, the normal distribution's quantiles and Airy's function Ai, as in Cephes.

The coefficients and the ranges are those of ATen's `native/Math.h` (S. L. Moshier's Cephes), so that the
values are eager's to a few ulps in float32 and in float64.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop_op  # the public one starts a compiler

from aotpipe.passes.decompositions.entries import Table, Value, empty, floating, polynomial, promoted, widened

aten = torch.ops.aten

_BERNOULLI: Final = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10,
    -2.950130727918164224e12, 1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17,
    -7.1661652561756670113e18,
)  # fmt: skip
"""(2 i)! over the Bernoulli numbers B(2 i)."""
_SUMMED: Final = 9
"""How many terms of the zeta function are summed at least, and beyond which base none has to be."""

_MIDDLE_OVER: Final = (
    -59.9633501014107895267, 98.0010754185999661536, -56.6762857469070293439, 13.9312609387279679503,
    -1.23916583867381258016,
)  # fmt: skip
_MIDDLE_UNDER: Final = (
    1.0, 1.95448858338141759834, 4.67627912898881538453, 86.3602421390890590575, -225.462687854119370527,
    200.260212380060660359, -82.0372256168333339912, 15.9056225126211695515, -1.18331621121330003142,
)  # fmt: skip
_TAIL_OVER: Final = (
    4.05544892305962419923, 31.5251094599893866154, 57.1628192246421288162, 44.0805073893200834700,
    14.6849561928858024014, 2.18663306850790267539, -0.140256079171354495875, -0.0350424626827848203418,
    -8.57456785154685413611e-4,
)  # fmt: skip
_TAIL_UNDER: Final = (
    1.0, 15.7799883256466749731, 45.3907635128879210584, 41.3172038254672030440, 15.0425385692907503408,
    2.50464946208309415979, -0.142182922854787788574, -0.0380806407691578277194, -9.33259480895457427372e-4,
)  # fmt: skip
_FAR_OVER: Final = (
    3.23774891776946035970, 6.91522889068984211695, 3.93881025292474443415, 1.33303460815807542389,
    0.201485389549179081538, 0.0123716634817820021358, 3.01581553508235416007e-4, 2.65806974686737550832e-6,
    6.23974539184983293730e-9,
)  # fmt: skip
_FAR_UNDER: Final = (
    1.0, 6.02427039364742014255, 3.67983563856160859403, 1.37702099489081330271, 0.216236993594496635890,
    0.0134204006088543189037, 3.28014464682127739104e-4, 2.89247864745380683936e-6,
    6.79019408009981274425e-9,
)  # fmt: skip
_TAIL: Final = 0.13533528323661269189
"""exp(-2): what is nearer to 0 or 1 is in a tail."""

_AN: Final = (
    0.346538101525629032477, 12.0075952739645805542, 76.2796053615234516538, 168.089224934630576269,
    159.756391350164413639, 70.5360906840444183113, 14.0264691163389668864, 0.999999999999999995305,
)  # fmt: skip
_AD: Final = (
    0.567594532638770212846, 14.7562562584847203173, 84.5138970141474626562, 177.318088145400459522,
    164.234692871529701831, 71.4778400825575695274, 14.0959135607834029598, 1.00000000000000000047,
)  # fmt: skip
_AFN: Final = (
    -0.131696323418331795333, -0.626456544431912369773, -0.693158036036933542233, -0.279779981545119124951,
    -0.0491900132609500318020, -0.00406265923594885404393, -1.59276496239262096340e-4,
    -2.77649108155232920844e-6, -1.67787698489114633780e-8,
)  # fmt: skip
_AFD: Final = (
    13.3560420706553243746, 32.6825032795224613948, 26.7367040941499554804, 9.18707402907259625840,
    1.47529146771666414581, 0.115687173795188044134, 0.00440291641615211203805, 7.54720348287414296618e-5,
    4.51850092970580378464e-7,
)  # fmt: skip
_AGN: Final = (
    0.0197339932091685679179, 0.391103029615688277255, 1.06579897599595591108, 0.939169229816650230044,
    0.351465656105547619242, 0.0633888919628925490927, 0.00585804113048388458567, 2.82851600836737019778e-4,
    6.98793669997260967291e-6, 8.11789239554389293311e-8, 3.41551784765923618484e-10,
)  # fmt: skip
_AGD: Final = (
    9.30892908077441974853, 19.8352928718312140417, 15.5646628932864612953, 5.47686069422975497931,
    0.954293611618961883998, 0.0864580826352392193095, 0.00412656523824222607191, 1.01259085116509135510e-4,
    1.17166733214413521882e-6, 4.91834570062930015649e-9,
)  # fmt: skip
_AIRY_NEAR: Final = 2.09
_AIRY_ZERO: Final = 103.892
_AIRY_TERMS: Final = 18
"""Of the series at 0, to the precision of float64 within `_AIRY_NEAR`."""


def zeta(x: Value, q: Value) -> Any:
    """The sum of `(q + i) ** -x` for every i from 0, by Euler and Maclaurin behind its first terms."""
    power, base = torch.broadcast_tensors(*map(floating, promoted(x, q)))
    dtype = power.dtype
    if empty(power):
        return power.clone()
    power, base = widened(power, base)

    def goes_on(i: Tensor, a: Tensor, term: Tensor, total: Tensor, lost: Tensor, power: Tensor) -> Tensor:
        return ((i < _SUMMED) | ((a <= _SUMMED) & (a + 1 != a))).any()

    def body(
        i: Tensor, a: Tensor, term: Tensor, total: Tensor, lost: Tensor, power: Tensor
    ) -> tuple[Tensor, ...]:
        adds = (i < _SUMMED) | (a <= _SUMMED)
        following = a + 1
        value = torch.pow(following, -power)
        more = total + value
        # Terms of bases around 0 cancel, and what their sum rounded away is left.
        share = more - total
        rounded = (total - (more - share)) + (value - share)
        return (
            i + 1,
            torch.where(adds, following, a),
            torch.where(adds, value, term),
            torch.where(adds, more, total),
            torch.where(adds, lost + rounded, lost),
        )

    start: Any = (
        torch.zeros((), dtype=torch.int64, device=power.device),
        base.clone(),
        torch.zeros_like(power),
        torch.pow(base, -power),
        torch.zeros_like(power),
    )
    _, last, term, total, lost = while_loop_op(goes_on, body, start, (power.clone(),))
    total = torch.where(lost.isfinite(), total + lost, total)
    # What is left is less than the precision, and its factors may overflow.
    is_done = term.abs() < torch.finfo(total.dtype).eps / 4 * total.abs()
    rest = term * last / (power - 1.0) - 0.5 * term
    factor = term
    for index, divisor in enumerate(_BERNOULLI):
        factor = factor * ((power + 2.0 * index) / last)
        rest = rest + factor / divisor
        factor = factor * ((power + (2.0 * index + 1.0)) / last)
    value = torch.where(is_done, total, total + rest)
    is_whole = base == base.floor()
    has_none = (power < 1) | ((base <= 0) & ~is_whole & (power != power.floor()))
    value = torch.where(has_none, math.nan, value)
    return torch.where((power == 1) | (~(power < 1) & (base <= 0) & is_whole), math.inf, value).to(dtype)


def ndtri(given: Tensor) -> Tensor:
    """The argument at which the normal distribution function has a value; none outside of 0 to 1."""
    given = floating(given)
    y = widened(given)[0]
    is_upper = y > 1.0 - _TAIL
    lower = torch.where(is_upper, 1.0 - y, y)
    is_middle = lower > _TAIL
    centred = torch.where(is_middle, lower - 0.5, 0.0)
    square = centred * centred
    ratio = polynomial(square, _MIDDLE_OVER) / polynomial(square, _MIDDLE_UNDER)
    middle = (centred + centred * (square * ratio)) * 2.50662827463100050242
    is_tail = (lower > 0) & ~is_middle
    x = torch.sqrt(-2.0 * torch.log(torch.where(is_tail, lower, _TAIL)))
    z = 1.0 / x
    near = z * polynomial(z, _TAIL_OVER) / polynomial(z, _TAIL_UNDER)
    far = z * polynomial(z, _FAR_OVER) / polynomial(z, _FAR_UNDER)
    size = x - torch.log(x) / x - torch.where(x < 8.0, near, far)
    value = torch.where(is_middle, middle, torch.where(is_upper, size, -size))
    value = torch.where(y == 0, -math.inf, torch.where(y == 1, math.inf, value))
    return torch.where((y >= 0) & (y <= 1), value, math.nan).to(given.dtype)


def airy_ai(given: Tensor) -> Tensor:
    x = floating(given)
    # At the infinities eager's is no number.
    value = torch.where(x >= _AIRY_NEAR, _airy_far(x), _airy_near(x))
    value = torch.where(x < -_AIRY_NEAR, _airy_wave(x), value)
    return torch.where(x.isinf(), math.nan, torch.where(x > _AIRY_ZERO, 0.0, value))


def _airy_wave(x: Tensor) -> Tensor:
    size = torch.where(x < -_AIRY_NEAR, -x, 3.0)
    angle = 2.0 * size * torch.sqrt(size) / 3.0
    z = 1.0 / angle
    square = z * z
    even = 1.0 + square * polynomial(square, _AFN) / polynomial(square, _AFD)
    odd = z * polynomial(square, _AGN) / polynomial(square, _AGD)
    turn = angle + 0.25 * math.pi
    return math.pi**-0.5 / torch.sqrt(torch.sqrt(size)) * (torch.sin(turn) * even - torch.cos(turn) * odd)


def _airy_far(x: Tensor) -> Tensor:
    # Beyond `_AIRY_ZERO` nothing is left, and here the exponential would overflow.
    size = torch.where((x >= _AIRY_NEAR) & (x <= _AIRY_ZERO), x, 3.0)
    angle = 2.0 * size * torch.sqrt(size) / 3.0
    inverse = 1.0 / angle
    ratio = polynomial(inverse, _AN) / polynomial(inverse, _AD)
    return math.pi**-0.5 * ratio * torch.exp(-angle) / (2.0 * torch.sqrt(torch.sqrt(size)))


def _airy_near(x: Tensor) -> Tensor:
    near = torch.where(x.abs() <= _AIRY_NEAR, x, torch.where(x.isnan(), x, 0.0))
    cube = near * near * near
    first, second = torch.ones_like(near), torch.ones_like(near)
    for term in range(_AIRY_TERMS, 0, -1):
        # Horner's rule: each term is the one before times the cube, over two of three numbers in a row.
        first = 1.0 + first * cube / ((3 * term - 1) * (3 * term))
        second = 1.0 + second * cube / ((3 * term) * (3 * term + 1))
    return 0.355028053887817239260 * first - 0.258819403792806798405 * near * second


DECOMPOSITIONS: Table = {
    aten.special_zeta.default: zeta,
    aten.special_zeta.self_scalar: zeta,
    aten.special_zeta.other_scalar: zeta,
    aten.special_ndtri.default: ndtri,
    aten.special_airy_ai.default: airy_ai,
}
