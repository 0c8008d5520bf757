from __future__ import annotations

import aotpipe.dynamo
from aotpipe.tools import torch_compile


def test_the_public_name_of_the_backend_is_kept():
    assert aotpipe.dynamo.__all__ == torch_compile.__all__
    assert all(
        getattr(aotpipe.dynamo, name) is getattr(torch_compile, name) for name in torch_compile.__all__
    )
