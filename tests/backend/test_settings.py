"""Configuration: what is right loads; what is wrong stops the start with key, file, line and fix; secrets stay in."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as run
from hypothesis import strategies as st
from pydantic import ValidationError

from backend.history import KEPT
from backend.registry import kept_of
from backend.settings import Cluster, Settings, SettingsError, load
from detectors.catalogue import TableError
from detectors.catalogue import load as load_catalogue

NOTHING: dict[str, str] = {}


def written(folder: Path, text: str, name: str = "site.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def complaint(path: Path | None, environ: dict[str, str] = NOTHING) -> str:
    with pytest.raises(SettingsError) as caught:
        load(path, environ)
    return str(caught.value)


# --- what is right --------------------------------------------------------------------------------------------------


def test_no_file_means_observe_on_loopback_with_sqlite() -> None:
    settings = load(None, NOTHING)
    assert settings == Settings()
    assert (settings.mode, settings.server.host, settings.store.url) == ("observe", "127.0.0.1", "")


def test_a_whole_file_loads(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        mode = "propose"
        [server]
        port = 9000
        [[cluster]]
        name = "a"
          [[cluster.prometheus]]
          url = "http://prom:9090"
          headers = { X-Scope-OrgID = "ml" }
          [cluster.slurm]
        [[cluster]]
        name = "b"
        [email]
        host = "mail"
        from = "wk@example.org"
        to = ["ops@example.org"]
        """,
    )
    settings = load(path, NOTHING)
    assert [cluster.name for cluster in settings.cluster] == ["a", "b"]
    assert settings.cluster[0].prometheus[0].headers == {"X-Scope-OrgID": "ml"}
    assert settings.cluster[0].slurm is not None and settings.cluster[1].slurm is None
    assert settings.email is not None and settings.email.sender == "wk@example.org"


def test_settings_never_change(tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        load(None, NOTHING).mode = "act"  # type: ignore[misc]  # the mistake itself


def test_included_files_join_and_stand_beside_the_file(tmp_path: Path) -> None:
    written(tmp_path, "[policy]\nexclude_s = 60\n[[cluster]]\nname = 'b'\n", "policy.toml")
    path = written(tmp_path, "include = ['policy.toml']\n[policy]\ncooldown_s = 5\n[[cluster]]\nname = 'a'\n")
    settings = load(path, NOTHING)
    assert (settings.policy.exclude_s, settings.policy.cooldown_s) == (60, 5)
    assert [cluster.name for cluster in settings.cluster] == ["a", "b"]


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "mode = 'observe'\n[server]\nport = 1\n")
    environ = {
        "WATCHKEEPER_MODE": "act",
        "WATCHKEEPER_SERVER__PORT": "9001",
        "WATCHKEEPER_POLICY__MAX_OUT_SHARE": "0.5",
    }
    settings = load(path, environ)
    assert (settings.mode, settings.server.port, settings.policy.max_out_share) == ("act", 9001, 0.5)


def test_the_variables_that_kubernetes_sets_for_a_service_are_left_alone() -> None:
    environ = {"WATCHKEEPER_PORT": "tcp://10.0.0.1:80", "WATCHKEEPER_SERVICE_HOST": "10.0.0.1", "OTHER__X": "1"}
    assert load(None, environ) == Settings()


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_bytes(b"\xef\xbb\xbfmode = 'act'\n")
    assert load(path, NOTHING).mode == "act"


# --- secrets --------------------------------------------------------------------------------------------------------

MAIL = "[email]\nhost = 'mail'\nto = ['a@b']\n"


def test_a_secret_may_stand_in_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "smtp").write_text("hush hush\n")
    settings = load(written(tmp_path, MAIL + "password_file = 'smtp'\n"), NOTHING)
    assert settings.email is not None and settings.email.password is not None
    assert settings.email.password.get_secret_value() == "hush hush"
    assert "hush" not in repr(settings)


