"""Dockerfile and docker-compose.yml hold together, also where no container engine can try them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from backend.settings import load
from tests.services.need import need

ROOT = Path(__file__).resolve().parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]

WORDS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
NAME = {"type": "string", "pattern": r"^[a-zA-Z0-9._-]+$"}
DURATION = {"type": "string", "pattern": r"^(\d+(h|m|s))+$"}
#: The parts of the compose specification that our file uses; whatever else stands in it is a slip of the pen.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "services", "volumes", "secrets", "configs"],
    "properties": {
        "name": {"type": "string", "pattern": r"^[a-z0-9][a-z0-9_-]*$"},
        "services": {
            "type": "object",
            "propertyNames": NAME,
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "anyOf": [{"required": ["image"]}, {"required": ["build"]}],
                "required": ["healthcheck"],
                "properties": {
                    "build": {"type": "string"},
                    "image": {"type": "string"},
                    "command": WORDS,
                    "profiles": WORDS,
                    "environment": {"type": "object", "additionalProperties": {"type": "string"}},
                    "configs": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["source", "target"],
                            "additionalProperties": False,
                            "properties": {"source": NAME, "target": {"type": "string", "pattern": "^/"}},
                        },
                    },
                    "secrets": {"type": "array", "items": NAME},
                    "volumes": {"type": "array", "items": {"type": "string", "pattern": r"^[a-z./]+:/[a-z/]+(:ro)?$"}},
                    "ports": {"type": "array", "items": {"type": "string", "pattern": r"^127\.0\.0\.1:\d+:\d+$"}},
                    "depends_on": {
                        "type": "object",
                        "additionalProperties": {
                            "type": "object",
                            "additionalProperties": False,
                            "properties": {"condition": {"enum": ["service_healthy", "service_started"]}},
                        },
                    },
                    "healthcheck": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["test", "interval", "timeout", "retries"],
                        "properties": {
                            "test": {"type": "array", "prefixItems": [{"const": "CMD"}], "minItems": 2},
                            "interval": DURATION,
                            "timeout": DURATION,
                            "start_period": DURATION,
                            "retries": {"type": "integer", "minimum": 1},
                        },
                    },
                    "restart": {"enum": ["unless-stopped"]},
                    "network_mode": {"const": "host"},
                    "read_only": {"type": "boolean"},
                    "tmpfs": WORDS,
                    "cap_drop": WORDS,
                    "security_opt": WORDS,
                },
            },
        },
        "volumes": {"type": "object", "propertyNames": NAME, "additionalProperties": {"type": "null"}},
        "secrets": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "required": ["file"],
                "properties": {"file": {"type": "string", "pattern": r"^\./secrets/"}},
            },
        },
        "configs": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "required": ["content"],
                "properties": {"content": {"type": "string"}},
            },
        },
    },
}


def instructions() -> list[tuple[str, str]]:
    """(instruction, arguments) of the Dockerfile, lines joined, comments gone."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8")).replace("\\\n", " ")
    split = (line.split(None, 1) for line in text.splitlines() if line.strip())
    return [(words[0], words[1]) for words in split]


def of(instruction: str) -> list[str]:
    return [words for name, words in instructions() if name == instruction]


def used(kind: str) -> set[str]:
    """Names of this kind that services use."""
    rows = [row for service in SERVICES.values() for row in service.get(kind, [])]
    return {row["source"] if isinstance(row, dict) else row.split(":")[0] for row in rows}


def test_compose_uses_the_parts_of_the_specification_that_we_know() -> None:
    wrong = [f"{list(e.absolute_path)}: {e.message}" for e in Draft202012Validator(SCHEMA).iter_errors(COMPOSE)]
    assert not wrong


