"""What a cluster is read from: each Prometheus, and Slurm with our rights on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from backend.clients.promql import PromError, PrometheusReader
from backend.clients.slurm import SlurmCli, SlurmError
from backend.clients.slurm_rights import hidden, to_drain
from backend.doctor.line import Line, failed, off, ok, warning
from backend.ingest.prometheus import selector
from backend.ingest.samples import UP
from backend.settings import Mode
from detectors.catalogue import Catalogue

#: Clocks may differ by this much; HTTP dates have whole seconds.
APART_S = 2.0
#: First version whose squeue --json we read.
OLDEST = (22, 5)
URL_FIX = "Check the url, headers and timeout_s of [[cluster.prometheus]]."


def prometheus(
    name: str, reader: PrometheusReader, catalogue: Catalogue, matchers: str, interval_s: float, lateness_s: float
) -> Iterator[Line]:
    """Reachable, its clock, which of our names it holds and how they are spelt, how old the newest sample is."""
    matchers = matchers.strip().strip(",")
    try:
        found = reader.query(f"count by (__name__) ({selector(sorted(catalogue.alias), matchers)})")
    except PromError as error:
        yield failed(name, str(error), URL_FIX)
        return
    yield ok(name, f"{reader.where} answers")
    yield from apart(f"{name} clock", reader.ahead_s, lateness_s)
    held = Counter({labels.get("__name__", ""): int(count) for labels, count in found})
    yield from names(f"{name} metrics", held, catalogue, matchers)
    if raw := _most(held, catalogue, "gpu") or _most(held, catalogue, "node"):
        try:
            yield from fresh(f"{name} newest sample", reader, raw, matchers, interval_s)
        except PromError as error:
            yield failed(f"{name} newest sample", str(error), URL_FIX)


def apart(check: str, ahead_s: float | None, lateness_s: float) -> Iterator[Line]:
    """A server that is behind us by more than a tick waits makes every sample late."""
    if ahead_s is None:
        yield warning(check, "it does not say what time it is", "See that NTP runs there.")
        return
    text = f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} ours"
    if abs(ahead_s) > max(APART_S, lateness_s):
        yield failed(check, f"{text}; ticks wait {lateness_s:g} s, so samples are lost", "Run NTP on both hosts.")
    elif abs(ahead_s) > APART_S:
        yield warning(check, text, "Run NTP on both hosts.")
    else:
        yield ok(check, "the same as ours, to a second or two")


def names(check: str, held: Counter[str], catalogue: Catalogue, matchers: str) -> Iterator[Line]:
    """Which canonical metrics are there, under which names, and which are not."""
    where = "Check matchers, and that" if matchers else "See that"
    raw = _most(held, catalogue, "gpu")
    if not raw:
        targets = sum(n for one, n in held.items() if catalogue.alias.get(one) == UP)
        known = sum(catalogue.metrics[one].axis == "gpu" for one in catalogue.alias.values())
        fix = f"{where} a GPU exporter (DCGM, AMD) is scraped into it."
        yield failed(check, f"{targets} targets, and none of the {known} names we know for GPUs is there now", fix)
        return
    metric = catalogue.alias[raw]
    spelt = ", ".join(f"{one} ({n})" for one, n in held.most_common() if catalogue.alias.get(one) == metric)
    there = {catalogue.alias[one] for one in held if one in catalogue.alias}
    lacking = [one for one in catalogue.metrics if one not in there]
    text = f"{len(there)} of {len(catalogue.metrics)} metrics; {metric} is spelt {spelt}"
    if any(catalogue.metrics[one].axis != "gpu" for one in lacking):
        yield warning(check, f"{text}; not there: {', '.join(lacking)}", f"{where} node_exporter is scraped into it.")
    else:
        yield ok(check, f"{text}; not there: {', '.join(lacking)}" if lacking else text)


def _most(held: Counter[str], catalogue: Catalogue, axis: str) -> str:
    """The name of this axis with the most series, "" where there is none."""
    found = [
        (n, one)
        for one, n in held.items()
        if one in catalogue.alias and catalogue.metrics[catalogue.alias[one]].axis == axis
    ]
    return max(found)[1] if found else ""


def fresh(check: str, reader: PrometheusReader, raw: str, matchers: str, interval_s: float) -> Iterator[Line]:
    """Age of the newest sample by the server's own clock."""
    answer = reader.query(f"time() - max(timestamp({selector([raw], matchers)}))")
    if not answer:
        yield failed(check, f"{raw} went away while we looked", "Ask again; see whether scraping has stopped.")
        return
    age_s = answer[0][1]
    text = f"{raw}, {age_s:.0f} s old"
    if age_s > max(60.0, 4 * interval_s):
        yield warning(check, text, "See that the exporters are up and scraped, on the targets page of Prometheus.")
    else:
        yield ok(check, text)


# --- Slurm ----------------------------------------------------------------------------------------------------------


def slurm_version(name: str, cli: SlurmCli) -> Iterator[Line]:
    try:
        found = cli.version()
    except SlurmError as error:
        yield failed(name, str(error), "See that the commands are on PATH and that sinfo works here by hand.")
        return
    text = f"commands of Slurm {'.'.join(map(str, found))}"
    if found[:2] < OLDEST:
        yield failed(name, text, "Use Slurm 22.05 or later: older ones cannot print jobs as JSON.")
    else:
        yield ok(name, text)


def slurm_nodes(name: str, cli: SlurmCli) -> Iterator[Line]:
    try:
        count = len(cli.nodes())
    except SlurmError as error:
        yield failed(name, str(error), "See that slurmctld and munge run, and that scontrol show node works here.")
        return
    if count:
        yield ok(name, f"{count} may be read")
    else:
        yield warning(name, "Slurm shows none", "Look at PrivateData in slurm.conf and at the conf of [cluster.slurm].")


def slurm_jobs(name: str, cli: SlurmCli, user: str, uid: int) -> Iterator[Line]:
    try:
        count = len(cli.jobs())
    except SlurmError as error:
        yield failed(name, str(error), "See that squeue --json works here by hand.")
        return
    private: frozenset[str] = frozenset()
    with suppress(SlurmError):  # said by the check of our rights
        private = hidden(cli) if to_drain(cli, user, uid).may is not True else frozenset()
    if "jobs" in private:
        text = f"{count} may be read, but PrivateData hides those of others from {user}"
        yield warning(name, text, "Make the account an Operator, or take jobs out of PrivateData.")
    else:
        yield ok(name, f"{count} may be read")


def slurm_right(name: str, cli: SlurmCli, user: str, uid: int, mode: Mode) -> Iterator[Line]:
    """Told from the configuration: nothing is tried."""
    try:
        right = to_drain(cli, user, uid)
    except SlurmError as error:
        yield failed(name, str(error), "See that scontrol show config works here by hand.")
        return
    if right.may:
        yield ok(name, f"{right.why}; nothing was tried")
    elif mode == "observe":
        yield off(name, f"{right.why}; observe needs none", right.fix)
    elif right.may is None:
        yield warning(name, right.why, right.fix)
    else:
        yield failed(name, f"{right.why}, and mode is {mode}", right.fix)
