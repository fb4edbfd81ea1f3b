"""classify --model: past failures that people named, from a file or a running server, beside what the rules say."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.commands.ask import AskError, ask
from backend.security.redact import redact
from detectors.joblog.learned import Model
from detectors.joblog.outcome import RESEMBLANCE
from detectors.joblog.reading import Sheet
from detectors.joblog.recall import excerpt_of_job, from_file, recalled, similar
from detectors.joblog.rules import CLEAN, UNKNOWN, LogClass
from detectors.joblog.verdict import Verdict

#: What only a model adds to the object of a path.
RULES = "rules"


@dataclass(slots=True)
class Memory:
    """A model, and ``told``: what it added to the last verdict (by, model, similar)."""

    model: Model
    told: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Memory:
        """The model that was asked for: a file, or the newest of a running server. Raises OSError, ValueError."""
        where = str(arguments.model)
        if not where.startswith(("http://", "https://")):
            return cls(from_file(Path(where).read_bytes()))
        asked = argparse.Namespace(server=where, token_file=arguments.token_file, cluster=arguments.cluster)
        try:
            return cls(from_file(ask(asked, "labels/model/file", "application/octet-stream").content))
        except AskError as error:
            raise ValueError(str(error)) from error

    def recall(self, verdict: Verdict, sheets: Sequence[Sheet], classes: Mapping[str, LogClass]) -> Verdict:
        """The verdict, by resemblance where no rule names the cause; past failures that resemble it go to ``told``."""
        excerpt = redact(excerpt_of_job(sheets, verdict))
        past = similar(excerpt, self.model) if verdict.log_class != CLEAN else ()
        verdict, alike = recalled(verdict, excerpt, self.model, classes)
        self.told = {
            "by": RULES if alike is None else RESEMBLANCE,
            "model": self.model.version,
            "similar": [{"cause": p.cause or UNKNOWN, "ref": p.ref, "line": p.line, "cosine": p.cosine} for p in past],
        }
        return verdict
