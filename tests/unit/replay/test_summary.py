"""A run in numbers: what is good, and in which interval it is booked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.decision import Change
from outrider.replay import summary
from outrider.replay.experiment import Run
from outrider.simulator.request import Request, RequestRecord
from outrider.simulator.results import FleetResult, FleetSample


def record(
    arrival_s: float, *, ttft_s: float = 0.1, tpot_s: float = 0.01, tokens: int = 101, reason: str = "length"
) -> RequestRecord:
    first_s = arrival_s + ttft_s
    request = Request(f"r{arrival_s}", arrival_s, 100, tokens)
    return RequestRecord(request, arrival_s, first_s, first_s + tpot_s * (tokens - 1), tokens, reason, 0)


def sample(time_s: float, **changes: Any) -> FleetSample:
    known = {
        "replicas": 1,
        "ready": 1,
        "running": 4,
        "waiting": 0,
        "num_speculative_tokens": 3.0,
        "schedule": "a",
        "in_flight_target": None,
    }
    return FleetSample(time_s=time_s, **(known | changes))


def summarised(
    records: list[RequestRecord], timeline: list[FleetSample], decisions: tuple[Change, ...] = ()
) -> dict[str, Any]:
    result = FleetResult(100.0, records, len(records) + 1, 9000, 100.0, timeline)
    return summary.summarise(Run("k3", result, decisions), tpot_s=0.04, ttft_s=1.0)


@pytest.mark.parametrize(
    ("one", "good"),
    [
        pytest.param(record(0.0), True, id="within both"),
        pytest.param(record(0.0, tpot_s=0.041), False, id="slow tokens"),
        pytest.param(record(0.0, ttft_s=1.1), False, id="late first token"),
        pytest.param(record(0.0, reason="abort"), False, id="given up"),
        pytest.param(record(0.0, tokens=1), True, id="one token has no time per token"),
    ],
)
def test_what_is_good(one: RequestRecord, good: bool) -> None:
    assert summary.is_good(one, 0.04, 1.0) is good


def test_without_objectives_every_answer_is_good() -> None:
    assert summary.is_good(record(0.0, tpot_s=9.0, ttft_s=99.0), None, None)


def test_good_tokens_are_booked_where_their_request_arrived() -> None:
    # Intervals of 5 s; the second request is answered long after its interval.
    document = summarised([record(1.0), record(7.0, tokens=1001, tpot_s=0.03), record(8.0, tpot_s=0.05)], [])
    assert document["timeline"]["goodput_tps"][:3] == [pytest.approx(101 / 5, abs=0.1), pytest.approx(1001 / 5), 0.0]
    assert document["totals"]["goodput_tps"] == pytest.approx(11.02, abs=0.05)
    assert document["totals"]["tokens_tps"] == pytest.approx(12.03, abs=0.05)
    assert document["totals"]["requests_met"] == 0.5  # of four that arrived, one of them never answered
    assert document["timeline"]["tpot_p50_s"][1] == pytest.approx(0.05)


def test_samples_are_averaged_over_their_interval_and_k_needs_something_running() -> None:
    timeline = [sample(5.0), sample(10.0, running=0, num_speculative_tokens=5.0), sample(15.0, ready=2, replicas=2)]
    document = summarised([record(1.0)], timeline)
    assert document["timeline"]["speculative_tokens"][:3] == [3.0, None, 3.0]
    assert document["timeline"]["batch"][:3] == [4.0, 0.0, 2.0]


def test_changes_after_the_end_do_not_count() -> None:
    timeline = [sample(5.0), sample(10.0, schedule="b"), sample(95.0, schedule="a"), sample(105.0, schedule="c")]
    changes = tuple(Change(at_s, "Schedule", "a", "b", "why") for at_s in (10.0, 105.0))
    document = summarised([record(1.0)], timeline, changes)
    assert document["totals"]["schedule_changes"] == 2
    assert [one["at_s"] for one in document["decisions"]] == [10.0]


@given(st.floats(60.0, 1e6))
def test_intervals_cover_the_time_and_are_few(duration_s: float) -> None:
    edges = summary.edges_s(duration_s)
    assert edges[0] == 0.0
    assert edges[-1] == duration_s
    assert all(edges[1:] > edges[:-1])
    assert len(edges) - 1 <= max(summary.MOST_INTERVALS, duration_s / 3600 + 1)
