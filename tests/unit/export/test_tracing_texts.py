"""A text of a traced number: refused where it counts, left out where it is only printed."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from aotpipe import Dim
from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.values import trace
from aotpipe.canonicalize.values.trace import Trace, started
from aotpipe.core.stages import Exported
from aotpipe.errors import ExportFailed
from aotpipe.export import export, tracing
from aotpipe.model.spec import as_spec

X = torch.tensor([1.0, 3.0, 2.0])


class Named(torch.nn.Module):
    """Eager finds the key; torch.export looks for `u0` and silently takes the other value."""

    def __init__(self) -> None:
        super().__init__()
        self.table = {"0": 1.0, "1": 2.0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.table.get(str(int(x.sum())), 0.0)


class OfFew(Named):
    """The number is one of three: the program has a text for each."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.argmax().item()
        return x * self.table.get(str(n), 0.0) + self.table.get(f"{n % 2}", 0.0) + len(f"{n:>4}{n}")


def test_a_number_that_is_one_of_few_has_a_text_for_each() -> None:
    program = exported(OfFew(), X).entries[0].program.module()
    for x in (X, X.flip(0), X.roll(1), -X):
        assert torch.equal(program(x), OfFew()(x))


def exported(model: torch.nn.Module, *args: Any, **settings: Any) -> Exported:
    return export(canonicalize(as_spec(model.eval(), args=args, **settings)))


class Formatted(Named):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = int(x.sum())
        return x * self.table.get(f"{n}", 0.0)


class Joined(Named):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.argmax().item()
        return x * self.table.get("{}".format(n), 0.0)  # noqa: UP032


class Old(Named):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.argmax().item()
        return x * self.table.get("%s" % n, 0.0)  # noqa: UP031


class Rounded(Named):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.table.get(f"{x.sum().item():.0f}", 0.0)


class OldRounded(Named):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.table.get("%.0f" % x.sum().item(), 0.0)  # noqa: UP031


@pytest.mark.parametrize("model", [Named, Formatted, Joined, Old, Rounded])
def test_a_text_that_decides_is_refused(model: type[Named]) -> None:
    with pytest.raises(ExportFailed, match="a text is made of"):
        exported(model(), X)


class OfTensor(Named):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.table.get(f"{x.sum():.0f}", 0.0)


def test_a_format_of_a_tensor_is_refused() -> None:
    with pytest.raises(ExportFailed):
        exported(OfTensor(), X)


def test_an_old_format_is_refused() -> None:
    with pytest.raises(ExportFailed, match="as a number of Python's"):
        exported(OldRounded(), X)


def test_the_line_is_that_of_the_text() -> None:
    with pytest.raises(ExportFailed) as caught:
        exported(Named(), X)
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_tracing_texts.py")
    assert caught.value.where.line == 32


class OfWhole(Named):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.table.get(f"{x.argmax()}", 0.0)


class StrOfTensor(Named):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * len(str(x))


class Deciding(Named):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2 if x.sum() > 0 else x
        return y * self.table.get(repr(y.max()), 0.0)


@pytest.mark.parametrize("model", [OfWhole, StrOfTensor, Deciding])
def test_a_text_of_a_tensor_that_decides_is_refused(model: type[Named]) -> None:
    with pytest.raises(ExportFailed, match="a text is made of") as caught:
        exported(model(), X)
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_tracing_texts.py")


def test_a_tensor_may_be_printed_and_shown_in_what_is_raised() -> None:
    class Talking(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            print("x is", x, f"and its sum {x.sum()}")
            logging.getLogger("a").warning("x is %s", x)
            if x.dim() > 5:
                raise ValueError(f"too many dims: {x}")
            return x + 1

    program = exported(Talking(), X).entries[0].program.module()
    torch.testing.assert_close(program(X), X + 1)


def test_what_is_printed_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    class Talking(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n = x.sum().item()
            print(f"{n:.3f}", n)
            return x + n

    program = exported(Talking(), X).entries[0].program.module()
    capsys.readouterr()
    torch.testing.assert_close(program(X), X + X.sum())


def test_a_message_may_show_a_number_that_only_a_run_knows() -> None:
    number = ShapeEnv().create_unbacked_symint()
    with tracing.texts_are_refused():
        with started(Trace()), trace.message():
            assert f"{number}" == "..."
        with pytest.raises(tracing.MadeText):
            f"{number}"


def test_sizes_of_inputs_may_be_shown() -> None:
    class Sized(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            print(f"{x.shape} {x.shape[0]}")
            return x * 2

    exported(Sized(), X, dynamic_shapes={"x": {0: Dim("n", max=9)}})


def test_torchs_own_texts_are_its_own() -> None:
    before = torch.SymInt.__repr__
    with tracing.texts_are_refused():
        assert torch.SymInt.__repr__ is not before
    assert torch.SymInt.__repr__ is before
