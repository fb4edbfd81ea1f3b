"""Kubernetes through the service: what its source reads stands in the store, and it is dark when silent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.clock import SystemClock
from backend.ingest.base import SourceError
from backend.loops import Pull
from backend.registry import Parts, build
from backend.settings import Cluster, Kubernetes, Settings, Store
from backend.store import cluster as cluster_rows
from tests.services.kube_fake import ADMIN, FakeKube
from tests.services.kube_http import fake_kube
from tests.services.kube_world import KubeWorld


def made(fake: FakeKube, folder: Path) -> Parts:
    file = folder / "kubeconfig"
    document = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": fake.url}}],
        "users": [{"name": "u", "user": {"token": ADMIN}}],
    }
    file.write_text(json.dumps(document))
    cluster = Cluster(kubernetes=Kubernetes(kubeconfig=file))
    return build(Settings(cluster=(cluster,), mode="propose", store=Store(folder=folder / "data")), SystemClock())


def pull_of(parts: Parts) -> Pull:
    source, every_s = next(one for one in parts.sources["main"] if one[0].name == "kubernetes")
    return Pull(parts.watches["main"], source, every_s)


def test_nodes_attempts_and_cordons_come_into_the_store_and_survive_a_restart(tmp_path: Path) -> None:
    with fake_kube(FakeKube(longest_watch_s=0.05)) as fake:
        world = KubeWorld(fake, nodes=4)
        job, busy = world.busy()
        parts = made(fake, tmp_path)
        watch = parts.watches["main"]
        pull = pull_of(parts)
        pull()
        world.drain_by_other(world.free[0], "disk swap")
        pull()
        with parts.store.read() as session:
            nodes = {row.name: row for row in cluster_rows.nodes(session, "main")}
            attempts = [(one.job, one.restart, one.state) for one in cluster_rows.running(session, "main")]
        assert set(nodes) == set(world.nodes) and nodes[busy].state == "allocated"
        assert (nodes[world.free[0]].reason, nodes[world.free[0]].reason_owner) == ("disk swap", "someone")
        assert attempts == [(job, 0, "RUNNING")] and "kubernetes" not in watch.dark
        parts.store.close()
        world.requeue_by_other(job)
        again = made(fake, tmp_path)
        pull_of(again)()
        with again.store.read() as session:
            restarted = [(one.job, one.restart, one.state) for one in cluster_rows.running(session, "main")]
        assert restarted == [(job, 1, "RUNNING")]
        again.store.close()


def test_a_server_that_falls_silent_is_dark_and_then_read_anew(tmp_path: Path) -> None:
    with fake_kube(FakeKube(longest_watch_s=0.05)) as fake:
        KubeWorld(fake, nodes=3)
        parts = made(fake, tmp_path)
        watch = parts.watches["main"]
        pull = pull_of(parts)
        pull()
        fake.instead += [(500, {})] * 20
        with pytest.raises(SourceError, match="500"):
            pull()
        assert "kubernetes" in watch.dark
        fake.instead.clear()
        pull()
        assert "kubernetes" not in watch.dark
        parts.store.close()
