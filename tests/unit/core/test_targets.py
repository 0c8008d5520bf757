"""Target strings round-trip, expand, and name the nearest one when they are wrong."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.core.targets import SHORTHANDS, Target, expand, table
from aotpipe.errors import UnknownTarget
from aotpipe.runtime import toolchain

known = st.sampled_from(sorted(table()))


@given(known)
def test_a_target_round_trips(text: str) -> None:
    assert str(Target.parse(text)) == text
    assert Target.parse(str(Target.parse(text))) == Target.parse(text)


@given(st.text(max_size=30).filter(lambda text: text not in table()))
def test_anything_else_is_unknown(text: str) -> None:
    with pytest.raises(UnknownTarget):
        Target.parse(text)


@given(known)
def test_a_row_says_what_it_is(text: str) -> None:
    row = Target.parse(text).row
    assert row.summary
    assert row.driver
    assert all(flag.startswith("--") for flag in row.flags)


@pytest.mark.parametrize(
    ("typo", "nearest"),
    [("iree-cpu-hots", "iree-cpu-host"), ("iree-cpu-x86-64", "iree-cpu-x86_64"), ("vmvx", "iree-vmvx")],
)
def test_the_nearest_name_is_the_hint(typo: str, nearest: str) -> None:
    with pytest.raises(UnknownTarget) as caught:
        Target.parse(typo)
    assert f"did you mean {nearest}?" in caught.value.hint


def test_shorthands_and_globs_expand_in_order_and_once() -> None:
    assert list(map(str, expand(["cpu", "iree-cpu-host"]))) == ["iree-cpu-host"]
    assert list(map(str, expand("xla-cpu-host,cpu"))) == ["xla-cpu-host", "iree-cpu-host"]
    assert {str(target) for target in expand(["all"])} == set(table())
    assert all(target.backend == "iree" for target in expand(["iree-*"]))
    assert set(SHORTHANDS) == {"cpu", "tpu", "all"}
    assert [target.device for target in expand(["tpu"])] == ["tpu"] * 5


def test_a_glob_that_matches_nothing_is_unknown() -> None:
    with pytest.raises(UnknownTarget, match="no target matches"):
        expand(["iree-toaster-*"])


def test_each_level_of_x86_64_adds_to_the_one_below() -> None:
    levels = [
        set(Target.parse(f"iree-cpu-x86_64{level}").row.features) for level in ("", "_v2", "_v3", "_v4")
    ]
    assert all(low < high for low, high in itertools.pairwise(levels))
    known = set(toolchain._X86_64.values())
    assert levels[-1] <= known


def test_a_variant_runs_on_cpus_that_have_more_and_has_none_itself_that_its_target_lacks() -> None:
    for target in map(Target.parse, table()):
        for variant in target.variants:
            assert variant.row.arch == target.arch.split("_v")[0]
            assert set(variant.row.features) > set(target.row.features)
            assert set(variant.variants) < set(target.variants)
            assert variant.file_name == target.file_name


def test_only_host_programs_are_tied_to_this_cpu() -> None:
    assert [str(target) for target in expand(["all"]) if target.is_host] == ["iree-cpu-host", "xla-cpu-host"]
