"""Ports of nodes: down, flapping, fading, congested; and many of one switch at once, which is the switch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.columns import asked, column, measures
from detectors.model import Axis, BoolArray, Finding, Fleet, FloatArray, Judged, MetricKey, Need, Tick
from detectors.rows import cells, fit, moved, started
from detectors.telemetry.network_phrases import FABRIC, fabric_finding, port_finding
from detectors.telemetry.usual import leaky, learn, over

#: What a port may show: it is down; it goes down again and again; bits are wrong; its rate fell; it is congested (what
#: it sends waits, and less gets through); it has to send again.
DOWN, FLAPS, ERRORS, RATE, CROWDED, AGAIN = range(6)
SIGNS = 6
#: Counters of errors on the wire itself, those of packets lost or sent again, and falls of the link.
WIRE = ("nic_symbol_errors", "nic_integrity_errors", "nic_overruns", "nic_rx_errors", "nic_icrc_errors")
LOST = ("nic_tx_discards", "nic_retransmits", "nic_out_of_order", "nic_slow_restarts")
FALLS = ("nic_link_downed", "nic_carrier_downs")
STATES = ("nic_state", "nic_carrier")
GAUGES = ("nic_rate_bytes_s", "nic_speed_bytes_s")
FLOWS = ("nic_tx_wait", "nic_tx_bytes", "nic_rx_bytes")
KEYS: tuple[MetricKey, ...] = tuple(("nic", m) for m in (*STATES, *GAUGES, *FALLS, *WIRE, *LOST, *FLOWS))
UP = 4
#: Thresholds network_many_..._s by sign: how long many ports must show the same.
MANY_HOLDS = ("down", "flow", "flow", "flow", "flow", "flow")
#: A rate is taken to have held for this long at most before its sample, s.
MOST_GAP_S = 600.0
LEAST = np.float32(1e-6)


@dataclass(slots=True)
class NetworkState:
    """Per port row n: ``up`` int8[n], its last state (1 up, 0 down, -1 never seen up); ``falls`` float32[n], those of
    the last hour, fading; ``wire``, ``lost`` float32[n]: errors of the last hour, fading; ``lost_high``, ``wait_high``
    float32[n] and ``looks`` int32[2, n]: the usual high of the logarithms of losses, and of waiting, for each byte;
    ``flow`` float32[n]: the usual flow, bytes/s; ``best`` float32[n]: the best rate ever. ``seen_at`` float64[n];
    ``settled_at`` float64[n], from when on a port that came back is judged. Per sign s: ``begun`` float64[s, n] (NaN:
    not seen), ``last`` float64[s, n], when it was last seen; ``held`` bool[s, n]; ``value`` float32[s, n]. ``of_many``
    bool[n]: what it shows, it showed with its switch; ``blind`` bool[n]."""

    up: NDArray[np.int8] = cells(-1, np.int8, axis="nic")
    falls: FloatArray = cells(0.0, np.float32, axis="nic")
    wire: FloatArray = cells(0.0, np.float32, axis="nic")
    lost: FloatArray = cells(0.0, np.float32, axis="nic")
    lost_high: FloatArray = cells(-np.inf, np.float32, axis="nic")
    wait_high: FloatArray = cells(-np.inf, np.float32, axis="nic")
    looks: NDArray[np.int32] = cells(0, np.int32, 2, axis="nic")
    flow: FloatArray = cells(np.nan, np.float32, axis="nic")
    best: FloatArray = cells(0.0, np.float32, axis="nic")
    seen_at: NDArray[np.float64] = cells(-np.inf, axis="nic")
    settled_at: NDArray[np.float64] = cells(-np.inf, axis="nic")
    begun: NDArray[np.float64] = cells(np.nan, np.float64, SIGNS, axis="nic")
    last: NDArray[np.float64] = cells(-np.inf, np.float64, SIGNS, axis="nic")
    held: BoolArray = cells(False, np.bool_, SIGNS, axis="nic")
    value: FloatArray = cells(0.0, np.float32, SIGNS, axis="nic")
    of_many: BoolArray = cells(False, np.bool_, axis="nic")
    blind: BoolArray = cells(False, np.bool_, axis="nic")


@dataclass(frozen=True, slots=True)
class Network:
    """Thresholds: all that begin with network_."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = field(default=frozenset(KEYS))

    @property
    def name(self) -> str:
        return "telemetry/network"

    def start(self, fleet: Fleet) -> NetworkState:
        return started(NetworkState, fleet)

    def step(self, state: NetworkState, tick: Tick, fleet: Fleet) -> Judged:
        axis = fleet.axes.get("nic")
        if axis is None:
            return Judged()
        fit(state, fleet)
        if measures(tick, KEYS):
            with np.errstate(all="ignore"):  # absurd numbers are no reason to fail
                self._look(state, tick, axis)
        return Judged(self._findings(state, axis, fleet), {"nic": state.blind & axis.live})

    def move(self, state: NetworkState, old: Fleet, new: Fleet) -> NetworkState:
        return moved(state, old, new)

    def _s(self, name: str) -> float:
        return self.catalogue.limit(f"network_{name}")

    # --- one look ---------------------------------------------------------------------------------------------------

    def _look(self, state: NetworkState, tick: Tick, axis: Axis) -> None:
        n, at = len(axis), tick.at
        read = {name: column(tick, ("nic", name), n) for _, name in KEYS if ("nic", name) in tick.values}
        was_asked = np.zeros(n, np.bool_)
        seen = np.zeros(n, np.bool_)
        for name, values in read.items():
            was_asked |= asked(tick, ("nic", name), n)
            seen |= ~np.isnan(values)
        seen &= axis.live
        known = np.isfinite(state.seen_at)
        away = seen & known & (at - state.seen_at > self._s("away_s"))
        state.settled_at[away] = at + self._s("settle_s")
        gap = np.where(seen & known, np.clip(at - state.seen_at, 0.0, MOST_GAP_S), 0.0)
        shown = np.zeros((SIGNS, n), np.bool_)
        self._links(state, read, seen, at, gap, shown)
        self._wires(state, read, seen, gap, shown)
        self._flows(state, read, axis, at, gap, shown)
        self._hold(state, shown & seen, seen, at)
        state.blind = was_asked & ~seen & axis.live & known
        state.seen_at[seen] = at

    def _links(
        self,
        state: NetworkState,
        read: dict[str, FloatArray],
        seen: BoolArray,
        at: float,
        gap: NDArray[np.float64],
        shown: BoolArray,
    ) -> None:
        """Up or down, and how often down. What was never up is not in use, and while a node starts its ports go up and
        down. (A port of Ethernet that lost its cable says disabled, as if a person had done it.)"""
        n = len(seen)
        none = np.full(n, np.nan, np.float32)
        link, carrier = read.get("nic_state", none), read.get("nic_carrier", none)
        up = np.where(np.isnan(link), carrier >= 1, link == UP)
        known = ~np.isnan(link) | ~np.isnan(carrier)
        fell = known & ~up & (state.up == 1)
        counted = np.zeros(n, np.float32)
        for name in FALLS:
            if name in read:
                counted = np.fmax(counted, np.nan_to_num(read[name]) * gap.astype(np.float32))
        settled = at >= state.settled_at
        times = np.where(settled, np.fmax(np.round(counted), fell), 0.0).astype(np.float32)
        state.falls = leaky(state.falls, none, gap, self._s("falls_over_s")) + np.where(seen, times, 0).astype(
            np.float32
        )
        shown[DOWN] = known & ~up & (state.up >= 0) & settled
        shown[FLAPS] = (times > 0) & (state.falls >= self._s("falls"))
        state.value[FLAPS] = np.where(shown[FLAPS], state.falls, state.value[FLAPS])
        state.up = np.where(known & up, 1, np.where(known & (state.up >= 0), 0, state.up)).astype(np.int8)

    def _wires(
        self,
        state: NetworkState,
        read: dict[str, FloatArray],
        seen: BoolArray,
        gap: NDArray[np.float64],
        shown: BoolArray,
    ) -> None:
        """Errors on the wire within an hour, and a rate below the best."""
        rate = _total(read, WIRE, len(seen))
        state.wire = leaky(state.wire, np.where(seen, rate, np.nan), gap, self._s("wire_over_s"))
        shown[ERRORS] = (rate > 0) & (state.wire >= self._s("wire_errors"))
        state.value[ERRORS] = np.where(shown[ERRORS], state.wire, state.value[ERRORS])
        for name in GAUGES:
            if name in read:
                speed = read[name]
                shown[RATE] |= (speed > 0) & (speed <= self._s("rate_share") * state.best) & (state.up == 1)
                state.value[RATE] = np.where(shown[RATE], speed, state.value[RATE])
                state.best = np.where(state.up == 1, np.fmax(state.best, np.nan_to_num(speed)), state.best)

    def _flows(
        self,
        state: NetworkState,
        read: dict[str, FloatArray],
        axis: Axis,
        at: float,
        gap: NDArray[np.float64],
        shown: BoolArray,
    ) -> None:
        """Waiting and losses for each byte sent, against the port's own past. Only of ports at work: an idle one says
        nothing of its wire."""
        n, warm, by = len(axis), int(self._s("looks")), float(np.log(self._s("times")))
        if "nic_tx_bytes" not in read:
            return
        sent, wait = read["nic_tx_bytes"], read.get("nic_tx_wait", np.full(n, np.nan, np.float32))
        lost = np.where(np.isnan(sent), np.nan, _total(read, LOST, n))
        works = (sent >= self._s("busy_share") * np.nan_to_num(state.flow)) & (sent > self._s("busy_bytes_s"))
        works &= (gap > 0) & (at >= state.settled_at)
        for sign, raw, high, looks in (
            (CROWDED, wait, state.wait_high, state.looks[0]),
            (AGAIN, lost, state.lost_high, state.looks[1]),
        ):
            apart = np.log(np.fmax(raw, LEAST) / np.fmax(sent, np.float32(1.0))).astype(np.float32)
            unusual = works & over(high, looks, apart, warm, by) & (raw > self._s("least_a_s"))
            if sign == CROWDED:
                unusual &= sent <= self._s("flow_share") * state.flow
            shown[sign] = unusual
            learn(high, looks, apart, works & ~over(high, looks, apart, warm, by), warm)
            state.value[sign] = np.where(unusual, np.exp(apart - high), state.value[sign])
        self._usual_flow(state, sent, works & ~shown[CROWDED], gap)

    def _usual_flow(self, state: NetworkState, sent: FloatArray, works: BoolArray, gap: NDArray[np.float64]) -> None:
        share = 1.0 - np.exp(-gap / self._s("flow_over_s"))
        moved = (state.flow + share * (sent - state.flow)).astype(np.float32)
        fresh = np.isnan(state.flow) & (sent > 0)
        state.flow = np.where(fresh, sent, np.where(works, moved, state.flow)).astype(np.float32)

    def _hold(self, state: NetworkState, shown: BoolArray, seen: BoolArray, at: float) -> None:
        """A sign counts once it was shown for its time, and as long after its last show."""
        hold = np.array([self._s(f"{name}_hold_s") for name in ("down", "flap", "wire", "rate", "flow", "flow")])[
            :, None
        ]
        clear = np.array([self._s(f"{name}_clear_s") for name in ("down", "flap", "wire", "rate", "flow", "flow")])
        fresh = shown & np.isnan(state.begun)
        state.begun[fresh] = at
        state.last[shown] = at
        over_ = seen & ~shown & (at - state.last >= np.where(state.held, clear[:, None], 0.0))
        state.begun[over_] = np.nan
        state.held = np.where(over_, False, state.held | (shown & (at - state.begun >= hold)))

    # --- what it says -----------------------------------------------------------------------------------------------

    def _findings(self, state: NetworkState, axis: Axis, fleet: Fleet) -> tuple[Finding, ...]:
        held = state.held & axis.live
        found = [
            fabric_finding(self.name, fleet, kind, name, axis, state, here)
            for kind, name, here in self._together(state, axis, fleet)
        ]
        for row in np.flatnonzero(held.any(axis=0) & ~state.of_many):
            found += port_finding(self.name, fleet.entity("nic", int(row)), state, held[:, row], int(row))
        return tuple(sorted(found, key=lambda f: f.key))

    def _together(self, state: NetworkState, axis: Axis, fleet: Fleet) -> list[tuple[str, str, BoolArray]]:
        """Switches, else racks, of which enough nodes show the same at once, with what their ports show. That many
        agree is proof enough: it takes less time than with one port. What a port showed with its switch it shows for
        that reason, until it is over."""
        lasted = state.last - state.begun >= np.array([self._s(f"many_{hold}_s") for hold in MANY_HOLDS])[:, None]
        ill = ~np.isnan(state.begun) & (lasted | state.held) & axis.live
        state.of_many &= ill.any(axis=0)
        together: list[tuple[str, str, BoolArray]] = []
        taken = np.zeros(len(axis), np.bool_)
        shows = ill[list(FABRIC)].any(axis=0)
        for kind, codes, names in (("switch", axis.leaf_of, fleet.switches), ("rack", axis.rack_of, fleet.racks)):
            for code in np.unique(codes[shows]) if len(codes) == len(axis) else ():
                here = (codes == code) & axis.live & ~taken
                if code >= 0 and self._many(shows & here, here & np.isfinite(state.seen_at), axis):
                    taken |= here
                    state.of_many |= here & ill.any(axis=0)
                    together.append((kind, names[code], ill & here))
        return together

    def _many(self, shows: BoolArray, heard: BoolArray, axis: Axis) -> bool:
        sick = np.unique(axis.node_of[shows]).size
        return bool(
            sick >= self._s("many_nodes") and sick >= self._s("many_share") * np.unique(axis.node_of[heard]).size
        )


def _total(read: dict[str, FloatArray], names: tuple[str, ...], n: int) -> FloatArray:
    total = np.zeros(n, np.float32)
    for name in names:
        if name in read:
            total += np.nan_to_num(read[name])
    return total
