"""Traces and layout to the JSON of one figure, checked by plotly.py: a wrong property fails here, not in a browser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go


def drawn(traces: Sequence[dict[str, Any]], layout: dict[str, Any]) -> dict[str, Any]:
    """``{"data", "layout"}``; numpy arrays become typed arrays. Raises ValueError on what Plotly does not know."""
    figure = go.Figure(data=list(traces), layout={**layout, "template": {}})
    plain: dict[str, Any] = figure.to_plotly_json()
    return plain
