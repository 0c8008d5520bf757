"""Reading the compiler's words."""

from __future__ import annotations

import pytest

from aotpipe.backends.iree.compile.attempts import diagnose
from aotpipe.errors import SourceLine

_CALLED = """\
/env/site-packages/torch/nn/modules/linear.py:134:0: error: failed to legalize operation 'torch.operator' \
that was explicitly marked illegal: %0 = "torch.operator"(%arg0) <{name = "torch.aten.nonsense"}> : (x) -> y
/home/u/model.py:9:0: note: called from
/env/site-packages/torch/nn/modules/linear.py:134:0: note: see current operation: %0 = "torch.operator"
"""
_CRASH = """\
Please report issues to https://github.com/iree-org/iree/issues and include the crash backtrace.
 #0 0x00007fcdf2b5a0ab llvm::sys::PrintStackTrace(llvm::raw_ostream&, int) Signals.cpp:0:0
 #5 0x00007fcdf4993b53 mlir::iree_compiler::DispatchCreation::(anonymous namespace)::FormDispatchRegionsPass\
::runOnOperation() FormDispatchRegions.cpp:0:0
"""


def test_the_users_line_is_the_innermost_that_is_no_packages() -> None:
    found = diagnose(_CALLED)
    assert found.where == SourceLine("/home/u/model.py", 9)
    assert found.op == "torch.aten.nonsense"
    assert found.text == "failed to legalize operation 'torch.operator' that was explicitly marked illegal"
    assert found.is_input


def test_a_crash_names_its_pass() -> None:
    found = diagnose(_CRASH)
    assert found.compiler_pass == "FormDispatchRegionsPass"
    assert found.text == "no diagnostic came before"
    assert found.where is None
    assert not found.is_input


def test_a_crash_in_a_conversion_names_it() -> None:
    frame = (
        " #7 0x0 void llvm::function_ref<void (mlir::OpBuilder&)>::callback_fn<"
        "mlir::torch::convertTorchScatterIndexAndSrcToTMScatterIndexAndSrc(mlir::PatternRewriter&)\n"
    )
    found = diagnose(frame + _CRASH)
    assert found.compiler_pass == "convertTorchScatterIndexAndSrcToTMScatterIndexAndSrc"


def test_a_fatal_errors_words_are_kept() -> None:
    found = diagnose("LLVM ERROR: Cannot select: t5\n" + _CRASH)
    assert found.text == "LLVM ERROR: Cannot select: t5"


@pytest.mark.parametrize(
    "text", ["LLVM ERROR: out of memory\n", "terminate called after throwing 'std::bad_alloc'\n"]
)
def test_an_allocation_failure_is_known(text: str) -> None:
    assert diagnose(text).out_of_memory


@pytest.mark.parametrize(
    ("line", "op"),
    [
        ("m.mlir:3:1: error: 'linalg.generic' op exceeded the stack limit", "linalg.generic"),
        ("<unknown>:0: error: failed to legalize operation 'arith.constant' that was", "arith.constant"),
        ("error: loc(unknown) something else", ""),
    ],
)
def test_the_op_is_named(line: str, op: str) -> None:
    found = diagnose(line + "\n")
    assert found.op == op
    assert found.where is None


def test_the_compilers_own_source_is_not_the_users_line() -> None:
    text = (
        "x.mlir:1:1: error: unimplemented: for conversion to byte\n"
        "#19 start ./csu/../sysdeps/nptl/libc_start_call_main.h:74:3\n"
    )
    found = diagnose(text)
    assert found.where is None
    assert found.is_input


def test_a_quoted_place_is_read() -> None:
    text = 'loc(fused["/home/u/a b.py":1:0, "/home/u/net.py":33:4]): error: \'x.y\' op is wrong\n'
    found = diagnose(text)
    assert found.op == "x.y"
    assert str(found.where).endswith("net.py:33")
