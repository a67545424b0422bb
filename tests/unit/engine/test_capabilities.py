"""The capability table."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from outrider.engine import capabilities as known
from outrider.engine.capabilities import Feature
from outrider.engine.capabilities.versions import absent, history, since, there
from tests.unit.engine.builders import config

RUNS = Path(__file__).parents[3] / "docs/benchmarks/runtime"
SHOWN = {"eagle": ("results-h100.jsonl", "nested"), "draft_model": ("results-h100-2.jsonl", "draft_model")}
"""Where the run of random changes is that shows a method: file and engine."""


@pytest.mark.parametrize(
    ("version", "found"),
    [
        pytest.param("0.33.0", True, id="the version that is known best"),
        pytest.param("0.33.4", True, id="its later patches"),
        pytest.param("0.33.1rc2", True, id="a candidate of a patch"),
        pytest.param("0.32.9", False, id="before"),
        pytest.param("0.34.0", False, id="after"),
        pytest.param(None, False, id="not known"),
    ],
)
def test_rows_are_found_by_range(version: str | None, found: bool) -> None:
    assert (known.capabilities(version) is not None) == found


def test_text_that_is_no_version_is_an_error() -> None:
    with pytest.raises(ValueError, match="latest"):
        known.parse_version("latest")


def test_ranges_do_not_overlap() -> None:
    assert all(before.before <= after.first for before, after in pairwise(known.TABLE))


def test_every_claim_carries_its_evidence() -> None:
    for row in known.TABLE:
        for method in row.methods.values():
            assert len(method.live.evidence) > 40


def test_live_changes_are_proven_where_a_run_shows_them_and_nowhere_else() -> None:
    row = known.capabilities(known.KNOWN_BEST)
    assert row is not None
    proven = {name for name, method in row.methods.items() if method.live.possible and method.live.proven}
    assert proven == set(SHOWN)


@pytest.mark.parametrize(("file", "engine"), SHOWN.values(), ids=SHOWN)
def test_a_run_that_shows_a_method_lost_no_request_and_saw_no_stall(file: str, engine: str) -> None:
    rows = [json.loads(line) for line in (RUNS / file).read_text().splitlines()]
    (whole,) = [row for row in rows if row["kind"] == "random" and row["engine"] == engine]
    assert whole["finished"] == whole["sent"] > 1000
    assert whole["changes"] > 300
    assert whole["refused"] == 0
    parts = [row for row in rows if row["kind"] == "random_part" and row["engine"] == engine]
    assert parts
    assert all(part["stalls"]["count"] == 0 for part in parts)


@pytest.mark.parametrize(
    ("version", "since", "expected"),
    [
        ("0.17.9", known.SHUTDOWN_TIMEOUT_SINCE, False),
        ("0.18.0", known.SHUTDOWN_TIMEOUT_SINCE, True),
        ("0.23.0", known.TABLE_SINCE, False),
        (None, known.TABLE_SINCE, True),
    ],
)
def test_what_came_with_which_version(version: str | None, since: known.Version, expected: bool) -> None:
    assert known.has(version, since) == expected


@pytest.mark.parametrize(
    ("version", "method", "expected"),
    [
        ("0.6.3", "draft_model", True),
        ("0.9.2", "draft_model", True),
        ("0.11.0", "draft_model", False),
        ("0.12.0", "draft_model", False),
        ("0.13.0", "draft_model", False),
        ("0.15.0", "draft_model", None),
        ("0.20.2", "draft_model", True),
        ("0.32.0", "medusa", True),
        ("0.33.0", "medusa", False),
        ("0.33.0", "mlp_speculator", False),
        ("0.9.2", "mtp", False),
        ("0.11.0", "mtp", True),
        ("0.11.0", "suffix", False),
        ("0.13.1", "suffix", True),
        ("0.18.1", "dflash", False),
        ("0.20.2", "dflash", True),
        ("0.24.0", "dspark", False),
        ("0.29.0", "dspark", True),
        ("0.33.0", "not_a_method", None),
        (None, "eagle3", None),
        ("0.34.0", "eagle3", None),
    ],
)
def test_c06_which_version_has_which_method(version: str | None, method: str, expected: bool | None) -> None:
    assert known.method_there(version, method) is expected


@pytest.mark.parametrize(
    ("version", "feature", "expected"),
    [
        ("0.17.1", Feature.SHUTDOWN_TIMEOUT, False),
        ("0.18.0", Feature.SHUTDOWN_TIMEOUT, True),
        ("0.23.0", Feature.TABLE, False),
        ("0.24.0", Feature.TABLE, True),
        ("0.30.0", Feature.HISTOGRAM_BUCKETS, False),
        ("0.30.1", Feature.HISTOGRAM_BUCKETS, True),
        ("0.24.0", Feature.QUEUE_LIMITS, False),
        ("0.27.0", Feature.QUEUE_LIMITS, None),
        ("0.29.0", Feature.QUEUE_LIMITS, True),
        ("0.29.4", Feature.SPECULATION_WITH_PIPELINE, False),
        ("0.30.0", Feature.SPECULATION_WITH_PIPELINE, True),
        ("0.33.0", Feature.TABLE_WITH_DATA_PARALLEL, False),
        ("0.6.3", Feature.SPECULATION_WITH_LORA, False),
        ("0.9.2", Feature.SPECULATION_WITH_LORA, None),
        ("0.11.0", Feature.SPECULATION_WITH_LORA, True),
        (None, Feature.TABLE, None),
    ],
)
def test_which_version_has_which_feature(version: str | None, feature: Feature, expected: bool | None) -> None:
    assert known.supports(version, feature) is expected


def test_a_history_answers_only_where_somebody_looked() -> None:
    one = history(absent("0.6.3", "0.9.2"), there("0.11.0", "0.13.0"), since("0.20.0"), source="a/b#1")
    answers = {"0.5.0": False, "0.6.3": False, "0.10.0": None, "0.11.0": True, "0.13.7": True, "0.18.0": True}
    assert {version: one.at(version) for version in answers} == answers
    assert one.at("0.33.9") is True
    assert one.at("0.34.0") is None
    assert one.came() == "0.11.0"
    assert one.words() == "0.11.0 to 0.13.0, from 0.20.0"


def test_spans_ascend_do_not_overlap_and_end_with_what_was_looked_at() -> None:
    histories = [*known.FEATURES.values(), *known.METHODS.values(), *known.OLD_ENGINE.values()]
    for one in (*histories, *(entry for entry, _ in known.FLAGS_BY_VERSION.values())):
        assert all(before.last < after.first for before, after in pairwise(one.spans))
        assert one.spans[-1].last == known.parse_version(known.LOOKED_AT[-1])
        assert len(one.source) > 5


def test_every_feature_and_every_offered_method_has_a_history() -> None:
    assert set(known.FEATURES) == set(Feature)
    assert all(set(row.methods) <= set(known.METHODS) for row in known.TABLE)


def test_what_nobody_looked_at_is_rendered_and_what_is_missing_is_not() -> None:
    assert known.has("0.27.0", Feature.QUEUE_LIMITS)
    assert known.has(None, Feature.QUEUE_LIMITS)
    assert not known.has("0.24.0", Feature.QUEUE_LIMITS)


@pytest.mark.parametrize(
    ("version", "method", "old"),
    [
        ("0.9.2", "draft_model", True),
        ("0.9.2", "eagle3", False),
        ("0.8.5", "ngram", True),
        ("0.20.2", "draft_model", False),
        (None, "draft_model", False),
    ],
)
def test_which_methods_run_on_the_old_engine(version: str | None, method: str, old: bool) -> None:
    assert known.on_old_engine(version, method) is old


def test_flags_are_known_by_their_full_names() -> None:
    assert all(known.flag_name(flag) == flag for flag in known.FLAGS_BY_VERSION)
    assert known.flag_name("--swap_space=4") == "--swap-space"
    assert known.flag_name("-1") is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"data_parallel_size": 2}, "data ranks"),
        ({"version": "0.20.2"}, "vLLM 0.20.2 has no table"),
        ({"method": "suffix", "drafter": None}, "drops the table"),
        ({"method": "draft_model", "heterogeneous_vocab": True}, "older runner"),
        ({"method": "medusa", "version": "0.32.0"}, "nothing is known"),
    ],
)
def test_why_an_engine_keeps_one_k(changes: dict[str, object], words: str | None) -> None:
    because = known.no_table_because(config(**changes))
    assert known.table_possible(config(**changes)) == (words is None)
    assert words is None or (because is not None and words in because)


def test_the_older_runner_is_taken_for_vocabularies_that_differ_and_without_a_drafter_the_newer() -> None:
    assert known.runner(config(method="draft_model")) == "V2"
    assert known.runner(config(method="draft_model", heterogeneous_vocab=True)) == "V1"
    assert known.runner(config(method="draft_model", heterogeneous_vocab=True, mode="Off")) == "V2"
