"""A process that carries out what waits on a real Slurm until it is killed: FOLDER, SLURM_CONF."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from backend import orders
from backend.clock import SystemClock
from backend.registry import build
from backend.settings import Cluster, Policy, Settings, Slurm, Store


def settings_of(folder: Path, conf: str) -> Settings:
    """Act mode with guards that let every order of this test through: what is tested is that each happens once."""
    wide = Policy(
        max_out_share=1, max_out_share_rack=1, max_out_share_partition=1, cooldown_s=0, lease_s=1, fresh_s=600
    )
    return Settings(
        mode="act",
        store=Store(folder=folder),
        cluster=(Cluster(name="main", slurm=Slurm(conf=conf, accounting=False)),),
        policy=wide,
    )


def main(folder: Path, conf: str) -> None:
    parts = build(settings_of(folder, conf), SystemClock())
    watch = parts.watches["main"]
    print("carrying out", flush=True)
    while True:
        if not orders.act(watch):
            time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
