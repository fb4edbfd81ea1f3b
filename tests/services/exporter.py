"""Prints DCGM text for N nodes of 8 GPUs, old and new names mixed, with switches for the faults that tests need."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GPUS = 8
MODEL = "NVIDIA H100 80GB HBM3"
#: Buses of the eight cards of one board, as ``lspci`` shows them.
BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
#: (old name, new name, value at rest, swing)
METRICS = (
    ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS", 58.0, 3.0),
    ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS", 610.0, 20.0),
    ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO", 97.0, 2.0),
    ("DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_SM_CLOCK", 1755.0, 15.0),
    ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR", 0.0, 0.0),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_PCIE_REPLAY_TOTAL", 0.0, 0.0),
)


def names(nodes: int, prefix: str = "gpu-") -> tuple[str, ...]:
    """gpu-0001, gpu-0002 ... as many as there are nodes."""
    return tuple(f"{prefix}{n:04d}" for n in range(1, nodes + 1))


def uuid(node: str, gpu: int) -> str:
    return f"GPU-{node}-{gpu}"


def pci(gpu: int) -> str:
    return f"00000000:{BUSES[gpu % len(BUSES)].upper()}:00.0"


@dataclass
class Switches:
    """What is broken now. ``dropped`` holds (node, gpu); ``values`` (old metric name, node, gpu) -> value; ``extra``
    are whole lines that are printed as they are."""

    nodes: tuple[str, ...]
    dropped: set[tuple[str, int]] = field(default_factory=set)
    dark: set[str] = field(default_factory=set)
    frozen: bool = False
    down: bool = False
    values: dict[tuple[str, str, int], float] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)
    scrapes: int = 0
    _held: str = ""

    def drop_gpu(self, node: str, gpu: int) -> None:
        self.dropped.add((node, gpu))

    def restore_gpu(self, node: str, gpu: int) -> None:
        self.dropped.discard((node, gpu))

    def drop_node(self, node: str) -> None:
        self.dark.add(node)

    def restore_node(self, node: str) -> None:
        self.dark.discard(node)

    def freeze(self, frozen: bool = True) -> None:
        """While frozen, every scrape prints the text of the first frozen one."""
        self.frozen = frozen
        self._held = ""

    def set(self, metric: str, node: str, gpu: int, value: float) -> None:
        self.values[(metric, node, gpu)] = value

    def text(self) -> str:
        """One scrape. Nodes of even place speak the old names and ``Hostname``, the others the new ones."""
        self.scrapes += 1
        if self.frozen and self._held:
            return self._held
        lines = [line for metric in METRICS for line in self._metric(*metric)]
        self._held = "\n".join([*lines, *self.extra]) + "\n"
        return self._held

    def _metric(self, old: str, new: str, rest: float, swing: float) -> Iterator[str]:
        for name in dict.fromkeys((old, new)):
            yield f"# TYPE {name} gauge"
            for place, node in enumerate(self.nodes):
                speaks_old = place % 2 == 0
                if node in self.dark or (old != new and speaks_old != (name == old)):
                    continue
                if old == new and name != old:
                    continue
                for gpu in range(GPUS):
                    if (node, gpu) not in self.dropped:
                        value = self._value(old, place, gpu, rest, swing)
                        yield f"{name}{{{self._labels(node, gpu, speaks_old)}}} {value}"

    def _value(self, old: str, place: int, gpu: int, rest: float, swing: float) -> str:
        set_to = self.values.get((old, self.nodes[place], gpu))
        wave = math.sin(self.scrapes / 5 + place + gpu)
        return f"{rest + swing * wave if set_to is None else set_to:.6g}"

    def _labels(self, node: str, gpu: int, speaks_old: bool) -> str:
        job = self.jobs.get(node, "")
        labels = {
            "gpu": str(gpu),
            "UUID": uuid(node, gpu),
            "pci_bus_id": pci(gpu),
            "device": f"nvidia{gpu}",
            "modelName": MODEL,
            "Hostname" if speaks_old else "hostname": node,
            "DCGM_FI_DRIVER_VERSION": "550.54.15",
            **({"hpc_job": job} if job else {}),
        }
        return ",".join(f'{key}="{value}"' for key, value in labels.items())

    def turn(self, order: dict[str, object]) -> None:
        """One switch by name, as it comes by POST: {"do": "drop_gpu", "node": "gpu-0001", "gpu": 3}.

        Raises ValueError for a switch that does not exist, KeyError or TypeError for wrong arguments.
        """
        do, node, gpu = order.get("do"), str(order.get("node", "")), int(str(order.get("gpu", 0)))
        if do in ("drop_gpu", "restore_gpu"):
            (self.drop_gpu if do == "drop_gpu" else self.restore_gpu)(node, gpu)
        elif do in ("drop_node", "restore_node"):
            (self.drop_node if do == "drop_node" else self.restore_node)(node)
        elif do in ("freeze", "thaw"):
            self.freeze(do == "freeze")
        elif do in ("down", "up"):
            self.down = do == "down"
        elif do == "set":
            self.set(str(order["metric"]), node, gpu, float(str(order["value"])))
        elif do == "job":
            self.jobs[node] = str(order.get("job", ""))
        else:
            raise ValueError(f"no switch {do!r}")


def server(switches: Switches, port: int = 0) -> ThreadingHTTPServer:
    """The exporter, bound to loopback but not yet serving. GET /metrics; POST / turns a switch."""

    class Answers(BaseHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            """Silent."""

        def do_GET(self) -> None:
            if switches.down:
                self._say(503, b"down\n")
            else:
                self._say(200, switches.text().encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                switches.turn(json.loads(body))
            except (ValueError, KeyError, TypeError) as error:
                self._say(400, f"{error}\n".encode())
            else:
                self._say(200, b"done\n")

        def _say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    made = ThreadingHTTPServer(("127.0.0.1", port), Answers)
    made.daemon_threads = True
    return made


@contextmanager
def exporter(nodes: int | Sequence[str] = 4) -> Iterator[tuple[int, Switches]]:
    """A serving exporter in this process, of so many nodes or of these: its port and its switches."""
    switches = Switches(names(nodes) if isinstance(nodes, int) else tuple(nodes))
    made = server(switches)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield made.server_address[1], switches
    finally:
        made.shutdown()
        made.server_close()
        thread.join(5)


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: python -m tests.services.exporter PORT NODES", file=sys.stderr)
        return 2
    made = server(Switches(names(int(arguments[1]))), int(arguments[0]))
    print(f"serving on 127.0.0.1:{made.server_address[1]}", flush=True)
    try:
        made.serve_forever()
    except KeyboardInterrupt:
        made.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
