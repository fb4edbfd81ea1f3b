"""Kernel lines read with what is known of their node: which driver spoke, and what a port is called elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from backend.facts import RawEvent, VersionFacts
from backend.inventory.inventory import Inventory
from detectors.kernel.nvidia import read
from detectors.kernel.nvlink import CODES

#: Namespaces whose lines may be about a port.
OF_PORTS = frozenset({"nic", "aer", "nvrm"})
#: What a reading without the driver's version leaves open.
_OPEN = ("old", "new")


def versions_said(events: Iterable[RawEvent]) -> Iterator[VersionFacts]:
    """The versions that drivers told of themselves."""
    for raw in events:
        if raw.namespace == "version" and raw.host and raw.attrs.get("version"):
            yield VersionFacts(raw.host, raw.code, raw.attrs["version"], raw.at, source="kernel")


def attrs_of(inventory: Inventory, raw: RawEvent) -> dict[str, str]:
    """What an event says, with the sub-code of an NVLink5 error as its driver lays it out, and ``nic``, the name of the
    port in telemetry, where the two are joined."""
    attrs = dict(raw.attrs)
    if raw.namespace == "xid" and raw.code.isdigit() and int(raw.code) in CODES:
        driver = inventory.driver(raw.host)
        again = read(raw.text, driver) if driver else None
        if again is not None and again.code == raw.code:
            attrs = {key: value for key, value in attrs.items() if key not in _OPEN} | dict(again.attrs)
            attrs["driver_version"] = str(driver)
    if raw.namespace in OF_PORTS and (port := inventory.port(raw.host, raw.pci, attrs)):
        attrs["nic"] = port
    return attrs
