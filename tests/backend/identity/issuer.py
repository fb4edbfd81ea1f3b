"""An OpenID Connect provider of our own: real HTTP on loopback, real signatures, and faults by order."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

CLIENT, SECRET = "watchkeeper", "s3cret-of-the-client"


@dataclass
class Provider:
    """``claims`` go into the next ID token over the usual ones; ``change`` may break the token answer."""

    claims: dict[str, Any] = field(default_factory=dict)
    key: Any = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}))
    header: dict[str, Any] = field(default_factory=lambda: {"alg": "RS256", "kid": "one"})
    sign_with: Any = None
    published: Any = None
    issuer_says: str = ""
    now: float = field(default_factory=time.time)
    asked: dict[str, dict[str, str]] = field(default_factory=dict)
    spent: set[str] = field(default_factory=set)
    url: str = ""

    def authorize(self, url: str) -> dict[str, str]:
        """What a person who signs in there sends back in the browser: the query of the redirect."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert query["response_type"] == "code" and query["client_id"] == CLIENT
        assert query["code_challenge_method"] == "S256" and query["nonce"] and query["state"]
        code = f"code-{len(self.asked)}"
        self.asked[code] = query
        return {"code": code, "state": query["state"]}

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """As a strict provider: the client's secret, a code once, PKCE, the same redirect address."""
        asked = self.asked.get(form.get("code", ""))
        basic = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if asked is None or form["code"] in self.spent or authorization != basic:
            return 400, {"error": "invalid_grant"}
        self.spent.add(form["code"])
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        if form.get("redirect_uri") != asked["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        claims = {
            "iss": self.url,
            "sub": "u-1",
            "aud": CLIENT,
            "iat": int(self.now),
            "exp": int(self.now) + 300,
            "nonce": asked["nonce"],
            "preferred_username": "ada",
        } | self.claims
        claims = {name: value for name, value in claims.items() if value is not None}
        text = jwt.encode(self.header, claims, self.sign_with or self.key, algorithms=[self.header["alg"]])
        return 200, {"access_token": "opaque", "token_type": "Bearer", "expires_in": 300, "id_token": text}

    def get(self, path: str) -> dict[str, Any]:
        if path == "/keys":
            return dict((self.published or KeySet([self.key])).as_dict(private=False))
        return {
            "issuer": self.issuer_says or self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }


def other_key() -> ECKey:
    return ECKey.generate_key("P-256", {"kid": "two"})


def serve(provider: Provider) -> ThreadingHTTPServer:
    """Serve it on a free port of loopback; the caller shuts it down."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.say(200, provider.get(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self.say(*provider.token(form, self.headers.get("Authorization", "")))

        def say(self, status: int, body: dict[str, Any]) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server
