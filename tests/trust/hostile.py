"""Bundles that were made to do harm: each is refused, and none of its code runs.

Each is loaded in four ways, by a process whose working folder is the bundle and whose memory is bounded:
`load`, `load(check="goldens")`, `selftest`, and the command line. What is Python in it writes a file, which
must not be there afterwards.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

WANTED = "30 hostile bundles: all refused with none of their code run"
UNITS = ["all"]
_LIMIT_S = 60
_MEMORY_BYTES = 8 << 30
_EVIL = "import pathlib; pathlib.Path({canary!r}).touch()\n"
_WAYS = """\
import json, sys
import aotpipe
from aotpipe.errors import AotpipeError
from aotpipe.runtime import bundle

sys.path.insert(0, "")  # as in an interactive session
path, options = sys.argv[1], json.loads(sys.argv[2])
for way in (aotpipe.load, lambda *a, **o: aotpipe.load(*a, check="goldens", **o), bundle.selftest):
    try:
        found = way(path, **options)
    except AotpipeError as error:
        print("refused", type(error).__name__)
        continue
    if getattr(found, "passed", True):
        print("taken", found)
    else:
        print("refused", "selftest")
"""


def run(unit: str, folder: Path, *, only: str = "") -> dict[str, float]:
    counts = {"cases": 0, "refused": 0, "ran": 0, "most_s": 0.0}
    for number, (name, make) in enumerate(CASES.items()):
        if only not in name:
            continue
        place = folder / f"{number}"
        place.mkdir()
        started = time.monotonic()
        said = _tried(place, make)
        ran = (place / "canary").exists()
        counts["cases"] += 1
        counts["ran"] += ran
        counts["refused"] += not said and not ran
        counts["most_s"] = max(counts["most_s"], time.monotonic() - started)
        if said or ran:
            print(f"{name}: {'ITS CODE RAN ' * ran}{said}", file=sys.stderr)
    return counts


def judge(counts: Any) -> tuple[str, bool]:
    figure = (
        f"{counts['refused']:.0f} of {counts['cases']:.0f} refused, code of {counts['ran']:.0f} ran, "
        f"slowest {counts['most_s']:.1f} s for four ways"
    )
    return figure, counts["refused"] == counts["cases"] >= 30 and not counts["ran"]


def _tried(place: Path, make: Callable[[Path], Any]) -> str:
    """What was not refused; empty where everything was."""
    given = make(place)
    path, options = given if isinstance(given, tuple) else (given, {})
    inside = path if path.is_dir() else path.parent
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    named = [part for name in options.get("islands", ()) for part in ("--island", name)]
    commands = [
        [sys.executable, "-P", "-c", _WAYS, str(path), json.dumps(options)],
        [sys.executable, "-P", "-m", "aotpipe", "selftest", ".", *named],
    ]
    if not path.is_dir():
        commands[1][5] = path.name
    problems = []
    for command, count in zip(commands, (3, 0), strict=True):
        try:
            done = subprocess.run(
                command, cwd=inside, env=environment, capture_output=True, timeout=_LIMIT_S, preexec_fn=_limit
            )
        except subprocess.TimeoutExpired:
            problems.append("it hangs")
            continue
        said, complained = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        if "Traceback" in complained or done.returncode < 0 or done.returncode == 70:
            problems.append(f"exit {done.returncode}: {complained[-300:]}")
        elif count and said.count("refused ") != count:
            problems.append(said)
        elif not count and not done.returncode:
            problems.append(f"the command took it: {said}")
    return "; ".join(problems)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))


def _packed(place: Path) -> Path:
    from tests.unit.runtime.bundle import samples

    return samples.packed(place / "b").path


def _added(name: str, content: str = _EVIL) -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        root = _packed(place)
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content.format(canary=str(place / "canary")))
        return root

    return make


def _island(
    name: str, *, kind: str = "function", beside: str = "", arguments: Any = None, **options: Any
) -> Callable[[Path], Any]:
    """A bundle whose one step is an island; `beside` is a file of Python in the working folder."""

    def make(place: Path) -> Any:
        from aotpipe.core.signature import Signature, TensorSpec
        from aotpipe.runtime import bundle
        from aotpipe.runtime.goldens import Golden
        from aotpipe.runtime.islands.chain import Chain, Island, Parts
        from tests.unit.runtime.bundle import samples

        own = TensorSpec("y", "float32", (4,))
        step = Island(
            name=name,
            kind=kind,
            where=None,
            reason="",
            arrays="numpy",
            arguments=arguments or {"list": [{"list": [{"tensor": 0}]}, {"dict": {}}]},
            result={"tensor": 0},
            inputs=("x",),
            outputs=(own,),
        )
        x = np.ones(4, np.float32)
        parts = Parts(
            signatures={},
            asserts={},
            chains={"forward": Chain(steps=(step,), inputs={"x": "x"}, outputs={"y": "y"})},
        )
        made = bundle.pack(
            place / "b",
            **samples.contents(
                signatures={"forward": Signature(inputs=(TensorSpec("x", "float32", (4,)),), outputs=(own,))},
                asserts={},
                goldens=(
                    Golden(
                        entry_point="forward",
                        case="0",
                        reset=True,
                        inputs={"x": x},
                        outputs={"y": x},
                        allowed={},
                    ),
                ),
                parts=parts,
            ),
        )
        if beside:
            # The working folder of the call is that of the archive.
            (place / "w").mkdir()
            archive = bundle.archive(made, place / "w" / "b.tar")
            (place / "w" / beside).write_text(_EVIL.format(canary=str(place / "canary")))
            return archive, options
        return made.path, options

    return make


def _op(name: str, arguments: Any = None) -> Callable[[Path], Any]:
    return _island(name, kind="op", arguments=arguments)


def _command(place: str) -> Any:
    return {"list": [{"list": [{"value": place}]}, {"dict": {}}]}


def _replaced(name: str, put: Callable[[Path], None]) -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        root = _packed(place)
        (root / name).rename(place / "moved")
        put(root / name)
        return root

    return make


def _socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)
    os.chdir(before)


def _device(path: Path) -> None:
    try:
        os.mknod(path, 0o020666, os.makedev(1, 5))
    except PermissionError:
        path.symlink_to("/dev/zero")


def _sized(name: str, size: int) -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        root = _packed(place)
        os.truncate(root / name, size)
        return root

    return make


def _forged(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        from tests.unit.runtime.bundle import samples

        root = _packed(place)
        samples.rewrite_manifest(root, change)
        return root

    return make


def _hashed(name: str, content: Callable[[bytes], bytes]) -> Callable[[Path], Path]:
    """A file in place of another, with a manifest that names its digest."""

    def make(place: Path) -> Path:
        from tests.unit.runtime.bundle import samples

        root = _packed(place)
        data = content((root / name).read_bytes())
        (root / name).write_bytes(data)
        entry = {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
        samples.rewrite_manifest(root, lambda manifest: manifest["files"].update({name: entry}))
        return root

    return make


def _header(text: bytes, length: int | None = None) -> Callable[[bytes], bytes]:
    size = len(text) if length is None else length
    return lambda _: size.to_bytes(8, "little") + text + bytes(64)


def _expression(text: str) -> Callable[[Path], Path]:
    def change(manifest: dict[str, Any]) -> None:
        manifest["entry_points"]["forward"]["signature"]["inputs"] = [f"x: float32[batch, {text}]"]

    return _forged(change)


def _huge_call(place: Path) -> Path:
    """Recorded calls of 4 TB in a file of a few bytes, of a bundle that lacks its weights."""
    tensor = {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 64]}
    root = _hashed("goldens.safetensors", _header(json.dumps({"0.x": tensor}).encode()))(place)
    (root / WEIGHTS).unlink()
    return root


def _archive(change: Callable[[bytes], bytes]) -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        from aotpipe.runtime import bundle

        path = bundle.archive(_packed(place), place / "b.tar")
        path.write_bytes(change(path.read_bytes()))
        return path

    return make


WEIGHTS = "weights.safetensors"
_FILE = {"sha256": "0" * 64, "size_bytes": 8}
CASES: Mapping[str, Callable[[Path], Any]] = {
    "a function of a module in the bundle": _added("evil.py"),
    "a module in place of numpy": _added("numpy/__init__.py"),
    "a package in place of the runtime": _added("iree/runtime.py"),
    "a module that Python imports by itself": _added("sitecustomize.py"),
    "lines that site runs": _added("evil.pth", _EVIL),
    "hidden bytecode": _added("programs/.evil.pyc"),
    "a library beside a program": _added("programs/iree-vmvx/libm.so.6"),
    "an island that is not allowed": _island("evil:run", beside="evil.py"),
    "an allowed island in the working folder": _island("evil:run", beside="evil.py", islands=["evil:run"]),
    "a command of the system": _island("os:system", arguments=_command("touch canary ../canary")),
    "an allowed name that is not marked": _island(
        "os:system", arguments=_command("touch canary ../canary"), islands=["os:system"]
    ),
    "a function of builtins": _island("builtins:exec", arguments=_command("open('../canary', 'w')")),
    "a file of the host by an op": _op(
        "aten.from_file.default", {"list": [{"list": [{"value": "/etc/passwd"}]}, {"dict": {}}]}
    ),
    "an op that writes files": _op("aten.save.default"),
    "an op that checks nothing": _op("aten._unsafe_index.Tensor"),
    "an op that loads from a folder": _op("debugprims.load_tensor.default"),
    "an attribute in place of an op": _op("aten.relu.__class__"),
    "an op that waits for other hosts": _op("c10d_functional.wait_tensor.default"),
    "weights that are a link to the host's": _replaced(WEIGHTS, lambda path: path.symlink_to("/etc/passwd")),
    "a manifest that is a link to a device": _replaced(
        "manifest.json", lambda path: path.symlink_to("/dev/zero")
    ),
    "programs that are a link out of the bundle": _replaced(
        "programs", lambda path: path.symlink_to(path.parent.parent / "moved")
    ),
    "a manifest that is a pipe": _replaced("manifest.json", lambda path: os.mkfifo(path)),
    "weights that are a pipe": _replaced(WEIGHTS, lambda path: os.mkfifo(path)),
    "weights that are a device": _replaced(WEIGHTS, _device),
    "weights that are a socket": _replaced(WEIGHTS, _socket),
    "a manifest of a terabyte": _sized("manifest.json", 1 << 40),
    "weights of a terabyte": _sized(WEIGHTS, 1 << 40),
    "a manifest of 100 MB": _replaced(
        "manifest.json", lambda path: path.write_bytes(b"[" + b"[]," * (33 << 20) + b"1]") and None
    ),
    "a size that never ends": _expression("9**9**9"),
    "a size that is code": _expression("__import__('os').system('touch ../canary')"),
    "a path that leaves": _forged(lambda m: m["files"].update({"../../outside": _FILE})),
    "an absolute path": _forged(lambda m: m["files"].update({"/etc/passwd": _FILE})),
    "Python among the files": _forged(lambda m: m["files"].update({"programs/net.py": _FILE})),
    "a file that says to be exabytes": _forged(lambda m: m["files"][WEIGHTS].update(size_bytes=1 << 60)),
    "a header of exabytes": _hashed(WEIGHTS, _header(b"{}", 1 << 60)),
    "a header that nests": _hashed(WEIGHTS, _header(b'{"a":' * (1 << 20))),
    "an array of terabytes": _hashed(
        WEIGHTS,
        _header(json.dumps({"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 64]}}).encode()),
    ),
    "a recorded call of terabytes": _huge_call,
    "a program of zeros": _hashed("programs/iree-vmvx/program.vmfb", lambda data: bytes(len(data))),
    "a program that is cut": _hashed("programs/iree-vmvx/program.vmfb", lambda data: data[: len(data) // 2]),
    "an archive with a path that leaves": _archive(
        lambda data: data.replace(b"goldens.safetensors\0" + bytes(0), b"../../evil.sf\0\0\0\0\0\0\0", 1)
    ),
    "an archive with more at its end": _archive(lambda data: data + bytes(512)),
}
