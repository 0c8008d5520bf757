"""The user's own lines, wherever they hide."""

from __future__ import annotations

import ast
import functools
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch

from aotpipe.errors import SourceLine
from aotpipe.model import source

HERE = source.shown(__file__)


def test_aotpipe_is_no_model_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_PACKAGE", "/lib/site-packages/aotpipe/")
    assert source.is_model_code("/lib/site-packages/transformers/modeling.py")
    assert not source.is_model_code("/lib/site-packages/aotpipe/operators.py")


def test_a_folder_whose_name_begins_as_aotpipes_is_not_aotpipes() -> None:
    package = Path(source.__file__).parents[1]
    assert source.is_own(str(package / "x.py"))
    beside = str(package.with_name("aotpipe_models") / "x.py")
    assert not source.is_own(beside)
    assert source.is_model_code(beside)
    assert source.is_user_file(beside)
    assert source.is_user_file(f"{sysconfig.get_paths()['stdlib']}-models/x.py")


def test_files_of_python_torch_and_aotpipe_are_not_the_users() -> None:
    assert source.is_user_file(__file__)
    for other in (torch.__file__, source.__file__, pytest.__file__, Path.__module__, "<frozen os>"):
        assert not source.is_user_file(str(other)) or other == "pathlib"


def test_torchs_distributions_are_models_as_a_packages_are() -> None:
    assert source.is_model_code(str(Path(torch.distributions.__file__)))
    assert not source.is_model_code(str(Path(torch.nn.__file__)))
    assert not source.is_user_file(str(Path(torch.distributions.__file__)))


def test_a_path_below_the_working_folder_is_shown_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert source.shown(str(tmp_path / "a" / "b.py")) == "a/b.py"
    assert source.shown("/elsewhere/b.py") == "/elsewhere/b.py"


def test_the_innermost_user_frame_is_found_below_torch() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(3, 3)  # the line

    line = broken.__code__.co_firstlineno + 1
    with pytest.raises(RuntimeError) as caught:
        torch.func.functional_call(_Calls(broken), {}, (torch.ones(2, 2),))
    assert source.from_exception(caught.value) == SourceLine(HERE, line)


class _Calls(torch.nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> object:
        return self.function(x)  # type: ignore[operator]


def test_the_cause_is_searched_too() -> None:
    try:
        exec(compile("1/0", "<string>", "exec"))
    except ZeroDivisionError as error:
        outer = RuntimeError("outer")
        outer.__cause__ = error
    found = source.from_exception(outer)
    assert found is not None
    assert found.path == HERE


def test_a_syntax_error_is_its_own_place(tmp_path: Path) -> None:
    with pytest.raises(SyntaxError) as caught:
        compile("x = (\n", str(tmp_path / "bad.py"), "exec")
    found = source.from_exception(caught.value)
    assert found is not None
    assert found.path.endswith("bad.py")


def test_a_recorded_stack_gives_the_users_line() -> None:
    text = (
        'File "/home/me/model.py", line 7, in forward\n    y = f(x)\n'
        'File "/usr/lib/python3/site-packages/torch/nn/functional.py", line 3, in f\n'
    )
    assert source.from_stack_trace(text) == SourceLine("/home/me/model.py", 7)
    assert source.from_stack_trace(None) is None


def test_a_class_is_found_where_it_is_defined() -> None:
    found = source.of_definition(_Calls)
    assert found is not None
    assert found.path == HERE
    assert source.of_definition(_Calls(None)) == found
    assert source.of_definition(torch.nn.Linear) is None
    assert source.of_definition(len) is None


def test_the_syntax_of_a_function_is_found_by_its_code() -> None:
    def inner() -> int:
        return 1

    @functools.cache
    def decorated() -> int:
        return 1

    found = source.syntax_of(inner.__code__)
    assert isinstance(found, ast.FunctionDef)
    assert found.name == "inner"
    assert source.syntax_of(inner.__code__) is found
    assert isinstance(source.syntax_of(decorated.__wrapped__.__code__), ast.FunctionDef)


def test_the_syntax_of_a_lambda_is_its_own_not_its_neighbours() -> None:
    one, two = (lambda: 1), (lambda: 2)
    assert [ast.unparse(source.syntax_of(each.__code__)) for each in (one, two)] == ["lambda: 1", "lambda: 2"]


def test_what_has_no_source_has_no_syntax(tmp_path: Path) -> None:
    assert source.syntax(str(tmp_path / "none.py")) is None
    (tmp_path / "wrong.py").write_text("if\n")
    assert source.syntax(str(tmp_path / "wrong.py")) is None
    assert source.syntax_of(compile("1", "<string>", "exec")) is None


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "kept.py"
    for text in ("one = 1\n", "another = 12\n"):
        path.write_text(text)
        assert ast.unparse(source.syntax(str(path))) == text.strip()


def _descend(depth: int) -> int:
    if depth < 0:
        return depth
    return _descend(depth + 1)  # here


def test_a_recursion_is_at_its_call_wherever_the_stack_ends() -> None:
    def deeper(frames: int) -> None:
        if frames:
            deeper(frames - 1)
        else:
            _descend(0)

    [wanted] = [
        number
        for number, line in enumerate(Path(__file__).read_text().splitlines(), 1)
        if line.endswith("# here")
    ]
    for frames in range(4):
        with pytest.raises(RecursionError) as caught:
            deeper(frames)
        assert source.of_recursion(caught.value).line == wanted


def test_the_line_of_a_package_is_told_with_its_code(tmp_path: Path) -> None:
    path = tmp_path / "site-packages" / "library" / "net.py"
    path.parent.mkdir(parents=True)
    path.write_text("def called(x):\n    return x.no_such\n")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    with pytest.raises(AttributeError) as caught:
        names["called"](1)
    found = source.from_exception(caught.value)
    assert found is not None
    assert found.path == HERE
    assert source.in_package(caught.value) == "at library/net.py:2: `return x.no_such`"
    with pytest.raises(ZeroDivisionError) as own:
        names["called"] = 1 // 0
    assert not source.in_package(own.value)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("try:\n  yield 1\n finally:\n  n = 2", False),
        ("try:\n  yield 1\n finally:\n  self.n = 2", True),
        ("try:\n  yield 1\n finally:\n  rows[0] = 2", True),
        ("try:\n  yield 1\n finally:\n  rows += [2]", True),
        ("try:\n  yield from x\n finally:\n  done()", True),
        ("nonlocal n\n try:\n  yield 1\n finally:\n  n = 2", True),
        ("try:\n  yield 1\n except ValueError:\n  n = 2", False),
        ("try:\n  yield 1\n except:\n  n = 2", True),
        ("try:\n  yield 1\n except (ValueError, GeneratorExit):\n  n = 2", True),
        ("with opened(x):\n  yield 1", True),
        ("with torch.no_grad():\n  yield 1", False),
        ("yield 1\n done()", False),
    ],
)
def test_what_a_generator_does_where_it_is_left(text: str, ends: bool) -> None:
    (function,) = ast.parse(f"def f(x):\n {text}").body
    assert source.ends_where_it_is_left(function) is ends
