"""Computes what Watchkeeper watches of training where the weights are: copy this one file beside your trainer.

It needs numpy alone. It takes numpy arrays, torch tensors and DTensors (FSDP2, TP), and refuses a flat shard of FSDP by
the name of its weight. It measures itself: a monitor that would cost more than ``share`` of the time waits.

    told = Callback(run="atlas", server="http://watch:8000")
    for step in ...:
        told.before(step, {"12": (model.q[12].weight, model.k[12].weight)}, heads=32)
        loss, grad_norm = train()
        told.after(step, {"12": (model.q[12].weight, model.k[12].weight)}, loss=loss, grad_norm=grad_norm)

Formulas: QK increment, its spectral entropy and ranks, router similarity and conditioning: arXiv 2606.28116.
"""

from __future__ import annotations

import json
import math
import queue
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

#: Rows that wait for a server that does not answer; the oldest are let go.
MOST_WAITING = 20_000
SEND_EVERY_S, TIMEOUT_S = 2.0, 5.0


class ShardError(ValueError):
    """A weight that is only a part of itself; the text names it and says how to give it whole."""


def whole(name: str, weight: Any) -> np.ndarray[Any, Any]:
    """``weight`` as a float32 matrix. A DTensor is gathered (a collective: every rank of its mesh must call). Raises
    ShardError for a flat shard of FSDP, and for one that says it is a part."""
    if hasattr(weight, "full_tensor"):
        weight = weight.full_tensor()
    flat = type(weight).__name__ == "FlatParameter" or getattr(weight, "_is_flat_param", False)
    if flat or getattr(weight, "_is_sharded", False):
        raise ShardError(f"{name} is a flat shard of FSDP. Gather it (FSDP.summon_full_params), or use FSDP2.")
    if hasattr(weight, "detach"):
        weight = weight.detach().float().cpu().numpy()
    found = np.asarray(weight, np.float32)
    if found.ndim != 2 or 0 in found.shape:
        raise ShardError(f"{name} has shape {found.shape}: a matrix is needed, so this is a flat or an empty shard.")
    return found


def attention(
    name: str, before: tuple[Any, Any], after: tuple[Any, Any], heads: int, kv_heads: int = 0
) -> dict[str, float]:
    """Signals of one layer from its Q and K weights, [heads x size, d] as torch keeps them, before and after a step.

    A rank of tensor parallelism gives its own rows and its own number of heads. Grouped keys: each is compared with all
    queries that share it; of all heads the mean, and the lowest entropy. Raises ShardError."""
    q, k = (whole(f"{name}.{part}", weight) for part, weight in zip("qk", before, strict=True))
    q1, k1 = (whole(f"{name}.{part}", weight) for part, weight in zip("qk", after, strict=True))
    kv = kv_heads or heads
    if q.shape != q1.shape or k.shape != k1.shape or q.shape[0] % heads or k.shape[0] % kv or heads % kv:
        raise ShardError(f"{name}: Q {q.shape} and K {k.shape} are not {heads} and {kv} whole heads: shards of TP are "
                         "given with the number of heads of this rank.")  # fmt: skip
    size = q.shape[0] // heads
    if k.shape[0] // kv != size or q.shape[1] != k.shape[1]:
        raise ShardError(f"{name}: heads of Q {q.shape} and K {k.shape} differ in size: is one of them a shard?")
    found = []
    for head in range(heads):
        mine, its = slice(head * size, (head + 1) * size), head * kv // heads
        key = slice(its * size, (its + 1) * size)
        found.append(_spectrum(q[mine].T, k[key].T, (q1[mine] - q[mine]).T, (k1[key] - k[key]).T))
    entropy, norm, stable = (np.array(values) for values in zip(*found, strict=True))
    return {
        "qk_entropy": float(entropy.mean()),
        "qk_entropy_min": float(entropy.min()),
        "qk_effective_rank": float(np.exp(entropy).mean()),
        "qk_stable_rank": float(stable.mean()),
        "qk_norm": float(np.sqrt(np.square(norm).sum())),
    }


def _spectrum(wq: Any, wk: Any, dwq: Any, dwk: Any) -> tuple[float, float, float]:
    """(entropy, norm, stable rank) of [dWq, Wq][Wk, dWk]' from the core of two QR factors."""
    left: Any = np.linalg.qr(np.concatenate([dwq, wq], axis=1), mode="r")
    right: Any = np.linalg.qr(np.concatenate([wk, dwk], axis=1), mode="r")
    core = left @ right.T
    if not np.isfinite(core).all():
        return math.nan, math.nan, math.nan
    power = np.square(np.linalg.svd(core, compute_uv=False).astype(np.float64))
    total = float(power.sum())
    if total == 0.0:
        return 0.0, 0.0, 0.0
    p = power / total
    entropy = float(-(p * np.log(np.where(p > 0, p, 1.0))).sum())
    return entropy, total**0.5, total / float(power.max())


def router(name: str, weight: Any, shares: Sequence[float] | None = None) -> dict[str, float]:
    """Signals of a router from its weight [experts, d], and of what part of the tokens each expert had. Raises
    ShardError."""
    w = whole(name, weight).astype(np.float64)
    unit = w / np.maximum(np.linalg.norm(w, axis=1, keepdims=True), 1e-30)
    experts, middle = len(w), w.mean(axis=0)
    alike = (experts * float(np.square(unit.mean(axis=0)).sum()) - 1.0) / (experts - 1) if experts > 1 else 1.0
    spread = float(np.linalg.norm(w - middle, axis=1).max() / max(float(np.linalg.norm(middle)), 1e-30))
    found = {"router_similarity": alike, "router_conditioning": spread, "router_experts": float(experts)}
    if shares is not None:
        even = np.asarray(shares, np.float64) * experts
        found |= {"router_load_max": float(even.max()), "router_load_cv": float(even.std())}
        found["router_dead"] = float((even < 0.1).sum())
    return found


