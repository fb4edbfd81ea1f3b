"""Settings of acting: the policy, its rules, and the hands beside a scheduler."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, StringConstraints

from backend.settings_file import Section

Names = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class PolicyRule(Section):
    name: str = Field(min_length=1, max_length=80, description="What people call the rule.")
    kinds: tuple[Names, ...] = Field((), description='Kinds of fault, as in ["gpu_*"]; empty: all.')
    severity: Literal["", "info", "warning", "high", "critical"] = Field("", description="At least this loud.")
    evidence: tuple[Names, ...] = Field((), description='How it is known: ["code", "state", "vote"]; empty: any way.')
    seen: int = Field(0, ge=0, description="Acted on at least this often within a day.")
    nodes: tuple[Names, ...] = Field((), description='Nodes, as in ["login*", "gpu-[01-16]"]; empty: all.')
    partitions: tuple[Names, ...] = Field((), description="Partitions; empty: all.")
    ladder: tuple[Names, ...] = Field((), description='Rungs in order, as in ["drain_after_job", "ticket"].')
    exclude: Literal["", "always", "never"] = Field("", description="Whether the node may be kept from work.")
    shadow: bool = Field(False, description="Say what it would have done, and do nothing.")


class Policy(Section):
    """Checked as a whole by ``watchkeeper policy check``."""

    exclude_s: float = Field(604_800.0, gt=0, description="How long an approved exclusion lasts (7 days).")
    max_out_share: float = Field(0.05, gt=0, le=1, description="Largest share of the fleet that may be out at once.")
    max_out_min: int = Field(1, ge=0, description="This many nodes may be out whatever the share says.")
    max_out_share_rack: float = Field(0.5, gt=0, le=1, description="Largest share of a rack.")
    max_out_share_domain: float = Field(0.25, gt=0, le=1, description="Largest share of an NVLink domain.")
    max_out_share_partition: float = Field(0.1, gt=0, le=1, description="Largest share of a partition.")
    rack_at_once: int = Field(1, ge=1, description="Nodes of one rack that we take before a person is asked.")
    cooldown_s: float = Field(3600.0, ge=0, description="No second action on a node within this time.")
    rate_max: int = Field(6, ge=1, description="Nodes taken out within rate_s before a person is asked.")
    rate_s: float = Field(3600.0, gt=0, description="The time of rate_max.")
    fresh_s: float = Field(60.0, gt=0, description="A node's state older than this refuses an action.")
    shift_share: float = Field(
        0.2, gt=0, le=1, description="Share of the fleet that breaks at once: trips the breaker."
    )
    shift_min: int = Field(5, ge=2, description="Fewer nodes than this never trip it.")
    shift_s: float = Field(600.0, gt=0, description="What counts as at once.")
    nearly_done_s: float = Field(900.0, ge=0, description="A job that must end within this is waited for.")
    save_soon_s: float = Field(300.0, ge=0, description="A job that saves within this is waited for.")
    maintenance_s: float = Field(3600.0, ge=0, description="Announced windows are kept clear from this long before.")
    wide_nodes: int = Field(3, ge=2, description="A plan that takes so many nodes needs two persons.")
    wide_gpus: int = Field(1024, ge=1, description="So does one that stops work on so many GPUs.")
    protect_nodes: tuple[Names, ...] = Field((), description='Nodes never touched, as in ["login*"].')
    protect_jobs: tuple[Names, ...] = Field((), description="Jobs never stopped: number, name, run, user or account.")
    lease_s: float = Field(60.0, gt=0, description="A claimed order whose process died is looked at again after this.")
    rule: tuple[PolicyRule, ...] = Field((), description="Rules that replace a kind's ladder; the first that fits.")


class Webhook(Section):
    """A site's own service that carries out some verbs; each request is signed."""

    url: str = Field(pattern=r"^https?://[^\s/]+\S*$", description="Where orders are posted; GET url/id tells of one.")
    secret: SecretStr = Field(description="Key of the signature (HMAC-SHA256).")
    verbs: tuple[Literal["drain", "resume", "requeue", "reboot", "ticket"], ...] = Field(
        ("ticket",), min_length=1, description="What it carries out, in place of the scheduler where that could too."
    )
    timeout_s: float = Field(10.0, gt=0, description="Longest wait for one answer, in seconds.")


#: What a command's arguments may have put in; ``peer`` is the other node of a pair test.
PLACES = ("node", "job", "order", "kind", "incident", "reason", "peer")


def _program(words: tuple[str, ...]) -> tuple[str, ...]:
    """A program by its whole path, and placeholders that there are: what runs is only what stands in the file."""
    if words and (not words[0].startswith("/") or "{" in words[0]):
        raise ValueError(f"begins with {words[0]}, which is no whole path of a program. Write it as /usr/bin/program")
    unknown = sorted({name for word in words for name in re.findall(r"\{([a-z]*)\}", word)} - set(PLACES))
    if unknown:
        raise ValueError(f"has {{{unknown[0]}}}, which is none of {', '.join(PLACES)}")
    return words


Words = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Program = Annotated[tuple[Words, ...], AfterValidator(_program)]


class Command(Section):
    """A command that carries out one verb. It is run without a shell and with an empty environment."""

    verb: Literal["drain", "resume", "requeue", "reboot", "ticket"] = Field(description="What it carries out.")
    does: Program = Field(
        min_length=1, description='Program by its whole path, then its arguments, as in ["/opt/reboot", "{node}"].'
    )
    asks: Program = Field(
        (), description="Tells whether it was done (exit code 0) or not (1); without, a crash leaves it uncertain."
    )
    timeout_s: float = Field(30.0, gt=0, le=600, description="Longest time it may run, in seconds.")


class Redfish(Section):
    address: str = Field(
        pattern=r"^https?://[^\s/]*\{node\}[^\s/]*$", description="Address of a node's BMC: https://{node}-bmc."
    )
    user: str = Field(description="Account of the BMCs.")
    password: SecretStr = Field(description="Its password.")
    timeout_s: float = Field(20.0, gt=0, description="Longest wait for one answer, in seconds.")


class NodeCheck(Section):
    name: str = Field(pattern=r"^[A-Za-z0-9][\w.-]{0,63}$", description="What people call the check.")
    command: Program = Field(
        min_length=1,
        description="Program by its whole path, then its arguments, with {node}; a pair test has {peer} too. Exit code "
        "0 pass, 1 warn, 2 fail, or JSON with a verdict.",
    )
    on: Literal["return", "idle", "any"] = Field(
        "return", description="Before a node goes back, on idle nodes, or both."
    )
    timeout_s: float = Field(300.0, gt=0, le=3600, description="Longest time it may run, in seconds.")
    every_s: float = Field(86_400.0, ge=60, description="An idle node is checked again after this (act mode only).")
    compare: bool = Field(
        False, description="What it computes (digest of its JSON) must be the same on every node: a recomputation."
    )
    kind: str = Field(
        "gpu_hardware_other", pattern=r"^[a-z_]{1,64}$", description="As which kind of fault a failed sweep is told."
    )


class Hands(Section):
    """What acts beside the scheduler."""

    webhook: tuple[Webhook, ...] = Field((), description="Services of the site that carry out orders.")
    command: tuple[Command, ...] = Field((), description="Commands that carry out orders; one a verb.")
    redfish: Redfish | None = Field(None, description="Reboots by the nodes' BMCs.")
    check: tuple[NodeCheck, ...] = Field((), description="Checks of nodes; one that fails keeps the node out.")
