"""What others send us, and who reads it: each reader takes any bytes, and raises only where it found a defect.

A reader goes as far as the operator does: an answer of Prometheus through observation and decision, a memory document
through the next decision.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from outrider.adapters import prometheus
from outrider.adapters.engine import MAX_GENERATION, acknowledged, schedule_document
from outrider.adapters.prometheus_questions import Course, _courses
from outrider.core import memory
from outrider.core.controller import Outcome, control
from outrider.core.observation import Observation, observe_since
from outrider.core.schedule import InvalidSchedule, constant, parse_text
from outrider.core.state import ControllerConfig, ControllerState, initial_state
from outrider.errors import EngineError
from outrider.manifests import queries
from outrider.reconcile import persistence
from outrider.reconcile.events import rfc3339
from outrider.reconcile.redaction import first_words, last_words, masked
from outrider_runtime.protocol import ScheduleKeeper, parse_json

NOW_S = 1_800_000_000.0
CONFIG = ControllerConfig(
    mode="Adaptive",
    policy="Goodput",
    values=(0, 1, 2, 3, 5),
    min_speculative_tokens=0,
    max_batch_size=256,
    capture_size=504,
    initial=parse_text("1-256:3"),
    tpot_objective_s=0.012,
    percentile=0.95,
    period_s=15.0,
)


def prometheus_answer(data: bytes) -> None:
    """A range vector, the observation of it and the decision that follows."""
    try:
        result = json.loads(data)["data"]["result"]
        found = prometheus.by_service([prometheus.rows(result)])
    except prometheus.WRONG_FORM:
        return
    state = replace(initial_state(CONFIG), learned_until_s=NOW_S - 20)
    for series in found.values():
        assert all(math.isfinite(moment) and math.isfinite(value) for one in series for moment, value in one.samples)
        window, increment = observe_since(series, (NOW_S - 60, NOW_S - 20), NOW_S)
        _sound(control(CONFIG, state, window, increment, NOW_S))


def prometheus_course(data: bytes) -> None:
    """An answer to a person's question."""
    try:
        found = _courses(json.loads(data)["data"]["result"])
    except prometheus.WRONG_FORM:
        return
    assert all(isinstance(one, Course) for one in found)


def engine_answer(data: bytes) -> None:
    """An answer of an engine's admin port, under each status that counts."""
    for status in (200, 401, 409, 422, 500, 503):
        refused = ""
        try:
            assert acknowledged("10.0.0.1", status, data) <= MAX_GENERATION
        except EngineError as error:
            refused = error.message
        assert len(first_words(refused, 300)) <= 300


def schedule_put(data: bytes) -> None:
    """A document for an engine."""
    installed = []
    keeper = ScheduleKeeper(constant(3, 64), ceiling=5, values=(0, 1, 3, 5), max_num_seqs=64, apply=installed.append)
    reply = keeper.put(parse_json(data), 0.0)
    assert reply.status in (200, 422), reply
    json.dumps(reply.body)
    assert all(k in (0, 1, 3, 5) for schedule in installed for k in schedule.values)


def schedule_text(data: bytes) -> None:
    """A schedule as people write it."""
    try:
        found = parse_text(data.decode(errors="replace"))
    except InvalidSchedule:
        return
    assert parse_text(str(found)) == found


def memory_document(data: bytes) -> None:
    """What a ConfigMap remembers, and the decision that follows."""
    document = persistence.parsed(data.decode(errors="replace"))
    state, _ = memory.from_document(document, CONFIG)
    persistence._share(document.get("share") if isinstance(document, Mapping) else None)
    json.dumps(memory.to_document(state), allow_nan=False)
    for moment in (state.schedule_changed_s, *(change.at_s for change in state.history)):
        assert moment is None or rfc3339(moment)
    _sound(control(CONFIG, state, _window(), _window(), NOW_S))


def words(data: bytes) -> None:
    """What an engine wrote last."""
    text = data.decode(errors="replace")
    assert masked(masked(text)) == masked(text)
    assert len(last_words(text, 500)) <= 500
    quoted = queries.escape(text)
    assert '"' not in quoted.replace("\\\\", "").replace('\\"', "")


