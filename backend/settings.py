"""The configuration: its shape, how it is loaded, and its reference. One frozen object, built once in the CLI."""

from __future__ import annotations

import difflib
import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, Self, get_args, get_origin
from zoneinfo import ZoneInfo

from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    SecretStr,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from backend import settings_file
from backend.settings_acting import Hands as Hands
from backend.settings_acting import Policy as Policy
from backend.settings_alerting import CHANNELS
from backend.settings_alerting import Alerts as Alerts
from backend.settings_channels import Alertmanager as Alertmanager
from backend.settings_channels import Apprise as Apprise
from backend.settings_channels import Email as Email
from backend.settings_channels import Owners as Owners
from backend.settings_channels import PagerDuty as PagerDuty
from backend.settings_channels import Slack as Slack
from backend.settings_channels import Teams as Teams
from backend.settings_channels import Webhook as Webhook
from backend.settings_counting import Archive, Reliability, Report
from backend.settings_file import PREFIX, Mistake, Place, Tree, dotted, fields, is_scalar, is_secret, section_of
from backend.settings_file import Section as Section
from backend.settings_file import SettingsError as SettingsError
from backend.settings_identity import Oidc as Oidc
from backend.settings_identity import Proxy as Proxy
from backend.settings_identity import Security as Security

Mode = Literal["observe", "propose", "act"]


class Server(Section):
    host: str = Field(
        "127.0.0.1", pattern=r"^[\w.:-]+$", description="Address to listen on. Off loopback, ingest needs a token."
    )
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    url: str = Field(
        "",
        pattern=r"^(https?://\S+)?$",
        description="How people reach this server, as in https://watch.example; links in mail and Slack start with it.",
    )
    max_body_bytes: int = Field(16_777_216, gt=0, description="Largest request body; a larger one is answered 413.")
    tls_cert: Path | None = Field(None, description="Certificate chain (PEM): this server then speaks https itself.")
    tls_key: Path | None = Field(None, description="Key of the certificate (PEM).")
    tls_client_ca: Path | None = Field(
        None, description="Only clients with a certificate of these authorities (PEM) are let in at all (mTLS)."
    )

    log: Literal["text", "json"] = Field(
        "text", description="How it writes its own log, to stderr: for people, or JSON."
    )
    otlp_url: str = Field(
        "",
        pattern=r"^(https?://\S+)?$",
        description="Collector of OpenTelemetry, as in http://collector:4318/v1/traces; needs the extra otel.",
    )

    @model_validator(mode="after")
    def certificate_whole(self) -> Self:
        """A key or an authority without a certificate would leave the server in plain http, unsaid."""
        if self.tls_cert is None and (self.tls_key is not None or self.tls_client_ca is not None):
            raise ValueError("tls_key and tls_client_ca need tls_cert: without it the server would speak plain http")
        return self


class Store(Section):
    url: str = Field(
        "",
        repr=False,
        json_schema_extra={"secret": True},  # it may hold a password
        description="Database: sqlite:////path.db or postgresql+psycopg://user@host/name. Empty: SQLite in the folder.",
    )
    folder: Path = Field(Path("watchkeeper-data"), description="Data folder; a network file system is refused.")
    lease_s: float = Field(
        5.0,
        ge=2.0,
        le=60.0,
        description="Of several processes on one PostgreSQL one watches; when silent this long (s), another does.",
    )


class Prometheus(Section):
    url: str = Field(
        pattern=r"^https?://\S+$", description="Base URL of Prometheus, VictoriaMetrics, Thanos or Mimir (http, https)."
    )
    interval_s: float = Field(15.0, ge=1, description="How often to read, in seconds.")
    timeout_s: float = Field(10.0, gt=0, description="Longest wait for one answer, in seconds.")
    headers: dict[str, str] = Field(default_factory=dict, repr=False, description="Extra request headers.")
    matchers: str = Field("", description='Extra label matchers, as in cluster="main".')


