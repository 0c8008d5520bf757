"""Times programs beside eager, torch.compile with frozen weights, ONNX Runtime and OpenVINO.

usage: peers.py [--threads N[,N]] [--seconds S] [--json FILE] [--draw N --seed S] [CASE...]

Run it by a Python that has the peers, too: an environment of its own, whose .pth file names the site-packages
of .venv, with `pip install onnxruntime openvino onnx onnxscript`; a peer that is not installed has no column.
A case is a small model of some field with weights of a seed. Each runs in a process of its own: it is built
at parity for IREE and XLA, then all ways are called in turns on as many threads, from host arrays to host
arrays, and the least of each counts. The ratio is that of the better program over the best peer.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from latency import ROOT, interleaved, quiet_stdout, spec_of

OURS: Final = {"IREE": "iree-cpu-host", "XLA": "xla-cpu-host"}
_LAYERS: Final = 4
_LARGEST: Final = 100_000_000
PEERS: Final = ("eager", "frozen", "ORT", "OpenVINO")
Call = Callable[[], Any]


def _nn() -> Any:
    from torch import nn

    return nn


def linears(name: str, batch: int, *sizes: int) -> Any:
    import torch

    nn = _nn()
    pairs = pairwise(sizes)
    layers = [layer for pair in pairs for layer in (nn.Linear(*pair), nn.ReLU())]
    return spec_of(nn.Sequential(*layers[:-1]), name, torch.randn(batch, sizes[0]))


def timm(name: str, size: int | None = None) -> Any:
    import torch

    from models._vision import make_torchvision_importable

    make_torchvision_importable()
    import timm as models

    model = models.create_model(name)
    # A head of zeros would leave nothing to compare.
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.02)
    sizes = (3, size, size) if size else model.default_cfg.get("input_size", (3, 224, 224))
    return spec_of(model, name, torch.randn(1, *sizes))


def language_model(name: str) -> Any:
    """A causal or masked language model of transformers, by the name of its config, with 64 tokens."""
    import torch

    config, model = _language_model(name)
    vocabulary = min(config.vocab_size, 30000)
    ids = torch.randint(100, vocabulary, (1, 64), generator=torch.Generator().manual_seed(0))

    class Tokens(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model(config)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.inner(input_ids=ids, use_cache=False).logits if is_causal else self.inner(ids).logits

    is_causal = "CausalLM" in model.__name__
    return spec_of(Tokens(), name, ids)


def _language_model(name: str) -> tuple[Any, Any]:
    """The config and the class of a language model."""
    from models._vision import make_torchvision_importable

    make_torchvision_importable()
    import transformers
    from transformers.models.auto import modeling_auto as auto

    names = {**auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, **auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    config = transformers.AutoConfig.for_model(name)
    layers = getattr(config, "num_hidden_layers", 4)
    if layers > _LAYERS:
        config = transformers.AutoConfig.for_model(name, num_hidden_layers=_LAYERS)
    return config, getattr(transformers, names[name])


def drawn(count: int, seed: int) -> list[str]:
    """The names of so many cases, at random."""
    import torch

    from models._vision import make_torchvision_importable

    make_torchvision_importable()
    import timm as models
    from transformers.models.auto import modeling_auto as auto

    of_transformers = {**auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, **auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    chance = random.Random(seed)
    found: list[str] = []
    while len(found) < count:
        is_timm = len(found) % 3 < 2
        name = chance.choice(models.list_models() if is_timm else [*of_transformers])
        try:
            with torch.device("meta"):
                if is_timm:
                    made = models.create_model(name)
                else:
                    config, model = _language_model(name)
                    made = model(config)
        except Exception as error:  # noqa: BLE001  # whatever a model of another package raises
            print(f"  {name}: {type(error).__name__}: {str(error).splitlines()[:1]}", file=sys.stderr)
            continue
        parameters = sum(each.numel() for each in made.parameters())
        case = f"{'timm' if is_timm else 'transformers'}/{name}"
        if parameters <= _LARGEST and case not in found:
            found.append(case)
    return found


def transformer(config: str, model: str, tokens: int, output: str, **sizes: Any) -> Any:
    import torch

    from models._vision import make_torchvision_importable

    make_torchvision_importable()
    import transformers

    more = {"use_cache": False} if output == "logits" else {}

    class Tokens(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = getattr(transformers, model)(getattr(transformers, config)(**sizes))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return getattr(self.inner(input_ids=ids, **more), output)

    return spec_of(Tokens(), f"{model}_{tokens}", torch.arange(100, 100 + tokens).reshape(1, tokens))


def recurrent(kind: str, **options: Any) -> Any:
    import torch

    layer = getattr(torch.nn, kind)(64, 128, 2, batch_first=True, **options)
    return spec_of(layer, kind.lower(), torch.randn(1, 100, 64))


def dlrm(batch: int = 64, tables: int = 26, width: int = 16) -> Any:
    import torch

    nn = _nn()

    class Dlrm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bags = nn.ModuleList(nn.EmbeddingBag(10000, width, mode="sum") for _ in range(tables))
            self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
            pairs = (tables + 1) * tables // 2
            self.top = nn.Sequential(nn.Linear(pairs + width, 64), nn.ReLU(), nn.Linear(64, 1))
            self.register_buffer("rows", torch.tril_indices(tables + 1, tables + 1, -1))

        def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            first = self.bottom(dense)
            found = [bag(ids[index]) for index, bag in enumerate(self.bags)]
            all_ = torch.stack([first, *found], 1)
            products = torch.bmm(all_, all_.transpose(1, 2))
            return self.top(torch.cat([first, products[:, self.rows[0], self.rows[1]]], 1)).sigmoid()

    return spec_of(Dlrm(), "dlrm", torch.randn(batch, 13), torch.randint(0, 10000, (tables, batch, 4)))


def bags() -> Any:
    import torch

    offsets = torch.arange(0, 4096, 16)
    return spec_of(
        _nn().EmbeddingBag(20000, 64, mode="mean"), "bags", torch.randint(0, 20000, (4096,)), offsets
    )


def wide_deep() -> Any:
    import torch

    nn = _nn()

    class WideDeep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(100000, 16)
            self.wide = nn.Embedding(100000, 1)
            self.deep = nn.Sequential(nn.Linear(39 * 16, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU())
            self.head = nn.Linear(128, 1)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return (self.head(self.deep(self.table(ids).flatten(1))) + self.wide(ids).sum(1)).sigmoid()

    return spec_of(WideDeep(), "wide_deep", torch.randint(0, 100000, (64, 39)))


def tcn() -> Any:
    import torch

    nn = _nn()
    layers: list[Any] = [nn.Conv1d(16, 64, 1)]
    for spread in (1, 2, 4, 8, 16):
        layers += [nn.Conv1d(64, 64, 3, padding=spread, dilation=spread), nn.BatchNorm1d(64), nn.ReLU()]
    return spec_of(nn.Sequential(*layers, nn.Conv1d(64, 8, 1)), "tcn", torch.randn(1, 16, 1000))


def unet(rank: int, size: int) -> Any:
    import torch

    nn = _nn()
    conv, norm = (nn.Conv2d, nn.BatchNorm2d) if rank == 2 else (nn.Conv3d, nn.BatchNorm3d)
    up, pool = (nn.ConvTranspose2d, nn.MaxPool2d) if rank == 2 else (nn.ConvTranspose3d, nn.MaxPool3d)

    def block(inputs: int, outputs: int) -> Any:
        pairs = ((inputs, outputs), (outputs, outputs))
        layers = [each for a, b in pairs for each in (conv(a, b, 3, padding=1), norm(b), nn.ReLU())]
        return nn.Sequential(*layers)

    class Unet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList([block(1, 16), block(16, 32), block(32, 64)])
            self.rise = nn.ModuleList([up(64, 32, 2, 2), up(32, 16, 2, 2)])
            self.join = nn.ModuleList([block(64, 32), block(32, 16)])
            self.pool, self.last = pool(2), conv(16, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            one = self.down[0](x)
            two = self.down[1](self.pool(one))
            x = self.down[2](self.pool(two))
            for rise, join, kept in zip(self.rise, self.join, (two, one), strict=True):
                x = join(torch.cat([rise(x), kept], 1))
            return self.last(x)

    return spec_of(Unet(), f"unet{rank}d", torch.randn(1, 1, *[size] * rank))


def graph_net(nodes: int = 1000, edges: int = 8000) -> Any:
    import torch

    nn = _nn()

    class Sage(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 16)])
            self.other = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 16)])

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            for own, other in zip(self.own, self.other, strict=True):
                met = torch.zeros_like(x).index_add(0, edges[1], x.index_select(0, edges[0]))
                x = own(x) + other(met).relu()
            return x

    return spec_of(Sage(), "graph_net", torch.randn(nodes, 64), torch.randint(0, nodes, (2, edges)))


def encoder() -> Any:
    import torch

    nn = _nn()
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, activation="gelu", dropout=0.0)
    return spec_of(nn.TransformerEncoder(layer, 4), "encoder", torch.randn(1, 100, 256))


_BERT: Final = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
_LLAMA: Final = {
    "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 8000,
}  # fmt: skip

CASES: Final[Mapping[str, Callable[[], Any]]] = {
    "gemv2048": lambda: linears("gemv2048", 1, 2048, 2048, 2048),
    "mlp_b1": lambda: linears("mlp_b1", 1, 256, 1024, 1024, 10),
    "mlp_b64": lambda: linears("mlp_b64", 64, 256, 1024, 1024, 10),
    "gemm_b4": lambda: linears("gemm_b4", 4, 1024, 1024, 1024),
    "dlrm_b64": dlrm,
    "embedding_bag": bags,
    "wide_deep": wide_deep,
    "graph_net": graph_net,
    "lstm": lambda: recurrent("LSTM"),
    "gru_both_ways": lambda: recurrent("GRU", bidirectional=True),
    "tcn": tcn,
    "encoder": encoder,
    "bert_small_32": lambda: transformer("BertConfig", "BertModel", 32, "last_hidden_state", **_BERT),
    "bert_small_128": lambda: transformer("BertConfig", "BertModel", 128, "last_hidden_state", **_BERT),
    "llama_26m_1": lambda: transformer("LlamaConfig", "LlamaForCausalLM", 1, "logits", **_LLAMA),
    "llama_26m_64": lambda: transformer("LlamaConfig", "LlamaForCausalLM", 64, "logits", **_LLAMA),
    "gpt2_124m_1": lambda: transformer("GPT2Config", "GPT2LMHeadModel", 1, "logits"),
    "gpt2_124m_64": lambda: transformer("GPT2Config", "GPT2LMHeadModel", 64, "logits"),
    "whisper_64": lambda: language_model("whisper"),
    "resnet18": lambda: timm("resnet18"),
    "mobilenetv3": lambda: timm("mobilenetv3_small_100"),
    "efficientnet_b0": lambda: timm("efficientnet_b0"),
    "ghostnetv3": lambda: timm("ghostnetv3_100"),
    "convnext_atto": lambda: timm("convnext_atto"),
    "regnety_002": lambda: timm("regnety_002"),
    "vit_tiny": lambda: timm("vit_tiny_patch16_224"),
    "swin_tiny": lambda: timm("swin_tiny_patch4_window7_224"),
    "mixer_s32": lambda: timm("mixer_s32_224"),
    "unet2d": lambda: unet(2, 128),
    "unet3d": lambda: unet(3, 32),
}  # fmt: skip


def built(spec: Any, folder: Path) -> tuple[dict[str, str], Any, Mapping[str, Any]]:
    """Each of our programs that is at parity, the bundle, and the inputs of one call."""
    from aotpipe.build.build import Settings, run
    from aotpipe.build.request import Request
    from aotpipe.runtime import goldens

    settings = Settings(out=folder / "b", latency=False, keep_going=True)
    outcome = run(Request.of(spec, list(OURS.values())), settings)
    for row in outcome.report.targets:
        if row.status != "executed":
            print(f"  {row.target}: {row.status}: {row.reason}", file=sys.stderr)
    found = {row.target for row in outcome.report.targets if row.status == "executed"}
    inputs: Mapping[str, Any] = {}
    if outcome.path:
        inputs = goldens.loads((outcome.path / "goldens.safetensors").read_bytes())[0].inputs
    return {name: target for name, target in OURS.items() if target in found}, outcome.path, inputs


def frozen(module: Any, args: tuple[Any, ...]) -> Call:
    import torch
    from torch._inductor import config

    config.freezing = True
    compiled = torch.compile(module)
    return lambda: compiled(*args)


def onnx_file(module: Any, args: tuple[Any, ...], folder: Path) -> Path:
    import torch

    path = folder / "model.onnx"
    torch.onnx.export(module, args, path, dynamo=True, external_data=True, verbose=False)
    return path


def onnx_runtime(path: Path, args: tuple[Any, ...], threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = {each.name: arg.numpy() for each, arg in zip(session.get_inputs(), args, strict=True)}
    return lambda: session.run(None, inputs)


def openvino(path: Path, args: tuple[Any, ...], threads: int) -> Call:
    import openvino as ov

    # Its default computes in bfloat16 where the CPU can: another program.
    options = {
        "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"
    }  # fmt: skip
    request = ov.compile_model(path, "CPU", options).create_infer_request()
    inputs = [arg.numpy() for arg in args]
    return lambda: request.infer(inputs)


def peers(module: Any, args: tuple[Any, ...], threads: int, folder: Path) -> dict[str, Call]:
    """Each peer that is installed and takes the model."""
    makers: dict[str, Callable[[], Call]] = {
        "eager": lambda: lambda: module(*args),
        "frozen": lambda: frozen(module, args),
    }
    if find_spec("onnxscript"):
        path: list[Path] = []
        once = lambda: path[0] if path else path.append(onnx_file(module, args, folder)) or path[0]  # noqa: E731
        makers["ORT"] = lambda: onnx_runtime(once(), args, threads)
        makers["OpenVINO"] = lambda: openvino(once(), args, threads)
    found = {}
    for name, make in makers.items():
        try:
            found[name] = make()
        except Exception as error:  # noqa: BLE001  # whatever a peer raises on a model
            print(f"  {name}: {type(error).__name__}: {str(error).splitlines()[:1]}", file=sys.stderr)
    return found


def spec_named(case: str) -> Any:
    """The Spec of a case of the table, or of a package's model."""
    package, _, name = case.partition("/")
    return {"timm": timm, "transformers": language_model}[package](name) if name else CASES[case]()


