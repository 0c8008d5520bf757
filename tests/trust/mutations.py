"""Bundles that are not what was packed: each is refused before anything of a program comes into a process.

A bundle is loaded with `check="goldens"`, which reads every file that belongs to the program. What makes a
runtime or a worker of it is replaced by a function that raises: a mutation that gets so far is not refused.
Of the last kinds the manifest is a forger's, with a digest that fits: what it says may be harmless, and then
is let through; but it costs no more than any other, and every failure is typed.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

COUNT = 1000
MANIFEST = "manifest.json"
KINDS = (
    *("flips of the manifest", "flips of weights", "flips of recorded calls", "flips of bytecode"),
    *("flips of native code", "flips of an archive", "zeroed pages", "truncations", "swaps", "names"),
    *("edits of the manifest", "forged manifests", "hostile manifests"),
)
WANTED = (
    f"{COUNT} each of flips per kind of file, zeroed pages, truncations, swaps, names, edits of the "
    "manifest: all refused before native code, 0 hangs, load under 1 s and 200 MB whatever the manifest"
)
UNITS = list(KINDS)
_FORGED = ("forged manifests", "hostile manifests")
_MOST_MB = 200
_PAGE = 4096
Draw = np.random.Generator


class Reached(Exception):
    """A program would have been loaded."""


def run(unit: str, folder: Path, *, count: int = COUNT) -> dict[str, float]:
    from aotpipe.runtime import bundle
    from tests.unit.runtime.bundle import samples

    programs = [samples.validated(), samples.validated(samples.HOST, "llvm-cpu")]
    root = samples.packed(folder / "b", programs=programs).path
    archive = bundle.archive(root, folder / "b.tar")
    whole = {path: path.read_bytes() for path in [archive, *(p for p in root.rglob("*") if p.is_file())]}
    counts = dict.fromkeys(("cases", "refused", "let_through", "untyped", "alike", "forged"), 0)
    counts |= {"most_ms": 0.0, "most_mb": 0.0}
    _stop_before_native_code()
    _tried(root, samples.HOST)
    for seed in range(count):
        draw = np.random.default_rng(seed)
        path, target = _mutated(unit, root, archive, draw)
        same = all(_content(file) == content for file, content in whole.items())
        if same and len(list(root.rglob("*"))) == len(whole) + 2:
            counts["alike"] += 1  # two equal pages were swapped, or zeros zeroed
        else:
            counts["cases"] += 1
            became, took_ms, took_mb = _measured(path, target)
            counts[became] += 1
            counts["most_ms"] = max(counts["most_ms"], took_ms)
            counts["most_mb"] = max(counts["most_mb"], took_mb)
            if became != "refused" and (unit not in _FORGED or became == "untyped"):
                print(f"{unit}, seed {seed}: {became}", file=sys.stderr)
        _restore(root, whole)
    counts["forged"] = counts["let_through"] if unit in _FORGED else 0
    return counts


def judge(counts: Any) -> tuple[str, bool]:
    harmful = counts["let_through"] - counts["forged"]
    figure = (
        f"{counts['refused'] + counts['forged']:.0f} of {counts['cases']:.0f} refused (or forged and "
        f"harmless: {counts['forged']:.0f}), {counts['untyped']:.0f} untyped errors, slowest "
        f"{counts['most_ms']:.0f} ms, {counts['most_mb']:.0f} MB"
    )
    met = (
        bool(counts["cases"])
        and not harmful
        and not counts["untyped"]
        and counts["most_ms"] < 1000
        and counts["most_mb"] < _MOST_MB
    )
    return figure, met


def _stop_before_native_code() -> None:
    from aotpipe.runtime import loading
    from aotpipe.runtime.bundle import recorded

    def reached(*_: object, **__: object) -> None:
        raise Reached

    loading.runtime = reached
    recorded.Worker = reached


def _tried(path: Path, target: str) -> str:
    import aotpipe
    from aotpipe.errors import BundleError

    try:
        aotpipe.load(path, target, check="goldens")
    except BundleError:
        return "refused"
    except Reached:
        return "let_through"
    except BaseException as error:
        print(f"{type(error).__name__}: {error}"[:300], file=sys.stderr)
        return "untyped"
    return "let_through"


def _measured(path: Path, target: str) -> tuple[str, float, float]:
    """What became of a bundle, and the CPU's milliseconds and MB; in a child with a peak of its own."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        ctypes.CDLL(None).malloc_trim(0)
        before = _peak_kb()
        started = time.process_time()
        became = _tried(path, target)
        found = [became, 1000 * (time.process_time() - started), (_peak_kb() - before) / 1000]
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        content = answer.read()
    _, status = os.waitpid(child, 0)
    if status or not content:
        return "untyped", 0.0, 0.0
    became, took_ms, took_mb = json.loads(content)
    return became, took_ms, took_mb


