"""The OpenAPI document of the server."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from aotpipe import __version__
from aotpipe.runtime.serve.tensors import DATATYPES

_PARAMETERS: Final = {"type": "object", "additionalProperties": True}
_REFUSALS: Final = (400, 404, 413, 429, 503, 504)


@cache
def document() -> dict[str, Any]:
    """The document; it holds for any models."""
    model = [_path("model"), _path("version")]
    return {
        "openapi": "3.1.0",
        "info": {"title": "aotpipe: Open Inference Protocol v2", "version": __version__},
        "paths": {
            "/v2": {"get": _operation("The server's name, version and extensions", "Server")},
            "/v2/health/live": {"get": _operation("Whether the server lives", "Live")},
            "/v2/health/ready": {"get": _operation("Whether every model is ready", "Ready", errors=(503,))},
            **{
                path: {
                    "get": _operation("A model's inputs and outputs", "Model", parameters, errors=(404, 503))
                }
                for path, parameters in (
                    ("/v2/models/{model}", model[:1]),
                    ("/v2/models/{model}/versions/{version}", model),
                )
            },
            "/v2/models/{model}/example": {
                "get": _operation(
                    "A recorded call as a request", "InferRequest", model[:1], errors=(404, 503)
                )
            },
            "/v2/models/{model}/ready": {
                "get": _operation("Whether a model is ready", "ModelReady", model[:1], errors=(404, 503))
            },
            **{
                path: {
                    "post": _operation(
                        "Call a model", "InferResponse", parameters, body="InferRequest", errors=_REFUSALS
                    )
                }
                for path, parameters in (
                    ("/v2/models/{model}/infer", model[:1]),
                    ("/v2/models/{model}/versions/{version}/infer", model),
                )
            },
            **{
                f"/v2/models/{{model}}/{verb}": {
                    "post": _operation(text, schema, model[:1], body="GenerateRequest", errors=_REFUSALS)
                }
                for verb, text, schema in (
                    ("generate", "Go on with a text", "GenerateResponse"),
                    ("generate_stream", "Go on with a text, as server-sent events", ""),
                )
            },
            **{
                f"/v1/{name}": {
                    "post": _operation(text, "Completion", body=body, errors=_REFUSALS, error="OpenAIError")
                }
                for name, text, body in (
                    ("completions", "Go on with a text, as OpenAI's API", "CompletionRequest"),
                    ("chat/completions", "Go on with a chat, as OpenAI's API", "ChatRequest"),
                )
            },
            "/v1/models": {"get": _operation("The models that generate text", "List")},
            "/v2/repository/index": {
                "post": _operation("The models and their states", "Index", body="Options", errors=(400,))
            },
            **{
                f"/v2/repository/models/{{model}}/{verb}": {
                    "post": _operation(text, "", model[:1], body="Options", errors=(400, 404))
                }
                for verb, text in (
                    ("load", "Load a model, again where it is loaded"),
                    ("unload", "Unload a model"),
                )
            },
            "/metrics": {"get": _operation("Metrics in Prometheus' format")},
        },
        "components": {"schemas": _schemas()},
    }


def _schemas() -> dict[str, Any]:
    text, size = {"type": "string"}, {"type": "integer", "minimum": 0}
    datatype = {"type": "string", "enum": sorted(DATATYPES.values())}
    shape = {"type": "array", "items": size}
    tensor = {
        "name": text,
        "datatype": datatype,
        "shape": shape,
        "parameters": _PARAMETERS,
        "data": {"type": "array"},
    }
    tokens = {"type": "array", "items": size, "minItems": 1}
    message = _object({"role": text, "content": text})
    choice = {
        "max_tokens": size,
        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
        "top_p": {"type": "number", "minimum": 0, "maximum": 1},
        "seed": {"type": "integer"},
        "stop": {"anyOf": [text, {"type": "array", "items": text}]},
        "stream": {"type": "boolean"},
    }
    described = _object(
        {"name": text, "datatype": datatype, "shape": {"type": "array", "items": {"type": "integer"}}}
    )
    return {
        "Error": _object({"error": text}),
        "Live": _object({"live": {"type": "boolean"}}),
        "Ready": _object({"ready": {"type": "boolean"}}),
        "ModelReady": _object({"name": text, "ready": {"type": "boolean"}}),
        "Server": _object({"name": text, "version": text, "extensions": {"type": "array", "items": text}}),
        "Model": _object(
            {
                "name": text,
                "versions": {"type": "array", "items": text},
                "platform": text,
                "inputs": {"type": "array", "items": described},
                "outputs": {"type": "array", "items": described},
            }
        ),
        "InferRequest": _object(
            {
                "inputs": {"type": "array", "items": _object(tensor, "name", "datatype", "shape")},
                "outputs": {
                    "type": "array",
                    "items": _object({"name": text, "parameters": _PARAMETERS}, "name"),
                },
                "id": text,
                "parameters": _PARAMETERS,
            },
            "inputs",
        ),
        "InferResponse": _object(
            {
                "model_name": text,
                "model_version": text,
                "id": text,
                "outputs": {"type": "array", "items": _object(tensor, "name", "datatype", "shape")},
            },
            "model_name",
            "outputs",
        ),
        "Index": {
            "type": "array",
            "items": _object({"name": text, "version": text, "state": text, "reason": text}),
        },
        "Options": {"type": "object"},
        "OpenAIError": _object({"error": _object({"message": text, "type": text})}),
        "List": _object({"object": text, "data": {"type": "array", "items": _object({"id": text})}}),
        "GenerateRequest": _object(
            {"text_input": text, "input_ids": tokens, "id": text, "parameters": _PARAMETERS}
        )
        | {"required": []},
        "GenerateResponse": _object(
            {"model_name": text, "model_version": text, "id": text, "text_output": text, "token_ids": tokens},
            "model_name",
            "text_output",
        ),
        "CompletionRequest": _object(
            {"model": text, "prompt": {"anyOf": [text, tokens]}, **choice}, "model", "prompt"
        ),
        "ChatRequest": _object(
            {"model": text, "messages": {"type": "array", "items": message, "minItems": 1}, **choice},
            "model",
            "messages",
        ),
        "Completion": _object(
            {"id": text, "object": text, "model": text, "choices": {"type": "array", "items": _PARAMETERS}}
        ),
    }


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required or properties)}


def _path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _operation(
    summary: str,
    schema: str = "",
    parameters: list[dict[str, Any]] | None = None,
    *,
    body: str = "",
    errors: tuple[int, ...] = (),
    error: str = "Error",
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": summary,
        "parameters": parameters or [],
        "responses": {
            "200": {"description": "It is so", **({"content": _json(schema)} if schema else {})},
            **{str(status): {"description": "Why not", "content": _json(error)} for status in errors},
        },
    }
    if body:
        found["requestBody"] = {"required": body != "Options", "content": _json(body)}
    return found