def one(case: str, threads: int, seconds: float) -> dict[str, Any]:
    """The row of one case, in this process."""
    import torch

    import aotpipe

    torch.manual_seed(0)
    torch.set_num_threads(threads)
    spec = spec_named(case)
    point = next(iter(spec.entry_points.values()))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack, torch.no_grad():
        programs, bundle, inputs = built(spec, Path(name))
        calls: dict[str, Call] = {}
        for label, target in programs.items():
            runner = stack.enter_context(aotpipe.load(bundle, target=target, threads=threads))
            calls[label] = lambda runner=runner: runner.infer(inputs)
        module = spec.build().eval()
        calls |= peers(module, tuple(point.args), threads, Path(name))
        nothing = lambda: None  # noqa: E731
        least = interleaved({label: (call, nothing) for label, call in calls.items()}, seconds)
    return {"case": case, "threads": threads, "us": least, "ratio": ratio_of(least)}


def ratio_of(least: Mapping[str, float]) -> float | None:
    """The better of our programs over the best peer."""
    ours = [least[each] for each in OURS if each in least]
    others = [least[each] for each in PEERS if each in least]
    return min(ours) / min(others) if ours and others else None


def run_case(case: str, threads: int, seconds: float) -> dict[str, Any]:
    """The row of one case, from a process of its own."""
    argv = [sys.executable, __file__, "--one", "--threads", str(threads), "--seconds", str(seconds), case]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    environment |= {"OMP_NUM_THREADS": str(threads)}
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, text=True, timeout=900, env=environment, check=True
        )
    except subprocess.SubprocessError as error:
        return {"case": case, "threads": threads, "us": {}, "ratio": None, "reason": str(error)[-100:]}
    return json.loads(done.stdout.splitlines()[-1])