class Slurm(Section):
    cli: bool = Field(True, description="Use sinfo, squeue and scontrol.")
    conf: str = Field("", description="SLURM_CONF for the commands; empty takes the system's.")
    interval_s: float = Field(15.0, ge=1, description="How often to read nodes and jobs, in seconds.")
    timeout_s: float = Field(10.0, gt=0, description="Longest wait for one command, in seconds.")
    rest_url: str = Field(
        "",
        pattern=r"^(https?://\S+|unix:/\S+)?$",
        description="slurmrestd, as in http://head:6820 or unix:/run/slurmrestd.socket. Empty: commands only. "
        "What its version cannot do goes by scontrol where cli is true.",
    )
    rest_user: str = Field("", pattern=r"^[\w.@-]*$", description="Account that the token of slurmrestd is for.")
    rest_token_file: Path | None = Field(
        None,
        description="File that holds the token of slurmrestd (JWT); read again for each request. One that has ended is "
        "renewed by scontrol token where cli is true.",
    )
    accounting: bool = Field(True, description="Read attempts and outages from slurmdbd with sacct and sacctmgr.")
    accounting_interval_s: float = Field(60.0, ge=5, description="How often to read the accounting, in seconds.")
    accounting_timeout_s: float = Field(60.0, gt=0, description="Longest wait for sacct or sacctmgr, in seconds.")
    accounting_reach_s: float = Field(
        2_592_000.0, ge=0, description="How far back the first read of the accounting goes (30 days)."
    )


class Kubernetes(Section):
    kubeconfig: Path | None = Field(
        None, description="Kubeconfig file; empty: our pod's account inside a cluster, else what kubectl would take."
    )
    in_cluster: bool = Field(False, description="Use the account of the pod that Watchkeeper runs in.")
    context: str = Field("", description="Context of the kubeconfig; empty takes its current one.")
    namespaces: tuple[str, ...] = Field((), description="Where jobs are looked for; empty: everywhere.")
    cordon: bool = Field(
        True, description="Cordon beside our taint. Without, a kubectl cordon of a node that we took out is never lost."
    )
    interval_s: float = Field(15.0, ge=2, description="How often to read nodes, pods, jobs and events, in seconds.")
    timeout_s: float = Field(10.0, gt=0, description="Longest wait for one answer, in seconds.")


class Logs(Section):
    files: tuple[Annotated[str, StringConstraints(pattern=r"^/\S(.*\S)?$")], ...] = Field(
        (),
        description="Log files to follow: paths and globs, as in /var/log/kern.log or /var/log/hosts/{host}/*.log; "
        "{host} is the name of their host. /dev/kmsg is the kernel's ring of this host.",
    )
    timezone: str = Field("", description="Zone of times that bear none, as in Europe/Berlin; empty: this machine's.")
    interval_s: float = Field(1.0, ge=0.2, description="How often to look at files and /dev/kmsg, in seconds.")
    read_bytes: int = Field(
        16_777_216, ge=262_144, description="Most that one turn reads of all files; a backlog takes several turns."
    )
    open_files: int = Field(256, ge=0, description="Files held open, so that a renamed one is read to its end.")
    journal: bool = Field(False, description="Read the systemd journal of this host with journalctl.")
    journal_matches: tuple[str, ...] = Field(
        ("_TRANSPORT=kernel", "SYSLOG_IDENTIFIER=nv-fabricmanager"),
        description="What of the journal is read, as journalctl takes it; any of them suffices. Empty: everything.",
    )
    journal_directory: str = Field("", description="Folder of journals gathered from other hosts; empty: this host's.")
    journal_interval_s: float = Field(5.0, ge=1, description="How often to ask journalctl, in seconds.")
    loki_url: str = Field("", pattern=r"^(https?://\S+)?$", description="Base URL of Loki, as in http://loki:3100.")
    loki_queries: tuple[str, ...] = Field(
        (),
        description='Log queries to read, as in {transport="kernel"}. Empty: kernel words of all that has a job label.',
    )
    loki_tenant: str = Field("", description="Tenant of Loki, sent as X-Scope-OrgID.")
    loki_headers: dict[str, str] = Field(default_factory=dict, repr=False, description="Extra request headers.")
    loki_job_label: str = Field("", description="Label that holds the job whose line it is; empty: none does.")
    step_lines: tuple[str, ...] = Field(
        (), description="Step lines of your trainer by example, as in step {step=120}: my loss {loss=3.21}."
    )
    loki_interval_s: float = Field(5.0, ge=1, description="How often to ask Loki, in seconds.")
    timeout_s: float = Field(10.0, gt=0, description="Longest wait for journalctl or one answer of Loki, in seconds.")
    trust_syslog: bool = Field(
        False,
        description="Take mixed logs (syslog, messages, streams without a transport) for the kernel's own word. Only "
        "where no user can write to them: logger -t kernel looks the same, and could have nodes taken out of service.",
    )
    job_logs: bool = Field(
        True, description="Follow the logs of jobs that Slurm or Kubernetes runs, those that this account may read."
    )
    job_interval_s: float = Field(5.0, ge=1, description="How often to look at logs of jobs, in seconds.")
    job_looks: int = Field(200, ge=1, description="Most looks (stat) at logs of jobs in one turn.")
    job_bytes: int = Field(4_194_304, ge=262_144, description="Most bytes that one turn reads of logs of jobs.")
    job_files: int = Field(2_000, ge=1, description="Most logs of jobs that are followed at once.")
    job_quiet_s: float = Field(60.0, ge=0, description="Longest time between two looks at a log that does not grow.")
    tail_bytes: int = Field(262_144, ge=8_192, description="What is kept of the last lines of a job, in bytes.")

    @field_validator("timezone")
    @classmethod
    def _a_zone(cls, given: str) -> str:
        try:
            ZoneInfo(given or "UTC")
        except (KeyError, ValueError, OSError):
            raise ValueError("is no time zone. Write it as Europe/Berlin, or leave it empty") from None
        return given


