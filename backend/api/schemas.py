"""Request bodies of the ingest routes for OpenAPI: rows as JSON array or JSON lines, checked row by row, not by it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from backend.ingest.collectives import CollectiveRow
from backend.ingest.jobs import JobRow
from backend.ingest.logs import LogRow
from backend.ingest.pushed_changes import ChangeRow
from backend.ingest.steps import CheckpointRow, StepRow
from backend.ingest.topology import NodeRow
from backend.ingest.wrap import WrapRow

MODELS: dict[str, type[BaseModel]] = {
    "LogRow": LogRow,
    "JobRow": JobRow,
    "NodeRow": NodeRow,
    "ChangeRow": ChangeRow,
    "WrapRow": WrapRow,
    "StepRow": StepRow,
    "CheckpointRow": CheckpointRow,
    "CollectiveRow": CollectiveRow,
}


def row_schema(name: str) -> dict[str, Any]:
    """The JSON schema of one row with every reference written out."""
    schema = MODELS[name].model_json_schema(mode="validation")
    defined = schema.pop("$defs", {})
    written = _written_out(schema, defined)
    assert isinstance(written, dict)
    return written


def _written_out(part: Any, defined: dict[str, Any]) -> Any:
    if isinstance(part, dict):
        if "$ref" in part:
            return _written_out(defined[part["$ref"].rpartition("/")[2]], defined)
        return {key: _written_out(value, defined) for key, value in part.items()}
    return [_written_out(value, defined) for value in part] if isinstance(part, list) else part


def rows_body(name: str, example: dict[str, Any]) -> dict[str, Any]:
    """Rows as a JSON array, or one a line."""
    row = row_schema(name)
    return _body(
        {
            "application/json": {"schema": {"type": "array", "items": row}, "example": [example]},
            "application/x-ndjson": {"schema": row, "example": example},
        }
    )


TOPOLOGY_EXAMPLE = {
    "nodes": [
        {
            "name": "gpu-0412",
            "rack": "r12",
            "switch": "leaf6",
            "gpus": [
                {"index": 0, "uuid": "GPU-6b1d2c9e-0000-4000-8000-000000000001", "pci_bus_id": "00000000:1B:00.0"}
            ],
        }
    ]
}


def topology_body() -> dict[str, Any]:
    row = row_schema("NodeRow")
    whole = {"type": "object", "properties": {"nodes": {"type": "array", "items": row}}, "required": ["nodes"]}
    return _body(
        {
            "application/json": {
                "schema": {"anyOf": [whole, {"type": "array", "items": row}]},
                "example": TOPOLOGY_EXAMPLE,
            },
            "application/x-ndjson": {"schema": row, "example": TOPOLOGY_EXAMPLE["nodes"][0]},
            "text/csv": {"schema": {"type": "string"}, "example": "node,rack,switch\ngpu-[0401-0408],r12,leaf6\n"},
            "text/plain": {"schema": {"type": "string"}},
        }
    )


def journal_body() -> dict[str, Any]:
    """Entries of a journal, in either of its two formats."""
    example = '{"__REALTIME_TIMESTAMP":"1772366400000000","_HOSTNAME":"gpu-0412","_TRANSPORT":"kernel","MESSAGE":"..."}'
    return _body(
        {
            "application/vnd.fdo.journal": {"schema": {"type": "string", "format": "binary"}},
            "application/x-ndjson": {"schema": {"type": "string"}, "example": example},
        }
    )


def otlp_body(top: str) -> dict[str, Any]:
    """One export of OTLP, in either of its two languages."""
    return _body(
        {
            "application/json": {"schema": {"type": "object"}, "example": {top: []}},
            "application/x-protobuf": {"schema": {"type": "string", "format": "binary"}},
        }
    )


def write_body() -> dict[str, Any]:
    """A protobuf WriteRequest in a snappy block."""
    return _body({"application/x-protobuf": {"schema": {"type": "string", "format": "binary"}}})


def _body(content: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": content}}
