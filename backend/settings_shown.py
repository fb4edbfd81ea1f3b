"""The configuration as it is in force: each key with its value, where that came from, and what it means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from backend.security.redact import redact
from backend.settings import Settings
from backend.settings_file import Place, dotted, fields, is_secret, section_of

HIDDEN = "set, hidden"
DEFAULT = "default"
#: Values of tables whose text may be a secret whatever its key says.
SECRET_TABLES = ("headers", "loki_headers")
LONGEST = 400


@dataclass(frozen=True, slots=True)
class Shown:
    """``key`` as it is written (``cluster[0].slurm.cli``); ``origin``: file and line, environment variable, command
    line, or default. A secret's value only says whether it is set."""

    key: str
    value: str
    origin: str
    meaning: str
    secret: bool = False

    @property
    def ours(self) -> bool:
        """Whether somebody here set it."""
        return self.origin != DEFAULT


def shown(settings: Settings) -> tuple[Shown, ...]:
    """Every key that holds a value, in the order of the reference; no secret is in it."""
    return tuple(_of(settings, (), settings.origins))


def _of(section: BaseModel, place: Place, origins: dict[str, str]) -> Iterator[Shown]:
    for key, found in fields(type(section)).items():
        name = next(n for n, f in type(section).model_fields.items() if f is found)
        value, here = getattr(section, name), (*place, key)
        inner, many = section_of(found)
        if inner is not None and many:
            for index, entry in enumerate(value):
                yield from _of(entry, (*here, index), origins)
        elif isinstance(value, BaseModel):
            yield from _of(value, here, origins)
        elif inner is None:
            origin = _origin(here, origins)
            secret = is_secret(found)
            yield Shown(dotted(here), _text(value, key, secret), origin, found.description or "", secret)


def _origin(place: Place, origins: dict[str, str]) -> str:
    """Where this key was set; a list or table of values stands where its entries do."""
    name = dotted(place)
    for said in (name, f"{name}_file"):
        if said in origins:
            return origins[said]
    return DEFAULT


def _text(value: Any, key: str, secret: bool) -> str:
    """A value in the words of TOML, masked."""
    if secret or isinstance(value, SecretStr):
        return HIDDEN if value else "not set"
    if isinstance(value, dict) and key in SECRET_TABLES:
        return ", ".join(f"{name}: hidden" for name in value) or "empty"
    text = _words(value)
    return redact(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")


def _words(value: Any) -> str:
    if value is None or value == "":
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return ", ".join(_words(one) for one in value) or "empty"
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_words(one)}" for name, one in value.items()) or "empty"
    return str(value) if isinstance(value, str | int | Path) else repr(value)
