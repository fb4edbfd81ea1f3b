"""Posts what the simulated cluster shows to the public ingest routes, as any site's own agents would."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping

import orjson
import requests

from backend.simulate.remote_write import Encoder
from backend.simulate.site import Site, topology
from backend.simulate.world import Report

#: Log and job rows kept while the server does not answer; beyond it the oldest are lost, and counted.
KEPT_ROWS = 20_000
ROWS_A_POST = 2_000
TIMEOUT_S = 15.0
#: Longest that a Retry-After of the server is followed.
LONGEST_WAIT_S = 60.0
#: Routes of rows, in the order in which they are sent.
KINDS = ("jobs", "logs", "steps", "checkpoints")


class Poster:
    """One sender to one server. Rows are kept until they are taken; telemetry that cannot be sent is let go."""

    def __init__(self, url: str, site: Site, cluster: str = "", session: requests.Session | None = None) -> None:
        """``url`` is the base address of the server; ``cluster`` is named to it where it has several."""
        self._base = url.rstrip("/") + "/api/v1/ingest"
        self._site = site
        self._encoder = Encoder(site)
        self._session = session or requests.Session()
        self._params = {"cluster": cluster} if cluster else {}
        self._rows: dict[str, deque[Mapping[str, object]]] = {kind: deque() for kind in KINDS}
        self._told_topology = False
        self._not_before = 0.0
        self.refused = 0
        self.lost = 0
        self.error = ""

    def post(self, report: Report, jobs: list[dict[str, object]]) -> bool:
        """Send one report; ``jobs`` is the whole job table, told again to a server that was away. True when all of it
        was taken. Never raises for a server that is away, busy or unhappy: ``error`` says what it said."""
        self.keep("jobs", list(report.jobs))
        self.keep("logs", list(report.lines))
        if time.monotonic() < self._not_before:
            return False
        try:
            if not self._told_topology:
                self._send("topology", orjson.dumps(topology(self._site)), {})
                self._told_topology = True
                told = {(row["job"], row["restart"]) for row in jobs}
                others = [row for row in self._rows["jobs"] if (row["job"], row["restart"]) not in told]
                self._rows["jobs"] = deque([*others, *jobs])
            for kind in KINDS:
                self._drain(kind)
            self._send("remote-write", self._encoder.body(report.at, report.readings), REMOTE_WRITE)
        except Refusal as refusal:
            self._hear(refusal)
            return False
        except requests.RequestException as failure:
            self._told_topology, self.error = False, f"{type(failure).__name__}: {failure}"
            return False
        self.error = ""
        return True

    def close(self) -> None:
        self._session.close()

    def keep(self, what: str, rows: list[Mapping[str, object]]) -> None:
        """Rows of one route that go with the next report."""
        kept = self._rows[what]
        kept.extend(rows)
        while len(kept) > KEPT_ROWS:
            kept.popleft()
            self.lost += 1

    def _drain(self, what: str) -> None:
        """Send kept rows, oldest first; each post leaves the queue only when the server has taken it, or said that it
        never will."""
        kept = self._rows[what]
        while kept:
            rows = [kept[i] for i in range(min(len(kept), ROWS_A_POST))]
            try:
                self._send(what, orjson.dumps(rows), {})
            except Refusal as refusal:
                if refusal.busy:
                    raise
                self.refused, self.error = self.refused + len(rows), str(refusal)
            for _ in rows:
                kept.popleft()

    def _send(self, what: str, body: bytes, headers: Mapping[str, str]) -> None:
        answer = self._session.post(
            f"{self._base}/{what}",
            data=body,
            params=self._params,
            headers={"Content-Type": "application/json", **headers},
            timeout=TIMEOUT_S,
        )
        if answer.status_code >= 300:
            raise Refusal(what, answer.status_code, answer.text[:300], answer.headers.get("Retry-After", ""))

    def _hear(self, refusal: Refusal) -> None:
        self.error = str(refusal)
        if refusal.busy:
            self._not_before = time.monotonic() + refusal.wait_s
        else:
            self.refused += 1


REMOTE_WRITE = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


class Refusal(Exception):
    """The server answered, and not with 2xx. ``busy``: it will take the same later, after ``wait_s``."""

    def __init__(self, what: str, status: int, text: str, retry_after: str) -> None:
        super().__init__(f"{what} was answered {status}: {text}")
        self.busy = status == 429 or status >= 500
        asked = float(retry_after) if retry_after.isdigit() else 2.0
        self.wait_s = min(max(asked, 1.0), LONGEST_WAIT_S)
