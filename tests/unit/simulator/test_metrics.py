"""The metrics page: vLLM 0.33's families, readable by Prometheus' own parser, and the same numbers in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from outrider.core import engine_metrics as names
from outrider.engine.command_line import HISTOGRAM_BUCKETS
from outrider.simulator.admin import AdminPort
from outrider.simulator.engine import SimulatedEngine
from outrider.simulator.metrics import Exposition
from outrider.simulator.request import RequestRecord
from outrider.simulator.store import STORED
from tests.unit.simulator.builders import calls, profile, request, settings, submit_all

STARTED_S = 1.7e9

# Families of a real 0.32 server's page, without those of its HTTP framework, its Python and its flop estimates.
COUNTERS = (
    *("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens"),
    *("spec_decode_num_accepted_tokens_per_pos", "prefix_cache_queries", "prefix_cache_hits"),
    *("external_prefix_cache_queries", "external_prefix_cache_hits", "mm_cache_queries", "mm_cache_hits"),
    *("num_preemptions", "prompt_tokens", "prompt_tokens_by_source", "prompt_tokens_cached"),
    *("prompt_tokens_cached_by_source", "generation_tokens", "request_success", "admission_rejections"),
)
GAUGES = (
    *("num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason", "engine_sleep_state"),
    *("kv_cache_usage_perc", "cache_config_info"),
)
HISTOGRAMS = (
    *("request_prompt_tokens", "request_generation_tokens", "iteration_tokens_total", "request_params_n"),
    *("request_max_num_generation_tokens", "request_params_max_tokens", "time_to_first_token_seconds"),
    *("inter_token_latency_seconds", "request_time_per_output_token_seconds", "e2e_request_latency_seconds"),
    *("request_queue_time_seconds", "request_inference_time_seconds", "request_prefill_time_seconds"),
    *("request_decode_time_seconds", "request_num_preemptions", "request_prefill_kv_computed_tokens"),
)


def busy(records: list[RequestRecord] | None = None, **changes: Any) -> SimulatedEngine:
    target = SimulatedEngine(settings("1-4:5 5-256:2", ceiling=5, **changes), profile(), seed=2)
    done = submit_all(target, [request(n, at=n * 0.1, prompt=300, output=150) for n in range(60)])
    target.advance(6.0)
    if records is not None:
        records += done
    return target


def page(target: SimulatedEngine, admin: AdminPort | None = None) -> str:
    return Exposition(target, admin, STARTED_S).text(target.now_s).decode()


def parsed(text: str) -> dict[str, str]:
    return {family.name: family.type for family in text_string_to_metric_families(text)}


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found: list[Sample] = [one for family in text_string_to_metric_families(text) for one in family.samples]
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for one in found}


def value(text: str, name: str, **labels: str) -> float:
    return samples(text)[name, tuple(sorted(labels.items()))]


def bounds_of(target: SimulatedEngine) -> dict[str, list[str]]:
    """The ``le`` of every histogram, by name without ``vllm:``."""
    found: dict[str, list[str]] = {}
    for name, labels in samples(page(target)):
        if name.endswith("_bucket"):
            found.setdefault(name.removeprefix("vllm:").removesuffix("_bucket"), []).append(dict(labels)["le"])
    return found


def test_the_page_has_every_family_of_a_real_server_and_of_the_plugin() -> None:
    target = busy()
    text = page(target, AdminPort(target))
    families = parsed(text)
    assert {f"vllm:{name}": families.get(f"vllm:{name}") for name in COUNTERS} == {
        f"vllm:{name}": "counter" for name in COUNTERS
    }
    assert {f"vllm:{name}": families.get(f"vllm:{name}") for name in GAUGES} == {
        f"vllm:{name}": "gauge" for name in GAUGES
    }
    assert {f"vllm:{name}": families.get(f"vllm:{name}") for name in HISTOGRAMS} == {
        f"vllm:{name}": "histogram" for name in HISTOGRAMS
    }
    present = {name for name, _ in samples(text)}
    ours = {alias for family in vars(names).values() if isinstance(family, tuple) for alias in family}
    assert {name for name in ours if name.startswith("outrider_")} <= present


def test_every_counter_and_histogram_has_its_creation_time() -> None:
    text = page(busy())
    for name in (*COUNTERS, *HISTOGRAMS):
        assert f"# TYPE vllm:{name}_created gauge" in text
    assert value(text, "vllm:generation_tokens_created", engine="0", model_name="chat") == STARTED_S
    assert value(text, "process_start_time_seconds") == STARTED_S


def test_labels_come_sorted_and_values_are_floats() -> None:
    text = page(busy())
    assert 'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="chat",position="4"} ' in text
    assert 'vllm:request_queue_time_seconds_bucket{engine="0",le="0.3",model_name="chat"} ' in text
    assert 'vllm:num_requests_waiting{engine="0",model_name="chat"} 0.0\n' in text
    assert 'vllm:admission_rejections_total{model_name="chat",reason="max_num_queued_reqs"} 0.0\n' in text


def test_the_numbers_are_the_engines() -> None:
    target = busy()
    text, own = page(target, AdminPort(target)), {"engine": "0", "model_name": "chat"}
    counters = target.counters
    assert value(text, "vllm:generation_tokens_total", **own) == counters.generation_tokens
    assert value(text, "vllm:num_requests_running", **own) == target.num_running
    assert value(text, "vllm:spec_decode_num_accepted_tokens_total", **own) == counters.num_accepted_tokens
    positions = [
        value(text, "vllm:spec_decode_num_accepted_tokens_per_pos_total", position=str(n), **own) for n in range(5)
    ]
    assert positions == counters.accepted_per_pos.tolist()
    drafted = [value(text, names.DRAFT_TOKENS_PER_POS[0], engine="0", position=str(n)) for n in range(5)]
    assert sum(drafted) == value(text, "vllm:spec_decode_num_draft_tokens_total", **own)
    steps = [number for (name, _), number in samples(text).items() if name == names.STEPS[0]]
    # All but the first step after each change of K, which belongs to none.
    changes = sum(counters.steps_by_k.values()) - sum(steps)
    assert 0 < changes <= len(counters.steps_by_k)
    assert sum(counters.steps_by_k.values()) == value(text, "vllm:iteration_tokens_total_count", **own)
    finished = value(text, "vllm:request_success_total", finished_reason="length", **own)
    assert value(text, "vllm:e2e_request_latency_seconds_count", **own) == finished > 0


def test_without_a_drafter_there_are_no_speculation_families() -> None:
    assert "spec_decode" not in page(busy(speculation=None))


def test_a_plain_engine_image_exports_nothing_of_the_plugin() -> None:
    assert "outrider_engine" not in page(busy())


def test_the_dilation_is_on_the_page_so_that_nobody_takes_it_for_a_real_card() -> None:
    assert "\noutrider_simulator_dilation 1.0\n" in page(busy())
    slow = SimulatedEngine(settings(), profile().slowed(5))
    assert "\noutrider_simulator_dilation 5.0\n" in page(slow)


@pytest.mark.parametrize(
    ("family", "metrics"),
    [
        pytest.param("time_to_first_token", ["time_to_first_token_seconds"], id="time to first token"),
        pytest.param(
            "inter_token_latency",
            ["inter_token_latency_seconds", "request_time_per_output_token_seconds"],
            id="time between tokens, of steps and of requests",
        ),
        pytest.param(
            "request_latency",
            [
                *("e2e_request_latency_seconds", "request_decode_time_seconds", "request_inference_time_seconds"),
                *("request_prefill_time_seconds", "request_queue_time_seconds"),
            ],
            id="every phase of a request",
        ),
        pytest.param("kv_cache_residency", [], id="a family that is not exported"),
    ],
)
def test_a_bucket_family_sets_the_bounds_of_its_metrics_and_of_no_others(family: str, metrics: list[str]) -> None:
    before, after = bounds_of(busy()), bounds_of(busy(histogram_buckets={family: (0.004, 0.008)}))
    assert {name for name, bounds in after.items() if bounds == ["0.004", "0.008", "+Inf"]} == set(metrics)
    assert {name for name, bounds in after.items() if bounds != before[name]} == set(metrics)


def test_a_metric_is_no_bucket_family() -> None:
    with pytest.raises(ValueError, match="unknown bucket family 'request_queue_time_seconds'"):
        busy(histogram_buckets={"request_queue_time_seconds": (0.004,)})


def test_lengths_have_bounds_up_to_the_models() -> None:
    bounds = bounds_of(busy(max_model_len=3000))["request_prompt_tokens"]
    assert bounds == [*(f"{bound}.0" for bound in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)), "+Inf"]


def test_the_grid_that_the_operator_renders_reaches_the_page() -> None:
    """The demo judges objectives by these buckets: the lowest two bounds of vLLM's own are 10 and 25 ms a token."""
    grids = {family: tuple(grid) for family, grid in HISTOGRAM_BUCKETS.items()}
    records: list[RequestRecord] = []
    target = busy(records, histogram_buckets=grids)
    shown = samples(page(target))
    counted = [
        shown[f"{names.TPOT[0]}_bucket", (("engine", "0"), ("le", str(bound)), ("model_name", "chat"))]
        for bound in grids["inter_token_latency"]
    ]
    assert counted == [
        sum((record.tpot_s or 0.0) <= bound for record in records) for bound in grids["inter_token_latency"]
    ]
    assert len({count for count in counted if 0 < count < len(records)}) > 1
    assert bounds_of(target)["request_queue_time_seconds"][0] == str(grids["request_latency"][0])


