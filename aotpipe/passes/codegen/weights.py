"""Writes what a model holds: `__init__` with its parameters, buffers and modules, and `reset` for its state.

The names are the model's own, so that `load_state_dict(model.state_dict())` fits. A leaf that is one of
torch's own modules is made by its own constructor; any other holds its parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import nn

from aotpipe.passes.codegen.op_syntax import Leaf
from aotpipe.passes.codegen.syntax import call, is_name, item, literal, method, name, of_tensor

Statements = list[ast.stmt]
_LISTS: Final = (nn.ModuleList, nn.Sequential)


class ModuleContents:
    """What a written module holds.

    Args:
        model: The original.
        state: The buffers that calls change, which the original may not have, and what they hold at first.
        constants: Other tensors of the graphs that are no parameter or buffer of the original.

    Attributes:
        stored: The tensors that are too large to be written; they go into a file beside the code.
        leaves: The parameters of torch's own modules, by their expressions.
    """

    def __init__(
        self, model: nn.Module, state: Mapping[str, torch.Tensor], constants: Mapping[str, torch.Tensor]
    ) -> None:
        self._model = model
        self._state = state
        self._tensors: dict[str, torch.Tensor] = dict(model.named_parameters(remove_duplicate=False))
        self._tensors |= dict(model.named_buffers(remove_duplicate=False))
        extra = {**state, **constants}
        self._extra = {path: tensor for path, tensor in extra.items() if path not in self._tensors}
        self.stored: dict[str, torch.Tensor] = {}
        children: dict[str, set[str]] = {}
        for path in [*self._tensors, *self._extra]:
            owner, _, last = path.rpartition(".")
            children.setdefault(owner, set()).add(f"{last} itself")
            while owner:
                owner, _, last = owner.rpartition(".")
                children.setdefault(owner, set()).add(last)
        self._modules = sorted(filter(None, children), key=_in_order)
        self._made = {path: made for path in self._modules if (made := self._constructor(path)) is not None}
        # A module whose children are numbered from 0 up is a list.
        self._lists = {
            owner
            for owner in self._modules
            if children[owner] == {str(n) for n in range(len(children[owner]))}
        }
        self.leaves: dict[str, Leaf] = {
            ast.unparse(self.attribute(path)): (last, self.attribute(owner), model.get_submodule(owner))
            for path in self._tensors
            for owner, _, last in [path.rpartition(".")]
            if owner in self._made
        }

    def attribute(self, path: str) -> ast.expr:
        """The expression of a parameter, a buffer or a module: `self.a.b[0].c` for the path `a.b.0.c`."""
        made: ast.expr = name("self")
        owner = ""
        for part in path.split(".") if path else []:
            if owner in self._lists:
                made = item(made, int(part))
            elif is_name(part):
                made = ast.Attribute(made, part, ast.Load())
            else:
                made = call("getattr", made, ast.Constant(part))
            owner = f"{owner}.{part}" if owner else part
        return made

    def init(self) -> Statements:
        """The body of `__init__`."""
        made: Statements = [ast.Expr(method(call("super"), "__init__"))]
        seen: dict[int, str] = {}
        persistent = set(self._model.state_dict(keep_vars=True))
        for path in self._modules:
            if not self._is_inside(path):
                kind = "nn.ModuleList" if path in self._lists else "nn.Module"
                made.append(self._set(path, self._made.get(path) or call(kind)))
        for path, tensor in self._tensors.items():
            first = seen.setdefault(id(tensor), path)
            is_inside = self._is_inside(path)
            if first != path:
                made.append(self._set(path, self.attribute(first)))
            elif isinstance(tensor, nn.Parameter) and (not is_inside or path in self._state):
                dtype = {} if tensor.dtype == torch.float32 else {"dtype": literal(tensor.dtype)}
                more = {} if tensor.requires_grad else {"requires_grad": ast.Constant(False)}
                empty = call("torch.empty", literal(tuple(tensor.shape)), **dtype)
                made.append(self._set(path, call("nn.Parameter", empty, **more)))
            elif not is_inside:
                start = self._state.get(path, tensor)
                made.append(self._buffer(path, start, persistent=path in persistent))
        return made + [self._buffer(path, tensor, persistent=False) for path, tensor in self._extra.items()]

    def _is_inside(self, path: str) -> bool:
        """Whether the constructor of a module above makes what is at a path."""
        return any(path.startswith(f"{each}.") for each in self._made)

    def reset(self) -> Statements:
        """The body of `reset`: what calls change holds again what it held at first."""
        return [
            ast.Expr(method(self.attribute(path), "copy_", self._value(path, tensor)))
            for path, tensor in self._state.items()
        ]

    def _set(self, path: str, value: ast.expr) -> ast.stmt:
        owner, _, last = path.rpartition(".")
        if owner in self._lists:
            return ast.Expr(method(self.attribute(owner), "append", value))
        if is_name(last):
            target = ast.Attribute(self.attribute(owner), last, ast.Store())
            return ast.Assign([target], value)
        return ast.Expr(call("setattr", self.attribute(owner), ast.Constant(last), value))

    def _buffer(self, path: str, tensor: torch.Tensor, *, persistent: bool) -> ast.stmt:
        owner, _, last = path.rpartition(".")
        more = {} if persistent else {"persistent": ast.Constant(False)}
        value = self._value(path, tensor)
        return ast.Expr(method(self.attribute(owner), "register_buffer", ast.Constant(last), value, **more))

    def _value(self, path: str, tensor: torch.Tensor) -> ast.expr:
        if (found := of_tensor(tensor)) is not None:
            return found
        self.stored[path] = tensor.detach().cpu().clone().contiguous()
        return method(item(name("_TENSORS"), path), "clone")

    def _constructor(self, path: str) -> ast.expr | None:
        """How torch's own module at a path is made; None where its text does not say it."""
        try:
            module = self._model.get_submodule(path)
        except AttributeError:
            return None
        kind = type(module)
        is_torchs = getattr(nn, kind.__name__, None) is kind and not isinstance(module, _LISTS)
        if not is_torchs or next(module.children(), None) is not None:
            return None
        text = f"nn.{module!r}"
        try:
            # The text is torch's own, of a class of torch's own.
            again: Any = eval(text, {"nn": nn, "torch": torch})  # noqa: S307
            tree = ast.parse(text, mode="eval").body
        except (SyntaxError, TypeError, NameError, ValueError):
            return None
        same = type(again) is kind and repr(again) == repr(module) and _is_alike(again, module)
        own = self._state.keys() & {f"{path}.{key}" for key, _ in module.named_buffers()}
        return tree if same and not own else None


def _is_alike(made: nn.Module, module: nn.Module) -> bool:
    """Whether two modules hold tensors of the same names, shapes and dtypes, and all buffers are loaded."""
    kinds = [
        [
            {path: (tensor.shape, tensor.dtype) for path, tensor in named}
            for named in (each.named_parameters(), each.named_buffers())
        ]
        for each in (made, module)
    ]
    kept = made.state_dict().keys()
    return kinds[0] == kinds[1] and kept == module.state_dict().keys() and kinds[1][1].keys() <= kept


def _in_order(path: str) -> list[tuple[bool, int, str]]:
    """Numbers as numbers: `layers.10` comes after `layers.9`, since a list is filled in order."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in path.split(".")]