def norms(
    parts: Sequence[Any], before: Sequence[Any] = (), reduce: Callable[[float], float] = float
) -> dict[str, float]:
    """Norm of a layer's weights, and with those of before the step of its update. Any shards will do, flat ones too:
    ``reduce`` sums a number over the ranks that hold the others (as an all_reduce does)."""
    weight = reduce(sum(float(np.square(_flat(part)).sum()) for part in parts)) ** 0.5
    if not before:
        return {"weight_norm": weight}
    moved = reduce(sum(float(np.square(_flat(a) - _flat(b)).sum()) for a, b in zip(parts, before, strict=True))) ** 0.5
    return {"weight_norm": weight, "update_norm": moved, "update_ratio": moved / max(weight, 1e-30)}


def _flat(part: Any) -> Any:
    if hasattr(part, "to_local"):
        part = part.to_local()
    if hasattr(part, "detach"):
        part = part.detach().float().cpu().numpy()
    return np.asarray(part, np.float64).ravel()


class Callback:
    """Tells of one rank. ``share``: the most of the wall time that its monitors may take. Layers take turns: of each
    step at most one is looked at, and none while that would cost too much. Weights that are gathered (DTensor) are
    looked at every so many steps instead: all ranks must agree, as each would wait for the others."""

    def __init__(
        self,
        run: str,
        job: str = "",
        rank: int | None = None,
        server: str = "",
        token: str = "",
        share: float = 0.01,
        every: int = 200,
        write: Callable[[bytes], object] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._who = {"run": run, "job": job} | ({} if rank is None else {"rank": rank})
        self._share, self._clock = share, clock
        self._began, self.spent_s = clock(), 0.0
        self._turn, self._cost, self._every = 0, 0.0, every
        self._held: dict[str, Any] = {}
        self._last = self._began
        self.lost = 0
        self._rows: queue.Queue[bytes] = queue.Queue(MOST_WAITING)
        self._write = write or self._rows_put
        if server and not server.startswith(("http://", "https://")):
            raise ValueError(f"server is no http address: {server!r}; write it as http://watch:8000")
        if write is None and server:
            self._url, self._token = f"{server.rstrip('/')}/api/v1/ingest/steps", token
            threading.Thread(target=self._send, name="watchkeeper", daemon=True).start()

    def before(self, step: int, layers: Mapping[str, tuple[Any, Any]], heads: int, kv_heads: int = 0) -> None:
        """Before the optimizer's step: remember Q and K of the layer whose turn it is."""
        began = self._clock()
        gathered = any(hasattr(weight, "full_tensor") for pair in layers.values() for weight in pair)
        turn = step // self._every if gathered else self._turn
        name = sorted(layers)[turn % len(layers)] if layers else ""
        self._held = {}
        free = self.spent_s + self._cost <= self._share * (began - self._began)
        if name and (step % self._every == 0 if gathered else free):
            self._turn += 1
            q, k = (np.array(whole(f"layer {name}.{p}", w)) for p, w in zip("qk", layers[name], strict=True))
            self._held = {"name": name, "before": (q, k), "heads": heads, "kv_heads": kv_heads}
        self.spent_s += self._clock() - began

    def after(self, step: int, layers: Mapping[str, tuple[Any, Any]] | None = None, **signals: Any) -> None:
        """After it: one row of the run (loss, grad_norm, any signal), and one of the layer that was remembered."""
        now = self._clock()
        length, self._last = now - self._last, now
        self.tell(step, step_time_s=signals.pop("step_time_s", length), **signals)
        held, self._held = self._held, {}
        if held and layers and held["name"] in layers:
            name = held["name"]
            found = attention(f"layer {name}", held["before"], layers[name], held["heads"], held["kv_heads"])
            self.tell(step, layer=name, **found)
            self._cost = self._clock() - now
        self.spent_s += self._clock() - now

    def tell(self, step: int, **signals: Any) -> None:
        """One row, as ingest/steps takes it."""
        row = {"ts": time.time(), **self._who, "step": int(step), **{n: _plain(v) for n, v in signals.items()}}
        self._write(json.dumps({n: v for n, v in row.items() if v not in (None, "")}).encode() + b"\n")

    @property
    def share(self) -> float:
        """What the monitors took of the time so far."""
        return self.spent_s / max(self._clock() - self._began, 1e-9)

    def _rows_put(self, row: bytes) -> None:
        while True:
            try:
                self._rows.put_nowait(row)
                return
            except queue.Full:
                self.lost += 1
                self._rows.get_nowait()

    def _send(self) -> None:
        """Send what waits, for as long as the job runs; training never waits for it."""
        held: list[bytes] = []
        while True:
            time.sleep(SEND_EVERY_S)
            while not self._rows.empty() and len(held) < MOST_WAITING:
                held.append(self._rows.get_nowait())
            if not held:
                continue
            headers = {"Content-Type": "application/x-ndjson"}
            headers |= {"Authorization": f"Bearer {self._token}"} if self._token else {}
            body = b"".join(held)
            try:
                asked = urllib.request.Request(self._url, body, headers)
                urllib.request.urlopen(asked, timeout=TIMEOUT_S).close()  # nosec B310: http or https, see __init__
                held = []
            except OSError as error:
                if getattr(error, "code", 500) in (400, 422):
                    held = []  # what it will never take is not sent again


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value
