"""What the service writes to its own log: text or JSON lines, always without secrets."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Literal, TextIO

from backend.security.redact import redact

Form = Literal["text", "json"]


class Line(logging.Formatter):
    """A line a record for people; secrets masked, line ends of what strangers sent made visible."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = one_line(record.message)
        return super().formatMessage(record)


class JsonLine(logging.Formatter):
    """One JSON object a record: ts (UTC, ISO 8601), level, logger, message, and error with its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        row = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
            "thread": record.threadName,
        }
        if record.exc_info and record.exc_info[1] is not None:
            row["error"] = redact("".join(traceback.format_exception(record.exc_info[1])))
        return json.dumps(row, ensure_ascii=False)


def one_line(text: str) -> str:
    """No sender can write a line of its own into our log."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


def begin(form: Form, stream: TextIO = sys.stderr) -> None:
    """Every record from INFO on goes to ``stream``; what was set up before is replaced."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLine() if form == "json" else Line())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
