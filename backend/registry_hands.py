"""Settings of hands to parts: what acts beside a cluster's scheduler. Named by the registry only."""

from __future__ import annotations

from backend.act.base import ClusterBackend
from backend.act.checks import Check, CheckHand, Noted, unnoted
from backend.act.command import CommandHand, Recipe
from backend.act.dry_run import DryRunBackend
from backend.act.hands import Hand, Hands
from backend.act.redfish import RedfishHand
from backend.act.tickets import ticket
from backend.act.webhook import WebhookHand
from backend.clock import Clock
from backend.facts import Verb
from backend.settings import Cluster
from backend.settings_acting import Webhook


def with_hands(
    cluster: Cluster, backend: ClusterBackend | None, clock: Clock, noted: Noted = unnoted
) -> ClusterBackend | None:
    """The scheduler's backend with the hands that the settings name; a dry run gets none. ``noted`` is told of each
    result of a check."""
    if backend is None or isinstance(backend, DryRunBackend):
        return backend
    hands = hands_of(cluster, clock, noted)
    return Hands(backend, hands) if hands else backend


def hands_of(cluster: Cluster, clock: Clock, noted: Noted = unnoted) -> tuple[Hand, ...]:
    wanted = cluster.hands
    found: list[Hand] = [hand for one in wanted.webhook for hand in _webhooks(one, clock)]
    for one in wanted.command:
        found.append(CommandHand({Verb(one.verb): Recipe(one.does, one.asks)}, one.timeout_s))
    if wanted.redfish is not None:
        bmc = wanted.redfish
        found.append(RedfishHand(bmc.address, bmc.user, bmc.password.get_secret_value(), bmc.timeout_s))
    checks = CheckHand(checks_of(cluster), noted=noted)
    return (*found, checks) if checks.can else tuple(found)


def checks_of(cluster: Cluster) -> tuple[Check, ...]:
    return tuple(Check(**one.model_dump()) for one in cluster.hands.check)


def _webhooks(one: Webhook, clock: Clock) -> list[Hand]:
    """Tickets have a body of their own."""
    secret, verbs = one.secret.get_secret_value().encode(), frozenset(Verb(verb) for verb in one.verbs)
    made: list[Hand] = []
    if plain := verbs - {Verb.TICKET}:
        made.append(WebhookHand("webhook", one.url, secret, plain, clock, one.timeout_s))
    if Verb.TICKET in verbs:
        desk = frozenset({Verb.TICKET})
        made.append(WebhookHand("tickets", one.url, secret, desk, clock, one.timeout_s, ticket))
    return made
