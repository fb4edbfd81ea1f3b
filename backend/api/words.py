"""Texts that people and programs send: what no database, scheduler or page can take is refused here."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, StringConstraints
from pydantic_core import PydanticCustomError

from backend.clients import hostlist

#: Longest reason or remark, in characters; a note has its own limit.
REASON_MAX = 1000


def _storable(text: str) -> str:
    """No control characters but line ends and tabs, and no halves of surrogate pairs."""
    bad = next((c for c in text if (c < " " and c not in "\n\r\t") or "\ud800" <= c <= "\udfff"), None)
    if bad is not None:
        raise PydanticCustomError("text", "holds {bad}, which is no text", {"bad": f"U+{ord(bad):04X}"})
    return text


def _host(name: str) -> str:
    if not hostlist.is_host(name):
        raise PydanticCustomError("host", "must be a host name: letters, digits, - _ and . only")
    return name


Host = Annotated[str, StringConstraints(min_length=1, max_length=hostlist.MAX_NAME), AfterValidator(_host)]
Reason = Annotated[str, StringConstraints(min_length=1, max_length=REASON_MAX), AfterValidator(_storable)]
Remark = Annotated[str, StringConstraints(max_length=REASON_MAX), AfterValidator(_storable)]
#: A text of any length; where it is used says how long it may be.
Text = Annotated[str, AfterValidator(_storable)]
