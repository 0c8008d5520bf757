"""Builds correct models and says which of them the gate fails: each must be `executed`.

usage: false_alarms.py --record FILE.jsonl [--only PART]... [--seeds FIRST:LAST] [--within SECONDS]

The models are those of `models/`, torch's own examples of torch.export, and random programs of control flow
(`tests/programs`). Each gets a line of the record, and one that has a line is not built again, so that a
sweep that was cut goes on where it ended. A model that the compiler refuses with a typed error before there
is a program is `refused`: it is no build. A program that the gate calls unproven is `vacuous`, and no build
to count, where eager too gives one answer to many random calls. The exit code is 1 where a build failed in
the gate.

A line also says what the calls reach of the model, and how long the search for them took.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

TARGET: Final = "iree-cpu-host"
_DRAWS: Final = 200
"""Random calls of eager that say whether a model gives one answer to all."""
ALARMS: Final = ("ParityError", "NotRepeatable", "ProgramCrashed", "EagerFailed")
"""Errors of the gate: of a correct model each is a false alarm."""
PARTS: Final = ("models", "exportdb", "python", "ops")
Case = tuple[str, Callable[[Path], Any]]
"""The name of a model, and what gives its Spec; the folder is for its source."""


def cases(parts: list[str], seeds: range) -> Iterator[Case]:
    """All models of some parts."""
    from aotpipe.model import spec
    from tests.e2e.test_exportdb import CASES, CONSTANT, SUPPORTED

    if "models" in parts:
        for path in sorted((ROOT / "models").glob("[a-z]*.py")):
            yield f"models/{path.name}", lambda _, path=path: spec.load(str(path))
    if "exportdb" in parts:
        for name in SUPPORTED:
            if name not in CONSTANT:
                yield f"exportdb/{name}", lambda _, case=CASES[name], name=name: _of_exportdb(case, name)
    for seed in seeds:
        if "python" in parts:
            yield f"python/{seed}", lambda folder, seed=seed: _python(seed, folder)
        if "ops" in parts:
            yield f"ops/{seed}", lambda _, seed=seed: _ops(seed)


def _of_exportdb(case: Any, name: str) -> Any:
    from aotpipe.model import spec

    return spec.as_spec(
        case.model,
        args=case.example_args,
        kwargs=case.example_kwargs,
        dynamic_shapes=case.dynamic_shapes,
        name=name,
    )


def _python(seed: int, folder: Path) -> Any:
    from aotpipe.model import spec
    from tests.programs import branching

    module = branching.load(branching.source(seed), folder / f"program_{seed}.py")
    example = branching.inputs()[0]
    module.Model().eval()(*example)
    return spec.as_spec(module.Model().eval(), args=example, name=f"python_{seed}")


def _ops(seed: int) -> Any:
    from aotpipe.model import spec
    from tests.programs import fuzz

    generator = fuzz.Generator(seed)
    module, example = fuzz.model(generator), fuzz.call(generator, 4, 3)
    module(*example)
    options = {"dynamic_shapes": fuzz.dynamic_shapes()} if generator.is_dynamic else {}
    return spec.as_spec(module, args=example, name=f"ops_{seed}", **options)


@contextmanager
def _search_timed() -> Iterator[list[float]]:
    """In this block the seconds that each search for calls takes are noted."""
    from aotpipe.validate.coverage import measure

    took: list[float] = []
    search = measure.search

    def timed(*args: Any, **kwargs: Any) -> Any:
        started = time.process_time()
        try:
            return search(*args, **kwargs)
        finally:
            took.append(time.process_time() - started)

    measure.search = timed
    try:
        yield took
    finally:
        measure.search = search


def judged(made: Callable[[Path], Any]) -> dict[str, Any]:
    """What a build of a model says: `executed`, `refused`, `no program`, or the false alarm."""
    import torch

    import aotpipe
    from aotpipe.errors import AotpipeError

    torch.compiler.reset()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, _search_timed() as took:
        try:
            with torch.no_grad():
                model = made(Path(folder))
        except Exception as error:  # noqa: BLE001  # what eager itself does not run is no model
            return {"verdict": "no program", "said": f"{type(error).__name__}: {error}"[:200]}
        said, reached = "", {}
        try:
            built = aotpipe.build(model, targets=[TARGET], out=Path(folder) / "bundle", latency=False)
            [row] = built.report.targets
            verdict = row.status
            coverage = built.report.coverage
            said = row.reason or ""
            reached = {
                "reached": coverage.reached,
                "total": coverage.total,
                "missed": [f"{goal}: {goal.reason}" for goal in coverage.missed],
                "notes": list(coverage.notes),
            }
        except AotpipeError as error:
            name = type(error).__name__
            verdict = "failed" if name in ALARMS else "refused"
            if name == "Unproven":
                verdict = "vacuous" if _gives_one_answer(model) else "unproven"
            said = f"{name}: {error.message}"[:400]
        except Exception as error:  # noqa: BLE001  # nothing but a typed error may leave a build
            verdict, said = "failed", f"{type(error).__name__}: {error}"[:400]
    wall_s = round(time.perf_counter() - started, 2)
    return {"verdict": verdict, "said": said, **reached, "search_s": round(sum(took), 2), "wall_s": wall_s}


def _gives_one_answer(spec: Any) -> bool:
    """Whether eager gives one answer to all of many random calls, those that it raises on apart."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map

    model, [entry] = spec.build(), spec.entry_points.values()
    generator = torch.Generator().manual_seed(0)

    def drawn(given: Any) -> Any:
        if not isinstance(given, torch.Tensor):
            return given
        if given.dtype is torch.bool:
            return torch.rand(given.shape, generator=generator) > 0.5
        scale = 10.0 ** float(torch.randint(-2, 4, (), generator=generator))
        return (torch.randn(given.shape, generator=generator) * scale).to(given.dtype)

    answers: list[list[Any]] = []
    for _ in range(_DRAWS):
        args, kwargs = tree_map(drawn, (entry.args, dict(entry.kwargs)))
        with suppress(Exception), torch.no_grad():
            answers.append(tree_leaves(copy.deepcopy(model)(*args, **kwargs)))
    return bool(answers) and all(_are_equal(answers[0], answer) for answer in answers)


