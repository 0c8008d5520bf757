"""Two compiles of one module are equal, though kernels are compiled on several threads."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from aotpipe.backends.xla.object_files import sorted_object_files
from tests.unit.backends.xla.test_tool import run

# Kernels of different shapes, which are not fused: an object file each.
TYPES = [f"tensor<{size}xi32>" for size in range(2, 8)]
MODULE = "\n".join(
    [
        f"func.func public @main({', '.join(f'%x{at}: {kind}' for at, kind in enumerate(TYPES))}) -> (",
        f"{', '.join(TYPES)}) {{",
        *(f"%r{at} = stablehlo.multiply %x{at}, %x{at} : {kind}" for at, kind in enumerate(TYPES)),
        f"return {', '.join(f'%r{at}' for at in range(len(TYPES)))} : {', '.join(TYPES)} }}",
    ]
)


def test_two_compiles_are_equal(tmp_path: Path) -> None:
    # An executable has the number that its module has in the compiler's process.
    names = [f"m{at}" for at in range(6)]
    made = []
    for at in range(2):
        folder = tmp_path / f"{at}"
        folder.mkdir()
        done = run(folder, **dict.fromkeys(names, MODULE))
        assert done.returncode == 0, done.stderr
        made.append([(folder / f"{name}.bin").read_bytes() for name in names])
    assert made[0][0].count(b"\x7fELF") == len(TYPES)
    assert made[0] == made[1]


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


@given(st.permutations([b"c", b"a", b"", b"bb"]))
def test_object_files_are_sorted_in_place(objects: list[bytes]) -> None:
    def executable(files: list[bytes]) -> bytes:
        inner = field(1, b"module") + b"".join(field(8, each) for each in files) + field(10, b"layout")
        return field(15, b"header")[1:] + field(1, inner) + field(2, b"options")

    assert sorted_object_files(executable(objects)) == executable([b"", b"a", b"c", b"bb"])


@given(st.binary(max_size=60))
def test_other_bytes_stay_what_they_are(content: bytes) -> None:
    found = sorted_object_files(content)
    assert sorted(found) == sorted(content)
    if b"\x42" not in content:  # the tag of an object file
        assert found == content