def _peak_kb() -> float:
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _content(path: Path) -> bytes | None:
    """The bytes of a regular file: a pipe or a device would never end."""
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def _restore(root: Path, whole: dict[Path, bytes]) -> None:
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in whole or _content(path) is None:
            path.unlink()
    for path, content in whole.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if _content(path) != content:
            path.write_bytes(content)


def _mutated(unit: str, root: Path, archive: Path, draw: Draw) -> tuple[Path, str]:
    """What to load, and for which target; the file that is changed belongs to it."""
    from tests.unit.runtime.bundle import samples

    host, bytecode = samples.HOST, samples.VMVX
    of_host = root / f"programs/{samples.HOST}/program.vmfb"
    of_bytecode = root / f"programs/{samples.VMVX}/program.vmfb"
    files = [root / MANIFEST, root / "weights.safetensors", root / "goldens.safetensors", of_host]
    any_file = files[int(draw.integers(len(files)))]
    match unit:
        case "flips of the manifest":
            _flip(files[0], draw)
        case "flips of weights":
            _flip(files[1], draw)
        case "flips of recorded calls":
            _flip(files[2], draw)
        case "flips of bytecode":
            _flip(of_bytecode, draw)
            return root, bytecode
        case "flips of native code":
            _flip(of_host, draw)
        case "flips of an archive":
            _flip(archive, draw, spare=of_bytecode)
            return archive, host
        case "zeroed pages":
            content = bytearray(any_file.read_bytes())
            first = int(draw.integers(-(-len(content) // _PAGE))) * _PAGE
            last = min(len(content), first + _PAGE * int(draw.integers(1, 4)))
            content[first:last] = bytes(last - first)
            any_file.write_bytes(content)
        case "truncations":
            os.truncate(any_file, int(draw.integers(any_file.stat().st_size)))
        case "swaps":
            _swap(files, draw)
        case "names":
            _name(root, files, draw)
        case "edits of the manifest":
            _edit(root / MANIFEST, draw, fits=False)
        case "forged manifests":
            _edit(root / MANIFEST, draw, fits=True)
        case "hostile manifests":
            _hostile(root / MANIFEST, draw)
        case _:
            raise AssertionError(unit)
    return root, host


def _flip(path: Path, draw: Draw, *, spare: Path | None = None) -> None:
    """Flip some bits; of an archive none of a file that the program does not need."""
    content = bytearray(path.read_bytes())
    begin = content.find(spare.read_bytes()) if spare else len(content)
    end = begin + (spare.stat().st_size if spare else 0)
    for _ in range(int(draw.integers(1, 4))):
        place = int(draw.integers(len(content) - (end - begin)))
        place += (end - begin) * (place >= begin)
        content[place] ^= 1 << int(draw.integers(8))
    path.write_bytes(content)


def _swap(files: list[Path], draw: Draw) -> None:
    """Swap two files, or two parts of one."""
    if draw.integers(3) == 0:
        one, other = (files[int(at)] for at in draw.choice(len(files), 2, replace=False))
        content = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(content)
        return
    path = files[int(draw.integers(len(files)))]
    content = bytearray(path.read_bytes())
    size = int(draw.integers(1, min(512, len(content) // 2)))
    one, other = (int(at) * size for at in draw.choice(len(content) // size, 2, replace=False))
    content[one : one + size], content[other : other + size] = (
        content[other : other + size],
        content[one : one + size],
    )
    path.write_bytes(content)


_NAMES = (
    *("evil.py", "sitecustomize.py", "__init__.py", "libm.so.6", "x.pth", ".hidden.pyc", "README", "a b"),
    *("programs/x.vmfb", "weights.safetensors.bak", "manifest.json.orig", "MANIFEST.JSON", "é", "a\nb"),
)


def _name(root: Path, files: list[Path], draw: Draw) -> None:
    """Rename or remove a file, add one, or put a link or a folder in its place."""
    path = files[int(draw.integers(len(files)))]
    added = root / f"{draw.choice(_NAMES)}"
    if not added.name.startswith(".") and draw.integers(2):
        added = added.with_name(f"{draw.integers(10**9)}{added.name}")
    match int(draw.integers(6)):
        case 0:
            path.rename(added)
        case 1:
            path.unlink()
        case 2:
            added.write_bytes(draw.bytes(int(draw.integers(64))))
        case 3:
            path.unlink()
            path.symlink_to(["/etc/passwd", "/dev/zero", "nowhere", path.name][int(draw.integers(4))])
        case 4:
            path.unlink()
            path.mkdir()
        case _:
            path.unlink()
            os.mkfifo(path)


def _edit(path: Path, draw: Draw, *, fits: bool) -> None:
    """Change values of a manifest as somebody would who knows its form."""
    content = json.loads(path.read_bytes())
    for _ in range(int(draw.integers(1, 4))):
        places = list(_places(content))
        holder, key = places[int(draw.integers(len(places)))]
        _change(holder, key, draw)
    if fits:
        _write_forged(path, content)
    else:
        path.write_bytes(_text(content))


def _write_forged(path: Path, content: Any) -> None:
    """Write a manifest with the digest that fits it."""
    content.pop("digest", None)
    content["digest"] = hashlib.sha256(_text(content)).hexdigest()
    path.write_bytes(_text(dict(sorted(content.items()))))


def _text(content: Any) -> bytes:
    return f"{json.dumps(content, indent=2, ensure_ascii=False)}\n".encode("utf-8", "surrogatepass")


def _places(value: Any) -> Any:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


_VALUES: tuple[Callable[[Draw], Any], ...] = (
    lambda draw: None,
    lambda draw: int(draw.integers(-(2**62), 2**62)),
    lambda draw: float(draw.normal()),
    lambda draw: "",
    lambda draw: "../" * int(draw.integers(9)) + "etc/passwd",
    lambda draw: "x" * int(draw.integers(3000)),
    lambda draw: "x: float32[n, 9**9]",
    lambda draw: [],
    lambda draw: {},
    lambda draw: [[[]]] * int(draw.integers(99)),
    lambda draw: {"a": 1},
    lambda draw: True,
    lambda draw: "\ud800" if draw.integers(9) == 0 else "\0",
)


def _change(holder: Any, key: Any, draw: Draw) -> None:
    kind = int(draw.integers(5))
    old = holder[key]
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[f"{key}{draw.integers(9)}"] = holder.pop(key)
    elif kind == 2 and isinstance(old, int) and not isinstance(old, bool):
        holder[key] = old + int(draw.integers(-3, 4) or 1)
    elif kind == 2 and isinstance(old, str) and old:
        at = int(draw.integers(len(old)))
        holder[key] = old[:at] + chr(int(draw.integers(32, 127))) + old[at + 1 :]
    elif kind == 3 and isinstance(old, list) and old:
        holder[key] = old * int(draw.integers(2, 6))
    else:
        holder[key] = _VALUES[int(draw.integers(len(_VALUES)))](draw)


def _hostile(path: Path, draw: Draw) -> None:
    """Text that costs whoever reads it: deep, wide, long, or a manifest with such a part."""
    from aotpipe.runtime.bundle import limits

    size = int(draw.choice([1000, 60_000, limits.SIZE_BYTES - 64, limits.SIZE_BYTES * 8]))
    pieces = [
        b"[",
        b"[],",
        b'{"a":',
        b'"',
        b"9",
        b"1e9,",
        b"\\u0041",
        b'"\\',
        b"-",
        b" ",
        b"\xff",
        b'["a",1],',
    ]
    piece = pieces[int(draw.integers(len(pieces)))]
    kind = int(draw.integers(4))
    if kind == 0:
        path.write_bytes(piece * (size // len(piece)))
        return
    if kind == 1:
        closing = {b"[": b"]", b'{"a":': b"}", b'"': b'"'}.get(piece, b"]")
        path.write_bytes(
            b"[" + piece * (size // len(piece) // 2) + b"1" + closing * (size // len(piece) // 2)
        )
        return
    content = json.loads(path.read_bytes())
    signature = content["entry_points"]["forward"]["signature"]
    many = int(draw.choice([70, 3000, 40_000]))
    ops = ["+", "-", "*", "//", "**", "%", "<<", "@"]
    word = f"n{draw.choice(ops)}{draw.choice(['9', 'n', '99999999999', '-1', '0'])}"
    parts: list[Callable[[], Any]] = [
        lambda: signature.update(inputs=[f"x: float32[{word * many}]"]),
        lambda: signature.update(inputs=[f"x: float32[{', '.join([word] * many)}]"]),
        lambda: signature.update(inputs=[f"x{at}: float32[{word} + {at}]" for at in range(many)]),
        lambda: signature.update(symbols=[f"n{at}=1..{at + 2}" for at in range(many)]),
        lambda: signature.update(guards=[f"{word} == {at}" for at in range(many)]),
        lambda: signature.update(guards=[" and ".join([f"{word} == 1"] * many)]),
        lambda: content.update(weights=[f"w{at}" for at in range(many)]),
        lambda: content.update(arrays={f"w{at}": f"float32[{at}]" for at in range(many)}),
        lambda: content.update(programs=content["programs"] * many),
        lambda: content.update(
            entry_points={f"e{at}": content["entry_points"]["forward"] for at in range(many)}
        ),
        lambda: content["programs"][0].update(flags=["--x"] * many),
        lambda: content["programs"][0].update(variants=[{**content["programs"][0]}] * many),
        lambda: content.update(
            files={f"f{at}": content["files"]["weights.safetensors"] for at in range(many)}
        ),
        lambda: content["files"]["weights.safetensors"].update(size_bytes=2 ** int(draw.integers(30, 63))),
        lambda: content.update(materials={f"source/{at}": "0" * 64 for at in range(many)}),
        lambda: content.update(name="n" * 100 * many),
    ]
    parts[int(draw.integers(len(parts)))]()
    _write_forged(path, content)