def test_compose_itself_agrees_where_it_is_installed() -> None:
    """Where it is not, the schema above is the check."""
    program = next(
        (words for words in (["docker", "compose"], ["docker-compose"]) if shutil.which(words[0]) and answers(words)),
        None,
    )
    if program:
        done = subprocess.run([*program, "config", "--quiet"], cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def answers(words: list[str]) -> bool:
    return subprocess.run([*words, "version"], capture_output=True, timeout=30).returncode == 0


def test_every_profile_that_we_promise_is_there() -> None:
    profiles = {name: service.get("profiles") for name, service in SERVICES.items()}
    assert profiles == {
        "watchkeeper": None,
        "postgres": None,
        "prometheus": ["prometheus"],
        "alertmanager": ["alertmanager"],
        "demo": ["demo"],
    }


@pytest.mark.parametrize("kind", ["secrets", "configs"])
def test_what_services_use_is_defined_and_what_is_defined_is_used(kind: str) -> None:
    assert used(kind) == set(COMPOSE[kind])


def test_volumes_are_defined_and_used() -> None:
    assert {name for name in used("volumes") if not name.startswith(".")} == set(COMPOSE["volumes"])


def test_who_is_waited_for_exists_and_has_no_profile() -> None:
    waited = {name for service in SERVICES.values() for name in service.get("depends_on", {})}
    assert waited == {"postgres"}


def test_images_come_without_an_address() -> None:
    images = [service["image"] for service in SERVICES.values()] + [words.split()[0] for words in of("FROM")]
    assert not [image for image in images if re.match(r"[^/]*[.:][^/]*/", image)]
    assert not re.search(r"https?://(?!127\.0\.0\.1)", (ROOT / "Dockerfile").read_text(encoding="utf-8"))


def test_no_secret_stands_in_the_file() -> None:
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            assert "PASSWORD" not in name or name.endswith("_FILE")
            assert "://" not in value


def keys_of_the_environment() -> dict[str, str]:
    found = {name: value for service in SERVICES.values() for name, value in service.get("environment", {}).items()}
    found |= dict(pair.split("=", 1) for words in of("ENV") for pair in words.split())
    return {name: value for name, value in found.items() if name.startswith("WATCHKEEPER_")}


def test_the_configuration_and_every_environment_key_are_known_to_settings(tmp_path: Path) -> None:
    """An unknown key stops the start, so loading them is the check."""
    secret = tmp_path / "database_url"
    secret.write_text("postgresql+psycopg://watchkeeper:x@postgres/watchkeeper\n")
    environ = {
        name: str(secret) if name.endswith("_FILE") else value for name, value in keys_of_the_environment().items()
    }
    assert "WATCHKEEPER_STORE__URL_FILE" in environ and "WATCHKEEPER_SERVER__HOST" in environ
    content = COMPOSE["configs"]["watchkeeper"]["content"]
    for text in (content, uncommented(content)):
        file = tmp_path / "watchkeeper.toml"
        file.write_text(text)
        settings = load(file, environ)
        assert settings.mode == "observe" and settings.server.host == "0.0.0.0"
        assert settings.store.url == secret.read_text().strip()
    assert settings.email is not None and settings.cluster[0].prometheus


def uncommented(text: str) -> str:
    """The configuration with everything that is offered in comments switched on."""
    return re.sub(r"(?m)^(\s*)# (?=\[|\w+ = )", r"\1", text)


def test_prometheus_takes_its_configuration_and_rules(tmp_path: Path) -> None:
    program = need("promtool", "prometheus")
    rules, config, token = tmp_path / "rules.yml", tmp_path / "prometheus.yml", tmp_path / "token"
    token.write_text("x")
    rules.write_text(COMPOSE["configs"]["rules"]["content"])
    text = COMPOSE["configs"]["prometheus"]["content"]
    config.write_text(
        text.replace("/etc/prometheus/rules.yml", str(rules)).replace("/run/secrets/read_token", str(token))
    )
    done = subprocess.run([program, "check", "config", str(config)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_ends_without_root_and_says_how_it_is() -> None:
    assert [words.split()[0] for words in of("FROM")] == ["python:3.13-slim"] * 2
    order = [name for name, _ in instructions()]
    assert order.index("USER") > max(at for at, name in enumerate(order) if name in ("RUN", "COPY"))
    assert not of("USER")[0].startswith(("0", "root"))
    assert "/healthz" in of("HEALTHCHECK")[0]
    assert of("ENTRYPOINT") == ['["watchkeeper"]']


def test_the_image_gets_what_the_wheel_needs_and_nothing_private() -> None:
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert {"alembic", "backend", "constraints.txt", "detectors", "frontend", "pyproject.toml"} <= set(let_in)
    assert not {"secrets", ".git", ".venv", "tests"} & set(let_in)
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"
