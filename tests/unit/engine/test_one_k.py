"""Engines that are started with a K of Outrider's choice."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from outrider.engine.command_line import engine_args, speculative_tokens_values
from outrider.engine.config import Drafter, EngineConfig, RejectionSampling
from outrider.engine.one_k import Choice, given, own, subject, told_of, values, with_one_k
from tests.unit.engine.builders import config

RANKS = config(data_parallel_size=2, gpus=2)


def speculation(engine: EngineConfig) -> dict[str, object]:
    """What the engine is told of it."""
    arguments = engine_args(engine)
    found: dict[str, object] = json.loads(arguments[arguments.index("--speculative-config") + 1])
    return found


@pytest.mark.parametrize("engine", [pytest.param(RANKS, id="data ranks"), pytest.param(config(), id="with a table")])
def test_the_k_is_the_only_one_and_all_else_stays(engine: EngineConfig) -> None:
    chosen = given(engine, Choice(subject(engine), 2))
    assert speculative_tokens_values(chosen) == (2,)
    assert speculation(chosen)["num_speculative_tokens"] == 2
    assert "num_speculative_tokens_per_batch_size" not in speculation(chosen)
    assert subject(replace(engine, max_num_seqs=64)) == subject(engine)


def test_zero_starts_without_the_drafter() -> None:
    chosen = given(RANKS, Choice(subject(RANKS), 0))
    assert speculative_tokens_values(chosen) == (0,)
    assert "--speculative-config" not in engine_args(chosen)


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(replace(RANKS, mode="Fixed"), id="a mode that keeps the resource's K"),
        pytest.param(replace(RANKS, mode="Off"), id="without speculation"),
        pytest.param(replace(RANKS, method="mtp"), id="another way to draft"),
        pytest.param(replace(RANKS, max_speculative_tokens=4), id="another ceiling"),
        pytest.param(replace(RANKS, min_speculative_tokens=3), id="a lower bound above it"),
    ],
)
def test_a_choice_for_something_else_is_left_aside(engine: EngineConfig) -> None:
    assert given(engine, Choice(subject(RANKS), 2)) == engine


def test_another_drafter_has_the_k_and_evidence_of_its_own() -> None:
    other = replace(RANKS, drafter=Drafter(model="org/other"))
    assert given(other, Choice(subject(RANKS), 2)) == with_one_k(other, 2)
    assert told_of(other) != told_of(RANKS)


def test_mode_observe_leaves_the_engines_what_they_have() -> None:
    watching = replace(RANKS, mode="Observe")
    assert given(watching, Choice(subject(RANKS), 2)) == with_one_k(watching, 2)


def test_the_values_are_those_within_bounds_that_are_admitted() -> None:
    assert values(RANKS) == (0, 1, 2, 3, 4, 5)
    assert values(replace(RANKS, min_speculative_tokens=2)) == (2, 3, 4, 5)
    fly = replace(RANKS, rejection_sampling=RejectionSampling(method="fly", fly_window_size=3))
    assert values(fly) == (0, 4, 5)


def test_its_own_k_is_the_ceiling_where_there_is_no_table() -> None:
    assert own(RANKS) == 5
    assert own(config()) == 3
