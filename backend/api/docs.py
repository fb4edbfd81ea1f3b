"""/docs: the OpenAPI document as one plain page. Ours, because the usual one loads its scripts from the internet."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

router = APIRouter(include_in_schema=False)

#: Colours and type come from the pages' own tokens; this is only the measure of a page that is read.
STYLE = """
body { background: var(--page); color: var(--ink); font: 14px/1.5 var(--sans, system-ui, sans-serif); margin: 0; }
main { max-width: 960px; margin: 0 auto; padding: 24px; }
section { background: var(--panel); border: 1px solid var(--line); border-radius: 10px; }
section { padding: 4px 16px 12px; margin: 16px 0; }
h1, h2, h3 { font-weight: 600; } h1 { font-size: 26px; } h2 { font-size: 18px; } h3 { font-size: 14px; }
h3 { border-top: 1px solid var(--line); padding-top: 12px; overflow-wrap: anywhere; } h2 + h3 { border-top: 0; }
code, pre { font-family: var(--mono, ui-monospace, monospace); font-size: 13px; }
pre { background: var(--sunken); border-radius: 6px; padding: 8px 12px; overflow-x: auto; }
.verb { color: var(--accent); } .soft, dd { color: var(--ink-2); } a { color: var(--accent); }
dl { margin: 8px 0; } dt { float: left; clear: left; min-width: 160px; } dd { margin: 0 0 4px 172px; }
"""


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """Every route, its parameters, an example of its body and of its answer."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'self' 'sha256-{digest}'; base-uri 'none'; frame-ancestors 'none'"
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
    return HTMLResponse("".join(_page(request.app.openapi())), headers=headers)


def _page(document: dict[str, Any]) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1"><title>API · Watchkeeper</title>'
    yield f'<link rel="stylesheet" href="/static/tokens.css"><style>{STYLE}</style></head><body><main>'
    yield f"<h1>{escape(document['info']['title'])} over REST</h1><p class='soft'>"
    yield "Reads on this machine need no token; elsewhere send <code>Authorization: Bearer wk_...</code>. Errors are "
    yield "problem+json. The same as a document for programs: <a href='/openapi.json'>/openapi.json</a>.</p>"
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            words = "".join(_operation(document, path, method, operation))
            by_tag.setdefault((operation.get("tags") or ["other"])[0], []).append(words)
    for tag, operations in by_tag.items():
        yield f"<section><h2>{escape(tag)}</h2>{''.join(operations)}</section>"
    yield "</main></body></html>"


def _operation(document: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    name = escape(operation["operationId"])
    yield f"<h3 id='{name}'><code><span class='verb'>{method.upper()}</span> {escape(path)}</code></h3>"
    yield "".join(f"<p>{escape(part)}</p>" for part in operation.get("description", "").split("\n\n"))
    parameters = operation.get("parameters", ())
    if parameters:
        rows = (f"<dt><code>{escape(p['name'])}</code></dt><dd>{_about(p)}</dd>" for p in parameters)
        yield f"<dl>{''.join(rows)}</dl>"
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        shown = _example(document, body)
        if shown is not None:
            yield f"<p class='soft'>Send {escape(kind)}:</p>{_pre(shown)}"
    good: dict[str, Any] = next((a for status, a in operation["responses"].items() if status.startswith("2")), {})
    for kind, body in good.get("content", {}).items():
        shown = _example(document, body)
        if shown is not None:
            yield f"<p class='soft'>Get {escape(kind)}:</p>{_pre(shown)}"


def _about(parameter: dict[str, Any]) -> str:
    schema = parameter.get("schema", {})
    words = [str(parameter.get("description", "")) or str(schema.get("title", ""))]
    choices = schema.get("enum") or schema.get("items", {}).get("enum")
    words += [f"One of {', '.join(map(str, choices))}."] if choices else []
    words += [f"Default {schema['default']}."] if schema.get("default") not in (None, "") else []
    return escape(" ".join(word for word in words if word))


def _pre(shown: Any) -> str:
    text = shown if isinstance(shown, str) else orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode()
    return f"<pre>{escape(text)}</pre>"


def _example(document: dict[str, Any], body: dict[str, Any]) -> Any:
    """The example that stands there, or one made of the schema's own."""
    return body["example"] if "example" in body else _made(document, body.get("schema", {}))


SHAPES: dict[str, Any] = {"string": "", "integer": 0, "number": 0.0, "boolean": False, "null": None}


def _made(document: dict[str, Any], schema: dict[str, Any]) -> Any:
    """An instance of a schema out of its examples and defaults; None for what has no shape to show."""
    if "$ref" in schema:
        return _made(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if schema.get("examples"):
        return schema["examples"][0]
    if "default" in schema:
        return schema["default"]
    if "anyOf" in schema:
        return _made(document, schema["anyOf"][0])
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "array":
        return [_made(document, schema.get("items", {}))]
    if "properties" in schema:
        return {name: _made(document, part) for name, part in schema["properties"].items()}
    if schema.get("format") == "date-time":
        return "2026-03-01T12:00:00+00:00"
    if schema.get("format") == "binary":
        return None
    return {} if schema.get("type") == "object" else SHAPES.get(str(schema.get("type")))
