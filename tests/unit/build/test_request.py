"""What a user asks is read once, and what does not fit together is refused before any work."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import aotpipe
from aotpipe.build import rerun, steps
from aotpipe.build.request import FIRST_STAGE, ModelOptions, Request
from aotpipe.core.precision import Precision
from aotpipe.errors import MeshError, NoBuckets, SpecInvalid, TargetError
from aotpipe.runtime.xla.buckets import Buckets

FUNCTIONS = (
    aotpipe.build,
    aotpipe.canonicalize,
    aotpipe.export,
    steps.compile,
    steps.revalidate,
    rerun.measure,
    aotpipe.bisect,
    aotpipe.check,
    aotpipe.recompiles,
    aotpipe.written,
)


def asked(*targets: str, **options: Any) -> Request:
    return Request.of("m.py", targets, **options)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_every_function_of_a_model_takes_every_option_of_a_model(function: Any):
    parameters = inspect.signature(function).parameters
    assert {"args", "kwargs"} <= parameters.keys()
    [more] = [each for each in parameters.values() if each.kind is each.VAR_KEYWORD]
    assert more.annotation == f"Unpack[{ModelOptions.__name__}]"


def test_every_option_has_the_stage_that_it_changes_first():
    assert FIRST_STAGE.keys() == ModelOptions.__annotations__.keys()
    with pytest.raises(TypeError, match=r"no option 'dtpye'; the options are: .*dtype"):
        aotpipe.build("m.py", dtpye="bf16")


def test_an_option_of_a_stage_that_is_not_run_is_refused():
    with pytest.raises(SpecInvalid, match="option dtype") as caught:
        aotpipe.canonicalize("m.py", dtype="bf16")
    assert "stage export" in caught.value.reason
    with pytest.raises(SpecInvalid, match="option mesh"):
        aotpipe.export("m.py", mesh="2x2")
    assert Request.of("m.py", until="canonicalize", dtype=None, buckets={}).precision is None


def test_each_dialect_is_made_once_in_a_fixed_order():
    assert asked("xla-cpu-host", "iree-vmvx", "iree-cpu-host").rulesets == ("torch", "stablehlo")
    assert asked("iree-vmvx").rulesets == ("torch",)
    assert asked("xla-cpu-host").rulesets == ("stablehlo",)


def test_gpus_get_a_module_of_their_own_where_the_rules_differ():
    every = asked("iree-cuda-sm_80", "iree-vulkan", "iree-vmvx", "xla-cpu-host")
    assert every.modules == {"iree": "torch", "iree-gpu": "torch-gpu", "xla": "stablehlo"}
    assert every.rulesets == ("torch", "torch-gpu", "stablehlo")
    assert asked("iree-metal").modules == {"iree-gpu": "torch-gpu"}
    assert asked("iree-metal", "iree-vmvx", dialect="stablehlo").rulesets == ("stablehlo",)
    assert asked("iree-metal", "iree-vmvx", allow_islands=True).rulesets == ("torch",)
    assert asked("iree-metal").key != asked("iree-vmvx").key


def test_without_targets_the_options_say_which_compilers_take_part():
    assert asked().backends == {"iree": "torch"}
    assert asked(dialect="stablehlo").backends == {"iree": "stablehlo"}
    assert asked(buckets={"batch": [1]}).backends == {"iree": "torch", "xla": "stablehlo"}
    assert asked(mesh="2x2").rulesets == ("torch", "stablehlo")


def test_only_a_reference_has_a_key():
    assert asked().key
    assert Request.of("m.py", (), (1,)).key is None
    assert Request.of(object()).key is None
    assert Request.of("m.py", (), (), {}, examples=()).key == asked().key


def test_the_key_covers_what_is_prepared_and_not_for_which_targets():
    keys = [
        asked("iree-vmvx", **options).key
        for options in (
            {},
            {"name": "x"},
            {"decoder": "cache=16"},
            {"decoder": "cache=16,slots=2"},
            {"optional": ("mask",)},
            {"tensorize": ("mask",)},
            {"allow_islands": True},
            {"dialect": "stablehlo"},
            {"dtype": "bf16"},
            {"dtype": "bf16", "keep_float32": ("gelu",)},
        )
    ]
    keys += [
        asked("xla-cpu-host", **options).key
        for options in ({}, {"buckets": {"batch": [1]}}, {"mesh": "2x2"}, {"mesh": "4"})
    ]
    keys.append(asked("xla-cpu-host", mesh="2x2", shard=["w=(x, None)"]).key)
    assert len({*keys, None}) == len(keys) + 1
    assert asked("iree-vmvx").key == asked("iree-cpu-host").key
    first, second = (
        asked("xla-cpu-host", buckets=given).key
        for given in ({"seq": [8, 2, 8], "batch": [1]}, {"batch": [1], "seq": [2, 8]})
    )
    assert first == second


def test_the_key_stays_though_loading_changes_the_path(monkeypatch: pytest.MonkeyPatch):
    request = asked()
    before = request.key
    monkeypatch.syspath_prepend("/elsewhere")
    assert request.key == before
    assert asked().key != before


@pytest.mark.parametrize("buckets", [{"batch": []}, {"batch": [-1]}])
def test_what_is_no_size_is_refused(buckets: dict[str, list[int]]):
    with pytest.raises(NoBuckets, match="no sizes"):
        asked("xla-cpu-host", buckets=buckets)


def test_the_prompts_of_a_decoder_have_buckets_where_a_target_needs_them():
    assert asked("iree-vmvx", decoder="cache=16").buckets == {}
    assert asked("xla-cpu-host", decoder="cache=16").buckets == {"length": Buckets.of("length", "auto")}
    given = asked("xla-cpu-host", decoder="cache=16", buckets={"length": [8]}).buckets
    assert given == {"length": Buckets.of("length", [8])}


def test_buckets_without_an_xla_target_are_refused():
    for more in ({}, {"dialect": "stablehlo"}):
        with pytest.raises(NoBuckets, match="none is built"):
            asked("iree-vmvx", buckets={"batch": [1]}, **more)


def test_islands_are_for_ires_programs_of_the_torch_dialect_in_the_models_own_dtypes():
    assert asked("iree-vmvx", allow_islands=True).islands
    for targets, more in ((("iree-vmvx", "xla-cpu-host"), {}), (("iree-vmvx",), {"dialect": "stablehlo"})):
        with pytest.raises(TargetError, match="chain"):
            asked(*targets, allow_islands=True, **more)
    with pytest.raises(SpecInvalid, match="islands"):
        asked("iree-vmvx", allow_islands=True, dtype="bf16")


def test_a_dialect_is_of_iree_targets_and_one_of_two():
    request = asked("iree-vmvx", "xla-cpu-host", dialect="stablehlo")
    assert request.backends == {"iree": "stablehlo", "xla": "stablehlo"}
    assert request.rulesets == ("stablehlo",)
    assert asked("iree-vmvx", dialect="torch") == asked("iree-vmvx")
    with pytest.raises(TargetError, match="none is built"):
        asked("xla-cpu-host", dialect="stablehlo")
    with pytest.raises(TargetError, match="no dialect 'tosa'") as caught:
        asked("iree-vmvx", dialect="tosa")
    assert "stablehlo" in caught.value.hint


def test_a_mesh_fits_every_target():
    request = asked("xla-cpu-host", "xla-tpu-v5e", mesh="2x2", shard=["w=(x, None)"])
    assert (str(request.mesh), list(map(str, request.rules))) == ("x=2,y=2", ["w=(x, None)"])
    with pytest.raises(MeshError, match="one device"):
        asked("xla-cpu-host", "iree-vmvx", mesh="2x2")
    with pytest.raises(MeshError, match="no topology"):
        asked("xla-tpu-v5e", mesh="3")
    with pytest.raises(MeshError, match="over no mesh"):
        asked("xla-cpu-host", shard=["w=(x, None)"])


def test_a_quantization_is_read():
    assert asked(quantize="int8").quantization == "int8"
    assert asked(quantize=None).quantization is None
    assert asked(quantize="int8").key != asked().key
    with pytest.raises(SpecInvalid, match="no quantization") as caught:
        asked(quantize="int7")
    assert caught.value.hint == "take int8"
    with pytest.raises(SpecInvalid, match="7 times as long"):
        asked(quantize="int4-weights")


def test_a_precision_is_read():
    assert asked(dtype="bf16", keep_float32=["gelu"]).precision == Precision("bfloat16", ("gelu",))
    with pytest.raises(SpecInvalid, match="no dtype"):
        asked(dtype="f8")
