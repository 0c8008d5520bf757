"""What torch's random functions draw while a model has a generator of its own, in eager and in a trace alike.

`drawn_from(state)` lets the random functions of torch take their numbers from a tensor (seed, numbers drawn
so far) by `values.philox`, and count on in it. What they give is made of plain ops, so that a program draws
what eager draws, number by number. Torch's own generators are left alone: a function that is not here, or
that is given a generator, draws as before, and its program is refused.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from types import FunctionType
from typing import Any, Final

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.values import philox, trace
from aotpipe.canonicalize.values.trace import refusal
from aotpipe.model import source

_STATE: Final[ContextVar[Tensor | None]] = ContextVar("random state", default=None)


def is_on() -> bool:
    """Whether a model has a generator of its own now."""
    return _STATE.get() is not None


def _words(shape: Sequence[Any]) -> philox.Words:
    state = _STATE.get()
    assert state is not None
    seed, first = state.clone().unbind()
    found = philox.words(seed, first, shape)
    state.add_(torch.arange(2) * math.prod(shape))
    return found


def _uniform(shape: Sequence[Any]) -> Tensor:
    return philox.uniform(_words(shape)[0])


def _below_one(shape: Sequence[Any], dtype: torch.dtype) -> Tensor:
    """Numbers in [0, 1) of a dtype; a narrow one would round some of them to 1."""
    numbers = _uniform(shape).to(dtype)
    is_narrow = dtype in (torch.float16, torch.bfloat16)
    return numbers.clamp(max=1 - torch.finfo(dtype).eps / 2) if is_narrow else numbers


def _normal(shape: Sequence[Any], dtype: torch.dtype) -> Tensor:
    if not dtype.is_complex:
        return philox.normal(_words(shape)).to(dtype)
    real, imaginary = philox.normal(_words(shape)), philox.normal(_words(shape))
    return (torch.complex(real, imaginary) * math.sqrt(0.5)).to(dtype)


def _exponential(shape: Sequence[Any]) -> Tensor:
    return -philox.inside(_words(shape)[0]).log()


def _integers(shape: Sequence[Any], low: Any, high: Any) -> Tensor:
    if isinstance(low, int) and isinstance(high, int) and low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    found: Tensor = philox.integer(_words(shape), high - low) + low
    return found


def _trials(shape: Sequence[Any], p: Any) -> Tensor:
    """Whether each of independent trials of probability `p` succeeds."""
    if isinstance(p, Tensor):
        _require(((p >= 0) & (p <= 1)).all(), "bernoulli expects p to be in [0, 1]")
    elif not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli expects p to be in [0, 1], but got p={p}")
    found: Tensor = _uniform(shape) < p
    return found


def _require(holds: Tensor, said: str) -> None:
    torch._assert_async(holds, said)  # noqa: SLF001  # what torch.export keeps


def _require_dtype(dtype: torch.dtype, name: str, *, is_complex: bool = False) -> None:
    if not (dtype.is_floating_point or (is_complex and dtype.is_complex)):
        raise RuntimeError(f'"{name}" not implemented for {dtype}')


# Functions that make a tensor.


def _shape(size: Sequence[Any], options: Mapping[str, Any]) -> tuple[Any, ...]:
    given = size or (options["size"],)
    is_listed = len(given) == 1 and isinstance(given[0], Sequence)
    return tuple(given[0] if is_listed else given)


def _dtype(options: Mapping[str, Any], otherwise: torch.dtype | None = None) -> torch.dtype:
    found: torch.dtype = options.get("dtype") or otherwise or torch.get_default_dtype()
    return found


def _rand(*size: Any, **options: Any) -> Tensor:
    return _uniform_of(_shape(size, options), _dtype(options))


def _uniform_of(shape: Sequence[Any], dtype: torch.dtype) -> Tensor:
    _require_dtype(dtype, "check_uniform_bounds", is_complex=True)
    if not dtype.is_complex:
        return _below_one(shape, dtype)
    return torch.complex(_uniform(shape), _uniform(shape)).to(dtype)


def _rand_like(input: Tensor, **options: Any) -> Tensor:  # noqa: A002  # torch's own name
    return _uniform_of(input.shape, _dtype(options, input.dtype))


def _randn(*size: Any, **options: Any) -> Tensor:
    return _normal(_shape(size, options), _dtype(options))


def _randn_like(input: Tensor, **options: Any) -> Tensor:  # noqa: A002
    dtype = _dtype(options, input.dtype)
    _require_dtype(dtype, "normal_kernel_cpu", is_complex=True)
    return _normal(input.shape, dtype)


def _bounds(numbers: Sequence[Any], options: Mapping[str, Any]) -> tuple[Any, Any]:
    """From (high), or (low, high), either of which may be given by its name."""
    if len(numbers) == 2:
        return numbers[0], numbers[1]
    if "high" in options:
        return (numbers[0] if numbers else options.get("low", 0)), options["high"]
    return options.get("low", 0), numbers[0]


def _randint(*args: Any, **options: Any) -> Tensor:
    is_sized = bool(args) and isinstance(args[-1], Sequence)
    shape = tuple(args[-1] if is_sized else options["size"])
    low, high = _bounds(args[:-1] if is_sized else args, options)
    return _integers(shape, low, high).to(_dtype(options, torch.int64))


def _randint_like(input: Tensor, *numbers: Any, **options: Any) -> Tensor:  # noqa: A002
    return _integers(input.shape, *_bounds(numbers, options)).to(_dtype(options, input.dtype))


def _randperm(n: Any, **options: Any) -> Tensor:
    return philox.order(_words((n,))).to(_dtype(options, torch.int64))


def _torch_normal(mean: Any, std: Any = 1.0, size: Any = None, **options: Any) -> Tensor:
    if isinstance(std, Tensor):
        _require((std >= 0).all(), "normal expects all elements of std >= 0.0")
    elif std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if size is not None:
        shape, dtype = tuple(size), _dtype(options)
    else:
        tensors = [each for each in (mean, std) if isinstance(each, Tensor)]
        shape = torch.broadcast_shapes(*(each.shape for each in tensors))  # type: ignore[no-untyped-call]
        dtype = functools.reduce(torch.promote_types, (each.dtype for each in tensors))
    found: Tensor = _normal(shape, dtype) * std + mean
    return found


def _bernoulli(input: Tensor, p: Any = None, **_: Any) -> Tensor:  # noqa: A002
    return _trials(input.shape, input if p is None else p).to(input.dtype)


def _multinomial(
    input: Tensor,  # noqa: A002
    num_samples: int,
    replacement: bool = False,
    **_: Any,
) -> Tensor:
    p = input
    _require_dtype(p.dtype, "multinomial")
    if p.dim() not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > p.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    _require(
        ((p >= 0) & (p < math.inf)).all(), "probability tensor contains either `inf`, `nan` or element < 0"
    )
    _require((p.sum(-1) > 0).all(), "invalid multinomial distribution (sum of probabilities <= 0)")
    if replacement and num_samples > 1:
        sums = p.to(torch.float32).cumsum(-1)
        drawn = _uniform((*p.shape[:-1], num_samples)) * sums[..., -1:]
        # The first place whose sum is beyond the number: one without a probability is never that.
        return (sums.unsqueeze(-2) <= drawn.unsqueeze(-1)).sum(-1)
    if not replacement:
        enough = ((p > 0).sum(-1) >= num_samples).all()
        _require(
            enough,
            "invalid multinomial distribution (with replacement=False, not enough non-negative category",
        )
    rated = p / _exponential(p.shape)
    return rated.argmax(-1, keepdim=True) if num_samples == 1 else rated.topk(num_samples, -1).indices


_CANDIDATES: Final = 8


def _standard_gamma(alpha: Tensor, **_: Any) -> Tensor:
    """Marsaglia and Tsang (2000): the first of eight candidates that is taken, as each is in 95 of 100."""
    _require_dtype(alpha.dtype, "gamma")
    boosted = torch.where(alpha < 1, alpha + 1, alpha)
    d = boosted - 1 / 3
    c = 1 / (9 * d).sqrt()
    x = philox.normal(_words((_CANDIDATES, *alpha.shape)))
    v = (1 + c * x) ** 3
    u = philox.inside(_words((_CANDIDATES, *alpha.shape))[0])
    is_taken = (v > 0) & (u.log() < 0.5 * x * x + d - d * v + d * v.clamp(min=1e-30).log())
    first = is_taken.to(torch.int64).argmax(0, keepdim=True)
    found = (d * v.clamp(min=1e-30)).gather(0, first).squeeze(0)
    small = philox.inside(_words(alpha.shape)[0]).log() / alpha.clamp(min=1e-30)
    return torch.where(alpha < 1, found * small.exp(), found).to(alpha.dtype)


def _sample_dirichlet(alpha: Tensor, **_: Any) -> Tensor:
    drawn = _standard_gamma(alpha)
    return drawn / drawn.sum(-1, keepdim=True)


# Methods that write into a tensor.


def _named(given: Sequence[Any], options: Mapping[str, Any], **defaults: Any) -> list[Any]:
    names = list(defaults)
    return [*given, *(options.get(name, defaults[name]) for name in names[len(given) :])]


def _uniform_(tensor: Tensor, *given: Any, **options: Any) -> Tensor:
    _require_dtype(tensor.dtype, "check_uniform_bounds")
    low, high = _named(given, options, **{"from": 0.0, "to": 1.0})
    if isinstance(low, float | int) and isinstance(high, float | int) and low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    return tensor.copy_(_below_one(tensor.shape, tensor.dtype) * (high - low) + low)


def _normal_(tensor: Tensor, mean: Any = 0.0, std: Any = 1.0, **_: Any) -> Tensor:
    _require_dtype(tensor.dtype, "normal_kernel_cpu", is_complex=True)
    if isinstance(std, float | int) and std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    return tensor.copy_(_normal(tensor.shape, tensor.dtype) * std + mean)


def _bernoulli_(tensor: Tensor, p: Any = 0.5, **_: Any) -> Tensor:
    return tensor.copy_(_trials(tensor.shape, p))


def _exponential_(tensor: Tensor, lambd: float = 1.0, **_: Any) -> Tensor:
    _require_dtype(tensor.dtype, "exponential")
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return tensor.copy_(_exponential(tensor.shape) / lambd)


def _cauchy_(tensor: Tensor, median: float = 0.0, sigma: float = 1.0, **_: Any) -> Tensor:
    _require_dtype(tensor.dtype, "cauchy")
    angle = math.pi * (philox.inside(_words(tensor.shape)[0]) - 0.5)
    return tensor.copy_(median + sigma * (angle.sin() / angle.cos()))


def _log_normal_(tensor: Tensor, mean: float = 1.0, std: float = 2.0, **_: Any) -> Tensor:
    _require_dtype(tensor.dtype, "log_normal")
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    return tensor.copy_((_normal(tensor.shape, torch.float32) * std + mean).exp())


def _geometric_(tensor: Tensor, p: float, **_: Any) -> Tensor:
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    return tensor.copy_((_exponential(tensor.shape) / -math.log1p(-p)).ceil())


def _random_(tensor: Tensor, *given: Any, **options: Any) -> Tensor:
    dtype = tensor.dtype
    if dtype.is_floating_point:
        # The integers that the dtype has all of.
        most = int(2 / torch.finfo(dtype).eps)
    else:
        most = 1 if dtype == torch.bool else torch.iinfo(dtype).max
    low, high = 0, min(most + 1, 2**63 - 1)
    if len(given) == 2:
        low, high = given
    elif given:
        [high] = given
    low = options.get("from", low)
    high = high if options.get("to") is None else options["to"]
    return tensor.copy_(_integers(tensor.shape, low, high))


# Layers that drop or disturb what they are given.


def _undrawn(tensor: Tensor, p: float, train: bool) -> Tensor | None:
    """What a dropout gives where it drops nothing or all; None where it draws."""
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if p == 0 or not train:
        return tensor
    if p == 1:
        return tensor * torch.zeros((), dtype=tensor.dtype)
    return None


def _dropped(tensor: Tensor, p: float, train: bool, *, of_features: bool = False) -> Tensor:
    if (undrawn := _undrawn(tensor, p, train)) is not None:
        return undrawn
    return tensor * (_trials(_noise_shape(tensor, of_features), 1 - p).to(tensor.dtype) / (1 - p))


def _noise_shape(tensor: Tensor, of_features: bool) -> Sequence[Any]:
    if not of_features:
        return tensor.shape
    if tensor.dim() < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return (*tensor.shape[:2], *(1 for _ in tensor.shape[2:]))


_ALPHA: Final = 1.7580993408473766  # of SELU: what alpha dropout keeps the mean and the variance of


def _alpha_dropped(tensor: Tensor, p: float, train: bool, *, of_features: bool = False) -> Tensor:
    if (undrawn := _undrawn(tensor, p, train)) is not None:
        return undrawn
    kept = _trials(_noise_shape(tensor, of_features), 1 - p).to(tensor.dtype)
    scale = 1 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
    return tensor * (kept * scale) + ((kept - 1) * (_ALPHA * scale) + _ALPHA * scale * p)


def _dropout(input: Tensor, p: float, train: bool) -> Tensor:  # noqa: A002
    return _dropped(input, p, train)


def _native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:  # noqa: A002
    if train is False or p == 0:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(input), torch.zeros_like(input, dtype=torch.bool)
    kept = _trials(input.shape, 1 - p)
    return input * kept * (1 / (1 - p)), kept


def _rrelu(
    input: Tensor,  # noqa: A002
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    **_: Any,
) -> Tensor:
    if not training:
        return functional.leaky_relu(input, (lower + upper) / 2)
    slope = (_uniform(input.shape) * (upper - lower) + lower).to(input.dtype)
    return torch.where(input <= 0, input * slope, input)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if not dropout_p:
        return NotImplemented  # it draws nothing
    if enable_gqa:
        key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], -3) for each in (key, value))
    scores = (query @ key.transpose(-2, -1)) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    if attn_mask is not None:
        is_flags = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if is_flags else scores + attn_mask
    # A row of which nothing is seen gives zeros.
    weights = scores.softmax(-1).masked_fill((scores == -math.inf).all(-1, keepdim=True), 0)
    return _dropped(weights, dropout_p, True) @ value


def _recurrent(*args: Any) -> Any:
    """A recurrent layer, whose kernel drops what goes from layer to layer by itself."""
    # After whether there are biases: how many layers, the share that is dropped, whether it is.
    first = next(place for place, each in enumerate(args) if isinstance(each, bool))
    layers, dropout, train = args[first + 1 : first + 4]
    if train and dropout and layers > 1:
        raise refusal(
            "a recurrent layer drops what goes from one of its layers to the next",
            "set its dropout to 0, and put `F.dropout(x, p)` between layers of their own",
        )
    return NotImplemented


def _seeding(own: Callable[..., Any]) -> Callable[..., Any]:
    """A function that sets torch's generator, which a model that has one of its own does in vain."""

    @functools.wraps(own)
    def called(*args: Any, **kwargs: Any) -> Any:
        if is_on() and source.is_model_code(sys._getframe(1).f_code.co_filename):  # noqa: SLF001  # so does torch itself
            raise refusal(
                "the model sets torch's generator, and draws from one of its own, which that does not reach",
                "leave it out, and seed the program: by `random_seed` of a call, or by the Spec's `seed`",
            )
        return own(*args, **kwargs)

    return called


