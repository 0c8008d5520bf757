"""The numbers of the memories that tensors of a trace would be in."""

from __future__ import annotations

import torch

from aotpipe.canonicalize.python import identities


def number(tensor: torch.Tensor) -> int:
    found = identities.of(tensor)
    assert found is not None
    (only,) = found.numbers
    return only


def test_what_is_made_has_higher_numbers_than_what_was_before():
    given = torch.zeros(3)
    with identities.kept(followed=False):
        first = given + 1
        identities.made(first, (given, 1))
        border = identities.new_numbers(1)
        second = first * 2
        identities.made((second, [second[1:]]), (first,))
        assert number(given) < 0 <= number(first) < border < number(second)
        assert number(second[1:]) == number(second)
        written = first.add_(1)
        identities.made(written, (first,))
        assert number(written) == number(first)


def test_an_operand_stands_for_a_tensor():
    tensor, operand = torch.zeros(3), torch.zeros(3)
    with identities.kept(followed=False):
        with identities.scope():
            identities.stands_for(operand, tensor)
            assert number(operand[1:]) == number(tensor)
        assert number(operand) != number(tensor)


def test_a_scope_forgets_what_is_made_in_it():
    one, copy = torch.zeros(3), torch.zeros(3)
    with identities.kept(followed=True):
        own = identities.of(one)
        assert own is not None
        with identities.scope():
            identities.register(copy, own.numbers, number(one))
            assert [each.tensor is copy for each in identities.others(own)] == [True]
        assert not list(identities.others(own))


def test_a_tensor_without_a_memory_of_its_own_has_no_number():
    with identities.kept(followed=False):
        assert identities.of(torch.eye(2).to_sparse()) is None


def test_what_is_given_later_has_lower_numbers():
    with identities.kept(followed=False):
        given = torch.zeros(3)
        assert number(given) == identities.last_given()
        before = identities.last_given()
        with identities.scope():
            late = torch.zeros(3)
            assert number(late) < before
        # What is given is the same in every trip of a loop.
        assert number(late) == identities.last_given()
        assert identities.is_known(number(late))
        assert not identities.is_known(5)
