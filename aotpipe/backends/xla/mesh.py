"""Modules of StableHLO, and programs for several devices: where arrays are, and what each computes.

`parsed(module)` reads a module by jaxlib's bindings. `resolve(mesh, rules, ranks)` says how each array that a
rule matches is split. A `Placement` keeps that with the mesh; `annotate(module, ...)` writes it into a module
of jaxlib's, for XLA's partitioner, and gives what the runtime has to know.
`module_of_one_device(module, ...)` gives the module that the partitioner makes, parsed, so that it is counted
as any other. Torch-free; jaxlib is imported by the calls, since XLA reads its environment when it is loaded.

Raises `MeshError`: a rule matches nothing, names an axis that is not there, or does not fit an array.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aotpipe.errors import MeshError
from aotpipe.runtime.xla.mesh import Mesh, Rule, Sharding, Split, described

# What the partitioner reads beside an argument or a result.
_ATTRIBUTE: Final = "mhlo.sharding"
_LISTED: Final = 8
_PARTITIONER: Final = "spmd-partitioning"
_UNKNOWN: Final = "aotpipe_stops_here"
_HLO_MODULE: Final = 0x0A  # the tag of the first field of XLA's HloProto
_SEVEN_BITS: Final = 0x7F


@dataclass(frozen=True, slots=True)
class Placement:
    """A mesh, and how the arrays are split that are not whole on every device.

    Attributes:
        splits: By name of a weight, state or input.
    """

    mesh: Mesh
    splits: Mapping[str, tuple[Split, ...]]

    def sharding(self, name: str | None, shape: Sequence[int]) -> Sharding:
        """The sharding of an array of a shape; one that has no name is whole everywhere.

        Raises:
            MeshError: The devices cannot share it evenly.
        """
        splits = self.splits.get(name, ()) if name else ()
        if len(splits) > len(shape):
            raise MeshError(
                f"{described(splits)} names {len(splits)} dims, and one of those that are called {name} has "
                f"{len(shape)}",
                hint="rename the input, or the weight, that has the name of another one",
            )
        sharding = Sharding.of(self.mesh, splits, len(shape))
        for axis, (tiles, size) in enumerate(zip(sharding.tiles, shape, strict=True)):
            if size % tiles:
                raise MeshError(
                    f"the mesh {self.mesh} does not divide {name}: its dim {axis} is {size}",
                    reason=f"{'+'.join(splits[axis])} has {tiles} devices; the shape is {list(shape)}",
                    hint="split another dim, or take a mesh with an axis that divides this one",
                )
        return sharding

    def described(self) -> dict[str, str]:
        """How each array is split that is, by name, as `(model, None)`."""
        return {name: described(splits) for name, splits in sorted(self.splits.items()) if any(splits)}


def resolve(mesh: Mesh, rules: Sequence[Rule], ranks: Mapping[str, int]) -> Placement:
    """How each array is split that a rule matches.

    `ranks` tells how many dims each array has, by its name; the first rule that matches a name counts.

    Raises:
        MeshError
    """
    found: dict[str, tuple[Split, ...]] = {}
    for rule in rules:
        if unknown := [name for name in itertools.chain(*rule.splits) if name not in mesh.sizes]:
            raise MeshError(
                f"--shard {rule} names the axis {unknown[0]!r}, which the mesh {mesh} lacks",
                hint=f"its axes are: {', '.join(mesh.sizes)}",
            )
        matching = [name for name in ranks if re.fullmatch(rule.pattern, name)]
        if not matching:
            listed = sorted(ranks)
            more = ", ..." if len(listed) > _LISTED else ""
            raise MeshError(
                f"--shard {rule} matches nothing",
                reason=f"the names are: {', '.join(listed[:_LISTED])}{more}",
                hint="a pattern is a regular expression for a whole name; `aotpipe inspect` lists them",
            )
        for name in matching:
            if len(rule.splits) > ranks[name]:
                raise MeshError(
                    f"--shard {rule} names {len(rule.splits)} dims, and {name} has {ranks[name]}",
                    hint="name as many as it has, or fewer",
                )
            found.setdefault(name, rule.splits)
    return Placement(mesh, found)


def annotate(
    module: Any, names: Sequence[str | None], results: Sequence[str | None], placement: Placement
) -> Any:
    """Write shardings into a module of jaxlib's, beside the arguments and results of its main function.

    Args:
        module: Changed in place.
        names: One for each argument; None for one that has none.
        results: One for each; where it is None the partitioner decides.
        placement: Where arrays of these names are.

    Returns:
        As JSON: `arguments`, the sharding of each; `results`, the shape of each.

    Raises:
        MeshError: The devices cannot share an array evenly.
    """
    from jaxlib.mlir import ir

    with module.context:
        main = main_of(module)
        shapes = [list(ir.RankedTensorType(each).shape) for each in main.type.inputs]
        given = [list(ir.RankedTensorType(each).shape) for each in main.type.results]
        shardings = [placement.sharding(name, shape) for name, shape in zip(names, shapes, strict=True)]
        declared = [
            placement.sharding(name, shape) if name else None
            for name, shape in zip(results, given, strict=True)
        ]
        for key, values in (("arg_attrs", shardings), ("res_attrs", declared)):
            before = main.attributes.get(key, [()] * len(values))
            main.attributes[key] = ir.ArrayAttr.get(
                [_with(old, sharding) for old, sharding in zip(before, values, strict=True)]
            )
    return {"arguments": [sharding.to_json() for sharding in shardings], "results": given}


def _with(given: Any, sharding: Sharding | None) -> Any:
    from jaxlib.mlir import ir

    attributes = {each.name: each.attr for each in given}
    if sharding is not None:
        attributes[_ATTRIBUTE] = ir.StringAttr.get(sharding.text)
    return ir.DictAttr.get(attributes)


def decided(module: Any) -> list[bool]:
    """For each result of a parsed module, whether its sharding is the partitioner's to decide."""
    main = main_of(module)
    attributes = main.attributes.get("res_attrs", [()] * len(main.type.results))
    return [all(each.name != _ATTRIBUTE for each in given) for given in attributes]


