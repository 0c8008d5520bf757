"""The forms of dicts and sets whose keys differ on the paths of a branch."""

from __future__ import annotations

from collections import OrderedDict, defaultdict

import torch

from aotpipe.canonicalize.values import dynamic_table
from aotpipe.canonicalize.values.dynamic_list import DynamicList


def test_keys_that_are_the_same_on_all_paths_need_no_table():
    for one in ({1, 2}, {1: torch.ones(2)}, {"a": 1}, [1], 3):
        assert dynamic_table.abstract_table([one, one], None) is None
    # A dict of names has one form, or is refused.
    assert dynamic_table.abstract_table([{"a": 1}, {"b": 1}], None) is None


def test_a_table_has_room_for_the_keys_of_each_path_and_the_type_of_the_dict():
    for kind in (dict, OrderedDict, lambda pairs: defaultdict(int, pairs), lambda pairs: set(dict(pairs))):
        paths = [kind([(1, 2.0)]), kind([(1, 2.0), (3, 4.0)])]
        abstract = dynamic_table.abstract_table(paths, None)
        assert abstract is not None
        made = abstract.value(iter(abstract.tensors(paths[0])).__next__)
        assert type(made) is type(paths[0])
        assert dynamic_table.is_dynamic_table(made)
        (segment,) = dynamic_table.segments(made)
        assert type(segment) is DynamicList
        assert (segment.kind.capacity, int(segment.count)) == (2, 1)
        assert segment.buffers[0].tolist() == [1, 0]


def test_what_stands_behind_a_table_comes_after_it():
    abstract = dynamic_table.abstract_table([{1: 2}, {}], None)
    assert abstract is not None
    made = abstract.value(iter(abstract.tensors({1: 2})).__next__)
    made[5] = 6
    segment, behind = dynamic_table.segments(made)
    assert type(segment) is DynamicList
    assert behind == (5, 6)
    assert not dynamic_table.is_dynamic_table({5: 6})
