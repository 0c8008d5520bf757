"""The messages of the published `open_inference_grpc.proto`, package `inference`, without generated code.

They are of a descriptor pool of their own, so that a client in the same process may bring its own.
"""

from __future__ import annotations

import re
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE: Final = "inference.GRPCInferenceService"
_PROTO: Final = """
ServerLiveRequest:
ServerLiveResponse: bool live = 1
ServerReadyRequest:
ServerReadyResponse: bool ready = 1
ModelReadyRequest: string name = 1, string version = 2
ModelReadyResponse: bool ready = 1
ServerMetadataRequest:
ServerMetadataResponse: string name = 1, string version = 2, repeated string extensions = 3
ModelMetadataRequest: string name = 1, string version = 2
ModelMetadataResponse.TensorMetadata: string name = 1, string datatype = 2, repeated int64 shape = 3
ModelMetadataResponse: string name = 1, repeated string versions = 2, string platform = 3, \
repeated ModelMetadataResponse.TensorMetadata inputs = 4, \
repeated ModelMetadataResponse.TensorMetadata outputs = 5
InferParameter: oneof bool bool_param = 1, oneof int64 int64_param = 2, oneof string string_param = 3, \
oneof double double_param = 4, oneof uint64 uint64_param = 5
InferTensorContents: repeated bool bool_contents = 1, repeated int32 int_contents = 2, \
repeated int64 int64_contents = 3, repeated uint32 uint_contents = 4, repeated uint64 uint64_contents = 5, \
repeated float fp32_contents = 6, repeated double fp64_contents = 7, repeated bytes bytes_contents = 8
ModelInferRequest.InferInputTensor: string name = 1, string datatype = 2, repeated int64 shape = 3, \
map InferParameter parameters = 4, InferTensorContents contents = 5
ModelInferRequest.InferRequestedOutputTensor: string name = 1, map InferParameter parameters = 2
ModelInferRequest: string model_name = 1, string model_version = 2, string id = 3, \
map InferParameter parameters = 4, repeated ModelInferRequest.InferInputTensor inputs = 5, \
repeated ModelInferRequest.InferRequestedOutputTensor outputs = 6, repeated bytes raw_input_contents = 7
ModelInferResponse.InferOutputTensor: string name = 1, string datatype = 2, repeated int64 shape = 3, \
map InferParameter parameters = 4, InferTensorContents contents = 5
ModelInferResponse: string model_name = 1, string model_version = 2, string id = 3, \
map InferParameter parameters = 4, repeated ModelInferResponse.InferOutputTensor outputs = 5, \
repeated bytes raw_output_contents = 6
RepositoryIndexRequest: string repository_name = 1, bool ready = 2
RepositoryIndexResponse.ModelIndex: string name = 1, string version = 2, string state = 3, string reason = 4
RepositoryIndexResponse: repeated RepositoryIndexResponse.ModelIndex models = 1
RepositoryModelLoadRequest: string repository_name = 1, string model_name = 2
RepositoryModelLoadResponse:
RepositoryModelUnloadRequest: string repository_name = 1, string model_name = 2
RepositoryModelUnloadResponse:
"""
_FIELD: Final = re.compile(r"(repeated |oneof |map |)([\w.]+) (\w+) = (\d+)")
_Field: Final = descriptor_pb2.FieldDescriptorProto


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="open_inference_grpc.proto", package="inference", syntax="proto3"
    )
    found: dict[str, Any] = {}
    lines = [line.partition(":") for line in _PROTO.strip().splitlines()]
    for path, _, fields in sorted(lines, key=lambda line: line[0].count(".")):
        outer, _, name = path.rpartition(".")
        message = (found[outer].nested_type if outer else file.message_type).add(name=name)
        found[path] = message
        for kind, of, field, number in _FIELD.findall(fields):
            _add(message, path, kind.strip(), of, field, int(number))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}"))
        for name in found
    }


def _add(message: Any, path: str, kind: str, of: str, name: str, number: int) -> None:
    field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if kind in ("repeated", "map"):
        field.label = _Field.LABEL_REPEATED
    if kind == "oneof":
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    if kind == "map":
        # proto3's map<string, T>: a repeated message of a key and a value.
        entry = message.nested_type.add(name="ParametersEntry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
        _add(entry, path, "", of, "value", 2)
        of = f"{path}.ParametersEntry"
    if of[0].isupper():
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".inference.{of}"
    else:
        field.type = getattr(_Field, f"TYPE_{of.upper()}")


MESSAGES: Final = _messages()
"""Each message's class by its name."""