def test_cache_size_is_in_the_labels_of_the_cache_info() -> None:
    labels: Mapping[str, str] = next(
        dict(labels) for name, labels in samples(page(busy())) if name == "vllm:cache_config_info"
    )
    assert (labels["num_gpu_blocks"], labels["block_size"]) == ("26000", "16")


def test_model_names_are_escaped() -> None:
    text = page(busy(served_model_names=('org/a "b" \\c',)))
    assert value(text, "vllm:num_requests_running", engine="0", model_name='org/a "b" \\c') > 0


def test_values_in_virtual_time_are_those_of_the_page() -> None:
    target = busy()
    exposition = Exposition(target, AdminPort(target), STARTED_S)
    on_page = samples(exposition.text(6.0).decode())
    direct = {(name, tuple(sorted(labels.items()))): number for name, labels, number in exposition.samples(6.0)}
    changing = names.LONGEST_STEP_SECONDS[0]  # starts anew with each look
    assert {key for key in on_page if "_created" not in key[0]} == set(direct)
    assert all(on_page[key] == pytest.approx(number) for key, number in direct.items() if key[0] != changing)
    kept = {name for name, _, _ in exposition.samples(6.0, STORED)}
    assert kept < {name for name, _ in direct}


def test_a_scrape_costs_the_same_however_much_an_engine_has_served() -> None:
    target = busy()
    exposition = Exposition(target, AdminPort(target), STARTED_S)
    costs = []
    for until_s in (60.0, 120.0, 180.0):
        submit_all(target, [request(n, at=target.now_s + n * 0.01, prompt=300, output=150) for n in range(600)])
        target.advance(until_s)
        costs.append(calls(lambda: exposition.text(target.now_s)))
    assert costs[2] < 1.1 * costs[0]
