"""OpenTelemetry, where a setting names a collector: a span for each request and for each step of a loop that worked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

#: Takes the name of what just ended, when it began (unix ns) and what is said of it.
Trace = Callable[[str, int, Mapping[str, str | int]], None]


class NoTracing(Exception):
    """The packages are not here; the text says how to get them."""


def untraced(name: str, began_ns: int, said: Mapping[str, str | int]) -> None:
    """Default: nothing is traced, and nothing of OpenTelemetry is imported."""


def traces_to(url: str, who: str) -> Trace:
    """Sends spans to ``url`` (OTLP over HTTP, as in http://collector:4318/v1/traces) in the background; a collector
    that is away costs spans, never requests. Raises NoTracing where the extra ``otel`` is not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise NoTracing("[server] otlp_url needs OpenTelemetry: pip install 'watchkeeper[otel]'") from error
    provider = TracerProvider(resource=Resource.create({"service.name": "watchkeeper", "service.instance.id": who}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=5)))
    tracer = provider.get_tracer("watchkeeper")

    def trace(name: str, began_ns: int, said: Mapping[str, str | int]) -> None:
        tracer.start_span(name, attributes=dict(said), start_time=began_ns).end()

    return trace


class Traced:
    """ASGI: a span a request, named by method and route; no query, no body and no header goes into it."""

    def __init__(self, app: Any, trace: Trace) -> None:
        self._app = app
        self._trace = trace

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, began = 0, time.time_ns()

        async def noted(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            route = route_of(scope)
            said = {"http.request.method": scope["method"], "http.route": route, "http.response.status_code": status}
            self._trace(f"{scope['method']} {route}".strip(), began, said)


def route_of(scope: Mapping[str, Any]) -> str:
    """The path with its parameters by name, so that no node, job or id is told; empty where no route answered."""
    if scope.get("route") is None:
        return ""
    parts, named = str(scope["path"]).split("/"), {str(v): k for k, v in scope.get("path_params", {}).items()}
    return "/".join(f"{{{named[part]}}}" if part in named else part for part in parts)
