"""The fake API server, and where asked for a real one, keep the same contract."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.contracts.kube_api import CHECKS, Served
from tests.services.kube_fake import ADMIN, FakeKube
from tests.services.kube_http import fake_kube
from tests.services.kube_real import FOLDER, VIEWER, RealKube, real_kube


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeKube]:
    kube = FakeKube(tokens={ADMIN: "admin", VIEWER: "viewer"}, rules={"viewer": set()})
    with fake_kube(kube) as running:
        yield running


@pytest.fixture(scope="module")
def real() -> Iterator[RealKube]:
    if not os.environ.get(FOLDER):
        pytest.skip(f"{FOLDER} names no folder with a kube-apiserver; to build and run one: make test-kubernetes")
    with real_kube() as running:
        yield running


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_the_fake_does_what_an_api_server_does(check: Callable[[Served], None], fake: FakeKube) -> None:
    check(Served(fake))


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_a_real_one_does_it_too(check: Callable[[Served], None], real: RealKube) -> None:
    check(Served(real))
