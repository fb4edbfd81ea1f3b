"""Made-up failures that no rule names: what a site's own storage, launcher and data say, in many wordings."""

from __future__ import annotations

import random
from collections.abc import Iterator

from detectors.joblog.learned import Example

#: Class to wordings; {n} a number, {p} a path, {h} a host.
SAYINGS = {
    "storage_service_error": (
        "blobgate: put of part {n} refused by frontend {h}: slow down budget spent",
        "blobgate: giving up on shard {p} after {n} tries: frontend says slow down",
        "uploader stopped: blobgate frontend {h} closed the stream at part {n}",
        "blobgate session {n} expired while listing {p}, upload failed",
    ),
    "network_link_error": (
        "ringmaster: lane {n} to {h} flapped, dropping the ring, peers unreachable",
        "ringmaster: {n} lanes lost to {h}, ring cannot be rebuilt",
        "ring rebuild {n} failed: lane to {h} reports symbol errors",
        "ringmaster gave up on ring {n}: no lane to {h} left",
    ),
    "user_code_exception": (
        "curriculum: stage {n} has an empty mixture, sampler stuck",
        "sampler: mixture weights of stage {n} sum to zero, cannot draw from {p}",
        "curriculum stage {n} asks for a bucket that tokenizer {p} does not know: invalid bucket",
        "sampler stuck at stage {n}: empty mixture, nothing to draw",
    ),
}
#: What every failing job of this site prints, whatever it died of.
COMMON = (
    "launcher: rank {n} left with status 1, signalling the others",
    "launcher: job failed, collecting {n} exit codes from {h}",
    "WARNING telemetry exporter on {h} lost {n} spans",
    "epilogue: node {h} freed, {p} kept",
)


def line(random_: random.Random, wording: str) -> str:
    number = random_.randint(1, 9999)
    return wording.format(n=number, p=f"/scratch/u{number}/part-{number:05d}", h=f"gpu-{number:04d}.cluster.local")


def failure(cause: str, seed: int, wordings: tuple[str, ...] | None = None) -> str:
    """An excerpt: what every job says, and some sayings of its cause between."""
    random_ = random.Random(f"{cause}{seed}")
    own = random_.sample(wordings or SAYINGS[cause], 2)
    told = [line(random_, wording) for wording in (*random_.sample(COMMON, 3), *own)]
    random_.shuffle(told)
    return "\n".join("  " + one for one in told)


def failures(each: int, causes: tuple[str, ...] = tuple(SAYINGS), start: int = 0) -> Iterator[Example]:
    for cause in causes:
        for seed in range(start, start + each):
            yield Example(failure(cause, seed), cause, f"{cause} {seed}", f"job:{cause}-{seed}", cause)
