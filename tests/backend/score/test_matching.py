"""The assignment is the largest and, among those, the best in the order of its preferences."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.score.matching import Edge, assign
from backend.score.places import Touch


def edge(fault: int, incident: int, touch: Touch = Touch.NAMED, fits: bool = True, wait_ms: int = 0) -> Edge:
    return Edge(fault, incident, touch, fits, wait_ms)


def chosen(*edges: Edge) -> dict[int, int]:
    return {fault: e.incident for fault, e in assign(edges).items()}


def test_nothing_is_assigned_to_nothing() -> None:
    assert assign([]) == {}


def test_one_incident_counts_for_one_fault() -> None:
    assert len(chosen(edge(0, 0), edge(1, 0))) == 1


def test_a_fault_gives_up_its_better_incident_where_both_are_found_that_way() -> None:
    assert chosen(edge(0, 0), edge(0, 1, Touch.JOB, False, 9), edge(1, 0)) == {0: 1, 1: 0}


def test_exact_goes_before_fitting_and_fitting_before_early() -> None:
    assert chosen(edge(0, 0, Touch.NEAR, True, 0), edge(0, 1, Touch.AMONG, False, 9)) == {0: 1}
    assert chosen(edge(0, 0, Touch.AMONG, False, 0), edge(0, 1, Touch.AMONG, True, 9)) == {0: 1}
    assert chosen(edge(0, 0, wait_ms=5), edge(0, 1, wait_ms=4)) == {0: 1}


def test_a_tie_goes_to_the_incident_that_comes_first() -> None:
    assert chosen(edge(0, 1), edge(0, 0)) == {0: 0}


graphs = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.sampled_from(Touch), st.booleans(), st.integers(0, 3)),
    max_size=10,
)


@settings(max_examples=200, deadline=None)
@given(graphs)
def test_the_assignment_is_the_best_of_all(graph: dict[tuple[int, int], tuple[Touch, bool, int]]) -> None:
    edges = [Edge(f, i, *rest) for (f, i), rest in graph.items()]
    found = assign(edges).values()
    assert len({e.incident for e in found}) == len(found)
    per_fault = [[None, *(e for e in edges if e.fault == fault)] for fault in range(4)]
    worths = []
    for combination in product(*per_fault):
        some = [e for e in combination if e is not None]
        if len({e.incident for e in some}) == len(some):
            worths.append(worth(some))
    assert worth(list(found)) == min(worths)


def worth(edges: list[Edge]) -> tuple[int, ...]:
    return (-len(edges), *(sum(e.price[level] for e in edges) for level in range(4)))


def test_the_order_of_the_edges_has_no_effect_on_a_dense_graph() -> None:
    edges = [
        edge(f, i, Touch((f * i) % 5), (f + i) % 3 == 0, (7 * f + 11 * i) % 13) for f in range(25) for i in range(30)
    ]
    assert assign(edges) == assign(reversed(edges))
    assert len(assign(edges)) == 25
