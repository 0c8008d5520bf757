"""Text of the compiler's `input` phase that keeps values apart from the kernels that read them.

`apart(module, is_wanted)` puts the results of some `linalg.generic` ops behind barriers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_FUNCTION: Final = re.compile(r"^  util\.func .*?^  }", re.MULTILINE | re.DOTALL)
_GENERIC: Final = re.compile(
    r"^(?P<space> *)%(?P<name>\w+)(?::\d+)? = (?P<op>linalg\.generic "
    r"(?P<head>[^\n]*)outs\((?P<outs>[^:\n]*) : (?P<types>[^\n]*)\) \{\n"
    r"(?P<body>.*?)^(?P=space)\} -> [^\n]*?)(?P<end>(?: loc\([^\n]*)?)$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Generic:
    """A `linalg.generic`.

    Attributes:
        head: Its maps, iterators and inputs.
        body: What it computes.
        reads: How often its results are read.
    """

    head: str
    body: str
    reads: int


def apart(module: str, is_wanted: Callable[[Generic], bool]) -> str | None:
    """The module with the results of such ops behind barriers; None where there is none."""
    changed = _FUNCTION.sub(lambda function: _function_apart(function[0], is_wanted), module)
    return changed if changed != module else None


def _function_apart(function: str, is_wanted: Callable[[Generic], bool]) -> str:
    found = list(_generics(function))
    for match, generic in reversed(found):
        if is_wanted(generic):
            before, after = function[: match.start()], function[match.end() :]
            function = before + _barred(match) + _renamed(after, match)
    return function


def _generics(function: str) -> Iterator[tuple[re.Match[str], Generic]]:
    for match in _GENERIC.finditer(function):
        reads = len(re.findall(rf"%{match['name']}\b", function)) - 1
        yield match, Generic(match["head"], match["body"], reads)


def _barred(match: re.Match[str]) -> str:
    name, types, outs = match["name"], match["types"].split(", "), match["outs"].split(", ")
    many = f":{len(types)}" if len(types) > 1 else ""
    lines = [f"%apart_{name}{many} = {match['op']}"]
    for place, (type_, out) in enumerate(zip(types, outs, strict=True)):
        result = f"part{place}_{name}" if many else name
        # The sizes are the empty tensor's, which no kernel makes.
        before, varying = sizes(result, out, type_)
        value = f"%apart_{name}#{place}" if many else f"%apart_{name}"
        lines += [*before, *kept(result, value, type_, varying)]
    return "\n".join(f"{match['space']}{line}{match['end']}" for line in lines)


def _renamed(after: str, match: re.Match[str]) -> str:
    """What follows: of several results each has a name of its own behind the barrier."""
    return re.sub(rf"%{match['name']}#(\d+)", rf"%part\1_{match['name']}", after)


def kept(name: str, value: str, type_: str, sizes: Sequence[str]) -> list[str]:
    """Lines that make `name` a value behind a barrier.

    Args:
        name: Of the result, without its sign.
        value: What is kept apart.
        type_: Of both.
        sizes: Of the dims that vary: behind a barrier nothing else tells them.
    """
    if not sizes:
        return [f"%{name} = util.optimization_barrier {value} : {type_}"]
    return [
        f"%kept_{name} = util.optimization_barrier {value} : {type_}",
        f"%{name} = flow.tensor.tie_shape %kept_{name} : {type_}{{{', '.join(sizes)}}}",
    ]


def sizes(name: str, value: str, type_: str) -> tuple[list[str], list[str]]:
    """Lines that read the sizes of a value that vary, and what they are called."""
    dims = re.findall(r"(\d+|\?)x", type_)
    varying = [place for place, size in enumerate(dims) if size == "?"]
    lines = [
        line
        for place in varying
        for line in (
            f"%at{place}_{name} = arith.constant {place} : index",
            f"%size{place}_{name} = tensor.dim {value}, %at{place}_{name} : {type_}",
        )
    ]
    return lines, [f"%size{place}_{name}" for place in varying]