class Cluster(Section):
    name: str = Field("main", min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="Name of the cluster.")
    prometheus: tuple[Prometheus, ...] = Field((), description="Prometheus servers to pull from.")
    slurm: Slurm | None = Field(None, description="Slurm as a source and as the hand that acts.")
    kubernetes: Kubernetes | None = Field(None, description="Kubernetes as a source and as the hand that acts.")
    hands: Hands = Field(default_factory=Hands, description="What acts beside the scheduler.")
    logs: Logs = Field(default_factory=Logs, description="Log files, the journal, Loki, and logs of jobs.")
    interval_s: float = Field(15.0, ge=1, description="Distance of telemetry ticks, in seconds.")
    lateness_s: float | None = Field(
        None, ge=0, description="How long a tick waits for late samples; empty: one interval."
    )
    history: tuple[str, ...] = Field(
        (),
        description="Metrics whose last 48 h are kept for pages, as named in metrics.csv; empty: the usual fourteen.",
    )
    thresholds: dict[str, float] = Field(
        default_factory=dict,
        description="Detector thresholds of this fleet by name; names, units and defaults stand in thresholds.toml.",
    )
    shadow: tuple[str, ...] = Field(
        (), description="Detectors, kinds or detector:kind that are only shown: they open and exclude nothing."
    )
    backend: Literal["", "slurm", "kubernetes", "dry_run", "simulated"] = Field(
        "", description="What carries orders out. Empty: slurm where it is configured, else kubernetes, else nothing."
    )


class Summary(Section):
    url: str = Field(
        pattern=r"^https?://[^\s/]+\S*$", description="Where chat/completions is, as in http://127.0.0.1:8080/v1."
    )
    model: str = Field("default", description="Model that is asked for.")
    key: SecretStr | None = Field(None, description="API key, where the server wants one.")
    timeout_s: float = Field(20.0, gt=0, le=120, description="Longest wait for a summary, in seconds.")


class Incidents(Section):
    hold_s: float = Field(1800.0, ge=0, description="Seen and clear for this long before an incident may resolve.")
    fold_s: float = Field(2100.0, ge=0, description="Late victims of the same job fold in for this long (35 min).")
    notify_from: Literal["info", "warning", "high", "critical"] = Field(
        "high", description="Lowest severity that is told by mail and Slack."
    )


