"""What a proxy in front says: who the client is, and who is signed in there. Believed of its own addresses only."""

from __future__ import annotations

import ipaddress
import re
from typing import Protocol

from backend.auth import Vouched, role_of
from backend.settings_identity import Proxy

#: The common name in the subject of a certificate, in either order and with either separator (RFC 4514, OpenSSL).
COMMON_NAME = re.compile(r"(?:^|[,/])\s*CN\s*=\s*([^,/+]+)", re.IGNORECASE)


class Headers(Protocol):
    """Headers of a request; a name may stand there more than once."""

    def getlist(self, key: str) -> list[str]: ...


def is_trusted(rules: Proxy | None, peer: str | None) -> bool:
    """True where ``peer``, the other end of the connection itself, is a proxy whose headers are believed."""
    if rules is None or not peer:
        return False
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return any(mapped in ipaddress.ip_network(one, strict=False) for one in rules.trusted)


def client_address(rules: Proxy | None, peer: str | None, headers: Headers) -> str:
    """Address of the client: the peer itself, or what a believed proxy added last to its header; entries before that
    one come from the client and may say anything."""
    if rules is None or not is_trusted(rules, peer):
        return peer or ""
    said = [one.strip() for line in headers.getlist(rules.forwarded) for one in line.split(",")]
    return said[-1].strip("[]")[:64] if said and said[-1] else (peer or "")


def vouched(rules: Proxy | None, peer: str | None, headers: Headers) -> Vouched | None:
    """Who is signed in at the proxy; None where it says nobody, or is none of ours. A header that comes twice is
    believed in neither form."""
    if rules is None or not is_trusted(rules, peer):
        return None
    name = _one(headers, rules.user_header) or _of_certificate(rules, headers)
    if not name or not name.isprintable() or len(name) > 64:
        return None
    groups = [group.strip() for group in _one(headers, rules.groups_header).split(",") if group.strip()]
    return Vouched("proxy", name, name, role_of(rules, groups))


def _of_certificate(rules: Proxy, headers: Headers) -> str:
    """The common name of a client certificate that the proxy verified."""
    if not rules.certificate_header or _one(headers, rules.verified_header) != "SUCCESS":
        return ""
    found = COMMON_NAME.findall(_one(headers, rules.certificate_header))
    return found[0].strip() if len(found) == 1 else ""


def _one(headers: Headers, name: str) -> str:
    said = headers.getlist(name) if name else []
    return said[0].strip() if len(said) == 1 else ""
