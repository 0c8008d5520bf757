"""Torch's functions of lists whose length only a run knows, against eager."""

from __future__ import annotations

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.export import export
from aotpipe.model.spec import as_spec


def numbers(x, n):
    out = []
    for i in range(5):
        if i < n:
            out.append(i)  # noqa: PERF401
    return torch.tensor(out), torch.tensor(out, dtype=torch.int32)


def test_of_no_whole_numbers_torch_makes_floats_which_the_program_refuses():
    eager, _ = numbers(torch.tensor(1.0), torch.tensor(0))
    assert eager.dtype == torch.float32
    program = export(canonicalize(as_spec(numbers, args=(torch.tensor(1.0), torch.tensor(2)))))
    run = program.entries[0].program.module()
    assert run(torch.tensor(1.0), torch.tensor(4))[0].tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="give it a dtype"):
        run(torch.tensor(1.0), torch.tensor(0))
