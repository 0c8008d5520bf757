"""Ops on vectors and memories as text."""

from __future__ import annotations

from aotpipe.backends.iree.kernels.writer import Row, Tile, Writer, tensor_type


def test_a_read_sees_the_last_write() -> None:
    write, tile = Writer(), Tile(4, 1)
    write.allocate("h", (2, 8))
    with write.loop(write.index(3), 1, ["h"]) as trip:
        before = write.after("h")[0]
        write.write("%vector", Row("h", (trip,)), write.index(0), tile)
        inner = write.after("h")[0]
        write.read(Row("h", (trip,)), write.index(0), tile)
    after, kind = write.after("h")
    assert len({before, inner, after}) == 3
    assert kind == "tensor<2x8xf32>"
    text = write.text()
    assert f"transfer_read {inner}[" in text
    assert f"scf.yield {inner}" in text
    # A constant comes first, once.
    assert text.count("arith.constant 0 : index") == 1
    assert text.startswith("%at3 = arith.constant 3 : index")


def test_the_last_tile_ends_where_the_row_does() -> None:
    whole, cut = Writer(), Writer()
    for write, size in ((whole, 8), (cut, 10)):
        write.allocate("h", (size,))
        with write.over(size, Tile(4, 2), ["h"]):
            pass
    assert "arith.minsi" not in whole.text()
    assert "arith.minsi" in cut.text()


def test_a_size_that_a_call_decides_has_no_number() -> None:
    assert tensor_type((None, 3)) == "tensor<?x3xf32>"
