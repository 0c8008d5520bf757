import hashlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from aotpipe.core.dtypes import numpy_dtype
from aotpipe.core.signature import DTYPES
from aotpipe.runtime import tensor_file

SHAPES = st.lists(st.integers(0, 20), max_size=3).map(tuple)


def array(name, shape):
    dtype = numpy_dtype(name)
    count = int(np.prod(shape)) * dtype.itemsize
    patterns = np.arange(count) % 2 if name == "bool" else np.arange(count) % 256
    return patterns.astype(np.uint8).view(dtype).reshape(shape)


def same(left, right):
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@given(
    given_arrays=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5).filter(
            lambda name: name != "__metadata__"
        ),
        st.builds(array, st.sampled_from(sorted(DTYPES)), SHAPES),
        max_size=6,
    )
)
def test_what_is_written_is_read(tmp_path_factory, given_arrays):
    path = tmp_path_factory.mktemp("t") / "t.safetensors"
    digest = tensor_file.write(given_arrays, path)
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    for found in (tensor_file.read(path), tensor_file.parse(content(path))):
        assert found.keys() == given_arrays.keys()
        assert all(same(found[name], each) for name, each in given_arrays.items())


def test_equal_arrays_give_equal_bytes(tmp_path):
    arrays = {"b": array("float32", (3,)), "a": array("int64", (8, 8))}
    first = tensor_file.write(arrays, tmp_path / "first")
    assert tensor_file.write(dict(reversed(arrays.items())), tmp_path / "second") == first


def test_large_arrays_are_aligned(tmp_path):
    arrays = {f"w{n}": np.zeros(n, np.float32) for n in (1, 16, 17, 3, 64, 1024)}
    tensor_file.write(arrays, tmp_path / "t")
    for found in (tensor_file.read(tmp_path / "t"), tensor_file.parse(content(tmp_path / "t"))):
        assert all(found[f"w{n}"].ctypes.data % 64 == 0 for n in (16, 64, 1024))
        assert all(each.flags.aligned for each in found.values())


def test_arrays_of_any_layout_are_stored_contiguous(tmp_path):
    strided = np.arange(12, dtype=np.float32).reshape(3, 4).T
    tensor_file.write({"t": strided, "c": strided.astype(np.complex128)}, tmp_path / "t")
    found = tensor_file.read(tmp_path / "t")
    np.testing.assert_array_equal(found["t"], strided)
    np.testing.assert_array_equal(found["c"], strided)


def test_any_reader_of_the_format_reads_it(tmp_path):
    arrays = {name: array(name, (2, 3)) for name in ("float32", "int64", "bool", "float16", "uint16")}
    tensor_file.write({**arrays, "empty": np.zeros((0, 2), np.int8)}, tmp_path / "t")
    found = load_file(tmp_path / "t")
    assert all(same(found[name], each) for name, each in arrays.items())
    assert found["empty"].shape == (0, 2)


def test_what_is_read_cannot_be_written(tmp_path):
    tensor_file.write({"w": np.ones(4, np.float32)}, tmp_path / "t")
    for found in (tensor_file.read(tmp_path / "t"), tensor_file.parse(content(tmp_path / "t"))):
        with pytest.raises(ValueError, match="read-only"):
            found["w"][0] = 2


