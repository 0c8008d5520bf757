"""The public API: pinned, lazy, and the same whoever imported what before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import aotpipe

NAMES = [
    "AUTO",
    "AotpipeError",
    "Bundle",
    "Dim",
    "EntryPoint",
    "Example",
    "Packer",
    "Signature",
    "Spec",
    "Target",
    "__version__",
    "archive",
    "bisect",
    "build",
    "canonicalize",
    "capacity",
    "check",
    "eager_island",
    "export",
    "load",
    "recompiles",
    "sign",
    "trusted",
    "verify",
    "written",
]


def python(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_the_names_are_pinned():
    assert aotpipe.__all__ == NAMES
    assert set(NAMES) <= set(dir(aotpipe))
    assert all(getattr(aotpipe, name) is not None for name in NAMES)


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = aotpipe.nope  # type: ignore[attr-defined]


def test_importing_it_imports_nothing_else():
    python("import sys, aotpipe; assert not {'torch', 'numpy', 'iree', 'click'} & set(sys.modules)")


def test_loading_needs_no_torch():
    code = (
        "import sys, aotpipe; aotpipe.load, aotpipe.Bundle, aotpipe.AotpipeError, aotpipe.Target, aotpipe.Dim"
    )
    python(f"{code}; assert not {{'torch', 'iree.compiler'}} & set(sys.modules)")


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("", marks=pytest.mark.slow),
        "import aotpipe.export, aotpipe.canonicalize;",
        pytest.param("from aotpipe.export import export as stage;", marks=pytest.mark.slow),
    ],
)
def test_functions_are_not_hidden_by_the_modules_of_their_name(first: str):
    code = "from aotpipe.export import export as stage; import aotpipe.export, aotpipe.canonicalize"
    are_functions = "assert callable(aotpipe.export) and callable(aotpipe.canonicalize)"
    python(f"import aotpipe; {first} {are_functions}; {code}; {are_functions}")


def test_the_module_is_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "aotpipe", "--version"], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == f"aotpipe, version {aotpipe.__version__}"
