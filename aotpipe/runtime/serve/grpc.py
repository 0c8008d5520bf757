"""The server's gRPC: the service `inference.GRPCInferenceService` of the Open Inference Protocol v2.

A call is turned into the request that HTTP would have, so that both check, refuse and answer alike. Outputs
travel as bytes (`raw_output_contents`).
"""

from __future__ import annotations

import hmac
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from aotpipe import __version__
from aotpipe.errors import AotpipeError, RequestInvalid, ServeError
from aotpipe.runtime.serve import protocol
from aotpipe.runtime.serve.grpc_messages import MESSAGES, SERVICE
from aotpipe.runtime.serve.repository import Repository
from aotpipe.runtime.serve.tensors import DATATYPES, Tensor

if TYPE_CHECKING:
    from aotpipe.runtime.serve.traces import Traces

_CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_CONTENTS: Final[Mapping[str, str]] = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
_OPEN: Final = ("ServerLive", "ServerReady")
_OPTIONS_BYTES: Final = 1 << 16
"""How much a message may be larger than the tensors in it."""


class Service:
    """The service's methods, by their names.

    Args:
        repository: The models.
        is_draining: Says whether the server is ending.
        timeout_s: How long a call may wait unless its request says so.
        token: What a call has to bear in its metadata; none where it is empty.
        model_control: Whether a call may load and unload models.
        traces: Where calls are traced; None where they are not.
    """

    def __init__(
        self,
        repository: Repository,
        is_draining: Callable[[], bool],
        *,
        timeout_s: float | None,
        token: str,
        model_control: bool,
        traces: Traces | None = None,
    ) -> None:
        self._repository = repository
        self._is_draining = is_draining
        self._timeout_s = timeout_s
        self._model_control = model_control
        self._traces = traces
        self._token = f"Bearer {token}" if token else ""

    def handler(self) -> grpc.GenericRpcHandler:
        """What a gRPC server is given."""
        names = [
            name.removesuffix("Request") for name in MESSAGES if name.endswith("Request") and "." not in name
        ]
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                name: grpc.unary_unary_rpc_method_handler(
                    self._guarded(name, getattr(self, f"_{name}")),
                    request_deserializer=MESSAGES[f"{name}Request"].FromString,
                    response_serializer=MESSAGES[f"{name}Response"].SerializeToString,
                )
                for name in names
            },
        )

    def _guarded(self, name: str, method: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Any]:
        async def answer(request: Any, context: Any) -> Any:
            if self._token and name not in _OPEN:
                borne = dict(context.invocation_metadata() or ()).get("authorization", "")
                if not hmac.compare_digest(str(borne).encode(), self._token.encode()):
                    said = "the call bears no token, or another one"
                    return await context.abort(grpc.StatusCode.UNAUTHENTICATED, said)
            try:
                return await method(request, context)
            except AotpipeError as error:
                code, said = (
                    _CODES.get(protocol.status(error), grpc.StatusCode.INTERNAL),
                    protocol.told(error),
                )
            except Exception:  # noqa: BLE001  # one call's fault is not the end of the others
                traceback.print_exc()
                code, said = (
                    grpc.StatusCode.INTERNAL,
                    "a fault of the server's own; its log has the traceback",
                )
            return await context.abort(code, said)

        return answer

    async def _ServerLive(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        return MESSAGES["ServerLiveResponse"](live=True)

    async def _ServerReady(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        return MESSAGES["ServerReadyResponse"](ready=self._repository.is_ready and not self._is_draining())

    async def _ModelReady(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        return MESSAGES["ModelReadyResponse"](
            ready=self._repository.model(request.name, request.version).is_ready
        )

    async def _ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        return MESSAGES["ServerMetadataResponse"](
            name="aotpipe", version=__version__, extensions=protocol.EXTENSIONS
        )

    async def _ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        said = self._repository.model(request.name, request.version).described()
        del said["parameters"]
        return MESSAGES["ModelMetadataResponse"](**said)

    async def _RepositoryIndex(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        rows = [row for row in self._repository.index() if row["state"] == "READY" or not request.ready]
        return MESSAGES["RepositoryIndexResponse"](models=rows)

    async def _RepositoryModelLoad(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        self._require_control()
        await self._repository.reload(request.model_name)
        return MESSAGES["RepositoryModelLoadResponse"]()

    async def _RepositoryModelUnload(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        self._require_control()
        await self._repository.unload(request.model_name)
        return MESSAGES["RepositoryModelUnloadResponse"]()

    def _require_control(self) -> None:
        if not self._model_control:
            raise protocol.no_control()

    async def _ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self._traces is None:
            return await self._inferred(request, context, None)
        said = {"rpc.system": "grpc", "rpc.service": SERVICE, "rpc.method": "ModelInfer"}
        headers = {name: str(value) for name, value in context.invocation_metadata() or ()}
        spans = self._traces.begin(f"{SERVICE}/ModelInfer", headers, said)
        status = 0
        try:
            answer = await self._inferred(request, context, spans)
            status = 200
        except Exception as error:
            status = protocol.status(error) if isinstance(error, AotpipeError) else 500
            raise
        finally:
            if spans:
                code = grpc.StatusCode.OK if status == 200 else _CODES.get(status, grpc.StatusCode.INTERNAL)
                spans.end({"rpc.grpc.status_code": code.value[0]} if status else {}, status)
        return answer

    async def _inferred(self, request: Any, context: Any, spans: Any) -> Any:
        model = self._repository.model(request.model_name, request.model_version)
        left = context.time_remaining()
        limits = [each for each in (left, self._timeout_s) if each is not None]
        with model.metrics.counting_failures():
            data, tail = _request(request)
            read = protocol.from_json(data, tail, model.entries, timeout_s=min(limits, default=None))
            read.call.spans = spans
            outputs = await model.answer(read.call)
        by_name = {tensor.name: tensor for tensor in outputs}
        names = by_name if read.wanted is None else [name for name, _ in read.wanted if name in by_name]
        chosen = [by_name[name] for name in names]
        return MESSAGES["ModelInferResponse"](
            model_name=model.name,
            model_version=model.version,
            id=read.id,
            outputs=list(map(_described, chosen)),
            raw_output_contents=[bytes(tensor.data) for tensor in chosen],
        )


async def start(
    service: Service, address: str, *, max_body_bytes: int, tls: tuple[bytes, bytes] | None
) -> tuple[grpc.aio.Server, int]:
    """Start a gRPC server; returns it and the port that it listens on.

    Args:
        service: What answers.
        address: `HOST:PORT`.
        max_body_bytes: How large the tensors of a request may be.
        tls: A key and a certificate chain; None without TLS.

    Raises:
        ServeError: The address cannot be listened on.
    """
    limit = min(max_body_bytes + _OPTIONS_BYTES, (1 << 31) - 1)
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ]
    )
    server.add_generic_rpc_handlers((service.handler(),))
    try:
        if tls:
            port = server.add_secure_port(address, grpc.ssl_server_credentials([tls]))
        else:
            port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ServeError(f"{address} cannot be listened on", hint="choose another --grpc-port") from error
    await server.start()
    return server, port


def _request(request: Any) -> tuple[dict[str, Any], memoryview]:
    """The JSON and the binary tensors that a call would have over HTTP."""
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        raise RequestInvalid(f"there are {len(raw)} raw_input_contents for {len(request.inputs)} inputs")
    inputs = []
    for number, tensor in enumerate(request.inputs):
        described = {**_named(tensor), "datatype": tensor.datatype, "shape": list(tensor.shape)}
        if raw:
            described["parameters"]["binary_data_size"] = len(raw[number])
        elif (contents := _CONTENTS.get(tensor.datatype)) is None:
            raise RequestInvalid(
                f"input {tensor.name!r} is {tensor.datatype[:20]!r}, which only raw_input_contents hold"
            )
        else:
            described["data"] = list(getattr(tensor.contents, contents))
        inputs.append(described)
    outputs = [_named(each) for each in request.outputs]
    data = {
        "id": request.id,
        "parameters": _parameters(request.parameters),
        "inputs": inputs,
        "outputs": outputs,
    }
    return data, memoryview(raw[0] if len(raw) == 1 else b"".join(raw))


def _named(tensor: Any) -> dict[str, Any]:
    return {"name": tensor.name, "parameters": _parameters(tensor.parameters)}


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {name: value.WhichOneof("parameter_choice") for name, value in given.items()}
    return {name: getattr(given[name], kind) for name, kind in kinds.items() if kind}


def _described(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": DATATYPES[tensor.dtype], "shape": tensor.shape}
