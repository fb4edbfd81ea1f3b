"""Kubeconfig files and pods' accounts: every form that is in use, and a clear word where one cannot be used."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.clients import kubernetes_access
from backend.clients.kubernetes_access import Access, AccessError, find, of_kubeconfig, of_pod
from tests.services.need import need


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate and its key."""
    folder = tmp_path_factory.mktemp("pem")
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=kube"]
    words += ["-keyout", str(folder / "key"), "-out", str(folder / "crt")]
    subprocess.run([need("openssl", "openssl"), *words], check=True, capture_output=True, timeout=60)
    return (folder / "crt").read_text(), (folder / "key").read_text()


def config(folder: Path, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None) -> Path:
    """A kubeconfig with one cluster, context and user; JSON is YAML."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "prod",
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {"token": "t"}}],
    }
    file = folder / "config"
    file.write_text(json.dumps(document))
    return file


def test_the_current_context_is_taken_and_another_one_by_name(tmp_path: Path) -> None:
    found = of_kubeconfig(config(tmp_path))
    assert (found.server, found.token(), found.namespace) == ("https://10.0.0.1:6443", "t", "ml")
    assert of_kubeconfig(config(tmp_path), "prod").token() == "t"
    with pytest.raises(AccessError, match="no context 'dev'; it has prod"):
        of_kubeconfig(config(tmp_path), "dev")


def test_a_token_file_is_read_at_each_use_and_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    found = of_kubeconfig(config(tmp_path, {"tokenFile": "token"}))
    assert found.token() == "one"
    (tmp_path / "token").write_text("two\n")
    assert found.token() == "two"
    (tmp_path / "token").write_text("bad\ntoken")
    with pytest.raises(AccessError, match="no bearer token"):
        found.token()


def test_certificates_come_from_files_or_from_within(tmp_path: Path, pem: tuple[str, str]) -> None:
    crt, key = pem
    inline = {"client-certificate-data": encoded(crt), "client-key-data": encoded(key)}
    cluster = {"certificate-authority-data": encoded(crt), "tls-server-name": "kube"}
    found = of_kubeconfig(config(tmp_path, inline, cluster))
    assert found.tls is not None and len(found.tls.get_ca_certs()) == 1 and found.server_name == "kube"
    (tmp_path / "crt").write_text(crt)
    (tmp_path / "key").write_text(key)
    files = {"client-certificate": "crt", "client-key": "key"}
    assert of_kubeconfig(config(tmp_path, files, {"certificate-authority": "crt"})).tls is not None
    with pytest.raises(AccessError, match="both"):
        of_kubeconfig(config(tmp_path, {"client-certificate": "crt"}))
    with pytest.raises(AccessError, match="cannot be used"):
        of_kubeconfig(config(tmp_path, {"client-certificate": "crt", "client-key": "crt"}))


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_an_unverified_server_is_only_what_was_asked_for(tmp_path: Path) -> None:
    checked, unchecked = (
        of_kubeconfig(config(tmp_path, cluster=more)).tls for more in ({}, {"insecure-skip-tls-verify": True})
    )
    assert checked is not None and checked.check_hostname
    assert unchecked is not None and not unchecked.check_hostname


BAD: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("old plugins", {"auth-provider": {"name": "gcp"}}, {}, "1.26"),
    ("passwords", {"username": "a", "password": "b"}, {}, "Use a token"),
    ("no server", {}, {"server": "10.0.0.1"}, "no http"),
    ("bad authority", {}, {"certificate-authority-data": encoded("no pem")}, "PEM"),
    ("bad base64", {}, {"certificate-authority-data": "!"}, "base64"),
    ("a file that is not there", {}, {"certificate-authority": "nowhere"}, "nowhere"),
    ("a command that is not named", {"exec": {"args": []}}, {}, "without a command"),
]


@pytest.mark.parametrize(("what", "user", "cluster", "words"), BAD, ids=[row[0] for row in BAD])
def test_what_cannot_be_used_says_what_and_how_to_mend_it(
    what: str, user: dict[str, Any], cluster: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(AccessError, match=words):
        of_kubeconfig(config(tmp_path, user or None, cluster))


def test_a_file_that_is_no_kubeconfig_is_told(tmp_path: Path) -> None:
    for text, words in (("a: [", "no YAML"), ("- 1", "no kubeconfig"), ("{}", "current-context")):
        (tmp_path / "config").write_text(text)
        with pytest.raises(AccessError, match=words):
            of_kubeconfig(tmp_path / "config")
    with pytest.raises(AccessError, match="cannot be read"):
        of_kubeconfig(tmp_path / "nowhere")


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.text(max_size=5) | st.booleans() | st.integers(),
        lambda i: (
            st.lists(i)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "current-context",
                        "contexts",
                        "clusters",
                        "users",
                        "name",
                        "context",
                        "cluster",
                        "user",
                        "server",
                        "token",
                    ]
                ),
                i,
            )
        ),
    )
)
def test_no_kubeconfig_raises_anything_else(document: Any) -> None:  # fmt: skip
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"wk-kubeconfig-{os.getpid()}"
    folder.write_text(json.dumps(document))
    try:
        of_kubeconfig(folder)
    except AccessError:
        pass
    finally:
        folder.unlink()


# --- plugins --------------------------------------------------------------------------------------------------------


def plugin(folder: Path, body: str) -> dict[str, Any]:
    file = folder / "plugin"
    file.write_text(f"#!{sys.executable}\nimport json, os\n{body}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": "./plugin", "env": [{"name": "WHO", "value": "me"}]}}


SAYS = """
asked = json.loads(os.environ['KUBERNETES_EXEC_INFO'])
open('{count}', 'a').write('x')
status = {{'token': os.environ['WHO'] + asked['apiVersion'][-2:], 'expirationTimestamp': '{until}'}}
print(json.dumps({{'kind': 'ExecCredential', 'status': status}}))
"""


@pytest.mark.parametrize(("until", "runs"), [("2090-01-01T00:00:00Z", 1), ("2020-01-01T00:00:00Z", 3)])
def test_a_credential_plugin_is_run_and_again_only_when_its_token_ends(tmp_path: Path, until: str, runs: int) -> None:
    count = tmp_path / "count"
    user = plugin(tmp_path, SAYS.format(count=count, until=until))
    found = of_kubeconfig(config(tmp_path, user))
    assert [found.token(), found.token(), found.token()][-1] == "mev1"
    assert len(count.read_text()) in (runs, runs + 1)


@pytest.mark.parametrize(
    ("body", "words"),
    [("raise SystemExit('no login')", "no login"), ("print('hello')", "no ExecCredential"), ("print('{}')", "printed")],
)
def test_a_plugin_that_fails_is_told_with_its_words(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(AccessError, match=words):
        of_kubeconfig(config(tmp_path, plugin(tmp_path, body))).token()


def test_a_plugin_that_hangs_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_access, "PLUGIN_S", 0.3)
    with pytest.raises(AccessError, match="no answer within"):
        of_kubeconfig(config(tmp_path, plugin(tmp_path, "import time; time.sleep(20)"))).token()


# --- where it is looked for -----------------------------------------------------------------------------------------


def account(folder: Path, crt: str) -> Path:
    for name, text in (("ca.crt", crt), ("token", "pod-token"), ("namespace", "watchkeeper")):
        (folder / name).write_text(text)
    return folder


def test_a_pod_uses_its_own_account(tmp_path: Path, pem: tuple[str, str]) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    found = of_pod(environ, account(tmp_path, pem[0]))
    assert (found.server, found.token(), found.namespace) == ("https://[fd00::1]:6443", "pod-token", "watchkeeper")
    with pytest.raises(AccessError, match="this is no pod"):
        of_pod({}, tmp_path)
    with pytest.raises(AccessError, match="automountServiceAccountToken"):
        of_pod(environ, tmp_path / "nowhere")


def test_without_a_setting_it_is_what_kubectl_would_take(tmp_path: Path) -> None:
    file = config(tmp_path)
    named = find(None, False, "", {"KUBECONFIG": f"{file}{os.pathsep}/other"})
    given_file = find(file, False, "prod", {})
    (tmp_path / ".kube").mkdir()
    file.rename(tmp_path / ".kube" / "config")
    at_home = find(None, False, "", {"HOME": str(tmp_path)})
    assert {found.server for found in (named, given_file, at_home)} == {"https://10.0.0.1:6443"}


@pytest.mark.parametrize(
    ("no_proxy", "proxy"), [("", "http://p:3128"), ("10.0.0.0/8", ""), ("*", ""), ("example.com", "http://p:3128")]
)
def test_a_proxy_of_the_environment_is_used_but_for_what_it_exempts(tmp_path: Path, no_proxy: str, proxy: str) -> None:
    environ = {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": no_proxy}
    found: Access = of_kubeconfig(config(tmp_path), environ=environ)
    assert found.proxy == proxy
    own = of_kubeconfig(config(tmp_path, cluster={"proxy-url": "http://own:1"}), environ=environ)
    assert own.proxy == "http://own:1"
