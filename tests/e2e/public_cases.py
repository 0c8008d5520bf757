"""Public models nobody prepared: timm by name, transformers by a config made tiny; random seeded weights.

`make(case)` gives the module and its example keyword arguments. A case is `timm/NAME`, `transformers/TYPE` or
`transformers/TYPE/HEAD`, where HEAD names an AutoModelFor class.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from models._vision import create_model, make_torchvision_importable
from tests.e2e import public_weights
from tests.e2e.public_sample import INPUTS, TRANSFORMERS
from tests.e2e.public_timm import TIMM

# Set in a config where it has an integer (or nothing) under that name.
SIZES = {
    **dict.fromkeys(
        "hidden_size d_model n_embd dim embed_dim embedding_size emb_dim projection_dim".split(), 32
    ),
    **dict.fromkeys("num_hidden_layers n_layer n_layers num_layers".split(), 2),
    **dict.fromkeys("encoder_layers decoder_layers num_encoder_layers num_decoder_layers".split(), 2),
    **dict.fromkeys("num_attention_heads n_head n_heads num_heads".split(), 4),
    **dict.fromkeys("encoder_attention_heads decoder_attention_heads".split(), 4),
    **dict.fromkeys(
        "intermediate_size ffn_dim d_ff encoder_ffn_dim decoder_ffn_dim n_inner hidden_dim".split(), 64
    ),
    **dict.fromkeys(
        "max_position_embeddings n_positions max_source_positions max_target_positions".split(), 64
    ),
    **dict.fromkeys(
        "d_kv head_dim qk_rope_head_dim qk_nope_head_dim v_head_dim kv_lora_rank state_size".split(), 8
    ),
    **dict.fromkeys("num_experts num_local_experts n_routed_experts time_step_rank".split(), 4),
    **dict.fromkeys("n_group topk_group".split(), 1),
    "vocab_size": 128,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "q_lora_rank": 16,
    "image_size": 32,
    "patch_size": 8,
    "type_vocab_size": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "sep_token_id": 2,
    "decoder_start_token_id": 1,
}
# What a size cannot be set on: a property of the config, or one that another size fixes.
FIXED = {
    "deepseek_v3": {"head_dim"},
    "falcon": {"head_dim"},
    "funnel": {"num_hidden_layers"},
    "xlnet": {"max_position_embeddings"},
}


def cases() -> list[str]:
    """All, timm first."""
    return [f"timm/{name}" for name in TIMM] + [f"transformers/{name}" for name in TRANSFORMERS]


def make(case: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The module in eval mode with seeded random weights that let its outputs vary, and example inputs."""
    torch.manual_seed(0)
    library, _, name = case.partition("/")
    if library == "timm":
        model, inputs = _timm(name, TIMM.get(name, 0))
    else:
        model = _transformers(name, TRANSFORMERS.get(name, {}))
        inputs = _inputs(model) | _of_shapes(INPUTS.get(name, {}))
    public_weights.draw(model, inputs)
    return model, inputs


def _timm(name: str, size: int) -> tuple[torch.nn.Module, dict[str, Any]]:
    try:
        model = create_model(name, img_size=size)
    except TypeError:
        model = create_model(name)
    return model, {"x": torch.randn(2, 3, size, size)}


def _transformers(name: str, overrides: dict[str, Any]) -> torch.nn.Module:
    make_torchvision_importable()
    import transformers

    kind, _, head = name.partition("/")
    config = tiny_config(kind, overrides)
    auto = getattr(transformers, f"AutoModelFor{head}" if head else "AutoModel")
    model: torch.nn.Module = auto.from_config(config)
    return model.eval()


def tiny_config(kind: str, overrides: dict[str, Any]) -> Any:
    """A config of that type with every size made small, in its nested configs too."""
    from transformers import CONFIG_MAPPING

    config_type = CONFIG_MAPPING[kind]
    default = config_type()
    values: dict[str, Any] = {}
    for name in SIZES.keys() - FIXED.get(kind, set()):
        present = getattr(default, name, False)
        is_derived = isinstance(getattr(config_type, name, None), property)
        if not is_derived and (present is None or type(present) is int):
            values[name] = SIZES[name]
    for name in getattr(default, "sub_configs", {}):
        nested = getattr(default, name, None)
        if nested is not None and nested.model_type:
            values[name] = tiny_config(nested.model_type, {}).to_dict()
    return config_type(**{**values, **overrides})


def _inputs(model: Any) -> dict[str, Any]:
    """Example inputs by the names in the forward's signature."""
    config, takes = model.config, inspect.signature(model.forward).parameters
    main = model.main_input_name
    text = getattr(config, "text_config", config)
    batch, seq = 2, 8
    made: dict[str, Any] = {}
    if main == "input_ids":
        made["input_ids"] = torch.randint(3, min(getattr(text, "vocab_size", 100), 100), (batch, seq))
        if "attention_mask" in takes:
            made["attention_mask"] = torch.ones(batch, seq, dtype=torch.int64)
    if "decoder_input_ids" in takes:
        made["decoder_input_ids"] = torch.randint(3, 100, (batch, 6))
    if "pixel_values" in takes:
        size = getattr(getattr(config, "vision_config", config), "image_size", 64)
        height, width = size if isinstance(size, list | tuple) else (size or 64,) * 2
        made["pixel_values"] = torch.randn(batch, getattr(config, "num_channels", 3) or 3, height, width)
    if (
        main == "input_features"
        and hasattr(config, "num_mel_bins")
        and hasattr(config, "max_source_positions")
    ):
        made["input_features"] = torch.randn(batch, config.num_mel_bins, 2 * config.max_source_positions)
    if main == "input_values":
        spectrogram = hasattr(config, "num_mel_bins") and hasattr(config, "max_length")
        shape = (config.max_length, config.num_mel_bins) if spectrogram else (4000,)
        made["input_values"] = torch.randn(batch, *shape)
    if main == "past_values" and hasattr(config, "context_length"):
        made |= _series(config, batch)
    if "use_cache" in takes:
        # torch.export takes no cache object as an output.
        made["use_cache"] = False
    return made


def _of_shapes(shapes: Mapping[str, Sequence[int]]) -> dict[str, torch.Tensor]:
    """Noise; positions on a page for `bbox`."""
    made = {}
    for name, shape in shapes.items():
        if name == "bbox":
            corners = torch.randint(0, 500, shape)
            made[name] = torch.cat([corners[..., :2], corners[..., :2] + corners[..., 2:]], -1)
        elif name.endswith(("ids", "timesteps")):
            made[name] = torch.randint(3, 60, shape)
        else:
            made[name] = torch.randn(shape)
    return made


def _series(config: Any, batch: int) -> dict[str, torch.Tensor]:
    if hasattr(config, "num_input_channels"):
        return {"past_values": torch.randn(batch, config.context_length, config.num_input_channels)}
    past = config.context_length + max(config.lags_sequence)
    future = config.prediction_length
    return {
        "past_values": torch.randn(batch, past),
        "past_time_features": torch.randn(batch, past, config.num_time_features),
        "past_observed_mask": torch.ones(batch, past),
        "future_values": torch.randn(batch, future),
        "future_time_features": torch.randn(batch, future, config.num_time_features),
    }
