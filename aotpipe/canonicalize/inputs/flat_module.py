"""The model as a module of one flat dict: every input is always there, optional ones with a flag.

`Adapter(structure)` calls the model with what a flat dict stands for, and gives its results as a flat dict.
Run on tensors, it leaves out what a flag says is not there, as eager's caller would. Traced, a part that
may be missing is a value with a flag (`optional_values.OptionalValue`), so that the model's own `is None` and
`in` decide in the graph; or, inside of `by_flags()`, the graph calls the whole model once for each
combination of flags, whatever it does with them.

`entry(model, name, entry)` unites the examples, runs the model on each combination of what may be there,
and gives a `CanonicalEntry` over the flat form; None where every call has everything and no number varies.
Raises `SpecInvalid` where an example does not fit, and where the model raises on one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any, Final

import torch
from torch import nn

from aotpipe.canonicalize import example_call, modules
from aotpipe.canonicalize.inputs import dynamic_shapes, pytrees
from aotpipe.canonicalize.inputs.structure import (
    MISSING,
    Call,
    Group,
    Part,
    Structure,
    nodes,
    number_tensor,
    unite,
)
from aotpipe.canonicalize.operators import conditional
from aotpipe.canonicalize.trace import regions, runtime_asserts, torch_functions
from aotpipe.canonicalize.values import host_scalars, trace
from aotpipe.canonicalize.values.abstract_values import UNDEFINED, Variables
from aotpipe.canonicalize.values.optional_values import OptionalValue, Partial
from aotpipe.canonicalize.values.trace import refusal
from aotpipe.core.signature import Absent, Presence
from aotpipe.core.stages import CanonicalEntry, Finding
from aotpipe.errors import SpecInvalid
from aotpipe.model import source
from aotpipe.model.object_graph import Root
from aotpipe.model.spec import EntryPoint
from aotpipe.runtime.input_checks import presence_cases

Inputs = Mapping[str, torch.Tensor]
MOST_FLAGS: Final = 3
"""The most flags for which the whole model is put into the graph once for each combination."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """The leaves of all results: names, and the flags of those that are not always there."""

    names: tuple[str, ...]
    flags: Mapping[str, Presence]

    @property
    def all_names(self) -> tuple[str, ...]:
        """The names of the leaves, then of the flags."""
        return (*self.names, *(part.flag for part in self.flags.values()))

    @classmethod
    def of(cls, results: Sequence[Any]) -> Outputs:
        """What several results have together."""
        found = [dict(_leaves(result)) for result in results]
        labels = tuple(dict.fromkeys(name for each in found for name in each))
        lacking = [name for name in labels if len({each.get(name) is None for each in found}) > 1]
        flags = pytrees.unique([*labels, *(f"{name}.present" for name in lacking)])[len(labels) :]
        presences = {}
        for name, flag in zip(lacking, flags, strict=True):
            absent: Absent = "missing" if any(name not in each for each in found) else "none"
            presences[name] = Presence(name, flag, (name,), absent)
        return cls(labels, presences)


@dataclass(eq=False)
class Adapter:
    """Calls a model in one form.

    Attributes:
        example: Args and kwargs of the first example, as the model takes them.
        outputs: Of its results; None until they are known, and results are then as the model gives them.
    """

    structure: Structure
    example: Call = ((), {})
    outputs: Outputs | None = None
    _is_by_flags: bool = False

    def by_flags(self) -> AbstractContextManager[None]:
        """Trace the whole model once for each combination of flags."""
        return trace.assigned(self, _is_by_flags=True)

    def forward(self) -> Callable[[dict[str, torch.Tensor]], Any]:
        """A function of the flat dict, behind which the model's own method is found."""

        def forward(inputs: dict[str, torch.Tensor]) -> Any:
            with self._attributes(inputs):
                return self._called(inputs)

        parameter = inspect.Parameter("inputs", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        forward.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
        forward.__wrapped__ = self.structure.call  # type: ignore[attr-defined]
        forward.__name__ = getattr(self.structure.call, "__name__", "forward")
        return forward

    def functions(self) -> list[FunctionType]:
        """What decides on what is there: the model's method, and the methods of classes of its arguments."""
        method = inspect.unwrap(getattr(self.structure.call, "__func__", self.structure.call))
        found: list[Any] = [method]
        containers = (each.kind for each in nodes(self.structure.root) if isinstance(each, Group))
        for kind in dict.fromkeys(each for each in containers if each.__module__ != "builtins"):
            own = [each for base in kind.__mro__ for each in vars(base).values()]
            found += [getattr(each, "fget", None) or each for each in own]
        return [
            each
            for each in found
            if isinstance(each, FunctionType) and source.is_model_code(each.__code__.co_filename)
        ]

    def called(self, inputs: Inputs) -> Call:
        """The args and kwargs that the model is called with for inputs of the one form."""
        return self._arguments(inputs, {part.flag: bool(inputs[part.flag]) for part in self.structure.parts})

    def packed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """The inputs of the one form for args and kwargs of the model.

        What is optional is zeros where they lack it, anything else the example's.
        """
        leaves = pytrees.input_leaves(self.structure.call, args, kwargs)
        given = {".".join(path): leaf for path, leaf in leaves if leaf is not None}
        optional = {name for part in self.structure.presences() for name in part.members}
        inputs: dict[str, torch.Tensor] = {}
        for name, example in self.structure.example().items():
            value = given.get(name, torch.zeros_like(example) if name in optional else example)
            inputs[name] = number_tensor(value) if isinstance(value, bool | int | float) else value
        for attribute in self.structure.attributes:
            inputs[attribute.name] = number_tensor(attribute.value)
        for part in self.structure.presences():
            inputs[part.flag] = torch.tensor(any(name in given for name in part.members))
        return inputs

    def presences(self) -> tuple[Presence, ...]:
        """What the model does not always give."""
        return tuple(self.outputs.flags.values()) if self.outputs else ()

    def changed(self, constants: Mapping[str, object]) -> Call:
        """The example's args and kwargs, with other values of what is fixed."""
        there = {part.flag: True for part in self.structure.parts}
        return self._arguments(self.structure.example(), there, constants)

    def _called(self, inputs: Inputs) -> Any:
        if not any(map(torch_functions.is_staged, inputs.values())):
            return self._real(self._result(self.called(inputs)))
        if self._is_by_flags and self.structure.parts:
            return self._staged(self._by_flags(inputs))
        return self._staged(dict(_leaves(self._result(self._arguments(inputs, None)))))

    def _arguments(
        self, inputs: Inputs, there: Mapping[str, bool] | None, constants: Mapping[str, object] | None = None
    ) -> Call:
        """The args and kwargs, with the parts whose flags are `there`; None leaves it to the graph."""

        def part(node: Part, built: Callable[[], Any]) -> Any:
            if there is None:
                return _maybe(node, inputs[node.flag], built())
            return built() if there[node.flag] else node.absent

        return self.structure.arguments(
            inputs, number=_number, part=part, mapping=_mapping, constants=constants
        )

    def _result(self, given: Call) -> Any:
        args, kwargs = given
        return self.structure.call(*args, **kwargs)

    def _by_flags(self, inputs: Inputs) -> dict[str, Any]:
        """The leaves of the results, where the graph calls the model once for each combination of flags."""
        assert self.outputs is not None
        labels = self.outputs.names
        chosen: list[Any] = [UNDEFINED] * len(labels)
        variables = Variables.of_list(chosen, *labels)

        def decide(there: dict[str, bool], rest: Sequence[Part]) -> None:
            if not rest:
                found = dict(_leaves(self._result(self._arguments(inputs, there))))
                chosen[:] = (found.get(name) for name in labels)
                return
            first, *others = rest
            if first.flag in there:
                decide(there, others)
                return
            gone = dict.fromkeys((first.flag, *inner[first.flag]), False)
            regions.branch(
                inputs[first.flag].clone(),
                lambda: decide({**there, first.flag: True}, others),
                lambda: decide({**there, **gone}, others),
                variables,
            )

        flags = {part.flag for part in self.structure.parts}
        inner = {each.flag: flags.intersection(each.members) for each in self.structure.presences()}
        decide({}, self.structure.parts)
        return dict(zip(labels, chosen, strict=True))

    def _real(self, result: Any) -> Any:
        """A result as a flat dict; what is not there is None."""
        if self.outputs is None:
            return result
        found = dict(_leaves(result))
        flags = {
            part.flag: torch.tensor(found.get(name) is not None) for name, part in self.outputs.flags.items()
        }
        return {**{name: found.get(name) for name in self.outputs.names}, **flags}

    def _staged(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The leaves of a traced result as a flat dict."""
        assert self.outputs is not None
        given: dict[str, Any] = {}
        flags: dict[str, Any] = {}
        if set(found) != set(self.outputs.names):
            raise refusal(
                "which results there are depends on what a call has, and so does their structure",
                "return the same keys in every call, with None for what is not there",
            )
        for name in self.outputs.names:
            value, part = found[name], self.outputs.flags.get(name)
            present: Any = value is not None
            if isinstance(value, OptionalValue):
                value, present = value.payload_of_optional, value.flag_of_optional.clone()
                if part is None:
                    runtime_asserts.add_assert(present, f"the output {name!r} is None")
                value = value.clone() if isinstance(value, torch.Tensor) else value
            if value is None and part is not None:
                raise refusal(f"the output {name!r} is None in every call that is traced", "return a tensor")
            given[name] = value
            if part is not None:
                flags[part.flag] = (
                    present if isinstance(present, torch.Tensor) else torch.full((), bool(present))
                )
        return {**given, **flags}

    @contextmanager
    def _attributes(self, inputs: Inputs) -> Iterator[None]:
        """Let the model hold the numbers of a call."""
        attributes = self.structure.attributes
        before = [vars(each.owner)[each.key] for each in attributes]
        for each in attributes:
            vars(each.owner)[each.key] = _number(inputs[each.name])
        try:
            yield
        finally:
            for each, value in zip(attributes, before, strict=True):
                vars(each.owner)[each.key] = value


def _number(tensor: torch.Tensor) -> Any:
    return host_scalars.item(tensor) if torch_functions.is_staged(tensor) else tensor.item()


def _maybe(node: Part, flag: torch.Tensor, held: Any) -> Any:
    if node.absent is not None and node.absent is not MISSING:
        present = OptionalValue(flag, held)
        return conditional.either(present, lambda: held, lambda: node.absent)
    return OptionalValue(flag, held, is_key=node.absent is MISSING, name=repr(node.name))


def _mapping(kind: type, items: dict[Any, Any]) -> Any:
    unsure = {
        key for key, item in items.items() if isinstance(item, OptionalValue) and item.is_key_of_optional
    }
    return Partial(items, unsure) if unsure else kind(items)


def _leaves(result: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a result by name; where a structure may be None, each of its leaves may be."""
    found: list[tuple[pytrees.Path, Any]] = []
    for path, leaf in pytrees.leaves(result):
        if isinstance(leaf, Partial):
            raise refusal("a result holds keys that may be missing", "return each by its name")
        if isinstance(leaf, OptionalValue) and not isinstance(leaf.payload_of_optional, torch.Tensor):
            inner = pytrees.leaves(leaf.payload_of_optional)
            found += [((*path, *below), OptionalValue(leaf.flag_of_optional, each)) for below, each in inner]
        else:
            found.append((path, leaf))
    labels = pytrees.unique(pytrees.output_name(path) for path, _ in found)
    yield from zip(labels, (leaf for _, leaf in found), strict=True)


def require_unhooked(model: nn.Module) -> None:
    """Refuse hooks of the model itself, which would take its arguments as the model does.

    Raises:
        SpecInvalid: It has some.
    """
    hooks = (vars(model)["_forward_pre_hooks"], vars(model)["_forward_hooks"])
    if any(hooks):
        raise SpecInvalid(
            f"{type(model).__name__} has forward hooks, which would see its inputs in one form for all calls",
            hint="hook a submodule, or leave out `optional`, `tensorize` and further examples",
            where=source.of_definition(type(model)),
        )


MOST_CASES: Final = 16
"""The most combinations of flags that are all tried; `presence_cases` chooses among more than that."""


def entry(
    model: nn.Module, name: str, given: EntryPoint
) -> tuple[CanonicalEntry, list[Root], list[Finding]] | None:
    """The entry point in one form for all its calls, what calls changed, and what to say of it."""
    # The very method: what a view of the model holds would be the form itself, while that is traced.
    call = getattr(model, given.method)
    for example in given.examples:
        pytrees.check_call(call, example.args, example.kwargs, given.method)
        pytrees.register((example.args, example.kwargs))
    calls = [(given.args, given.kwargs), *((each.args, each.kwargs) for each in given.examples)]
    structure = unite(call, model, calls, given.optional, given.tensorize)
    if structure.is_plain:
        return None
    require_unhooked(model)
    inputs = structure.example()
    leaves: list[dynamic_shapes.Leaf] = [
        (leaf.path, leaf.value) for leaf in structure.leaves if leaf.kind == "tensor"
    ]
    tensors = [leaf.name for leaf in structure.leaves if leaf.kind == "tensor"]
    dims = dynamic_shapes.resolve(given, leaves, tensors)
    made = Adapter(structure, calls[0])
    module = modules.view_of(model, made.forward())
    results, changed, findings = _results(module, structure, f"{type(model).__name__}.{given.method}", name)
    for result in results:
        pytrees.check_outputs(result, call)
    made.outputs = Outputs.of(results)
    canonical = CanonicalEntry(
        name=name,
        entry=replace(given, args=(inputs,), kwargs={}, examples=(), optional=(), tensorize=()),
        module=module,
        input_names=tuple(inputs),
        constants=structure.constants,
        output_names=made.outputs.all_names,
        dims=dims,
        adapter=made,
    )
    return canonical, changed, findings


def cases(structure: Structure) -> Iterator[dict[str, torch.Tensor]]:
    """The example with each combination of flags."""
    example = structure.example()
    for case in presence_cases(structure.presences(), MOST_CASES):
        yield {**example, **{flag: torch.tensor(there) for flag, there in case.items()}}


def _results(
    module: nn.Module, structure: Structure, called: str, name: str
) -> tuple[list[Any], list[Root], list[Finding]]:
    """Call the model on each combination of flags: its results, what it changed, and notes on refusals."""
    results: list[Any] = []
    changed: dict[tuple[int, str], Root] = {}
    refused: list[str] = []
    for number, inputs in enumerate(cases(structure)):
        try:
            result, roots = example_call.observed(module, (inputs,), {}, called)
        except SpecInvalid as error:
            if number == 0:
                raise
            lacking = ", ".join(part.name for part in structure.parts if not inputs[part.flag])
            refused.append(f"without {lacking}: {type(error.__cause__).__name__}")
            continue
        results.append(result)
        changed |= {root.identity: root for root in roots}
    findings = [
        Finding(
            severity="note",
            code="call-refused",
            message=f"the model raises {why}; the program refuses such a call too",
            where=source.of_definition(structure.call),
            entry_point=name,
        )
        for why in refused
    ]
    return results, list(changed.values()), findings
