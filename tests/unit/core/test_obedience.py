"""Engines that say they run a schedule, beside what their metrics say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.core.obedience import MIN_STEPS, SETTLED_S, disobedient
from outrider.core.observation import EngineWindow, Observation, StepCell
from outrider.core.schedule import parse_text

GENERATION, SCHEDULE = 7, parse_text("1-8:5 9-256:2")
SINCE_S, UNTIL_S = 100.0, 140.0
LONG_AGO_S = SINCE_S - 10.0


def engine(pod: str, generation: int | None) -> EngineWindow:
    return EngineWindow(pod, "0", 8.0, 0.0, None, None, generation)


def cell(k: int, steps: float, mixed: bool = False) -> StepCell:
    return StepCell(8, k, mixed, steps, steps * 0.02, steps * 8.0)


def window(*engines: EngineWindow, cells: tuple[StepCell, ...] = ()) -> Observation:
    return Observation(SINCE_S, UNTIL_S, engines, cells=cells)


def told(at_s: float = LONG_AGO_S, generation: int = GENERATION, pods: str = "ab") -> dict[str, tuple[int, float]]:
    return dict.fromkeys(pods, (generation, at_s))


@pytest.mark.parametrize(
    ("held", "at_s", "acknowledged", "found"),
    [
        pytest.param(6, LONG_AGO_S, GENERATION, {"a"}, id="it holds the one before"),
        pytest.param(7, LONG_AGO_S, GENERATION, set(), id="it holds this one"),
        pytest.param(9, LONG_AGO_S, GENERATION, set(), id="somebody has told it a later one: the next answer says so"),
        pytest.param(None, LONG_AGO_S, GENERATION, set(), id="it does not tell"),
        pytest.param(6, SINCE_S + 1.0, GENERATION, set(), id="it agreed within the window"),
        pytest.param(6, LONG_AGO_S, 6, set(), id="it was told that one last"),
    ],
)
def test_the_generation_that_metrics_hold(held: int | None, at_s: float, acknowledged: int, found: set[str]) -> None:
    seen = window(engine("a", held), engine("b", GENERATION))
    assert set(disobedient(seen, told(at_s, acknowledged), GENERATION, SCHEDULE)) == found


def test_in_a_short_window_the_newest_sample_may_be_older_than_its_beginning() -> None:
    short = replace(window(engine("a", 6)), since_s=UNTIL_S - SETTLED_S / 2)
    assert disobedient(short, told(UNTIL_S - SETTLED_S + 1.0), GENERATION, SCHEDULE) == {}
    assert set(disobedient(short, told(UNTIL_S - SETTLED_S), GENERATION, SCHEDULE)) == {"a"}


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        pytest.param((cell(3, 100.0),), {"a", "b"}, id="another K in all steps"),
        pytest.param((cell(3, 100.0), cell(2, 1.0)), set(), id="one of ours among them: drafts may come out short"),
        pytest.param((cell(3, MIN_STEPS - 1.0),), set(), id="too few steps to tell"),
        pytest.param((cell(3, 100.0, mixed=True),), set(), id="steps that also ran prefill"),
        pytest.param((), set(), id="it does not tell"),
    ],
)
def test_the_k_of_its_steps(cells: tuple[StepCell, ...], found: set[str]) -> None:
    seen = window(engine("a", GENERATION), engine("b", GENERATION), cells=cells)
    assert set(disobedient(seen, told(), GENERATION, SCHEDULE)) == found


def test_steps_of_an_engine_that_has_not_agreed_are_no_fault_of_the_others() -> None:
    seen = window(engine("a", GENERATION), engine("b", 6), cells=(cell(3, 100.0),))
    assert disobedient(seen, told(pods="a"), GENERATION, SCHEDULE) == {}
