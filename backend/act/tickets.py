"""Tickets: one a node, kind and incident, opened through a site's webhook, never twice."""

from __future__ import annotations

from typing import Any

from backend.act.webhook import told
from backend.facts import OrderFacts


def ticket(order: OrderFacts) -> dict[str, Any]:
    """The body of a ticket; ``key`` is the same for the same fault, so that a desk can join them."""
    what = order.kind.replace("_", " ")
    return told(order) | {
        "key": f"{order.cluster}:{order.node}:{order.kind}:{order.incident}",
        "title": f"{order.node}: {what}",
        "text": f"{order.node} has had {what} again after it was mended (incident {order.incident} of "
        f"{order.cluster}). It is kept out of work. Please check it, or have the part replaced.",
    }