def test_the_database_url_may_stand_in_a_file_named_by_the_environment(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql+psycopg://wk:hush@db/wk\n")
    settings = load(None, {"WATCHKEEPER_STORE__URL_FILE": str(tmp_path / "url")})
    assert settings.store.url == "postgresql+psycopg://wk:hush@db/wk"
    assert "hush" not in repr(settings)


def test_a_secret_of_the_environment_replaces_the_files_way_of_saying_it(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("new")
    path = written(tmp_path, MAIL + "password = 'old'\n")
    settings = load(path, {"WATCHKEEPER_EMAIL__PASSWORD_FILE": str(tmp_path / "new")})
    assert settings.email is not None and settings.email.password is not None
    assert settings.email.password.get_secret_value() == "new"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("password_file = 'none'\n", "cannot be read: No such file"),
        ("password_file = 'empty'\n", "is empty"),
        ("password_file = 'binary'\n", "is not text"),
        ("password_file = 7\n", "is no file name"),
        ("password = 'hush'\npassword_file = 'empty'\n", "stands beside password"),
        ("password = 77777\n", "email.password should be a valid string"),
        ("passwrod = 'hush'\n", "Did you mean email.password?"),
        ("user_file = 'x'\n", "email.user_file is not a key"),
    ],
)
def test_a_secret_that_is_wrong_is_named_and_never_shown(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    said = complaint(written(tmp_path, MAIL + text))
    assert says in said
    assert "hush" not in said and "77777" not in said


def test_no_value_of_a_text_is_ever_shown(tmp_path: Path) -> None:
    text = "[store]\nurl = ['postgresql://wk:hush@db']\n[slack]\nwebhook_url = { a = 'hush' }\n[email]\nto = 'hush'\n"
    said = complaint(written(tmp_path, text), {"WATCHKEEPER_SERVER__URL": "ftp://u:hush@h"})
    assert "hush" not in said and said.count("\n") >= 5


# --- what is wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[server]\nprot = 1\n", "site.toml:2: server.prot is not a key. Did you mean server.port?"),
        ("port = 1\n", "site.toml:1: port is not a key. Did you mean server.port?"),
        ("[sever]\nport = 1\n", "site.toml:1: sever is not a key. Did you mean server?"),
        ("[policy]\nzzz = 1\n", "Known here: exclude_s"),
        ("mode = 'obsrve'\n", "mode should be 'observe', 'propose' or 'act' (it is 'obsrve')"),
        (
            "[server]\nhost = 'x'\nport = 70000\n",
            "site.toml:3: server.port should be less than or equal to 65535 (it is 70000)",
        ),
        ("[server]\nport = 'many'\n", "server.port should be a valid integer"),
        ("[cluster]\nname = 'a'\n", "site.toml:1: cluster is not a list of tables. Write [[cluster]]"),
        ("[[email]]\nhost = 'a'\n", "email is not a table. Write [email]"),
        ("email = 'me'\n", "email is not a table. Write [email]"),
        ("[email]\nhost = 'a'\n", "site.toml:1: email.to is missing. Add it: Recipients"),
        ("[[cluster]]\n[[cluster.prometheus]]\n", "site.toml:2: cluster[0].prometheus[0].url is missing"),
        (
            "[[cluster]]\n[[cluster]]\nname='b'\n[[cluster.prometheus]]\nurl='p:9090'\n",
            "site.toml:5: cluster[1].prometheus[0].url",
        ),
        ("[[cluster]]\nname = 'a'\n[[cluster]]\nname = 'a'\n", "two clusters named a"),
        ("[[cluster]]\nname = 'a b'\n", "cluster[0].name does not look as it should. Name of the cluster"),
        ("cluster = []\n", "cluster"),
        ("[policy]\nexclude_s = inf\n", "policy.exclude_s should be a finite number"),
        ("[server]\nurl = 'watch.example'\n", "as in https://watch.example"),
        ("mode = \n", "site.toml:1: is no TOML: invalid value"),
        ("[server]\n[server]\n", "site.toml:2: is no TOML: cannot declare"),
        ("[server]\nhost = ''\n", "site.toml:2: server.host does not look as it should"),
        ('[server]\nhost = "a\\u0000"\n', "site.toml:2: server.host does not look as it should"),
        ("[slack]\nwebhook_url = 'secret'\n", "site.toml:2: slack.webhook_url is no address. Write it as https://"),
        ("[email]\nhost = 'a'\nto = ['b@c']\nfrom = 'me'\n", "site.toml:4: email.from does not look as it should"),
        ('[email]\nhost = "a"\nto = ["b@c\\r\\nBcc: d@e"]\n', "email.to[0] does not look as it should"),
        ("include = 'policy.toml'\n", 'Write include = ["policy.toml"]'),
        ("include = ['none.toml']\n", "none.toml: cannot be read: No such file or directory"),
    ],
)
def test_a_mistake_says_where_what_and_how_to_mend_it(text: str, says: str, tmp_path: Path) -> None:
    assert says in complaint(written(tmp_path, text))


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    said = complaint(written(tmp_path, "mode = 'x'\n[server]\nport = -1\n[slack]\n"), {"WATCHKEEPER_NO__SUCH": "1"})
    assert said.startswith("4 mistakes in the configuration:")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path}/none.toml: cannot be read" in complaint(tmp_path / "none.toml")


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_bytes(b"mode = 'caf\xe9'")
    assert "is not UTF-8 (byte 12)" in complaint(path)


