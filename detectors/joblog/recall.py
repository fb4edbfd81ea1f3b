"""A learnt model as one file, and the verdict that it gives where no rule names the cause."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Mapping

import numpy as np

from detectors.joblog.excerpt import excerpt_of
from detectors.joblog.learned import Artefact, Likeness, Model, Past
from detectors.joblog.reading import Sheet
from detectors.joblog.rules import UNKNOWN, LogClass
from detectors.joblog.verdict import Verdict, resembling

#: Name of the array that holds the facts, JSON in UTF-8.
FACTS = "facts"
#: A file larger than this is none of ours: 600 failures take a few megabytes.
MOST_BYTES = 256 << 20


def to_file(artefact: Artefact, version: int) -> bytes:
    """Arrays and facts as one npz without objects, so never a pickle."""
    out = io.BytesIO()
    words = json.dumps({**artefact.facts, "version": version}).encode()
    held = {**artefact.arrays, FACTS: np.frombuffer(words, np.uint8)}
    np.savez_compressed(out, allow_pickle=False, **held)
    return out.getvalue()


def from_file(blob: bytes) -> Model:
    """Raises ValueError for what is no such file, or of another layout."""
    if not blob.startswith(b"PK") or len(blob) > MOST_BYTES:
        raise ValueError("it is no model of job logs; fetch one from a server: GET /api/v1/labels/model/file")
    try:
        with zipfile.ZipFile(io.BytesIO(blob)) as packed:
            if sum(member.file_size for member in packed.infolist()) > MOST_BYTES:
                raise ValueError("it unpacks to more than a model of job logs holds")
        with np.load(io.BytesIO(blob), allow_pickle=False) as saved:
            arrays = {name: saved[name] for name in saved.files}
        facts = json.loads(arrays.pop(FACTS).tobytes())
        return Model.of(Artefact(arrays, facts), int(facts.get("version", 0)))
    except (KeyError, TypeError, AttributeError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"it cannot be read as a model of job logs ({type(error).__name__})") from error


def excerpt_of_job(sheets: Iterable[Sheet], verdict: Verdict) -> str:
    """The telling lines of a job's logs, the culprit's first. Secrets in them are not masked yet."""
    first = verdict.first.file if verdict.first is not None else ""
    return excerpt_of(sheet.excerpt for sheet in sorted(sheets, key=lambda sheet: sheet.path != first))


def recalled(
    verdict: Verdict, excerpt: str, model: Model | None, classes: Mapping[str, LogClass]
) -> tuple[Verdict, Likeness | None]:
    """The verdict, by resemblance where no rule names the cause and the model knows it well enough; else as it was."""
    alike = model.classify(excerpt) if model is not None and verdict.log_class == UNKNOWN else None
    if alike is None or alike.log_class not in classes:
        return verdict, None
    return resembling(verdict, classes[alike.log_class], alike.probability, alike.alike), alike


def similar(excerpt: str, model: Model | None) -> tuple[Past, ...]:
    """Past failures that resemble this one, most alike first."""
    return model.nearest(excerpt) if model is not None and excerpt else ()
