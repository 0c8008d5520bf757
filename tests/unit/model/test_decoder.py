"""Decoders of transformers' models: eager, slot by slot, beside `generate`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe.backends.iree.legalization import CPU
from aotpipe.canonicalize import canonicalize
from aotpipe.errors import SpecInvalid
from aotpipe.export import export
from aotpipe.model.decoder import SlotDecoder, chosen, of
from aotpipe.model.recipe import Recipe
from aotpipe.model.spec import EntryPoint, Spec
from aotpipe.passes import legalize
from models._vision import make_torchvision_importable

make_torchvision_importable()
transformers = pytest.importorskip("transformers")

RECIPE = Recipe(cache=32, slots=3)
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}


def made(name: str, **sizes: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**sizes)
    kind = {"GPT2": "GPT2LMHeadModel"}.get(name, f"{name}ForCausalLM")
    model = getattr(transformers, kind)(config).eval()
    for parameter in model.parameters():
        parameter.data *= 4  # so that texts do not repeat one token
    return model


def models() -> dict[str, Any]:
    gpt2 = {"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return {
        "GPT2": made("GPT2", **gpt2, bos_token_id=0, eos_token_id=0),
        "Llama": made("Llama", **SIZES, num_key_value_heads=2),
        "Qwen2": made("Qwen2", **SIZES, num_key_value_heads=2),
    }


def greedy(count: int) -> tuple[torch.Tensor, ...]:
    return torch.zeros(count), torch.ones(count), torch.zeros(count)


@pytest.mark.parametrize("name", ["GPT2", "Llama", "Qwen2"])
def test_texts_that_join_at_different_times_are_those_of_generate(name: str) -> None:
    model = models()[name]
    decoder = of(model, RECIPE).build()
    assert isinstance(decoder, SlotDecoder)
    prompts = [torch.tensor([[5, 9, 2, 7, 1]]), torch.tensor([[3]]), torch.tensor([[8, 8, 41, 60]])]
    wanted = [
        model.generate(prompt, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0)[
            0, prompt.shape[1] :
        ].tolist()
        for prompt in prompts
    ]
    got: list[list[int]] = []
    with torch.no_grad():
        for _ in range(15):
            if (slot := len(got)) < len(prompts):
                first = decoder.prefill(prompts[slot], torch.tensor([slot]), *greedy(1))
                got.append([int(first["token"])])
            tokens = torch.tensor([*(text[-1] for text in got), *[0] * (3 - len(got))])
            places = [prompt.shape[1] + len(text) - 1 for prompt, text in zip(prompts, got, strict=False)]
            found = decoder.decode(tokens, torch.tensor([*places, *[0] * (3 - len(got))]), *greedy(3))
            for text, token in zip(got, found["token"].tolist(), strict=False):
                text.append(token)
    assert [text[:12] for text in got] == wanted
    assert len(set(wanted[0])) > 2


def test_a_decoder_s_programs_have_no_asserts() -> None:
    # Where a call may still be refused after it wrote, the runner copies all keys and values before it.
    spec = of(made("GPT2", vocab_size=600, n_positions=32, n_embd=8, n_layer=1, n_head=2), RECIPE)
    legal = legalize(export(canonicalize(spec)), CPU)
    assert [entry.asserts for entry in legal.entries] == [(), ()]


def test_the_tokens_that_end_a_text_are_those_of_the_model() -> None:
    model = models()["GPT2"]
    model.generation_config.eos_token_id = [7, 9]
    decoder = of(model, RECIPE).build()
    logits = torch.nn.functional.one_hot(torch.tensor([7, 8, 9]), 64).float()
    assert decoder._next(logits, *greedy(3))["is_end"].tolist() == [True, False, True]


def test_top_p_keeps_the_most_probable_tokens_and_draws_by_their_weights() -> None:
    torch.manual_seed(0)
    logits, count = torch.randn(1, 200) * 2, 20_000
    probabilities = torch.softmax(logits[0] / 0.8, 0)
    order = probabilities.argsort(descending=True)
    kept = order[: int((probabilities[order].cumsum(0) < 0.7).sum()) + 1]
    tokens = chosen(
        logits.expand(count, -1), torch.full((count,), 0.8), torch.full((count,), 0.7), torch.rand(count)
    )
    assert set(tokens.tolist()) <= set(kept.tolist())
    wanted = torch.zeros(200).index_put((kept,), probabilities[kept] / probabilities[kept].sum())
    assert float((torch.bincount(tokens, minlength=200) / count - wanted).abs().max()) < 0.015


def test_no_probability_and_the_ends_of_the_numbers_stay_within_the_vocabulary() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0, -1e30]]).expand(4, -1)
    one = torch.ones(4)
    # No mass keeps the best; a number of 1 takes the last token that has any.
    found = chosen(logits, one, torch.tensor([0.0, 1.0, 1.0, 1.0]), torch.tensor([0.9, 0.0, 1.0, 0.999]))
    assert found.tolist()[:3] == [1, 0, 2]


def test_a_model_that_counts_positions_by_its_mask_is_refused() -> None:
    # ALiBi's slopes are of the 2-D mask of a whole text.
    bloom = made("Bloom", vocab_size=64, hidden_size=32, n_layer=2, n_head=4)
    with pytest.raises(SpecInvalid, match="no decoder can be made of BloomForCausalLM"):
        of(bloom, RECIPE)


class Odd(transformers.LlamaForCausalLM):  # type: ignore[misc, name-defined]
    """Adds to the logits what depends on the cache that it was given."""

    def forward(self, *, position_ids: Any = None, past_key_values: Any = None, **kwargs: Any) -> Any:
        output = super().forward(position_ids=position_ids, past_key_values=past_key_values, **kwargs)
        if past_key_values is not None:
            output.logits = output.logits + 0.1
        return output


def test_a_model_that_reads_its_cache_otherwise_is_refused() -> None:
    model = Odd(transformers.LlamaConfig(**SIZES)).eval()
    with pytest.raises(SpecInvalid, match="its logits change by"):
        of(model, RECIPE)


class Linear(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_what_is_no_decoder_is_refused_with_its_reason() -> None:
    with pytest.raises(SpecInvalid, match="no model of transformers"):
        of(Linear(), RECIPE)
    mistral = made("Mistral", **SIZES, num_key_value_heads=2, sliding_window=8)
    with pytest.raises(SpecInvalid, match="DynamicSlidingWindowLayer"):
        of(mistral, RECIPE)
    with pytest.raises(SpecInvalid, match="the model has 32 positions") as caught:
        of(models()["Llama"], Recipe(cache=64, slots=2))
    assert "cache=32,slots=2" in caught.value.hint
    with pytest.raises(SpecInvalid, match="train mode"):
        of(models()["Llama"].train(), RECIPE)
    with pytest.raises(SpecInvalid, match="how the model is called, and so does args"):
        of(models()["Llama"], RECIPE, args=(torch.tensor([[1]]),))
    spec = Spec(name="own", build=Linear, entry_points={"forward": EntryPoint(args=(torch.ones(1),))})
    with pytest.raises(SpecInvalid, match="so does the Spec 'own'"):
        of(spec, RECIPE)
