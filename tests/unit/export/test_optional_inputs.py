"""Calls that may lack something: one program, with eager's answers whatever they have."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.inputs import flat_module
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model import spec
from tests.sweep import sweep
from tests.unit.canonicalize.inputs.adapted_models import CASES, X


def exported(model: nn.Module, **options: Any) -> Any:
    return export(canonicalize(spec.as_spec(model.eval(), **options)))


@pytest.mark.parametrize(
    "name", sweep(CASES, quick=0, always=[name for name in CASES if name not in ("popped", "of_torch")])
)
def test_one_program_gives_eagers_answers_to_every_combination(name: str):
    kind, options = CASES[name]
    found = exported(kind(), **options)
    [canonical] = found.canonical.entries
    assert canonical.adapter is not None
    program = found.entries[0].program.module()
    tried = 0
    for inputs in flat_module.cases(canonical.adapter.structure):
        try:
            want = canonical.module(inputs)
        except Exception:  # what eager refuses, the program refuses
            with pytest.raises(RuntimeError, match="Error"):
                program(inputs)
            continue
        got = program(inputs)
        assert got.keys() == want.keys()
        for key, value in want.items():
            if value is not None:
                torch.testing.assert_close(got[key], value, msg=lambda text, key=key: f"{key}: {text}")
        tried += 1
    assert tried >= 2


def test_what_the_model_refuses_is_noted():
    kind, options = CASES["demanding"]
    found = exported(kind(), **options)
    assert [f.message for f in found.findings if f.code == "call-refused"] == [
        "the model raises without batch.a: KeyError; the program refuses such a call too"
    ]


def test_the_signature_tells_what_a_call_may_lack():
    kind, options = CASES["gives_none"]
    signature = exported(kind(), **options).entries[0].signature
    assert [part.name for part in signature.optional] == ["aux"]
    assert [(part.name, part.absent) for part in signature.optional_outputs] == [
        ("aux", "none"),
        ("more.1", "none"),
    ]


class Uncertain(nn.Module):
    """Iterates over keys of which there are too many for a program of each combination."""

    def forward(self, batch):
        return sum(batch.values())


def test_what_is_not_seen_is_refused_at_its_line():
    keys = [f"k{n}" for n in range(flat_module.MOST_FLAGS + 1)]
    with pytest.raises(ExportFailed, match="which keys there are is known to a run") as caught:
        exported(
            Uncertain(), args=({"x": X, **dict.fromkeys(keys, X)},), optional=[f"batch.{key}" for key in keys]
        )
    assert caught.value.where is not None
    assert "ask for each key by its name" in caught.value.hint
