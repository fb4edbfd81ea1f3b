"""Nothing that a seeded fault does to the service or to what it leans on breaks an invariant."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.trust import faults

pytestmark = pytest.mark.services
#: Seeds of the quick run; the slow one takes its own, FAULTS of them from FAULTS_FIRST on.
QUICK = (1, 2)
#: A new world after so many seeds, so that each starts on a database of some size and none on a huge one.
SEEDS_A_WORLD = 10


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[faults.World]:
    with faults.world(tmp_path_factory.mktemp("faults")) as found:
        yield found


@pytest.mark.parametrize("seed", QUICK)
def test_every_accepted_line_is_judged_once_whatever_happens(world: faults.World, seed: int) -> None:
    assert faults.run(world, seed)


@pytest.mark.slow
def test_many_seeds(tmp_path_factory: pytest.TempPathFactory) -> None:
    first, count = int(os.environ.get("FAULTS_FIRST", "1000")), int(os.environ.get("FAULTS", "500"))
    began, done, broken, seed = time.monotonic(), Counter[str](), list[str](), first
    while seed < first + count:
        with faults.world(tmp_path_factory.mktemp("faults")) as found:
            for _ in range(min(SEEDS_A_WORLD, first + count - seed)):
                seed += 1
                try:
                    done.update(faults.run(found, seed - 1))
                except AssertionError as error:
                    broken.append(str(error))
                    print(f"BROKEN: {error}", flush=True)
                    break
    print(f"faults: {count} seeds, {len(broken)} broken, {time.monotonic() - began:.0f} s; {dict(done)}")
    assert broken == []
