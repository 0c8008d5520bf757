"""Written parts come back as they were, or not at all."""

import pytest

from aotpipe.errors import BundleCorrupt
from aotpipe.runtime.xla import container


def test_a_container_survives_and_is_checked() -> None:
    data = container.write({"a": 1}, {"y": b"22", "x": b"1"})
    assert container.read(data) == ({"a": 1}, {"x": b"1", "y": b"22"})
    assert data == container.write({"a": 1}, {"x": b"1", "y": b"22"})
    for wrong in (b"", data[:-1], data[:20], data.replace(b"22", b"23")):
        with pytest.raises(BundleCorrupt):
            container.read(wrong)
