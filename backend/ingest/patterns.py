"""Which files a pattern means: paths and globs, with {host} where the name of a host stands."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from itertools import islice

from backend.ingest.leftovers import bases, is_packed

#: Files of one pattern; more are a mistake that would cost.
MOST_FILES = 20_000
HOST = "{host}"
_PARTS = re.compile(r"\{host\}|\*\*/|\*\*|\*|\?|\[!?[^\]/]+\]|.", re.DOTALL)
_MEANS = {HOST: r"(?P<host>[^/]+?)", "**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}


class Pattern:
    """One entry of ``files``. Raises ValueError where it cannot be one."""

    def __init__(self, text: str) -> None:
        if not os.path.isabs(text) or text.count(HOST) > 1:
            raise ValueError(f"{text!r} must be an absolute path, with {HOST} once at most")
        self.text = text
        self._glob = text.replace(HOST, "*")
        self.plain = not glob.has_magic(self._glob)
        self._regex = re.compile("".join(map(_meaning, _PARTS.findall(text))), re.DOTALL)

    def paths(self) -> Iterator[str]:
        """The files that are there now, without what rotation left and packed. A plain path is always meant."""
        if self.plain:
            yield self.text
            return
        for path in sorted(islice(glob.iglob(self._glob, recursive=True), MOST_FILES)):
            folder, name = os.path.split(path)
            left = is_packed(name) or any(os.path.lexists(os.path.join(folder, base)) for base in bases(name))
            if not left and path.isprintable() and not os.path.isdir(path):
                yield path

    def host(self, path: str) -> str | None:
        """The host that ``path`` names, "" where the pattern says none; None where it does not mean this path."""
        found = self._regex.fullmatch(path)
        return None if found is None else found.groupdict().get("host", "")


def _meaning(part: str) -> str:
    if part in _MEANS:
        return _MEANS[part]
    if part.startswith("[") and len(part) > 2:
        return "[" + part[1:-1].replace("\\", r"\\").replace("[", r"\[").replace("!", "^", 1) + "]"
    return re.escape(part)
