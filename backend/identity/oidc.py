"""Sign-in by an OpenID Connect issuer: authorization code with PKCE, state and nonce; groups become a role."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson
import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from backend.auth import SignInError, Vouched, role_of
from backend.settings_identity import Oidc
from backend.store.people import Scope

#: What signs ID tokens here: public keys only, so that nobody who knows our secret can make one, and never "none".
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
#: How long a sign-in may take at the issuer, and how far its clock may be from ours, in seconds.
FLOW_S, LEEWAY_S = 600.0, 60
#: The issuer's words are read again after this, in seconds; for a key that is not known, at once but no oftener than
#: AGAIN_S.
KEPT_S, AGAIN_S = 3600.0, 10.0
#: Largest answer of an issuer that is read, in bytes.
LARGEST = 1_000_000
BACK = "/sign-in/oidc/back"


@dataclass(frozen=True, slots=True)
class Flow:
    """One sign-in that is under way: kept in the browser, sealed. ``to``: where to go after."""

    state: str
    nonce: str
    verifier: str
    to: str
    at: float


class Issuer:
    """One issuer, with what it published. Thread-safe. ``session`` is what tests put their transport on."""

    def __init__(self, rules: Oidc, url: str, session: requests.Session | None = None) -> None:
        self.rules = rules
        self.redirect = url.rstrip("/") + BACK
        self._lock = threading.Lock()
        self._session = session or requests.Session()
        self._said: tuple[float, Mapping[str, Any]] | None = None
        self._keys: tuple[float, KeySet] | None = None

    @property
    def host(self) -> str:
        """What people know it by."""
        return urlsplit(self.rules.issuer).netloc

    def begin(self, to: str, now: datetime) -> tuple[str, Flow]:
        """Where to send the browser, and what to keep of it. Raises SignInError where the issuer is away."""
        state, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(3))
        flow = Flow(state, nonce, verifier, to, now.timestamp())
        place = self._endpoint("authorization_endpoint", now)
        url, _ = self._client(flow.state).create_authorization_url(
            place, state=flow.state, code_verifier=flow.verifier, nonce=flow.nonce
        )
        return str(url), flow

    def finish(self, flow: Flow, query: Mapping[str, str], now: datetime) -> Vouched:
        """Whom the issuer vouches for. Raises SignInError, in words, for anything that is not as it must be."""
        if now.timestamp() - flow.at > FLOW_S:
            raise SignInError("This sign-in took too long. Begin again.")
        if not hmac.compare_digest(query.get("state", "").encode(), flow.state.encode()):
            raise SignInError("This answer belongs to another sign-in. Begin again.")
        if "iss" in query and query["iss"] != self.rules.issuer:  # RFC 9207: mix-up of issuers
            raise SignInError("This answer is another issuer's.")
        if error := query.get("error"):
            raise SignInError(f"{self.host} refused: {error[:80] if error.isprintable() else 'without a word'}.")
        if not query.get("code"):
            raise SignInError(f"{self.host} sent no code. Begin again.")
        return self._person(self._claims(self._token(flow, query["code"], now), flow.nonce, now))

    # --- what the issuer says ---------------------------------------------------------------------------------------

    def _token(self, flow: Flow, code: str, now: datetime) -> Mapping[str, Any]:
        place = self._endpoint("token_endpoint", now)
        answer = urlencode({"code": code, "state": flow.state})
        client = self._client(flow.state)
        client.adapters = self._session.adapters
        try:
            found: Mapping[str, Any] = client.fetch_token(
                place,
                authorization_response=f"{self.redirect}?{answer}",
                code_verifier=flow.verifier,
                timeout=self.rules.timeout_s,
                allow_redirects=False,
            )
        except (AuthlibBaseError, requests.RequestException, ValueError) as error:
            raise SignInError(f"{self.host} did not take the code ({type(error).__name__}). Begin again.") from error
        return found

    def _claims(self, token: Mapping[str, Any], nonce: str, now: datetime) -> Mapping[str, Any]:
        """The ID token's claims, once signature, issuer, audience, times and nonce are right."""
        text = token.get("id_token")
        if not isinstance(text, str):
            raise SignInError(f"{self.host} sent no ID token; is openid among [oidc] scopes?")
        try:
            try:
                read = jwt.decode(text, self._key_set(now), algorithms=ALGORITHMS)
            except (JoseError, ValueError):
                read = jwt.decode(text, self._key_set(now, anew=True), algorithms=ALGORITHMS)
            must = {"iss": {"essential": True, "value": self.rules.issuer}, "aud": {"essential": True}}
            params = {"nonce": nonce, "client_id": self.rules.client_id, "access_token": token.get("access_token")}
            claims = CodeIDToken(read.claims, read.header, must, params)
            claims.validate(now=int(now.timestamp()), leeway=LEEWAY_S)
        except (JoseError, AuthlibBaseError, ValueError, TypeError) as error:
            raise SignInError(f"The ID token of {self.host} does not hold ({type(error).__name__}).") from error
        audience = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if self.rules.client_id not in audience or not isinstance(claims["sub"], str):
            raise SignInError(f"The ID token of {self.host} is for somebody else.")
        return dict(claims)

    def _person(self, claims: Mapping[str, Any]) -> Vouched:
        rules = self.rules
        name = _at(claims, rules.name_claim)
        if not isinstance(name, str) or not name.strip():
            raise SignInError(f"{self.host} did not say who you are: the ID token has no {rules.name_claim}.")
        groups = _listed(_at(claims, rules.groups_claim))
        limits = [
            _listed(_at(claims, claim)) if claim else [] for claim in (rules.clusters_claim, rules.projects_claim)
        ]
        for claim, held in zip((rules.clusters_claim, rules.projects_claim), limits, strict=True):
            if claim and not held:
                raise SignInError(f"{self.host} did not say what you are limited to: the ID token has no {claim}.")
        scope = Scope(clusters=tuple(limits[0]), projects=tuple(limits[1]))
        return Vouched("oidc", f"{rules.issuer}|{claims['sub']}", name.strip()[:64], role_of(rules, groups), scope)

    def _client(self, state: str) -> OAuth2Session:
        secret = self.rules.client_secret
        return OAuth2Session(
            self.rules.client_id,
            secret.get_secret_value() if secret is not None else None,
            token_endpoint_auth_method="client_secret_basic" if secret is not None else "none",
            scope=" ".join(self.rules.scopes),
            redirect_uri=self.redirect,
            state=state,
            code_challenge_method="S256",
        )

    def _endpoint(self, name: str, now: datetime) -> str:
        """An address of the issuer's own discovery document, which must call itself by the configured name."""
        with self._lock:
            if self._said is None or now.timestamp() - self._said[0] > KEPT_S:
                found = self._get(self.rules.issuer.rstrip("/") + "/.well-known/openid-configuration")
                if found.get("issuer") != self.rules.issuer:
                    raise SignInError(f"{self.host} calls itself by another name than [oidc] issuer.")
                self._said = (now.timestamp(), found)
            place = self._said[1].get(name)
        plain = self.rules.issuer.startswith("http://")  # on loopback only: settings see to that
        if not isinstance(place, str) or not place.startswith(
            ("https://", "http://127.0.0.1:") if plain else "https://"
        ):
            raise SignInError(f"{self.host} publishes no safe {name}.")
        return place

    def _key_set(self, now: datetime, *, anew: bool = False) -> KeySet:
        place, at = self._endpoint("jwks_uri", now), now.timestamp()
        with self._lock:
            old = at - self._keys[0] if self._keys is not None else None
            if self._keys is None or old is None or old > KEPT_S or (anew and old > AGAIN_S):
                published: Any = self._get(place)
                self._keys = (at, KeySet.import_key_set(published))
            return self._keys[1]

    def _get(self, url: str) -> Mapping[str, Any]:
        try:
            with self._session.get(url, timeout=self.rules.timeout_s, allow_redirects=False, stream=True) as answer:
                answer.raise_for_status()
                found = orjson.loads(answer.raw.read(LARGEST, decode_content=True))
        except (requests.RequestException, OSError, ValueError) as error:
            raise SignInError(f"{self.host} does not answer as it should ({type(error).__name__}).") from error
        if not isinstance(found, dict):
            raise SignInError(f"{self.host} does not answer as it should (no JSON object).")
        return found


# --- the flow in the browser ------------------------------------------------------------------------------------------


def sealed(flow: Flow, key: bytes) -> str:
    """The flow as the value of a cookie: what a browser could change shows."""
    body = base64.urlsafe_b64encode(orjson.dumps([flow.state, flow.nonce, flow.verifier, flow.to, flow.at])).decode()
    return f"{body}.{_seal(body, key)}"


def opened(text: str, key: bytes) -> Flow | None:
    """None for what we did not seal."""
    body, _, seal = text.partition(".")
    if not seal or not hmac.compare_digest(seal.encode(), _seal(body, key).encode()):
        return None
    try:
        return Flow(*orjson.loads(base64.urlsafe_b64decode(body)))
    except (ValueError, TypeError, binascii.Error):
        return None


def _seal(body: str, key: bytes) -> str:
    return hmac.new(key, b"oidc flow:" + body.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _at(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its name, or by a path through objects (``realm_access.roles``)."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for step in path.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _listed(found: Any) -> list[str]:
    if isinstance(found, str):
        return [word for word in found.replace(",", " ").split() if word]
    return [word for word in found if isinstance(word, str)] if isinstance(found, list) else []
