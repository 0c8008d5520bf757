"""Files of source, edited where a tensor decides; attributes that calls change become buffers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from torch import nn

import aotpipe
from aotpipe.build import steps
from aotpipe.canonicalize.trace import decisions
from aotpipe.model import spec
from aotpipe.passes.codegen import from_source
from aotpipe.passes.codegen.expression_rewrites import Unsupported
from aotpipe.passes.codegen.from_source import rewrite_source

FILE = '''"""A model."""

import torch
from torch import nn


# What is scaled by.
SCALE = 2


class Net(nn.Module):
    """Doubles what is positive."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def helper(self, x):
        return  x * SCALE

    def forward(self, x):
        # What comes first.
        y = self.linear( x )
        if y.sum() > 0:
            y = self.helper(y)
        return y


class Other(nn.Module):
    pass


MODEL = Net().eval()
EXAMPLE_INPUTS = (torch.ones(3),)
'''


def made(folder: Path, text: str = FILE):
    path = folder / "model.py"
    path.write_text(text)
    with decisions.recorded() as notes:
        exported = steps.export(spec.load(f"{path}:MODEL"))
    return rewrite_source(exported, notes)


def test_every_other_line_stays(tmp_path: Path):
    code = made(tmp_path)
    assert code.is_edited
    assert code.class_name == "Net"
    assert code.text.startswith('"""A model."""\n\nimport torch\nfrom torch import nn\n')
    assert "# What is scaled by.\nSCALE = 2" in code.text
    assert "return  x * SCALE" in code.text
    assert "        # What comes first.\n        y = self.linear( x )\n" in code.text
    assert "y = torch.cond(y.sum() > 0, true_fn, false_fn, (y,))" in code.text
    assert "Other" not in code.text
    assert "MODEL" not in code.text


def test_what_is_in_the_way_is_told(tmp_path: Path):
    late = FILE.replace("        # What comes first.\n", "        self.last = getattr(self, 'last', x) + x\n")
    with pytest.raises(Unsupported, match="takes several forms"):
        made(tmp_path, late)
    needing = FILE.replace(
        "SCALE = 2", "import aotpipe.core.units\n\nSCALE = len(aotpipe.core.units.size(1))"
    )
    with pytest.raises(Unsupported, match="needs aotpipe"):
        made(tmp_path, needing)
    yielding = FILE.replace(
        "        if y.sum() > 0:\n            y = self.helper(y)\n        return y",
        """\
        return sum(self.parts(y))

    def parts(self, y):
        for row in y:
            if row.sum() > 0:
                yield self.helper(row)
            else:
                yield row""",
    )
    with pytest.raises(Unsupported, match="in a generator"):
        made(tmp_path, yielding)


def test_a_counter_is_a_buffer(tmp_path: Path):
    text = FILE.replace(
        "        y = self.linear( x )\n", "        self.calls += 1\n        y = self.linear( x )\n"
    ).replace("        self.linear =", "        self.calls = 0\n        self.linear =")
    code = made(tmp_path, text)
    assert code.state == ("calls",)
    assert "self.register_buffer('calls', torch.tensor(0), persistent=False)" in code.text
    assert "        # What comes first.\n        self.calls = self.calls + 1" in code.text


SEVERAL = """
from __future__ import annotations
import math, torch
from torch import nn, optim
from aotpipe import Spec

SCALE = math.pi
OTHERS = [n for n in range(3)]


def helper(x):
    return x * SCALE


class Net(nn.Module):
    def forward(self, x):
        return helper(x)


class Unneeded(nn.Module):
    pass


SPEC = Spec(Net)
"""


def test_what_a_class_mentions_is_kept_and_no_more():
    kept = from_source.needed(ast.parse(SEVERAL), ["Net"])
    text = "\n".join(ast.unparse(each) for each in kept)
    assert "import math" in text
    assert "from torch import nn" in text
    assert "optim" not in text
    assert "helper" in text
    assert "SCALE" in text
    assert not {"Unneeded", "SPEC", "OTHERS"} & {name for each in kept for name in from_source.defined(each)}
    assert from_source.imports(kept) == {"__future__", "math", "torch"}
    assert from_source.imports(from_source.needed(ast.parse(SEVERAL), ["SPEC"])) >= {"aotpipe"}
    assert from_source.imports(ast.parse("from .a import b").body) == {"."}


CODE = """
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.mean = torch.zeros(2)

    def forward(self, x):
        self.calls += 1
        self.mean = self.mean * 0.5 + x
        return x * self.calls + self.mean
"""


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.mean = torch.zeros(2)

    def forward(self, x):
        self.calls += 1
        self.mean = self.mean * 0.5 + x
        return x * self.calls + self.mean


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x)


class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        y = x if self.last is None else x + self.last
        self.last = x
        return y


X = torch.ones(2)


def test_what_calls_change_and_where_it_is_set():
    exported = aotpipe.export(Net().eval(), args=(X,))
    states = from_source.state_attributes(exported)
    assert states == {"inner.calls": torch.int64, "inner.mean": torch.float32}
    made = dict(from_source.state_edits(ast.parse(CODE).body, exported.canonical.model, states))
    assert made == {
        (5, 5): "        self.register_buffer('calls', torch.tensor(0), persistent=False)",
        (6, 6): "        self.register_buffer('mean', torch.zeros(2), persistent=False)",
    }
    with pytest.raises(Unsupported, match="not set once"):
        list(from_source.state_edits([], exported.canonical.model, states))


def test_attributes_become_buffers():
    model = Net()
    from_source.register(model, {"inner.calls": torch.int64})
    assert [name for name, _ in model.named_buffers()] == ["inner.calls"]
    assert not model.state_dict()


def test_what_takes_several_forms():
    with pytest.raises(Unsupported, match="takes several forms"):
        from_source.state_attributes(aotpipe.export(Late().eval(), args=(X,)))


def test_which_functions_change_them():
    [owner] = ast.parse(CODE).body
    first, forward = owner.body
    assert from_source.changes(forward, ["calls"])
    assert not from_source.changes(forward, ["mean"])
    assert not from_source.changes(first, ["calls"])


def test_a_counter_that_only_one_path_changes_is_not_lost(tmp_path: Path):
    text = FILE.replace("y = self.helper(y)", "self.calls += 1").replace(
        "        self.linear =", "        self.calls = 0\n        self.linear ="
    )
    with pytest.raises(Unsupported, match=r"`self\.calls` is set where a tensor decides"):
        made(tmp_path, text)
