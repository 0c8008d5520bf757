"""References: what they find, and each way in which they find nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aotpipe.errors import AmbiguousModel, ModelImportFailed, ModelNotFound, NoExampleInputs, SpecInvalid
from aotpipe.model import reference
from aotpipe.model.spec import Spec, load

NET = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        return x + 1
"""
SPEC = """
import torch, aotpipe.model.spec as s
def make(name):
    return s.Spec(name=name, build=torch.nn.Identity, entry_points={"forward": s.EntryPoint()})
"""


def write(folder: Path, text: str, name: str = "model.py") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def find(ref: str) -> reference.Found:
    return reference.find(ref, Spec)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("SPEC = make('a')\nOTHER = make('b')", "SPEC"),
        ("ONLY = make('a')\nALIAS = ONLY", "ONLY"),
        (f"{NET}NET = Net()", "NET"),
        (f"{NET}def build_model():\n    return Net()", "build_model"),
        (f"{NET}def f() -> Net:\n    return Net()\ndef g(x): pass", "f"),
        ("def f() -> s.Spec:\n    return make('a')", "f"),
        (NET, "Net"),
    ],
)
def test_without_a_name_the_only_candidate_is_taken(tmp_path: Path, body: str, name: str) -> None:
    assert find(write(tmp_path, SPEC + body)).name == name


@pytest.mark.parametrize("name", ["NET", "Net", "Holder.net", "build"])
def test_a_name_may_be_a_module_a_class_an_attribute_or_a_function(tmp_path: Path, name: str) -> None:
    body = f"{NET}NET = Net()\nclass Holder:\n    net = NET\ndef build():\n    return NET\n"
    assert reference.is_torch_module(find(f"{write(tmp_path, body)}:{name}").value)


def test_two_models_and_no_name_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path, f"{NET}ONE = Net()\nTWO = Net()")
    with pytest.raises(AmbiguousModel) as caught:
        find(path)
    assert "ONE, TWO" in str(caught.value)
    assert caught.value.hint == f"name one: {path}:ONE"


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, NET, "solver.py")
    with pytest.raises(ModelNotFound) as caught:
        find(str(tmp_path / "sovler.py"))
    assert "solver.py" in caught.value.hint


@pytest.mark.parametrize("ref", ["no_such_package_at_all:X", "os.nothing:X", "not a module", "3x"])
def test_a_missing_module_is_not_found(ref: str) -> None:
    with pytest.raises(ModelNotFound):
        find(ref)


def test_a_missing_name_is_not_found_and_the_nearest_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound) as caught:
        find(f"{write(tmp_path, NET)}:Nett")
    assert caught.value.hint == "did you mean Net?"


def test_a_file_without_a_model_says_what_to_define(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="holds no model"):
        find(write(tmp_path, "x = 1"))


@pytest.mark.parametrize(
    ("body", "line"),
    [("import torch\nx = 1\nraise ValueError('boom')", 3), ("def f(:\n", 1), ("import sys\nsys.exit(3)", 2)],
)
def test_a_file_that_raises_gives_its_line_and_keeps_the_cause(tmp_path: Path, body: str, line: int) -> None:
    with pytest.raises(ModelImportFailed) as caught:
        find(write(tmp_path, body))
    assert caught.value.where is not None
    assert (Path(caught.value.where.path).name, caught.value.where.line) == ("model.py", line)
    assert caught.value.__cause__ is not None


def test_a_package_that_the_file_lacks_is_to_be_installed(tmp_path: Path) -> None:
    with pytest.raises(ModelImportFailed) as caught:
        find(write(tmp_path, "import no_such_package.sub"))
    assert caught.value.hint == "install it: pip install no_such_package"


@pytest.mark.parametrize(
    ("raising", "hint"),
    [
        (
            "raise ModuleNotFoundError('no backend')",
            "run the file with Python alone to see the whole traceback",
        ),
        (
            (
                "try:\n    import no_such_package.sub\nexcept ImportError as error:\n"
                "    raise ModuleNotFoundError('lazily') from error"
            ),
            "install it: pip install no_such_package",
        ),
    ],
    ids=["nothing named", "named by the cause"],
)
def test_an_import_error_that_names_no_module_hints_at_none(tmp_path: Path, raising: str, hint: str) -> None:
    with pytest.raises(ModelImportFailed) as caught:
        find(write(tmp_path, raising))
    assert caught.value.hint == hint


def test_a_file_named_like_a_standard_module_replaces_nothing(tmp_path: Path) -> None:
    import random

    found = find(write(tmp_path, f"{NET}NET = Net()", "random.py"))
    assert sys.modules["random"] is random
    assert found.bundle_name == "NET"