def _in_place(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda tensor, *args, **kwargs: tensor.copy_(draw(tensor, *args, **kwargs))


_FEATURES: Final = functools.partial(_dropped, of_features=True)
_ALPHA_FEATURES: Final = functools.partial(_alpha_dropped, of_features=True)
_DRAWS: Final[Mapping[Any, Callable[..., Any]]] = {
    torch.rand: _rand,
    torch.rand_like: _rand_like,
    torch.randn: _randn,
    torch.randn_like: _randn_like,
    torch.randint: _randint,
    torch.randint_like: _randint_like,
    torch.randperm: _randperm,
    torch.normal: _torch_normal,
    torch.bernoulli: _bernoulli,
    torch.Tensor.bernoulli: _bernoulli,
    torch.multinomial: _multinomial,
    torch.Tensor.multinomial: _multinomial,
    torch._standard_gamma: _standard_gamma,  # noqa: SLF001  # what torch.distributions calls
    torch._sample_dirichlet: _sample_dirichlet,  # noqa: SLF001
    torch.Tensor.uniform_: _uniform_,
    torch.Tensor.normal_: _normal_,
    torch.Tensor.bernoulli_: _bernoulli_,
    torch.Tensor.exponential_: _exponential_,
    torch.Tensor.cauchy_: _cauchy_,
    torch.Tensor.log_normal_: _log_normal_,
    torch.Tensor.geometric_: _geometric_,
    torch.Tensor.random_: _random_,
    torch.dropout: _dropout,
    torch.dropout_: _in_place(_dropout),
    torch.feature_dropout: _FEATURES,
    torch.feature_dropout_: _in_place(_FEATURES),
    torch.alpha_dropout: _alpha_dropped,
    torch.alpha_dropout_: _in_place(_alpha_dropped),
    torch.feature_alpha_dropout: _ALPHA_FEATURES,
    torch.feature_alpha_dropout_: _in_place(_ALPHA_FEATURES),
    torch.native_dropout: _native_dropout,
    torch.rrelu: _rrelu,
    torch.rrelu_: _in_place(_rrelu),
    functional.scaled_dot_product_attention: _attention,
    **dict.fromkeys((torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu), _recurrent),
}
# Python of torch's that calls the functions above; a mode is off inside of what it is asked for.
_COMPOSED: Final = frozenset(
    (
        *(functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d),
        *(functional.alpha_dropout, functional.feature_alpha_dropout, functional.rrelu, functional.rrelu_),
        *(functional.gumbel_softmax, functional.multi_head_attention_forward),
        *(torch.svd_lowrank, torch.pca_lowrank),
        *(functional.fractional_max_pool2d_with_indices, functional.fractional_max_pool3d_with_indices),
    )
)


@functools.cache
def _unasked(function: FunctionType) -> FunctionType:
    """A function of torch's that does not ask whether somebody overrides it."""
    asked = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    names = {**function.__globals__, **dict.fromkeys(asked, lambda *_: False)}
    found = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    found.__kwdefaults__ = function.__kwdefaults__
    return found


def _pooled(function: Any) -> Callable[..., Any]:
    """Of a pooling and its indices, the pooling."""
    return lambda *args, **kwargs: _unasked(function)(*args, **kwargs)[0]


_POOLS: Final = {
    functional.fractional_max_pool2d: _pooled(functional.fractional_max_pool2d_with_indices),
    functional.fractional_max_pool3d: _pooled(functional.fractional_max_pool3d_with_indices),
}


def draw_of(func: Any, kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
    """What a function of torch's is while a model has a generator of its own; None where that is the same.

    It is to be called in the mode that was asked for it, and may give NotImplemented where it draws nothing.
    """
    if _STATE.get() is None or kwargs.get("generator") is not None or kwargs.get("out") is not None:
        return None
    if func in _COMPOSED:
        return _unasked(func)
    return _DRAWS.get(func) or _POOLS.get(func)


class Drawing(TorchFunctionMode):
    """Lets torch's random functions draw from the generator of the model that is run."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (draw := draw_of(func, kwargs)) is not None:
            with self:
                result = draw(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if isinstance(func, HigherOrderOperator):
            args, kwargs = pytree.tree_map_only(FunctionType, self._inside, (args, kwargs))
        return func(*args, **kwargs)

    def _inside(self, function: FunctionType) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*args: Any) -> Any:
            with self:
                return function(*args)

        return called


@contextmanager
def drawn_from(state: Tensor) -> Iterator[None]:
    """Let torch's random functions draw from a state (seed, numbers drawn so far), which they advance."""
    token = _STATE.set(state)
    try:
        with ExitStack() as stack:
            for owner in (torch, torch.random):
                seeding = {name: _seeding(getattr(owner, name)) for name in _SEEDS if hasattr(owner, name)}
                stack.enter_context(trace.assigned(owner, **seeding))
            if not trace.is_on():  # the mode of the trace asks for draws itself, in branches and loops too
                stack.enter_context(Drawing())
            yield
    finally:
        _STATE.reset(token)


_SEEDS: Final = ("manual_seed", "seed", "set_rng_state", "fork_rng")