def _are_equal(left: list[Any], right: list[Any]) -> bool:
    import torch

    def is_equal(one: Any, other: Any) -> bool:
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            return bool(one == other)
        return one.shape == other.shape and bool((one == other).all())

    return len(left) == len(right) and all(map(is_equal, left, right))


def summary(lines: list[dict[str, Any]]) -> str:
    """The table of a record."""
    verdicts = [line["verdict"] for line in lines]
    counts = {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}
    missed = [(line["case"], each) for line in lines for each in line.get("missed", ())]
    reached, total = (sum(line.get(key, 0) for line in lines) for key in ("reached", "total"))
    longest = max((line.get("search_s", 0.0) for line in lines), default=0.0)
    bad = [line for line in lines if line["verdict"] in ("failed", "unproven", "compiled")]
    return "\n".join(
        [
            *(f"{line['verdict']:9} {line['case']}: {line['said']}" for line in bad),
            *(f"missed    {case}: {each}" for case, each in missed),
            ", ".join(f"{count} {verdict}" for verdict, count in counts.items()),
            f"coverage: {reached} of {total} reached, {len(missed)} named",
            f"longest search for calls: {longest:.1f} s of CPU",
        ]
    )


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", type=Path, required=True, metavar="FILE", help="a line for each model")
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="this part; may be given several times"
    )
    parser.add_argument("--case", action="append", help="this model; may be given several times")
    parser.add_argument("--seeds", default="0:140", metavar="FIRST:LAST", help="of random programs")
    parser.add_argument("--within", type=float, default=1e9, metavar="SECONDS", help="begin no model after")
    parser.add_argument("--skip", action="append", default=[], help="not this model")
    given = parser.parse_args()
    started = time.monotonic()
    first, last = map(int, given.seeds.split(":"))
    text = given.record.read_text() if given.record.is_file() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    done = {line["case"] for line in lines}
    for name, made in cases(given.only or list(PARTS), range(first, last)):
        if name in done or name in given.skip or (given.case and name not in given.case):
            continue
        if time.monotonic() - started > given.within:
            print("cut: not every model was built")
            break
        lines.append({"case": name, **judged(made)})
        with given.record.open("a") as record:
            record.write(json.dumps(lines[-1]) + "\n")
        print(f"{lines[-1]['verdict']:9} {name}", flush=True)
    print(summary(lines))
    return int(any(line["verdict"] in ("failed", "unproven", "compiled") for line in lines))


if __name__ == "__main__":
    sys.exit(main())
