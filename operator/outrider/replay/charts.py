"""Plots over time as inline SVG: axes with units, one line a policy, marks for objectives and shifts.

Colours are classes of the page's style sheet, so that one drawing serves a light and a dark page; sizes are in the
units of the drawing, `WIDTH` across.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from math import ceil, floor, log10

from outrider.replay.words import clock, time_of_day

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960, 64, 24, 18, 44

SMALLEST = 1e-3
"""The least span of an axis, in the plot's unit: a course of zeros needs one, too. What lies below has no place on
a logarithmic axis."""

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Line:
    """One policy's course; None breaks the line."""

    name: str
    values: Values
    style: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot. ``key`` tells the page's script which list of the timeline a pointer reads."""

    key: str
    title: str
    unit: str
    lines: Sequence[Line]
    edges_s: Sequence[float]
    factor: float = 1.0
    """From the document's unit to the plot's."""
    bound: tuple[float, str] | None = None
    """An objective in the plot's unit, and what it is called."""
    marks: Sequence[tuple[float, str]] = ()
    """Moments in seconds, and what happened then; without words only the moment is drawn."""
    log: bool = False
    steps: bool = False
    """Drawn as steps: the value holds over its interval."""
    height: int = 214
    integer: bool = field(default=False)
    """Ticks at whole numbers alone."""
    begins_at_s: float | None = None
    """Unix time of the first edge where the plot is of a time of day; else time counts from the start."""

    def render(self) -> str:
        """The panel as an HTML figure."""
        low, high, ticks = self._range()
        drawn = [self._grid(ticks, low, high), _time_axis(self.edges_s, self.height, begins_at_s=self.begins_at_s)]
        drawn += [self._line(line, low, high) for line in self.lines]
        if self.bound is not None and low <= self.bound[0] <= high:
            y = self._y(self.bound[0], low, high)
            drawn.append(
                f'<path class="bound" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>'
                f'<text class="bound-name" x="{WIDTH - RIGHT - 4}" y="{y - 4}">{escape(self.bound[1])}</text>'
            )
        drawn.append(_marks(self.marks, self.edges_s, self.height))
        drawn.append(_axis_title(self.unit, self.height))
        return _figure(self.key, self.factor, self.title, self._summary(), self.height, "".join(drawn))

    def _scaled(self) -> list[float]:
        return [self.factor * value for line in self.lines for value in line.values if value is not None]

    def _range(self) -> tuple[float, float, list[float]]:
        values = self._scaled() + ([self.bound[0]] if self.bound is not None else [])
        if self.log:
            positive = [value for value in values if value >= SMALLEST] or [1.0, 10.0]
            low, high = min(positive) / 1.1, max(positive) * 1.1
            return low, high, [one for one in _one_two_five(low, high) if low <= one <= high]
        high = max([*values, SMALLEST]) * 1.05
        step = tick_step(high, 5)
        step = max(1.0, step) if self.integer else step
        return 0.0, high, [step * number for number in range(floor(high / step) + 1)]

    def _y(self, value: float, low: float, high: float) -> float:
        share = log10(value / low) / log10(high / low) if self.log else (value - low) / (high - low)
        return round(self.height - BOTTOM - share * (self.height - TOP - BOTTOM), 1)

    def _grid(self, ticks: Sequence[float], low: float, high: float) -> str:
        rows = []
        for tick in ticks:
            y = self._y(tick, low, high)
            rows.append(f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
            rows.append(f'<text class="y" x="{LEFT - 6}" y="{y + 4}">{tick:,.10g}</text>')
        return "".join(rows)

    def _line(self, line: Line, low: float, high: float) -> str:
        path, pen_down = [], False
        for at, value in enumerate(line.values):
            if value is None or (self.log and self.factor * value < SMALLEST):
                pen_down = False
                continue
            y, begin, end = self._y(self.factor * value, low, high), self.edges_s[at], self.edges_s[at + 1]
            xs = [x_at(begin, self.edges_s), x_at(end, self.edges_s)] if self.steps else [
                x_at((begin + end) / 2, self.edges_s)
            ]  # fmt: skip
            for x in xs:
                path.append(f"{'L' if pen_down else 'M'}{x} {y}")
                pen_down = True
        return f'<path class="line {line.style}" data-policy="{escape(line.name)}" d="{"".join(path)}"/>'

    def _summary(self) -> str:
        """What a reader hears who cannot see the lines."""
        words = []
        for line in self.lines:
            known = [self.factor * value for value in line.values if value is not None]
            if known:
                words.append(
                    f"{line.name} from {min(known):,.4g} to {max(known):,.4g}, mean {sum(known) / len(known):,.4g}"
                )
        return f"{self.title}, in {self.unit}, by time: {'; '.join(words)}."


@dataclass(frozen=True, slots=True)
class Strips:
    """One row a policy, darker where it lost more of what was to be had, 0 to 1."""

    key: str
    title: str
    rows: Sequence[Line]
    edges_s: Sequence[float]
    marks: Sequence[tuple[float, str]] = ()

    ROW = 20

    def render(self) -> str:
        """The strips as an HTML figure."""
        left, height = 150, TOP + self.ROW * len(self.rows) + BOTTOM
        drawn = []
        for number, row in enumerate(self.rows):
            y = TOP + self.ROW * number
            drawn.append(f'<text class="y" x="{left - 8}" y="{y + 14}">{escape(row.name)}</text>')
            drawn.append(
                f'<rect class="strip" x="{left}" y="{y}" width="{WIDTH - RIGHT - left}" height="{self.ROW - 3}"/>'
            )
            for at, share in enumerate(row.values):
                if share:
                    x, end = x_at(self.edges_s[at], self.edges_s, left), x_at(self.edges_s[at + 1], self.edges_s, left)
                    drawn.append(
                        f'<rect class="lost" x="{x}" y="{y}" width="{round(end - x, 1)}" height="{self.ROW - 3}"'
                        f' fill-opacity="{min(1.0, share):.2f}"/>'
                    )
        drawn.append(_time_axis(self.edges_s, height, left))
        drawn.append(_marks(self.marks, self.edges_s, height, left))
        summary = f"{self.title}: the table below says in words where each policy lost most."
        return _figure(self.key, 1.0, self.title, summary, height, "".join(drawn), left)


def x_at(time_s: float, edges_s: Sequence[float], left: int = LEFT) -> float:
    """Where a moment lies across the drawing."""
    return round(left + (WIDTH - RIGHT - left) * (time_s - edges_s[0]) / (edges_s[-1] - edges_s[0]), 1)


def tick_step(span: float, most: int) -> float:
    """The smallest 1, 2 or 5 times a power of ten that divides a span into at most so many parts.

    >>> tick_step(47.0, 5)
    10.0
    """
    power = 10.0 ** floor(log10(span / most))
    return float(next(power * one for one in (1, 2, 5, 10) if power * one * most >= span * (1 - 1e-9)))


def _time_axis(edges_s: Sequence[float], height: int, left: int = LEFT, begins_at_s: float | None = None) -> str:
    step = next((one for one in TIME_STEPS_S if edges_s[-1] / one <= 12), ceil(edges_s[-1] / 12))
    base = height - BOTTOM
    drawn = [f'<path class="axis" d="M{left} {base}H{WIDTH - RIGHT}"/>']
    # Times of day are marked where they are round; a time from the start begins with one.
    begin = 0.0 if begins_at_s is None else -begins_at_s % step
    for number in range(floor((edges_s[-1] - begin) / step) + 1):
        time_s = begin + number * step
        x = x_at(time_s, edges_s, left)
        label = clock(time_s) if begins_at_s is None else time_of_day(begins_at_s + time_s, seconds=step < 60)
        drawn.append(f'<path class="axis" d="M{x} {base}v4"/><text class="x" x="{x}" y="{base + 18}">{label}</text>')
    middle = (left + WIDTH - RIGHT) / 2
    title = "time from the start, min:s" if begins_at_s is None else "time, UTC"
    return "".join([*drawn, f'<text class="x" x="{middle}" y="{base + 36}">{title}</text>'])


TIME_STEPS_S = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)


