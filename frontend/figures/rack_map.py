"""The rack map: one cell a GPU (a node above 20,000 GPUs), a rack a block, places that never move."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frontend.figures.encode import typed
from frontend.figures.theme import Theme, axis, font, inert, layout, words
from frontend.words import GLYPHS, STATES

#: Above this many GPUs a cell is a node: 102,400 cells of 2 px show no single fault.
MOST_GPUS = 20_000
#: Nodes in a block; a larger rack takes several blocks side by side.
TALL = 8
MOST_RINGS = 20
#: Free space round the cells, in cells, so that no ring is cut off.
EDGE = 1.0
#: Room for the name of an aisle's first rack: so many pixels a character, and never more characters than these.
CHAR_PX, MOST_CHARS = 7, 12
#: A map with more columns than this has small cells, and its rings stand a little further off.
SMALL_CELLS = 70
_TOKENS = {state: "ok-cell" if state == "ok" else state for state in STATES}


@dataclass(frozen=True, slots=True)
class Place:
    """One node where it stands: ``states`` holds one of STATES for each GPU in order of index."""

    node: str
    rack: str
    states: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A ring round what an open incident touches: a whole node, or one of its GPUs."""

    node: str
    gpu: int | None
    state: str
    tag: str


@dataclass(frozen=True, slots=True)
class Block:
    rack: str
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Where things are drawn: blocks of ``wide`` x ``tall`` cells, ``across`` of them in an aisle."""

    blocks: tuple[Block, ...]
    wide: int
    tall: int
    across: int
    per_node: bool

    @property
    def columns(self) -> int:
        return self.across * (self.wide + 1) - 1

    @property
    def roomy(self) -> bool:
        """Is there room for a rack's name above its own block? Else each aisle tells the name of its first rack."""
        return not self.per_node and self.columns <= SMALL_CELLS

    @property
    def left_px(self) -> int:
        """Width of what stands left of the cells."""
        if self.roomy:
            return 8
        longest = max((len(b.rack[:MOST_CHARS]) for b in self.blocks[:: self.across]), default=0)
        return 16 + CHAR_PX * max(4, longest)

    @property
    def aisles(self) -> int:
        return -(-len(self.blocks) // self.across)

    @property
    def rows(self) -> int:
        return self.aisles * (self.tall + 1) - 1

    def corner(self, block: int) -> tuple[int, int]:
        """(x, y) of the block's first cell."""
        return block % self.across * (self.wide + 1), block // self.across * (self.tall + 1)

    def cell(self, block: int, node: int, gpu: int) -> tuple[int, int]:
        x, y = self.corner(block)
        return (x + node % self.wide, y + node // self.wide) if self.per_node else (x + gpu, y + node)


def plan(places: Sequence[Place], narrow: bool) -> Plan:
    """``places`` in physical order, racks together. A narrow page folds each aisle in halves, so neighbours stay."""
    per_node = sum(len(p.states) for p in places) > MOST_GPUS
    wide = 2 if per_node else max([1, *(len(p.states) for p in places)])
    tall = 4 if per_node else TALL
    blocks = _blocks(places, wide * tall if per_node else tall)
    aisle = (40 if narrow else 80) if per_node else (8 if narrow else 16)
    shortest = tall if per_node else min(tall, max([1, *(len(b.places) for b in blocks)]))
    most = -(-len(blocks) // 2) if narrow and len(blocks) <= aisle else len(blocks)
    return Plan(blocks, wide, shortest, max(1, min(aisle, most)), per_node)


def _blocks(places: Sequence[Place], most: int) -> tuple[Block, ...]:
    blocks: list[list[Place]] = []
    for place in places:
        if not blocks or blocks[-1][0].rack != place.rack or len(blocks[-1]) >= most:
            blocks.append([])
        blocks[-1].append(place)
    return tuple(Block(b[0].rack, tuple(b)) for b in blocks)


def grid(drawn: Plan) -> NDArray[np.uint8]:
    """uint8[rows, columns]: 0 is no cell, else 1 + the place in STATES."""
    code = {state: place + 1 for place, state in enumerate(STATES)}
    cells = np.zeros((max(1, drawn.rows), max(1, drawn.columns)), np.uint8)
    for b, block in enumerate(drawn.blocks):
        for n, place in enumerate(block.places):
            codes = [code[state] for state in place.states] or [code["unknown"]]
            if drawn.per_node:
                x, y = drawn.cell(b, n, 0)
                cells[y, x] = max(codes)
            else:
                x, y = drawn.cell(b, n, 0)
                cells[y, x : x + len(codes)] = codes
    return cells


def rack_map(places: Sequence[Place], marks: Sequence[Mark], theme: Theme, narrow: bool) -> dict[str, Any]:
    """The figure as Plotly takes it. ``layout.meta`` holds what the page needs to size it and to name a cell."""
    drawn = plan(places, narrow)
    trace = {
        "type": "heatmap",
        "z": typed(grid(drawn)),
        "zmin": -0.5,
        "zmax": len(STATES) + 0.5,
        "colorscale": _colours(theme),
        "showscale": False,
        "hoverinfo": "none",
        "xgap": 1,
        "ygap": 1,
    }
    rings = _rings(drawn, marks, theme)
    return {
        "data": [trace],
        "layout": layout(
            theme,
            margin={"l": drawn.left_px - 4, "r": 4, "t": 6, "b": 6},
            xaxis={"visible": False, "range": [-0.5 - EDGE, drawn.columns - 0.5 + EDGE], "fixedrange": True},
            yaxis=_aisle_axis(drawn, theme),
            shapes=[shape for shape, _ in rings],
            annotations=[*(tag for _, tag in rings), *(_heads(drawn, theme) if drawn.roomy else ())],
            meta={"map": _measures(drawn, places)},
        ),
    }


def _colours(theme: Theme) -> list[tuple[float, str]]:
    """Flat steps: each code its own colour, the gutter none."""
    steps = ["rgba(0,0,0,0)", *(theme[_TOKENS[state]] for state in STATES)]
    return [(at / len(steps), colour) for i, colour in enumerate(steps) for at in (i, i + 1)]


def _aisle_axis(drawn: Plan, theme: Theme) -> dict[str, Any]:
    aisles = () if drawn.roomy else range(drawn.aisles)
    return axis(
        theme,
        range=[drawn.rows - 0.5 + EDGE, -0.5 - EDGE],
        fixedrange=True,
        showgrid=False,
        showline=False,
        tickvals=[i * (drawn.tall + 1) + drawn.tall / 2 - 0.5 for i in aisles],
        ticktext=[inert(drawn.blocks[i * drawn.across].rack[:MOST_CHARS]) for i in aisles],
    ) | {"ticklabelstandoff": 8}


def _heads(drawn: Plan, theme: Theme) -> list[dict[str, Any]]:
    """The name of a rack above the first of its blocks."""
    found = []
    for b, block in enumerate(drawn.blocks):
        if b and drawn.blocks[b - 1].rack == block.rack:
            continue
        x, y = drawn.corner(b)
        found.append(words(theme, block.rack[:MOST_CHARS], x - 0.5, y - 0.5, xanchor="left", yanchor="bottom"))
    return found


def _measures(drawn: Plan, places: Sequence[Place]) -> dict[str, Any]:
    return {
        "columns": drawn.columns,
        "rows": drawn.rows,
        "wide": drawn.wide,
        "tall": drawn.tall,
        "across": drawn.across,
        "perNode": drawn.per_node,
        "edge": EDGE,
        "left": drawn.left_px,
        "names": names_version(places),
    }


def names(places: Sequence[Place], narrow: bool) -> dict[str, Any]:
    """What the page needs once to name a cell from (x, y): racks and nodes, block by block."""
    drawn = plan(places, narrow)
    words_ = ["no data" if state == "unknown" else state for state in STATES]
    return {"states": words_, "blocks": [[b.rack, [p.node for p in b.places]] for b in drawn.blocks]}


def names_version(places: Sequence[Place]) -> str:
    """Changes exactly when a node or its rack does, so that the names can be kept for ever."""
    text = "\n".join(f"{p.rack}\t{p.node}\t{len(p.states)}" for p in places)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _rings(drawn: Plan, marks: Sequence[Mark], theme: Theme) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    where = {p.node: (b, n) for b, block in enumerate(drawn.blocks) for n, p in enumerate(block.places)}
    worst = sorted(marks, key=lambda m: -STATES.index(m.state))
    return [_ring(drawn, mark, *where[mark.node], theme) for mark in worst if mark.node in where][:MOST_RINGS]


def _ring(drawn: Plan, mark: Mark, block: int, node: int, theme: Theme) -> tuple[dict[str, Any], dict[str, Any]]:
    one = mark.gpu is not None or drawn.per_node
    x0, y0 = drawn.cell(block, node, mark.gpu or 0)
    x1 = x0 if one else drawn.corner(block)[0] + max(0, len(drawn.blocks[block].places[node].states) - 1)
    small = drawn.columns > SMALL_CELLS
    pad, high = ((1.5, 1.5) if small else (1.15, 1.15)) if one else ((0.95, 0.95) if small else (0.75, 0.58))
    right = x1 + pad < drawn.columns * 0.9
    shape = {
        "type": "circle" if one else "rect",
        "x0": x0 - pad,
        "x1": x1 + pad,
        "y0": y0 - high,
        "y1": y0 + high,
        "line": {"color": theme["ink"], "width": 1.5},
    }
    side = {"xanchor": "left" if right else "right", "xshift": 4 if right else -4}
    tag = words(theme, f"{GLYPHS[mark.state]} {mark.tag}", x1 + pad if right else x0 - pad, y0, "ink", **side)
    return shape, tag | {"bgcolor": theme["panel"], "borderpad": 2, "font": font(theme, "ink")}
