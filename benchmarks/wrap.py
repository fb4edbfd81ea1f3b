"""The job wrapper against the smallest wrapper that there can be, and what passes through it against tee."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from backend.wrap import pyz
from benchmarks.ratio import Ratio, measure

PAIRS, STREAMS, LONGEST_S = 40, 7, 60.0
#: A wrapper that only hands the command on.
BARE = "import subprocess, sys\nsys.exit(subprocess.call(sys.argv[1:]))\n"
#: What is passed through, in MiB.
MIB = 256
LINE = "step 120 | loss 2.31 | grad norm 0.41 | tokens/s 40211" + 70 * "."
WRITER = f"""
import os
block = b'{LINE}\\n' * 512
for _ in range({MIB} * 2**20 // len(block)):
    os.write(1, block)
"""


def run() -> Iterator[Ratio]:
    """Promises: a start at most twice the bare wrapper's, as a package and as one file; not slower than tee by half."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        one, bare, writer = folder / "watchkeeper-wrap.pyz", folder / "bare.py", folder / "writer.py"
        pyz.build(str(one))
        bare.write_text(BARE)
        writer.write_text(WRITER)
        root = str(Path(__file__).resolve().parent.parent)
        peer = starter(folder, sys.executable, str(bare), "true")
        module = starter(folder, sys.executable, "-m", "backend.wrap", "--", "true", path=root)
        yield measure("wrap true", "a bare wrapper around true", module, peer, n=PAIRS)
        file = starter(folder, sys.executable, str(one), "--", "true")
        yield measure("watchkeeper-wrap.pyz true", "a bare wrapper around true", file, peer, n=PAIRS)
        writes = (sys.executable, str(writer))
        through = starter(folder, sys.executable, "-m", "backend.wrap", "--", *writes, path=root)
        teed = starter(folder, "sh", "-c", '"$@" | tee log > /dev/null', "sh", *writes)
        yield measure(f"{MIB} MiB through wrap", "through tee", through, teed, n=STREAMS, warm=1)


def starter(folder: Path, *command: str, path: str = "") -> Callable[[], object]:
    """One whole process, its output thrown away."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": path}
    return lambda: subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=LONGEST_S,
    )
