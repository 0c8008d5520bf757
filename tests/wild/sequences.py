"""Audio, text, forecasting, recommenders, tables, spiking networks and policies, with their decoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from models._vision import make_torchvision_importable
from tests.wild.cases import Made, wild

WAVE = {0: ("batch", 1, 4), 1: ("samples", 512, 4096)}
TOKENS = {"ids": (0, 31)}


class Chain(nn.Module):
    """A model followed by a function of its package."""

    def __init__(self, model: nn.Module, then: Callable[[Any], Any]) -> None:
        super().__init__()
        self.model = model
        self.then = then

    def forward(self, x: Tensor) -> Any:
        return self.then(self.model(x))


class Continued(nn.Module):
    """A prompt continued with the most likely tokens, by a model of all logits."""

    def __init__(self, model: nn.Module, steps: int) -> None:
        super().__init__()
        self.model = model
        self.steps = steps

    def forward(self, ids: Tensor) -> Tensor:
        for _ in range(self.steps):
            following = self.model(ids)[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, following], dim=1)
        return ids


# audio


@wild("julius", dims={"input": WAVE})
def low_passes() -> Made:
    import julius

    return julius.LowPassFilters([0.05, 0.2], zeros=4), (torch.randn(2, 1024),)


@wild("julius", dims={"waves": WAVE})
def band_energies() -> Made:
    import julius

    class Energies(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.split = julius.SplitBands(8000, n_bands=5)

        def forward(self, waves: Tensor) -> Tensor:
            bands = self.split(waves)
            return (10 * bands.pow(2).mean(-1).clamp_min(1e-8).log10()).T

    return Energies(), (torch.randn(2, 1024),)


@wild("julius", dims={"x": WAVE})
def resampled() -> Made:
    import julius

    return julius.ResampleFrac(4, 5), (torch.randn(2, 1000),)


@wild("nnAudio", dims={"x": WAVE})
def log_mel() -> Made:
    from nnAudio.features import MelSpectrogram

    mel = MelSpectrogram(sr=8000, n_fft=256, n_mels=20, hop_length=64, verbose=False)
    return Chain(mel, lambda found: torch.log1p(found)), (torch.randn(2, 1024),)


@wild("nnAudio", dims={"x": {0: ("batch", 1, 4)}})
def constant_q() -> Made:
    from nnAudio.features import CQT1992v2

    return CQT1992v2(sr=8000, hop_length=128, fmin=220, n_bins=24, verbose=False), (torch.randn(2, 2048),)


@wild("asteroid-filterbanks", dims={"mixture": {0: ("batch", 1, 4), 2: ("samples", 256, 2048)}})
def separation() -> Made:
    from asteroid_filterbanks import make_enc_dec

    class Separator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = make_enc_dec("free", n_filters=24, kernel_size=16, stride=8)
            self.masker = nn.GRU(24, 16, batch_first=True, bidirectional=True)
            self.to_masks = nn.Linear(32, 48)

        def forward(self, mixture: Tensor) -> Tensor:
            seen = self.encoder(mixture)
            masks = self.to_masks(self.masker(seen.transpose(1, 2))[0]).sigmoid()
            masks = masks.unflatten(-1, (2, 24)).permute(0, 2, 3, 1)
            return self.decoder(masks * seen.unsqueeze(1), length=mixture.shape[-1])

    return Separator(), (torch.randn(2, 1, 800),)


@wild("asteroid-filterbanks", dims={"waveform": {0: ("batch", 1, 4)}})
def sinc_magnitudes() -> Made:
    from asteroid_filterbanks import Encoder, ParamSincFB
    from asteroid_filterbanks.transforms import mag

    class Magnitudes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = Encoder(ParamSincFB(n_filters=16, kernel_size=33, stride=16))

        def forward(self, waveform: Tensor) -> Tensor:
            return mag(self.encoder(waveform))

    return Magnitudes(), (torch.randn(2, 1, 800),)


@wild("vocos", dims={"features": {0: ("batch", 1, 4), 2: ("frames", 4, 64)}})
def vocoder() -> Made:
    from vocos.heads import ISTFTHead
    from vocos.models import VocosBackbone

    class Vocoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = VocosBackbone(input_channels=20, dim=32, intermediate_dim=64, num_layers=2)
            self.head = ISTFTHead(dim=32, n_fft=64, hop_length=16, padding="same")

        def forward(self, features: Tensor) -> Tensor:
            return self.head(self.backbone(features))

    return Vocoder(), (torch.randn(2, 20, 16),)


def _codec(**options: Any) -> nn.Module:
    from encodec import EncodecModel
    from encodec.modules import SEANetDecoder, SEANetEncoder
    from encodec.quantization import ResidualVectorQuantizer

    sizes: dict[str, Any] = {"channels": 1, "dimension": 16, "n_filters": 4, "ratios": [4, 2], "lstm": 1}
    quantizer = ResidualVectorQuantizer(dimension=16, n_q=2, bins=16, kmeans_init=False)
    return EncodecModel(
        SEANetEncoder(**sizes, causal=True),
        SEANetDecoder(**sizes, causal=True),
        quantizer,
        target_bandwidths=[8.0],
        sample_rate=8000,
        channels=1,
        **options,
    )


@wild("encodec", dims={"x": {0: ("batch", 1, 4), 2: ("samples", 64, 1024)}})
def codec() -> Made:
    return _codec(), (torch.randn(2, 1, 400),)


@wild("encodec")
def codec_in_segments() -> Made:
    return _codec(normalize=True, segment=0.02, overlap=0.1), (torch.randn(1, 1, 400),)


@wild(
    "speechbrain",
    dims={"x": {0: ("batch", 1, 4), 1: ("frames", 8, 64)}, "lengths": {0: ("batch", 1, 4)}},
    value_ranges={"lengths": (0.3, 1.0)},
)
def speaker() -> Made:
    from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN

    model = ECAPA_TDNN(
        16, channels=[32, 32, 32, 32, 64], kernel_sizes=[5, 3, 3, 3, 1], attention_channels=16, lin_neurons=24
    )
    return model, (torch.randn(2, 20, 16), torch.tensor([1.0, 0.6]))


@wild("speechbrain", value_ranges={"lengths": (0.5, 1.0)})
def attention_greedy() -> Made:
    from speechbrain.decoders import S2SRNNGreedySearcher
    from speechbrain.nnet.linear import Linear
    from speechbrain.nnet.RNN import AttentionalRNNDecoder

    class Recognizer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.searcher = S2SRNNGreedySearcher(
                embedding=nn.Embedding(8, 6),
                decoder=AttentionalRNNDecoder("gru", "content", 12, 8, 1, enc_dim=7, input_size=6),
                linear=Linear(n_neurons=8, input_size=12),
                bos_index=0,
                eos_index=1,
                min_decode_ratio=0,
                max_decode_ratio=1,
            )

        def forward(self, states: Tensor, lengths: Tensor) -> Any:
            _, lengths, scores, log_probs = self.searcher(states, lengths)
            return lengths, scores, log_probs

    return Recognizer(), (torch.randn(2, 6, 7), torch.ones(2))


@wild("torchaudio", dims={"frames": {0: ("batch", 1, 4), 1: ("frames", 8, 48)}})
def conformer_encoder() -> Made:
    from torchaudio.models import Conformer

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Conformer(16, num_heads=2, ffn_dim=32, num_layers=2, depthwise_conv_kernel_size=5)

        def forward(self, frames: Tensor) -> Tensor:
            lengths = torch.full((frames.shape[0],), frames.shape[1])
            return self.model(frames, lengths)[0]

    return Encoder(), (torch.randn(2, 24, 16),)


@wild("torchaudio", dims={"waveforms": {0: ("batch", 1, 4)}})
def wav2vec2() -> Made:
    from torchaudio.models import wav2vec2_model

    model = wav2vec2_model(
        extractor_mode="group_norm",
        extractor_conv_layer_config=[(16, 10, 5), (16, 3, 2)],
        extractor_conv_bias=False,
        encoder_embed_dim=16,
        encoder_projection_dropout=0.0,
        encoder_pos_conv_kernel=8,
        encoder_pos_conv_groups=2,
        encoder_num_layers=2,
        encoder_num_heads=2,
        encoder_attention_dropout=0.0,
        encoder_ff_interm_features=32,
        encoder_ff_interm_dropout=0.0,
        encoder_dropout=0.0,
        encoder_layer_norm_first=False,
        encoder_layer_drop=0.0,
        aux_num_out=12,
    )
    return model, (torch.randn(2, 1600),)


@wild("torchaudio", dims={"waveform": {0: ("batch", 1, 4)}})
def mfcc() -> Made:
    from torchaudio.transforms import MFCC

    return MFCC(8000, n_mfcc=12, melkwargs={"n_fft": 256, "hop_length": 80, "n_mels": 20}), (
        torch.randn(2, 1600),
    )


@wild("torchaudio", dims={"features": {1: ("frames", 4, 32)}})
def ctc_greedy() -> Made:
    from torchaudio.models import DeepSpeech

    class Recognizer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = DeepSpeech(12, n_hidden=24, n_class=9)

        def forward(self, features: Tensor) -> Tensor:
            best = self.model(features.unsqueeze(1))[0].argmax(-1)
            path = torch.unique_consecutive(best)
            return path[path != 0]

    return Recognizer(), (torch.randn(1, 16, 12),)


@wild("conformer", dims={"x": {0: ("batch", 1, 4), 1: ("frames", 4, 64)}})
def speech_encoder() -> Made:
    from conformer import Conformer

    return Conformer(dim=16, depth=2, dim_head=8, heads=2, ff_mult=2, conv_kernel_size=7), (
        torch.randn(2, 20, 16),
    )


# text


@wild("x-transformers", dims={"x": {0: ("batch", 1, 4), 1: ("length", 2, 32)}}, value_ranges={"x": (0, 31)})
def language_model() -> Made:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(
        dim=32,
        depth=2,
        heads=4,
        attn_dim_head=8,
        rotary_pos_emb=True,
        attn_kv_heads=2,
        use_rmsnorm=True,
        ff_glu=True,
    )
    return TransformerWrapper(num_tokens=32, max_seq_len=32, attn_layers=layers), (
        torch.randint(0, 32, (2, 12)),
    )


def _generator() -> nn.Module:
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, alibi_pos_bias=True)
    net = TransformerWrapper(num_tokens=32, max_seq_len=32, attn_layers=layers)
    return AutoregressiveWrapper(net)


@wild("x-transformers", dims={"ids": {0: ("batch", 1, 4)}}, value_ranges=TOKENS)
def greedy() -> Made:
    class Greedy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = _generator()

        def forward(self, ids: Tensor) -> Tensor:
            return self.model.generate(ids, 6, temperature=0.0, eos_token=1)

    return Greedy(), (torch.randint(2, 32, (2, 5)),)


@wild("x-transformers", value_ranges=TOKENS)
def beams() -> Made:
    class Beams(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = _generator()

        def forward(self, ids: Tensor) -> Any:
            return self.model.beam_search(ids, 5, beams=3, return_beams_and_scores=True)

    return Beams(), (torch.randint(0, 32, (2, 5)),)


@wild(
    "performer-pytorch", dims={"x": {0: ("batch", 1, 4), 1: ("length", 2, 32)}}, value_ranges={"x": (0, 31)}
)
def bidirectional() -> Made:
    from performer_pytorch import PerformerLM

    model = PerformerLM(num_tokens=32, max_seq_len=32, dim=32, depth=2, heads=4, dim_head=8, nb_features=16)
    return model, (torch.randint(0, 32, (2, 12)),)


@wild("linformer", dims={"x": {0: ("batch", 1, 4), 1: ("length", 2, 16)}}, value_ranges={"x": (0, 31)})
def projected_keys() -> Made:
    from linformer import LinformerLM

    return LinformerLM(num_tokens=32, dim=32, seq_len=16, depth=2, k=4, heads=4), (
        torch.randint(0, 32, (2, 12)),
    )


@wild("linformer", dims={"ids": {0: ("batch", 1, 4)}}, value_ranges=TOKENS)
def continued() -> Made:
    from linformer import LinformerLM

    model = LinformerLM(num_tokens=32, dim=32, seq_len=16, depth=1, k=4, heads=4)
    return Continued(model, 4), (torch.randint(0, 32, (2, 5)),)


@wild("reformer-pytorch", dims={"x": {0: ("batch", 1, 4)}}, value_ranges={"x": (0, 31)})
def reversible() -> Made:
    from reformer_pytorch import ReformerLM

    model = ReformerLM(
        num_tokens=32,
        dim=32,
        depth=2,
        max_seq_len=64,
        heads=4,
        bucket_size=8,
        ff_chunks=2,
        use_full_attn=True,
    )
    return model, (torch.randint(0, 32, (2, 16)),)


@wild("local-attention", dims={"x": {0: ("batch", 1, 4), 1: ("length", 2, 32)}}, value_ranges={"x": (0, 31)})
def windows() -> Made:
    from local_attention import LocalTransformer

    model = LocalTransformer(
        num_tokens=32, max_seq_len=32, dim=32, depth=2, local_attn_window_size=4, dim_head=8, heads=4
    )
    return model, (torch.randint(0, 32, (2, 12)),)


@wild("local-attention", value_ranges=TOKENS)
def windowed_greedy() -> Made:
    from local_attention import LocalTransformer

    class Greedy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = LocalTransformer(
                num_tokens=32, max_seq_len=32, dim=32, depth=1, local_attn_window_size=4, dim_head=8, heads=4
            )

        def forward(self, ids: Tensor) -> Tensor:
            return self.model.generate(ids, 4, temperature=0.0)

    return Greedy(), (torch.randint(0, 32, (2, 6)),)


@wild("linear-attention-transformer", dims={"x": {0: ("batch", 1, 4)}}, value_ranges={"x": (0, 31)})
def causal_linear() -> Made:
    from linear_attention_transformer import LinearAttentionTransformerLM

    model = LinearAttentionTransformerLM(
        num_tokens=32, dim=32, depth=1, max_seq_len=64, heads=4, dim_head=8, causal=True, blindspot_size=4
    )
    return model, (torch.randint(0, 32, (2, 16)),)


@wild("recurrent-memory-transformer-pytorch", value_ranges={"segments.0": (0, 31), "segments.1": (0, 31)})
def over_segments() -> Made:
    from recurrent_memory_transformer_pytorch import RecurrentMemoryTransformer

    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = RecurrentMemoryTransformer(
                dim=32, num_tokens=32, depth=1, num_memory_tokens=2, seq_len=8, dim_head=8, heads=4
            )

        def forward(self, segments: list[Tensor]) -> Tensor:
            memories, past = None, None
            for segment in segments:
                logits, memories, past = self.model(segment, memories, xl_memories=past)
            return logits

    return Reader(), ([torch.randint(0, 32, (2, 8)) for _ in range(2)],)


@wild("titans-pytorch", dims={"seq": {0: ("batch", 1, 4)}})
def neural_memory() -> Made:
    from titans_pytorch import NeuralMemory

    class Retrieved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.memory = NeuralMemory(dim=16, chunk_size=4)

        def forward(self, seq: Tensor) -> Tensor:
            return self.memory(seq)[0]

    return Retrieved(), (torch.randn(2, 16, 16),)


@wild("soft-moe-pytorch", dims={"x": {0: ("batch", 1, 4), 1: ("length", 2, 32)}})
def soft_experts() -> Made:
    from soft_moe_pytorch import SoftMoE

    return SoftMoE(dim=16, seq_len=16, num_experts=4), (torch.randn(2, 16, 16),)


@wild("mixture-of-experts", dims={"inputs": {1: ("length", 4, 32)}})
def experts() -> Made:
    from mixture_of_experts import MoE

    model = MoE(dim=16, num_experts=4, hidden_dim=32, second_policy_eval="all")
    return model, (torch.randn(2, 12, 16),)


@wild("rotary-embedding-torch", dims={"x": {0: ("batch", 1, 4), 1: ("length", 2, 32)}})
def rotated_attention() -> Made:
    from rotary_embedding_torch import RotaryEmbedding

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.to_qkv = nn.Linear(32, 96)
            self.rotary = RotaryEmbedding(dim=8, use_xpos=True)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in self.to_qkv(x).chunk(3, -1))
            q, k = self.rotary.rotate_queries_and_keys(q, k)
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return Attention(), (torch.randn(2, 12, 32),)


@wild("entmax", dims={"queries": {0: ("batch", 1, 4)}, "keys": {0: ("batch", 1, 4), 1: ("keys", 2, 32)}})
def sparse_attention() -> Made:
    from entmax import entmax15, sparsemax

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(16, 16)

        def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
            scores = self.project(queries) @ keys.transpose(1, 2)
            return (entmax15(scores, dim=-1) + sparsemax(scores, dim=-1)) @ keys

    return Attention(), (torch.randn(2, 5, 16), torch.randn(2, 9, 16))


@wild("entmax", dims={"X": {0: ("batch", 1, 8)}})
def bisected() -> Made:
    from entmax import EntmaxBisect

    return EntmaxBisect(alpha=1.3, n_iter=24), (torch.randn(3, 10),)


@wild("pytorch-crf", "torchcrf", value_ranges=TOKENS)
def tagger() -> Made:
    from torchcrf import CRF

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(32, 16)
            self.lstm = nn.LSTM(16, 8, bidirectional=True, batch_first=True)
            self.to_tags = nn.Linear(16, 5)
            nn.init.normal_(self.to_tags.weight, std=3.0)
            self.crf = CRF(5, batch_first=True)

        def forward(self, ids: Tensor) -> Tensor:
            emissions = self.to_tags(self.lstm(self.embed(ids))[0])
            return torch.tensor(self.crf.decode(emissions))

    return Tagger(), (torch.randint(0, 32, (2, 7)),)


@wild(
    "pytorch-crf",
    "torchcrf",
    dims={
        "emissions": {0: ("batch", 1, 8), 1: ("length", 2, 24)},
        "tags": {0: ("batch", 1, 8), 1: ("length", 2, 24)},
    },
    value_ranges={"tags": (0, 4)},
)
def likelihood() -> Made:
    from torchcrf import CRF

    class Likelihood(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.crf = CRF(5, batch_first=True)

        def forward(self, emissions: Tensor, tags: Tensor) -> Tensor:
            return self.crf(emissions, tags, reduction="none")

    return Likelihood(), (torch.randn(3, 6, 5), torch.randint(0, 5, (3, 6)))


@wild("TorchCRF")
def masked_viterbi() -> Made:
    from TorchCRF import CRF

    class Viterbi(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.crf = CRF(4, use_gpu=False)

        def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
            paths = [torch.tensor(path) for path in self.crf.viterbi_decode(hidden, mask)]
            return nn.utils.rnn.pad_sequence(paths, batch_first=True, padding_value=-1)

    lengths = torch.tensor([[5], [3]])
    return Viterbi(), (torch.randn(2, 5, 4), torch.arange(5) < lengths)


@wild("vector-quantize-pytorch", dims={"x": {0: ("batch", 1, 4), 1: ("length", 2, 32)}})
def residual_codes() -> Made:
    from vector_quantize_pytorch import ResidualVQ

    return ResidualVQ(dim=16, num_quantizers=3, codebook_size=16), (torch.randn(2, 12, 16),)


@wild("vector-quantize-pytorch", dims={"z": {0: ("batch", 1, 4), 1: ("length", 2, 32)}})
def finite_scalars() -> Made:
    from vector_quantize_pytorch import FSQ

    return FSQ([8, 5, 5], dim=16), (torch.randn(2, 12, 16),)


@wild("peft", dims={"input_ids": {0: ("batch", 1, 4)}}, value_ranges={"input_ids": (0, 31)})
def adapted() -> Made:
    make_torchvision_importable()
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        use_cache=False,
    )
    lora = LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
    return get_peft_model(LlamaForCausalLM(config), lora), (torch.randint(0, 32, (2, 10)),)


@wild("transformers", value_ranges=TOKENS)
def static_cache_greedy() -> Made:
    make_torchvision_importable()
    from transformers import LlamaConfig, LlamaForCausalLM

    class Greedy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            config = LlamaConfig(
                vocab_size=32,
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=1,
                num_attention_heads=4,
                max_position_embeddings=64,
                pad_token_id=0,
            )
            self.model = LlamaForCausalLM(config)

        def forward(self, ids: Tensor) -> Tensor:
            return self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=5,
                do_sample=False,
                cache_implementation="static",
            )

    return Greedy(), (torch.randint(2, 32, (2, 6)),)


@wild(
    "sentence-transformers",
    dims={
        "tokens": {0: ("batch", 1, 4), 1: ("length", 2, 32)},
        "mask": {0: ("batch", 1, 4), 1: ("length", 2, 32)},
    },
    value_ranges={"mask": (0, 1)},
)
def pooled() -> Made:
    make_torchvision_importable()
    from sentence_transformers.models import Dense, Normalize, Pooling

    class Sentences(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stages = nn.Sequential(Pooling(16, "mean"), Dense(16, 8), Normalize())

        def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
            return self.stages({"token_embeddings": tokens, "attention_mask": mask})["sentence_embedding"]

    return Sentences(), (torch.randn(2, 9, 16), torch.ones(2, 9, dtype=torch.long))


# recommenders and tables


@wild("deepctr-torch", dims={"X": {0: ("batch", 1, 16)}}, value_ranges={"X": (0.0, 9.0)})
def deep_fm() -> Made:
    from deepctr_torch.inputs import DenseFeat, SparseFeat
    from deepctr_torch.models import DeepFM

    columns = [SparseFeat("user", 10, 4), SparseFeat("item", 10, 4), DenseFeat("price", 1)]
    x = torch.cat([torch.randint(0, 10, (5, 2)).float(), torch.rand(5, 1)], 1)
    return DeepFM(columns, columns, dnn_hidden_units=(16, 8), init_std=0.3, task="regression"), (x,)


@wild("deepctr-torch", value_ranges={"X": (1.0, 6.0)})
def interest() -> Made:
    from deepctr_torch.inputs import SparseFeat, VarLenSparseFeat
    from deepctr_torch.models import DIN

    columns = [
        SparseFeat("user", 10, 4),
        SparseFeat("item", 12, 4),
        VarLenSparseFeat(SparseFeat("hist_item", 12, 4, embedding_name="item"), maxlen=6, length_name="seen"),
    ]
    x = torch.randint(1, 7, (4, 9))
    model = DIN(columns, ["item"], dnn_hidden_units=(16, 8), att_hidden_size=(8, 4), init_std=0.3)
    for weight in model.dnn.parameters():  # as made, they are too small for any answer but one
        nn.init.normal_(weight, std=0.5)
    return model, (x.float(),)


@wild(
    "rtdl_revisiting_models",
    dims={"x_cont": {0: ("batch", 1, 16)}, "x_cat": {0: ("batch", 1, 16)}},
    value_ranges={"x_cat": (0, 3)},
)
def feature_tokens() -> Made:
    from rtdl_revisiting_models import FTTransformer

    options = {**FTTransformer.get_default_kwargs(1), "d_block": 16, "attention_n_heads": 4}
    model = FTTransformer(n_cont_features=3, cat_cardinalities=[4, 7], d_out=2, **options)
    return model, (torch.randn(5, 3), torch.randint(0, 4, (5, 2)))


@wild("pytorch-tabnet", dims={"x": {0: ("batch", 1, 16)}}, value_ranges={"x": (0.0, 4.0)})
def attentive_table() -> Made:
    from pytorch_tabnet.tab_network import TabNet

    model = TabNet(
        6,
        3,
        n_d=4,
        n_a=4,
        n_steps=2,
        cat_idxs=[0],
        cat_dims=[5],
        cat_emb_dim=[2],
        mask_type="entmax",
        group_attention_matrix=torch.eye(6),
    )
    return model, (torch.cat([torch.randint(0, 5, (5, 1)).float(), torch.rand(5, 5) * 4], 1),)


@wild("pytorch-widedeep", dims={"X": {0: ("batch", 1, 16)}}, value_ranges={"X": (0.0, 4.0)})
def table_transformer() -> Made:
    make_torchvision_importable()
    from pytorch_widedeep.models import TabTransformer

    model = TabTransformer(
        column_idx={"a": 0, "b": 1, "c": 2},
        cat_embed_input=[("a", 5), ("b", 4)],
        continuous_cols=["c"],
        input_dim=8,
        n_heads=2,
        n_blocks=1,
    )
    return model, (torch.cat([torch.randint(0, 5, (5, 2)).float(), torch.randn(5, 1)], 1),)


# forecasts


@wild("pytorch-forecasting")
def fusion() -> Made:
    import pandas as pd
    from pytorch_forecasting import TemporalFusionTransformer, TimeSeriesDataSet

    frame = pd.DataFrame(
        {
            "series": [str(step // 20) for step in range(40)],
            "step": [step % 20 for step in range(40)],
            "value": torch.randn(40).tolist(),
        }
    )
    known = TimeSeriesDataSet(
        frame,
        time_idx="step",
        target="value",
        group_ids=["series"],
        max_encoder_length=8,
        max_prediction_length=3,
        time_varying_known_reals=["step"],
        time_varying_unknown_reals=["value"],
        static_categoricals=["series"],
    )
    x, _ = next(iter(known.to_dataloader(train=False, batch_size=3, num_workers=0)))

    class Forecast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = TemporalFusionTransformer.from_dataset(
                known, hidden_size=8, attention_head_size=2, hidden_continuous_size=4, dropout=0.0
            )

        def forward(self, x: dict[str, Tensor]) -> Tensor:
            return self.model(x)["prediction"]

    return Forecast(), ({key: value for key, value in x.items() if isinstance(value, Tensor)},)


@wild("tsai", dims={"input": {0: ("batch", 1, 8)}})
def inception() -> Made:
    make_torchvision_importable()
    from tsai.models.InceptionTimePlus import InceptionTimePlus

    return InceptionTimePlus(3, 4, seq_len=32, nf=4), (torch.randn(2, 3, 32),)


@wild("iTransformer", dims={"x": {0: ("batch", 1, 8)}})
def inverted() -> Made:
    from iTransformer import iTransformer

    model = iTransformer(
        num_variates=4,
        lookback_len=16,
        depth=2,
        dim=16,
        heads=2,
        dim_head=8,
        pred_length=(3, 6),
        use_reversible_instance_norm=True,
    )
    return model, (torch.randn(2, 16, 4),)


@wild("pytorch-tcn", dims={"x": {0: ("batch", 1, 8), 2: ("length", 2, 48)}})
def causal_convolutions() -> Made:
    from pytorch_tcn import TCN

    return TCN(4, [8, 8], kernel_size=3, use_skip_connections=True, output_projection=3), (
        torch.randn(2, 4, 20),
    )


# recurrent and spiking


@wild("s5-pytorch", "s5", dims={"x": {0: ("batch", 1, 4)}})
def state_space() -> Made:
    from s5 import S5Block

    return S5Block(dim=8, state_dim=8, bidir=False), (torch.randn(2, 16, 8),)


@wild("xlstm", dims={"x": {0: ("batch", 1, 4)}})
def extended_lstm() -> Made:
    from xlstm import (
        FeedForwardConfig,
        mLSTMBlockConfig,
        mLSTMLayerConfig,
        sLSTMBlockConfig,
        sLSTMLayerConfig,
        xLSTMBlockStack,
        xLSTMBlockStackConfig,
    )

    config = xLSTMBlockStackConfig(
        mlstm_block=mLSTMBlockConfig(
            mlstm=mLSTMLayerConfig(conv1d_kernel_size=4, qkv_proj_blocksize=4, num_heads=2)
        ),
        slstm_block=sLSTMBlockConfig(
            slstm=sLSTMLayerConfig(backend="vanilla", num_heads=2, conv1d_kernel_size=4),
            feedforward=FeedForwardConfig(proj_factor=1.3, act_fn="gelu"),
        ),
        context_length=12,
        num_blocks=2,
        embedding_dim=16,
        slstm_at=[1],
    )
    return xLSTMBlockStack(config), (torch.randn(2, 12, 16),)


@wild("minGRU-pytorch", dims={"x": {0: ("batch", 1, 4), 1: ("length", 2, 48)}})
def minimal_gru() -> Made:
    from minGRU_pytorch import minGRU

    return minGRU(dim=16, expansion_factor=1.5), (torch.randn(2, 12, 16),)


@wild("snntorch", dims={"x": {0: ("batch", 1, 8)}})
def leaky_spikes() -> Made:
    import snntorch

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = nn.Linear(10, 16)
            self.leaky = snntorch.Leaky(beta=0.9)
            self.out = nn.Linear(16, 4)
            self.synaptic = snntorch.Synaptic(alpha=0.8, beta=0.9)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            membrane = self.leaky.init_leaky()
            current, potential = self.synaptic.init_synaptic()
            spikes = []
            for _ in range(6):
                fired, membrane = self.leaky(self.hidden(x), membrane)
                fired, current, potential = self.synaptic(self.out(fired), current, potential)
                spikes.append(fired)
            return torch.stack(spikes).sum(0), potential

    return Network(), (3 * torch.randn(3, 10),)


@wild("spikingjelly", dims={"x": {1: ("batch", 1, 8)}})
def spiking_convolutions() -> Made:
    from spikingjelly.activation_based import functional, layer, neuron

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(
                layer.Conv2d(1, 4, 3, padding=1), neuron.LIFNode(), layer.Flatten(), layer.Linear(4 * 64, 5)
            )
            functional.set_step_mode(self.net, "m")

        def forward(self, x: Tensor) -> Tensor:
            functional.reset_net(self.net)
            return self.net(x).mean(0)

    return Network(), (3 * torch.randn(4, 2, 1, 8, 8),)


@wild("norse", dims={"x": {1: ("batch", 1, 8)}})
def adaptive_spikes() -> Made:
    from norse.torch.module.leaky_integrator import LICell
    from norse.torch.module.lsnn import LSNNCell

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = LSNNCell(6, 8)
            self.readout = LICell(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            spiking, leaky = None, None
            for step in x:
                spikes, spiking = self.cell(step, spiking)
                voltage, leaky = self.readout(spikes, leaky)
            return voltage

    return Network(), (20 * torch.rand(10, 2, 6),)


# policies


@wild(
    "torchrl",
    dims={
        key: {0: ("batch", 1, 4), 1: ("steps", 2, 16)} for key in ("observation", "action", "return_to_go")
    },
)
def decision_transformer() -> Made:
    make_torchvision_importable()
    from torchrl.modules import DTActor

    config = DTActor.default_config()
    config.n_embd, config.n_layer, config.n_head, config.n_inner = 16, 1, 2, 32
    model = DTActor(state_dim=4, action_dim=2, transformer_config=config)
    return model, (torch.randn(2, 6, 4), torch.randn(2, 6, 2), torch.randn(2, 6, 1))


@wild("torchrl", dims={"observation": {0: ("batch", 1, 8)}})
def agents() -> Made:
    from torchrl.modules import MultiAgentMLP, QMixer

    class Team(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.values = MultiAgentMLP(5, 3, 4, centralized=False, share_params=False, depth=1, num_cells=8)
            self.mixer = QMixer(state_shape=(20,), mixing_embed_dim=8, n_agents=4, device="cpu")

        def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
            best, action = self.values(observation).max(-1)
            return action, self.mixer(best.unsqueeze(-1), observation.flatten(1))

    return Team(), (torch.randn(2, 4, 5),)


@wild("tianshou", dims={"obs": {0: ("batch", 1, 8)}})
def branching() -> Made:
    from tianshou.utils.net.common import BranchingNet

    model = BranchingNet(6, 3, 4, [16], [8], [8])
    return model, (torch.randn(2, 6),)


@wild("tianshou")
def rollout() -> Made:
    from tianshou.utils.net.common import Recurrent

    class Rollout(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.policy = Recurrent(1, 4, 2, hidden_layer_size=16)

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            state, steps = None, torch.zeros((), dtype=torch.long)
            for _ in range(8):
                values, state = self.policy(obs, state)
                push = values.argmax(-1).float() * 2 - 1
                obs = obs + 0.1 * torch.stack([obs[:, 1], push, obs[:, 3], -push], -1)
                steps = steps + 1
                if obs.abs().amax() > 2.5:
                    break
            return obs, steps

    return Rollout(), (torch.randn(2, 4),)
