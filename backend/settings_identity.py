"""The configuration of who may do what: sign-in here, sign-in by somebody else, and the proxy in front."""

from __future__ import annotations

import ipaddress
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from backend.settings_file import Section


class Security(Section):
    session_s: float = Field(43_200.0, gt=0, description="Longest time that a sign-in lasts (12 h).")
    idle_s: float = Field(7_200.0, gt=0, description="A sign-in that nobody uses ends after this (2 h).")
    renew_s: float = Field(900.0, gt=0, description="The cookie of a sign-in is changed for a new one this often.")
    lockout_after: int = Field(5, ge=1, description="Failed sign-ins before a name waits.")
    lockout_address_after: int = Field(30, ge=1, description="Failed sign-ins, of any names, before an address waits.")
    lockout_s: float = Field(300.0, ge=0, description="How long it waits, in seconds.")
    password_min: int = Field(12, ge=8, le=128, description="Fewest characters of a password.")
    admin: str = Field("admin", min_length=1, max_length=64, description="Name of the admin made by admin_password.")
    admin_password: SecretStr | None = Field(
        None, description="Off loopback, where no admin is known yet: the first start makes one with this password."
    )


#: Which groups give which role, and which limits; the highest role that fits counts.
Groups = tuple[str, ...]


class Vouching(Section):
    """What two ways of sign-in by somebody else have in common: groups become a role."""

    admin: Groups = Field((), description="Groups whose members are admins.")
    approver: Groups = Field((), description="Groups whose members are approvers.")
    operator: Groups = Field((), description="Groups whose members are operators.")
    viewer: Groups = Field((), description="Groups whose members are viewers.")
    otherwise: Literal["", "viewer"] = Field("", description="Role of everybody else who signs in; empty: none.")


class Oidc(Vouching):
    issuer: str = Field(
        pattern=r"^(https://\S+|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?(/\S*)?)$",
        description="Issuer, as in https://login.example.com/realms/main; its discovery document says the rest.",
    )
    client_id: str = Field(
        min_length=1, description="Our id there; it must let us back to [server] url + /sign-in/oidc/back."
    )
    client_secret: SecretStr | None = Field(None, description="Our secret there; none for a public client (PKCE only).")
    scopes: tuple[str, ...] = Field(("openid", "profile", "email"), description="What is asked for.")
    name_claim: str = Field("preferred_username", description="Claim that is the person's name here.")
    groups_claim: str = Field("groups", description="Claim that lists groups; dots reach into objects.")
    clusters_claim: str = Field("", description="Claim that lists the clusters somebody is limited to; empty: none is.")
    projects_claim: str = Field("", description="Claim that lists the projects somebody is limited to; empty: none is.")
    timeout_s: float = Field(10.0, gt=0, description="Longest wait for the issuer, in seconds.")


class Proxy(Vouching):
    trusted: tuple[str, ...] = Field(
        min_length=1, description="Addresses or networks of the proxies whose headers are believed, as in 10.0.0.5."
    )
    forwarded: str = Field("X-Forwarded-For", description="Header that names the client; its last entry is believed.")
    user_header: str = Field("", description="Header that names who is signed in, as in X-Forwarded-User; empty: none.")
    groups_header: str = Field("X-Forwarded-Groups", description="Header that lists their groups, by commas.")
    certificate_header: str = Field(
        "", description="Header with the subject of a client certificate (mTLS); its CN is the name. Empty: none."
    )
    verified_header: str = Field(
        "X-SSL-Client-Verify", description="Header that must say SUCCESS for the certificate to count."
    )

    @field_validator("trusted")
    @classmethod
    def _networks(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for one in given:
            try:
                ipaddress.ip_network(one, strict=False)
            except ValueError:
                raise ValueError(
                    f"has {one!r}, which is no address or network. Write 10.0.0.5 or 10.0.0.0/24"
                ) from None
        return given
