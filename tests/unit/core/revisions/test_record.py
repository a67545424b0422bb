"""The evidence of a comparison as it grows, and as whoever lost it reads it again."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from outrider.core.revisions.record import AT_ONCE, MOST, WARM_UP, Objectives, Record, begun
from outrider.core.series import Series

WINDOW_S, SCRAPE_S = 15.0, 5.0
CANDIDATE = {"serving_outrider_dev_track": "candidate", "serving_outrider_dev_revision": "r2"}
STABLE = {"serving_outrider_dev_track": "stable", "serving_outrider_dev_revision": "r1"}


@dataclass
class Pod:
    """An engine of 20 requests that drafts 3 tokens, of which half of the first are accepted; with the plugin's steps
    of 10 ms. Its counters move in ``(from_s, until_s]``."""

    uid: str
    labels: dict[str, str] = field(default_factory=lambda: STABLE)
    from_s: float = 0.0
    until_s: float = 1e9
    start_s: float = 1.0
    error_share: float = 0.0
    step_s: float = 0.01

    def series(self, since_s: float, until_s: float) -> list[Series]:
        first = int(-(-max(since_s, self.from_s) // SCRAPE_S))
        times = [SCRAPE_S * at for at in range(first, int(min(until_s, self.until_s) // SCRAPE_S) + 1)]

        def counter(name: str, a_second: float, **more: str) -> Series:
            samples = tuple((time_s, a_second * (time_s - self.from_s)) for time_s in times)
            return Series(name, base | more, samples)

        def gauge(name: str, value: float) -> Series:
            return Series(name, base, tuple((time_s, value) for time_s in times))

        base = {"pod": self.uid, "pod_uid": self.uid, "engine": "0", **self.labels}
        cell = {"batch": "32", "speculative_tokens": "3", "kind": "decode"}
        steps = 1.0 / self.step_s
        found = [
            gauge("process_start_time_seconds", self.start_s),
            gauge("vllm:num_requests_running", 20.0),
            counter("vllm:generation_tokens_total", 20.0 * 1.5 * steps),
            counter("vllm:spec_decode_num_accepted_tokens_per_pos_total", 10.0 * steps, position="0"),
            counter("outrider_engine_draft_tokens_per_pos_total", 20.0 * steps, position="0"),
            counter("outrider_engine_steps_total", steps, **cell),
            counter("outrider_engine_step_seconds_total", 1.0, **cell),
            counter("outrider_engine_step_requests_total", 20.0 * steps, **cell),
            counter("vllm:request_success_total", 10.0 * (1.0 - self.error_share), finished_reason="stop"),
            counter("vllm:request_success_total", 10.0 * self.error_share, finished_reason="error"),
            counter("vllm:request_generation_tokens_sum", 3000.0),
        ]
        return [one for one in found if one.samples]


def read(record: Record, pods: list[Pod], until_s: float) -> Record:
    """Pass by pass up to a time."""
    while len(edges := record.next_edges(until_s)) > 1:
        series = [one for pod in pods for one in pod.series(edges[0] - 2 * SCRAPE_S, edges[-1])]
        record = record.read(series, edges, Objectives(0.012, 0.8))
    return record


def pods() -> list[Pod]:
    return [Pod("a"), Pod("b"), Pod("c", CANDIDATE, from_s=300.0, start_s=250.0)]


class TestWindows:
    def test_they_end_at_the_same_moments_for_all(self) -> None:
        record = read(begun("r2", 302.0, WINDOW_S), pods(), 460.0)
        ends = {one.name: [window.until_s for window in one.windows] for one in record.heard.values()}
        assert set(ends) == {"a@1", "b@1", "c@250"}
        assert ends["a@1"] == ends["c@250"] == [315.0 + WINDOW_S * at for at in range(WARM_UP + 1, 10)]
        assert record.until_s == 450.0

    def test_each_has_what_the_engine_did(self) -> None:
        record = read(begun("r2", 302.0, WINDOW_S), [Pod("a", step_s=0.02)], 460.0)
        window = record.heard["a@1"].windows[0]
        assert window.batch == pytest.approx(20.0)
        assert window.length == pytest.approx(1.5)
        assert window.rate_tps == pytest.approx(1.5 / 0.02)

    def test_nothing_is_read_before_its_samples_are_complete(self) -> None:
        assert begun("r2", 302.0, WINDOW_S).next_edges(329.9) == (315.0,)
        assert begun("r2", 302.0, WINDOW_S).next_edges(330.0) == (315.0, 330.0)

    def test_so_many_are_read_at_once(self) -> None:
        assert len(begun("r2", 302.0, WINDOW_S).next_edges(1e6)) == AT_ONCE + 1

    def test_one_without_samples_is_left_out_and_not_zero(self) -> None:
        away = Pod("a", until_s=400.0)
        record = read(begun("r2", 302.0, WINDOW_S), [away, Pod("b")], 600.0)
        assert record.heard["a@1"].windows[-1].until_s < 450.0
        assert record.heard["b@1"].windows[-1].until_s == 600.0

    def test_an_engine_that_does_nothing_tells_no_rate(self) -> None:
        idle = [
            Series(one.name, one.labels, tuple((time_s, 7.0) for time_s, _ in one.samples))
            for one in Pod("a").series(300.0, 360.0)
        ]
        record = begun("r2", 302.0, WINDOW_S).read(idle, (315.0, 330.0, 345.0), Objectives())
        assert record.heard["a@7"].windows == ()


class TestPasses:
    def test_whoever_lost_it_reads_the_same_again(self) -> None:
        step_by_step = begun("r2", 302.0, WINDOW_S)
        for until_s in range(310, 2000, 15):
            step_by_step = read(step_by_step, pods(), float(until_s))
        at_once = read(begun("r2", 302.0, WINDOW_S), pods(), step_by_step.until_s)
        assert at_once.until_s == step_by_step.until_s
        for name, one in at_once.heard.items():
            other = step_by_step.heard[name]
            assert one.windows == other.windows
            assert one.busy == other.busy
            assert one.answers.ended == pytest.approx(other.answers.ended)

    def test_how_requests_ended_is_counted_once(self) -> None:
        record = read(begun("r2", 302.0, WINDOW_S), [Pod("c", CANDIDATE, error_share=0.1)], 915.0)
        (one,) = record.heard.values()
        assert one.answers.ended == pytest.approx(10.0 * 600.0)
        assert one.answers.errors == pytest.approx(600.0)
        assert one.answers.tokens == pytest.approx(3000.0 * 600.0)

    def test_a_candidate_before_this_one_is_not_heard(self) -> None:
        old = Pod("old", CANDIDATE | {"serving_outrider_dev_revision": "r0"})
        record = read(begun("r2", 302.0, WINDOW_S), [*pods(), old], 460.0)
        assert "old@1" not in record.heard


class TestEvidence:
    def test_boots_come_by_track_and_those_without_a_pod_have_ended(self) -> None:
        record = read(begun("r2", 302.0, WINDOW_S), pods(), 460.0)
        found = record.evidence({"b", "c"}, crashes=1)
        assert [(boot.name, boot.ended) for boot in found.stable] == [("a@1", True), ("b@1", False)]
        assert [(boot.name, boot.ended) for boot in found.candidate] == [("c@250", False)]
        assert (found.since_s, found.crashes) == (302.0, 1)

    def test_a_process_that_another_followed_in_its_pod_has_ended(self) -> None:
        again = Pod("c", CANDIDATE, from_s=500.0, start_s=480.0)
        gone = Pod("c", CANDIDATE, from_s=300.0, until_s=470.0, start_s=250.0)
        early = read(begun("r2", 302.0, WINDOW_S), [gone], 480.0)
        assert [boot.ended for boot in early.evidence({"c"}, 0).candidate] == [False]
        late = read(early, [again], 700.0)  # its samples are no longer among those that are asked for
        assert [(boot.name, boot.ended) for boot in late.evidence({"c"}, 0).candidate] == [
            ("c@250", True),
            ("c@480", False),
        ]

    def test_answers_and_acceptance_are_told_with_a_boot(self) -> None:
        record = read(begun("r2", 302.0, WINDOW_S), [Pod("a")], 615.0)
        (boot,) = record.evidence({"a"}, 0).stable
        assert sum(one.answers.ended for one in boot.known) == pytest.approx(3000.0)
        drafted, accepted = (
            sum(getattr(one.acceptance, side)[0] for one in boot.known if one.acceptance.drafted)
            for side in ("drafted", "accepted")
        )
        assert accepted / drafted == pytest.approx(0.5)

    def test_what_fails_is_told_although_no_token_comes(self) -> None:
        broken = [
            one
            for one in Pod("c", CANDIDATE, error_share=1.0).series(300.0, 400.0)
            if "step" not in one.name and "spec_decode" not in one.name
        ]
        record = begun("r2", 302.0, WINDOW_S).read(broken, (315.0, 330.0), Objectives())
        (boot,) = record.evidence({"c"}, 0).candidate
        assert [one.answers.errors for one in boot.known] == [pytest.approx(150.0)]


def test_processes_of_a_track_are_bounded_and_those_that_are_gone_go_first() -> None:
    record = read(begun("r2", 302.0, WINDOW_S), [Pod(f"old-{at:02}") for at in range(MOST)], 600.0)
    record = read(record, [Pod(f"new-{at:02}", from_s=600.0) for at in range(3)], 900.0)
    assert len(record.heard) == MOST
    assert {f"new-{at:02}@1" for at in range(3)} <= set(record.heard)
