"""A missing program is never silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.need import need


def test_a_present_program_gives_its_path() -> None:
    assert Path(need("sh", "dash")).exists()


def test_a_missing_program_skips_with_the_command_that_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install -y --no-install-recommends nosuch"):
        need("no-such-program", "nosuch")


def test_in_ci_a_missing_program_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-program is missing"):
        need("no-such-program", "nosuch")
