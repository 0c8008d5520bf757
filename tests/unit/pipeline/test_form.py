import pytest

from aotpipe.errors import NoBuckets, TargetError
from aotpipe.pipeline.form import DEFAULT_FORM, Form
from aotpipe.targets import expand


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
    assert form.to_json() == {"backends": {"xla": "stablehlo"}, "buckets": sizes, "islands": False}
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
