"""Meshes and rules as they are written, and which part of an array each device has."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.errors import MeshError
from aotpipe.runtime.xla.mesh import Mesh, Rule, Sharding, rules

AXES = st.lists(
    st.tuples(st.sampled_from(["data", "model", "x", "_2"]), st.integers(1, 4)),
    min_size=1,
    max_size=3,
    unique_by=lambda axis: axis[0],
)


@given(AXES)
def test_a_mesh_survives_its_text(axes: list[tuple[str, int]]) -> None:
    mesh = Mesh(tuple(axes))
    assert Mesh.parse(str(mesh)) == mesh
    assert mesh.devices == int(np.prod([size for _, size in axes]))


def test_a_grid_has_axes_of_its_own() -> None:
    assert str(Mesh.parse("2x4")) == "x=2,y=4"
    assert Mesh.of({"data": 2}) == Mesh.parse("data=2")


@pytest.mark.parametrize("text", ["", "two", "2x", "data=", "data=0", "data=2,data=2", "1x1x1x2", "2=data"])
def test_what_is_no_mesh_is_refused(text: str) -> None:
    with pytest.raises(MeshError) as caught:
        Mesh.parse(text)
    assert "--mesh" in caught.value.hint


@pytest.mark.parametrize(
    "text", [r"layers\.\d+\.w=(model, None)", "x=(data+model,)", "b=(None, data)", "s=()"]
)
def test_a_rule_survives_its_text(text: str) -> None:
    assert Rule.parse(str(Rule.parse(text))) == Rule.parse(text)


def test_rules_come_as_texts_or_by_pattern() -> None:
    assert rules(["w=(model, None)", "x=(data+model,)"]) == rules(
        {"w": ("model", None), "x": (("data", "model"),)}
    )


@pytest.mark.parametrize("text", ["w", "w=model", "w=(a, a)", "[=(a,)", "w=(1,)", "=(a,)"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(MeshError):
        Rule.parse(text)


@given(AXES, st.data())
def test_the_parts_of_an_array_make_it_whole(axes: list[tuple[str, int]], data: st.DataObject) -> None:
    mesh = Mesh(tuple(axes))
    names = data.draw(st.permutations([name for name, _ in axes]))
    cut = data.draw(st.integers(0, len(names)))
    splits = (tuple(names[:cut]), tuple(names[cut : data.draw(st.integers(cut, len(names)))]))
    sharding = Sharding.of(mesh, splits, 2)
    array = np.arange(36 * 48).reshape(36, 48) if mesh.devices <= 36 else np.arange(64 * 64).reshape(64, 64)
    back = np.full_like(array, -1)
    for device in range(mesh.devices):
        place = sharding.part(device, array.shape)
        back[place] = array[place]
    np.testing.assert_array_equal(back, array)
    assert Sharding.from_json(sharding.to_json()) == sharding
    assert sharding.is_replicated == (sharding.tiles == (1, 1))


@pytest.mark.parametrize(
    ("splits", "text"),
    [
        ((), "{replicated}"),
        ((("x",), ("y",)), "{devices=[2,4]<=[2,4]T(0,1)}"),
        (((), ("x",)), "{devices=[1,2,4]<=[2,4]T(0,1) last_tile_dim_replicate}"),
        ((("y",),), "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}"),
        ((("y", "x"),), "{devices=[8,1]<=[2,4]T(1,0)}"),
    ],
)
def test_a_layout_is_told_in_xlas_words(splits: tuple[tuple[str, ...], ...], text: str) -> None:
    assert Sharding.of(Mesh.parse("2x4"), splits, 2).text == text


def test_xla_places_parts_as_layouts_do() -> None:
    from jaxlib import xla_client as xla

    mesh = Mesh.parse("2x3x2")
    for splits in ((("z", "x"), ("y",)), (("y",), ("x",)), ((), ("z",))):
        sharding = Sharding.of(mesh, splits, 2)
        known = xla.HloSharding.from_string(sharding.text)
        tiles = known.tile_assignment_dimensions()
        order = np.array(known.tile_assignment_devices()).reshape(tiles)
        for place, device in np.ndenumerate(order):
            assert sharding.tile_indices[device] == place[:2]
