"""A causal language model of transformers as a decoder over a fixed number of cache slots.

`of(model, recipe)` wraps a model whose attention goes through transformers' Cache API. Two entry
points share its weights, and its keys and values, which are the module's state: `prefill` reads a prompt into
one slot, `decode` goes on with one token in each slot, at that slot's own position. Both give the next token,
chosen in the graph: the most probable one where the temperature is 0, else one of the most probable whose
probabilities add up to `top_p`, drawn by a number between 0 and 1 that the caller gives as `uniform`.

Imports torch and transformers; only a build with `--decoder` imports this module.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer

from aotpipe.core.dims import Dim
from aotpipe.errors import SpecInvalid
from aotpipe.model import reference, source
from aotpipe.model.recipe import PROMPT_LENGTH, Recipe
from aotpipe.model.spec import EntryPoint, Spec

_LARGEST: Final = 1 << 23
_BLOCK: Final = 256
_COLDEST: Final = 1e-5

Write = Callable[[Tensor, Tensor], Tensor]


class Layer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # a base whose __init_subclass__ is untyped
    """The keys and values of one layer, as (slots, heads, positions, size), which `write` changes.

    `write(buffer, new)` puts what a call computed into a buffer, and gives what the call attends to.
    """

    is_sliding = False

    def __init__(self, keys: Tensor, values: Tensor, write: Write) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys, self.values = keys, values
        self._write = write
        self.dtype, self.device = keys.dtype, keys.device
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing is left to allocate."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write new keys and values; gives those to attend to."""
        assert self.keys is not None
        assert self.values is not None
        return self._write(self.keys, key_states), self._write(self.values, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Positions and the first of them; of no use, since each call brings its whole mask."""
        return query_length, 0

    def get_seq_length(self) -> int:
        """How much was written; each call says it by its positions."""
        return 0

    def get_max_length(self) -> int:
        """How many positions there are."""
        assert self.keys is not None
        return self.keys.shape[2]


class SlotDecoder(nn.Module):
    """A causal language model with the keys and values of each slot as buffers."""

    def __init__(
        self, model: nn.Module, recipe: Recipe, layers: list[tuple[Tensor, Tensor]], ends: list[int]
    ) -> None:
        super().__init__()
        self.model = model
        self.slots, self.length = recipe.slots, recipe.cache
        self.layers = len(layers)
        self.ends = ends
        # The logits of a prompt's other tokens are a third of a small model's work.
        takes_count = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.options = {"logits_to_keep": 1} if takes_count else {}
        for number, (keys, values) in enumerate(layers):
            for name, like in (("keys", keys), ("values", values)):
                shape = (recipe.slots, like.shape[1], recipe.cache, like.shape[3])
                self.register_buffer(f"{name}_{number}", torch.zeros(shape, dtype=like.dtype))

    def prefill(
        self, tokens: Tensor, slot: Tensor, temperature: Tensor, top_p: Tensor, uniform: Tensor
    ) -> dict[str, Tensor]:
        """Read a prompt, `tokens` of (1, length), into a slot; gives the token after it."""
        return self._next(self.logits_of_prompt(tokens, slot), temperature, top_p, uniform)

    def decode(
        self, tokens: Tensor, positions: Tensor, temperature: Tensor, top_p: Tensor, uniform: Tensor
    ) -> dict[str, Tensor]:
        """Go on with one token in each slot, all of (slots,); gives the token after each."""
        return self._next(self.logits_of_tokens(tokens, positions), temperature, top_p, uniform)

    def logits_of_prompt(self, tokens: Tensor, slot: Tensor) -> Tensor:
        """The logits after a prompt, which is read into a slot."""
        length = tokens.shape[1]
        at = torch.arange(length)

        def write(buffer: Tensor, new: Tensor) -> Tensor:
            buffer.index_copy_(0, slot, nn.functional.pad(new, (0, 0, 0, self.length - length)))
            return new

        return self._logits(tokens, at[None], at[None, :] <= at[:, None], write)

    def logits_of_tokens(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """The logits after a token in each slot, which is written at its position."""

        def write(buffer: Tensor, new: Tensor) -> Tensor:
            heads, size = new.shape[1], new.shape[3]
            rows = buffer.view(self.slots * heads, self.length, size)
            at = positions.repeat_interleave(heads)
            rows[torch.arange(self.slots * heads), at] = new.reshape(self.slots * heads, size)
            return buffer

        seen = torch.arange(self.length)[None] <= positions[:, None]
        return self._logits(tokens[:, None], positions[:, None], seen[:, None, None], write)

    def _logits(self, tokens: Tensor, positions: Tensor, seen: Tensor, write: Write) -> Tensor:
        layers = [
            Layer(self.get_buffer(f"keys_{number}"), self.get_buffer(f"values_{number}"), write)
            for number in range(self.layers)
        ]
        dtype = layers[0].dtype
        # Eager attention adds the mask, so a bool would not do.
        mask = torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)
        output = self.model(
            input_ids=tokens,
            attention_mask=mask.expand(len(tokens), 1, *mask.shape[-2:]),
            position_ids=positions,
            past_key_values=Cache(layers=[*layers]),
            use_cache=True,
            **self.options,
        )
        logits: Tensor = output.logits[:, -1]
        return logits.float()

    def _next(self, logits: Tensor, temperature: Tensor, top_p: Tensor, uniform: Tensor) -> dict[str, Tensor]:
        token = chosen(logits, temperature, top_p, uniform)
        is_end = torch.zeros_like(token, dtype=torch.bool)
        for end in self.ends:
            is_end = is_end | (token == end)
        return {"token": token, "is_end": is_end}


def chosen(logits: Tensor, temperature: Tensor, top_p: Tensor, uniform: Tensor) -> Tensor:
    """The next token of each row of `logits`; the other arguments have a number for each row.

    Probabilities are whole numbers, the largest 2**23, so that each program adds them up alike. The smallest
    one that `top_p` keeps is found by halving: sorting the rows of a vocabulary takes far longer.
    """
    best = logits.argmax(-1)
    powers = (logits - logits.amax(-1, keepdim=True)) / temperature.clamp(min=_COLDEST)[:, None]
    weights = (powers.exp() * _LARGEST).to(torch.int32)
    needed = (top_p * weights.sum(-1)).to(torch.int64).clamp(min=1)[:, None]
    low = torch.zeros_like(needed)
    high = low + _LARGEST + 1
    for _ in range(_LARGEST.bit_length()):
        middle = (low + high) // 2
        is_enough = torch.where(weights >= middle, weights, 0).sum(-1, keepdim=True) >= needed
        low, high = torch.where(is_enough, middle, low), torch.where(is_enough, high, middle)
    drawn = _drawn(torch.where(weights >= low, weights, 0), uniform)
    return torch.where(temperature > 0, drawn, best)


def _drawn(weights: Tensor, uniform: Tensor) -> Tensor:
    """A column of each row, as likely as its weight: first a block of columns, then one of it."""
    blocks = nn.functional.pad(weights, (0, -weights.shape[1] % _BLOCK)).reshape(len(weights), -1, _BLOCK)
    sums = blocks.sum(-1)
    ends = sums.cumsum(-1)
    total = ends[:, -1]
    place = torch.minimum((uniform * total).to(torch.int64), total - 1)[:, None]
    # Never beyond the last; said so that no assert is left, for which the runner keeps a copy of the caches.
    block = (ends <= place).sum(-1, keepdim=True).clamp(max=ends.shape[-1] - 1)
    before = (ends - sums).gather(1, block)
    own = blocks.gather(1, block[:, :, None].expand(-1, 1, _BLOCK))[:, 0]
    inside = (own.cumsum(-1) + before <= place).sum(-1)
    column: Tensor = block[:, 0] * _BLOCK + inside
    return column


def of(model: Any, recipe: Recipe, *, name: str | None = None, **options: Any) -> Spec:
    """The Spec of a causal language model as a decoder.

    Args:
        model: A reference to it, or the model itself.
        recipe: The decoder's sizes.
        name: Names the bundle; by default the reference, or the model's class.
        options: Others that say how a model is called, of which there may be none.

    Raises:
        SpecInvalid: No decoder can be made of the model, or something else says how it is called.
        ModelError: There is no model.
    """
    if isinstance(model, str):
        found = reference.find(model, Spec)
        model, name = found.value, name or found.bundle_name
    if options or isinstance(model, Spec):
        raise SpecInvalid(
            "a decoder's sizes say how the model is called, and so does "
            + (", ".join(options) or f"the Spec {model.name!r}"),
            hint="leave out either",
        )
    layers = _layers(model)
    config = model.config.get_text_config()
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and recipe.cache > longest:
        raise SpecInvalid(
            f"the decoder's cache is {recipe.cache} long, the model has {longest} positions",
            hint=f"--decoder cache={longest},slots={recipe.slots}",
        )
    _require_equal(model, SlotDecoder(model, recipe, layers, []))
    numbers = {"temperature": (0.0, 2.0), "top_p": (0.0, 1.0), "uniform": (0.0, 1.0)}
    tokens = {"tokens": (0, model.get_input_embeddings().num_embeddings - 1), **numbers}
    slots, prompt = recipe.slots, recipe.prompt
    example = min(7, prompt)
    return Spec(
        name=name or type(model).__name__,
        build=lambda: SlotDecoder(model, recipe, layers, _ends(model)).eval(),
        entry_points={
            "prefill": EntryPoint(
                args=(torch.arange(example)[None], torch.tensor([slots - 1]), *_numbers(1)),
                dynamic_shapes={"tokens": {1: Dim(PROMPT_LENGTH, min=1, max=prompt)}},
                value_ranges={**tokens, "slot": (0, slots - 1)},
                method="prefill",
            ),
            "decode": EntryPoint(
                args=(torch.arange(slots), torch.arange(slots) % recipe.cache, *_numbers(slots)),
                value_ranges={**tokens, "positions": (0, recipe.cache - 1)},
                method="decode",
            ),
        },
    )


def _numbers(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Every other row greedy, so that both ways to choose a token are compared with eager's."""
    rows = torch.arange(count)
    return (rows % 2).float(), torch.full((count,), 0.9), torch.full((count,), 0.5)


def _layers(model: Any) -> list[tuple[Tensor, Tensor]]:
    """The keys and values of one token in each layer, of which the caches take their shapes."""
    if not isinstance(model, nn.Module) or not hasattr(model, "get_input_embeddings"):
        raise _refusal(model, "it is no model of transformers")
    if model.training:
        raise _refusal(model, "it is in train mode", hint="return model.eval()")
    names = inspect.signature(model.forward).parameters
    if getattr(model.config, "is_encoder_decoder", False) or not {"position_ids", "past_key_values"} <= set(
        names
    ):
        raise _refusal(model, "its forward takes no positions and cache")
    with torch.no_grad():
        output = model(input_ids=torch.zeros((1, 1), dtype=torch.int64), use_cache=True)
    cache = getattr(output, "past_key_values", None)
    if not isinstance(cache, Cache) or getattr(output, "logits", None) is None:
        raise _refusal(model, "it gives no logits and cache")
    found = []
    for layer in cache.layers:
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if type(layer) is not DynamicLayer or keys is None or values is None or keys.ndim != 4:
            kind = type(layer).__name__
            raise _refusal(model, f"a layer keeps a {kind}, not the keys and values of every position")
        found.append((keys, values))
    return found


@torch.no_grad()
def _require_equal(model: Any, decoder: SlotDecoder) -> None:
    """Check that a text goes on in a slot as it does in the model, which may count positions by its mask.

    Raises:
        SpecInvalid: The logits differ by more than rounding.
    """
    decoder.eval()
    length = min(6, decoder.length)
    tokens = torch.arange(1, length + 1)[None] % model.get_input_embeddings().num_embeddings
    wanted = model(input_ids=tokens).logits[0].float()
    slot = decoder.slots - 1
    rows = torch.arange(decoder.slots) == slot
    prompt = max(1, length // 2)
    found = [decoder.logits_of_prompt(tokens[:, :prompt], torch.tensor([slot]))[0]]
    for place in range(prompt, length):
        each = decoder.logits_of_tokens(torch.where(rows, tokens[0, place], 0), torch.where(rows, place, 0))
        found.append(each[slot])
    error = (torch.stack(found) - wanted[prompt - 1 :]).abs().max()
    allowed = math.sqrt(torch.finfo(decoder.get_buffer("keys_0").dtype).eps) * wanted.abs().max()
    if not error <= allowed:
        raise _refusal(
            model,
            f"its logits change by {error:.3g} where keys and values of other texts are beside its own, "
            f"and rounding explains {allowed:.3g}",
        )


def _refusal(model: object, why: str, *, hint: str = "") -> SpecInvalid:
    return SpecInvalid(
        f"no decoder can be made of {type(model).__name__}: {why}",
        hint=hint
        or "name a causal language model of transformers, or write a Spec with its own entry points",
        where=source.of_definition(model),
    )


def _ends(model: Any) -> list[int]:
    """The tokens that end a text."""
    for config in (getattr(model, "generation_config", None), model.config):
        if (ends := getattr(config, "eos_token_id", None)) is not None:
            return [ends] if isinstance(ends, int) else list(ends)
    return []
