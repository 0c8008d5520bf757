"""Every code that `check` may report, and what it means; docs/check.md has a section for each.

The codes of findings that the stages make themselves are among them. A code that is not in the table is a
fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aotpipe.tools.check.diagnostics import Severity


@dataclass(frozen=True, slots=True)
class Code:
    """The severity that it mostly has, and one sentence."""

    severity: Severity
    title: str


TABLE: Final[Mapping[str, Code]] = {
    # What a build refuses.
    "branch-on-tensor": Code("error", "Python decides on a tensor where the code cannot be rewritten"),
    "paths-differ": Code("error", "a variable has no common form on the paths that a tensor decides between"),
    "loop-changes-form": Code(
        "error", "a loop on a tensor changes the shape or dtype of a variable in each trip"
    ),
    "list-grows": Code("error", "a list grows in a loop on a tensor without a bound"),
    "python-object-changed": Code("error", "a branch or a loop on a tensor changes a Python object in place"),
    "written-in-place": Code("error", "a write in place that the graph would lose"),
    "raises-on-tensor": Code(
        "error", "an exception is raised on one of the paths that a tensor decides between"
    ),
    "number-from-tensor": Code(
        "error", "Python takes a number out of a tensor where the graph needs it known"
    ),
    "size-from-data": Code("error", "the size of a tensor depends on data"),
    "tensor-to-numpy": Code("error", "a tensor leaves torch for numpy"),
    "text-from-tensor": Code("error", "a text is made of a tensor's value and used"),
    "recursion-on-data": Code("error", "a function calls itself as often as a tensor says"),
    "global-changed": Code("error", "a call changes something outside of the model"),
    "stays-python": Code("error", "the model calls a function that is marked to stay Python"),
    "state-refused": Code("error", "what the model keeps between calls has no one form"),
    "no-source": Code("error", "Python decides on a tensor in code whose source is not there"),
    "op-without-lowering": Code("error", "an op that the targets have no lowering for"),
    "sizes-refused": Code("error", "the Dims allow sizes that the model does not take"),
    "static-dim": Code("error", "a Dim became a constant"),
    "train-mode": Code("error", "the model is in train mode"),
    "model-raises": Code("error", "the model raises on its own example inputs"),
    "differs-from-eager": Code("error", "the exported program gives other answers than eager"),
    "not-exported": Code("error", "torch.export refuses the model for another reason"),
    # What a build takes, and a user should know.
    "baked-input": Code("warning", "an input that is no tensor is fixed, and eager's answer depends on it"),
    "baked-none": Code("warning", "an optional input is left out, and the model decides on that"),
    "baked-key": Code("warning", "a key of a dict is looked for, and the answer is fixed"),
    "baked-attribute": Code("warning", "an attribute that calls change is fixed"),
    "baked-random": Code("warning", "a number that Python or numpy draws is fixed"),
    "baked-time": Code("warning", "the time at the build is fixed"),
    "baked-environment": Code("warning", "a variable of the environment is fixed"),
    "file-at-build": Code("warning", "a file is opened at the build, and not in the program"),
    "output-dropped": Code("note", "text is printed or logged at the build, and not by the program"),
    "state-becomes-buffer": Code("note", "an attribute that calls change is kept as state"),
    "check-incomplete": Code("warning", "not every stage could be run to its end: there may be more"),
    # What the stages themselves find.
    "constant-input": Code("note", "an input that is no tensor is fixed"),
    "call-refused": Code("note", "the model raises without something that a call may lack"),
    "unused-input": Code("warning", "nothing reads an input"),
    "integer-output": Code("note", "an output is a number"),
    "auto-dim-static": Code("warning", "a size under AUTO is fixed"),
    "bucket-plan": Code("note", "the sizes of a Dim that XLA's programs are built for were planned"),
    "auto-dim-multiple": Code("note", "a size under AUTO varies in multiples"),
    "example-at-bound": Code("note", "an example lies at the bound of a Dim"),
    "small-sizes-compared": Code("note", "sizes of 0 and 1 were compared with eager"),
    "state-left-out": Code("warning", "what the model collects between calls is not kept"),
    "state-in-python": Code("note", "what the model keeps in Python is state of the program"),
    "number-became-tensor": Code("warning", "a variable is a number on one path and a tensor on another"),
    "dtype-promoted": Code("warning", "a variable has another dtype on each path"),
    "size-from-path": Code("note", "a variable has another size on each path"),
    "talk-left-out": Code("note", "what is printed or logged is no part of the program"),
    "strict-export": Code("note", "the model was exported in strict mode"),
    "control-flow-in-graph": Code("note", "a function's control flow is part of the graph"),
    "eager-island": Code("note", "a part of the model stays Python"),
    "parity-inputs": Code("note", "how the inputs were drawn that programs are compared on"),
    "precision": Code("note", "products are computed in fewer bits"),
    "precision-overflow": Code("warning", "a number overflows in fewer bits, and is not compared"),
}


def of(code: str) -> Code:
    """What a code means; of one that a stage made and nobody described, the code itself."""
    return TABLE.get(code) or Code("note", code)


def severity_of(code: str) -> Severity:
    """The severity that a code has by itself."""
    return TABLE[code].severity
