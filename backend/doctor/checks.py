"""Settings to checks: one for every connection and every right that they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from backend.clients.loki import LokiReader
from backend.clients.promql import PrometheusReader
from backend.clients.slurm import Run, SlurmCli, run_bounded
from backend.clients.slurm_accounting import Accounting
from backend.clients.slurm_rest import SlurmRest
from backend.doctor import channels, cluster, host, kubernetes, logs, slurm_ways
from backend.doctor.database import database
from backend.doctor.line import Check, Line, examine, failed, off, ok, warning
from backend.ingest.journal import run_some
from backend.ingest.kmsg import DEVICE
from backend.registry import kubernetes_of, slurm_of
from backend.settings import Cluster, Settings, SettingsError, load
from detectors import shadow
from detectors.catalogue import Catalogue, TableError
from detectors.catalogue import load as load_catalogue

#: Nobody waits longer than this for one answer, whatever the settings allow.
PATIENCE_S = 5.0


def diagnose(path: Path | None, environ: Mapping[str, str]) -> list[Line]:
    """Every line. Where the configuration has mistakes these are all there is to say."""
    try:
        settings = load(path, environ)
        catalogue = load_catalogue()
        for one in settings.cluster:
            catalogue.with_thresholds(one.thresholds)
            shadow.check(one.shadow, catalogue)
    except SettingsError as error:
        return [
            failed("configuration", f"{wrong.where}: {wrong.key} {wrong.what}".replace(":  ", ": "), wrong.fix)
            for wrong in error.mistakes
        ]
    except TableError as error:
        return [failed("configuration", str(error), "Names stand in detectors/tables: thresholds.toml, kinds.csv.")]
    first = ok("configuration", f"{path} holds" if path else "no file: SQLite here, loopback, observe")
    return [first, *mode(settings), *examine([*checks_of(settings, catalogue)])]


def checks_of(settings: Settings, catalogue: Catalogue, run: Run = run_bounded) -> Iterator[Check]:
    """In the order of their lines. ``run`` starts Slurm's commands."""
    yield Check("account", host.process)
    yield Check("data folder", partial(host.folder, settings.store.folder))
    yield Check("database", partial(database, settings))
    yield Check("port", partial(host.port, settings.server))
    yield Check("clock", host.clock)
    for one in settings.cluster:
        yield from _prometheus(one, catalogue)
        yield from _slurm(one, settings, run)
        yield from _kubernetes(one, settings)
    for one in settings.cluster:
        yield from _logs(one)
    yield Check("email", partial(channels.email, settings.email))
    yield Check("slack", partial(channels.slack, settings.slack))
    yield Check("channels", partial(channels.others, settings))
    yield Check("links", partial(channels.links, settings))


def mode(settings: Settings) -> Iterator[Line]:
    """What it may touch."""
    hands = {one.name: _hand(one) for one in settings.cluster}
    if settings.mode == "observe":
        yield ok("mode", "observe: nothing is written to any cluster")
        return
    when = "once an approver said yes" if settings.mode == "propose" else "by itself, where every guard holds"
    for name, hand in hands.items():
        if hand == "slurm":
            yield ok("mode", f"{settings.mode}: on {name} it drains, requeues and resumes through Slurm, {when}")
        elif hand == "kubernetes":
            yield ok("mode", f"{settings.mode}: on {name} it cordons, evicts and uncordons through Kubernetes, {when}")
        elif hand:
            yield ok("mode", f"{settings.mode}: on {name} orders end in {hand}, which touches nothing")
        else:
            fix = f"Add [cluster.slurm] or [cluster.kubernetes] to {name}, or set mode = observe."
            yield warning("mode", f"{settings.mode}: but nothing carries orders out on {name}", fix)


def _hand(one: Cluster) -> str:
    """As the registry chooses it."""
    slurm = one.slurm is not None and (one.slurm.cli or bool(one.slurm.rest_url)) and one.backend != "kubernetes"
    kube = one.kubernetes is not None and one.backend != "slurm"
    if one.backend == "simulated" or not (slurm or kube):
        return ""
    return one.backend or ("slurm" if slurm else "kubernetes")


def _prometheus(one: Cluster, catalogue: Catalogue) -> Iterator[Check]:
    if not one.prometheus:
        text = f"no [[cluster.prometheus]] in {one.name}: telemetry must be pushed to ingest/remote-write"
        yield Check("prometheus", lambda: [off(f"{one.name} prometheus", text, "Add [[cluster.prometheus]] with url.")])
    lateness_s = one.interval_s if one.lateness_s is None else one.lateness_s
    for place, server in enumerate(one.prometheus, 1):
        name = f"{one.name} prometheus{f'-{place}' if place > 1 else ''}"
        reader = PrometheusReader(server.url, server.headers, min(server.timeout_s, PATIENCE_S))
        look = partial(cluster.prometheus, name, reader, catalogue, server.matchers, server.interval_s, lateness_s)
        yield Check(name, look)


