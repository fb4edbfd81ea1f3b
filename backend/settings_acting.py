"""Settings of acting: the policy, its rules, and the hands beside a scheduler."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

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
