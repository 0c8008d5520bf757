"""Public models nobody prepared: timm by name, transformers by a config made tiny; random seeded weights.

`make(case)` gives the module and its example keyword arguments. A case is `timm/NAME`, `transformers/TYPE` or
`transformers/TYPE/HEAD`, where HEAD names an AutoModelFor class.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from models._vision import create_model, make_torchvision_importable

# Name -> image size: the smallest of 64, 96, 128, ... that the net takes.
TIMM = {
    "beit_base_patch16_224": 64,
    "botnet26t_256": 64,
    "cait_xxs24_224": 64,
    "coat_lite_tiny": 64,
    "convit_tiny": 224,
    "convmixer_768_32": 64,
    "convnext_atto": 64,
    "convnextv2_atto": 64,
    "cpubone_nano": 64,
    "crossvit_tiny_240": 240,
    "csatv2": 64,
    "cspnext_tiny": 64,
    "cspresnet50": 64,
    "davit_tiny": 64,
    "deit_tiny_patch16_224": 64,
    "densenet121": 64,
    "dla34": 64,
    "dpn48b": 64,
    "edgenext_xx_small": 64,
    "efficientformer_l1": 224,
    "efficientformerv2_s0": 224,
    "efficientnet_b0": 64,
    "efficientvim_m1": 64,
    "efficientvit_b0": 64,
    "efficientvit_m0": 224,
    "ens_adv_inception_resnet_v2": 96,
    "eva02_tiny_patch14_224": 56,
    "fasternet_t0": 64,
    "fastvit_t8": 64,
    "focalnet_tiny_srf": 64,
    "gcvit_xxtiny": 224,
    "ghostnet_050": 64,
    "hardcorenas_a": 64,
    "hgnet_tiny": 64,
    "hiera_tiny_224": 224,
    "hrnet_w18_small": 64,
    "iformer_t": 64,
    "inception_next_tiny": 64,
    "inception_v3": 96,
    "inception_v4": 96,
    "lambda_resnet26t": 128,
    "lcnetv2_small": 64,
    "legacy_seresnet18": 64,
    "legacy_xception": 64,
    "levit_128s": 224,
    "lowformer_b0": 64,
    "mambaout_femto": 64,
    "maxvit_pico_rw_256": 64,
    "mixer_s32_224": 224,
    "mixnet_s": 64,
    "mnasnet_small": 64,
    "mobilenetv2_035": 64,
    "mobilenetv3_small_050": 64,
    "mobilenetv4_conv_small": 64,
    "mobilenetv5_base": 64,
    "mobileone_s0": 64,
    "mobilevit_xxs": 64,
    "mobilevitv2_050": 64,
    "mvitv2_tiny": 224,
    "naflexvit_base_patch16_parfac_gap": 64,
    "nest_tiny": 64,
    "nextvit_small": 64,
    "nf_regnet_b0": 64,
    "nfnet_l0": 64,
    "pit_ti_224": 224,
    "poolformer_s12": 64,
    "pvt_v2_b0": 64,
    "rdnet_tiny": 64,
    "regnetx_002": 64,
    "regnety_002": 64,
    "repghostnet_050": 64,
    "repvgg_a0": 64,
    "repvit_m0_9": 64,
    "res2net50_14w_8s": 64,
    "resmlp_12_224": 224,
    "resnest14d": 64,
    "resnet18": 64,
    "resnetv2_50": 64,
    "resnext26ts": 64,
    "rexnet_100": 64,
    "sam2_hiera_tiny": 64,
    "samvit_base_patch16_224": 64,
    "selecsls42b": 64,
    "sequencer2d_s": 224,
    "seresnet18": 64,
    "shvit_s1": 64,
    "skresnet18": 64,
    "starnet_s050": 64,
    "swiftformer_xs": 64,
    "swin_tiny_patch4_window7_224": 224,
    "swinv2_cr_tiny_ns_224": 224,
    "swinv2_tiny_window8_256": 256,
    "tf_efficientnetv2_b0": 64,
    "tiny_vit_5m_224": 224,
    "tinynet_e": 64,
    "tnt_s_patch16_224": 224,
    "tresnet_m": 64,
    "twins_svt_small": 64,
    "vgg11": 64,
    "visformer_tiny": 224,
    "vit_relpos_small_patch16_224": 224,
    "vit_tiny_patch16_224": 64,
    "vit_tiny_r_s16_p8_224": 64,
    "vitamin_small_224": 64,
    "volo_d1_224": 224,
    "vovnet39a": 64,
    "xception41": 64,
    "xcit_nano_12_p16_224": 64,
}

# Type, or type/head -> what its config needs beside SIZES.
TRANSFORMERS: dict[str, dict[str, Any]] = {
    # Decoders.
    "apertus": {},
    "bloom/CausalLM": {},
    "codegen": {"rotary_dim": 8},
    "cohere": {},
    "ctrl": {},
    "deepseek_v3": {"num_key_value_heads": 4, "num_hidden_layers": 2, "first_k_dense_replace": 1},
    "falcon/CausalLM": {},
    "falcon_mamba": {},
    "gemma/CausalLM": {},
    "gemma2/CausalLM": {},
    "gemma3_text/CausalLM": {},
    "glm": {},
    "gpt2/CausalLM": {},
    "gpt2/SequenceClassification": {},
    "gpt_bigcode": {},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gpt_neox/CausalLM": {},
    "gpt_oss": {},
    "gptj": {"rotary_dim": 8},
    "granite/CausalLM": {},
    "helium": {},
    "jetmoe": {},
    "llama/CausalLM": {},
    "mamba/CausalLM": {},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4},
    "mistral/CausalLM": {},
    "mixtral": {},
    "mpt": {},
    "nemotron": {},
    "olmo": {},
    "olmo2": {},
    "olmoe": {},
    "opt/CausalLM": {},
    "persimmon": {},
    "phi/CausalLM": {},
    "phi3": {},
    "qwen2/CausalLM": {},
    "qwen2_moe": {},
    "qwen3/CausalLM": {},
    "qwen3_moe": {},
    "recurrent_gemma": {},
    "rwkv": {},
    "smollm3": {},
    "stablelm": {},
    "starcoder2": {},
    "xglm": {},
    # Encoders.
    "albert/MaskedLM": {},
    "bert/MaskedLM": {},
    "bert/SequenceClassification": {},
    "big_bird": {},
    "camembert": {},
    "canine": {},
    "convbert": {},
    "deberta": {},
    "deberta-v2/MaskedLM": {},
    "distilbert/SequenceClassification": {},
    "electra/TokenClassification": {},
    "ernie": {},
    "esm": {},
    "eurobert": {},
    "flaubert": {},
    "fnet": {},
    "funnel": {
        "block_sizes": [1, 1],
        "block_repeats": [1, 1],
        "num_decoder_layers": 1,
        "architectures": ["FunnelModel"],
    },
    "ibert": {},
    "layoutlm": {},
    "mobilebert": {},
    "modernbert": {},
    "mpnet": {},
    "mra": {},
    "nystromformer": {"num_landmarks": 8, "segment_means_seq_len": 8},
    "rembert": {},
    "roberta/QuestionAnswering": {},
    "roformer": {},
    "squeezebert": {},
    "xlm": {},
    "xlm-roberta": {},
    "xlnet": {},
    # Encoder-decoders.
    "bart/Seq2SeqLM": {},
    "bigbird_pegasus": {},
    "blenderbot": {},
    "longt5": {},
    "m2m_100": {},
    "marian": {},
    "mbart": {},
    "mt5": {},
    "pegasus": {},
    "pegasus_x": {},
    "plbart": {},
    "switch_transformers": {"use_cache": False},
    "t5/Seq2SeqLM": {},
    "umt5": {},
    # Vision.
    "beit": {},
    "bit": {},
    "clip_vision_model": {},
    "convnext": {"hidden_sizes": [8, 16], "depths": [1, 1]},
    "convnextv2": {"hidden_sizes": [8, 16], "depths": [1, 1]},
    "cvt": {},
    "data2vec-vision": {},
    "deit/ImageClassification": {"architectures": ["DeiTForImageClassification"]},
    "dinov2": {},
    "dpt": {},
    "focalnet": {},
    "glpn": {},
    "ijepa": {},
    "levit": {"image_size": 224, "patch_size": 16},
    "mobilenet_v1": {},
    "mobilenet_v2/ImageClassification": {},
    "mobilevit": {"hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 24, 32, 32, 32]},
    "poolformer": {},
    "pvt_v2": {},
    "regnet": {},
    "resnet/ImageClassification": {},
    "segformer": {},
    "siglip_vision_model": {},
    "swiftformer": {},
    "swin": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 4},
    "swin2sr": {"embed_dim": 24, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4, "patch_size": 1},
    "swinv2": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 4},
    "vit/ImageClassification": {},
    "vit_mae": {},
    "vit_msn": {},
    "yolos": {"image_size": [32, 32], "num_detection_tokens": 5},
    # Audio.
    "audio-spectrogram-transformer": {"max_length": 64, "num_mel_bins": 16},
    "data2vec-audio": {},
    "hubert/CTC": {},
    "sew": {},
    "unispeech": {},
    "wav2vec2/CTC": {},
    "wavlm": {},
    "whisper": {"num_mel_bins": 16, "max_source_positions": 32},
    # Several inputs.
    "clip": {},
    "siglip": {},
    "patchtst": {"num_input_channels": 2, "context_length": 16, "patch_length": 4, "patch_stride": 4},
    "time_series_transformer": {
        "prediction_length": 4,
        "context_length": 8,
        "lags_sequence": [1, 2],
        "num_time_features": 1,
    },
}

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
    """The module in eval mode with seeded random weights, and its example inputs."""
    torch.manual_seed(0)
    library, _, name = case.partition("/")
    if library == "timm":
        return _timm(name, TIMM[name])
    model = _transformers(name, TRANSFORMERS[name])
    return model, _inputs(model)


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
        if present is None or type(present) is int:
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
    if main == "input_features":
        made["input_features"] = torch.randn(batch, config.num_mel_bins, 2 * config.max_source_positions)
    if main == "input_values":
        spectrogram = hasattr(config, "num_mel_bins") and hasattr(config, "max_length")
        shape = (config.max_length, config.num_mel_bins) if spectrogram else (4000,)
        made["input_values"] = torch.randn(batch, *shape)
    if main == "past_values":
        made |= _series(config, batch)
    if "use_cache" in takes:
        # torch.export takes no cache object as an output.
        made["use_cache"] = False
    return made


def _series(config: Any, batch: int) -> dict[str, torch.Tensor]:
    if config.model_type == "patchtst":
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
