"""Code of public packages that decides on tensors in Python: what torch.export makes of it, and aotpipe.

usage: public_python.py [CASE]...

Nobody wrote it for an export. A case is called on several inputs, of which the first is the example: `right`
is eager's answer to every one, `wrong` another one, `refused` none.
"""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from models._vision import make_torchvision_importable

Call = tuple[torch.Tensor, ...]
Case = Callable[[], tuple[Callable[..., Any], Sequence[Call]]]


class Calling(nn.Module):
    """A function or an object as a model."""

    def __init__(self, called: Callable[..., Any]) -> None:
        super().__init__()
        self.called = called

    def forward(self, *args: Any) -> Any:
        return self.called(*args)


def uniform(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def _tokens(*rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows)


TEXTS = [
    _tokens([1, 5, 5, 9, 2]),
    _tokens([3, 3, 3, 3, 3]),
    _tokens([7, 2, 7, 2, 7]),
    _tokens([1, 2, 9, 6, 8]),
]


def logits(name: str, *args: Any, **options: Any) -> Case:
    """A processor of transformers over the scores of the next token."""

    def made() -> tuple[Callable[..., Any], Sequence[Call]]:
        from transformers.generation import logits_process

        processor = getattr(logits_process, name)(*args, **options)
        return processor, [(text, uniform(1, 12, seed=n) * 9 - 4) for n, text in enumerate(TEXTS)]

    return made


def whisper() -> tuple[Callable[..., Any], Sequence[Call]]:
    from transformers import GenerationConfig
    from transformers.generation import logits_process

    config = GenerationConfig(eos_token_id=2, bos_token_id=1)
    config.no_timestamps_token_id = 5
    config.max_initial_timestamp_index = 3
    processor = logits_process.WhisperTimeStampLogitsProcessor(config, begin_index=2)
    return processor, [(text, uniform(1, 12, seed=n) * 9 - 4) for n, text in enumerate(TEXTS)]


def stopping(name: str, *args: Any, **options: Any) -> Case:
    def made() -> tuple[Callable[..., Any], Sequence[Call]]:
        from transformers.generation import stopping_criteria

        criterion = getattr(stopping_criteria, name)(*args, **options)
        return criterion, [(text, uniform(1, 12, seed=n)) for n, text in enumerate(TEXTS)]

    return made


def ranked(name: str, **options: Any) -> Case:
    """A metric of retrieval, which asks first whether anything is relevant."""

    def made() -> tuple[Callable[..., Any], Sequence[Call]]:
        from torchmetrics.functional import retrieval

        metric = getattr(retrieval, name)
        relevant = [[1, 0, 1, 0, 0, 1], [0] * 6, [1] * 6, [0, 0, 0, 1, 0, 0]]
        calls = [(uniform(6, seed=n), torch.tensor(each)) for n, each in enumerate(relevant)]
        return lambda p, t: metric(p, t, **options), calls

    return made


def judged(name: str, *, floats: bool = False, **options: Any) -> Case:
    """A metric of torchmetrics; with its checks of the values."""

    def made() -> tuple[Callable[..., Any], Sequence[Call]]:
        from torchmetrics import functional

        metric = getattr(functional, name)
        calls = []
        for n in range(3):
            target = uniform(8, seed=n + 9)
            calls.append((uniform(8, seed=n), target if floats else (target > 0.5 * n).long()))
        return lambda p, t: metric(p, t, **options), calls

    return made


def boxes(name: str) -> Case:
    def made() -> tuple[Callable[..., Any], Sequence[Call]]:
        from torchvision import ops

        found = []
        for n in range(3):
            corner = uniform(5, 2, seed=n) * 10
            found.append((torch.cat([corner, corner + uniform(5, 2, seed=n + 9) * (9 - 4 * n)], 1),))
        function = getattr(ops, name)
        return (lambda b: function(b, 4.0)) if name == "remove_small_boxes" else (
            lambda b: function(b, b)
        ), found

    return made


def masks() -> tuple[Callable[..., Any], Sequence[Call]]:
    from torchvision import ops

    return ops.masks_to_boxes, [(uniform(3, 6, 6, seed=n) > 0.3 * n,) for n in range(3)]


def matcher() -> tuple[Callable[..., Any], Sequence[Call]]:
    from torchvision.models.detection._utils import Matcher

    return Matcher(0.7, 0.3, allow_low_quality_matches=True), [(uniform(3, 7, seed=n),) for n in range(3)]


def distribution(name: str, positive: bool = True) -> Case:
    """The log of a density, with torch's own checks of parameters and values."""

    def made() -> tuple[Callable[..., Any], Sequence[Call]]:
        from torch import distributions

        kind = getattr(distributions, name)

        def density(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = kind(a, b).log_prob(x)
            return found

        return density, [tuple(uniform(4, seed=3 * n + k) * 0.8 + 0.1 for k in range(3)) for n in range(3)]

    return made


def categorical() -> tuple[Callable[..., Any], Sequence[Call]]:
    from torch import distributions

    return lambda p: distributions.Categorical(probs=p).entropy(), [
        (uniform(2, 4, seed=n) + 0.1,) for n in range(3)
    ]


CASES: dict[str, Case] = {
    "transformers MinLength": logits("MinLengthLogitsProcessor", 8, 2),
    "transformers Temperature": logits("TemperatureLogitsWarper", 0.7),
    "transformers RepetitionPenalty": logits("RepetitionPenaltyLogitsProcessor", 1.3),
    "transformers TopP": logits("TopPLogitsWarper", 0.8),
    "transformers TopK": logits("TopKLogitsWarper", 3),
    "transformers TopH": logits("TopHLogitsWarper", 0.4),
    "transformers MinP": logits("MinPLogitsWarper", 0.1),
    "transformers Typical": logits("TypicalLogitsWarper", 0.8),
    "transformers Epsilon": logits("EpsilonLogitsWarper", 0.05),
    "transformers Eta": logits("EtaLogitsWarper", 0.05),
    "transformers NoRepeatNGram": logits("NoRepeatNGramLogitsProcessor", 2),
    "transformers SequenceBias": logits("SequenceBiasLogitsProcessor", [[[5, 9], -3.0], [[2], 2.0]]),
    "transformers NoBadWords": logits("NoBadWordsLogitsProcessor", [[7, 2], [9]], 2),
    "transformers ForcedEOS": logits("ForcedEOSTokenLogitsProcessor", 6, 2),
    "transformers ExponentialDecay": logits("ExponentialDecayLengthPenalty", (2, 1.2), 2, 1),
    "transformers SuppressAtBegin": logits("SuppressTokensAtBeginLogitsProcessor", [3, 4], 5),
    "transformers WhisperTimeStamp": whisper,
    "transformers BarkEos": logits("BarkEosPrioritizerLogitsProcessor", 2, 0.2),
    "transformers EosTokenCriteria": stopping("EosTokenCriteria", [2, 7]),
    "transformers MaxLengthCriteria": stopping("MaxLengthCriteria", 5),
    "torchmetrics average_precision": ranked("retrieval_average_precision"),
    "torchmetrics reciprocal_rank": ranked("retrieval_reciprocal_rank"),
    "torchmetrics precision": ranked("retrieval_precision", top_k=3),
    "torchmetrics recall": ranked("retrieval_recall", top_k=3),
    "torchmetrics r_precision": ranked("retrieval_r_precision"),
    "torchmetrics fall_out": ranked("retrieval_fall_out", top_k=3),
    "torchmetrics hit_rate": ranked("retrieval_hit_rate", top_k=2),
    "torchmetrics ndcg": ranked("retrieval_normalized_dcg"),
    "torchmetrics auroc": judged("auroc", task="binary"),
    "torchmetrics accuracy": judged("accuracy", task="binary"),
    "torchmetrics f1": judged("f1_score", task="binary"),
    "torchmetrics pearson": judged("pearson_corrcoef", floats=True),
    "torchmetrics spearman": judged("spearman_corrcoef", floats=True),
    "torchmetrics kendall": judged("kendall_rank_corrcoef", floats=True),
    "torchmetrics r2": judged("r2_score", floats=True),
    "torchmetrics psnr": judged("peak_signal_noise_ratio", floats=True, data_range=1.0),
    "torchvision masks_to_boxes": masks,
    "torchvision remove_small_boxes": boxes("remove_small_boxes"),
    "torchvision generalized_box_iou": boxes("generalized_box_iou"),
    "torchvision Matcher": matcher,
    "torch Normal": distribution("Normal"),
    "torch Beta": distribution("Beta"),
    "torch Gamma": distribution("Gamma"),
    "torch Categorical": categorical,
}


def plain(model: nn.Module, calls: Sequence[Call]) -> Callable[..., Any]:
    with torch.no_grad():
        return torch.export.export(model, copy.deepcopy(calls[0])).module()


def ours(model: nn.Module, calls: Sequence[Call]) -> Callable[..., Any]:
    import aotpipe

    return aotpipe.export(model, args=copy.deepcopy(calls[0])).entries[0].program.module()


def outcome(way: Callable[..., Any], name: str) -> tuple[str, str]:
    """What a way of exporting makes of a case: `right`, `wrong` or `refused`, and why."""
    called, calls = CASES[name]()
    model = Calling(called).eval()
    torch.compiler.reset()
    try:
        program = way(model, calls)
    except Exception as error:
        return "refused", (str(error).splitlines() or [type(error).__name__])[0]
    for number, call in enumerate(calls):
        with torch.no_grad():
            want = pytree.tree_leaves(model(*copy.deepcopy(call)))
            try:
                got = pytree.tree_leaves(program(*copy.deepcopy(call)))
                torch.testing.assert_close(
                    [torch.as_tensor(each) for each in got],
                    [torch.as_tensor(each) for each in want],
                    equal_nan=True,
                    check_dtype=False,
                )
            except Exception as error:
                return "wrong", f"call {number}: {str(error).splitlines()[0]}"
    return "right", ""


def row(name: str) -> tuple[str, str, str]:
    """A case's outcome by plain torch.export and by aotpipe, and why the latter is not right."""
    mine, why = outcome(ours, name)
    return outcome(plain, name)[0], mine, why


def main(names: Sequence[str]) -> None:
    make_torchvision_importable()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    print(f"{'':32} {'torch.export':14} aotpipe")
    for name in names or CASES:
        before, after, why = row(name)
        print(f"{name:32} {before:14} {after:8} {why[:140]}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
