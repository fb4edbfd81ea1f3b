"""How well the detectors do on simulated clusters that no test uses: each replayed, all pooled in one table.

``python -m benchmarks.score --help`` says how many and how large.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from backend.ingest.bundle.bundle import open_bundle
from backend.replay.run import replay
from backend.score.as_data import as_json
from backend.score.pool import Part, pooled
from backend.score.report import as_table
from backend.score.rows import read_output, read_topology, read_truth
from backend.score.scoring import Score, score
from backend.simulate.recording.record import Wish, record
from detectors.catalogue import Catalogue, load

#: Seeds from here on are nobody's example: tests take small ones.
FIRST = 70_001


def part_of(seed: int, wish: Wish, catalogue: Catalogue, folder: Path) -> Part:
    """One simulated cluster, replayed; its files are gone afterwards."""
    bundle, out = folder / f"seed-{seed}", folder / f"out-{seed}"
    record(bundle, wish, lambda what, share: None)
    summary = replay(open_bundle(bundle), out, catalogue)
    told = read_output(out)
    above, gpus = read_topology(bundle / "topology.json")
    truth = read_truth(bundle / "truth.jsonl")
    shutil.rmtree(bundle)
    return Part(told.findings, told.incidents, truth, above, gpus, (summary["begin"], summary["end"]))


def scored(parts: dict[str, Part], catalogue: Catalogue) -> Score:
    whole = pooled(parts)
    return score(whole.findings, whole.incidents, whole.truth, whole.above, whole.span, whole.gpus, catalogue.kinds)


def main(words: list[str]) -> int:
    asked = argparse.ArgumentParser(prog="python -m benchmarks.score", description=__doc__)
    asked.add_argument("--seeds", type=int, default=8, help="how many clusters (default: 8)")
    asked.add_argument("--first", type=int, default=FIRST, help=f"the first seed (default: {FIRST})")
    asked.add_argument("--scenario", default="mixed", help="as for simulate (default: mixed)")
    asked.add_argument("--nodes", type=int, default=16, help="nodes of each (default: 16)")
    asked.add_argument("--gpus", type=int, default=8, help="GPUs of a node (default: 8)")
    asked.add_argument("--hours", type=float, default=8.0, help="hours of each (default: 8)")
    asked.add_argument("--out", type=Path, help="keep the outputs of the replays, and score.json, in this folder")
    arguments = asked.parse_args(words)
    catalogue, parts = load(), {}
    with tempfile.TemporaryDirectory(prefix="watchkeeper-score-") as work:
        folder = arguments.out or Path(work)
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            began = time.monotonic()
            wish = Wish(seed, arguments.scenario, arguments.nodes, arguments.gpus, arguments.hours, 30.0)
            parts[f"s{seed}"] = part = part_of(seed, wish, catalogue, folder)
            print(
                f"seed {seed}: {len(part.truth)} faults, {len(part.incidents)} incidents, "
                f"{time.monotonic() - began:.0f} s",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        found = scored(parts, catalogue)
        if arguments.out is not None:
            (arguments.out / "score.json").write_text(json.dumps(as_json(found), indent=1))
    print(f"{arguments.seeds} seeds from {arguments.first}, {arguments.scenario}, {arguments.hours:g} h each\n")
    print(as_table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
