"""How far a quantized model is from the one that it was made of, on the calls that programs are judged on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Canonical, Finding
from aotpipe.runtime.goldens import Golden, real_parts
from aotpipe.validate.eager.eager import Eager, EagerFailed

# Of fewer, which is the largest says nothing of a classification or of a next token.
_FEWEST_CLASSES = 3


@dataclass(slots=True)
class _Compared:
    """The sums over all calls of one output."""

    product: float = 0.0
    original: float = 0.0
    made: float = 0.0
    difference: float = 0.0
    rows: int = 0
    rows_alike: int = 0
    elements: int = 0
    elements_unlike: int = 0
    skipped: list[str] = field(default_factory=list)

    def add(self, want: Array | None, got: Array) -> None:
        if want is None or want.shape != got.shape:
            said = "is none" if want is None else f"has shape {want.shape}"
            self.skipped.append(f"that of the model in floats {said}, this one has shape {got.shape}")
            return
        x, y = (real_parts(each).astype(np.float64) for each in (want, got))
        self.elements += x.size
        finite = np.isfinite(x) & np.isfinite(y)
        self.elements_unlike += int((~finite & (x != y) & ~(np.isnan(x) & np.isnan(y))).sum())
        x, y = x[finite], y[finite]
        self.product += float(x @ y)
        self.original += float(x @ x)
        self.made += float(y @ y)
        self.difference += float((x - y) @ (x - y))
        is_complex = "c" in (want.dtype.kind, got.dtype.kind)
        if want.ndim and want.size and want.shape[-1] >= _FEWEST_CLASSES and not is_complex:
            same = want.argmax(-1) == got.argmax(-1)
            self.rows += same.size
            self.rows_alike += int(same.sum())

    def __str__(self) -> str:
        scale = (self.original * self.made) ** 0.5
        is_same = not self.difference
        cosine = self.product / scale if scale else float(is_same)
        error = (self.difference / self.original) ** 0.5 if self.original else 0.0 if is_same else np.inf
        text = f"cosine similarity {cosine:.6f}, relative error {error:.2g}"
        if self.elements_unlike:
            text += (
                f" of what is finite; {self.elements_unlike} of {self.elements} elements are not finite alike"
            )
        if self.rows:
            text += f", the same largest element in {self.rows_alike / self.rows:.1%} of {self.rows} rows"
        if self.skipped:
            calls = f"{len(self.skipped)} calls could not be compared: {self.skipped[0]}"
            text = f"{text}; {calls}" if self.elements else calls
        return text


def accuracy(
    original: Canonical, signatures: Mapping[str, Signature], goldens: Sequence[Golden]
) -> tuple[Finding, ...]:
    """Run the original model on the recorded calls, in their order, and compare the quantized one's answers.

    A call that the original refuses is left out, and so is what follows it up to the next reset.
    """
    return tuple(_findings(_compared(original, signatures, goldens)))


def _compared(
    original: Canonical, signatures: Mapping[str, Signature], goldens: Sequence[Golden]
) -> dict[tuple[str, str], _Compared]:
    eager = Eager(original.entries, signatures)
    found: dict[tuple[str, str], _Compared] = {}
    refused = False
    for golden in goldens:
        if golden.reset:
            eager.reset()
            refused = False
        if refused:
            continue
        try:
            answer = eager.infer(golden.inputs, entry_point=golden.entry_point)
        except EagerFailed:
            refused = True
            continue
        for name, got in golden.outputs.items():
            found.setdefault((golden.entry_point, name), _Compared()).add(answer.get(name), got)
    return found


def _findings(found: Mapping[tuple[str, str], _Compared]) -> Iterator[Finding]:
    for (entry_point, name), compared in found.items():
        yield Finding(
            severity="note",
            code="quantization-accuracy",
            message=f"`{name}` beside the model in floats: {compared}",
            entry_point=entry_point,
        )
