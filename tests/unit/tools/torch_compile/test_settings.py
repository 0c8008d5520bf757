"""The options of the backend."""

from __future__ import annotations

import pytest

from aotpipe.errors import SpecInvalid, TargetError, UnknownTarget
from aotpipe.tools.torch_compile.settings import Settings


def test_what_is_left_out_has_its_default() -> None:
    settings = Settings.of()
    assert (str(settings.target), settings.fallback, settings.verify, settings.cache) == (
        "iree-cpu-host",
        "eager",
        True,
        True,
    )
    assert Settings.of({"target": "iree-vmvx", "fallback": "error"}, "default").fallback == "error"


@pytest.mark.parametrize(
    ("options", "mode", "message"),
    [
        ({"targets": "iree-vmvx"}, None, "no option 'targets'"),
        ({"fallback": "inductor"}, None, "fallback is 'inductor'"),
        ({"target": "xla-cpu-host"}, None, "one IREE target"),
        ({}, "max-autotune", "no mode 'max-autotune'"),
        ({"dtype": "f8"}, None, "no dtype"),
        ({"keep_float32": ["gelu"]}, None, "nothing is computed in another dtype"),
    ],
)
def test_what_is_no_option_is_refused(options: dict[str, object], mode: str | None, message: str) -> None:
    with pytest.raises(SpecInvalid, match=message):
        Settings.of(options, mode)


def test_an_unknown_target() -> None:
    with pytest.raises(UnknownTarget):
        Settings.of({"target": "iree-abacus"})


def test_parts_of_a_graph_run_eagerly_where_programs_are_ires_own_in_the_models_dtypes() -> None:
    assert Settings.of().model_options["allow_islands"]
    for options in ({"dtype": "bf16", "keep_float32": ["gelu"]}, {"dialect": "stablehlo"}):
        found = Settings.of(options).model_options
        assert options.items() <= found.items()
        assert not found["allow_islands"]
    with pytest.raises(TargetError, match="no dialect 'tosa'"):
        Settings.of({"dialect": "tosa"})
