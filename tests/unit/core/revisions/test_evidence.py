"""Windows of one boot, from what was observed of its engines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.core.observation import Histogram
from outrider.core.revisions.evidence import NOTHING, Boot, Window, acceptance, answers, total, window_of
from outrider.core.series import Missing

from ..builders import GONE, observation
from .builders import SANE, boot


def test_with_the_plugin_the_rate_is_acceptance_length_over_the_time_of_decode_only_steps() -> None:
    found = window_of(observation(batch=32.0, k=3, survival=(0.75, 0.5, 0.25), step_s=0.01))
    assert isinstance(found, Window)
    assert found.rate_tps == pytest.approx(2.5 / 0.01)
    assert (found.batch, found.length, found.until_s) == (pytest.approx(32.0), pytest.approx(2.5), 15.0)
    assert found.acceptance.drafted == (32_000.0, 32_000.0, 32_000.0)


def test_without_it_the_rate_is_that_of_the_requests_that_ended() -> None:
    plain = replace(observation(batch=32.0), cells=(), tpot=Histogram(100.0, 0.5))
    found = window_of(plain)
    assert isinstance(found, Window)
    assert found.rate_tps == pytest.approx(200.0)
    assert found.batch == pytest.approx(32.0)


def test_without_either_there_is_no_window() -> None:
    found = window_of(replace(observation(), cells=(), tpot=Histogram()))
    assert isinstance(found, Missing)
    assert found.reason == "NoTraffic"


def test_missing_metrics_stay_missing() -> None:
    assert window_of(GONE) is GONE


def test_answers_and_acceptance_add_up_over_windows_and_boots() -> None:
    one, other = boot("one", answers=SANE), boot("other", answers=SANE)
    assert answers([one, other]) == (SANE, SANE)
    assert total([SANE, SANE]) == SANE.plus(SANE) != SANE
    assert answers([Boot("none", (GONE,))]) == (NOTHING,)
    seen = window_of(observation(k=1, survival=(0.5,)))
    assert isinstance(seen, Window)
    assert acceptance([Boot("one", (seen, GONE, seen))]).accepted == (32_000.0,)
