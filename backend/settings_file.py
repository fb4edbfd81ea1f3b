"""Reads the configuration: TOML files, environment and secret files become a tree that knows where each key stands."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, SecretStr
from pydantic.fields import FieldInfo

PREFIX = "WATCHKEEPER_"
INCLUDE = "include"
ENVIRONMENT = "environment"
#: No secret is longer; a larger file is the wrong one.
SECRET_MAX_BYTES = 65_536

Place = tuple[str | int, ...]


class Section(BaseModel):
    """Unknown keys stop the start; nothing changes after it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing wrong. ``where`` is a file (with a line where known) or an environment variable."""

    key: str
    where: str
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.where}: {self.key + ' ' if self.key else ''}{self.what}. {self.fix}".rstrip()


class SettingsError(Exception):
    """The configuration cannot be used; lists every mistake with its fix, and no secret."""

    def __init__(self, *mistakes: Mistake) -> None:
        count = len(mistakes)
        head = "a mistake in the configuration" if count == 1 else f"{count} mistakes in the configuration"
        super().__init__("\n  ".join([f"{head}:", *map(str, mistakes)]))
        self.mistakes = mistakes


@dataclass(slots=True)
class Tree:
    """Nested values as TOML gives them, and for each place the file or variable it came from."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[Place, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    folders: dict[str, Path] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def where(self, place: Place) -> str:
        """File and line, or variable, of this place or of the nearest one around it."""
        for length in range(len(place), -1, -1):
            if origin := self.origins.get(place[:length]):
                line = line_of(self.texts.get(origin, ""), place) or line_of(self.texts.get(origin, ""), place[:length])
                return f"{origin}:{line}" if line else origin
        return next(iter(self.texts), "defaults")

    def wrong(self, place: Place, what: str, fix: str, where: str = "") -> None:
        self.mistakes.append(Mistake(dotted(place), where or self.where(place), what, fix))


def read(path: Path | None, environ: Mapping[str, str], shape: type[BaseModel]) -> Tree:
    """Files, then the environment on top, then secrets from their files. Raises SettingsError where a file is no TOML.

    shape: says which keys exist; mistakes that can be told without it are gathered in the tree.
    """
    tree = Tree()
    if path is not None:
        _read_files(tree, path)
    _read_environ(tree, environ, shape)
    _read_secrets(tree, tree.values, shape, ())
    return tree


def dotted(place: Place) -> str:
    """``cluster[0].slurm.cli``."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


# --- files ----------------------------------------------------------------------------------------------------------


def _read_files(tree: Tree, path: Path) -> None:
    text, top = _parsed(path)
    names = top.pop(INCLUDE, [])
    _take(tree, path, text, top)
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        tree.wrong((INCLUDE,), "is not a list of file names", 'Write include = ["policy.toml"].', str(path))
        return
    for name in names:
        other = path.parent / name
        text, more = _parsed(other, f"It is included by {path}.")
        if INCLUDE in more:
            del more[INCLUDE]
            tree.wrong((INCLUDE,), "stands in an included file", f"Name every file in {path}.", str(other))
        _take(tree, other, text, more)


def _parsed(path: Path, note: str = "") -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        return text, tomllib.loads(text)
    except OSError as error:
        fix = f"Name a file that can be read. {note}".rstrip()
        raise SettingsError(Mistake("", str(path), f"cannot be read: {error.strerror}", fix)) from error
    except UnicodeDecodeError as error:
        what = f"is not UTF-8 (byte {error.start + 1})"
        raise SettingsError(Mistake("", str(path), what, "Save it as UTF-8.")) from error
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        where = f"{path}:{place[1]}" if place else str(path)
        what = "is no TOML: " + re.sub(r" \(at .*\)$", "", str(error)).lower()
        raise SettingsError(Mistake("", where, what, "Texts stand in quotes; a [table] stands once.")) from error


def _take(tree: Tree, path: Path, text: str, values: dict[str, Any]) -> None:
    origin = str(path)
    tree.texts[origin], tree.folders[origin] = text, path.parent
    tree.origins.setdefault((), origin)
    _merge(tree, tree.values, values, (), origin)


def _merge(tree: Tree, into: dict[str, Any], more: Mapping[str, Any], place: Place, origin: str) -> None:
    """Tables join, lists of tables follow each other, and the same key twice is a mistake: nobody could tell which."""
    for key, value in more.items():
        here = (*place, key)
        known = into.get(key)
        if key not in into:
            into[key] = value
            _remember(tree, value, here, origin)
        elif isinstance(known, dict) and isinstance(value, dict):
            _merge(tree, known, value, here, origin)
        elif isinstance(known, list) and _is_tables(known) and _is_tables(value):
            for entry in value:
                _remember(tree, entry, (*here, len(known)), origin)
                known.append(entry)
        else:
            tree.wrong(here, f"is set here and in {tree.where(here)}", "Keep one of the two.", origin)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def _remember(tree: Tree, value: object, place: Place, origin: str) -> None:
    tree.origins[place] = origin
    pairs: Iterator[tuple[str | int, object]] = iter(())
    if isinstance(value, dict):
        pairs = iter(value.items())
    elif isinstance(value, list):
        pairs = iter(enumerate(value))
    for key, inner in pairs:
        _remember(tree, inner, (*place, key), origin)


def line_of(text: str, place: Place) -> int | None:
    """The line (from 1) where a key or table stands in a TOML text; None where it is written in another way."""
    current: Place = ()
    counts: dict[Place, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[\[?)\s*([^\]]+?)\s*\]", line):
            current = _entered(header[2], header[1] == "[[", counts)
            if place and current == place:
                return number
        elif (key := re.match(r"\s*([\w-]+|\"[^\"]*\")\s*=", line)) and (*current, key[1].strip('"')) == place:
            return number
    return None


def _entered(name: str, many: bool, counts: dict[Place, int]) -> Place:
    """The place of a [table] or [[list of tables]] header; a list's last entry is the one that later headers are in."""
    place: Place = ()
    parts = [part.strip().strip("\"'") for part in name.split(".")]
    for position, part in enumerate(parts):
        place = (*place, part)
        if many and position == len(parts) - 1:
            counts[place] = counts.get(place, -1) + 1
        if place in counts:
            place = (*place, counts[place])
    return place


