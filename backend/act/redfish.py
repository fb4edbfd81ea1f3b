"""Reboots through a node's BMC: Redfish's ComputerSystem.Reset, with the time of the last reset as witness."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import urlsplit

from backend.act.base import ActionError
from backend.clients.hostlist import is_host
from backend.clients.slurm_http import Answer, Send, send_bounded
from backend.facts import OrderFacts, Outcome, Verb

SYSTEMS = "/redfish/v1/Systems"
#: Ways to restart, the gentlest first (DSP0266, ResetType).
WAYS = ("GracefulRestart", "ForceRestart", "PowerCycle")


class RedfishHand:
    """A Hand that restarts nodes by their BMC. ``address``: ``https://{node}-bmc``. It never restarts a node while a
    job runs there: the order waits, which the caller sees to."""

    def __init__(
        self, address: str, user: str, password: str, timeout_s: float = 20.0, send: Send = send_bounded
    ) -> None:
        self._address, self._timeout_s, self._send = address.rstrip("/"), timeout_s, send
        self._secret = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    @property
    def name(self) -> str:
        return "redfish"

    @property
    def can(self) -> frozenset[Verb]:
        return frozenset({Verb.REBOOT})

    def witness(self, order: OrderFacts) -> dict[str, str]:
        """The system's path, its power state, and when it was last reset ("" where the BMC does not say)."""
        path, system = self._system(order.node)
        last, power = system.get("LastResetTime"), system.get("PowerState")
        return {"system": path, "power": str(power or ""), "last_reset": str(last or "")}

    def perform(self, order: OrderFacts) -> Outcome:
        path, system = self._system(order.node)
        before = order.witness.get("last_reset", "")
        now = str(system.get("LastResetTime") or "")
        if before and now and now != before:
            return Outcome(False, f"{order.node} was reset at {now}, after this was asked for. It was already so.")
        target, way = _reset(path, system, order.node)
        self._call(order.node, "POST", target, {"ResetType": way})
        _, after = self._system(order.node)
        reset = str(after.get("LastResetTime") or "")
        return Outcome(True, f"{order.node} restarts ({way}).", {"way": way, "last_reset": reset})

    def settle(self, order: OrderFacts) -> Outcome | None:
        _, system = self._system(order.node)
        before, now = order.witness.get("last_reset", ""), str(system.get("LastResetTime") or "")
        if not before or not now:
            why = f"the BMC of {order.node} does not tell when it was last reset; nothing can tell"
            raise ActionError(why, permanent=True)
        if now == before:
            return None
        return Outcome(True, f"{order.node} was reset at {now}. Read after a restart.", {"last_reset": now})

    def _system(self, node: str) -> tuple[str, dict[str, Any]]:
        """The one system of a BMC. Raises ActionError where it has none, or several: nobody said which is meant."""
        members = self._call(node, "GET", SYSTEMS).get("Members")
        paths = (
            [str(m.get("@odata.id", "")) for m in members if isinstance(m, dict)] if isinstance(members, list) else []
        )
        if len(paths) != 1:
            raise ActionError(f"the BMC of {node} shows {len(paths)} systems; one is needed", permanent=True)
        return paths[0], self._call(node, "GET", paths[0])

    def _call(self, node: str, method: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
        if not is_host(node):
            raise ActionError(f"{node!r} is no host name", permanent=True)
        if not path.startswith("/") or urlsplit(path).netloc:
            raise ActionError(f"the BMC of {node} points elsewhere ({path[:80]}); left alone", permanent=True)
        headers = {"Authorization": self._secret, "Accept": "application/json", "OData-Version": "4.0"}
        sent = json.dumps(body).encode() if body is not None else b""
        headers |= {"Content-Type": "application/json"} if sent else {}
        try:
            answer = self._send(method, self._address.replace("{node}", node) + path, headers, sent, self._timeout_s)
        except OSError as lost:
            raise ActionError(f"the BMC of {node} did not answer: {str(lost) or type(lost).__name__}") from lost
        return _read(node, answer)


def _read(node: str, answer: Answer) -> dict[str, Any]:
    try:
        found = json.loads(answer.body or b"{}")
    except (ValueError, RecursionError):
        found = {}
    if 200 <= answer.status < 300:
        return found if isinstance(found, dict) else {}
    error = found.get("error") if isinstance(found, dict) else None
    words = str(error.get("message", "")) if isinstance(error, dict) else ""
    soon = answer.status in (408, 429) or answer.status >= 500
    raise ActionError(f"the BMC of {node} answered {answer.status}: {words[:200] or 'no words'}", permanent=not soon)


def _reset(path: str, system: dict[str, Any], node: str) -> tuple[str, str]:
    """(where to post, how): the gentlest way that the system allows; one that names none is asked for the first."""
    actions = system.get("Actions")
    action = actions.get("#ComputerSystem.Reset") if isinstance(actions, dict) else None
    if not isinstance(action, dict):
        raise ActionError(f"the BMC of {node} offers no reset of {path}", permanent=True)
    allowed = action.get("ResetType@Redfish.AllowableValues")
    ways = [way for way in WAYS if not isinstance(allowed, list) or way in allowed]
    if not ways:
        raise ActionError(f"the BMC of {node} allows none of {', '.join(WAYS)}", permanent=True)
    return str(action.get("target") or f"{path}/Actions/ComputerSystem.Reset"), ways[0]
