"""Which flags a module gets."""

from __future__ import annotations

import re

import pytest

from aotpipe.backends.iree.compile import flags
from aotpipe.core.targets import Target, expand
from aotpipe.errors import TargetError

HOST = Target.parse("iree-cpu-host")
_DEMOTE = "--iree-input-demote-f64-to-f32=false"
_TILING = "--iree-global-opt-data-tiling"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b"%0 : !torch.vtensor<[2,3],f64>", True),
        (b"tensor<2xf64>", True),
        (b"tensor<2xcomplex<f64>>", True),
        (b"!torch.vtensor<[2],complex<f64>>", True),
        (b"torch.constant.float 1.0 : !torch.vtensor<[2,3],f32>", False),
        (b"!torch.vtensor<[64],f32> @buf64", False),
    ],
)
def test_float64_is_kept_only_where_it_is(text: bytes, wanted: bool) -> None:
    assert (_DEMOTE in flags.choose(text, "torch", HOST)) == wanted


@pytest.mark.parametrize("op", ["conv2d", "convolution", "conv_transpose1d", "conv3d"])
def test_convolutions_have_their_channels_last_on_cpus(op: str) -> None:
    text = b"torch.aten." + op.encode()
    metal = Target.parse("iree-metal")
    for target in map(Target.parse, ("iree-cpu-host", "iree-cpu-x86_64", "iree-cpu-aarch64")):
        assert flags.CHANNELS_LAST in flags.choose(text, "torch", target)
        assert flags.PREPROCESS in flags.choose(b"torch.aten.linear", "torch", target)
    for other in ("iree-metal", "iree-vmvx", "iree-cuda-sm_80"):
        assert flags.PREPROCESS in flags.choose(text, "torch", Target.parse(other))
    assert flags.PREPROCESS in flags.choose(text, "torch", HOST, beside=(metal,))


def test_one_pipeline_of_passes_is_asked_for() -> None:
    for text in (b"", b"torch.aten.conv2d"):
        fast = flags.choose(text, "torch", HOST)
        for chosen in (fast, *(fallback(fast) for fallback in flags.fallbacks())):
            assert sum("pass-pipeline" in flag for flag in chosen) == 1
            assert not any("pass-pipeline" in flag for flag in flags.located(chosen))


def test_a_generic_cpu_is_never_data_tiled() -> None:
    assert _TILING in flags.choose(b"", "torch", HOST)
    assert _TILING not in flags.choose(b"", "torch", Target.parse("iree-cpu-x86_64"))


def test_the_users_flags_come_last() -> None:
    assert flags.choose(b"", "torch", HOST, ("--iree-opt-level=O3",))[-1] == "--iree-opt-level=O3"


def test_each_fallback_is_more_cautious_than_the_one_before() -> None:
    fast = flags.choose(b"torch.aten.conv2d", "torch", HOST)
    one, two, three, four = [fallback(fast) for fallback in flags.fallbacks() if not fallback.after]
    assert flags.CHANNELS_LAST not in one
    assert _TILING in one
    assert _TILING not in two
    assert "--iree-dispatch-creation-data-tiling" in two
    assert not any("data-tiling" in flag for flag in three)
    assert "--iree-opt-level=O0" in four


def test_asserts_are_left_out_where_no_call_finds_out_a_size() -> None:
    words = "'arith.addi' op explicit execution regions must only contain explicit ops"
    [fallback] = [each for each in flags.fallbacks() if each.after and re.search(each.after, words)]
    fast = flags.choose(b"!torch.vtensor<[?],f32>", "torch", HOST)
    assert set(fallback(fast)) - set(fast) == {"--iree-opt-strip-assertions"}
    waits = flags.choose(b"!torch.vtensor<[?],f32> torch.aten.nonzero", "torch", HOST)
    assert fallback(waits) == waits


def test_a_target_without_data_tiling_does_not_fall_back_to_it() -> None:
    fast = flags.choose(b"", "torch", Target.parse("iree-cpu-x86_64"))
    assert not any("data-tiling" in flag for fallback in flags.fallbacks() for flag in fallback(fast))


