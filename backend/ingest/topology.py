"""Pushed topology: which nodes there are, in which rack and behind which switch, with which GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from backend.facts import Batch, GpuFacts, NodeFacts, VersionFacts
from backend.ingest.base import SourceError
from backend.ingest.rows import Host, Name, Reject, Rejects, Row, Rows, counted, object_of, problem_of, read, sifted
from detectors.kernel.lines import normal_pci

#: More GPUs than any node holds (an NVL72 rack seen as one node has 72).
MAX_GPUS = 256
#: Ports of one node, with room.
MAX_NICS = 64


class GpuRow(Row):
    """One GPU: UUID or serial, PCI address, or both; the index alone is nobody."""

    index: int = Field(ge=0, le=65_535)
    uuid: Name = ""
    pci_bus_id: Name = ""
    model: Name = ""

    @model_validator(mode="after")
    def _identified(self) -> Self:
        if self.pci_bus_id and not normal_pci(self.pci_bus_id):
            raise PydanticCustomError("pci", "pci_bus_id is no PCI address: write it as 00000000:9B:00.0")
        if not self.uuid and not self.pci_bus_id:
            raise PydanticCustomError("identity", "needs uuid or pci_bus_id")
        return self


class NicRow(Row):
    """One port: its name in telemetry (``mlx5_0``), and the PCI address that the kernel calls it by."""

    name: Name = Field(min_length=1)
    pci_bus_id: Name = Field(min_length=1)
    netdev: Name = ""

    @model_validator(mode="after")
    def _placed(self) -> Self:
        if not normal_pci(self.pci_bus_id):
            raise PydanticCustomError("pci", "pci_bus_id is no PCI address: write it as 0000:9b:00.1")
        return self


class NodeRow(Row):
    name: Host
    rack: Name = ""
    switch: Name = ""
    model: Name = ""
    gpus: list[GpuRow] = Field(default_factory=list, max_length=MAX_GPUS)
    nics: list[NicRow] = Field(default_factory=list, max_length=MAX_NICS)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for what in ("index", "uuid", "pci_bus_id"):
            said = [value for gpu in self.gpus if (value := getattr(gpu, what)) != ""]
            if len(said) != len(set(said)):
                raise PydanticCustomError("twice", "has two gpus with the same {what}", {"what": what})
        return self


def topology_batch(body: bytes, content_type: str, now: float) -> tuple[Batch, tuple[Reject, ...]]:
    """Nodes of one push, a whole ``topology.json`` or rows of it, and the rows that were not taken. ``now`` in unix s.

    A node or UUID that stands there twice is taken once. Raises SourceError(permanent=True) where nothing of the body
    can be read.
    """
    found = _rows(body, content_type)
    owners: dict[str, str] = {}
    names: set[str] = set()

    def wrong(row: NodeRow) -> tuple[str, str] | None:
        if row.name in names:
            return "name", f"{row.name} stands here twice"
        taken = next((gpu.uuid for gpu in row.gpus if owners.get(gpu.uuid, row.name) != row.name), None)
        if taken is not None:
            return "gpus", f"{taken} also stands under {owners[taken]}"
        names.add(row.name)
        owners.update((gpu.uuid, row.name) for gpu in row.gpus if gpu.uuid)
        return None

    good = sifted(found, wrong)
    nodes = tuple(map(facts_of, good.rows))
    ports = tuple(port for row in good.rows for port in ports_of(row, now))
    return Batch("topology", now, now, nodes=nodes, versions=ports, dropped=counted(good)), good.rejects


def facts_of(row: NodeRow) -> NodeFacts:
    """The node as its owner describes it; ``read_at`` 0: no scheduler has spoken, so its state is not known."""
    gpus = tuple(GpuFacts(g.index, g.uuid, normal_pci(g.pci_bus_id), g.model or row.model) for g in row.gpus)
    return NodeFacts(
        name=row.name,
        rack=row.rack,
        switch=row.switch,
        model=row.model,
        gpus=gpus,
        expected_gpus=len(gpus),
    )


def ports_of(row: NodeRow, now: float) -> Iterable[VersionFacts]:
    """Where each port sits; a change of it is a change of the node like others."""
    for nic in row.nics:
        for name in filter(None, (nic.name, nic.netdev)):
            yield VersionFacts(row.name, "pci", nic.pci_bus_id, now, name)


def _rows(body: bytes, content_type: str) -> Rows[NodeRow]:
    whole = object_of(body)
    if whole is None or "name" in whole:
        return read(body, content_type, NodeRow)
    listed = whole.get("nodes")
    if not isinstance(listed, list):
        raise SourceError('The topology has no list "nodes". Send {"nodes": [{"name": ...}]}.', permanent=True)
    return _checked(listed)


def _checked(listed: Iterable[Any]) -> Rows[NodeRow]:
    rejects = Rejects()
    rows: list[NodeRow] = []
    places: list[int] = []
    for place, one in enumerate(listed):
        try:
            rows.append(NodeRow.model_validate(one))
        except ValidationError as error:
            rejects.add(place, *problem_of(error))
        else:
            places.append(place)
    return Rows(tuple(rows), tuple(places), tuple(rejects.told), rejects.count)
