"""Requests and answers of the Open Inference Protocol v2: JSON, with the binary tensor extension.

A request is read against the entry point that it calls: names, datatypes, and whether its data are as many
as its shape says. Sizes and values are checked by the program's runner, before it runs.

Raises:
    RequestInvalid: It is no such request, or asks for an extension that is not supported.
    UnknownInput, InputShape, InputDtype, InputValue: A tensor does not fit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from aotpipe.core.dtypes import Array
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.errors import (
    AotpipeError,
    AssertionViolated,
    DeadlinePassed,
    InputError,
    NotInJson,
    NotReady,
    QueueFull,
    RequestInvalid,
    RequestTooLarge,
    ServeError,
    UnknownInput,
    UnknownModel,
)
from aotpipe.runtime.serve import tensors
from aotpipe.runtime.serve.scheduler import Call
from aotpipe.runtime.serve.tensors import DATATYPES, Tensor

EXTENSIONS: Final = ("model_repository", "binary_tensor_data", "sequence")
"""The extensions of the protocol that the server has."""

_UNSUPPORTED: Final = ("shared_memory_region", "classification")
_MOST_ID: Final = 256
_TIMEOUT_UNIT_S: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Entry:
    """What the protocol has to know of an entry point.

    Attributes:
        signature: What it takes and gives.
        batch: The symbol of its batch, where calls of it are batched; else empty.
    """

    name: str
    signature: Signature
    batch: str
    inputs: Mapping[str, TensorSpec] = field(init=False)
    outputs: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        specs = (*self.signature.tensor_inputs, *self.signature.tensor_outputs)
        for spec in specs:
            if spec.dtype not in DATATYPES:
                raise ServeError(
                    f"{spec} of {self.name!r} has no datatype in the Open Inference Protocol",
                    hint="give its real and imaginary parts as tensors of their own, or another dtype",
                )
        object.__setattr__(self, "inputs", {spec.name: spec for spec in self.signature.tensor_inputs})
        object.__setattr__(self, "outputs", tuple(spec.name for spec in self.signature.tensor_outputs))

    def described(self) -> dict[str, Any]:
        """Inputs and outputs as the metadata of a model has them; a size that varies is -1."""
        return {
            kind: [
                {
                    "name": spec.name,
                    "datatype": DATATYPES[spec.dtype],
                    "shape": [dim if isinstance(dim, int) else -1 for dim in spec.dims],
                }
                for spec in specs
            ]
            for kind, specs in (
                ("inputs", self.signature.tensor_inputs),
                ("outputs", self.signature.tensor_outputs),
            )
        }


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a call.

    Attributes:
        id: What the caller calls it; the answer repeats it.
        wanted: The outputs that the answer has, and whether in the binary form.
    """

    id: str
    call: Call
    wanted: tuple[tuple[str, bool], ...] | None
    binary: bool


def read(
    body: bytes, json_bytes: int | None, entries: Mapping[str, Entry], *, timeout_s: float | None
) -> Request:
    """Read a request.

    Args:
        body: The JSON, then the binary tensors.
        json_bytes: How long the JSON is; None where there is no binary tensor.
        entries: What can be called, by name.
        timeout_s: How long the caller waits unless the request says so.

    Raises:
        RequestInvalid: It is no request of the protocol.
        UnknownModel: There is no such entry point.
        InputError: A tensor does not fit.
    """
    if json_bytes is not None and not 0 <= json_bytes <= len(body):
        raise RequestInvalid(f"Inference-Header-Content-Length is {json_bytes}, of {len(body)} bytes")
    try:
        data = orjson.loads(body if json_bytes is None else memoryview(body)[:json_bytes])
    except orjson.JSONDecodeError as error:
        raise RequestInvalid("the request is no JSON", reason=str(error)) from error
    tail = memoryview(body)[len(body) if json_bytes is None else json_bytes :]
    return from_json(data, tail, entries, timeout_s=timeout_s)


