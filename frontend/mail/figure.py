"""A small figure of what was seen, as PNG without a browser: lines of numbers over one time axis, moments as ticks."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from datetime import UTC, datetime

from PIL import Image, ImageDraw, ImageFont

from frontend.mail.render import Curve, Palette, palette

#: Width in CSS pixels, and pixels a CSS pixel: letters stay readable where a phone shows it at 340.
WIDTH, SCALE = 420, 2
#: CSS pixels of one lane, of its title, of the time axis, of a moment's row; left and right edge.
LANE, TITLE, AXIS, MOMENT, EDGE = 56, 20, 26, 20, 12
#: Lanes and moments that are drawn; what is more stands in the text.
MOST_LANES, MOST_MOMENTS = 3, 6
#: Beyond this many points a line is drawn by the least and the most of each column, so that one spike survives.
POINTS = WIDTH


def figure(curves: Sequence[Curve], moments: Sequence[tuple[float, str]]) -> bytes:
    """PNG bytes; empty where there is nothing to draw. Not a number breaks a line: a gap stays a gap.

    Drawn on the light panel with its own ground, so that it reads the same where a mail is shown dark.
    """
    lanes = [curve for curve in curves if any(math.isfinite(value) for _, value in curve[2])][:MOST_LANES]
    told = sorted(moment for moment in moments if math.isfinite(moment[0]))[:MOST_MOMENTS]
    times = [at for curve in lanes for at, _ in curve[2] if math.isfinite(at)] + [at for at, _ in told]
    if not lanes and len(told) < 2:
        return b""
    begin, end = min(times), max(times)
    span = end - begin or 60.0
    begin, end = begin - span * 0.02, end + span * 0.02
    height = len(lanes) * (LANE + TITLE) + len(told) * MOMENT + AXIS + EDGE
    sheet = Sheet(height, begin, end)
    top = EDGE
    for curve in lanes:
        sheet.lane(curve, top)
        top += LANE + TITLE
    if told:
        sheet.first(told[0][0], top)
    for at, words in told:
        sheet.moment(at, words, top)
        top += MOMENT
    sheet.axis(top)
    return sheet.png()


class Sheet:
    """What is drawn on, in CSS pixels; times in unix s."""

    def __init__(self, height: int, begin: float, end: float) -> None:
        self.begin, self.end = begin, end
        self.ink = inks(palette())
        self.image = Image.new("RGB", (WIDTH * SCALE, height * SCALE), self.ink["panel"])
        self.draw = ImageDraw.Draw(self.image)
        self.small = ImageFont.load_default(13 * SCALE)

    def x(self, at: float) -> float:
        return EDGE + (at - self.begin) / (self.end - self.begin) * (WIDTH - 2 * EDGE)

    def text(self, x: float, y: float, words: str, ink: str = "ink-2", anchor: str = "la") -> None:
        self.draw.text((x * SCALE, y * SCALE), drawable(words), fill=self.ink[ink], font=self.small, anchor=anchor)

    def line(self, points: Sequence[tuple[float, float]], ink: str, width: float = 1.0) -> None:
        scaled = [(x * SCALE, y * SCALE) for x, y in points]
        if len(scaled) == 1:
            x, y = scaled[0]
            self.draw.ellipse((x - 3, y - 3, x + 3, y + 3), fill=self.ink[ink])
        elif scaled:
            self.draw.line(scaled, fill=self.ink[ink], width=max(1, round(width * SCALE)), joint="curve")

    def lane(self, curve: Curve, top: float) -> None:
        """One line with its own scale; its title says name, unit, least and most."""
        name, unit, points = curve
        seen = [value for _, value in points if math.isfinite(value)]
        low, high = min(seen), max(seen)
        reach = f"{number(low)} to {number(high)}"
        room = WIDTH - 3 * EDGE - self.small.getlength(reach) / SCALE
        self.text(EDGE, top, self.fitted(f"{name}{f' ({unit})' if unit else ''}", room), "ink")
        self.text(WIDTH - EDGE, top, reach, anchor="ra")
        floor, room = top + TITLE + LANE - 8, LANE - 14
        self.line([(EDGE, floor), (WIDTH - EDGE, floor)], "line")
        run: list[tuple[float, float]] = []
        for at, value in [*thinned(points), (math.nan, math.nan)]:
            if math.isfinite(at) and math.isfinite(value):
                share = (value - low) / (high - low) if high > low else 0.5
                run.append((self.x(at), floor - share * room))
            else:
                self.line(run, "accent", 1.5)
                run = []

    def first(self, at: float, bottom: float) -> None:
        """The first cause: one dotted line through all lanes."""
        y = float(EDGE)
        while y < bottom:
            self.line([(self.x(at), y), (self.x(at), min(y + 3, bottom))], "failed")
            y += 6

    def moment(self, at: float, words: str, top: float) -> None:
        x, y = self.x(at), top + MOMENT / 2
        right = x > WIDTH / 2
        self.draw.ellipse([v * SCALE for v in (x - 3, y - 3, x + 3, y + 3)], fill=self.ink["failed"])
        room = (x - 2 * EDGE) if right else (WIDTH - x - 2 * EDGE)
        label = self.fitted(f"{clock(at)}  {words}", room)
        self.text(x - 8 if right else x + 8, y, label, "ink", "rm" if right else "lm")

    def fitted(self, words: str, room: float) -> str:
        """As much of it as fits; the rest stands in the mail's text."""
        text = drawable(words)
        if self.small.getlength(text) <= room * SCALE:
            return text
        while text and self.small.getlength(text + "…") > room * SCALE:
            text = text[:-1]
        return text.rstrip() + "…"

    def axis(self, top: float) -> None:
        self.line([(EDGE, top + 4), (WIDTH - EDGE, top + 4)], "line")
        self.text(EDGE, top + 8, f"{clock(self.begin)} UTC")
        self.text(WIDTH - EDGE, top + 8, f"{clock(self.end)} UTC", anchor="ra")

    def png(self) -> bytes:
        out = io.BytesIO()
        self.image.quantize(32, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
        return out.getvalue()


def inks(colours: Palette) -> dict[str, str]:
    return {name: light for name, (light, _) in colours.items()}


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most about two points a column: its least and its most; gaps stay."""
    if len(points) <= POINTS:
        return list(points)
    each = math.ceil(len(points) / (POINTS / 2))
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), each):
        part = [point for point in points[start : start + each] if math.isfinite(point[1])]
        if len(part) < min(each, len(points) - start):
            kept.append((points[start][0], math.nan))
        if part:
            kept += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return kept


def drawable(words: str) -> str:
    """What the packaged letters can draw: Latin; the text of the mail says it as it is."""
    return "".join(c if c.isascii() and c.isprintable() or c in "…·°µ" else "?" for c in words)


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"


def clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def words_of(curves: Sequence[Curve], moments: Sequence[tuple[float, str]]) -> str:
    """The figure in words, for who does not see it."""
    lanes = []
    for name, unit, points in curves[:MOST_LANES]:
        seen = [value for _, value in points if math.isfinite(value)]
        if seen:
            lanes.append(f"{name}: {number(seen[0])} to {number(seen[-1])} {unit}".strip())
    return ". ".join([*lanes, *(f"{clock(at)} {words}" for at, words in sorted(moments)[:MOST_MOMENTS])])
