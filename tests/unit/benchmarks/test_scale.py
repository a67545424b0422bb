"""The scale benchmark: its emulated engines, its witnesses, its figures and its page, all without a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.scale import flame, objects, page, witness
from benchmarks.scale.engines import PER_PAGE, Engine, pod_name, service_name
from benchmarks.scale.engines import page as metrics_page
from benchmarks.scale.found import STATUS, Run, decisions
from benchmarks.scale.headline import DEFINITIONS, TARGETS, headline, met, quantile
from benchmarks.scale.station import address
from outrider.adapters import prometheus
from outrider.core.observation import Observation, observe
from outrider.core.schedule import constant
from outrider.core.series import Series

T0_S = 1_700_000_000.0
KEY = service_name(0)
POD = pod_name(KEY[1])


def scraped(engine: Engine, scrapes: int, *, moving: bool = False) -> list[Series]:
    """What Prometheus has after so many scrapes, 5 s apart."""
    samples: dict[tuple[str, frozenset[tuple[str, str]]], list[tuple[float, float]]] = {}
    for number in range(1, scrapes + 1):
        now_s = T0_S + 5.0 * number
        for family in text_string_to_metric_families(metrics_page([engine], now_s, moving=moving)):
            for one in family.samples:
                samples.setdefault((one.name, frozenset(one.labels.items())), []).append((now_s, one.value))
    return [Series(name, dict(labels), tuple(found)) for (name, labels), found in samples.items()]


def observed(series: list[Series], scrapes: int) -> Observation:
    found = observe(series, T0_S, T0_S + 5.0 * scrapes, pods={POD})
    assert isinstance(found, Observation), found
    return found


@pytest.fixture
def engine() -> Engine:
    return Engine(*KEY, T0_S, seed=0)


class TestEngines:
    def test_the_operators_reader_understands_a_page(self, engine: Engine) -> None:
        window = observed(scraped(engine, 8), 8)
        assert 6 < window.running < 28
        assert window.drafted_per_pos[0] >= window.accepted_per_pos[0] > window.accepted_per_pos[2] > 0
        assert {cell.num_speculative_tokens for cell in window.cells} == {3}
        assert window.tpot.quantile(0.5) == pytest.approx(0.005, abs=0.006)
        assert window.ttft.count == pytest.approx(window.generation_tokens / 200.0)
        assert window.cached_tokens / window.running == pytest.approx(600.0)

    def test_every_family_is_one_that_the_operator_asks_for(self, engine: Engine) -> None:
        asked = {name for group in prometheus.GROUPS for name in group}
        assert {one.name for one in scraped(engine, 2)} <= asked

    def test_series_have_the_labels_by_which_queries_select_them(self, engine: Engine) -> None:
        labels = [one.labels for one in scraped(engine, 2)]
        assert all(one["namespace"] == KEY[0] and one["pod"] == POD for one in labels)
        assert all(one[prometheus.SERVICE_LABEL] == KEY[1] for one in labels)
        assert all(one[prometheus.TRACK_LABEL] == "stable" for one in labels)

    def test_steps_add_up_to_the_time_that_passed(self, engine: Engine) -> None:
        window = observed(scraped(engine, 8), 8)
        assert sum(cell.step_time_s * cell.steps for cell in window.cells) == pytest.approx(35.0, rel=0.15)

    def test_a_delivered_schedule_is_run(self, engine: Engine) -> None:
        document = {"generation": 4, "schedule": constant(1, 256).as_lists(), "leaseSeconds": 3600}
        assert engine.keeper.put(document, T0_S).status == 200
        window = observed(scraped(engine, 8), 8)
        assert {cell.num_speculative_tokens for cell in window.cells} == {1}
        assert window.engines[0].schedule_generation == 4

    def test_two_engines_carry_different_loads(self) -> None:
        loads = {round(Engine(*service_name(number), T0_S, number).running, 3) for number in range(20)}
        assert len(loads) == 20

    def test_a_load_that_moves_moves_more_than_noise_does(self, engine: Engine) -> None:
        def spread(*, moving: bool) -> float:
            found = []
            for number in range(1, 25):
                engine.advance(engine.started_s + 5.0 * number, moving=moving)
                found.append(engine.running)
            return (max(found) - min(found)) / min(found)

        still = spread(moving=False)
        assert spread(moving=True) > 3 * still

    def test_a_pod_that_is_there_ahead_has_the_labels_of_its_deployment(self) -> None:
        made = objects.pod(objects.deployment(*KEY))
        assert made["metadata"]["labels"]["serving.outrider.dev/service"] == KEY[1]
        assert made["metadata"]["labels"]["serving.outrider.dev/revision"]

    def test_services_of_a_page_share_a_namespace(self) -> None:
        assert service_name(0)[0] == service_name(PER_PAGE - 1)[0] != service_name(PER_PAGE)[0]

    def test_every_pod_has_an_address_of_its_own_within_the_clusters(self) -> None:
        found = {address("127.17.0.0/16", number) for number in range(5000)}
        assert len(found) == 5000
        assert all(one.startswith("127.17.") for one in found)


def event(at: str, verb: str, resource: str, subresource: str = "", user: str = witness.ACCOUNT) -> str:
    target = {"resource": resource, "subresource": subresource} if subresource else {"resource": resource}
    return json.dumps(
        {
            "verb": verb, "user": {"username": user}, "objectRef": target,
            "requestReceivedTimestamp": f"2026-01-01T00:00:{at}.500000Z",
        }
    )  # fmt: skip


class TestWitness:
    SINCE_S = 1767225600.0

    def test_calls_are_counted_within_their_time_and_for_the_operator_alone(self) -> None:
        lines = [
            event("01", "patch", "speculativeinferenceservices", "status"),
            event("02", "get", "secrets"),
            event("03", "patch", "configmaps", user="system:serviceaccount:kube-system:other"),
            event("09", "patch", "configmaps"),
            '{"verb": "patch", "user": {"username": "system:serviceaccount:outrider-system:outrider"',
        ]
        found = witness.calls(lines, self.SINCE_S, self.SINCE_S + 5.0)
        assert found == {("patch", STATUS): 1, ("get", "secrets"): 1}
        assert witness.writes(found) == {STATUS: 1}

    def test_two_looks_at_a_histogram_tell_of_one_pass(self) -> None:
        assert witness.noted(5.0, (2.0, 3.0), (3.0, 4.5)) == [(5.0, 1.5)]

    def test_passes_between_two_looks_count_with_their_mean(self) -> None:
        assert witness.noted(5.0, (2.0, 3.0), (4.0, 4.0)) == [(5.0, 0.5), (5.0, 0.5)]

    def test_samples_are_added_up_over_labels(self) -> None:
        text = 'a_total{code="200",handler="/q"} 3\na_total{code="400",handler="/q"} 1\na_total{handler="/r"} 9\n'
        assert witness.sample(text, "a_total", handler="/q") == 4.0

    def test_decisions_are_told_from_other_lines_of_a_log(self) -> None:
        def line(second: int, message: str) -> Mapping[str, Any]:
            return {"time": f"2026-01-01T00:00:{second:02}.000Z", "message": message}

        log = [line(1, "Probe 1-256:3 → 1-9:2: probe"), line(2, "Target is odd"), line(30, "Target 32 → 48: room")]
        assert decisions(log, self.SINCE_S, self.SINCE_S + 10.0) == {"Probe": 1}


PROFILE = (
    "asyncio/events:Handle._run;reconcile/control:ControlPass.run;core/controller:control 30\n"
    "threading:Thread.run;adapters/prometheus:rows 10\n"
)
WHOLE = Run(
    1000, created_s=4.0, cold_start_s=60.0, restart_s=30.0, passes_s=[1.0, 3.0], passes_moving_s=[2.0],
    single_s=[0.01 * number for number in range(1, 101)], burst_s=[0.5], rest_minutes=1.5, rest_writes={STATUS: 3},
    rest_reads=15, moving_minutes=1.0, moving_writes={"configmaps": 4}, queries_per_minute=12.0, rest_cpu_cores=0.5,
    rest_rss_mib=300.0, peak_rss_mib=340.0, series=90_000, warnings={"MetricsStale": 2},
    shares=flame.shares(flame.read(PROFILE)), profile=PROFILE,
)  # fmt: skip
ABOUT = {
    "date": "2026-01-01", "wall_minutes": 12.0, "quick": False,
    "hardware": {"cores": 2, "processor": "a processor", "memory_gib": 24}, "versions": {"Python": "3.11"},
    "settings": {"period": "15", "scrape": "5", "many": "2,000"},
}  # fmt: skip


class TestFigures:
    def test_each_comes_from_its_phase(self) -> None:
        assert headline(WHOLE) == {
            "pass_seconds_p99": 3.0, "change_to_applied_seconds_p99": pytest.approx(0.99), "rss_mib": 340.0,
            "status_writes_per_minute_at_rest": 2.0, "prometheus_queries_per_minute": 12.0,
        }  # fmt: skip

    def test_all_have_definitions_and_every_target_is_of_one(self) -> None:
        assert list(headline(WHOLE)) == list(DEFINITIONS)
        assert all(figure in DEFINITIONS for of in TARGETS.values() for figure in of)

    def test_a_run_that_ended_early_lacks_figures_and_shows_no_zero(self) -> None:
        assert set(headline(Run(5000, ended_at="cold start: no end")).values()) == {None}

    @pytest.mark.parametrize(
        ("size", "figure", "value", "expected"),
        [
            pytest.param("1000", "pass_seconds_p99", 2.0, True, id="reached"),
            pytest.param("1000", "pass_seconds_p99", 2.1, False, id="missed"),
            pytest.param("1000", "pass_seconds_p99", None, None, id="not measured"),
            pytest.param("100", "pass_seconds_p99", 9.0, None, id="nothing asked for"),
        ],
    )
    def test_targets(self, size: str, figure: str, value: float | None, expected: bool | None) -> None:
        assert met(size, figure, value) is expected

    @pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)])
    def test_a_quantile_is_a_value_that_was_seen(self, share: float, expected: float) -> None:
        assert quantile([float(number) for number in range(100, 0, -1)], share) == expected

    def test_of_few_values_the_99th_percentile_is_the_greatest(self) -> None:
        assert quantile([1.0, 2.0, 3.0], 0.99) == 3.0


class TestPage:
    def test_the_document_has_a_headline_for_each_size(self) -> None:
        found = page.document([replace(WHOLE, services=100), WHOLE], ABOUT)
        assert set(found["headline"]) == {"100", "1000"}
        assert set(found["headline"]["100"]) == set(DEFINITIONS)
        json.dumps(found, allow_nan=False)

    def test_the_page_has_the_command_of_each_size(self) -> None:
        sizes = [
            replace(WHOLE, services=100, command="one"),
            replace(WHOLE, command="two"),
            replace(WHOLE, command="two"),
        ]
        assert "Written by `one && two`" in "\n".join(page.page(sizes, ABOUT))

    def test_sizes_of_an_earlier_run_are_kept_as_they_were(self, tmp_path: Path) -> None:
        page.write([replace(WHOLE, services=100), WHOLE], tmp_path, ABOUT)
        before = json.loads((tmp_path / "scale.json").read_text())
        runs = page.kept(tmp_path, [100])
        assert [run.services for run in runs] == [1000]
        assert page.document(runs, ABOUT)["sizes"]["1000"] == before["sizes"]["1000"]
        assert page.kept(tmp_path / "empty", [100]) == []

    def test_a_missed_target_is_called_so(self) -> None:
        text = "\n".join(page.page([WHOLE], ABOUT))
        assert "| `pass_seconds_p99` | 3 (at most 2: **missed**) |" in text
        assert "| `rss_mib` | 340 (at most 350: met) |" in text

    def test_a_size_that_ended_early_is_named(self) -> None:
        text = "\n".join(page.page([WHOLE, Run(5000, ended_at="pods: no end in 420 s")], ABOUT))
        assert "At 5,000 services the run ended early, at pods: no end in 420 s." in text
        assert "not measured" in text

    def test_writes_stand_by_resource_and_minute(self) -> None:
        text = "\n".join(page.page([WHOLE], ABOUT))
        assert f"| `{STATUS}` | 2 | 0 |" in text
        assert "| `configmaps` | 0 | 4 |" in text


class TestProfile:
    def test_every_sample_counts_for_one_part(self) -> None:
        shares = flame.shares(flame.read(PROFILE))
        assert shares["the control law"] == 0.75
        assert shares["making series of them"] == 0.25
        assert sum(shares.values()) == pytest.approx(1.0)

    def test_the_graph_begins_below_the_event_loop(self) -> None:
        text = flame.svg(flame.read(PROFILE))
        assert "reconcile/control:ControlPass.run 75.0 %" in text
        assert "Handle._run" not in text

    def test_names_are_escaped(self) -> None:
        assert "&lt;module&gt;" in flame.svg(flame.read("a/b:<module> 5\n"))
