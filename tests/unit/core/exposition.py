"""What engines of different versions export, as text, and the way from there to series."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from outrider.core.series import Series

SCRAPES = Path(__file__).parent / "scrapes"


def scraped(texts: dict[float, str], pod: str = "chat-a") -> list[Series]:
    """The series that a store has after these scrapes, by time."""
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]] = {}
    for time_s, text in sorted(texts.items()):
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                samples.setdefault(key, []).append((time_s, sample.value))
    return [Series(name, {"pod": pod, **dict(labels)}, tuple(many)) for (name, labels), many in samples.items()]


def grown_from_zero(text: str, pod: str = "chat-a") -> list[Series]:
    """The text as a scrape at 10 s of engines that had counted nothing at 0 s; gauges are the same at both times."""
    lines = text.splitlines()
    return scraped({0.0: "\n".join(_at_zero(line) for line in lines), 10.0: text}, pod)


def _at_zero(line: str) -> str:
    series, _, value = line.rpartition(" ")
    counts = series.partition("{")[0].endswith(("_total", "_count", "_sum", "_bucket"))
    return f"{series} {'0.0' if counts else value}"


V0_6_3 = """
vllm:num_requests_running{model_name="t"} 5.0
vllm:num_requests_waiting{model_name="t"} 0.0
vllm:num_requests_swapped{model_name="t"} 0.0
vllm:gpu_cache_usage_perc{model_name="t"} 0.12
vllm:cpu_cache_usage_perc{model_name="t"} 0.0
vllm:generation_tokens_total{model_name="t"} 10616.0
vllm:spec_decode_draft_acceptance_rate{model_name="t"} NaN
vllm:spec_decode_efficiency{model_name="t"} 0.598
vllm:spec_decode_num_accepted_tokens_total{model_name="t"} 8547.0
vllm:spec_decode_num_draft_tokens_total{model_name="t"} 13311.0
vllm:spec_decode_num_emitted_tokens_total{model_name="t"} 10616.0
"""
"""The first engine of vLLM: no label ``engine``, no drafts, no positions."""

V0_8_5 = """
vllm:num_requests_running{engine="0",model_name="t"} 5.0
vllm:num_requests_waiting{engine="0",model_name="t"} 0.0
vllm:gpu_cache_usage_perc{engine="0",model_name="t"} 0.12
vllm:generation_tokens_total{engine="0",model_name="t"} 4000.0
vllm:generation_tokens_created{engine="0",model_name="t"} 1.7562e+09
vllm:spec_decode_num_drafts_total{engine="0",model_name="t"} 1000.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="t"} 1.7562e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="t"} 2000.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="t"} 1100.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="t",position="0"} 700.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="t",position="1"} 400.0
"""

V0_9_2 = V0_8_5 + 'vllm:kv_cache_usage_perc{engine="0",model_name="t"} 0.12\n'

V0_11 = (
    "\n".join(line for line in V0_8_5.splitlines() if "gpu_cache" not in line and "_created" not in line)
    + """
vllm:kv_cache_usage_perc{engine="0",model_name="t",pid="71"} 0.12
vllm:kv_cache_usage_perc{engine="0",model_name="t",pid="72"} 0.05
"""
)
"""Two API servers: the gauge has a label for each process, creation times are missing."""

V0_33 = """
vllm:num_requests_running{engine="0",model_name="org/a \\"b\\""} 9.0
vllm:num_requests_running{engine="1",model_name="org/a \\"b\\""} 2.0
vllm:num_requests_waiting{engine="0",model_name="org/a \\"b\\""} 4.0
vllm:num_requests_waiting{engine="1",model_name="org/a \\"b\\""} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="org/a \\"b\\"",reason="capacity"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="org/a \\"b\\"",reason="deferred"} 1.0
vllm:engine_sleep_state{engine="0",model_name="org/a \\"b\\"",sleep_state="awake"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="org/a \\"b\\""} 0.71
vllm:kv_cache_usage_perc{engine="1",model_name="org/a \\"b\\""} 0.08
vllm:generation_tokens_total{engine="0",model_name="org/a \\"b\\""} 52000.0
vllm:generation_tokens_total{engine="1",model_name="org/a \\"b\\""} 0.0
vllm:iteration_tokens_total_count{engine="0",model_name="org/a \\"b\\""} 9000.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="org/a \\"b\\""} 20000.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="org/a \\"b\\""} 60000.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="org/a \\"b\\""} 32000.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="org/a \\"b\\"",position="0"} 16000.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="org/a \\"b\\"",position="1"} 10000.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="org/a \\"b\\"",position="2"} 6000.0
vllm:admission_rejections_total{model_name="org/a \\"b\\"",reason="max_num_queued_reqs"} 0.0
"""
