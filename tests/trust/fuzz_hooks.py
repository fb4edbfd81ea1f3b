"""Bodies that schemathesis cannot write by itself: JSON lines, and bytes of protobuf."""

from __future__ import annotations

import json
from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(_: Any, value: Any) -> bytes:
    """One row a line; what is no list is a single row."""
    rows = value if isinstance(value, list) else [value]
    return b"\n".join(json.dumps(row, default=str).encode("utf-8", "surrogatepass") for row in rows)


@schemathesis.serializer("application/x-protobuf", "application/openmetrics-text", "text/plain")
def raw(_: Any, value: Any) -> bytes:
    """Whatever it is, as bytes: most of it is no message at all."""
    return value if isinstance(value, bytes) else json.dumps(value, default=str).encode("utf-8", "surrogatepass")
