"""Measures the gate: how many seeded faults of lowerings and of the canonicalizer a build catches.

usage: seeded_faults.py [--list] [--only ID]... [--jobs N] [--baseline]

`tests/seeded_faults/seeded.toml` has the faults. Each is put into a copy of the working tree, and the model
that it names is built there in a process of its own. Prints for each fault what the gate said, and whether
one call on random values, from the initial state, would have shown it. A fault that the gate lets pass is
looked for by many random calls more; where these show nothing either, it changes nothing that a call can
see. The exit code is 1 where the gate missed one that does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.faults import Tree, chosen, in_trees  # noqa: E402  # the root is no folder of this script's path
from tests.seeded_faults.faults import MODELS, SeededFault, load  # noqa: E402

_BROKEN: Final = ("ImportError", "IndentationError", "ModuleNotFoundError", "NameError", "SyntaxError")
_RUNS: Final = 40
"""Seeds of the plan by which a fault that the gate lets pass is looked for."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a build said of a fault: `caught`, `equal`, `MISSED` or `BROKEN`; `by` is the error."""

    fault: SeededFault
    verdict: str
    by: str
    by_one: bool
    wall_s: float


def judge(model: str, dialect: str) -> dict[str, Any]:
    """In a tree with a fault: what the gate and one random call say of a model's program."""
    from aotpipe.build.chain import Chain
    from aotpipe.build.compile_stage import CompileSettings, program_of
    from aotpipe.build.events import Recorder
    from aotpipe.build.request import Request
    from aotpipe.errors import AotpipeError
    from aotpipe.validate import validate
    from aotpipe.validate.inputs import plan
    from aotpipe.validate.reference import example_inputs

    def run() -> tuple[str, bool]:
        chain = Chain(Request.of(model, ["iree-cpu-host"], dialect=dialect), Recorder())
        [program] = map(program_of, chain.compiled(CompileSettings(cache=False)).values())

        def said(calls: Any) -> str:
            try:
                goldens = chain.reference(calls).goldens
                with chain.loadable() as loadable:
                    validated = validate(program, loadable, goldens)
            except AotpipeError as error:
                return f"{type(error).__name__}: {error.message}"
            return "" if validated.status == "executed" else validated.status

        # With the entry points that are programs for a part of the sizes.
        examples = {entry.name: example_inputs(entry) for entry in chain.exported.canonical.entries}
        signatures = chain.legal.signatures

        def planned(seed: int) -> Any:
            return plan(signatures, examples, seed=seed).calls

        one = next(call for call in planned(7) if call.case == "seed 0")
        by_one = bool(said([one]))
        if found := said(None):
            return found, by_one
        many = [call for seed in range(_RUNS) for call in planned(100 + seed)]
        named = [replace(call, case=f"{number} {call.case}") for number, call in enumerate(many)]
        return ("" if not (later := said(named)) else f"MISSED {later}"), by_one

    try:
        found, by_one = run()
    except AotpipeError as error:
        # No program was made: any call shows that.
        found, by_one = f"{type(error).__name__}: {error.message}", True
    return {"found": found, "by_one": by_one}


def measured(tree: Tree, fault: SeededFault) -> Result:
    """Put a fault into a tree, ask what a build says, and print it."""
    result = _measured(tree, fault)
    print(line(result), flush=True)
    return result


def _measured(tree: Tree, fault: SeededFault) -> Result:
    started = time.perf_counter()
    model = f"tests/seeded_faults/models/{fault.model}.py"
    with tree.having(fault):
        ran = tree.run("scripts/seeded_faults.py", "--judge", model, "--dialect", fault.dialect)
    wall_s = time.perf_counter() - started
    try:
        said = json.loads(ran.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        last = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
        # Another exception than a typed error ends a build, too; one of these says nothing of the gate.
        verdict = "BROKEN" if last.startswith(_BROKEN) else "caught"
        return Result(fault, verdict, f"a crash: {last[:160]}", True, wall_s)
    found = said["found"]
    verdict = "equal" if not found else "MISSED" if found.startswith("MISSED") else "caught"
    if found.startswith("TargetError"):
        verdict = "BROKEN"
    return Result(fault, verdict, found, said["by_one"], wall_s)


def line(result: Result) -> str:
    """A fault's line of the table."""
    by_one = "one call too" if result.by_one else "not by one call"
    words = by_one if result.verdict != "equal" else ""
    return f"{result.verdict:7} {result.fault.id:36} {words:16} {result.wall_s:5.1f} s  {result.by[:150]}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    parser.add_argument(
        "--only", action="append", metavar="ID", help="this fault; may be given several times"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="faults at a time (default 1)")
    parser.add_argument("--baseline", action="store_true", help="judge the models without any fault")
    parser.add_argument("--judge", metavar="MODEL", help=argparse.SUPPRESS)
    parser.add_argument("--dialect", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.judge:
        with contextlib.redirect_stdout(sys.stderr):
            found = judge(given.judge, given.dialect)
        print(json.dumps(found))
        return 0
    faults = chosen(parser, load(), given.only)
    if given.baseline:
        said = {each.model: judge(str(MODELS / f"{each.model}.py"), each.dialect)["found"] for each in faults}
        print(*(f"{model}: {found or 'passes'}" for model, found in said.items()), sep="\n")
        return int(any(said.values()))
    if given.list:
        for fault in faults:
            print(f"{fault.id}  {fault.model}\n    {fault.what}")
        return 0
    results = in_trees(faults, max(1, given.jobs), measured)
    telling = [result for result in results if result.verdict not in ("equal", "BROKEN")]
    caught = sum(result.verdict == "caught" for result in telling)
    by_one = sum(result.by_one for result in telling)
    print(f"{len(results)} faults, {len(telling)} change an output of a legal call")
    print(f"the gate catches {caught} of {len(telling)}, one random call {by_one}")
    broken = sum(result.verdict == "BROKEN" for result in results)
    if broken:
        print(f"{broken} could not be measured")
    return int(caught != len(telling) or bool(broken))


if __name__ == "__main__":
    sys.exit(main())
