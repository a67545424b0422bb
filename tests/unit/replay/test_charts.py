"""Plots as SVG: well-formed, inside their frame, honest about gaps."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.replay import charts
from outrider.replay.charts import Line, Panel, Strips
from tests.unit.replay.documents import EDGES_S

VALUES = st.lists(st.none() | st.floats(0.0, 1e6), min_size=4, max_size=4)


def panel(*courses: charts.Values, **more: object) -> Panel:
    lines = [Line(f"k{number}", course, f"k{number}") for number, course in enumerate(courses)]
    return Panel("tpot_p95_s", "Time <per> token", "ms", lines, EDGES_S, **more)  # type: ignore[arg-type]


def numbers(path: str) -> list[float]:
    return [float(one) for one in re.findall(r"-?\d+\.?\d*", path)]


@given(st.lists(VALUES, max_size=3), st.booleans(), st.booleans(), st.none() | st.floats(0.1, 1e5))
def test_whatever_the_values_the_drawing_is_well_formed_and_inside(
    courses: list[charts.Values], log: bool, steps: bool, bound: float | None
) -> None:
    drawn = panel(*courses, log=log, steps=steps, bound=None if bound is None else (bound, "objective"))
    root = ElementTree.fromstring(drawn.render())
    for path in root.iter("path"):
        if path.get("class", "").startswith("line"):
            found = numbers(path.get("d", ""))
            assert all(0.0 <= x <= charts.WIDTH for x in found[::2])
            assert all(0.0 <= y <= drawn.height for y in found[1::2])


def test_a_missing_value_breaks_the_line() -> None:
    broken, whole = panel([1.0, None, 2.0, 3.0]).render(), panel([1.0, 1.5, 2.0, 3.0]).render()
    lines = [re.search(r'data-policy="k0" d="([^"]*)"', text)[1] for text in (broken, whole)]  # type: ignore[index]
    assert [line.count("M") for line in lines] == [2, 1]


def test_a_larger_value_is_drawn_higher_and_the_objective_at_its_place() -> None:
    text = panel([0.01, 0.02, 0.03, 0.04], factor=1e3, bound=(30.0, "objective 30 ms")).render()
    path = numbers(re.search(r'data-policy="k0" d="([^"]*)"', text)[1])  # type: ignore[index]
    assert path[1::2] == sorted(path[1::2], reverse=True)
    bound = numbers(re.search(r'class="bound" d="([^"]*)"', text)[1])[1]  # type: ignore[index]
    assert bound == pytest.approx(path[5], abs=0.1)


def test_readers_who_cannot_see_it_hear_title_unit_and_range() -> None:
    root = ElementTree.fromstring(panel([1.0, 2.0, 3.0, 4.0]).render())
    svg = root.find("svg")
    assert svg is not None
    assert svg.get("role") == "img"
    named = {one.get("id"): "".join(one.itertext()) for one in root.iter() if one.get("id")}
    spoken = " ".join(named[one] for one in svg.get("aria-labelledby", "").split())
    assert "Time <per> token" in spoken
    assert "k0 from 1 to 4, mean 2.5" in spoken


def test_strips_are_darker_where_more_was_lost() -> None:
    text = Strips("behind_tps", "Behind", [Line("k5", [0.0, 0.25, 1.0, 0.0], "k5")], EDGES_S).render()
    assert re.findall(r'fill-opacity="([\d.]+)"', text) == ["0.25", "1.00"]


@given(st.floats(1e-3, 1e6), st.integers(2, 10))
def test_ticks_are_round_and_few(span: float, most: int) -> None:
    step = charts.tick_step(span, most)
    assert span / step <= most * (1 + 1e-6)
    assert f"{step:e}"[0] in "125"
