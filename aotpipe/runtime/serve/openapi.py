"""The OpenAPI document of the server."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from aotpipe import __version__
from aotpipe.runtime.serve.tensors import DATATYPES

_ERROR: Final = {"$ref": "#/components/schemas/Error"}
_PARAMETERS: Final = {"type": "object", "additionalProperties": True}


@cache
def document() -> dict[str, Any]:
    """The document; it holds for any models."""
    model = [_path("model"), _path("version")]
    return {
        "openapi": "3.1.0",
        "info": {"title": "aotpipe: Open Inference Protocol v2", "version": __version__},
        "paths": {
            "/v2": {"get": _operation("The server's name, version and extensions", "Server")},
            "/v2/health/live": {"get": _operation("Whether the server lives")},
            "/v2/health/ready": {"get": _operation("Whether every model is ready", errors=(503,))},
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
                "get": _operation("Whether a model is ready", "", model[:1], errors=(404, 503))
            },
            **{
                path: {
                    "post": _operation(
                        "Call a model",
                        "InferResponse",
                        parameters,
                        body="InferRequest",
                        errors=(400, 404, 413, 429, 503, 504),
                    )
                }
                for path, parameters in (
                    ("/v2/models/{model}/infer", model[:1]),
                    ("/v2/models/{model}/versions/{version}/infer", model),
                )
            },
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
    described = _object(
        {"name": text, "datatype": datatype, "shape": {"type": "array", "items": {"type": "integer"}}}
    )
    return {
        "Error": _object({"error": text}),
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
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": summary,
        "parameters": parameters or [],
        "responses": {
            "200": {"description": "It is so", **({"content": _json(schema)} if schema else {})},
            **{
                str(status): {"description": "Why not", "content": {"application/json": {"schema": _ERROR}}}
                for status in errors
            },
        },
    }
    if body:
        found["requestBody"] = {"required": body != "Options", "content": _json(body)}
    return found