def _marks(marks: Sequence[tuple[float, str]], edges_s: Sequence[float], height: int, left: int = LEFT) -> str:
    drawn = []
    for time_s, name in marks:
        x = x_at(time_s, edges_s, left)
        # Above the plot, where no line runs; to the left of the moment where there is no room to its right.
        anchor, beside = ("end", x - 5) if x > 0.7 * WIDTH else ("start", x + 5)
        drawn.append(
            f'<path class="mark" d="M{x} 3V{height - BOTTOM}"/>'
            f'<text x="{beside}" y="{TOP - 4}" text-anchor="{anchor}">{escape(name)}</text>'
        )
    return "".join(drawn)


def _axis_title(unit: str, height: int) -> str:
    middle = (TOP + height - BOTTOM) / 2
    return f'<text class="unit" transform="translate(13 {middle}) rotate(-90)">{escape(unit)}</text>'


def _figure(key: str, factor: float, title: str, summary: str, height: int, drawn: str, left: int = LEFT) -> str:
    return (
        f'<figure><figcaption id="{key}-title">{escape(title)}</figcaption>'
        f'<svg class="panel" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{key}-title {key}-desc"'
        f' data-key="{key}" data-factor="{factor:g}" data-left="{left}" data-right="{WIDTH - RIGHT}">'
        f'<desc id="{key}-desc">{escape(summary)}</desc>{drawn}'
        f'<path class="cursor" d="M0 {TOP}V{height - BOTTOM}" visibility="hidden"/></svg></figure>'
    )


def _one_two_five(low: float, high: float) -> list[float]:
    return [digit * 10.0**power for power in range(floor(log10(low)), ceil(log10(high)) + 1) for digit in (1, 2, 5)]
