"""Texts that a database would refuse are mended on their way in: a NUL or half a surrogate pair becomes U+FFFD.

Log lines, labels and request bodies may hold both. PostgreSQL refuses NUL, both databases refuse lone surrogates, and
one such line must not cost the lines around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import orjson
from sqlalchemy import Connection, Engine, event

_REFUSED = re.compile("[\x00\ud800-\udfff]")
#: The escape of NUL, not the end of an escaped backslash followed by u0000.
_NUL_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
MARK = "\ufffd"


def mended(text: str) -> str:
    """``text`` as both databases store it."""
    return _REFUSED.sub(MARK, text)


def mend_parameters(engine: Engine) -> None:
    """Let every statement of this engine carry mended texts."""
    event.listen(engine, "before_cursor_execute", _mend, retval=True)


def to_json(value: object) -> str:
    """JSON text; NaN and infinities become null: PostgreSQL refuses them, SQLite would hand them to browsers."""
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    try:
        text = orjson.dumps(value, option=options).decode()
    except TypeError as error:
        if "surrogates" not in str(error):
            raise
        text = orjson.dumps(json.loads(mended(json.dumps(value, ensure_ascii=False))), option=options).decode()
    return _NUL_ESCAPE.sub(rf"\1{MARK}", text) if "\\u0000" in text else text


def _mend(
    _connection: Connection, _cursor: object, statement: str, parameters: Any, _context: object, _many: bool
) -> tuple[str, Any]:
    """parameters: one row (a tuple or dict), or a list of rows."""
    return statement, [_row(row) for row in parameters] if isinstance(parameters, list) else _row(parameters)


def _row(row: Any) -> Any:
    """A row as it is, or a copy with its refused texts mended."""
    values = row.values() if isinstance(row, Mapping) else row or ()
    if not any(isinstance(value, str) and _REFUSED.search(value) for value in values):
        return row
    if isinstance(row, Mapping):
        return {key: mended(value) if isinstance(value, str) else value for key, value in row.items()}
    return tuple(mended(value) if isinstance(value, str) else value for value in row)
