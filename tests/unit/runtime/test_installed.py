"""What is missing is named with the line to copy."""

import pytest

from aotpipe.errors import TargetError
from aotpipe.runtime import installed


def test_what_is_there_is_not_asked_for() -> None:
    installed.require()


@pytest.mark.parametrize(("package", "extra"), [("jax", "xla"), ("jaxlib", "xla"), ("libtpu", "tpu")])
def test_what_is_missing_has_its_extra(package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    with pytest.raises(TargetError, match=f"{package} is not installed") as caught:
        installed.require(package)
    assert caught.value.hint == f"pip install 'aotpipe[{extra}]'"
