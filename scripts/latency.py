"""Times programs beside torch eager and torch.compile: interleaved, the same threads, the same inputs.

usage: latency.py [--threads N[,N]] [--target TARGET[,TARGET]] [--device cpu|cuda] [--seconds S]
                  [--json FILE] [CASE...]

A case is a name of the list, or a reference below models/. Each runs in a process of its own: it is built at
parity, then the program (as a caller of the runner sees it: inputs checked, outputs copied), eager and
torch.compile are called in turns. The least of each counts: other work on the machine only adds. A ratio
is the program's over the better of the other two; below 1 it is faster. On a GPU every call begins and ends
with arrays of the host.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SETTLE_S = 0.003  # OpenMP's threads spin for a while after torch's last op
ROUNDS = 15


def mlp(batch: int) -> Any:
    import torch
    from torch import nn

    layers = [nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)]
    return spec_of(nn.Sequential(*layers), f"mlp_b{batch}", torch.randn(batch, 256))


def image(name: str) -> Any:
    import torch

    from models._vision import create_model

    return spec_of(create_model(name), name, torch.randn(1, 3, 224, 224))


def minilm(tokens: int) -> Any:
    import torch

    from models import minilm as model

    ids = torch.arange(1000, 1000 + tokens).reshape(1, tokens)
    return spec_of(model.build(), f"minilm_{tokens}", input_ids=ids, attention_mask=torch.ones_like(ids))


def bert() -> Any:
    import torch

    from models._vision import make_torchvision_importable

    make_torchvision_importable()
    from transformers import BertConfig, BertModel

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel(BertConfig(), add_pooling_layer=False)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.bert(input_ids=input_ids).last_hidden_state

    return spec_of(Encoder(), "bert_base", torch.arange(1000, 1128).reshape(1, 128))


def lstm() -> Any:
    import torch

    return spec_of(torch.nn.LSTM(64, 128, 2, batch_first=True), "lstm", torch.randn(1, 50, 64))


def spec_of(module: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    from aotpipe.model.spec import as_spec

    return as_spec(module.eval(), args=args, kwargs=kwargs, name=name)


def file(reference: str) -> Any:
    from aotpipe.model import spec

    return spec.load(f"{ROOT}/models/{reference}")


CASES: Mapping[str, Callable[[], Any]] = {
    "mlp_b1": lambda: mlp(1),
    "mlp_b32": lambda: mlp(32),
    "resnet18": lambda: image("resnet18"),
    "resnet50": lambda: file("resnet50.py"),
    "mobilenetv3": lambda: image("mobilenetv3_small_100"),
    "efficientnet_lite0": lambda: file("efficientnet_lite0.py"),
    "minilm_32": lambda: minilm(32),
    "minilm_128": lambda: minilm(128),
    "bert_base": bert,
    "vit_tiny": lambda: image("vit_tiny_patch16_224"),
    "gpt2": lambda: file("gpt2.py"),
    "llama": lambda: file("llama.py"),
    "unet3d": lambda: file("unet3d.py"),
    "mamba": lambda: file("mamba.py"),
    "lstm": lstm,
    "torchcrepe": lambda: file("torchcrepe_tiny.py"),
    "newton": lambda: file("newton.py"),
    "cond_activation": lambda: file("cond_activation.py"),
}


class Ways:
    """A model's entry point, called by each way, from host arrays to host arrays."""

    def __init__(self, spec: Any, entry_point: str, device: str) -> None:
        import torch
        from torch.utils import _pytree as pytree

        point = spec.entry_points[entry_point]
        self.entry_point = entry_point
        self.module = spec.build().to(device)
        method = getattr(self.module, point.method or "forward")
        self.start = {name: each.clone() for name, each in self.module.named_buffers()}
        leaves, form = pytree.tree_flatten((tuple(point.args), dict(point.kwargs)))

        def call(function: Callable[..., Any]) -> Any:
            here = [each.to(device) if isinstance(each, torch.Tensor) else each for each in leaves]
            args, kwargs = pytree.tree_unflatten(here, form)
            return pytree.tree_map_only(torch.Tensor, lambda each: each.cpu(), function(*args, **kwargs))

        self.eager = lambda: call(method)
        compiled = torch.compile(method)
        self.compiled = lambda: call(compiled)

    def reset(self) -> None:
        for name, each in self.module.named_buffers():
            each.copy_(self.start[name])


def sample(call: Callable[[], Any], reset: Callable[[], None], budget_s: float) -> list[float]:
    """Microseconds of each of some calls."""
    found: list[float] = []
    end = time.perf_counter() + budget_s
    time.sleep(SETTLE_S)
    while not found or time.perf_counter() < end:
        reset()
        start = time.perf_counter_ns()
        call()
        found.append((time.perf_counter_ns() - start) / 1000)
    return found


def interleaved(
    ways: Mapping[str, tuple[Callable[[], Any], Callable[[], None]]], seconds: float
) -> dict[str, float]:
    """The least microseconds of each way, sampled in turns; a way that fails has none."""
    alive = {}
    for name, (call, reset) in ways.items():
        try:
            for _ in range(3):
                reset()
                call()
            alive[name] = (call, reset)
        except Exception as error:  # noqa: BLE001  # whatever torch.compile raises on a model
            print(f"  {name}: {type(error).__name__}: {str(error).splitlines()[:1]}", file=sys.stderr)
    least = dict.fromkeys(alive, math.inf)
    for _ in range(ROUNDS):
        for name, (call, reset) in alive.items():
            least[name] = min(least[name], *sample(call, reset, seconds / ROUNDS / len(alive)))
    return least