READERS: dict[str, Callable[[bytes], None]] = {
    one.__name__: one
    for one in (
        prometheus_answer, prometheus_course, engine_answer, schedule_put, schedule_text, memory_document, words,
    )
}  # fmt: skip


def _window() -> Observation:
    from tests.unit.core.builders import observation

    return observation(since=NOW_S - 15, until=NOW_S)


def _sound(outcome: Outcome) -> None:
    """What must hold of a decision, whatever it was made of."""
    state: ControllerState = outcome.state
    assert set(state.schedule.values) <= set(CONFIG.values) or state.schedule == CONFIG.initial, state.schedule
    assert 1 <= state.target <= 10**9, state.target
    assert 0 <= state.generation <= MAX_GENERATION, state.generation
    json.dumps(memory.to_document(state), allow_nan=False)


_LABELS = {
    "namespace": "ml", "pod": "chat-a", "engine": "0", "instance": "10.0.0.1:8000",
    "serving_outrider_dev_service": "chat", "serving_outrider_dev_track": "stable",
}  # fmt: skip


def _series(name: str, *values: float, **labels: str) -> dict[str, Any]:
    samples = [[NOW_S - 5 * (len(values) - number), str(value)] for number, value in enumerate(values)]
    return {"metric": {"__name__": name, **_LABELS, **labels}, "values": samples}


def _answer(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": list(rows)}}


def seeds() -> dict[str, list[Any]]:
    """Documents that each reader takes, as JSON values or, for the readers of text, as text."""
    from tests.unit.core.test_memory import full_state

    rising = tuple(1000.0 + 400 * number for number in range(12))
    answer = _answer(
        _series("vllm:generation_tokens_total", *rising),
        _series("vllm:prompt_tokens_total", *rising),
        _series("vllm:num_requests_running", *[8.0] * 12),
        _series("vllm:num_requests_waiting", *[1.0] * 12),
        _series("vllm:kv_cache_usage_perc", *[0.5] * 12),
        _series("vllm:cache_config_info", *[1.0] * 12, num_gpu_blocks="4000", block_size="16"),
        _series("vllm:spec_decode_num_drafts_total", *rising),
        _series("vllm:spec_decode_num_draft_tokens_total", *rising),
        _series("vllm:spec_decode_num_accepted_tokens_total", *rising),
        _series("vllm:spec_decode_num_accepted_tokens_per_pos_total", *rising, position="0"),
        _series("outrider_engine_draft_tokens_per_pos_total", *rising, position="0"),
        _series("vllm:time_to_first_token_seconds_bucket", *rising, le="0.5"),
        _series("vllm:time_to_first_token_seconds_bucket", *rising, le="+Inf"),
        _series("outrider_engine_steps_total", *rising, batch="8", num_speculative_tokens="3", mixed="false"),
        _series("outrider_engine_step_seconds_total", *rising, batch="8", num_speculative_tokens="3", mixed="false"),
        _series("outrider_engine_step_requests_total", *rising, batch="8", num_speculative_tokens="3", mixed="false"),
        _series("process_start_time_seconds", *[NOW_S - 9000] * 12),
    )
    put = schedule_document(17, parse_text("1-24:5 25-64:1"), 3600)
    remembered = json.loads(json.dumps(memory.to_document(full_state()))) | {
        "share": {"most": 3, "disputedSince": 900.0, "gain": {"at_s": 900.0, "turns": 1}}
    }
    return {
        "prometheus_answer": [answer],
        "prometheus_course": [answer],
        "engine_answer": [
            {"generation": 17, "schedule": [[1, 64, 3]], "effective": [3] * 64},
            {"error": "no", "faults": ["row 1"], "reason": "no", "generation": 9},
        ],
        "schedule_put": [put],
        "schedule_text": ["1-24:5 25-64:1"],
        "memory_document": [remembered],
        "words": ["HF_TOKEN=hf_abcdefghij --api-key k://user:pw@host Bearer abcdefgh eyJhbGciOi.eyJzdWIi.c2ln"],
    }
