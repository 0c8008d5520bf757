"""A forged manifest, with a digest that fits, is refused with what is wrong, and costs little."""

import json
import time

import pytest

from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.errors import BundleCorrupt
from aotpipe.runtime.bundle import limits
from aotpipe.runtime.bundle.manifest import read
from aotpipe.runtime.dim_binding import Binder
from tests.unit.runtime.bundle.test_manifest import changed


def of_dims(*dims):
    def change(content):
        content["entry_points"]["forward"]["signature"]["inputs"] = [f"x: float32[{each}]" for each in dims]

    return changed(change)


SIZE = limits.SIZE_BYTES
FORGED = {
    "many lists": (b"[" + b"[]," * (SIZE // 3 - 9) + b"1]", "more than 200000 characters ,"),
    "fewer lists": (b"[" + b"[]," * 60_000 + b"1]", "more than 50000 values"),
    "many strings": (b"[" + b'"a",' * 150_000 + b"1]", 'more than 200000 characters "'),
    "deep": (b"[" * 65 + b"]" * 65, "more than 64 levels"),
    "deep, with brackets in a text": (b'["]]]]",' * 65 + b"1" + b"]" * 65, "more than 64 levels"),
    "no end": (b'["' + b"\\" * (SIZE - 9), "Unterminated string"),
    "UTF-16": ('{"schema": 1}'.encode("utf-16"), "'utf-8' codec"),
    "a large number": (b'{"schema": 1' + b"0" * 30 + b"}", "no integer of 64 bits"),
    "digits": (b"9" * SIZE, "digits"),
    "a power": (of_dims("batch, 9**9**9"), "'9**9**9' has no value: the exponent 387420489 is too large"),
    "a product": (of_dims("99999999999*99999999999"), "none of 64 bits"),
    "a large dim": (of_dims(str(1 << 63)), "each of 64 bits"),
    "many dims": (of_dims("1," * 65), "at most 64 dims"),
    "commas in parentheses": (of_dims("(" + "n," * 9_000), "more than 2000 characters"),
    "a call": (of_dims("floor(__import__(n))"), "not a dim expression"),
    "an attribute": (of_dims("n.real"), "not a dim expression"),
    "no expression": (of_dims("n n"), "not a dim expression"),
    "signs": (of_dims("-" * 200 + "n"), "nested more than 100 deep"),
    "parentheses": (of_dims("(" * 900 + "n" + ")" * 900), "not a dim expression"),
    "a long expression": (of_dims("n + " * 600 + "n"), "more than 2000 characters"),
    "many expressions": (of_dims(*(f"n + {each}" for each in range(2001))), "more than 2000 expressions"),
    "long expressions": (of_dims(*(f"n + {each:01000}" for each in range(1, 101))), "more than 100000 char"),
    "many tensors": (of_dims(*["1"] * 10_001), "more than 10000 tensors"),
    "a long name": (
        changed(lambda content: content.update(weights=["w" * 1001])),
        "1000 characters in a name",
    ),
    "entry points": (
        changed(
            lambda content: content["entry_points"].update(
                {f"e{each}": content["entry_points"]["forward"] for each in range(256)}
            )
        ),
        "more than 256 entry points",
    ),
    "programs": (
        changed(lambda content: content.update(programs=content["programs"] * 129)),
        "more than 256 programs",
    ),
    "a symbol": (
        changed(
            lambda content: content["entry_points"]["forward"]["signature"].update(
                symbols=[f"n=1..{1 << 63}"]
            )
        ),
        "of the symbol 'n' is no integer of 64 bits",
    ),
}


@pytest.mark.parametrize(("data", "reason"), FORGED.values(), ids=FORGED)
def test_a_forged_manifest_is_refused(data, reason):
    start = time.process_time()
    with pytest.raises(BundleCorrupt, match="is not a manifest") as caught:
        read(data)
    assert time.process_time() - start < 1
    assert reason in caught.value.reason
    assert len(caught.value.reason) <= 500


def test_a_size_that_no_call_can_have_is_refused_in_the_call():
    signature = Signature(inputs=(TensorSpec("x", "float32", ("n", "n**n**n**n")),), outputs=())
    with pytest.raises(Exception, match="wants") as caught:
        Binder(signature.tensor_inputs, ()).bind(((9, 9),))
    assert type(caught.value).__name__ == "InputShape"


def test_brackets_and_commas_in_texts_are_no_values():
    text = json.dumps({"a": '[[{",' * 40_000, "b": "\\"}).encode()
    assert limits.parsed(text) == json.loads(text)
