"""Settings to parts: the only file that names concrete classes."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from backend import joining, sweeps
from backend.act.base import ClusterBackend
from backend.act.checks import Check, Report
from backend.act.dry_run import DryRunBackend
from backend.act.kubernetes import KubernetesBackend
from backend.act.slurm import SlurmBackend
from backend.answers.past import past_of
from backend.answers.telemetry import Past
from backend.changes import Changes
from backend.clients import kubernetes_access
from backend.clients.kubernetes import KubeClient
from backend.clients.loki import LokiReader
from backend.clients.promql import PrometheusReader
from backend.clients.slurm import SlurmCli
from backend.clients.slurm_accounting import Accounting
from backend.clients.slurm_http import Tokens
from backend.clients.slurm_kept import KeptByRest
from backend.clients.slurm_rest import SlurmRest
from backend.clients.slurm_surface import Slurm
from backend.clock import Clock, utc
from backend.decide.limits import Limits
from backend.decide.rules import Rule
from backend.facts import AttemptFacts
from backend.feed import Feed
from backend.history import KEPT, History, Mode
from backend.ingest import kmsg
from backend.ingest.base import Source
from backend.ingest.files import FileSource, Where
from backend.ingest.follow import Budget
from backend.ingest.job_verdicts import Verdicts
from backend.ingest.joblogs import BUDGET as JOB_BUDGET
from backend.ingest.joblogs import LINGER_S, JobLogSource
from backend.ingest.journal import JournalSource
from backend.ingest.kmsg import KmsgSource
from backend.ingest.kubernetes import KubernetesSource
from backend.ingest.loki import LokiSource
from backend.ingest.podlogs import PodLogs
from backend.ingest.prometheus import PrometheusSource
from backend.ingest.slurm import SlurmSource
from backend.ingest.slurm_accounting import Accounts, SlurmAccountingSource
from backend.ingest.steplines import Patterns, StepLines
from backend.ingest.tails import Tails
from backend.inventory.inventory import Inventory
from backend.moved import Moved
from backend.notify.base import Notifier
from backend.notify.configured import routing_of
from backend.registry_channels import notifiers_of as notifiers_of
from backend.registry_hands import checks_of, with_hands
from backend.ring import Ring
from backend.settings import Cluster, Policy, Prometheus, Settings
from backend.store import cluster as cluster_rows
from backend.store import system, tasks
from backend.store.engine import Store, migrate, open_store
from backend.tracing import Trace, traces_to, untraced
from backend.trained import Trained
from backend.watch import Rules, Watch
from detectors import registry as detectors
from detectors import shadow
from detectors.catalogue import Catalogue, TableError, load
from detectors.joblog.reading import Rules as LogRules
from detectors.kernel.lines import parse, scanner
from detectors.model import MetricKey, Severity
from detectors.packaged import log_rules
from detectors.training.signals import load as load_signals

Role = Literal["all", "observe", "api"]


@dataclass(frozen=True)
class Parts:
    """Everything a process is made of; routes and loops take what they need from here."""

    settings: Settings
    clock: Clock
    store: Store
    catalogue: Catalogue
    secret: bytes
    watches: Mapping[str, Watch]
    notifiers: Mapping[str, Notifier]
    changes: Changes
    who: str
    role: Role = "all"
    sources: Mapping[str, tuple[tuple[Source, float], ...]] = field(default_factory=dict)
    demo_person: str = ""
    past: Mapping[str, Past] = field(default_factory=dict)
    tails: Mapping[str, Tails] = field(default_factory=dict)
    trained: Mapping[str, Trained] = field(default_factory=dict)
    trace: Trace = untraced


def build(
    settings: Settings,
    clock: Clock,
    *,
    role: Role = "all",
    backends: Mapping[str, ClusterBackend] | None = None,
    more_sources: Mapping[str, tuple[tuple[Source, float], ...]] | None = None,
    simulated: bool = False,
    demo_person: str = "",
) -> Parts:
    """Open and migrate the store and wire every part. ``backends`` replaces what the settings name, ``more_sources``
    adds to it (the simulator's scheduler).

    Raises StoreError where the database cannot be used, TableError where a threshold's or a metric's name is unknown.
    """
    store = open_store(settings.store.url, settings.store.folder)
    migrate(store)
    who = f"{socket.gethostname()}:{os.getpid()}"
    catalogue, changes = load(), Changes()
    notifiers = notifiers_of(settings, public_url(settings))
    with store.write() as session:
        secret = system.secret(session, "tokens", clock.now())
        for cluster in settings.cluster:
            cluster_rows.ensure_cluster(session, cluster.name, simulated)
    watches: dict[str, Watch] = {}
    sources: dict[str, tuple[tuple[Source, float], ...]] = {}
    trained = {one.name: Trained(settings.store.folder / "trained" / one.name) for one in settings.cluster}
    tails = {one.name: Tails(tails_folder(settings, one.name), one.logs.tail_bytes) for one in settings.cluster}
    for cluster in settings.cluster:
        slurm = slurm_of(cluster)
        backend = (backends or {}).get(cluster.name) or hand_of(cluster, slurm, clock, watches)
        check_s = sum(check.timeout_s for check in cluster.hands.check)
        rules = replace(rules_of(settings, tuple(notifiers), simulated), check_s=check_s, shadow=cluster.shadow)
        shadow.check(cluster.shadow, catalogue)
        own = catalogue.with_thresholds(cluster.thresholds | adopted_of(store, cluster.name, catalogue))
        watch = watch_of(cluster, rules, clock, store, own, changes, backend, who, role)
        mode: Mode = "read" if role == "api" else "write"
        watch.history = History.open(settings.store.folder, cluster.name, kept_of(cluster, catalogue), mode)
        watch.trained, watch.checks = trained[cluster.name], checks_of(cluster)
        watch.feed = Feed(settings.store.folder / "feed" / cluster.name)
        watch.moved = moved_of(settings, cluster.name)
        watch.load()
        watches[cluster.name] = watch
        more = (more_sources or {}).get(cluster.name, ())
        logs = log_sources(cluster, store, tails[cluster.name], watch.verdicts)
        sources[cluster.name] = (*sources_of(cluster, slurm, clock, catalogue), *logs, *more)
    past = {c.name: past_from(c.prometheus[0], catalogue) for c in settings.cluster if c.prometheus}
    trace = traces_to(settings.server.otlp_url, who) if settings.server.otlp_url else untraced
    rest = (sources, demo_person, past, tails, trained, trace)
    return Parts(settings, clock, store, catalogue, secret, watches, notifiers, changes, who, role, *rest)


def adopted_of(store: Store, cluster: str, catalogue: Catalogue) -> dict[str, float]:
    """Thresholds that people adopted from a backtest."""
    with store.read() as session:
        return tasks.adopted(session, cluster, catalogue.thresholds)


def hand_of(cluster: Cluster, slurm: Slurm | None, clock: Clock, watches: Mapping[str, Watch]) -> ClusterBackend | None:
    """What acts on a cluster: its scheduler and the hands beside it; results of checks are kept."""
    noted = partial(noted_later, watches, cluster.name)
    return with_hands(cluster, backend_of(cluster, slurm, clock), clock, noted)


def noted_later(watches: Mapping[str, Watch], name: str, check: Check, node: str, found: Report) -> None:
    """Keep the result of a check before a return; the watch exists by the time that one runs."""
    sweeps.note(watches[name], check, node, "", "return", found)


def moved_of(settings: Settings, cluster: str) -> Moved:
    """What tells saves and loads from counters of mounts; ceilings from the settings, in bytes a second."""
    told = settings.reliability
    file = settings.store.folder / "moved" / f"{cluster}.jsonl"
    return Moved(file, told.storage_write_gb_s * 1e9, told.storage_read_gb_s * 1e9)


def kept_of(cluster: Cluster, catalogue: Catalogue) -> tuple[MetricKey, ...]:
    """The metrics of a cluster's history. Raises TableError for a name that is none."""
    unknown = sorted(set(cluster.history) - set(catalogue.metrics))
    if unknown:
        raise TableError(
            f"[[cluster]] {cluster.name}: history names {', '.join(unknown)}, which is no metric. "
            f"There are {', '.join(sorted(catalogue.metrics))}."
        )
    return tuple(catalogue.metrics[name].key for name in dict.fromkeys(cluster.history)) or KEPT


def past_from(server: Prometheus, catalogue: Catalogue) -> Past:
    """Numbers older than the history come from a cluster's first Prometheus."""
    return past_of(partial(PrometheusReader, server.url, server.headers, server.timeout_s), catalogue, server.matchers)


def watch_of(
    cluster: Cluster,
    rules: Rules,
    clock: Clock,
    store: Store,
    catalogue: Catalogue,
    changes: Changes,
    backend: ClusterBackend | None,
    who: str,
    role: Role = "all",
) -> Watch:
    lateness_s = cluster.interval_s if cluster.lateness_s is None else cluster.lateness_s
    return Watch(
        cluster=cluster.name,
        rules=rules,
        clock=clock,
        store=store,
        catalogue=catalogue,
        changes=changes,
        inventory=Inventory(cluster.name, hears=role != "api"),
        ring=Ring(catalogue.metrics, cluster.interval_s, lateness_s),
        detectors=detectors.detectors(catalogue),
        backend=backend,
        verdicts=verdicts_of(cluster, store),
        who=who,
    )


def verdicts_of(cluster: Cluster, store: Store) -> Verdicts:
    """Judges what jobs printed, with what their wrappers told. Raises TableError for a bad example of a step line."""
    rules = LogRules.of(log_rules())
    reported = partial(joining.sheets_of, store, cluster.name, rules)
    try:
        lines = StepLines(Patterns.of(load_signals(), cluster.logs.step_lines))
    except ValueError as error:
        raise TableError(f"[[cluster]] {cluster.name}: logs.step_lines: {error}") from error
    return Verdicts(rules, files=reads_job_logs(cluster), reported=reported, lines=lines)


def rules_of(settings: Settings, channels: tuple[str, ...], simulated: bool) -> Rules:
    policy, incidents = settings.policy, settings.incidents
    return Rules(
        mode=settings.mode,
        hold_s=incidents.hold_s,
        fold_s=incidents.fold_s,
        lease_s=policy.lease_s,
        notify_from=Severity.of(incidents.notify_from),
        limits=limits_of(policy),
        channels=channels,
        url=public_url(settings),
        simulated=simulated,
        routing=routing_of(settings.alerts, channels, slack_edits=bool(settings.slack and settings.slack.bot_token)),
    )


def limits_of(policy: Policy) -> Limits:
    """The policy as the pure rooms take it."""
    numbers = policy.model_dump(exclude={"rule", "lease_s"})
    return Limits(**numbers, rules=tuple(Rule(**rule.model_dump()) for rule in policy.rule))


def public_url(settings: Settings) -> str:
    server = settings.server
    return server.url or f"http://{server.host}:{server.port}"


def slurm_of(cluster: Cluster) -> Slurm | None:
    """By slurmrestd where it is named, else by the commands; None where the cluster has no Slurm, or no way to it."""
    cli, slurm = commands_of(cluster), cluster.slurm
    if slurm is None or not slurm.rest_url:
        return cli
    make = partial(cli.token, user=slurm.rest_user) if cli is not None else None
    tokens = Tokens(slurm.rest_token_file, make, time.time)
    return SlurmRest(slurm.rest_url, tokens, slurm.rest_user, slurm.timeout_s, cli)


def accounts_of(cluster: Cluster, slurm: Slurm | None) -> Accounts | None:
    """The accounting by sacct and sacctmgr, which tell more; by slurmrestd where they may not be used."""
    cli = commands_of(cluster)
    if cluster.slurm is None or not cluster.slurm.accounting:
        return None
    if cli is not None:
        return Accounting(cli, cluster.slurm.accounting_timeout_s)
    return KeptByRest(slurm) if isinstance(slurm, SlurmRest) else None


def commands_of(cluster: Cluster) -> SlurmCli | None:
    if cluster.slurm is None or not cluster.slurm.cli:
        return None
    return SlurmCli(cluster.slurm.conf, cluster.slurm.timeout_s)


def kubernetes_of(cluster: Cluster) -> KubeClient | None:
    """The access is looked up at the first use: a kubeconfig that is not there yet is an error of the read."""
    kube = cluster.kubernetes
    if kube is None:
        return None
    access = partial(kubernetes_access.find, kube.kubeconfig, kube.in_cluster, kube.context, dict(os.environ))
    return KubeClient(access, kube.timeout_s)


def backend_of(cluster: Cluster, slurm: Slurm | None, clock: Clock) -> ClusterBackend | None:
    """What carries orders out; a cluster with no scheduler configured has none, and guards say so."""
    if cluster.backend == "simulated":
        return None
    backend: ClusterBackend | None = None
    if slurm is not None and cluster.backend != "kubernetes":
        backend = SlurmBackend(slurm, clock)
    elif cluster.kubernetes is not None and cluster.backend != "slurm" and (client := kubernetes_of(cluster)):
        backend = KubernetesBackend(client, clock, cluster.kubernetes.namespaces, cluster.kubernetes.cordon)
    return DryRunBackend(backend.inventory) if backend and cluster.backend == "dry_run" else backend


def sources_of(
    cluster: Cluster, slurm: Slurm | None, clock: Clock, catalogue: Catalogue
) -> tuple[tuple[Source, float], ...]:
    """Each source with how often it is read, in seconds."""
    found: list[tuple[Source, float]] = []
    for place, server in enumerate(cluster.prometheus):
        reader = PrometheusReader(server.url, server.headers, server.timeout_s)
        name = "prometheus" if place == 0 else f"prometheus-{place + 1}"
        found.append((PrometheusSource(name, reader, catalogue, server.matchers), server.interval_s))
    if slurm is not None and cluster.slurm is not None:
        found.append((SlurmSource(slurm, clock), cluster.slurm.interval_s))
    if cluster.slurm is not None and (accounts := accounts_of(cluster, slurm)) is not None:
        source = SlurmAccountingSource(accounts, cluster.slurm.accounting_reach_s)
        found.append((source, cluster.slurm.accounting_interval_s))
    if cluster.kubernetes is not None and (client := kubernetes_of(cluster)):
        found.append((KubernetesSource(client, clock, cluster.kubernetes.namespaces), cluster.kubernetes.interval_s))
    return tuple(found)


def log_sources(
    cluster: Cluster, store: Store, tails: Tails, listener: Verdicts | None
) -> tuple[tuple[Source, float], ...]:
    """What is read of logs: files, the kernel's ring, the journal, Loki, and logs of jobs nobody wrapped."""
    logs = cluster.logs
    where = Where.here(ZoneInfo(logs.timezone) if logs.timezone else None)
    files = [path for path in logs.files if path != kmsg.DEVICE]
    found: list[tuple[Source, float]] = []
    if files:
        budget = Budget(bytes=logs.read_bytes, open_files=logs.open_files)
        follow = FileSource(files, parse, scanner().hits, where, budget, trusted=logs.trust_syslog)
        found.append((follow, logs.interval_s))
    if kmsg.DEVICE in logs.files:
        found.append((KmsgSource(parse, where), logs.interval_s))
    if logs.journal:
        journal = JournalSource(parse, where.host, logs.journal_matches, logs.journal_directory, logs.timeout_s)
        found.append((journal, logs.journal_interval_s))
    if logs.loki_url:
        reader = LokiReader(logs.loki_url, logs.loki_headers, logs.loki_tenant, logs.timeout_s)
        loki = LokiSource(
            reader, logs.loki_queries, parse, where, tails, logs.loki_job_label, trusted=logs.trust_syslog
        )
        found.append((loki, logs.loki_interval_s))
    if reads_job_logs(cluster):
        budget = replace(JOB_BUDGET, stats=logs.job_looks, bytes=logs.job_bytes, quiet_s=logs.job_quiet_s)
        attempts = partial(lately, store, cluster.name)
        client = kubernetes_of(cluster)
        pods = PodLogs(client) if client is not None else None
        source = JobLogSource(attempts, tails, where, budget, logs.job_files, listener, pods)
        found.append((source, logs.job_interval_s))
    return tuple(found)


def reads_job_logs(cluster: Cluster) -> bool:
    """Whether the logs that jobs name are followed here."""
    return cluster.logs.job_logs and (cluster.slurm is not None or cluster.kubernetes is not None)


def lately(store: Store, cluster: str, now: float) -> list[AttemptFacts]:
    """The attempts that run or ended lately. ``now`` in unix s."""
    with store.read() as session:
        rows = cluster_rows.attempts_between(session, cluster, utc(now - LINGER_S), utc(now))
        return [cluster_rows.attempt_facts(row) for row in rows]


def tails_folder(settings: Settings, cluster: str) -> Path:
    return settings.store.folder / "tails" / cluster
