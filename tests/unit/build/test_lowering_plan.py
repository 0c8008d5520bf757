import pytest

from aotpipe.build.lowering_plan import DEFAULT_FORM, Form
from aotpipe.core.precision import Precision
from aotpipe.core.targets import expand
from aotpipe.errors import MeshError, NoBuckets, SpecInvalid, TargetError


def test_each_dialect_is_made_once_in_a_fixed_order():
    both = Form.of(expand(["xla-cpu-host", "iree-vmvx", "iree-cpu-host"]))
    assert both.dialects == ("torch", "stablehlo")
    assert Form.of(expand(["iree-vmvx"])) == DEFAULT_FORM
    assert Form.of(expand(["xla-cpu-host"])).dialects == ("stablehlo",)


def test_buckets_are_sorted_sizes():
    form = Form.of(expand(["xla-cpu-host"]), {"seq": [8, 2, 8], "batch": [1]})
    sizes = {
        "batch": {"sizes": [1], "exact": False, "waste": None},
        "seq": {"sizes": [2, 8], "exact": False, "waste": None},
    }
    assert form.to_json() == {
        "backends": {"xla": "stablehlo"},
        "buckets": sizes,
        "islands": False,
        "mesh": "",
        "rules": [],
    }
    assert form.to_json() == Form.of(expand(["xla-cpu-host"]), {"batch": [1], "seq": [2, 8]}).to_json()


@pytest.mark.parametrize("buckets", [{"batch": []}, {"batch": [-1]}])
def test_what_is_no_size_is_refused(buckets: dict[str, list[int]]):
    with pytest.raises(NoBuckets, match="no sizes"):
        Form.of(expand(["xla-cpu-host"]), buckets)


def test_buckets_without_an_xla_target_are_refused():
    with pytest.raises(NoBuckets, match="none is built"):
        Form.of(expand(["iree-vmvx"]), {"batch": [1]})


def test_islands_are_part_of_the_form_and_xla_has_none():
    form = Form.of(expand(["iree-vmvx"]), islands=True)
    assert form.islands
    assert form.to_json() != DEFAULT_FORM.to_json()
    with pytest.raises(TargetError, match="chain"):
        Form.of(expand(["iree-vmvx", "xla-cpu-host"]), islands=True)


def test_a_dialect_is_of_iree_targets_and_one_of_two():
    form = Form.of(expand(["iree-vmvx", "xla-cpu-host"]), iree="stablehlo")
    assert form.backends == {"iree": "stablehlo", "xla": "stablehlo"}
    assert form.dialects == ("stablehlo",)
    assert Form.of(expand(["iree-vmvx"]), iree="torch") == DEFAULT_FORM
    with pytest.raises(TargetError, match="none is built"):
        Form.of(expand(["xla-cpu-host"]), iree="stablehlo")
    with pytest.raises(TargetError, match="no dialect 'tosa'") as caught:
        Form.of(expand(["iree-vmvx"]), iree="tosa")
    assert "stablehlo" in caught.value.hint
    with pytest.raises(TargetError, match="chain"):
        Form.of(expand(["iree-vmvx"]), islands=True, iree="stablehlo")
    with pytest.raises(NoBuckets, match="none is built"):
        Form.of(expand(["iree-vmvx"]), {"batch": [1]}, iree="stablehlo")


def test_a_mesh_is_part_of_the_form_and_fits_every_target():
    form = Form.of(expand(["xla-cpu-host", "xla-tpu-v5e"]), mesh="2x2", shard=["w=(x, None)"])
    assert form.to_json()["mesh"] == "x=2,y=2"
    assert form.to_json()["rules"] == ["w=(x, None)"]
    with pytest.raises(MeshError, match="one device"):
        Form.of(expand(["xla-cpu-host", "iree-vmvx"]), mesh="2x2")
    with pytest.raises(MeshError, match="no topology"):
        Form.of(expand(["xla-tpu-v5e"]), mesh="3")
    with pytest.raises(MeshError, match="over no mesh"):
        Form.of(expand(["xla-cpu-host"]), shard=["w=(x, None)"])


def test_a_precision_is_part_of_the_form_and_islands_have_none():
    targets, policy = expand(["iree-vmvx"]), Precision("bfloat16", ("gelu",))
    assert Form.of(targets, precision=policy).to_json()["precision"] == ["bfloat16", "gelu"]
    with pytest.raises(SpecInvalid, match="islands"):
        Form.of(targets, islands=True, precision=policy)
