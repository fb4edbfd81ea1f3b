"""Server time of a page after a change, beside a static template of its size; the fleet figure beside bare base64."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import orjson
from jinja2 import Environment

from benchmarks.ratio import timed
from frontend.figures.rack_map import Mark, Place, rack_map
from frontend.figures.theme import themes, tokens
from frontend.words import STATES

NODES, GPUS, ROUNDS = 12_800, 8, 15
#: Promises: the figure takes at most so many times as long, and so many times the bytes, as its cells alone in base64.
TIME_X, BYTES_X = 3.0, 1.05


def run() -> Iterator[str]:
    yield figure()
    with tempfile.TemporaryDirectory() as folder:
        yield page(Path(folder))


def figure() -> str:
    """The map of 102,400 GPUs as JSON, and its cells as bare base64."""
    states = np.random.default_rng(11).choice(len(STATES), (NODES, GPUS), p=[0.98] + [0.02 / 5] * 5)
    places = [Place(f"gpu-{n:05}", f"rack-{n // 8}", tuple(STATES[s] for s in states[n])) for n in range(NODES)]
    look = themes(tokens())["light"]
    marks = [Mark("gpu-00012", 3, "failed", "812")]
    cells = np.zeros((NODES // 8 // 80 * 5, 80 * 3 - 1), np.uint8)

    def ours() -> bytes:
        return orjson.dumps(rack_map(places, marks, look, False), option=orjson.OPT_SERIALIZE_NUMPY)

    def bare() -> bytes:
        return orjson.dumps({"z": base64.b64encode(np.ascontiguousarray(cells).tobytes()).decode()})

    time_x, bytes_x = best(ours) / best(bare), len(ours()) / len(bare())
    kept = "kept" if time_x <= TIME_X and bytes_x <= BYTES_X else "NOT KEPT"
    return (
        f"fleet figure of {NODES * GPUS:,} GPUs: {time_x:.3g} x the time and {bytes_x:.3g} x the bytes of its cells in "
        f"base64 (promise {TIME_X:g} x and {BYTES_X:g} x {kept})"
    )


def page(folder: Path) -> str:
    """Now on the filled site (no page is kept, so each read is as after a change), and its bytes as a template."""
    from backend.clock import ManualClock
    from tests.backend.web import site, tales
    from tests.backend.web.conftest import client_of
    from tests.conftest import NOW

    parts = site.parts_of(folder / "store", ManualClock(NOW))
    tales.fill(parts)
    client = client_of(parts, "approver")
    text = client.get("/").text
    still = Environment(autoescape=True).from_string(text.replace("{", "(").replace("}", ")") + "{{ n }}")

    def ours() -> None:
        client.get("/")

    time_x = best(ours) / best(lambda: still.render(n=1))
    parts.store.close()
    return f"Now after a change: {time_x:.3g} x its {len(text):,} characters as one constant string (no fair peer)"


def best(deed: Callable[[], object]) -> float:
    """Seconds of the fastest of ROUNDS."""
    return min(timed(deed) for _ in range(ROUNDS))
