"""What doctor says of a Kubernetes cluster: reachable or not, each right, and the fix."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.doctor.checks import checks_of, mode
from backend.doctor.line import Line, State, examine
from backend.registry import backend_of, kubernetes_of, sources_of
from backend.settings import Cluster, Kubernetes, Settings
from detectors.catalogue import load
from tests.conftest import NOW
from tests.services.kube_fake import ADMIN, FakeKube
from tests.services.kube_http import fake_kube
from tests.services.kube_world import KubeWorld


@pytest.fixture
def fake() -> Iterator[FakeKube]:
    with fake_kube(FakeKube(tokens={ADMIN: "admin", "poor": "poor"}, longest_watch_s=0.05)) as running:
        yield running


def configured(fake: FakeKube, folder: Path, token: str = ADMIN, backend: str = "", where: str = "") -> Settings:
    file = folder / "kubeconfig"
    contexts = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
    clusters = [{"name": "c", "cluster": {"server": where or fake.url}}]
    users = [{"name": "u", "user": {"token": token}}]
    document = {"current-context": "x", "contexts": contexts, "clusters": clusters, "users": users}
    file.write_text(json.dumps(document))
    kube = Kubernetes(kubeconfig=file)
    cluster = Cluster.model_validate({"kubernetes": kube, "backend": backend})
    return Settings(cluster=(cluster,), mode="propose")


def lines(settings: Settings) -> dict[str, Line]:
    checks = [check for check in checks_of(settings, load()) if "kubernetes" in check.name]
    return {line.check: line for line in examine(checks)}


def test_a_cluster_that_gives_all_we_need_is_well(fake: FakeKube, tmp_path: Path) -> None:
    KubeWorld(fake, nodes=3)
    said = lines(configured(fake, tmp_path))
    assert {line.state for line in said.values()} == {State.OK} and len(said) == 4
    assert "3 may be read" in said["main kubernetes nodes"].what and "v1.31.0" in said["main kubernetes"].what


def test_rights_that_lack_are_named_with_the_fix(fake: FakeKube, tmp_path: Path) -> None:
    fake.rules["poor"] = {(verb, "", what) for verb in ("list", "watch") for what in ("nodes", "pods")}
    said = lines(configured(fake, tmp_path, "poor"))
    look, act = said["main kubernetes rights to look"], said["main kubernetes rights to act"]
    assert look.state is State.WARNING and "may not list, watch events" in look.what
    assert act.state is State.FAILED and "create pods/eviction" in act.what and "kubernetes-manifest" in act.fix
    watching = configured(fake, tmp_path, "poor").model_copy(update={"mode": "observe"})
    assert lines(watching)["main kubernetes rights to act"].state is State.OFF


def test_a_cluster_that_is_not_there_says_where_it_was_looked_for(fake: FakeKube, tmp_path: Path) -> None:
    said = lines(configured(fake, tmp_path, where="http://127.0.0.1:1"))
    assert {line.state for line in said.values()} == {State.FAILED}
    assert "127.0.0.1:1" in said["main kubernetes"].what
    (tmp_path / "kubeconfig").unlink()
    missing = Settings(cluster=(Cluster(kubernetes=Kubernetes(kubeconfig=tmp_path / "kubeconfig")),))
    assert "cannot be read" in lines(missing)["main kubernetes"].what


def test_kubernetes_is_the_hand_where_slurm_is_not(fake: FakeKube, tmp_path: Path) -> None:
    from backend.clock import ManualClock

    settings = configured(fake, tmp_path)
    (line,) = mode(settings)
    assert line.state is State.OK and "cordons" in line.what
    (cluster,) = settings.cluster
    hand = backend_of(cluster, None, ManualClock(NOW))
    assert hand is not None and hand.name == "kubernetes"
    names = [source.name for source, _ in sources_of(cluster, None, ManualClock(NOW), load())]
    assert names == ["kubernetes"] and kubernetes_of(Cluster()) is None
    dry = configured(fake, tmp_path, backend="dry_run").cluster[0]
    assert (found := backend_of(dry, None, ManualClock(NOW))) is not None and found.name == "dry_run"
