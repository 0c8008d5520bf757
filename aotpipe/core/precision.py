"""What of a model is computed in fewer bits, and what stays in float32: the table, and a user's part of it.

    products    matrices, convolutions, attention and embeddings: in bfloat16 or float16, weights too
    islands     norms, softmax, losses, sums and what grows fast: in float32, the result rounded again
    all else    in the widest dtype of its operands

Inputs, outputs, state, integers, bools and float64 keep their dtypes. Weights that products alone read are
stored in the lower dtype. `Precision.of(dtype, keep)` reads what a user types. Torch-free.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from aotpipe.errors import SpecInvalid

Kind = Literal["product", "island", "other"]
Quantization = Literal["int8"]
"""Linear layers with weights in int8 by output, and activations in int8 by row."""

_DTYPES: Final = {"bf16": "bfloat16", "f16": "float16", "bfloat16": "bfloat16", "float16": "float16"}

PRODUCTS: Final[Mapping[str, tuple[str, ...]]] = {
    "linear": ("linear", "addmm", "mm"),
    "matmul": (
        *("matmul", "mm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "einsum", "bilinear"),
    ),
    "conv": (
        *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("convolution", "_convolution", "mkldnn_convolution"),
    ),
    "attention": (
        *("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu"),
        *("_scaled_dot_product_attention_math", "_scaled_dot_product_efficient_attention"),
    ),
    "embedding": ("embedding",),
}
"""By group, the ops that are computed in the lower dtype, by their names in ATen: as a model calls them, and
as torch's own dispatch does."""

ISLANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "layer_norm": ("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm"),
    "group_norm": ("group_norm", "native_group_norm"),
    "batch_norm": (
        *("batch_norm", "native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm"),
        *("_native_batch_norm_legit_no_training", "_batch_norm_no_update", "instance_norm"),
    ),
    "norm": ("norm", "linalg_vector_norm", "linalg_norm", "renorm", "cosine_similarity", "cdist", "pdist"),
    "softmax": ("softmax", "_softmax", "log_softmax", "_log_softmax", "logsumexp", "softmin"),
    "loss": (
        *("nll_loss", "nll_loss_nd", "nll_loss_forward", "cross_entropy_loss", "mse_loss", "l1_loss"),
        *("smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy", "soft_margin_loss"),
        *("binary_cross_entropy_with_logits", "poisson_nll_loss", "cosine_embedding_loss"),
    ),
    "sum": ("sum", "mean", "prod", "cumsum", "cumprod", "nansum", "trace", "logcumsumexp"),
    "variance": ("var", "std", "var_mean", "std_mean"),
    "power": ("pow", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "rsqrt", "reciprocal"),
    "recurrent": (
        *("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"),
        *("_thnn_fused_lstm_cell", "mkldnn_rnn_layer"),
    ),
    "fourier": ("fft_fft", "fft_rfft", "fft_irfft", "_fft_r2c", "_fft_c2r", "_fft_c2c", "stft", "istft"),
}
"""By group, the ops that are computed in float32."""


@dataclass(frozen=True, slots=True)
class Precision:
    """What is computed in fewer bits.

    Attributes:
        dtype: `bfloat16` or `float16`.
        keep: Groups and ops that stay in float32, beside the islands.
    """

    dtype: str
    keep: tuple[str, ...] = ()

    @classmethod
    def of(cls, dtype: str | None, keep: Collection[str] = ()) -> Self | None:
        """What a user typed; None where no dtype is named.

        Raises:
            SpecInvalid: No such dtype, or ops are named and no dtype is.
        """
        if dtype in (None, "", "float32", "f32"):
            if keep:
                raise SpecInvalid(
                    "ops are kept in float32, and nothing is computed in another dtype",
                    hint="name the dtype: --dtype bf16",
                )
            return None
        if dtype not in _DTYPES:
            raise SpecInvalid(f"{dtype!r} is no dtype to compute in", hint="take bf16 or f16")
        return cls(_DTYPES[dtype], tuple(sorted(set(keep))))

    def kind(self, op: str) -> Kind:
        """How an op of ATen is computed, by its name without an overload."""
        if op in self.keep or any(op in _GROUPS.get(group, ()) for group in self.keep):
            return "island"
        if any(op in names for names in PRODUCTS.values()):
            return "product"
        return "island" if any(op in names for names in ISLANDS.values()) else "other"

    def unknown(self, is_op: Any) -> list[str]:
        """What is to be kept and is neither a group nor an op."""
        return [name for name in self.keep if name not in _GROUPS and not is_op(name)]

    def __str__(self) -> str:
        more = f", and {', '.join(self.keep)}" if self.keep else ""
        return f"{self.dtype}, with float32 in {', '.join(ISLANDS)}{more}"


_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {**PRODUCTS, **ISLANDS}


def quantization_of(given: str | None) -> Quantization | None:
    """What a user typed; None where nothing is quantized.

    Raises:
        SpecInvalid: There is no such quantization.
    """
    match given:
        case None | "":
            return None
        case "int8":
            return "int8"
        case _ if "int4" in given:
            raise SpecInvalid(
                f"weights are not quantized as {given!r}",
                reason="IREE's products by groups of int4 take 7 times as long as those of float32",
                hint="take int8",
            )
        case _:
            raise SpecInvalid(f"{given!r} is no quantization", hint="take int8")
