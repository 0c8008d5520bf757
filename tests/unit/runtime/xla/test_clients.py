"""One client for each platform and number of threads; the environment is left as it was."""

import os

import pytest

from aotpipe.errors import IncompatibleHost
from aotpipe.runtime.xla import clients


def test_a_client_is_made_once_and_leaves_the_environment() -> None:
    before = dict(os.environ)
    assert clients.devices("cpu", 1)[0] is clients.devices("cpu", 1)[0]
    clients.devices("cpu", 1, 1)
    assert dict(os.environ) == before


def test_a_platform_without_a_device_is_typed() -> None:
    with pytest.raises(IncompatibleHost, match="no tpu device"):
        clients.devices("tpu", 1)
