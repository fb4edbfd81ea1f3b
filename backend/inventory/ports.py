"""What a port is called: by its PCI address in the kernel, by its name in InfiniBand, by its interface."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from detectors.kernel.code import function_of
from detectors.kernel.lines import normal_pci

#: The item of the ledger under which a device of a node has its address.
ADDRESS = "pci"
#: Attributes of a kernel line that name a port.
NAMES = ("device", "name", "port", "ready", "hfi")


def address(text: str) -> str:
    """``0000:5c:00`` for the first port of a card, ``0000:5c:00.1`` for its second; empty for what is no address."""
    pci, function = normal_pci(text), function_of(text)
    return f"{pci}.{function}" if pci and function else pci


def port_named(addresses: Mapping[str, str], attrs: Mapping[str, str], pci: str, known: Collection[str]) -> str:
    """The name in ``known`` of the port that a line is about, "" where nothing joins the two. ``addresses``: each
    device of the node with its address; a line names an address, or a device with the same one."""
    function = attrs.get("function", "")
    said = [attrs[key] for key in NAMES if attrs.get(key) and not attrs[key].isdigit()]
    at = {f"{pci}.{function}" if function else pci} if pci else {addresses[name] for name in said if name in addresses}
    return next(iter(sorted({*_called(addresses, at), *said} & set(known))), "")


def _called(addresses: Mapping[str, str], at: Collection[str]) -> Iterator[str]:
    return (name for name, where in addresses.items() if where in at)