class Origins(dict[str, str]):
    """Where keys were set. Two configurations that say the same are equal, wherever they say it."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origins)


class Settings(Section):
    mode: Mode = Field("observe", description="observe binds nobody; propose asks; act does.")
    server: Server = Field(default_factory=Server)
    store: Store = Field(default_factory=Store)
    cluster: tuple[Cluster, ...] = Field((Cluster(),), min_length=1, description="One table a cluster.")
    email: Email | None = None
    slack: Slack | None = None
    pagerduty: PagerDuty | None = None
    teams: Teams | None = None
    webhook: Webhook | None = None
    apprise: Apprise | None = None
    alertmanager: Alertmanager | None = None
    owners: Owners = Field(default_factory=Owners)
    alerts: Alerts = Field(default_factory=Alerts)
    summary: Summary | None = Field(
        None, description="A language model that sums up quoted lines for people; off unless set, and never decides."
    )
    incidents: Incidents = Field(default_factory=Incidents)
    policy: Policy = Field(default_factory=Policy)
    security: Security = Field(default_factory=Security)
    oidc: Oidc | None = None
    proxy: Proxy | None = None
    reliability: Reliability = Field(default_factory=Reliability)
    report: Report = Field(default_factory=Report)
    archive: Archive = Field(default_factory=Archive)
    #: Where each key was set: a file with its line, or an environment variable; what is not here is a default.
    _origins: Origins = PrivateAttr(default_factory=Origins)

    @property
    def origins(self) -> dict[str, str]:
        return self._origins

    @field_validator("cluster")
    @classmethod
    def _named_once(cls, clusters: tuple[Cluster, ...]) -> tuple[Cluster, ...]:
        names = [cluster.name for cluster in clusters]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"has two clusters named {', '.join(twice)}")
        return clusters

    @model_validator(mode="after")
    def channels_there(self) -> Self:
        """A route to a channel that is not set up would tell nobody."""
        self.alerts.check({name for name in CHANNELS if getattr(self, name) is not None})
        return self


# --- loading --------------------------------------------------------------------------------------------------------

#: Old key -> new key, both dotted. A renamed key still works, with a warning, for two releases.
RENAMED: Mapping[str, str] = {}

log = logging.getLogger("watchkeeper.settings")


def load(path: Path | None, environ: Mapping[str, str], renamed: Mapping[str, str] = RENAMED) -> Settings:
    """Settings from a TOML file (None: all defaults) with WATCHKEEPER_SECTION__KEY of the environment on top.

    Raises SettingsError with every mistake found: its key, file and line, what is wrong and the fix.
    """
    tree = settings_file.read(path, environ, Settings)
    for old, new in renamed.items():
        _rename(tree, old, new)
    try:
        settings = Settings.model_validate(tree.values)
    except ValidationError as error:
        raise SettingsError(*tree.mistakes, *_mistakes(error, tree)) from None
    if tree.mistakes:
        raise SettingsError(*tree.mistakes)
    settings.origins.update({dotted(place): tree.where(place) for place in tree.origins if place})
    return settings


def _rename(tree: Tree, old: str, new: str) -> None:
    """Move a value from its old place to its new one, and say so."""
    place, target = tuple(old.split(".")), tuple(new.split("."))
    source = _table(tree.values, place)
    if source is None or place[-1] not in source:
        return
    where = tree.where(place)
    value = source.pop(place[-1])
    into = _table(tree.values, target, make=True)
    if into is None or target[-1] in into:
        tree.wrong(place, f"is now {new}, which is set too", f"Remove {old}.", where)
        return
    into[target[-1]] = value
    tree.origins[target] = tree.origins.get(place, where)
    log.warning("%s: %s is now %s; the old name will stop working", where, old, new)


def _table(values: dict[str, Any], place: tuple[str, ...], make: bool = False) -> dict[str, Any] | None:
    """The table that holds the last part of ``place``."""
    for part in place[:-1]:
        inner = values.setdefault(part, {}) if make else values.get(part)
        if not isinstance(inner, dict):
            return None
        values = inner
    return values


def _mistakes(error: ValidationError, tree: Tree) -> Iterator[Mistake]:
    found = error.errors(include_url=False, include_context=True)
    places = [tuple(each["loc"]) for each in found]
    for each, place in zip(found, places, strict=True):
        if each["type"] == "too_short" and any(p[: len(place)] == place and p != place for p in places):
            continue  # a list that only lacks what its bad entries would have been
        what, fix = _said(each, place)
        yield Mistake(dotted(place), tree.where(place), what, fix)


def _said(each: ErrorDetails, place: Place) -> tuple[str, str]:
    """What is wrong and the fix. Values are shown only where they are numbers or one of a few words."""
    model, found = _at(place)
    kind, shown = each["type"], each.get("input")
    if kind == "extra_forbidden":
        return "is not a key", _nearest(model, place)
    if kind == "missing":
        return "is missing", f"Add it: {found.description}" if found else ""
    if kind in ("model_type", "model_attributes_type", "tuple_type") and (inner := section_of(found)[0]):
        name = ".".join(part for part in place if isinstance(part, str))
        many = section_of(found)[1]
        return "is not " + ("a list of tables" if many else "a table"), (
            f"Write {f'[[{name}]]' if many else f'[{name}]'}, with keys such as {next(iter(fields(inner)))}."
        )
    if kind == "value_error":
        return each["msg"].removeprefix("Value error, "), ""
    if kind == "string_pattern_mismatch":
        return "does not look as it should", found.description or "" if found else ""
    plain = found is not None and is_scalar(found) and not is_secret(found)
    value = f" (it is {shown!r})" if plain and (isinstance(shown, int | float) or kind == "literal_error") else ""
    return each["msg"].replace("Input should be", "should be").replace("Tuple", "the list") + value, (
        f"{found.description}" if found and found.description else ""
    )


def _at(place: Place) -> tuple[type[BaseModel], FieldInfo | None]:
    """The table that holds this place, and the field there."""
    model: type[BaseModel] = Settings
    found: FieldInfo | None = None
    for part in place:
        if isinstance(part, int):
            continue
        if found is not None:
            inner = section_of(found)[0]
            if inner is None:
                break
            model = inner
        found = fields(model).get(part)
    return model, found


def _nearest(model: type[BaseModel], place: Place) -> str:
    """The key most likely meant: a very similar one here, the same one in another table, a similar one."""
    key = str(place[-1])
    around = place[:-1]
    here = [*fields(model), *(f"{name}_file" for name, found in fields(model).items() if is_secret(found))]
    elsewhere = [name for name, _ in keys() if name.split(".")[-1] == key]
    close = difflib.get_close_matches(key, here, n=1, cutoff=0.85 if elsewhere else 0.6)
    if close:
        return f"Did you mean {dotted((*around, close[0]))}?"
    if elsewhere:
        return f"Did you mean {elsewhere[0]}?"
    return f"Known here: {', '.join(here)}."


# --- reference ------------------------------------------------------------------------------------------------------

START, END = "<!-- config:start -->", "<!-- config:end -->"


def keys(shape: type[BaseModel] = Settings, before: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every key that holds a value, dotted; lists of tables as ``cluster[].name``."""
    for name, found in fields(shape).items():
        inner, many = section_of(found)
        if inner is None:
            yield before + name, found
        else:
            yield from keys(inner, f"{before}{name}{'[]' if many else ''}.")


