"""Code is what it says, frozen."""

from __future__ import annotations

import dataclasses

import pytest

from aotpipe.tools.rewrite.code import Code


def test_code_is_frozen():
    code = Code(text="", class_name="Net", methods={"forward": "forward"}, state=(), tensors={})
    with pytest.raises(dataclasses.FrozenInstanceError):
        code.text = "x"