def shown(row: Mapping[str, Any]) -> str:
    cells = "".join(
        f"{row['us'][each] / 1000:10.3f}" if each in row["us"] else f"{'–':>10}" for each in (*OURS, *PEERS)
    )
    ratio = f"{row['ratio']:7.2f}" if row["ratio"] else f"{'–':>7}"
    return f"{row['case']:<16}{row['threads']:>2}{cells}{ratio}  {row.get('reason', '')}"


def main() -> None:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("cases", nargs="*", metavar="CASE", help="by default: " + ", ".join(CASES))
    found.add_argument("--threads", default="1")
    found.add_argument("--seconds", type=float, default=4.0, help="of each case and thread count")
    found.add_argument("--json", type=Path)
    found.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    found.add_argument("--draw", type=int, metavar="N", help="take N models at random instead")
    found.add_argument("--seed", type=int, default=0, help="of what is drawn")
    options = found.parse_args()
    sys.path.insert(0, str(ROOT))  # as `run_case` has it for the cases
    cases = drawn(options.draw, options.seed) if options.draw else options.cases or list(CASES)
    if options.one:
        with quiet_stdout() as write:
            write(json.dumps(one(cases[0], int(options.threads), options.seconds)))
        return
    print(f"{'case, ms':<16} t" + "".join(f"{each:>10}" for each in (*OURS, *PEERS)) + "  ratio", flush=True)
    rows = []
    for threads in map(int, options.threads.split(",")):
        for case in cases:
            rows.append(run_case(case, threads, options.seconds))
            print(shown(rows[-1]), flush=True)
        ratios = [row["ratio"] for row in rows if row["ratio"] and row["threads"] == threads]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"geometric mean, {threads} threads: {mean:.3f} of {len(ratios)} cases", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
