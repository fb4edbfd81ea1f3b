"""Who is who, who runs where, and what of it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest
from sqlalchemy import event

from backend.clock import unix
from backend.facts import AttemptFacts, Batch, DeviceLabel, GpuFacts, NodeFacts, RawEvent, Series
from backend.inventory.inventory import Inventory
from backend.store import cluster as rows
from backend.store.allocations import allocations_at
from backend.store.engine import Store
from detectors.model import Fleet
from tests.conftest import NOW

T = unix(NOW)
Absorb = Callable[..., None]


def topology(name: str = "n1", gpus: int = 2, rack: str = "r1", **more: object) -> NodeFacts:
    made = tuple(GpuFacts(i, f"GPU-{name}-{i}", f"0000:{i + 16:02x}:00", "H100") for i in range(gpus))
    facts = NodeFacts(name=name, rack=rack, gpus=made, expected_gpus=gpus)
    return replace(facts, **more)  # type: ignore[arg-type]  # fields by name, as each test needs them


def state(name: str = "n1", state: str = "idle", at: float = T, **more: object) -> NodeFacts:
    return replace(NodeFacts(name=name, state=state, read_at=at, expected_gpus=2), **more)  # type: ignore[arg-type]


def told(*labels: DeviceLabel, metric: str = "temperature_c", value: float = 50.0, at: float = T) -> Batch:
    series = tuple(Series(metric, label, np.array([at]), np.array([value])) for label in labels)
    return Batch("prometheus", at - 15, at, series)


def gpu(
    node: str = "n1", uuid: str = "", pci: str = "", index: str = "", model: str = "", job: str = ""
) -> DeviceLabel:
    return DeviceLabel("gpu", node, uuid, pci, index, model, job)


def running(job: str = "7", restart: int = 0, nodes: tuple[str, ...] = ("n1",), **more: object) -> AttemptFacts:
    facts = AttemptFacts(job, restart, state="RUNNING", submit=T - 200, start=T - 100, nodes=nodes)
    return replace(facts, **more)  # type: ignore[arg-type]


def batch(*things: NodeFacts | AttemptFacts | RawEvent, at: float = T) -> Batch:
    return Batch(
        "test",
        at,
        at,
        nodes=tuple(one for one in things if isinstance(one, NodeFacts)),
        attempts=tuple(one for one in things if isinstance(one, AttemptFacts)),
        events=tuple(one for one in things if isinstance(one, RawEvent)),
    )


def absorb(store: Store, inventory: Inventory, *batches: Batch, now: datetime = NOW) -> None:
    for one in batches:
        with store.write() as session:
            inventory.absorb(session, one, now)


def reloaded(store: Store) -> Inventory:
    made = Inventory("main")
    with store.read() as session:
        made.load(session)
    return made


def job_of(fleet: Fleet, kind: str, id_: str) -> str:
    job = int(fleet.axes[kind].job_of[fleet.slots[(kind, id_)]])
    return fleet.jobs[job] if job >= 0 else ""


@contextmanager
def statements(store: Store) -> Iterator[list[int]]:
    """How many rows each writing statement of the block had."""
    counted: list[int] = []

    def count(_c: object, _cursor: object, statement: str, parameters: object, _x: object, many: bool) -> None:
        if statement.lstrip().upper().startswith(("INSERT", "UPDATE", "DELETE")):
            counted.append(len(parameters) if many and isinstance(parameters, list) else 1)

    event.listen(store.engine, "before_cursor_execute", count)
    try:
        yield counted
    finally:
        event.remove(store.engine, "before_cursor_execute", count)


# --- who is who ------------------------------------------------------------------------------------------------------


def test_topology_makes_nodes_and_gpus_that_survive_a_restart(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(topology("n1"), topology("n2", rack="r2")))
    for fleet in (inventory.fleet, reloaded(store).fleet):
        assert fleet.nodes == ("n1", "n2") and fleet.racks == ("r1", "r2") and fleet.models == ("H100",)
        assert fleet.axes["gpu"].names == ("n1/gpu0", "n1/gpu1", "n2/gpu0", "n2/gpu1")
        assert fleet.axes["gpu"].node_of.tolist() == [0, 0, 1, 1]
        assert str(fleet.entity("gpu", 3)) == "n2/gpu1" and fleet.entity("gpu", 3).host == "n2"


def test_nodes_are_learnt_from_any_source(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    line = RawEvent(T, "from-a-line", "xid", "79", "", "d")
    absorb(
        sqlite_store,
        inventory,
        batch(state("from-slurm"), running(nodes=("from-a-job",)), line),
        told(gpu("from-a-gpu", "GPU-a")),
        told(DeviceLabel("node", "from-a-node"), metric="node_load1"),
        told(DeviceLabel("node", "monitoring"), metric="node_up", value=1.0),
    )
    want = {"from-slurm", "from-a-line", "from-a-job", "from-a-gpu", "from-a-node"}
    assert set(inventory.fleet.nodes) == want  # who only answers scrapes is no node
    assert set(reloaded(sqlite_store).fleet.nodes) == want


def test_a_gpu_is_its_uuid_then_its_address_and_never_its_index(sqlite_store: Store) -> None:
    """traps.md 11: after GPU 1 is lost, index 3 is another card."""
    inventory = Inventory("main")
    absorb(
        sqlite_store,
        inventory,
        told(gpu(uuid="GPU-d", pci="0000:9b:00", index="3"), gpu(uuid="GPU-e", pci="0000:9c:00", index="4")),
    )
    d, e = (inventory.slot(gpu(uuid=f"GPU-{x}")) for x in "de")
    epoch = inventory.fleet.epoch
    absorb(sqlite_store, inventory, told(gpu(uuid="GPU-e", pci="0000:9c:00", index="3")))
    assert inventory.slot(gpu(uuid="GPU-e")) == e and inventory.slot(gpu(index="3")) == e
    assert inventory.slot(gpu(pci="0000:9b:00")) == d
    fleet = inventory.fleet
    assert fleet.epoch == epoch  # nobody came, nobody went
    assert str(fleet.entity("gpu", e or 0)) == "n1/gpu3" and str(fleet.entity("gpu", d or 0)) == "n1/0000:9b:00"
    absorb(sqlite_store, inventory, told(gpu(index="7")))
    assert inventory.slot(gpu(index="7")) is None and len(inventory.fleet.axes["gpu"]) == 2


def test_an_exporters_index_stands_against_a_topology_file(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    absorb(sqlite_store, inventory, batch(topology()), told(gpu(uuid="GPU-n1-0", index="5")), batch(topology()))
    assert inventory.fleet.axes["gpu"].names == ("n1/gpu5", "n1/gpu1")


def test_one_gpu_under_two_label_sets_is_one(sqlite_store: Store) -> None:
    """traps.md 9."""
    inventory = Inventory("main")
    plain, with_job = gpu(uuid="GPU-a", index="0"), gpu(uuid="GPU-a", index="0", job="job-1")
    absorb(sqlite_store, inventory, told(plain, with_job), told(with_job), told(plain))
    assert inventory.fleet.axes["gpu"].ids == ("GPU-a",)
    assert inventory.slot(plain) == inventory.slot(with_job) == 0


def test_an_address_that_turns_out_to_be_a_uuid_is_the_same_card(store: Store) -> None:
    inventory = Inventory("main")
    by_pci = replace(topology(), gpus=(GpuFacts(0, "", "0000:9b:00", "H100"),))
    absorb(store, inventory, batch(by_pci))
    old = inventory.fleet
    assert old.axes["gpu"].ids == ("pci:n1:0000:9b:00",)
    absorb(store, inventory, told(gpu(uuid="GPU-a", pci="00000000:9B:00.0", index="0")))
    new = inventory.fleet
    assert new.axes["gpu"].ids == ("GPU-a",) and new.epoch > old.epoch
    assert inventory.take_renamed() == {"pci:n1:0000:9b:00": "GPU-a"} and inventory.take_renamed() == {}
    assert reloaded(store).fleet.axes["gpu"].ids == ("GPU-a",)


def test_a_card_that_was_replaced_is_not_live_and_keeps_its_slot(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(topology()), told(gpu(uuid="GPU-new", pci="0000:10:00", index="0")))
    for fleet in (inventory.fleet, reloaded(store).fleet):
        axis = fleet.axes["gpu"]
        live = dict(zip(axis.ids, axis.live.tolist(), strict=True))
        assert live == {"GPU-n1-0": False, "GPU-n1-1": True, "GPU-new": True}
    assert inventory.slot(gpu(pci="0000:10:00")) == 2
    absorb(store, inventory, told(gpu(uuid="GPU-n1-0", pci="0000:20:00", index="5")))
    assert inventory.fleet.axes["gpu"].live.all()


def test_a_card_that_moves_to_another_node_stays_itself(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    absorb(sqlite_store, inventory, batch(topology("n1"), topology("n2", gpus=0)))
    epoch = inventory.fleet.epoch
    absorb(sqlite_store, inventory, told(gpu("n2", "GPU-n1-0", "0000:10:00", "0")))
    fleet = inventory.fleet
    assert str(fleet.entity("gpu", 0)) == "n2/gpu0" and fleet.entity("gpu", 0).host == "n2" and fleet.epoch > epoch
    assert inventory.slot(gpu("n1", pci="0000:10:00")) is None


def test_long_and_short_names_are_one_node(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    absorb(sqlite_store, inventory, batch(topology("n1")), told(gpu("n1.site.org", "GPU-n1-0", index="0")))
    absorb(sqlite_store, inventory, told(gpu("n2.site.org", "GPU-b")), batch(state("n2")))
    absorb(sqlite_store, inventory, batch(state("a.rack1"), state("a.rack2")))
    assert inventory.fleet.nodes == ("n1", "n2.site.org", "a.rack1", "a.rack2")
    assert inventory.entity("n1.site.org").id == "n1"


@pytest.mark.parametrize("name", ["a b", "a\nb", "a\0", "", " ", "n" * 256, "-rf", "n/1", "<b>", "n[1-2]"])
def test_what_is_no_name_makes_no_node_and_is_counted(sqlite_store: Store, name: str) -> None:
    inventory = Inventory("main")
    line = RawEvent(T, name, "xid", "79", "", "d")
    attempt = running(nodes=("good", name))
    absorb(sqlite_store, inventory, batch(state(name), attempt, line), told(gpu(name, "GPU-a", index="0")))
    assert inventory.fleet.nodes == ("good",)
    assert sum(inventory.rejected.values()) >= 2
    assert inventory.slot(gpu(name, "GPU-a")) is None


def test_a_uuid_that_no_database_takes_is_counted(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    absorb(sqlite_store, inventory, told(gpu(uuid="GPU\0a", pci="0000:9b:00"), gpu(uuid="x" * 300)))
    assert inventory.fleet.axes["gpu"].ids == ("pci:n1:0000:9b:00",)
    assert sum(inventory.rejected.values()) == 2


def test_entities_are_as_exact_as_what_is_known(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    absorb(sqlite_store, inventory, batch(topology()))
    known = inventory.entity("n1", "00000000:10:00.0")
    assert (known.kind, known.id, str(known), known.host) == ("gpu", "GPU-n1-0", "n1/gpu0", "n1")
    assert inventory.entity("n1", "0000:99:00").kind == "node"
    assert str(inventory.entity("n9", "0000:10:00")) == "n9"
    assert str(inventory.entity("", "", "77")) == "job:77"
    assert str(inventory.entity("")) == "cluster:main"


# --- who runs where --------------------------------------------------------------------------------------------------


def test_a_job_start_permutes_nothing(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    absorb(sqlite_store, inventory, batch(topology("n1"), topology("n2")))
    before = inventory.fleet
    absorb(sqlite_store, inventory, batch(running(nodes=("n2",))))
    after = inventory.fleet
    assert after is not before and after.epoch == before.epoch
    assert after.axes["gpu"].ids == before.axes["gpu"].ids and after.slots == before.slots
    assert [job_of(after, "gpu", f"GPU-n2-{i}") for i in (0, 1)] == ["7", "7"]
    assert job_of(after, "gpu", "GPU-n1-0") == "" and job_of(after, "node", "n2") == "7"


def test_peers_are_of_the_same_job_and_model(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    other = topology("n2")
    mixed = replace(other, gpus=(other.gpus[0], replace(other.gpus[1], model="A100")))
    absorb(sqlite_store, inventory, batch(topology("n1"), mixed, topology("n3"), topology("n4")))
    absorb(sqlite_store, inventory, batch(running("7", nodes=("n1", "n2")), running("8", nodes=("n3",))))
    axis = inventory.fleet.axes["gpu"]
    groups = [
        {axis.names[s] for s in axis.by_peers[a:b]}
        for a, b in zip(axis.peer_starts[:-1], axis.peer_starts[1:], strict=True)
    ]
    assert sorted(map(sorted, groups)) == [["n1/gpu0", "n1/gpu1", "n2/gpu0"], ["n2/gpu1"], ["n3/gpu0", "n3/gpu1"]]
    assert axis.peer_starts[-1] == len(axis.by_peers)


def test_a_job_on_some_cards_of_a_node_is_only_blamed_where_the_exporter_agrees(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    absorb(sqlite_store, inventory, batch(topology(), running("7", gpus_per_node=1)))
    assert [job_of(inventory.fleet, "gpu", f"GPU-n1-{i}") for i in (0, 1)] == ["", ""]
    absorb(sqlite_store, inventory, told(gpu(uuid="GPU-n1-1", index="1", job="7")))
    assert [job_of(inventory.fleet, "gpu", f"GPU-n1-{i}") for i in (0, 1)] == ["", "7"]


def test_without_a_scheduler_the_exporters_job_counts_until_it_goes(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    absorb(sqlite_store, inventory, told(gpu(uuid="GPU-a", job="9")))
    assert job_of(inventory.fleet, "gpu", "GPU-a") == "9"
    absorb(sqlite_store, inventory, told(gpu(uuid="GPU-a")))
    assert job_of(inventory.fleet, "gpu", "GPU-a") == ""


def spans(store: Store, job: str = "7") -> list[tuple[int, str, float, float | None]]:
    with store.read() as session:
        found = rows.allocations(session, "main", [job])
        return [(s.restart, s.node, unix(s.start) - T, unix(s.end) - T if s.end else None) for s in found]


def states(store: Store, job: str = "7") -> list[tuple[int, str, float | None]]:
    with store.read() as session:
        return [(a.restart, a.state, unix(a.end) - T if a.end else None) for a in rows.attempts(session, "main", [job])]


def test_a_job_holds_its_nodes_from_start_to_end(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(running(nodes=("n2", "n1"))))
    assert spans(store) == [(0, "n1", -100, None), (0, "n2", -100, None)]
    assert [a.nodes for a in listed(store)] == [("n1", "n2")]
    done = running(nodes=("n1", "n2"), state="COMPLETED", end=T - 5)
    absorb(store, inventory, batch(done))
    assert spans(store) == [(0, "n1", -100, -5), (0, "n2", -100, -5)]
    assert job_of(inventory.fleet, "node", "n1") == "" and not listed(store)


def listed(store: Store) -> list[AttemptFacts]:
    with store.read() as session:
        return rows.running(session, "main")


def test_a_requeue_ends_the_attempt_before_it(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(running(nodes=("n1", "n2"))))
    waiting = AttemptFacts("7", 1, state="PENDING", submit=T - 3)
    absorb(store, inventory, batch(waiting))
    assert spans(store) == [(0, "n1", -100, -3), (0, "n2", -100, -3)]
    assert states(store) == [(0, "REQUEUED", -3), (1, "PENDING", None)]
    absorb(store, inventory, batch(running(restart=1, nodes=("n3",), start=T + 5)), now=NOW + timedelta(seconds=10))
    assert spans(store)[2:] == [(1, "n3", 5, None)]
    assert job_of(inventory.fleet, "node", "n3") == "7" and job_of(inventory.fleet, "node", "n1") == ""
    late = running(nodes=("n1", "n2"))
    absorb(store, inventory, batch(late), now=NOW + timedelta(seconds=20))
    assert spans(store)[2:] == [(1, "n3", 5, None)] and job_of(inventory.fleet, "node", "n3") == "7"
    assert job_of(reloaded(store).fleet, "node", "n3") == "7"


def test_a_job_that_shrinks_lets_nodes_go(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(running(nodes=("n1", "n2"))), batch(running(nodes=("n2",))))
    assert spans(store) == [(0, "n1", -100, 0), (0, "n2", -100, None)]


def test_the_time_limit_of_a_running_job_is_not_its_end(store: Store) -> None:
    absorb(store, Inventory("main"), batch(running(end=T + 86_400)))
    assert spans(store) == [(0, "n1", -100, None)] and states(store) == [(0, "RUNNING", None)]


def test_a_job_that_is_told_when_it_is_long_over_still_gets_its_spans(store: Store) -> None:
    absorb(store, Inventory("main"), batch(running(state="FAILED", start=T - 9000, end=T - 8000)))
    assert spans(store) == [(0, "n1", -9000, -8000)]
    with store.read() as session:
        assert [s.node for s in allocations_at(session, "main", NOW - timedelta(seconds=8500), "n1")] == ["n1"]
        assert allocations_at(session, "main", NOW) == []


def test_a_job_whose_end_nobody_told_does_not_hold_an_idle_node(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(running(nodes=("n1", "n2"))))
    absorb(store, inventory, batch(state("n1", "idle"), state("n2", "allocated")))
    assert spans(store) == [(0, "n1", -100, 0), (0, "n2", -100, None)]
    absorb(store, inventory, batch(state("n1", "idle"), state("n2", "idle", flags=frozenset({"COMPLETING"}))))
    assert spans(store)[1] == (0, "n2", -100, None)
    absorb(store, inventory, batch(state("n1", "idle"), state("n2", "idle")))
    assert not listed(store) and states(store) == [(0, "UNKNOWN", 0)]


def test_a_job_that_has_just_begun_is_not_taken_off_its_node(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    absorb(sqlite_store, inventory, batch(running(start=T - 5)), batch(state("n1", "idle")))
    assert job_of(inventory.fleet, "node", "n1") == "7"


# --- states ----------------------------------------------------------------------------------------------------------


def facts(store: Store) -> dict[str, NodeFacts]:
    with store.read() as session:
        return {node.name: node for node in rows.node_facts(session, "main")}


def test_topology_never_speaks_for_the_scheduler(store: Store) -> None:
    inventory = Inventory("main")
    drained = state("n1", "idle", flags=frozenset({"DRAIN"}), reason="bad dimm", reason_owner="ops", boot_at=T - 999)
    absorb(store, inventory, batch(topology()), batch(drained), batch(topology()), batch(running(start=T - 5)))
    node = facts(store)["n1"]
    assert node.drained and node.reason == "bad dimm" and node.reason_owner == "ops" and node.boot_at == T - 999
    assert node.rack == "r1" and node.expected_gpus == 2 and node.jobs == ("7",)
    assert [(g.index, g.uuid) for g in node.gpus] == [(0, "GPU-n1-0"), (1, "GPU-n1-1")]


def test_a_state_is_as_fresh_as_the_last_list_though_no_row_was_written(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(state("n1", at=T), state("n2", at=T)))
    later = NOW + timedelta(seconds=300)
    absorb(store, inventory, batch(state("n1", at=T + 300), state("n2", at=T + 300)), now=later)
    assert {node.read_at for node in facts(store).values()} == {T + 300}
    with store.read() as session:
        assert {row.state_at for row in rows.nodes(session, "main")} == {NOW}
        assert {row.last_seen for row in rows.nodes(session, "main")} == {later}


def test_a_node_that_its_scheduler_no_longer_lists_is_in_no_known_state(store: Store) -> None:
    inventory = Inventory("main")
    absorb(store, inventory, batch(state("n1"), state("n2"), state("n3")))
    absorb(store, inventory, batch(state("n1", at=T + 15)), now=NOW + timedelta(seconds=15))
    assert facts(store)["n2"].state == "idle"  # one node read by itself is not a list
    absorb(store, inventory, batch(state("n1", at=T + 30), state("n2", at=T + 30)), now=NOW + timedelta(seconds=30))
    assert {name: node.state for name, node in facts(store).items()} == {"n1": "idle", "n2": "idle", "n3": "unknown"}


def test_who_falls_silent_among_others_is_seen_to(store: Store) -> None:
    inventory = Inventory("main")
    both = told(gpu("n1", "GPU-a"), gpu("n2", "GPU-b"))
    absorb(store, inventory, both)
    for seconds in (15, 30, 45, 60):
        absorb(store, inventory, told(gpu("n1", "GPU-a")), now=NOW + timedelta(seconds=seconds))
    with store.read() as session:
        seen = {row.name: (row.last_seen - NOW).total_seconds() for row in rows.nodes(session, "main")}
    assert seen == {"n1": 60, "n2": 0}
    absorb(store, inventory, both, now=NOW + timedelta(seconds=75))
    with store.read() as session:
        assert {(row.last_seen - NOW).total_seconds() for row in rows.nodes(session, "main")} == {75}


def test_an_exporter_that_is_down_is_no_sound(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    absorb(sqlite_store, inventory, told(gpu("n1", "GPU-a"), gpu("n2", "GPU-b")))
    down = told(DeviceLabel("node", "n2"), metric="node_up", value=0.0)
    absorb(sqlite_store, inventory, told(gpu("n1", "GPU-a")), down, now=NOW + timedelta(seconds=60))
    with sqlite_store.read() as session:
        assert set(rows.silent(session, "main")) == {"n2"}


# --- what is written -------------------------------------------------------------------------------------------------


def test_a_poll_that_changes_nothing_writes_next_to_nothing(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    names = [f"n{i}" for i in range(400)]
    nodes = [state(name, "allocated") for name in names]
    labels = [gpu(name, f"GPU-{name}", index="0") for name in names]
    jobs = [running(str(i), nodes=(name,)) for i, name in enumerate(names)]
    absorb(sqlite_store, inventory, batch(*nodes, *jobs), told(*labels))
    later = NOW + timedelta(seconds=60)
    with statements(sqlite_store) as written:
        again = [replace(node, read_at=T + 60) for node in nodes]
        absorb(sqlite_store, inventory, batch(*again, *jobs), told(*labels), now=later)
    assert sum(written) <= 4
    with statements(sqlite_store) as written:
        one = replace(again[7], state="down", read_at=T + 75)
        absorb(sqlite_store, inventory, batch(*again[:7], one, *again[8:]), now=later)
    assert sum(written) <= 4
    assert facts(sqlite_store)["n7"].state == "down"


def test_what_was_rolled_back_is_written_again(store: Store) -> None:
    inventory = Inventory("main")
    everything = batch(topology(), running(), state("n2"))
    with pytest.raises(ZeroDivisionError), store.write() as session:
        inventory.absorb(session, everything, NOW)
        raise ZeroDivisionError
    assert facts(store) == {} and listed(store) == []
    absorb(store, inventory, everything)
    assert set(facts(store)) == {"n1", "n2"} and len(facts(store)["n1"].gpus) == 2
    assert [a.job for a in listed(store)] == ["7"]


def test_loading_again_keeps_every_slot(sqlite_store: Store) -> None:
    inventory = Inventory("main")
    absorb(sqlite_store, inventory, batch(topology("z")), batch(topology("a")))
    with pytest.raises(ZeroDivisionError), sqlite_store.write() as session:
        inventory.absorb(session, batch(topology("m")), NOW)
        raise ZeroDivisionError
    before = inventory.fleet
    with sqlite_store.read() as session:
        inventory.load(session)
    assert inventory.fleet.nodes == before.nodes == ("z", "a", "m")
    assert inventory.fleet.axes["gpu"].ids == before.axes["gpu"].ids and inventory.fleet.epoch == before.epoch


def test_clusters_do_not_see_each_other(store: Store) -> None:
    absorb(store, Inventory("main"), batch(topology()))
    absorb(store, Inventory("other"), batch(topology("n9"), running(nodes=("n9",))))
    assert reloaded(store).fleet.nodes == ("n1",)
    assert listed(store) == []