def results_of(executable: Any, module: Any, devices: int) -> list[dict[str, Any]]:
    """Where the parts of the results of an executable are that was made of a parsed module, as JSON."""
    from jaxlib import xla_client as xla
    from jaxlib.mlir import ir

    types = main_of(module).type.results
    found = executable.get_output_shardings() or [None] * len(types)
    shardings = []
    for given, kind in zip(found, types, strict=True):
        hlo = xla.HloSharding.from_proto(given) if isinstance(given, xla.OpSharding) else given
        shardings.append(Sharding.of_xla(hlo, ir.RankedTensorType(kind).rank, devices).to_json())
    return shardings


def module_of_one_device(
    module: Any, compile_program: Callable[[Any, Any], Any], options: Any, folder: Path
) -> Any | None:
    """The module of each device, parsed; None where this compiler left none.

    XLA hands out a partitioned program only as a dump, and writes into an executable where its dumps went. So
    the program is compiled once more for that, with a call at its end that no compiler knows: it stops there,
    before it makes code.

    Args:
        module: The whole program, parsed; a call is put at its end.
        compile_program: The compiler, which takes a module and options.
        options: What it is told of the devices; where it dumps to is added.
        folder: Empty; what it dumps stays there.
    """
    _end_by_an_unknown_call(module)
    dumps = options.executable_build_options.debug_options
    dumps.xla_dump_to = str(folder)
    dumps.xla_dump_hlo_as_proto = True
    dumps.xla_dump_hlo_pass_re = f".*{_PARTITIONER}"
    # Which is what the call is for.
    with suppress(RuntimeError, ValueError):
        compile_program(module, options)
    found = sorted(folder.glob(f"*.after_*{_PARTITIONER}.before_*.hlo.pb"))
    return _parsed(_first_field(found[0].read_bytes())) if found else None


def _end_by_an_unknown_call(module: Any) -> None:
    from jaxlib.mlir import ir

    block = main_of(module).regions[0].blocks[0]
    end = block.operations[len(block.operations) - 1]
    with module.context, ir.Location.unknown(), ir.InsertionPoint(end):
        ir.Operation.create(
            "stablehlo.custom_call",
            attributes={
                "call_target_name": ir.StringAttr.get(_UNKNOWN),
                "has_side_effect": ir.BoolAttr.get(True),
                # The partitioner lets nothing else stand that has side effects.
                "mhlo.sharding": ir.StringAttr.get("{manual}"),
            },
        )


def _first_field(proto: bytes) -> bytes:
    """The module in XLA's HloProto, whose first field it is."""
    if proto[0] != _HLO_MODULE:
        raise ValueError("this jaxlib dumps modules in another form")
    size = shift = 0
    at = 1
    while True:
        size |= (proto[at] & _SEVEN_BITS) << shift
        shift += 7
        at += 1
        if proto[at - 1] <= _SEVEN_BITS:
            return proto[at : at + size]


def _parsed(hlo: bytes) -> Any:
    from jaxlib import xla_client as xla
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import sdy

    found = context()
    sdy.register_dialect(found)
    # Attributes of XLA's own stay on it.
    found.allow_unregistered_dialects = True
    bindings = xla._xla.mlir  # noqa: SLF001  # what reads XLA's own form has no public name
    return ir.Module.parse(bindings.hlo_to_stablehlo(hlo), found)


_BYTECODE: Final = b"ML\xefR"


def parsed(module: bytes) -> Any:
    """A module of portable bytecode, or of text: compilers without a device take no bytes."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    if not module.startswith(_BYTECODE):
        return ir.Module.parse(module.decode(), context())
    return stablehlo.deserialize_portable_artifact(context(), module)


def main_of(module: Any) -> Any:
    """The function that a module's callers call."""
    return next(each for each in module.body.operations if each.attributes["sym_name"].value == "main")


def context() -> Any:
    """A new context for modules, which knows StableHLO and what goes with it."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, stablehlo

    found, known = ir.Context(), ir.DialectRegistry()
    # jaxlib's bindings load StableHLO by themselves, and the functions around it only so.
    _jax_mlir_ext.register_dialects(known)
    found.append_dialect_registry(known)
    stablehlo.register_dialect(found)
    chlo.register_dialect(found)
    return found
