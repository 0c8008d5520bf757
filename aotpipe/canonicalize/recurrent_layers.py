"""Recurrent layers (LSTM, GRU, Elman) as one scan over time for each layer and direction.

`KERNELS` gives for each op a function of the op's own arguments, written with torch calls. The inputs of all
time steps are projected by one matmul before the loop, so that an iteration multiplies the hidden state only.
A single step gets no loop. `scanned()` lets torch trace these layers so: its own kernels write out every time
step, which takes minutes for a long sequence and fixes its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

import torch
from torch._C import DispatchKey  # what an op's `py_kernels` are stored by; neither has a public form
from torch._higher_order_ops.scan import scan_op  # the public `scan` starts a compiler of its own
from torch._ops import OpOverload
from torch.nn.functional import linear

from aotpipe.canonicalize.values import trace
from aotpipe.errors import ExportFailed

_ATEN: Final = torch.ops.aten
_KEYS: Final = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)

State = tuple[torch.Tensor, ...]
"""What a time step hands on, each (batch, features); its first tensor is the step's output."""


class Parameters(NamedTuple):
    """Of one layer and direction; `biases` are the input's and the hidden state's, or none."""

    of_input: torch.Tensor
    of_hidden: torch.Tensor
    biases: Sequence[torch.Tensor]
    projection: Sequence[torch.Tensor]


Weights = Sequence[torch.Tensor]
Cell = Callable[[State, torch.Tensor, Weights], State]
"""Gives the state after a time step from the state before it and the step's inputs."""


Steps = tuple[Cell, torch.Tensor, Weights]
"""What a loop over time runs: `cell(state, inputs[t], weights)` gives the next state."""


def _projected(inputs: torch.Tensor, parameters: Parameters) -> torch.Tensor:
    """The inputs of all time steps as the gates take them, where these add the hidden state's share."""
    bias = torch.add(*parameters.biases) if parameters.biases else None
    return linear(inputs, parameters.of_input, bias)


def _lstm(inputs: torch.Tensor, parameters: Parameters) -> Steps:
    weights = (parameters.of_hidden, *parameters.projection)
    return _lstm_cell, _projected(inputs, parameters), weights


def _lstm_cell(state: State, inputs: torch.Tensor, weights: Sequence[torch.Tensor]) -> State:
    hidden, cell = state
    of_hidden, *projection = weights
    enter, keep, new, leave = (inputs + linear(hidden, of_hidden)).chunk(4, -1)
    cell = keep.sigmoid() * cell + enter.sigmoid() * new.tanh()
    hidden = leave.sigmoid() * cell.tanh()
    return (linear(hidden, *projection) if projection else hidden), cell


def _gru(inputs: torch.Tensor, parameters: Parameters) -> Steps:
    # The reset gate scales the hidden state's share with its bias, so that the biases stay apart.
    inputs = linear(inputs, parameters.of_input, *parameters.biases[:1])
    return _gru_cell, inputs, (parameters.of_hidden, *parameters.biases[1:])


def _gru_cell(state: State, inputs: torch.Tensor, weights: Sequence[torch.Tensor]) -> State:
    (hidden,) = state
    reset, keep, new = inputs.chunk(3, -1)
    hidden_reset, hidden_keep, hidden_new = linear(hidden, *weights).chunk(3, -1)
    new = (new + (reset + hidden_reset).sigmoid() * hidden_new).tanh()
    return ((hidden - new) * (keep + hidden_keep).sigmoid() + new,)


def _elman(
    activation: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor, parameters: Parameters
) -> Steps:
    def cell(state: State, inputs: torch.Tensor, weights: Sequence[torch.Tensor]) -> State:
        return (activation(inputs + linear(state[0], *weights)),)

    return cell, _projected(inputs, parameters), (parameters.of_hidden,)


