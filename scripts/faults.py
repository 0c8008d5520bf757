"""Shows that the quick tests catch the past faults of this project.

usage: faults.py [--list] [--only ID]... [--jobs N] [--baseline] [--timeout SECONDS]

`tests/faults/*.toml` has the faults. Each is put back into a copy of the working tree, and the one test that
it names is run there in a process of its own, which must fail: not while it is collected or set up, and not
because the changed code cannot be imported. Prints a table; the exit code is 1 unless each fault is caught.

`--baseline` runs the named tests in a copy without any fault: all of them must pass.
"""

from __future__ import annotations

import argparse
import compileall
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar
from xml.etree import ElementTree as ET

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.faults.faults import Change, Fault, load  # noqa: E402  # the root is no folder of this script's path

# A test that fails so has not looked at what the fault changes.
_BROKEN: Final = ("ImportError", "IndentationError", "ModuleNotFoundError", "NameError", "SyntaxError")
_LATE: Final = "Failed: Timeout"
_FAILED: Final = 1

C = TypeVar("C", bound=Change)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Result:
    """What a fault's test said: `problem` is empty where it caught the fault."""

    fault: Fault
    problem: str
    wall_s: float


class Tree:
    """A copy of the working tree to put faults into."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, check=True, text=True,
        )  # fmt: skip
        for name in filter(None, listed.stdout.split("\0")):
            source, copy = ROOT / name, folder / name
            if source.is_file():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, copy)
        # Each of the many processes would compile the package again where Python writes no bytecode.
        compileall.compile_dir(folder / "aotpipe", quiet=1)
        found = self.run("-c", "import aotpipe; print(aotpipe.__file__)").stdout.strip()
        if not Path(found).is_relative_to(folder):
            raise SystemExit(f"the copy in {folder} does not import its own package, but {found}")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the copy; its children find the copy's package too."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(self.root)},
            # A terminal would stop a test in the background that reads from it.
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def tested(self, tests: Sequence[str], timeout_s: float) -> tuple[int, ET.Element | None, str]:
        """Run tests; gives pytest's exit code, its report and its output."""
        report = self.root / "report.xml"
        report.unlink(missing_ok=True)
        ran = self.run(
            *("-m", "pytest", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"),
            *("--tb=short", f"--timeout={timeout_s}", f"--junitxml={report}", *tests),
        )
        root = ET.parse(report).getroot() if report.exists() else None
        return ran.returncode, root, ran.stdout + ran.stderr

    @contextmanager
    def having(self, fault: Change) -> Iterator[None]:
        """Put a fault in, and take it out again."""
        before = {path: (path.read_bytes(), path.stat()) for path in fault.changed(self.root)}
        try:
            for path, text in fault.changed(self.root).items():
                compile(text, str(path), "exec")
                path.write_text(text, encoding="utf-8")
            yield
        finally:
            for path, (content, stat) in before.items():
                path.write_bytes(content)
                # The bytecode of this text is that of this time.
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def caught(tree: Tree, fault: Fault, timeout_s: float) -> Result:
    """Whether a fault's test fails with the fault, and on what the fault changes."""
    started = time.perf_counter()
    try:
        with tree.having(fault):
            code, report, output = tree.tested([fault.caught_by], timeout_s)
    except (OSError, ValueError, SyntaxError) as error:
        return Result(fault, f"cannot be put back: {error}", time.perf_counter() - started)
    return Result(fault, _problem(code, report, output), time.perf_counter() - started)


def _problem(code: int, report: ET.Element | None, output: str) -> str:
    if code != _FAILED or report is None:
        return "not caught: the test passes" if code == 0 else f"pytest ended with {code}:\n{output[-2000:]}"
    if list(report.iter("error")):
        return f"the test could not be collected or set up:\n{output[-2000:]}"
    failures = list(report.iter("failure"))
    if not failures:
        return f"no test failed:\n{output[-2000:]}"
    said = [failure.get("message", "") for failure in failures]
    if all(each.startswith(_LATE) for each in said):
        return "the test ran past its limit: --timeout gives it more"
    if all(each.startswith(_BROKEN) for each in said):
        return f"the changed code is broken in another way: {said[0][:500]}"
    return ""


def baseline(tree: Tree, faults: Sequence[Fault], timeout_s: float) -> int:
    """Run the tests of all faults without a fault."""
    tests = sorted({fault.caught_by for fault in faults})
    code, _, output = tree.tested(tests, timeout_s)
    print(output.strip().splitlines()[-1] if code == 0 else output)
    print(f"the {len(tests)} tests of {len(faults)} faults {'FAIL' if code else 'pass'} without a fault")
    return int(code != 0)


def table(results: Sequence[Result]) -> Iterator[str]:
    """A line for each fault."""
    widths = [max(len(text) for text in column) for column in zip(*map(_cells, results), strict=True)]
    for result in results:
        yield "  ".join(
            text.ljust(width) for text, width in zip(_cells(result), widths, strict=True)
        ).rstrip()
        if result.problem:
            yield f"    {result.problem}"


def _cells(result: Result) -> tuple[str, ...]:
    fault = result.fault
    verdict = "MISSED" if result.problem else "caught"
    return verdict, fault.area, fault.id, fault.commit, f"{result.wall_s:5.1f} s", fault.caught_by


def in_trees(faults: Sequence[C], jobs: int, ask: Callable[[Tree, C], R]) -> list[R]:
    """What is found out about each fault, in as many copies of the working tree as there are jobs."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for number in range(min(jobs, len(faults))):
            trees.put(Tree(Path(folder) / str(number)))

        def one(fault: C) -> R:
            tree = trees.get()
            try:
                return ask(tree, fault)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, faults))


def chosen(parser: argparse.ArgumentParser, faults: Sequence[C], ids: list[str] | None) -> tuple[C, ...]:
    """The faults with these ids, or all."""
    if unknown := set(ids or ()) - {fault.id for fault in faults}:
        parser.error(f"no fault has the id {', '.join(sorted(unknown))}")
    return tuple(fault for fault in faults if ids is None or fault.id in ids)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    parser.add_argument(
        "--only", action="append", metavar="ID", help="this fault; may be given several times"
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="faults at a time (default 2)")
    parser.add_argument("--baseline", action="store_true", help="run the tests without any fault")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="seconds for a test")
    given = parser.parse_args()
    faults = chosen(parser, load(), given.only)
    if given.list:
        for fault in faults:
            print(f"{fault.area}  {fault.id}  {fault.commit}\n    {fault.what}\n    {fault.caught_by}")
        return 0
    if given.baseline:
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            return baseline(Tree(Path(folder)), faults, given.timeout)

    def asked(tree: Tree, fault: Fault) -> Result:
        result = caught(tree, fault, given.timeout)
        print("MISSED" if result.problem else "caught", fault.id, file=sys.stderr, flush=True)
        return result

    results = in_trees(faults, max(1, given.jobs), asked)
    print(*table(results), sep="\n")
    count = sum(not result.problem for result in results)
    print(", ".join(f"{area} {number}" for area, number in Counter(fault.area for fault in faults).items()))
    print(f"{count} of {len(results)} past faults caught")
    return int(count != len(results))


if __name__ == "__main__":
    sys.exit(main())