# --- environment and secrets ----------------------------------------------------------------------------------------


def _read_environ(tree: Tree, environ: Mapping[str, str], shape: type[BaseModel]) -> None:
    """Scalars as WATCHKEEPER_SECTION__KEY. Others of that prefix are left alone: Kubernetes sets some for a service."""
    for name in sorted(environ):
        place = tuple(name.removeprefix(PREFIX).lower().split("__"))
        if not name.startswith(PREFIX) or (len(place) == 1 and place[0] not in fields(shape)):
            continue
        _set_scalar(tree, place, environ[name], shape, f"{ENVIRONMENT} {name}")


def _set_scalar(tree: Tree, place: tuple[str, ...], value: str, shape: type[BaseModel], origin: str) -> None:
    model, into = shape, tree.values
    for part in place[:-1]:
        inner, many = section_of(fields(model).get(part))
        if inner is None or many:
            what = "lies in a list of tables" if many else "is no key of ours"
            return tree.wrong(place, what, "The environment sets scalars of plain tables only; use a file.", origin)
        model, into = inner, into.setdefault(part, {})
        if not isinstance(into, dict):
            return tree.wrong(place, f"lies in {part}, which the file makes no table", "Mend the file.", origin)
    found = field_of(model, place[-1])
    if found is not None and not is_scalar(found):
        return tree.wrong(place, "is no scalar", "The environment sets scalars only; use a file.", origin)
    if found is not None and is_secret(found):  # of the two ways to say it, the environment's replaces the file's
        base = place[-1].removesuffix("_file")
        for other in (base, f"{base}_file"):
            if not tree.origins.get((*place[:-1], other), "").startswith(ENVIRONMENT):
                into.pop(other, None)
    into[place[-1]] = value
    tree.origins[place] = origin
    return None


def _read_secrets(tree: Tree, values: dict[str, Any], shape: type[BaseModel], place: Place) -> None:
    """``password_file = "/run/secrets/smtp"`` becomes ``password`` with the file's text, less its last newline."""
    for key, found in fields(shape).items():
        inner, many = section_of(found)
        below = values.get(key)
        if inner is not None:
            for index, entry in enumerate(below if many and isinstance(below, list) else [below]):
                if isinstance(entry, dict):
                    _read_secrets(tree, entry, inner, (*place, key, index) if many else (*place, key))
        elif is_secret(found) and f"{key}_file" in values:
            _read_secret(tree, values, key, place)


def _read_secret(tree: Tree, values: dict[str, Any], key: str, place: Place) -> None:
    here = (*place, f"{key}_file")
    name, origin = values.pop(f"{key}_file"), tree.origins.get(here, "")
    if key in values:
        return tree.wrong(here, f"stands beside {key}", "Keep one of the two.")
    if not isinstance(name, str) or not name:
        return tree.wrong(here, "is no file name", "Write the path of a file that holds the secret.")
    path = tree.folders.get(origin, Path()) / name
    try:
        with path.open("rb") as file:
            text = file.read(SECRET_MAX_BYTES).decode("utf-8").rstrip("\r\n")
    except OSError as error:
        return tree.wrong(here, f"names {path}, which cannot be read: {error.strerror}", "Name a readable file.")
    except UnicodeDecodeError:
        return tree.wrong(here, f"names {path}, which is not text", "Name the file that holds the secret.")
    if not text:
        return tree.wrong(here, f"names {path}, which is empty", "Write the secret into it.")
    values[key] = text
    tree.origins[(*place, key)] = origin
    return None


# --- the shape ------------------------------------------------------------------------------------------------------


def fields(shape: type[BaseModel]) -> dict[str, FieldInfo]:
    """Keys as they are written (an alias before the name)."""
    return {found.alias or name: found for name, found in shape.model_fields.items()}


def field_of(shape: type[BaseModel], key: str) -> FieldInfo | None:
    """The field of a key; ``password_file`` is the field ``password``."""
    known = fields(shape)
    return known.get(key) or known.get(key.removesuffix("_file"))


def section_of(found: FieldInfo | None) -> tuple[type[BaseModel] | None, bool]:
    """The table that a key holds, and whether it is a list of them."""
    annotation: Any = found.annotation if found is not None else None
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind, get_origin(annotation) is tuple
    return None, False


def is_secret(found: FieldInfo) -> bool:
    extra = found.json_schema_extra
    return SecretStr in (found.annotation, *get_args(found.annotation)) or (
        isinstance(extra, dict) and bool(extra.get("secret"))
    )


def is_scalar(found: FieldInfo) -> bool:
    return section_of(found)[0] is None and get_origin(found.annotation) not in (tuple, dict)
