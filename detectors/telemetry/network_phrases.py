"""Ports and switches in trouble as findings: the sentence and the numbers behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from detectors.model import Axis, BoolArray, Entity, Evidence, Finding, Fleet, Severity
from detectors.wording import counted, number

if TYPE_CHECKING:
    from detectors.telemetry.network import NetworkState

#: The signs in the order of network.DOWN and so on: what is shown, its unit, its metric.
SHOWN = (
    ("link", "", "nic_state"),
    ("falls of the link within an hour", "times", "nic_link_downed"),
    ("errors on the wire within an hour", "errors", "nic_symbol_errors"),
    ("rate of the link", "GB/s", "nic_rate_bytes_s"),
    ("waiting for each byte, against its usual high", "times", "nic_tx_wait"),
    ("packets lost or sent again for each byte, against their usual high", "times", "nic_retransmits"),
)
DOWN, FLAPS = 0, 1
#: Signs of a port that fades; of them those that tell of the wire itself.
FADING = (2, 3, 4, 5)
OF_WIRE = (2, 3)
#: What a switch does to many ports at once.
FABRIC = (0, 3, 4, 5)
#: Names written out in a sentence.
NAMED = 6


def port_finding(detector: str, entity: Entity, state: NetworkState, held: BoolArray, row: int) -> list[Finding]:
    """The findings of one port: down, flapping, fading. A port that is down is not also said to fade."""
    found = []
    device = entity.name.rpartition("nic:")[2]
    who = f"Port {device} of {entity.host}"
    if held[DOWN]:
        reason = f"{who} is down: jobs that talk through it stand still."
        found.append(_finding(detector, "ib_link_down", entity, Severity.CRITICAL, 0.8, state, [DOWN], row, reason))
    if held[FLAPS]:
        times = number(float(state.value[FLAPS, row]))
        reason = f"{who} goes down and up again: about {times} times within an hour."
        found.append(_finding(detector, "ib_link_flap", entity, Severity.HIGH, 0.75, state, [FLAPS], row, reason))
    signs = [sign for sign in FADING if held[sign]]
    if signs and not held[DOWN]:
        sure = len(signs) > 1 or signs[0] in OF_WIRE
        severity, score = (Severity.HIGH, 0.75) if sure else (Severity.WARNING, 0.5)
        reason = f"{who} fades: {' and '.join(SHOWN[sign][0] for sign in signs)} rose."
        if signs == [3]:
            reason = f"{who} runs at {_value(state, 3, row)} GB/s, below its rate of before."
        found.append(_finding(detector, "ib_port_degraded", entity, severity, score, state, signs, row, reason))
    return found


def _finding(
    detector: str,
    kind: str,
    entity: Entity,
    severity: Severity,
    score: float,
    state: NetworkState,
    signs: list[int],
    row: int,
    reason: str,
) -> Finding:
    since = min(float(state.begun[sign, row]) for sign in signs)
    return Finding(detector, kind, entity, severity, score, since, reason, _evidence(state, signs, row))


def _evidence(state: NetworkState, signs: list[int], row: int) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            SHOWN[s][0], _value(state, s, row), "up" if s == DOWN else "", SHOWN[s][1], f"metric:nic/{SHOWN[s][2]}"
        )
        for s in signs
    )


def _value(state: NetworkState, sign: int, row: int) -> str:
    value = float(state.value[sign, row])
    if sign == DOWN:
        return "down"
    return number(value / 1e9, 1) if sign == 3 else number(value, 0 if value >= 10 else 1)


def fabric_finding(
    detector: str, fleet: Fleet, kind: str, name: str, axis: Axis, state: NetworkState, held: BoolArray
) -> Finding:
    """Many ports of one switch or rack at once; its nodes are victims. held: bool[signs, n], of its ports only."""
    ports = np.flatnonzero(held.any(axis=0))
    nodes = sorted({fleet.nodes[code] for code in axis.node_of[ports]})
    what = "go down" if held[DOWN].any() else "wait for the network"
    more = f" and {len(nodes) - NAMED:,} more" if len(nodes) > NAMED else ""
    entity = Entity(fleet.cluster, kind, name, f"{kind}:{name}")
    began = state.begun[:, ports]
    return Finding(
        detector,
        "network_fabric",
        entity,
        Severity.CRITICAL,
        0.85,
        float(np.nanmin(np.where(held[:, ports], began, np.nan))),
        f"{counted(len(ports), 'port')} of {counted(len(nodes), 'node')} on {entity} {what} at the same time: "
        f"{', '.join(nodes[:NAMED])}{more}.",
        (
            Evidence("ports in trouble", str(len(ports)), "0", "ports", f"metric:nic/{_loudest(held)}", "derived"),
            Evidence("nodes in trouble", str(len(nodes)), "0", "nodes", grade="derived"),
        ),
    )


def _loudest(held: BoolArray) -> str:
    return SHOWN[int(np.argmax(held.sum(axis=1)))][2]
