"""Names of jobs that are tried again: what people and launchers add to a name, and names that say nothing."""

from __future__ import annotations

import re

#: Names that tools and habit give; equal ones say nothing.
COMMON_NAMES = frozenset(
    ("", "bash", "sh", "zsh", "wrap", "interactive", "python", "python3", "jupyter", "notebook", "sbatch", "srun")
    + ("salloc", "allocation", "test", "debug", "hostname", "sleep", "nvidia-smi")
)

_RETRY = re.compile(r"[-_.](?:retry|restart|resume|resumed|attempt|try|rerun|cont|continue)[-_.]?\d*$", re.IGNORECASE)


def stem(name: str) -> str:
    """A name without what people add when they try again: ``pretrain-retry2`` is ``pretrain``."""
    return _RETRY.sub("", name)


def telling(name: str) -> bool:
    """Whether jobs of one name may be one another's retries."""
    return name.lower() not in COMMON_NAMES and not name.startswith("sys/")
