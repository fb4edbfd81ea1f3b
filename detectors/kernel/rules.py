"""Lines that a table tells: literal, then pattern from the beginning of the message; what is named in it is kept."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from detectors.kernel.code import KernelCode, function_of, kept, normal_pci
from detectors.kernel.head import KERNEL, starts
from detectors.packaged import TableError, table

#: What patterns may use by name.
PIECES: Mapping[str, str] = {
    "{pci}": r"(?P<pci>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?)",
    "{address}": r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?",
    "{any}": r".{0,300}?",
    "{word}": r"\S{1,80}",
}
#: What stands before a device in lines of its driver, by what the device is.
DEVICES: Mapping[str, frozenset[str]] = {
    "gpu": frozenset({"nvidia", "amdgpu", "NVRM"}),
    "nic": frozenset(
        {"mlx5_core", "mlx4_core", "bnxt_en", "ice", "irdma", "ionic", "efa", "hfi1", "cxgb4"}
        | {"ixgbe", "i40e", "igb", "ena", "gve"}
    ),
    "disk": frozenset({"nvme", "megaraid_sas", "mpt3sas", "ahci"}),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to say one code. programs: whose lines it reads besides the kernel's own; empty = the kernel's only.

    literals: one of them stands in every line that matches. matches, misses: examples, checked by a test.
    """

    namespace: str
    code: str
    literals: tuple[str, ...]
    pattern: str
    programs: frozenset[str]
    attrs: Mapping[str, str]
    matches: tuple[str, ...]
    misses: tuple[str, ...]
    source: str = field(default="", compare=False)

    def read(self, line: str) -> KernelCode | None:
        pattern = _compiled(self.pattern)
        for at, program in starts(line):
            found = pattern.match(line, at) if program in (self.programs or KERNEL) else None
            if found is not None:
                attrs = {name: kept(text) for name, text in found.groupdict().items() if text and name != "pci"}
                said = (found["pci"] or "") if "pci" in pattern.groupindex else ""
                pci = normal_pci(said)
                if function := function_of(said):
                    attrs["function"] = function
                return KernelCode(self.namespace, self.code, pci, kept(line[at:]), _classed(attrs | dict(self.attrs)))
        return None


def _classed(attrs: dict[str, str]) -> dict[str, str]:
    """With what sort of device its driver serves, where that is known."""
    driver = attrs.get("driver", "")
    if driver and "device_class" not in attrs:
        attrs["device_class"] = next((name for name, drivers in DEVICES.items() if driver in drivers), "other")
    return attrs


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    for name, piece in PIECES.items():
        pattern = pattern.replace(name, piece)
    return re.compile(pattern, re.DOTALL)


@cache
def packaged() -> tuple[Rule, ...]:
    """The rules of kernel_lines.toml, in the order in which they are tried."""
    return rules(tomllib.loads("\n".join(table("kernel_lines.toml")))["line"])


def rules(rows: Iterable[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Raises TableError for a row that cannot be read, and says which."""
    return tuple(map(_rule, rows))


def _rule(row: Mapping[str, Any]) -> Rule:
    where = f"kernel_lines.toml, {row.get('says', '(says nothing)')}"
    try:
        namespace, code = str(row["says"]).split()
        _compiled(row["pattern"])
        return Rule(
            namespace,
            code,
            _listed(row["literal"]),
            row["pattern"],
            frozenset(_listed(row.get("programs", ()))),
            dict(row.get("attrs", {})),
            _listed(row["matches"]),
            _listed(row.get("misses", ())),
            row.get("source", ""),
        )
    except (KeyError, ValueError, re.error) as error:
        raise TableError(f"{where}: {error} cannot be read") from error


def _listed(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
