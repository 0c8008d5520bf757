"""A buffer that a model holds under several names, as a submodule that it uses in several places does.

torch.export gives each name a placeholder. Where one of them is written, torch's own decomposition then
refuses the program: inputs that share memory with one that is written need code around the graph.
"""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node


def merge(program: ExportedProgram) -> None:
    """Let one placeholder of a buffer serve all of its names, in place."""
    first: dict[int, Node] = {}
    merged: set[str] = set()
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    for node, spec in zip(nodes, program.graph_signature.input_specs, strict=True):
        if spec.kind is not InputKind.BUFFER or spec.target is None:
            continue
        held = program.state_dict.get(spec.target, program.constants.get(spec.target))
        kept = first.setdefault(id(held), node)
        if held is not None and kept is not node:
            node.replace_all_uses_with(kept)
            program.graph.erase_node(node)
            merged.add(spec.target)
    if not merged:
        return
    specs = program.graph_signature.input_specs
    specs[:] = [spec for spec in specs if spec.kind is not InputKind.BUFFER or spec.target not in merged]
    for target in merged:
        program.state_dict.pop(target, None)
        program.constants.pop(target, None)
    program.graph_module.recompile()
