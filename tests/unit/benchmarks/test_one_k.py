"""The day of one K by roll-out: what its figures say, and that a page can be written of it and played on."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.one_k import page
from benchmarks.one_k.day import ROLLED, Played, arms, given, play
from benchmarks.one_k.headline import headline

FOUND = [
    Played("K 1", 0, [100.0, 50.0], 100.0),
    Played("K 5", 0, [60.0, 60.0], 100.0),
    Played(ROLLED, 0, [90.0, 60.0], 120.0, [(0.5, 1, "why")]),
]


def test_gains_are_in_tokens_for_the_time_that_engines_held_a_gpu() -> None:
    figures = {key: figure.value for key, figure in headline(FOUND).items()}
    assert figures["gain_over_given_k_percent"] == pytest.approx(100.0 * (1.25 / 1.2 - 1.0))
    assert figures["gain_over_best_in_hindsight_percent"] == pytest.approx(100.0 * (1.25 / 1.5 - 1.0))
    assert figures["hourly_best_in_hindsight_percent"] == pytest.approx(100.0 * (1.6 / 1.5 - 1.0))
    assert figures["restarts_a_day"] == 1.0
    assert figures["gpu_time_of_restarts_percent"] == pytest.approx(20.0)


def test_the_given_k_is_the_one_that_engines_of_the_resource_are_started_with() -> None:
    assert given() == "K 5"
    assert arms()[ROLLED] == 5


def test_arms_are_read_again_from_what_was_written(tmp_path: Path) -> None:
    about = {"command": "none", "date": "2026-01-01", "hours": 2.0, "processor_minutes": 0.0}
    page.write(FOUND, headline(FOUND), about, tmp_path)
    assert [one.goodput_tps for one in page.read(tmp_path).values()] == [one.goodput_tps for one in FOUND]
    assert "| K 1 | 2 | -16.7 % |" in (tmp_path / "one_k.md").read_text()


def test_an_engine_that_is_never_replaced_holds_one_gpu_all_the_time() -> None:
    played = play("K 5", 5, 0, rolls=False, day_s=10.0)
    assert played.gpu_s == 10.0
    assert sum(played.tokens) > 0.0
