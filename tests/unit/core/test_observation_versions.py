"""What is read from engines of different versions, and from a real one."""

from __future__ import annotations

import pytest

from outrider.core.observation import Observation, observe
from outrider.core.series import Missing, Series

from . import exposition
from .exposition import SCRAPES, grown_from_zero, scraped


def seen(samples: list[Series]) -> Observation:
    found = observe(samples, 0.0, 10.0)
    assert isinstance(found, Observation), found
    return found


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(exposition.V0_8_5, id="0.8.5"),
        pytest.param(exposition.V0_9_2, id="0.9.2, KV use under both names"),
        pytest.param(exposition.V0_11, id="0.11 with two processes"),
    ],
)
def test_versions_with_other_names_read_the_same(text: str) -> None:
    found = seen(grown_from_zero(text))
    (engine,) = found.engines
    assert (engine.running, engine.waiting, engine.kv_cache_usage) == (5.0, 0.0, 0.12)
    assert (found.generation_tokens, found.num_drafts, found.num_draft_tokens) == (4000.0, 1000.0, 2000.0)
    assert (found.drafted_per_pos, found.accepted_per_pos) == ((1000.0, 1000.0), (700.0, 400.0))
    assert found.acceptance_rate == pytest.approx(0.55)
    assert found.acceptance_length == pytest.approx(2.1)


def test_0_6_has_no_engine_label_no_drafts_and_no_positions() -> None:
    found = seen(grown_from_zero(exposition.V0_6_3))
    (engine,) = found.engines
    assert (engine.engine, engine.running, engine.kv_cache_usage) == ("", 5.0, 0.12)
    assert found.acceptance_rate == pytest.approx(8547 / 13311)
    assert (found.drafted_per_pos, found.acceptance_length) == ((), None)


def test_0_33_with_two_engines_does_not_add_waiting_requests_by_reason() -> None:
    found = seen(grown_from_zero(exposition.V0_33))
    assert [(one.engine, one.running, one.waiting) for one in found.engines] == [("0", 9.0, 4.0), ("1", 2.0, 0.0)]
    assert found.accepted_per_pos == (16000.0, 10000.0, 6000.0)
    assert found.drafted_per_pos == (20000.0,) * 3
    assert found.acceptance_length == pytest.approx(2.6)


def test_names_without_the_suffix_of_counters_are_not_read() -> None:
    """Documents of some versions show queries without it; ``_created`` begins with the same letters."""
    text = exposition.V0_8_5.replace("num_drafts_total", "num_drafts")
    assert seen(grown_from_zero(text)).num_drafts == 0.0


def test_statistics_that_are_switched_off_are_missing_data() -> None:
    missing = observe(scraped({5.0: "process_start_time_seconds 1.79e9", 10.0: "python_info 1.0"}), 0.0, 10.0)
    assert isinstance(missing, Missing)
    assert missing.reason in ("NoSeries", "TooFewSamples")


@pytest.mark.parametrize("method", ["draft-model", "ngram"])
def test_scrapes_of_a_real_engine(method: str) -> None:
    first, second = ((SCRAPES / f"vllm-0.32.0-{method}-{name}.prom").read_text() for name in ("first", "second"))
    found = seen(scraped({0.0: first, 10.0: second}))
    (engine,) = found.engines
    assert (engine.engine, engine.running, engine.waiting) == ("0", 8.0, 0.0)
    assert engine.kv_cache_tokens is not None
    assert engine.kv_cache_tokens % 128 == 0
    assert len(found.drafted_per_pos) == 4
    assert sum(found.drafted_per_pos) == found.num_draft_tokens
    assert sum(found.accepted_per_pos) == found.num_accepted_tokens
    assert found.drafted_per_pos[0] == found.num_drafts
    assert list(found.accepted_per_pos) == sorted(found.accepted_per_pos, reverse=True)
    assert found.num_drafts + found.num_accepted_tokens <= found.generation_tokens
    assert found.tpot.count > 100
    assert found.tpot.buckets[-1] == (float("inf"), found.tpot.count)
    assert found.tpot.mean is not None
    assert 0.001 < found.tpot.mean < 0.05


def test_the_same_scrape_without_our_plugin_tells_nothing_of_positions_when_k_varied() -> None:
    first, second = ((SCRAPES / f"vllm-0.32.0-ngram-{name}.prom").read_text() for name in ("first", "second"))
    series = [one for one in scraped({0.0: first, 10.0: second}) if not one.name.startswith("outrider")]
    assert seen(series).drafted_per_pos == ()
