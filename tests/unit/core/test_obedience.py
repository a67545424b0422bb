"""Engines that say they run a schedule, beside what their metrics say."""

from __future__ import annotations

import pytest

from outrider.core.obedience import MIN_STEPS, judge
from outrider.core.observation import EngineWindow, Observation
from outrider.core.schedule import parse_text
from outrider.core.series import MAX_SKEW_S

GENERATION, SCHEDULE = 7, parse_text("1-8:5 9-256:2")
SINCE_S, UNTIL_S = 100.0, 130.0
LONG_AGO_S = SINCE_S - MAX_SKEW_S
FOLLOWS = {"a": ""}


def engine(
    pod: str = "a", generation: int | None = GENERATION, steps: dict[int, float] | None = None, rank: str = "0"
) -> EngineWindow:
    return EngineWindow(pod, rank, 8.0, 0.0, None, None, generation, SINCE_S, steps or {})


def judged(*engines: EngineWindow, at_s: float = LONG_AGO_S, acknowledged: int = GENERATION) -> dict[str, str]:
    """What is found of engines that all acknowledged this generation at this time."""
    told = {one.pod: (acknowledged, at_s) for one in engines}
    return judge(Observation(SINCE_S, UNTIL_S, engines), told, GENERATION, SCHEDULE)


@pytest.mark.parametrize(
    ("held", "acknowledged", "found"),
    [
        pytest.param(6, GENERATION, {"a": "its metrics hold 6"}, id="it holds the one before"),
        pytest.param(7, GENERATION, {}, id="it holds this one, and has nothing to do"),
        pytest.param(9, GENERATION, {}, id="somebody has told it a later one: the next answer says so"),
        pytest.param(None, GENERATION, {}, id="it does not tell"),
        pytest.param(6, 6, {}, id="it was told that one last"),
    ],
)
def test_the_generation_that_metrics_hold(held: int | None, acknowledged: int, found: dict[str, str]) -> None:
    assert judged(engine(generation=held), acknowledged=acknowledged) == found


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        pytest.param({1: 50.0, 3: 50.0}, {"a": "no step has had a K of it, but 1, 3"}, id="another K in all steps"),
        pytest.param({3: 100.0, 2: 1.0}, FOLLOWS, id="one of ours among them: drafts may come out short"),
        pytest.param({3: MIN_STEPS - 1.0}, {}, id="too few steps to tell"),
        pytest.param({}, {}, id="it does not tell"),
    ],
)
def test_the_k_of_its_steps(steps: dict[int, float], found: dict[str, str]) -> None:
    assert judged(engine(steps=steps)) == found


@pytest.mark.parametrize("one", [engine(generation=6), engine(steps={3: 100.0}), engine(steps={2: 100.0})])
def test_samples_that_may_be_older_than_what_it_agreed_to_tell_nothing(one: EngineWindow) -> None:
    """The clock of the store may be ahead: what it dates half a minute after was perhaps taken before."""
    assert judged(one, at_s=LONG_AGO_S + 1.0) == {}
    assert judged(one, at_s=LONG_AGO_S) != {}


def test_no_engine_is_judged_by_what_others_do() -> None:
    rest, follows, ignores = engine("a"), engine("b", steps={2: 100.0}), engine("c", steps={3: 100.0})
    assert judged(rest, follows, ignores) == {"b": "", "c": "no step has had a K of it, but 3"}


def test_a_pod_follows_if_all_of_its_engines_do() -> None:
    follows, ignores = engine(steps={2: 100.0}, rank="0"), engine(steps={3: 100.0}, rank="1")
    assert judged(follows, ignores) == judged(ignores, follows) == judged(ignores)


def test_an_engine_that_has_not_agreed_is_not_judged() -> None:
    assert judge(Observation(SINCE_S, UNTIL_S, (engine(generation=6),)), {}, GENERATION, SCHEDULE) == {}
