"""The cluster as it was: cards that move, jobs on some GPUs, nodes that leave and come back, what changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from backend.clock import unix
from backend.facts import Batch, CableFacts, MaintenanceFacts, NodeFacts, OutageFacts, VersionFacts
from backend.ingest.labels import device_label
from backend.inventory.inventory import Inventory
from backend.inventory.places import GONE_LISTS
from backend.store import allocations, cables, ledger, outages, spans
from backend.store.cluster import node_facts
from backend.store.engine import Store
from detectors.model import Fleet
from tests.backend.test_inventory import T, absorb, batch, gpu, job_of, reloaded, running, state, told, topology
from tests.conftest import NOW


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def seats(store: Store, device: str) -> list[tuple[str, str, float, float | None]]:
    with store.read() as session:
        found = spans.device_spans(session, "main", device)
    return [(s.node, s.index, unix(s.start) - T, unix(s.end) - T if s.end else None) for s in found]


# --- devices ---------------------------------------------------------------------------------------------------------


def test_a_card_has_a_span_for_each_place_it_sat_in(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(topology("n1"), topology("n2", gpus=0)))
    absorb(store, inventory, told(gpu("n1", "GPU-n1-0", "0000:10:00", "5")), now=later(60))
    absorb(store, inventory, told(gpu("n1", "GPU-n1-0", "0000:10:00", "5")), now=later(75))
    absorb(store, inventory, told(gpu("n2", "GPU-n1-0", "0000:10:00", "0")), now=later(120))
    absorb(store, inventory, told(gpu("n2", "GPU-new", "0000:10:00", "0")), now=later(180))
    assert seats(store, "GPU-n1-0") == [("n1", "0", 0, 60), ("n1", "5", 60, 120), ("n2", "0", 120, 180)]
    assert seats(store, "GPU-new") == [("n2", "0", 180, None)]
    with store.read() as session:
        on = spans.device_at(session, "main", "n2", 0, later(150))
        assert on is not None and on.device == "GPU-n1-0"
        on = spans.device_at(session, "main", "n2", 0, later(200))
        assert on is not None and on.device == "GPU-new"


def test_cards_that_change_places_in_one_read_are_found_at_their_new_addresses(store: Store) -> None:
    """Two cards of one node swapped, and one of another node put between: every address names who sits there."""
    inventory = Inventory("main")
    absorb(store, inventory, batch(topology("n1"), topology("n2")))
    a, b, c, d = "GPU-n1-0", "GPU-n1-1", "GPU-n2-0", "GPU-n2-1"
    swapped = {a: ("n1", "0000:11:00", "1"), b: ("n1", "0000:10:00", "0")}
    absorb(
        store, inventory, told(*(gpu(n, id_, pci, index) for id_, (n, pci, index) in swapped.items())), now=later(60)
    )
    for id_, (node, pci, _) in swapped.items():
        assert inventory.entity(node, pci).id == id_
    absorb(store, inventory, told(gpu("n2", a, "0000:10:00", "0"), gpu("n1", c, "0000:11:00", "1")), now=later(120))
    at = {("n1", "0000:10:00"): b, ("n1", "0000:11:00"): c, ("n2", "0000:10:00"): a, ("n2", "0000:11:00"): d}
    for known in (inventory, reloaded(store)):
        assert {place: known.entity(*place).id for place in at} == at


def test_a_card_that_moves_leaves_its_new_neighbours_where_they_are(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(topology("n1"), topology("n2")))
    absorb(store, inventory, told(gpu("n2", "GPU-n1-0", "0000:11:00", "1")), now=later(60))
    assert inventory.entity("n2", "0000:10:00").id == "GPU-n2-0"
    assert inventory.entity("n2", "0000:11:00").id == "GPU-n1-0"


def test_a_card_that_shows_its_uuid_takes_its_spans_along(store: Store) -> None:
    inventory = Inventory("main")
    by_pci = replace(topology(), gpus=(replace(topology().gpus[0], uuid=""),))
    absorb(store, inventory, batch(by_pci))
    absorb(store, inventory, told(gpu(uuid="GPU-a", pci="0000:10:00", index="0")), now=later(60))
    assert seats(store, "GPU-a") == [("n1", "0", 0, None)] and seats(store, "pci:n1:0000:10:00") == []


def test_spans_survive_a_restart_and_a_rollback(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(topology()))
    with pytest.raises(ZeroDivisionError), store.write() as session:
        inventory.absorb(session, told(gpu(uuid="GPU-n1-0", pci="0000:10:00", index="7")), later(60))
        raise ZeroDivisionError
    assert seats(store, "GPU-n1-0") == [("n1", "0", 0, None)]
    absorb(store, inventory, told(gpu(uuid="GPU-n1-0", pci="0000:10:00", index="7")), now=later(90))
    absorb(store, reloaded(store), batch(topology("n1", rack="r1")), now=later(120))
    assert seats(store, "GPU-n1-0") == [("n1", "0", 0, 90), ("n1", "7", 90, None)]


def test_a_node_that_is_racked_elsewhere_keeps_the_places_it_had(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(topology(rack="r1", switch="leaf1", clique="c1")))
    absorb(store, inventory, batch(topology(rack="r2")), now=later(60))
    with store.read() as session:
        found = [(s.rack, s.switch, s.clique, s.end is None) for s in spans.node_spans(session, "main", "n1")]
    assert found == [("r1", "leaf1", "c1", False), ("r2", "leaf1", "c1", True)]


# --- work ------------------------------------------------------------------------------------------------------------


def role_of(fleet: Fleet, id_: str) -> str:
    role = int(fleet.axes["gpu"].role_of[fleet.slots[("gpu", id_)]])
    return fleet.roles[role] if role >= 0 else ""


def test_jobs_that_share_a_node_have_the_gpus_that_their_scheduler_says(store: Store) -> None:
    inventory = Inventory("main")
    one = running("7", gpus_per_node=1, gpus=(("n1", (1,)),), roles=(("n1", "trainer"),))
    two = running("8", gpus_per_node=1, gpus=(("n1", (0,)),))
    absorb(store, inventory, batch(topology(), one, two))
    for fleet in (inventory.fleet, reloaded(store).fleet):
        assert [job_of(fleet, "gpu", f"GPU-n1-{i}") for i in (0, 1)] == ["8", "7"]
        assert role_of(fleet, "GPU-n1-1") == "trainer" and role_of(fleet, "GPU-n1-0") == ""
        assert job_of(fleet, "node", "n1") == ""
    with store.read() as session:
        assert [a.job for a in allocations.holders(session, "main", "n1", NOW, gpu=1)] == ["7"]
        assert [a.job for a in allocations.holders(session, "main", "n1", NOW)] == ["7", "8"]
        assert allocations.holders(session, "main", "n1", later(-101), gpu=1) == []
        assert [a.job for a in allocations.holders(session, "main", "n1", later(-100), gpu=0)] == ["8"]


def test_gpus_that_are_told_later_are_those_of_the_same_span(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(topology(), running("7", gpus_per_node=1)))
    absorb(store, inventory, batch(running("7", gpus_per_node=1, gpus=(("n1", (1,)),))))
    with store.read() as session:
        assert [(a.job, a.gpus, a.end) for a in allocations.holders(session, "main", "n1", NOW)] == [("7", [1], None)]
    assert [job_of(inventory.fleet, "gpu", f"GPU-n1-{i}") for i in (0, 1)] == ["", "7"]


def test_peers_of_a_gpu_at_a_time_are_the_other_spans_of_its_attempt(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(running("7", nodes=("n1", "n2"))))
    absorb(store, inventory, batch(running("7", nodes=("n1", "n2"), state="NODE_FAIL", end=T + 50)), now=later(60))
    absorb(store, inventory, batch(running("7", 1, nodes=("n1", "n3"), submit=T + 50, start=T + 90)), now=later(100))
    with store.read() as session:

        def peers(at: float) -> list[str]:
            return [
                row.node
                for one in allocations.holders(session, "main", "n1", later(at))
                for row in allocations.beside(session, one, later(at))
            ]

        assert peers(40) == ["n1", "n2"] and peers(95) == ["n1", "n3"] and peers(70) == []


@pytest.mark.parametrize("length_s", [1, 8191, 8192, 131_071, 131_072, 9_000_000])
def test_a_span_of_any_length_is_found_at_each_of_its_moments(store: Store, length_s: int) -> None:
    done = running("7", state="FAILED", start=T - length_s, end=T)
    absorb(store, Inventory("main"), batch(done), now=later(1))
    with store.read() as session:

        def held(at: float) -> bool:
            return bool(allocations.allocations_at(session, "main", later(at), "n1"))

        assert held(-length_s) and held(-0.5) and held(-length_s / 2)
        assert not held(0) and not held(-length_s - 0.5)
        between = allocations.allocations_between(session, "main", later(-length_s - 9), later(-length_s + 0.1), "n1")
        assert [a.job for a in between] == ["7"]


def test_an_attempt_of_long_ago_makes_no_node_and_still_has_its_spans(store: Store) -> None:
    inventory = Inventory("main")
    old = running("7", nodes=("gone",), state="COMPLETED", start=T - 9e6, end=T - 8e6)
    absorb(store, inventory, batch(old, topology("n1")))
    assert inventory.fleet.nodes == ("n1",)
    with store.read() as session:
        assert [a.node for a in allocations.allocations(session, "main", ["7"])] == ["gone"]


# --- who left --------------------------------------------------------------------------------------------------------


def listing(*names: str, at: float, source: str = "slurm", **more: object) -> Batch:
    nodes = tuple(state(name, at=T + at) for name in names)
    return replace(batch(*nodes), source=source, **more)  # type: ignore[arg-type]


def leave(store: Store, inventory: Inventory, *names: str, source: str = "slurm", **more: object) -> float:
    """Lists that name only these, until one that is missing has been so for long enough; when the last was read."""
    at = 0.0
    for i in range(GONE_LISTS + 1):
        at = 60.0 + i * 400.0
        absorb(store, inventory, listing(*names, at=at, source=source, **more), now=later(at))
    return at


def live(fleet: Fleet) -> list[str]:
    axis = fleet.axes["node"]
    return [name for name, here in zip(axis.ids, axis.live.tolist(), strict=True) if here]


def test_a_node_that_its_scheduler_names_no_more_leaves_and_comes_back_to_its_slot(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(topology("n1"), topology("n2"), topology("n3")), listing("n1", "n2", "n3", at=0))
    before = inventory.fleet
    at = leave(store, inventory, "n1", "n3")
    assert live(inventory.fleet) == ["n1", "n3"] == live(reloaded(store).fleet)
    assert inventory.fleet.axes["gpu"].live.tolist() == [True, True, False, False, True, True]
    assert inventory.take_left() == ["n2"] and inventory.take_left() == []
    assert inventory.fleet.slots == before.slots and inventory.fleet.epoch > before.epoch
    absorb(store, inventory, listing("n1", "n2", "n3", at=at + 60), now=later(at + 60))
    assert live(inventory.fleet) == ["n1", "n2", "n3"] == live(reloaded(store).fleet)
    assert inventory.fleet.axes["gpu"].live.all() and inventory.fleet.slots == before.slots


def test_a_partial_list_a_short_absence_and_a_node_that_still_speaks_leave_nobody_out(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(topology("n1"), topology("n2")), listing("n1", "n2", at=0))
    leave(store, inventory, "n1", listing=False)
    assert len(live(inventory.fleet)) == 2
    for i in range(GONE_LISTS + 5):
        absorb(store, inventory, listing("n1", at=i), now=later(i))
    assert len(live(inventory.fleet)) == 2
    inventory = Inventory("main")
    absorb(store, inventory, batch(topology("n1"), topology("n2")), listing("n1", "n2", at=0))
    for i in range(GONE_LISTS + 1):
        at = 60.0 + 400 * i
        absorb(store, inventory, listing("n1", at=at), told(gpu("n2", "GPU-n2-0"), at=T + at), now=later(at))
    assert len(live(inventory.fleet)) == 2


def test_a_list_that_lacks_most_nodes_needs_a_day(store: Store) -> None:
    inventory = Inventory("main")
    names = tuple(f"n{i}" for i in range(10))
    absorb(store, inventory, listing(*names, at=0, listing=True))
    at = leave(store, inventory, "n0", listing=True)
    assert len(live(inventory.fleet)) == 10
    absorb(store, inventory, listing("n0", at=at + 86_400, listing=True), now=later(at + 86_400))
    assert live(inventory.fleet) == ["n0"]


def test_a_node_of_two_lists_leaves_when_both_name_it_no_more_also_after_a_restart(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, listing("n1", "n2", at=0), listing("n1", "n2", at=0, source="kubernetes"))
    inventory = reloaded(store)
    at = leave(store, inventory, "n1", source="kubernetes")
    assert len(live(inventory.fleet)) == 2
    for i in range(GONE_LISTS + 1):
        absorb(store, inventory, listing("n1", at=at + 400 * i), now=later(at + 400 * i))
    assert live(inventory.fleet) == ["n1"]


# --- what changed ----------------------------------------------------------------------------------------------------


def version(value: str, at: float = 0.0, node: str = "n1", item: str = "driver", **more: object) -> Batch:
    facts = replace(VersionFacts(node, item, value, T + at), **more)  # type: ignore[arg-type]
    return replace(batch(), source="dcgm", versions=(facts,))


def changed(store: Store, node: str = "n1") -> list[tuple[str, str, str, float]]:
    with store.read() as session:
        found = ledger.changes(session, "main", node=node)
    return [(c.item, c.before, c.value, unix(c.at) - T) for c in reversed(found)]


def test_a_change_is_told_once_and_first_sight_is_none(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(topology()), version("550.54"), version("550.54", 60), version("560.1", 900))
    absorb(store, inventory, version("560.1", 960))
    absorb(store, reloaded(store), version("560.1", 975), version("550.54", 100))
    assert changed(store) == [("driver", "550.54", "560.1", 900)]


def test_two_sources_with_two_spellings_make_no_change(store: Store) -> None:
    inventory = Inventory("main")
    for i in range(6):
        absorb(store, inventory, version("5.15.0-105", i, item="kernel", source="slurm"))
        absorb(store, inventory, version("5.15.0-105-generic", i, item="kernel", source="node_exporter"))
    assert changed(store) == []


def test_one_source_at_odds_with_itself_does_not_fill_the_ledger(store: Store) -> None:
    inventory = Inventory("main")
    for i in range(400):
        absorb(store, inventory, version("ab"[i % 2], 15.0 * i))
    assert len(changed(store)) <= 8


def test_a_jobs_image_is_one_row_and_its_odd_node_another(store: Store) -> None:
    inventory = Inventory("main")
    for node in ("n1", "n2", "n3"):
        absorb(store, inventory, version("2.21" if node == "n3" else "2.19", node=node, item="nccl", job="7"))
    with store.read() as session:
        found = sorted((v.node, v.value) for v in ledger.versions(session, "main"))
    assert found == [("", "2.19"), ("n3", "2.21")]


def test_a_reboot_is_a_change_and_jitter_is_none(store: Store) -> None:
    inventory = Inventory("main")
    for boot_at in (T - 900, T - 890, T - 900, T + 50):
        absorb(store, inventory, batch(state(boot_at=boot_at)), now=later(100))
    assert [(item, at) for item, _, _, at in changed(store)] == [("boot", 50)]


def test_versions_roll_back_with_their_transaction(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, version("1"))
    with pytest.raises(ZeroDivisionError), store.write() as session:
        inventory.absorb(session, version("2", 900), later(900))
        raise ZeroDivisionError
    absorb(store, inventory, version("2", 900))
    assert changed(store) == [("driver", "1", "2", 900)]


# --- outages, maintenance, cables ------------------------------------------------------------------------------------


def out(store: Store, source: str = "observed") -> list[tuple[float, float | None, str, str]]:
    with store.read() as session:
        found = outages.outages(session, "main", later(-1e6), later(1e6))
    return [
        (o.start - T, o.end - T if o.end is not None else None, o.state, o.user) for o in found if o.source == source
    ]


def test_what_we_saw_out_is_a_span_until_it_is_back(store: Store) -> None:
    inventory = Inventory("main")

    def see(at: float, **more: object) -> None:
        read = replace(state(at=T + at), **more)  # type: ignore[arg-type]
        absorb(store, inventory, batch(read), now=later(at))

    drained: dict[str, object] = {"flags": frozenset({"DRAIN"}), "reason": "bad DIMM", "reason_owner": "ada"}
    see(0)
    see(60, **drained)
    see(75, **drained)
    inventory = reloaded(store)
    see(90, state="mixed", **drained)
    see(120, state="down", reason="Not responding", reason_owner="slurm")
    see(150, state="unknown")
    see(180)
    assert out(store) == [(60, 120, "drain", "ada"), (120, 180, "down", "slurm")]


def test_outages_of_others_stand_beside_ours_and_are_told_once(store: Store) -> None:
    inventory = Inventory("main")
    told_ = OutageFacts("n1", T - 900, T - 300, "DOWN", "Kill task failed", "root", "sacctmgr")
    absorb(store, inventory, *(replace(batch(), outages=(told_,)) for _ in range(3)))
    assert out(store, "sacctmgr") == [(-900, -300, "DOWN", "root")]


def test_a_window_that_is_announced_again_moves(store: Store) -> None:
    inventory = Inventory("main")
    for end in (900.0, 1800.0):
        window = MaintenanceFacts("maint-1", ("n1", "n2"), T, T + end)
        absorb(store, inventory, replace(batch(), source="slurm", maintenances=(window,)))
    with store.read() as session:
        (found,) = outages.maintenances(session, "main", later(-9), later(9))
    assert (found.end, found.nodes, found.source) == (T + 1800, ("n1", "n2"), "slurm")


def test_a_port_that_is_plugged_elsewhere_has_two_ties(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(topology()))
    for i, leaf in enumerate(("leaf1", "leaf1", "leaf2")):
        tie = CableFacts("n1", "mlx5_0/1", leaf, "17", rail="0")
        absorb(store, inventory, replace(batch(), cables=(tie,)), now=later(60 * i))
    with store.read() as session:
        assert [(c.port, c.peer, c.rail) for c in cables.cables(session, "main")] == [("mlx5_0/1", "leaf2", "0")]


def test_labels_and_partitions_are_kept(store: Store) -> None:
    facts = NodeFacts("n1", "idle", read_at=T, partitions=("gpu", "big"), labels={"zone": "a"}, clique="c9")
    absorb(store, Inventory("main"), batch(facts))
    with store.read() as session:
        (found,) = node_facts(session, "main")
    assert (found.partitions, found.labels, found.clique) == (("gpu", "big"), {"zone": "a"}, "c9")


# --- whose pod -------------------------------------------------------------------------------------------------------


def pods(*names: str) -> Batch:
    """Telemetry of GPUs of n1, each with the pod that its exporter names."""
    labels = [
        {"UUID": f"GPU-n1-{i}", "Hostname": "n1", "gpu": str(i), "exported_pod": name, "exported_namespace": "ml"}
        for i, name in enumerate(names)
    ]
    found = [label for one in labels if (label := device_label("gpu", one)) is not None]
    return told(*found)


def jobs_of(inventory: Inventory, gpus: int) -> list[str]:
    return [job_of(inventory.fleet, "gpu", f"GPU-n1-{i}") for i in range(gpus)]


def test_gpus_of_the_pods_of_one_job_are_peers(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    beside = [running("ml.train", gpus_per_node=2), running("ml.train-big", gpus_per_node=1)]
    absorb(sqlite_store, inventory, batch(topology("n1", gpus=4), *beside))
    absorb(sqlite_store, inventory, pods("train-worker-0", "train-worker-1", "train-big-0", "stranger-0"))
    assert jobs_of(inventory, 4) == ["ml.train", "ml.train", "ml.train-big", ""]


def test_pods_that_no_scheduler_tells_of_are_peers_by_their_names(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    absorb(sqlite_store, inventory, batch(topology("n1", gpus=4)))
    absorb(sqlite_store, inventory, pods("train-worker-0", "train-worker-13", "fit-0-x8k2z", "alone"))
    assert jobs_of(inventory, 4) == ["ml.train-worker", "ml.train-worker", "ml.fit", "ml.alone"]
