"""What is said of a compile that failed: the user's line, the limit, the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotpipe.backends.iree.compile import compiler, flags
from aotpipe.errors import CompileFailed, CompilerCrashed, CompilerOutOfMemory, CompileTimeout, SourceLine
from tests.unit.runtime.iree.samples import CRASHES, HOST, NO_SUCH_OP, RELU, lowered


def test_a_refused_op_is_reported_with_the_users_line_and_a_log(tmp_path: Path) -> None:
    with pytest.raises(CompileFailed) as caught:
        compiler.compile(lowered(NO_SUCH_OP), HOST, log_dir=tmp_path / "logs")
    error = caught.value
    assert error.where == SourceLine("/home/u/model.py", 9)
    assert "`torch.aten.nonsense`" in error.message
    assert "failed to legalize" in error.reason
    log = Path(error.log)
    assert "$ iree-compile" in log.read_text()
    assert "nonsense" in log.with_suffix(".mlir").read_text()


def test_no_other_flags_are_tried_where_the_module_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileFailed) as caught:
        compiler.compile(lowered("module { nonsense }"), HOST, log_dir=tmp_path)
    assert Path(caught.value.log).read_text().count("$ iree-compile") == 1


def test_a_crash_is_typed_and_names_signal_and_pass(tmp_path: Path) -> None:
    with pytest.raises(CompilerCrashed, match="SIGSEGV in FormDispatchRegionsPass") as caught:
        compiler.compile(lowered(CRASHES), HOST, log_dir=tmp_path)
    assert Path(caught.value.log).read_text().count("$ iree-compile") == 1 + len(
        {fallback(flags.choose(b"", "torch", HOST)) for fallback in flags.fallbacks() if not fallback.after}
        - {flags.choose(b"", "torch", HOST)}
    )


def test_the_time_limit_is_typed() -> None:
    with pytest.raises(CompileTimeout, match=r"0\.01 s"):
        compiler.compile(RELU, HOST, timeout_s=0.01)


def test_the_memory_limit_is_typed() -> None:
    with pytest.raises(CompilerOutOfMemory, match="memory limit"):
        compiler.compile(RELU, HOST, memory_limit_bytes=8 << 20)


def test_an_unknown_flag_is_the_compilers_own_error() -> None:
    with pytest.raises(CompileFailed, match="nonsense"):
        compiler.compile(RELU, HOST, extra_flags=("--iree-nonsense",))
