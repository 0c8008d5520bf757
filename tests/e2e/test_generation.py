"""A model of transformers, built as a decoder and served: its texts are those of `generate`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import aotpipe
from tests.unit.model.test_decoder import models
from tests.unit.runtime.serve.conftest import Server


@pytest.mark.slow
@pytest.mark.parametrize("target", ["iree-cpu-host", "xla-cpu-host"])
@pytest.mark.parametrize("name", ["GPT2", "Llama", "Qwen2"])
def test_texts_that_are_served_together_are_those_of_generate(name: str, target: str, tmp_path: Path) -> None:
    model = models()[name]
    aotpipe.build(model, decoder="cache=32,slots=3", targets=[target], out=tmp_path / "bundle", latency=False)
    prompts = [[1 + (7 * number + place) % 60 for place in range(1 + number)] for number in range(8)]
    wanted = [
        model.generate(torch.tensor([prompt]), max_new_tokens=16, do_sample=False, pad_token_id=0)[
            0, len(prompt) :
        ].tolist()
        for prompt in prompts
    ]
    server = Server(f"m={tmp_path / 'bundle'}", log=tmp_path / "log")

    def ask(prompt: list[int]) -> Any:
        return server.ask("/v2/models/m/generate", {"input_ids": prompt, "max_tokens": 16})[1]["token_ids"]

    with ThreadPoolExecutor(5) as pool:
        got = list(pool.map(ask, prompts))
    assert server.stop() == 0
    # The token that ends a text is left out.
    end = model.generation_config.eos_token_id
    assert got == [text[: text.index(end)] if end in text else text for text in wanted]
