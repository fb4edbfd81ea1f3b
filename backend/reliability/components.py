"""MTTF, MTTD and MTTR of each component: GPU, its memory, NVLink, network, storage, host ..., with n and intervals."""

from __future__ import annotations

import math
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from backend.reliability.account import Account, Accounts
from backend.reliability.cost import name_of
from backend.reliability.intervals import Interval, Rate, rate
from backend.reliability.mttf import by_run, node_days
from backend.reliability.repair import detection_of
from backend.reliability.retries import Gaps, quartiles

OTHER = "other"


@dataclass(frozen=True, slots=True)
class Component:
    """rate: failures of jobs by it over node-days, exact Poisson; by_run: the interval when whole runs are drawn.

    incidents: of its kinds. detect, repair: seconds from the last step to the incident, and from its opening to its
    closing.
    """

    name: str
    rate: Rate
    by_run: Interval | None
    incidents: int
    detect: Gaps
    repair: Gaps

    @property
    def mttf_node_days(self) -> tuple[float | None, Interval | None]:
        """Node-days per failure; an end that no failure bounds is infinity."""
        within = self.rate.interval
        value = 1 / self.rate.value if self.rate.value else None
        if within is None or within.high == 0:
            return value, None
        return value, Interval(1 / within.high, 1 / within.low if within.low > 0 else math.inf)


def component_table() -> dict[str, str]:
    """The component of each kind and class that the packaged table names. Raises ValueError for one named twice."""
    text = files("backend.reliability").joinpath("components.toml").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for component, names in tomllib.loads(text).items():
        for name in names:
            if name in found:
                raise ValueError(f"components.toml: {name} stands under {found[name]} and {component}; leave one")
            found[name] = component
    return found


def by_component(accounts: Accounts, table: Mapping[str, str] | None = None) -> list[Component]:
    """Components that had an incident or ended a job of the infrastructure's fault, the most failures first."""
    table = component_table() if table is None else table
    failed: defaultdict[str, list[Account]] = defaultdict(list)
    for account in accounts.attempts:
        if account.failed and account.verdict.infra is True:
            failed[_component(table, account)].append(account)
    incidents: defaultdict[str, set[int]] = defaultdict(set)
    for cause in accounts.causes:
        if cause.infra:
            incidents[table.get(cause.kind, OTHER)].add(cause.incident)
    exposure = _exposure(accounts)
    rows = [_row(accounts, name, failed[name], incidents[name], exposure) for name in {*failed, *incidents}]
    return sorted(rows, key=lambda row: (-row.rate.count, -row.incidents, row.name))


def _component(table: Mapping[str, str], account: Account) -> str:
    by_class = table.get(account.verdict.log_class or "", OTHER)
    return table.get(name_of(account), by_class)


def _exposure(accounts: Accounts) -> Sequence[float]:
    """Node-days of each run, in their order."""
    return [math.fsum(node_days(account) for account in run.accounts) for run in accounts.runs]


def _row(
    accounts: Accounts, name: str, failed: Sequence[Account], incidents: set[int], exposure: Sequence[float]
) -> Component:
    hits = [0.0] * len(accounts.runs)
    for account in failed:
        hits[accounts.run_of[id(account)]] += 1
    mended = [
        i.closed_at - i.opened_at for i in accounts.history.incidents if i.id in incidents and i.closed_at is not None
    ]
    return Component(
        name=name,
        rate=rate(len(failed), math.fsum(exposure)),
        by_run=by_run(hits, exposure),
        incidents=len(incidents),
        detect=quartiles(detection_of(failed)),
        repair=quartiles(mended),
    )
