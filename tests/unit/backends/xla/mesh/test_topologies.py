"""The topologies of a target."""

from __future__ import annotations

import pytest

from aotpipe.backends.xla.mesh import topologies
from aotpipe.core.targets import Target
from aotpipe.errors import MeshError
from aotpipe.runtime.xla.mesh import Mesh


@pytest.mark.parametrize(
    ("target", "devices", "name"),
    [
        ("xla-tpu-v5e", 1, "v5e:1x1"),
        ("xla-tpu-v5e", 4, "v5e:2x2"),
        ("xla-tpu-v7x", 16, "tpu7x:2x2x2"),
        ("xla-cpu-host", 4, "cpu"),
    ],
)
def test_a_topology_has_as_many_devices(target: str, devices: int, name: str) -> None:
    topologies.require(Target.parse(target), Mesh((("x", devices),)))
    assert topologies.name(Target.parse(target), devices) == name


@pytest.mark.parametrize("target", ["iree-vmvx", "xla-cuda-h100", "xla-tpu-v5e"])
def test_others_are_refused(target: str) -> None:
    with pytest.raises(MeshError) as caught:
        topologies.require(Target.parse(target), Mesh.parse("3x3"))
    assert caught.value.hint
    if target == "xla-tpu-v5e":
        assert "2x2 (4)" in caught.value.reason
