"""Sign-in by OpenID Connect against a provider with real signatures: what gets in, and what never does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from joserfc.jwk import KeySet, OctKey
from pydantic import SecretStr

from backend.auth import SignInError
from backend.identity.oidc import Flow, Issuer, opened, sealed
from backend.settings_identity import Oidc
from tests.backend.identity.issuer import CLIENT, SECRET, Provider, other_key, serve
from tests.conftest import NOW

KEY = b"k" * 32
OURS = "https://watch.example"


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    provider = Provider(now=NOW.timestamp())
    server = serve(provider)
    yield provider
    server.shutdown()
    server.server_close()


@pytest.fixture
def provider(running: Provider) -> Provider:
    running.claims, running.header = {"groups": ["gpu-oncall"]}, {"alg": "RS256", "kid": "one"}
    running.sign_with, running.published, running.issuer_says = None, None, ""
    return running


def issuer(provider: Provider, **more: Any) -> Issuer:
    rules = {
        "issuer": provider.url,
        "client_id": CLIENT,
        "client_secret": SecretStr(SECRET),
        "approver": ("gpu-oncall",),
    }
    return Issuer(Oidc(**(rules | more)), OURS)


def through(provider: Provider, with_: Issuer, **change: str) -> Any:
    url, flow = with_.begin("/incidents", NOW)
    assert url.startswith(provider.url + "/authorize?")
    return with_.finish(flow, provider.authorize(url) | change, NOW)


def test_a_person_of_a_group_gets_its_role(provider: Provider) -> None:
    found = through(provider, issuer(provider))
    assert (found.origin, found.name, found.role) == ("oidc", "ada", "approver")
    assert found.subject == f"{provider.url}|u-1"


def test_the_highest_role_of_several_groups_counts_and_claims_may_lie_deeper(provider: Provider) -> None:
    provider.claims = {"realm_access": {"roles": ["a", "b"]}, "teams": "atlas orion", "sites": ["east"]}
    rules: dict[str, Any] = {"viewer": ("a",), "admin": ("b",), "groups_claim": "realm_access.roles"}
    found = through(provider, issuer(provider, projects_claim="teams", clusters_claim="sites", **rules))
    assert found.role == "admin" and found.scope.projects == ("atlas", "orion") and found.scope.clusters == ("east",)


def test_who_is_in_no_group_has_no_role(provider: Provider) -> None:
    provider.claims = {"groups": ["others"]}
    assert through(provider, issuer(provider)).role == ""
    assert through(provider, issuer(provider, otherwise="viewer")).role == "viewer"


def test_somebody_whose_limits_are_not_told_is_limited_to_nothing_and_stays_out(provider: Provider) -> None:
    with pytest.raises(SignInError, match="limited to"):
        through(provider, issuer(provider, projects_claim="teams"))


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other.example"},
        {"aud": "another-client"},
        {"aud": ["another-client", "third"]},
        {"aud": [CLIENT, "third"]},  # no azp says that it is for us
        {"azp": "another-client"},
        {"exp": int(NOW.timestamp()) - 120},
        {"exp": None},
        {"iat": None},
        {"nbf": int(NOW.timestamp()) + 600},
        {"nonce": "replayed"},
        {"nonce": None},
        {"sub": None},
        {"sub": 7},
        {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
        {"preferred_username": None},
    ],
)
def test_a_token_that_is_not_for_us_now_and_here_lets_nobody_in(provider: Provider, claims: dict[str, Any]) -> None:
    provider.claims |= claims
    with pytest.raises(SignInError):
        through(provider, issuer(provider))


def test_only_the_issuers_own_public_keys_sign(provider: Provider) -> None:
    stranger = other_key()
    provider.header, provider.sign_with = {"alg": "ES256", "kid": "two"}, stranger
    with pytest.raises(SignInError, match="does not hold"):
        through(provider, issuer(provider))
    provider.header, provider.sign_with = {"alg": "HS256", "kid": "one"}, OctKey.import_key(SECRET)
    with pytest.raises(SignInError, match="does not hold"):
        through(provider, issuer(provider))


def test_a_key_that_was_changed_is_read_anew(provider: Provider) -> None:
    known, fresh = issuer(provider), other_key()
    through(provider, known)
    provider.header, provider.sign_with = {"alg": "ES256", "kid": "two"}, fresh
    provider.published = KeySet([provider.key, fresh])
    later = NOW + timedelta(seconds=11)
    url, flow = known.begin("/", later)
    assert known.finish(flow, provider.authorize(url), later).name == "ada"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"state": "forged"}, "another sign-in"),
        ({"code": "made-up"}, "did not take the code"),
        ({"code": ""}, "sent no code"),
        ({"error": "access_denied"}, "refused: access_denied"),
        ({"iss": "https://other.example"}, "another issuer"),
    ],
)
def test_an_answer_that_is_not_ours_lets_nobody_in(provider: Provider, change: dict[str, str], says: str) -> None:
    with pytest.raises(SignInError, match=says):
        through(provider, issuer(provider), **change)


def test_a_code_is_worth_nothing_without_the_verifier_or_twice(provider: Provider) -> None:
    known = issuer(provider)
    url, flow = known.begin("/", NOW)
    back = provider.authorize(url)
    thief = Flow(flow.state, flow.nonce, "x" * 64, "/", flow.at)
    with pytest.raises(SignInError, match="did not take the code"):
        known.finish(thief, back, NOW)
    with pytest.raises(SignInError, match="did not take the code"):
        known.finish(flow, back, NOW)


def test_a_sign_in_that_took_too_long_begins_anew(provider: Provider) -> None:
    known = issuer(provider)
    url, flow = known.begin("/", NOW)
    with pytest.raises(SignInError, match="too long"):
        known.finish(flow, provider.authorize(url), NOW + timedelta(seconds=601))


def test_an_issuer_under_another_name_or_away_is_told(provider: Provider) -> None:
    provider.issuer_says = "https://other.example"
    with pytest.raises(SignInError, match="another name"):
        issuer(provider).begin("/", NOW)
    away = Issuer(Oidc(issuer="http://127.0.0.1:9", client_id=CLIENT), OURS)
    with pytest.raises(SignInError, match="does not answer"):
        away.begin("/", NOW)


def test_a_flow_that_a_browser_changed_is_not_opened() -> None:
    flow = Flow("s", "n", "v", "/fleet", 1.5)
    text = sealed(flow, KEY)
    assert opened(text, KEY) == flow
    assert opened(text, b"other") is None
    for broken in ("", ".", "x.y", text[1:], text[:-1], text.replace(".", "", 1), "\ud800." + text):
        assert opened(broken, KEY) is None