def test_two_files_of_one_name_keep_apart(tmp_path: Path) -> None:
    one = find(write(tmp_path, f"{NET}NET = Net()\nNET.tag = 1", "a/net.py"))
    two = find(write(tmp_path, f"{NET}NET = Net()\nNET.tag = 2", "b/net.py"))
    assert (one.value.tag, two.value.tag) == (1, 2)  # type: ignore[attr-defined]
    assert sys.modules[type(one.value).__module__] is one.module


def test_a_file_imports_its_siblings_and_its_package(tmp_path: Path) -> None:
    write(tmp_path, NET, "plain/sibling_of_net.py")
    assert find(write(tmp_path, "from sibling_of_net import Net\nNET = Net()", "plain/m.py")).name == "NET"
    write(tmp_path, "", "pkg_of_nets/__init__.py")
    write(tmp_path, NET, "pkg_of_nets/net.py")
    assert find(write(tmp_path, "from .net import Net\nNET = Net()", "pkg_of_nets/m.py")).name == "NET"


def test_weights_are_the_same_in_every_run(tmp_path: Path) -> None:
    path = write(tmp_path, "import torch\nNET = torch.nn.Linear(2, 2)", "rand.py")
    first = find(path).value.weight.sum().item()  # type: ignore[attr-defined]
    assert find(path).value.weight.sum().item() == first  # type: ignore[attr-defined]


def test_a_function_that_gives_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecInvalid, match=r"f\(\) gave a int"):
        find(f"{write(tmp_path, 'def f(): return 3')}:f")
    with pytest.raises(SpecInvalid, match="is a int"):
        find(f"{write(tmp_path, 'x = 3', 'other.py')}:x")


@pytest.mark.parametrize(
    ("inputs", "args", "kwargs"),
    [
        ("EXAMPLE_INPUTS = (torch.ones(2),)", 1, 0),
        ("example_inputs = torch.ones(2)", 1, 0),
        ("EXAMPLE_INPUTS = {'x': torch.ones(2)}", 0, 1),
        ("def example_inputs(): return [torch.ones(2)]", 1, 0),
        ("Net.example_inputs = lambda self: (torch.ones(2),)", 1, 0),
    ],
)
def test_example_inputs_are_found(tmp_path: Path, inputs: str, args: int, kwargs: int) -> None:
    spec = load(f"{write(tmp_path, f'{NET}{inputs}')}:Net")
    entry = spec.entry_points["forward"]
    assert (len(entry.args), len(entry.kwargs)) == (args, kwargs)


def test_a_module_of_a_settings_name_is_no_setting(tmp_path: Path) -> None:
    body = f"import random\n{NET}EXAMPLE_INPUTS = (torch.ones(2),)\n"
    (tmp_path / "net.py").write_text(body)
    assert load(str(tmp_path / "net.py")).random is None


def test_settings_of_the_file_reach_the_entry_point(tmp_path: Path) -> None:
    settings = "DYNAMIC_SHAPES = {'x': {}}\nVALUE_RANGES = {'x': (0, 1)}"
    body = f"{NET}EXAMPLE_INPUTS = (torch.ones(2),)\n{settings}"
    entry = load(write(tmp_path, body)).entry_points["forward"]
    assert (entry.dynamic_shapes, entry.value_ranges) == ({"x": {}}, {"x": (0, 1)})


def test_no_example_inputs_says_what_to_add(tmp_path: Path) -> None:
    with pytest.raises(NoExampleInputs) as caught:
        load(write(tmp_path, NET))
    assert "EXAMPLE_INPUTS" in caught.value.hint
    assert caught.value.where is not None


def test_a_reference_to_nothing_costs_no_torch() -> None:
    code = (
        "import sys\nfrom aotpipe.model import spec\nfrom aotpipe.errors import ModelNotFound\n"
        "for ref in ('nope.py', 'nope.at.all:X'):\n"
        "    try: spec.load(ref)\n    except ModelNotFound: pass\n"
        "print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_an_error_of_syntax_is_pointed_at(tmp_path: Path) -> None:
    body = "import torch\n\n\ndef forward(x)\n    return x\n"
    with pytest.raises(ModelImportFailed, match=r"is not Python 3.*: expected ':'") as caught:
        find(write(tmp_path, body))
    assert caught.value.reason.splitlines() == ["   4 | def forward(x)", "     |               ^"]
    assert caught.value.where is not None
    assert caught.value.where.line == 4