def _slurm(one: Cluster, settings: Settings, run: Run) -> Iterator[Check]:
    name = f"{one.name} slurm"
    if one.slurm is None and one.kubernetes is not None:
        return
    yield from _slurm_ways(one, run)
    if one.slurm is not None and one.slurm.rest_url and not one.slurm.cli:
        return
    if one.slurm is None or not one.slurm.cli:
        text = f"no [cluster.slurm] in {one.name}: no jobs, and nothing can be drained"
        yield Check(name, lambda: [off(name, text, "Add [cluster.slurm].")])
        return
    cli = SlurmCli(one.slurm.conf, min(one.slurm.timeout_s, PATIENCE_S), run)
    user, uid = host.account()
    yield Check(name, partial(cluster.slurm_version, name, cli))
    yield Check(f"{name} nodes", partial(cluster.slurm_nodes, f"{name} nodes", cli))
    yield Check(f"{name} jobs", partial(cluster.slurm_jobs, f"{name} jobs", cli, user, uid))
    look = partial(cluster.slurm_right, f"{name} right to drain", cli, user, uid, settings.mode)
    yield Check(f"{name} right to drain", look)


def _slurm_ways(one: Cluster, run: Run) -> Iterator[Check]:
    """slurmrestd and the accounting, where they are configured."""
    if one.slurm is None:
        return
    timeout_s = min(one.slurm.timeout_s, PATIENCE_S)
    slurm = slurm_of(one.model_copy(update={"slurm": one.slurm.model_copy(update={"timeout_s": timeout_s})}))
    if isinstance(slurm, SlurmRest):
        name = f"{one.name} slurmrestd"
        yield Check(name, partial(slurm_ways.rest, name, slurm, one.slurm.cli))
    if one.slurm.accounting and one.slurm.cli:
        name = f"{one.name} slurm accounting"
        cli = SlurmCli(one.slurm.conf, timeout_s, run)
        yield Check(name, partial(slurm_ways.accounting, name, Accounting(cli, PATIENCE_S)))


def _kubernetes(one: Cluster, settings: Settings) -> Iterator[Check]:
    if one.kubernetes is None:
        return
    name, where = f"{one.name} kubernetes", one.kubernetes.namespaces
    patient = one.kubernetes.model_copy(update={"timeout_s": min(one.kubernetes.timeout_s, PATIENCE_S)})
    client = kubernetes_of(one.model_copy(update={"kubernetes": patient}))
    assert client is not None
    yield Check(name, partial(kubernetes.reached, name, client))
    yield Check(f"{name} nodes", partial(kubernetes.nodes, f"{name} nodes", client))
    see, act = f"{name} rights to look", f"{name} rights to act"
    yield Check(see, partial(kubernetes.to_see, see, client, where))
    yield Check(act, partial(kubernetes.to_act, act, client, where, settings.mode))


def _logs(one: Cluster) -> Iterator[Check]:
    """Every pattern and stream of [cluster.logs]."""
    user, uid = host.account()
    read = one.logs
    timeout_s = min(read.timeout_s, PATIENCE_S)
    name = f"{one.name} logs"
    for pattern in read.files:
        look = partial(logs.kmsg, name, pattern) if pattern == DEVICE else partial(logs.files, name, pattern, user)
        yield Check(f"{name} {pattern}", look)
    if read.journal:
        look = partial(logs.journal, f"{one.name} journal", run_some, read.journal_directory, user, timeout_s)
        yield Check(f"{one.name} journal", look)
    if read.loki_url:
        reader = LokiReader(read.loki_url, read.loki_headers, read.loki_tenant, timeout_s)
        yield Check(f"{one.name} loki", partial(logs.loki, f"{one.name} loki", reader, read.loki_queries))
    if not (read.files or read.journal or read.loki_url):
        text = f"no [cluster.logs] in {one.name}: kernel lines must be pushed to ingest/logs"
        yield Check(name, lambda: [off(name, text, "Name files, journal or loki_url in [cluster.logs].")])
    if read.job_logs and (one.slurm is not None or one.kubernetes is not None):
        yield Check(f"{one.name} job logs", partial(logs.job_logs, f"{one.name} job logs", uid))