@given(
    given_arrays=st.dictionaries(
        st.sampled_from("abcdefgh"), st.builds(array, st.sampled_from(sorted(DTYPES)), SHAPES), max_size=8
    ),
    most_bytes=st.integers(1, 1 << 14),
)
def test_what_is_spread_over_files_is_read(tmp_path_factory, given_arrays, most_bytes):
    folder = tmp_path_factory.mktemp("t")
    shards = tensor_file.write_shards(given_arrays, folder, "w", most_bytes=most_bytes)
    found = tensor_file.read_shards(shards, verify=True)
    assert found.keys() == given_arrays.keys()
    assert all(same(found[name], each) for name, each in given_arrays.items())
    again = tensor_file.write_shards(
        dict(reversed(given_arrays.items())), tmp_path_factory.mktemp("t"), "w", most_bytes=most_bytes
    )
    assert [each.sha256 for each in again] == [each.sha256 for each in shards]
    for shard in shards:
        arrays = tensor_file.read(shard.path).values()
        assert len(arrays) <= 1 or sum(each.nbytes for each in arrays) <= most_bytes
        assert shard.size_bytes == shard.path.stat().st_size
    names = [each.path.name for each in shards]
    if len(names) == 1:
        assert names == ["w.safetensors"]
    else:
        assert names == [f"w-{at:05}-of-{len(names):05}.safetensors" for at in range(1, len(names) + 1)]


def test_a_shard_of_other_bytes_is_refused_where_it_is_verified(tmp_path):
    first, second = tensor_file.write_shards(
        {"a": np.zeros(4), "b": np.ones(4)}, tmp_path, "w", most_bytes=32
    )
    tensor_file.write({"b": np.zeros(4)}, second.path)
    assert tensor_file.read_shards([first, second]).keys() == {"a", "b"}
    with pytest.raises(ValueError, match=r"w-00002-of-00002\.safetensors is not"):
        tensor_file.read_shards([first, second], verify=True)


def test_an_array_in_two_files_is_refused(tmp_path):
    [shard] = tensor_file.write_shards({"a": np.zeros(4)}, tmp_path, "w")
    with pytest.raises(ValueError, match="two files have an array 'a'"):
        tensor_file.read_shards([shard, shard])


def test_no_arrays(tmp_path):
    tensor_file.write({}, tmp_path / "t")
    assert tensor_file.read(tmp_path / "t") == {}


def content(path):
    with path.open("rb") as file:
        return tensor_file.read_bytes(file)


def with_header(header, data=b"\0" * 64):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return np.frombuffer(len(text).to_bytes(8, "little") + text + data, np.uint8)


@pytest.mark.parametrize(
    "data",
    [
        np.zeros(0, np.uint8),
        np.frombuffer(b"\xff" * 16, np.uint8),
        with_header(b"{"),
        with_header(b"[1]"),
        with_header({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 17]}}),
        with_header({"a": {"dtype": "F32", "shape": [17], "data_offsets": [0, 68]}}),
        with_header({"a": {"dtype": "F32", "shape": [-1, -4], "data_offsets": [0, 16]}}),
        with_header({"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}}),
        with_header({"a": {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]}}),
        with_header({"a": {"dtype": "F32", "shape": [4], "data_offsets": [32, 16]}}),
        with_header({"a": {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]}}),
        with_header({"a": {"shape": [4], "data_offsets": [0, 16]}}),
        with_header({"a": 3}),
        with_header({"__metadata__": 3}),
        with_header(b"[" * 100_000),
    ],
)
def test_what_is_not_in_the_format_is_refused(data):
    with pytest.raises(ValueError, match="not a safetensors file"):
        tensor_file.parse(data)


@given(st.binary(max_size=200))
def test_noise_is_refused_and_never_crashes(data):
    try:
        tensor_file.parse(with_header(b"{}", data)[: len(data)])
    except ValueError:
        return


def test_an_empty_file(tmp_path):
    (tmp_path / "t").touch()
    with pytest.raises(ValueError, match="not a safetensors file"):
        tensor_file.read(tmp_path / "t")
    assert content(tmp_path / "t").size == 0


def test_a_dtype_without_a_name(tmp_path):
    with pytest.raises(ValueError, match="datetime64"):
        tensor_file.write({"t": np.zeros(1, "datetime64[s]")}, tmp_path / "t")


def test_a_foreign_claim_of_complex128_is_refused():
    header = {
        "__metadata__": {"aotpipe.complex128": '["a"]'},
        "a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]},
    }
    with pytest.raises(ValueError, match="not a safetensors file"):
        tensor_file.parse(with_header(header))
