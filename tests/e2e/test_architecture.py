"""What import-linter cannot say: a serving host needs neither torch nor a compiler, not even to import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "aotpipe"
RUNTIME_ONLY = [
    "aotpipe",
    "aotpipe.runtime.iree.runtime",
    "aotpipe.runtime.worker",
    "aotpipe.runtime.bundle",
    "aotpipe.cli",
    "aotpipe.core.dtypes",
    "aotpipe.errors",
    "aotpipe.runtime.goldens",
    "aotpipe.runtime.input_checks",
    "aotpipe.core.signature",
    "aotpipe.core.stages",
    "aotpipe.runtime.store",
    "aotpipe.core.targets",
    "aotpipe.runtime.toolchain",
]
BUILD_ONLY = ("torch", "iree.compiler", "transformers", "jinja2")


@pytest.mark.parametrize("module", RUNTIME_ONLY)
def test_a_runtime_module_loads_neither_torch_nor_a_compiler(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in {BUILD_ONLY!r} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


def _runtime_files() -> list[Path]:
    files = [
        PACKAGE.joinpath(*module.split(".")[1:])
        for module in RUNTIME_ONLY
        if module not in {"aotpipe", "aotpipe.cli"}
    ]
    return [
        file
        for place in files
        for file in ([place.with_suffix(".py")] if not place.is_dir() else place.glob("*.py"))
    ]


@pytest.mark.parametrize("file", _runtime_files(), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_runtime_module_never_names_a_compiler(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    type_checking = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    imported: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in type_checking:
            continue
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{name.name}" for name in node.names}
    assert not [name for name in imported if name.startswith(BUILD_ONLY)]


def test_help_is_quick_to_import() -> None:
    """`aotpipe --help` must not pay for numpy's or pydantic's import either."""
    heavy = ("numpy", "pydantic", "iree")
    code = f"import sys, aotpipe.cli; print(*(name for name in {heavy} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


# Packages whose modules are parts of one table, and are tested entry by entry in one file.
TABLES = {"backends/xla/ops"}


def test_every_module_has_a_test_of_its_name() -> None:
    tests = PACKAGE.parent / "tests" / "unit"
    modules = [file.relative_to(PACKAGE).with_suffix("") for file in PACKAGE.rglob("*.py")]
    missing = {
        module.as_posix()
        for module in modules
        if module.stem not in {"__init__", "__main__"}
        and module.parent.as_posix() not in TABLES
        and not any((tests / module.parent).glob(f"test_{module.stem}*.py"))
    }
    assert not missing
    assert all((tests / table / f"test_{Path(table).name}.py").exists() for table in TABLES)
