"""The numbers of the memories that tensors of a trace would be in."""

from __future__ import annotations

import pytest
import torch

from aotpipe.canonicalize.alias import tensor_storage
from aotpipe.canonicalize.values.trace import Trace, started
from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.trace.agree import check
from tests.unit.export.models import exported


def number(tensor: torch.Tensor) -> int:
    found = tensor_storage.of(tensor)
    assert found is not None
    (only,) = found.numbers
    return only


def test_what_is_made_has_higher_numbers_than_what_was_before():
    given = torch.zeros(3)
    with started(Trace()):
        first = given + 1
        tensor_storage.made(first, (given, 1))
        border = tensor_storage.new_numbers(1)
        second = first * 2
        tensor_storage.made((second, [second[1:]]), (first,))
        assert number(given) < 0 <= number(first) < border < number(second)
        assert number(second[1:]) == number(second)
        written = first.add_(1)
        tensor_storage.made(written, (first,))
        assert number(written) == number(first)


def test_an_operand_stands_for_a_tensor():
    tensor, operand = torch.zeros(3), torch.zeros(3)
    with started(Trace()):
        with tensor_storage.scope():
            tensor_storage.stands_for(operand, tensor)
            assert number(operand[1:]) == number(tensor)
        assert number(operand) != number(tensor)


def test_a_scope_forgets_what_is_made_in_it():
    one, copy = torch.zeros(3), torch.zeros(3)
    with started(Trace(exact_aliases=True)):
        own = tensor_storage.of(one)
        assert own is not None
        with tensor_storage.scope():
            tensor_storage.register(copy, own.numbers, number(one))
            assert [each.tensor is copy for each in tensor_storage.others(own)] == [True]
        assert not list(tensor_storage.others(own))


def test_a_tensor_without_a_memory_of_its_own_has_no_number():
    with started(Trace()):
        assert tensor_storage.of(torch.eye(2).to_sparse()) is None


def test_what_is_given_later_has_lower_numbers():
    with started(Trace()):
        given = torch.zeros(3)
        assert number(given) == tensor_storage.last_given()
        before = tensor_storage.last_given()
        with tensor_storage.scope():
            late = torch.zeros(3)
            assert number(late) < before
        # What is given is the same in every iteration of a loop.
        assert number(late) == tensor_storage.last_given()
        assert tensor_storage.is_known(number(late))
        assert not tensor_storage.is_known(5)


def _shifted(weighted):
    def shifted(x):
        means = x.clone()
        for _ in range(4):
            weights = torch.exp(-torch.cdist(x, means))
            moved = weighted(x, weights).sum(1) / weights.sum(1).unsqueeze(1)
            if (moved - means).abs().max() < 1e-3:
                break
            means = moved
        return means

    return shifted


def test_a_vmap_in_a_loop_on_a_tensor_is_refused_with_what_to_write():
    mapped = _shifted(lambda x, weights: torch.vmap(lambda each: x * each.unsqueeze(1))(weights))
    x = torch.rand(6, 2)
    with pytest.raises(ExportFailed, match=r"torch.vmap") as refused:
        exported(mapped, x)
    assert "x * weight.unsqueeze(-1)" in str(refused.value.hint)
    assert refused.value.where is not None
    check(_shifted(lambda x, weights: x * weights.unsqueeze(-1)), (x,), (torch.rand(6, 2) * 3,))