def from_json(
    data: object, tail: memoryview, entries: Mapping[str, Entry], *, timeout_s: float | None
) -> Request:
    """Make a request of its JSON and of the binary tensors after it; the rest is as in `read`.

    Raises:
        RequestInvalid: It is no request of the protocol.
        UnknownModel: There is no such entry point.
        InputError: A tensor does not fit.
    """
    if not isinstance(data, dict):
        raise RequestInvalid("the request is no JSON object")
    options = _parameters(data)
    entry = _entry(options.get("entry_point"), entries)
    inputs = _inputs(data.get("inputs"), tail, entry)
    loop = asyncio.get_running_loop()
    now = loop.time()
    if (asked := options.get("timeout")) is not None:
        if type(asked) is not int or not 0 < asked < 1 << 53:
            raise RequestInvalid("the parameter timeout is no positive number of microseconds")
        timeout_s = asked * _TIMEOUT_UNIT_S
    rows = inputs[0].shape[0] if entry.batch and inputs and inputs[0].shape else 0
    is_batched = rows and all(tensor.shape[:1] == (rows,) for tensor in inputs)
    call = Call(
        entry=entry.name,
        inputs=inputs,
        future=loop.create_future(),
        received=now,
        deadline=None if timeout_s is None else now + timeout_s,
        rows=rows if is_batched else 0,
        key=(entry.name, *((tensor.name, tensor.shape[1:]) for tensor in inputs)) if is_batched else None,
        **_session(options, entry),
    )
    binary = _flag(options, "binary_data_output")
    name = data.get("id", "")
    if not isinstance(name, str) or len(name) > _MOST_ID:
        raise RequestInvalid(f"the id is no text of at most {_MOST_ID} characters")
    return Request(name, call, _wanted(data.get("outputs"), entry, binary=binary), binary)


_STATUS: Final[tuple[tuple[type[AotpipeError], int], ...]] = (
    (UnknownModel, 404),
    (RequestTooLarge, 413),
    (QueueFull, 429),
    (NotReady, 503),
    (DeadlinePassed, 504),
    (InputError, 400),
    (AssertionViolated, 400),
    (RequestInvalid, 400),
    (NotInJson, 400),
)


