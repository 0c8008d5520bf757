"""Whatever a user's code reads while it builds a model is seen.

Each case runs in a process of its own: in this one, the tests themselves are user code that ran before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.sweep import sweep

RUN = """
import json, sys
from pathlib import Path
from aotpipe.build.file_reads import recorded_reads
from aotpipe.core.serialization import to_json
with recorded_reads(exclude=[Path("cache").absolute()]) as reads:
    sys.path.insert(0, ".")
    import model
    found = reads.dependencies()
print(json.dumps(found and to_json(found)))
"""


def watch(folder: Path, source: str, before: str = "", **files: str) -> dict[str, Any] | None:
    """The dependencies of a model file, paths relative to its folder."""
    (folder / "model.py").write_text(textwrap.dedent(source))
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    result = subprocess.run(
        [sys.executable, "-c", before + RUN],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "AOTPIPE_TEST_SIZE": "3"},
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    if found is not None:
        found["mine"] = {
            str(Path(path).relative_to(folder))
            for path in found["files"]
            if Path(path).is_relative_to(folder)
        }
        assert not [
            path for path in found["files"] if path.endswith(".py") and not path.startswith(str(folder))
        ]
    return found


@pytest.mark.parametrize("again", [False, True], ids=["first", "from pyc"])
def test_modules_and_what_they_import(tmp_path: Path, again: bool):
    for _ in range(1 + again):
        found = watch(tmp_path, "import layers\nimport json", layers__py="WIDTH = 8")
    assert found is not None
    assert found["mine"] == {"model.py", "layers.py"}


def test_modules_behind_links_count_as_what_they_are(tmp_path: Path):
    (tmp_path / "real" / "package").mkdir(parents=True)
    (tmp_path / "real" / "package" / "__init__.py").write_text("WIDTH = 8")
    (tmp_path / "real" / "alone.py").write_text("DEPTH = 2")
    (tmp_path / "package").symlink_to(tmp_path / "real" / "package")
    (tmp_path / "alone.py").symlink_to(tmp_path / "real" / "alone.py")
    found = watch(tmp_path, "import package, alone")
    assert found is not None
    assert found["mine"] == {"model.py", "real/package/__init__.py", "real/alone.py"}


def test_files_opened_and_listed(tmp_path: Path):
    source = """
        import glob, os, numpy
        from pathlib import Path
        open("a.txt").read()
        Path("b.txt").read_text()
        os.read(os.open("c.txt", os.O_RDONLY), 1)
        glob.glob("parts/*")
        numpy.fromfile("d.txt", dtype="uint8")
    """
    (tmp_path / "parts").mkdir()
    found = watch(tmp_path, source, a__txt="a", b__txt="b", c__txt="c", d__txt="d")
    assert found is not None
    assert found["mine"] == {"model.py", "a.txt", "b.txt", "c.txt", "d.txt"}
    assert str(tmp_path / "parts") in found["folders"]


def test_weights_that_a_library_maps_without_python(tmp_path: Path):
    source = """
        import numpy as np
        from safetensors import safe_open
        from safetensors.numpy import save_file
        KEEP = safe_open("w.safetensors", framework="numpy")
        TENSOR = KEEP.get_tensor("w")
    """
    save_file({"w": np.ones(9)}, tmp_path / "w.safetensors")
    found = watch(tmp_path, source)
    assert found is not None
    assert found["mine"] == {"model.py", "w.safetensors"}


@pytest.mark.parametrize("framework", ["numpy", pytest.param("torch", marks=pytest.mark.slow)])
def test_weights_that_a_library_has_read_and_let_go(tmp_path: Path, framework: str):
    if framework == "torch":
        pytest.importorskip("torch")
    source = f"""
        from safetensors.{framework} import load_file
        WEIGHTS = load_file("w.safetensors")
        WEIGHTS = {{name: value + 1 for name, value in WEIGHTS.items()}}
    """
    save_file({"w": np.ones(9)}, tmp_path / "w.safetensors")
    found = watch(tmp_path, source)
    assert found is not None
    assert found["mine"] == {"model.py", "w.safetensors"}


def test_variables_of_the_users_code_alone(tmp_path: Path):
    source = """
        import os, shutil
        A = os.environ["AOTPIPE_TEST_SIZE"], os.getenv("AOTPIPE_TEST_NONE"), "AOTPIPE_TEST_IN" in os.environ
        shutil.which("ls")
    """
    found = watch(tmp_path, source)
    assert found is not None
    assert {name for name in found["variables"] if name.startswith("AOTPIPE")} == {
        "AOTPIPE_TEST_SIZE",
        "AOTPIPE_TEST_NONE",
        "AOTPIPE_TEST_IN",
    }


def test_what_it_wrote_itself_or_aotpipe_excludes_is_not_its_source(tmp_path: Path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "x").write_text("")
    source = """
        from pathlib import Path
        Path("made.txt").write_text("1")
        Path("made.txt").read_text()
        open("cache/x").read()
    """
    found = watch(tmp_path, source)
    assert found is not None
    assert found["mine"] == {"model.py"}


def test_imported_packages_count_by_their_record(tmp_path: Path):
    found = watch(tmp_path, "import numpy")
    assert found is not None
    assert [path for path in found["files"] if "numpy-" in path and path.endswith("RECORD")]
    assert not [path for path in found["files"] if "torch-" in path]


def test_user_code_that_ran_before_is_not_trusted(tmp_path: Path):
    (tmp_path / "early.py").write_text("")
    assert watch(tmp_path, "", before="import sys; sys.path.insert(0, '.'); import early\n") is None


def test_a_source_that_changes_meanwhile_is_not_trusted(tmp_path: Path):
    source = """
        import os
        from pathlib import Path
        open("a.txt").read()
        os.system("echo changed > a.txt")
    """
    assert watch(tmp_path, source, a__txt="a") is None


TELL = """
import sys
from aotpipe.build import file_reads
told = []
import safetensors, numpy
from safetensors.numpy import save_file
EARLY
file_reads.wrap_loaded(told.append)
file_reads.wrap_loaded(told.append)
"""

CASES = {
    "safe_open": """
save_file({"w": numpy.ones(3)}, "w.bin")
from safetensors import safe_open
with safe_open("w.bin", framework="numpy") as file:
    assert list(file.keys()) == ["w"]
with safe_open(filename="w.bin", framework="numpy") as file:
    pass
assert told == ["w.bin", "w.bin"], told
""",
    "load_file": """
save_file({"w": numpy.ones(3)}, "w.bin")
assert load_file("w.bin")["w"].sum() == 3
assert told == ["w.bin"], told
""",
    "export.load": """
import torch
file_reads.wrap_loaded(told.append)
program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
torch.export.save(program, "m.pt2")
told.clear()
torch.export.load("m.pt2")
assert "m.pt2" in map(str, told), told
""",
    "jit.load": """
import torch
file_reads.wrap_loaded(told.append)
torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), "m.pt")
told.clear()
torch.jit.load("m.pt")
assert "m.pt" in map(str, told), told
""",
}


@pytest.mark.parametrize("case", sweep(CASES, quick=2))
def test_the_path_is_told(case: str, tmp_path: Path):
    if ".load" in case:
        pytest.importorskip("torch")
    script = TELL.replace("EARLY", "from safetensors.numpy import load_file") + CASES[case]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