def one(case: str, options: argparse.Namespace) -> Iterator[dict]:
    """The rows of one case, in this process."""
    import torch

    from aotpipe.build.build import Settings, run
    from aotpipe.build.request import Request
    from aotpipe.runtime import goldens

    torch.manual_seed(0)
    spec = CASES[case]() if case in CASES else file(case)
    targets = options.target.split(",")
    with tempfile.TemporaryDirectory() as folder:
        out, variants = Path(folder) / "b", not options.no_variants
        settings = Settings(out=out, variants=variants, latency=False, keep_going=True)
        outcome = run(Request.of(spec, targets), settings)
        calls: dict[str, Any] = {}
        if outcome.path:
            for golden in goldens.loads((outcome.path / "goldens.safetensors").read_bytes()):
                calls.setdefault(golden.entry_point, golden.inputs)
        for row in outcome.report.targets:
            worst = row.parity.worst if row.parity else None
            head = {"case": case, "target": row.target, "status": row.status, "reason": row.reason}
            head |= {"notes": list(row.notes), "parity": worst.ratio if worst else None}
            if row.status != "executed" or options.parity_only:
                yield head
                continue
            for threads in map(int, options.threads.split(",")):
                for entry_point, inputs in calls.items():
                    ways = Ways(spec, entry_point, options.device)
                    times = timed(ways, outcome.path, row.target, inputs, threads, options.seconds)
                    yield {**head, "entry_point": entry_point, "threads": threads, **times}


def timed(ways: Ways, bundle: Path, target: str, inputs: Any, threads: int, seconds: float) -> dict[str, Any]:
    """One entry point by each way."""
    import torch

    import aotpipe
    from aotpipe.canonicalize.example_call import uncompiled

    torch.set_num_threads(threads)
    with aotpipe.load(bundle, target=target, threads=threads) as runner, torch.no_grad():
        program = (lambda: runner.infer(inputs, entry_point=ways.entry_point), runner.reset)
        with uncompiled():
            first = interleaved({"program": program, "eager": (ways.eager, ways.reset)}, seconds / 2)
        second = interleaved({"program": program, "compile": (ways.compiled, ways.reset)}, seconds / 2)
    return joined(first, second)


def joined(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, Any]:
    """Of two runs, the least of each way, and the program's share of the better of torch's."""
    program = min(first.get("program", math.inf), second.get("program", math.inf))
    eager, compiled = first.get("eager"), second.get("compile")
    best = min(each for each in (eager, compiled, math.inf) if each is not None)
    return {
        "program_us": program,
        "eager_us": eager,
        "compile_us": compiled,
        "ratio": program / best if math.isfinite(best) and math.isfinite(program) else None,
    }


def run_case(case: str, options: argparse.Namespace, timeout_s: float) -> list[dict]:
    """The rows of one case, from a process of its own."""
    argv = [sys.executable, __file__, "--one", "--seconds", str(options.seconds), "--device", options.device]
    argv += ["--threads", options.threads, "--target", options.target, case]
    argv += ["--parity-only"] * options.parity_only
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    environment.pop("OMP_NUM_THREADS", None)
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, text=True, timeout=timeout_s, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return [{"case": case, "status": "failed", "reason": f"over {timeout_s:.0f} s"}]
    if done.returncode:
        return [{"case": case, "status": "failed", "reason": f"exit code {done.returncode}"}]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def geometric_means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """By target and threads."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        if row.get("ratio"):
            ratios.setdefault(f"{row['target']}, {row['threads']} threads", []).append(row["ratio"])
    return {name: math.exp(sum(map(math.log, each)) / len(each)) for name, each in ratios.items()}


def shown(row: Mapping[str, Any]) -> str:
    name = f"{row['case']:<20}{row.get('target', ''):<20}"
    if "program_us" not in row:
        return f"{name}{row['status']}: {row.get('reason', '')}".splitlines()[0][:150]
    times = [row[key] for key in ("program_us", "eager_us", "compile_us")]
    cells = "".join(f"{each / 1000:11.3f}" if each else f"{'–':>11}" for each in times)
    ratio = f"{row['ratio']:8.2f}" if row["ratio"] else ""
    return f"{name}{row['entry_point']:<9}{row['threads']:>2}{cells}{ratio}"


@contextmanager
def quiet_stdout() -> Iterator[Callable[[str], None]]:
    """Whatever a model prints goes to stderr; gives what writes to the real stdout."""
    real = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(real, "w") as stream:
        yield lambda line: print(line, file=stream, flush=True)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("cases", nargs="*", metavar="CASE", help="by default: " + ", ".join(CASES))
    found.add_argument("--threads", default="1,2")
    found.add_argument("--target", default="iree-cpu-host")
    found.add_argument("--device", default="cpu")
    found.add_argument("--seconds", type=float, default=6.0, help="of each entry point and thread count")
    found.add_argument("--json", type=Path)
    found.add_argument("--no-variants", action="store_true", help="portable targets by their own programs")
    found.add_argument("--parity-only", action="store_true", help="time nothing")
    found.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return found


def main() -> None:
    options = parser().parse_args()
    cases = options.cases or list(CASES)
    if options.one:
        with quiet_stdout() as write:
            for row in one(cases[0], options):
                write(json.dumps(row))
        return
    print(f"{'case':<20}{'target':<20}{'entry':<9} t{'program ms':>11}{'eager':>11}{'compile':>11}   ratio")
    rows: list[dict] = []
    for case in cases:
        found = run_case(case, options, timeout_s=1800)
        rows += found
        print("\n".join(map(shown, found)), flush=True)
    means = geometric_means(rows)
    print("\n".join(f"geometric mean, {name}: {mean:.3f}" for name, mean in means.items()))
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "geometric_means": means}, indent=1) + "\n")


if __name__ == "__main__":
    main()