def status(error: AotpipeError) -> int:
    """The HTTP status of an error: 500 where it is not the caller's fault and will not pass."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def no_control() -> RequestInvalid:
    """The error of a request that would load or unload a model, where none may."""
    return RequestInvalid(
        "this server lets no request load or unload models",
        hint="serve with --model-control, or send it SIGHUP",
    )


def told(error: AotpipeError) -> str:
    """What a caller is told of an error."""
    return "\n".join(filter(None, (error.message, error.reason, error.hint)))


def written(
    request: Request, model: str, version: str, outputs: Sequence[Tensor]
) -> tuple[list[Any], int | None]:
    """The parts of an answer's body, and how long its JSON is where binary tensors follow.

    Raises:
        NotInJson: A value has no number in JSON.
    """
    by_name = {tensor.name: tensor for tensor in outputs}
    wanted = request.wanted
    if wanted is None:
        wanted = tuple((name, request.binary) for name in by_name)
    described, parts = [], []
    for name, binary in wanted:
        if (tensor := by_name.get(name)) is None:
            continue  # an optional output that this call does not have
        row: dict[str, Any] = {"name": name, "datatype": DATATYPES[tensor.dtype], "shape": tensor.shape}
        if binary:
            parts.append(tensor.data)
            row["parameters"] = {"binary_data_size": tensor.nbytes}
        else:
            row["data"] = tensors.to_json(tensor)
        described.append(row)
    head = {"model_name": model, "model_version": version}
    if request.id:
        head["id"] = request.id
    text = orjson.dumps({**head, "outputs": described})
    return [text, *parts], len(text) if parts else None


def example(arrays: Mapping[str, Array], *, has_state: bool) -> dict[str, Any]:
    """A request of these inputs, in JSON.

    Raises:
        NotInJson: A value has no number in JSON.
    """
    inputs = [Tensor(name, array.dtype.name, array.shape, array.tobytes()) for name, array in arrays.items()]
    rows = [
        {
            "name": each.name,
            "datatype": DATATYPES[each.dtype],
            "shape": each.shape,
            "data": tensors.to_json(each),
        }
        for each in inputs
    ]
    session = {"parameters": {"sequence_id": "example", "sequence_start": True, "sequence_end": True}}
    return {"inputs": rows, **(session if has_state else {})}


def _entry(name: object, entries: Mapping[str, Entry]) -> Entry:
    if name is None:
        name = next(iter(entries)) if len(entries) == 1 else "forward"
    if not isinstance(name, str) or name not in entries:
        raise UnknownModel(
            f"no entry point is called {str(name)[:80]!r}",
            reason=f"the entry points are: {', '.join(entries)}",
            hint='name one by "parameters": {"entry_point": ...}',
        )
    return entries[name]


def _parameters(of: Mapping[str, Any]) -> Mapping[str, Any]:
    found = of.get("parameters", {})
    if not isinstance(found, dict):
        raise RequestInvalid("the parameters are no JSON object")
    for name in _UNSUPPORTED:
        if name in found:
            raise RequestInvalid(f"the parameter {name} is not supported")
    return found


def _flag(options: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    value = options.get(name, default)
    if not isinstance(value, bool):
        raise RequestInvalid(f"the parameter {name} is no bool")
    return value


def _inputs(given: object, data: memoryview, entry: Entry) -> tuple[Tensor, ...]:
    if not isinstance(given, list):
        raise RequestInvalid('the request lacks its list of "inputs"')
    found: dict[str, Tensor] = {}
    used = 0
    for each in given:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise RequestInvalid("an input is no JSON object with a name")
        name, options = each["name"], _parameters(each)
        if (spec := entry.inputs.get(name)) is None or name in found:
            raise UnknownInput(
                f"{entry.name!r} has no input {name[:80]!r}"
                if spec is None
                else f"input {name!r} comes twice",
                reason=f"the inputs are: {', '.join(entry.inputs)}",
            )
        tensors.require_datatype(spec, each.get("datatype"))
        shape = tensors.shape_of(name, each.get("shape"))
        if (size := options.get("binary_data_size")) is None:
            found[name] = tensors.from_json(spec, shape, each.get("data"))
            continue
        if type(size) is not int or not 0 <= size <= len(data) - used:
            left = len(data) - used
            raise RequestInvalid(
                f"input {name!r} has a binary_data_size of {str(size)[:20]}, {left} are left"
            )
        found[name] = tensors.from_bytes(spec, shape, data[used : used + size])
        used += size
    if used != len(data):
        raise RequestInvalid(f"{len(data) - used} bytes follow the last binary tensor")
    return tuple(found.values())


def _wanted(given: object, entry: Entry, *, binary: bool) -> tuple[tuple[str, bool], ...] | None:
    if given is None or given == []:
        return None
    if not isinstance(given, list):
        raise RequestInvalid('"outputs" is no list')
    found: dict[str, bool] = {}
    for each in given:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise RequestInvalid("an output is no JSON object with a name")
        if each["name"] not in entry.outputs:
            raise RequestInvalid(
                f"{entry.name!r} has no output {each['name'][:80]!r}",
                reason=f"the outputs are: {', '.join(entry.outputs)}",
            )
        found[each["name"]] = _flag(_parameters(each), "binary_data", default=binary)
    return tuple(found.items())


def _session(options: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
    """The session of a call, by the parameters of Triton's stateful models."""
    session = options.get("sequence_id")
    if not entry.signature.state:
        if session is not None:
            raise RequestInvalid(f"{entry.name!r} keeps no state between calls, so it takes no sequence_id")
        return {}
    if type(session) not in (int, str) or session in (0, "") or len(str(session)) > _MOST_ID:
        raise RequestInvalid(
            f"{entry.name!r} keeps state between calls, and the request does not say whose",
            hint='add "parameters": {"sequence_id": "any name", "sequence_start": true}',
        )
    return {
        "session": str(session),
        "start": _flag(options, "sequence_start"),
        "end": _flag(options, "sequence_end"),
    }