def reference() -> str:
    """A Markdown table of every key: type, default, meaning, and the environment variable that sets it."""
    lines = ["| key | type | default | meaning | environment |", "|---|---|---|---|---|"]
    lines.append(
        "| `include` | list of texts | `[]` | More TOML files, relative to this one; no key may be set twice. | |"
    )
    for name, found in keys():
        variable = f"`{PREFIX}{name.replace('.', '__').upper()}`" if is_scalar(found) and "[]" not in name else ""
        also = f" Also `{name.split('.')[-1]}_file`, the path of a file that holds it." if is_secret(found) else ""
        cells = (f"`{name}`", _kind(found.annotation), _default(found), f"{found.description}{also}", variable)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _kind(annotation: Any) -> str:
    """A type in words."""
    words = {str: "text", int: "whole number", float: "number", bool: "true, false", Path: "path", SecretStr: "secret"}
    if annotation in words:
        return words[annotation]
    inner = [kind for kind in get_args(annotation) if kind not in (NoneType, Ellipsis)]
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{word}`" if word else "empty" for word in inner)
    if get_origin(annotation) is tuple:
        return f"list of {_kind(inner[0])}s"
    if get_origin(annotation) is dict:
        return "table of texts"
    return _kind(inner[0])


def _default(found: FieldInfo) -> str:
    if found.is_required():
        return "required"
    value = found.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple | dict):
        return "`[]`" if isinstance(value, tuple) else "`{}`"
    return (
        f"`{value:g}`"
        if isinstance(value, float)
        else f'`"{value}"`'
        if isinstance(value, str | Path)
        else f"`{value}`"
    )


def with_reference(text: str) -> str:
    """A document with the reference between its two markers brought up to date. Raises ValueError without markers."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"the document lacks the markers {START} and {END}")
    return f"{before}{START}\n{reference()}\n{END}{after}"


if __name__ == "__main__":  # python -m backend.settings README.md
    document = Path(sys.argv[1])
    document.write_text(with_reference(document.read_text(encoding="utf-8")), encoding="utf-8")