def _run(
    layer: Callable[[torch.Tensor, Parameters], Steps],
    input: torch.Tensor,  # noqa: A002 the op's own name
    hx: torch.Tensor | Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    """Any of the ops: the output and the last states, each (layers times directions, batch, features)."""
    initial = (hx,) if isinstance(hx, torch.Tensor) else hx
    directions = 2 if bidirectional else 1
    size = len(params) // (num_layers * directions)
    sequence = input.transpose(0, 1) if batch_first else input
    last: list[State] = []
    for number in range(num_layers):
        if number and train and dropout:
            sequence = torch.dropout(sequence, dropout, train=True)
        outputs = []
        for index in range(number * directions, (number + 1) * directions):
            of_input, of_hidden, *rest = params[index * size : (index + 1) * size]
            held = 2 if has_biases else 0
            steps = layer(sequence, Parameters(of_input, of_hidden, rest[:held], rest[held:]))
            is_reverse = index % directions == 1
            output, state = _over_time(steps, tuple(part[index] for part in initial), is_reverse)
            outputs.append(output)
            last.append(state)
        sequence = torch.cat(outputs, -1) if bidirectional else outputs[0]
    output = sequence.transpose(0, 1) if batch_first else sequence
    return (output, *(torch.stack(parts) for parts in zip(*last, strict=True)))


def _over_time(steps: Steps, state: State, is_reverse: bool) -> tuple[torch.Tensor, State]:
    """Run the steps, from the last one where reverse; the outputs stand in the order of the inputs."""
    cell, inputs, weights = steps
    length: int | torch.SymInt = inputs.shape[0]
    if isinstance(length, int) and length == 1:
        state = cell(state, inputs[0], weights)
        return state[0].unsqueeze(0), state
    state, output = _scanned(cell, inputs.flip(0) if is_reverse else inputs, weights, state)
    return output.flip(0) if is_reverse else output, state


def _scanned(cell: Cell, inputs: torch.Tensor, weights: Weights, state: State) -> tuple[State, torch.Tensor]:
    """A step for each row of the inputs: the last state, and the outputs along a new first dim."""
    count = len(state)

    def body(*operands: torch.Tensor) -> State:
        following = cell(operands[:count], operands[count], operands[count + 1 :])
        # The output shares no memory with the state: a scan's results must not.
        return (*following, following[0].clone())

    *last, outputs = scan_op(body, list(state), [inputs], tuple(weights))
    return tuple(last), outputs


KERNELS: Final[Mapping[OpOverload, Callable[..., Any]]] = {
    _ATEN.lstm.input: partial(_run, _lstm),
    _ATEN.gru.input: partial(_run, _gru),
    _ATEN.rnn_tanh.input: partial(_run, partial(_elman, torch.tanh)),
    _ATEN.rnn_relu.input: partial(_run, partial(_elman, torch.relu)),
}


def _refuse(*_args: object, **_kwargs: object) -> NoReturn:
    raise ExportFailed(
        "a packed sequence has no program",
        reason="how many sequences take part in a time step is known by the run only",
        hint="call the layer on the padded sequence, and take from its output what the lengths say",
    )


_PACKED: Final = (
    _ATEN._pack_padded_sequence.default,  # noqa: SLF001 the op's own name
    _ATEN.lstm.data,
    _ATEN.gru.data,
    _ATEN.rnn_tanh.data,
    _ATEN.rnn_relu.data,
)


@contextmanager
def scanned() -> Iterator[None]:
    """Let these layers be scans wherever torch traces them, and refuse packed sequences.

    Raises:
        ExportFailed: torch met a packed sequence.
    """
    with replaced({**KERNELS, **dict.fromkeys(_PACKED, _refuse)}):
        yield


@contextmanager
def replaced(kernels: Mapping[OpOverload, Callable[..., Any]]) -> Iterator[None]:
    """Let composite ops be these functions of their arguments wherever torch traces them."""
    with ExitStack() as stack:
        for op, kernel in kernels.items():
            own = {**op.py_kernels, **dict.fromkeys(_KEYS, kernel)}
            # torch remembers which kernel it found for a key.
            stack.enter_context(trace.assigned(op, py_kernels=own, _dispatch_cache={}))
        yield