def test_a_users_flag_survives_the_fallbacks() -> None:
    fast = flags.choose(b"", "torch", HOST, ("--iree-opt-level=O3",))
    assert all("--iree-opt-level=O3" in fallback(fast) for fallback in flags.fallbacks())


@pytest.mark.parametrize(("branches", "wanted"), [(0, False), (1, False), (2, True)])
def test_programs_of_several_branches_bind_their_buffers_directly(branches: int, wanted: bool) -> None:
    found = flags.choose(b"scf.if " * branches, "torch", HOST)
    assert ("--iree-hal-indirect-command-buffers=false" in found) is wanted


_INSIDE = b"  func.func @forward(%0: tensor<2xf32>) {\n    %1 = arith.extf %0 : tensor<2xf64>\n"


@pytest.mark.parametrize(
    ("target", "text", "kept"),
    [
        ("iree-metal", _INSIDE, False),
        ("iree-metal", b"func.func public @forward(%0: tensor<2xf64>) {", True),
        ("iree-vulkan", _INSIDE, True),
        ("iree-metal", b"tensor<2xf32>", None),
    ],
)
def test_float64_inside_of_a_model_is_narrowed_where_a_device_has_none(
    target: str, text: bytes, kept: bool | None
) -> None:
    chosen = Target.parse(target)
    assert (_DEMOTE in flags.choose(text, "torch", chosen)) is bool(kept)
    assert bool(flags.remarks(text, [chosen])) is (kept is False)


def test_a_fat_program_gets_what_one_of_its_devices_needs_and_all_can() -> None:
    metal, sm80 = Target.parse("iree-metal"), Target.parse("iree-cuda-sm_80")
    found = flags.choose(_INSIDE + b"torch.aten.conv2d", "torch", HOST, ("--mine",), beside=(metal, sm80))
    assert "--iree-llvmcpu-stack-allocation-limit=262144" in found
    assert found[-1] == "--mine"
    # Metal has no float64; the compiler tiles matmuls for one device only.
    assert not {_DEMOTE, flags.CHANNELS_LAST, _TILING} & set(found)
    assert _DEMOTE in flags.choose(_INSIDE, "torch", HOST, beside=(sm80,))
    narrowed, joint = flags.remarks(_INSIDE, [HOST, metal])
    assert "metal has none" in narrowed
    assert joint == "one program for iree-cpu-host, iree-metal"


V3, V4, SM, VULKAN, METAL, XLA = expand(
    [
        "iree-cpu-x86_64_v3",
        "iree-cpu-x86_64_v4",
        "iree-cuda-sm_80",
        "iree-vulkan",
        "iree-metal",
        "xla-cpu-host",
    ]
)


def test_the_first_target_of_each_driver_is_in_it() -> None:
    assert flags.fat_groups((XLA, V4, VULKAN, V3, SM)) == ((V4, SM, VULKAN), (XLA,), (V3,))


@pytest.mark.parametrize("targets", [(V3,), (V3, V4), (XLA, SM)])
def test_one_device_is_refused(targets: tuple) -> None:
    with pytest.raises(TargetError, match="several devices") as caught:
        flags.fat_groups(targets)
    assert "--fat" in caught.value.hint
    assert str(targets[0]) in caught.value.reason


def test_the_devices_become_one_choice_and_other_flags_stay() -> None:
    select, *rest = flags.target_flags((V3, SM, VULKAN))
    assert select.startswith('--iree-hal-target-device=#hal.device.select<[#hal.device.alias<"local">')
    assert '#hal.device.alias<"cuda"> : !hal.device, #hal.device.target<"vulkan"' in select
    assert select.endswith("]> : !hal.device")
    assert {"--iree-cuda-target=sm_80", "--iree-llvmcpu-target-cpu=x86-64-v3"} <= set(rest)
    assert not any("target-device=" in flag for flag in rest)


def test_a_target_alone_has_its_own_flags() -> None:
    assert flags.target_flags((METAL,)) == METAL.row.flags