def test_the_same_key_in_two_files_is_a_mistake(tmp_path: Path) -> None:
    written(tmp_path, "[policy]\nexclude_s = 60\n", "policy.toml")
    said = complaint(written(tmp_path, "include = ['policy.toml']\n[policy]\nexclude_s = 5\n"))
    assert "policy.exclude_s is set here and in" in said and "site.toml:3" in said and "policy.toml" in said


def test_an_included_file_includes_nothing(tmp_path: Path) -> None:
    written(tmp_path, "include = ['site.toml']\n", "policy.toml")
    assert "stands in an included file" in complaint(written(tmp_path, "include = ['policy.toml']\n"))


def test_a_mistake_in_an_included_file_names_that_file(tmp_path: Path) -> None:
    written(tmp_path, "\n[policy]\nexclude_s = -1\n", "policy.toml")
    said = complaint(written(tmp_path, "include = ['policy.toml']\n"))
    assert "policy.toml:3: policy.exclude_s should be greater than 0 (it is -1)" in said


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("WATCHKEEPER_SERVER__PROT", "environment WATCHKEEPER_SERVER__PROT: server.prot is not a key. Did you mean"),
        ("WATCHKEEPER_NO__SUCH", "no.such is no key of ours"),
        ("WATCHKEEPER_CLUSTER__NAME", "cluster.name lies in a list of tables"),
        ("WATCHKEEPER_CLUSTER", "cluster is no scalar"),
        ("WATCHKEEPER_EMAIL__TO", "email.to is no scalar"),
        ("WATCHKEEPER_MODE", "environment WATCHKEEPER_MODE: mode should be 'observe'"),
        ("WATCHKEEPER_SERVER__", "server. is not a key"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(name: str, says: str) -> None:
    assert says in complaint(None, {name: "x"})


# --- renamed keys ---------------------------------------------------------------------------------------------------


def test_a_renamed_key_works_and_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, "[guards]\ncooldown = 7\n[server]\n")
    with caplog.at_level(logging.WARNING), pytest.raises(SettingsError, match="guards is not a key"):
        load(path, NOTHING, renamed={"guards.cooldown": "policy.cooldown_s"})
    path = written(tmp_path, "[server]\nlisten_port = 7\n")
    with caplog.at_level(logging.WARNING):
        assert load(path, NOTHING, renamed={"server.listen_port": "server.port"}).server.port == 7
    assert "server.listen_port is now server.port" in caplog.text


def test_a_renamed_key_beside_its_new_name_is_a_mistake(tmp_path: Path) -> None:
    path = written(tmp_path, "[server]\nlisten_port = 7\nport = 8\n")
    with pytest.raises(SettingsError, match=r"is now server\.port, which is set too"):
        load(path, NOTHING, renamed={"server.listen_port": "server.port"})


# --- any file -------------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10) | st.sampled_from(["hush", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "url", "port", "x"]), inner),
    max_leaves=6,
)
TABLES = st.dictionaries(st.sampled_from(["mode", "server", "cluster", "email", "slack", "include", "zzz"]), VALUES)


@given(TABLES)
@run(max_examples=60, deadline=None)
def test_whatever_toml_says_it_loads_or_is_a_settings_error(tree: dict[str, object]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), "\n".join(f"{key} = {inline(value)}" for key, value in tree.items()))
        try:
            load(path, NOTHING)
        except SettingsError as error:
            assert error.mistakes


def inline(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {inline(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else f'"{value or ""}"'


def test_a_history_of_metrics_that_are_none_is_refused_with_those_there_are() -> None:
    catalogue = load_catalogue()
    assert kept_of(Cluster(), catalogue) == KEPT
    assert kept_of(Cluster(history=("power_w", "node_load1", "power_w")), catalogue) == (
        ("gpu", "power_w"),
        ("node", "node_load1"),
    )
    with pytest.raises(TableError, match="history names powr_w, which is no metric. There are .*power_w"):
        kept_of(Cluster(history=("powr_w",)), catalogue)
