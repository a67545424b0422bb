"""The protocol between operator and engine, over HTTP: one suite for the simulated engine and for a real vLLM.

Every test runs against both under the same name, so the simulator, which most other tests build on, cannot drift from
what it stands for. Engines are shared: a test takes its generations from what the engine has, never from a constant.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from outrider.core import engine_metrics
from tests.engine.client import KEY_FILE, SCHEDULE_FILE, EngineUnderTest, Readings, wait_until
from tests.engine.server import ADMIN_KEY, INITIAL, MAX_NUM_SEQS, MAX_SPECULATIVE_TOKENS, MOUNTED

PROMPT = [11, 12, 13]
REFRESH_BUDGET_S = 30.0  # for a changed file to be seen; a kubelet takes a minute to change it
UNAUTHORIZED = {"error": "the admin key is missing or wrong"}


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.engine)], scope="module")
def engine(request: pytest.FixtureRequest) -> EngineUnderTest:
    """One and then the other."""
    chosen: EngineUnderTest = request.getfixturevalue(f"{request.param}_engine")
    return chosen


@pytest.fixture(autouse=True)
def _still_alive(engine: EngineUnderTest) -> Iterator[None]:
    """No test may cost the engine its life, whatever it sends."""
    yield
    assert engine.alive(), f"the {engine.kind} engine is gone"


def document(engine: EngineUnderTest, **changes: object) -> dict[str, Any]:
    """What the operator sends: a newer generation, K = 2 at small batches and 1 above."""
    newer = {"generation": engine.next_generation(), "schedule": [[1, 8, 2], [9, 16, 1]], "leaseSeconds": 600}
    return newer | changes


def in_force(engine: EngineUnderTest) -> tuple[Any, ...]:
    """Generation, schedule and effective table."""
    body = engine.get().body
    return body["generation"], body["schedule"], body["effective"]


def grown(engine: EngineUnderTest, *num_tokens: int) -> Readings:
    """What the metrics grew by while so many requests ran together, the engine idle before and after."""
    before = engine.settled()
    with ThreadPoolExecutor(len(num_tokens)) as pool:
        answers = list(pool.map(lambda tokens: engine.generate(PROMPT, tokens), num_tokens))
    assert [len(answer.token_ids) for answer in answers] == list(num_tokens)
    return engine.settled().since(before)


# A schedule that is taken over.


def test_a_schedule_is_answered_with_the_effective_table(engine: EngineUnderTest) -> None:
    asked = document(engine, schedule=[[1, 4, 4], [5, 16, 1]])
    answer = engine.put(asked)
    assert answer.status == 200
    assert answer.body == {
        "generation": asked["generation"],
        "schedule": [[1, 4, 4], [5, 16, 1]],
        "effective": [4] * 4 + [1] * 12,  # by number of requests in the step, from 1
    }
    assert in_force(engine) == (asked["generation"], [[1, 4, 4], [5, 16, 1]], answer.body["effective"])


def test_a_hole_and_everything_past_the_last_row_keep_the_k_before(engine: EngineUnderTest) -> None:
    answer = engine.put(document(engine, schedule=[[1, 2, 4], [6, 8, 1]]))
    assert answer.body["schedule"] == [[1, 5, 4], [6, 8, 1]]
    assert answer.body["effective"] == [4] * 5 + [1] * 11


def test_generations_may_leave_numbers_out(engine: EngineUnderTest) -> None:
    later = engine.next_generation() + 1000
    assert engine.put(document(engine, generation=later)).status == 200
    assert engine.get().body["generation"] == later


def test_the_same_document_again_renews_the_lease(engine: EngineUnderTest) -> None:
    short = document(engine, leaseSeconds=100)
    first = engine.put(short)
    assert 90 < engine.get().body["leaseSecondsLeft"] <= 100
    again = engine.put(short | {"leaseSeconds": 5000})
    assert (again.status, again.body) == (200, first.body)
    assert 4900 < engine.get().body["leaseSecondsLeft"] <= 5000


def test_a_document_without_a_lease_gets_an_hour(engine: EngineUnderTest) -> None:
    asked = document(engine)
    del asked["leaseSeconds"]
    assert engine.put(asked).status == 200
    assert 3500 < engine.get().body["leaseSecondsLeft"] <= 3600


# A schedule that is refused: the one in force stays.


def test_an_older_generation_is_a_conflict(engine: EngineUnderTest) -> None:
    present = document(engine)
    engine.put(present)
    before = in_force(engine)
    answer = engine.put(present | {"generation": present["generation"] - 1, "schedule": [[1, 16, 4]]})
    assert answer.status == 409
    assert answer.body == {
        "error": f"generation {present['generation'] - 1} is older than {present['generation']}",
        "generation": present["generation"],
    }
    assert in_force(engine) == before


def test_one_generation_has_one_schedule(engine: EngineUnderTest) -> None:
    present = document(engine)
    engine.put(present)
    before = in_force(engine)
    answer = engine.put(present | {"schedule": [[1, 16, 4]]})
    assert answer.status == 409
    assert answer.body == {
        "error": f"generation {present['generation']} was delivered with another schedule",
        "generation": present["generation"],
    }
    assert in_force(engine) == before


@pytest.mark.parametrize(
    ("rows", "faults"),
    [
        pytest.param(
            [], ["a schedule is a list of [first, last, K] rows, for example [[1, 16, 3], [17, 64, 1]]"], id="empty"
        ),
        pytest.param(
            [[2, 16, 1]],
            ["row 2-16:1 must start at 1: the first row covers the smallest batch"],
            id="the smallest batch left out",
        ),
        pytest.param(
            [[1, 8, 3], [8, 16, 1]],
            ["rows 1-8:3 and 8-16:1 overlap or are out of order; start the second after 8"],
            id="overlap",
        ),
        pytest.param([[1, 16, -1]], ["row 1-16:-1: K must be 0 or more"], id="a negative K"),
        pytest.param(
            [[1, 16, 9]],
            ["row 1-16:9: 9 is above the ceiling 4; the engine would clamp it in silence"],
            id="K above the ceiling",
        ),
        pytest.param(
            [[1, 17, 1]], ["row 1-17:1 goes past the engine's largest batch, 16"], id="past the largest batch"
        ),
        pytest.param(
            [[1, 16]], ["row 1 is [1, 16]; it must be three integers, [first, last, K]"], id="a row of two numbers"
        ),
        pytest.param(
            [[1, 16, 2.0]], ["row 1 is [1, 16, 2.0]; it must be three integers, [first, last, K]"], id="a K of 2.0"
        ),
        pytest.param(
            [[1, 4, 2], [9, 5, 1]], ["row 9-5:1 ends before it starts"], id="a row that ends before it starts"
        ),
        pytest.param(
            [[2, 8, 9], [8, 17, -1]],
            [
                "row 2-8:9 must start at 1: the first row covers the smallest batch",
                "rows 2-8:9 and 8-17:-1 overlap or are out of order; start the second after 8",
                "row 2-8:9: 9 is above the ceiling 4; the engine would clamp it in silence",
                "row 8-17:-1: K must be 0 or more",
                "row 8-17:-1 goes past the engine's largest batch, 16",
            ],
            id="five faults at once",
        ),
    ],
)
def test_a_bad_schedule_is_refused_with_every_fault_named(
    engine: EngineUnderTest, rows: list[list[int]], faults: list[str]
) -> None:
    engine.set_schedule([[1, 16, 3]])
    before = in_force(engine)
    answer = engine.put(document(engine, schedule=rows))
    assert answer.status == 422
    assert answer.body == {"error": "the document is not a schedule for this engine", "faults": faults}
    assert in_force(engine) == before


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        pytest.param({"generation": None}, "generation is None", id="no generation"),
        pytest.param({"generation": -1}, "generation is -1", id="a negative generation"),
        pytest.param({"generation": "17"}, "generation is '17'", id="a generation in words"),
        pytest.param({"generation": True}, "generation is True", id="a truth value for a generation"),
        pytest.param({"generation": 2**63}, f"generation is {2**63}", id="a generation of more than 64 bits"),
        pytest.param({"leaseSeconds": 0}, "leaseSeconds is 0", id="a lease of no time"),
        pytest.param({"leaseSeconds": 604801}, "leaseSeconds is 604801", id="a lease of more than a week"),
        pytest.param({"leaseSeconds": float("inf")}, "leaseSeconds is inf", id="a lease without end"),
        pytest.param({"leaseSeconds": float("nan")}, "leaseSeconds is nan", id="a lease that is no number"),
        pytest.param({"leaseSeconds": "600"}, "leaseSeconds is '600'", id="a lease in words"),
    ],
)
def test_a_bad_generation_or_lease_is_refused_by_name(
    engine: EngineUnderTest, changes: dict[str, Any], fault: str
) -> None:
    before = in_force(engine)
    answer = engine.put(document(engine, **changes))
    assert answer.status == 422
    (named,) = answer.body["faults"]
    assert named.startswith(f"{fault}; it must be ")
    assert in_force(engine) == before


def test_faults_of_all_parts_come_together(engine: EngineUnderTest) -> None:
    answer = engine.put({"generation": -1, "schedule": [[2, 16, 1]], "leaseSeconds": 0})
    assert answer.status == 422
    assert [fault.split()[0] for fault in answer.body["faults"]] == ["generation", "leaseSeconds", "row"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{half", id="broken JSON"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b"[[1, 16, 2]]", id="a list"),
        pytest.param(b'"schedule"', id="a string"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[" * 100_000, id="deeper than a parser goes"),
        pytest.param(b"9" * 5000, id="more digits than a parser takes"),
    ],
)
def test_a_body_that_is_no_object_is_refused(engine: EngineUnderTest, body: bytes) -> None:
    before = in_force(engine)
    answer = engine.put(body)
    assert answer.status == 422
    assert answer.body["faults"] == ["the body is not a JSON object with generation, schedule and leaseSeconds"]
    assert in_force(engine) == before


# Who may ask.


@pytest.mark.parametrize(
    "authorization",
    [
        pytest.param(None, id="no key"),
        pytest.param("Bearer wrong", id="another key"),
        pytest.param(f"Bearer {ADMIN_KEY[:-1]}", id="the beginning of the key"),
        pytest.param("Bearer ", id="an empty key"),
        pytest.param(f"Basic {ADMIN_KEY}", id="the key in another scheme"),
        pytest.param(ADMIN_KEY, id="the key without a scheme"),
    ],
)
def test_without_the_key_nothing_is_read_and_nothing_changes(
    engine: EngineUnderTest, authorization: str | None
) -> None:
    before = in_force(engine)
    headers = {} if authorization is None else {"Authorization": authorization}
    body = json.dumps(document(engine, schedule=[[1, 16, 4]])).encode()
    for answer in (
        engine.call("GET", "/schedule", headers=headers),
        engine.call("PUT", "/schedule", headers=headers, body=body),
    ):
        assert (answer.status, answer.body) == (401, UNAUTHORIZED)
    assert in_force(engine) == before


def test_keys_rotate_without_a_restart(engine: EngineUnderTest) -> None:
    """Both keys hold while the operator changes over, then only the new one."""
    try:
        engine.mounted_key.write({KEY_FILE: f"{ADMIN_KEY}\nsecond-admin-key\n"})
        wait_until(lambda: engine.get("second-admin-key").status == 200, REFRESH_BUDGET_S, "the second key opens")
        assert engine.get(ADMIN_KEY).status == 200
        engine.mounted_key.write({KEY_FILE: "second-admin-key\n"})
        wait_until(lambda: engine.get(ADMIN_KEY).status == 401, REFRESH_BUDGET_S, "the first key is refused")
        assert engine.get("second-admin-key").status == 200
        engine.mounted_key.write({KEY_FILE: ""})
        wait_until(lambda: engine.get("second-admin-key").status == 401, REFRESH_BUDGET_S, "no key opens")
        assert engine.get("").status == 401
    finally:
        engine.mounted_key.write({KEY_FILE: f"{ADMIN_KEY}\n"})
        wait_until(lambda: engine.get(ADMIN_KEY).status == 200, REFRESH_BUDGET_S, "the first key opens again")


def test_a_document_without_an_end_is_refused(engine: EngineUnderTest) -> None:
    """In pieces it has no length that could be looked at before."""
    before = in_force(engine)
    headers = {"Authorization": f"Bearer {ADMIN_KEY}", "Transfer-Encoding": "chunked"}
    piece = b" " * 65_536
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for _ in range(20)) + b"0\r\n\r\n"
    answer = engine.call("PUT", "/schedule", headers=headers, body=body)
    assert answer.status == 413
    assert in_force(engine) == before


def test_the_kubelet_needs_no_key(engine: EngineUnderTest) -> None:
    answer = engine.ready()
    assert (answer.status, answer.body) == (200, {"ready": True, "reason": ""})


# What the engine says of itself.

_STATE: dict[str, type | tuple[type, ...]] = {
    "generation": int,
    "schedule": list,
    "effective": list,
    "maxSpeculativeTokens": int,
    "speculativeTokens": list,
    "captureSizes": list,
    "vllmVersion": str,
    "modelRunner": str,
    "attentionBackend": str,
    "cudagraphMode": str,
    "controllable": bool,
    "reason": str,
    "leaseSecondsLeft": (int, float),
    "initial": bool,
    "stepsBySpeculativeTokens": dict,
    "longestStepSeconds": (int, float),
    "stalls": dict,
    "secondsSinceToken": (int, float),
}


def test_the_state_has_these_keys_and_types(engine: EngineUnderTest) -> None:
    engine.put(document(engine))
    state = engine.get().body
    assert set(state) == set(_STATE)
    wrong = {key: value for key, value in state.items() if not isinstance(value, _STATE[key])}
    assert wrong == {}
    assert {key: type(value) for key, value in state["stalls"].items()}.keys() == {"count", "seconds"}


def test_the_state_tells_how_the_engine_was_started(engine: EngineUnderTest) -> None:
    state = engine.get().body
    assert state["maxSpeculativeTokens"] == MAX_SPECULATIVE_TOKENS
    assert state["speculativeTokens"] == [0, 1, 2, 3, 4]
    assert (state["captureSizes"], state["cudagraphMode"]) == ([], "NONE")  # it runs eagerly
    assert (state["controllable"], state["reason"]) == (True, "")
    assert state["modelRunner"] in ("V1", "V2")
    assert state["vllmVersion"].count(".") >= 2
    assert len(state["effective"]) == MAX_NUM_SEQS


def test_an_idle_engine_tells_how_long_it_has_been_silent(engine: EngineUnderTest) -> None:
    grown(engine, 5)
    first = engine.get().body["secondsSinceToken"]
    wait_until(lambda: engine.get().body["secondsSinceToken"] > first + 0.2, 10, "silence grows")
    grown(engine, 200)
    assert engine.get().body["secondsSinceToken"] < 60


def test_the_longest_step_is_that_since_the_last_read(engine: EngineUnderTest) -> None:
    engine.get()
    grown(engine, 20)
    assert 0 < engine.get().body["longestStepSeconds"] < 60
    assert engine.get().body["longestStepSeconds"] == 0


# Where a schedule comes from when nobody calls, and what is left when nobody calls again.


def test_the_mounted_document_is_in_force_from_the_start(engine: EngineUnderTest) -> None:
    state = engine.state_at_start
    assert (state["generation"], state["schedule"]) == (MOUNTED["generation"], MOUNTED["schedule"])
    assert (state["effective"], state["initial"]) == ([2] * 8 + [1] * 8, False)
    assert 3000 < state["leaseSecondsLeft"] <= 3600


def test_a_change_of_the_mounted_document_is_taken_over(engine: EngineUnderTest) -> None:
    changed = document(engine, schedule=[[1, 16, 4]])
    engine.mounted_schedule.write({SCHEDULE_FILE: json.dumps(changed)})
    wait_until(lambda: in_force(engine)[0] == changed["generation"], REFRESH_BUDGET_S, "the file is taken over")
    assert in_force(engine) == (changed["generation"], [[1, 16, 4]], [4] * 16)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda newer: "{half a document", id="half a document"),
        pytest.param(lambda newer: json.dumps(newer | {"schedule": [[1, 16, 9]]}), id="a bad schedule"),
        pytest.param(lambda newer: json.dumps(newer | {"generation": 0}), id="an older generation"),
    ],
)
def test_a_mounted_document_that_cannot_be_used_changes_nothing(engine: EngineUnderTest, make: Any) -> None:
    """Shown by the next good one: it is taken over, and until then the schedule stays."""
    before = in_force(engine)
    newer = document(engine, schedule=[[1, 16, 0]])
    engine.mounted_schedule.write({SCHEDULE_FILE: make(newer)})
    seen = set()

    def changed() -> bool:
        seen.add(json.dumps(in_force(engine)))
        return len(seen) > 1

    with pytest.raises(AssertionError, match="not within"):
        wait_until(changed, engine.sees_files_within_s, "a change")
    assert seen == {json.dumps(before)}
    engine.mounted_schedule.write({SCHEDULE_FILE: json.dumps(newer)})
    wait_until(lambda: in_force(engine)[0] == newer["generation"], REFRESH_BUDGET_S, "the good one is taken over")


def test_a_lease_that_runs_out_brings_the_initial_schedule_back(engine: EngineUnderTest) -> None:
    brief = document(engine, schedule=[[1, 16, 1]], leaseSeconds=1.5)
    engine.put(brief)
    assert (engine.get().body["initial"], in_force(engine)[2]) == (False, [1] * 16)
    took_s = wait_until(lambda: engine.get().body["initial"], 20, "the lease runs out")
    assert took_s > 0.5
    state = engine.get().body
    assert in_force(engine) == (brief["generation"], INITIAL, [3] * 16)
    assert state["leaseSecondsLeft"] is None
    assert "3" in grown(engine, 30).by("outrider_engine_steps_total", "speculative_tokens")


def test_after_the_lease_the_same_document_is_taken_again(engine: EngineUnderTest) -> None:
    brief = document(engine, schedule=[[1, 16, 1]], leaseSeconds=0.2)
    engine.put(brief)
    wait_until(lambda: engine.get().body["initial"], 20, "the lease runs out")
    assert engine.put(brief | {"generation": brief["generation"] - 1}).status == 409
    assert engine.put(brief | {"leaseSeconds": 600}).status == 200
    assert (engine.get().body["initial"], in_force(engine)[2]) == (False, [1] * 16)


# What K does.


@pytest.mark.parametrize("k", [4, 2, 0, 1, 3])
def test_no_token_is_drafted_at_or_past_k(engine: EngineUnderTest, k: int) -> None:
    engine.set_schedule([[1, 16, k]])
    growth = grown(engine, 60, 60)
    drafted = growth.by("outrider_engine_draft_tokens_per_pos_total", "position")
    assert sorted(drafted) == [str(position) for position in range(k)]
    assert len(set(drafted.values())) <= 1  # a draft model proposes all K or nothing
    assert sum(drafted.values()) == growth.sum("vllm:spec_decode_num_draft_tokens_total")


@pytest.mark.parametrize("k", [0, 3])
def test_steps_count_under_the_k_that_they_were_scheduled_with(engine: EngineUnderTest, k: int) -> None:
    engine.set_schedule([[1, 16, k]])
    grown(engine, 5)  # the first step after a change verifies drafts of the K before: it may be left out of the cells
    before = engine.get().body["stepsBySpeculativeTokens"]
    growth = grown(engine, 40)
    steps = growth.by("outrider_engine_steps_total", "speculative_tokens")
    assert list(steps) == [str(k)]
    assert 40 / (k + 1) <= steps[str(k)] <= 41
    told = {
        key: count - before.get(key, 0)
        for key, count in engine.get().body["stepsBySpeculativeTokens"].items()
        if count != before.get(key, 0)
    }
    assert told == steps


def test_the_batch_of_a_step_chooses_its_k(engine: EngineUnderTest) -> None:
    engine.set_schedule([[1, 1, 4], [2, 16, 0]])
    growth = grown(engine, 150, 150)
    assert list(growth.by("outrider_engine_steps_total", "speculative_tokens", batch="2", kind="decode")) == ["0"]
    assert list(growth.by("outrider_engine_steps_total", "speculative_tokens", batch="1", kind="decode")) == ["4"]


def test_the_times_of_steps_add_up(engine: EngineUnderTest) -> None:
    engine.set_schedule([[1, 16, 2]])
    grown(engine, 5)
    growth = grown(engine, 100)
    steps = growth.sum("outrider_engine_steps_total", kind="decode")
    seconds = growth.sum("outrider_engine_step_seconds_total", kind="decode")
    squared = growth.sum("outrider_engine_step_seconds_squared_total", kind="decode")
    assert growth.sum("outrider_engine_step_requests_total", kind="decode") == steps  # one request a step
    assert 0 < seconds < growth.sum("vllm:e2e_request_latency_seconds_sum")
    assert squared >= seconds**2 / steps * 0.999  # a mean of squares is never below the square of the mean
    assert growth.sum("outrider_engine_steps_total", kind="mixed") >= 1  # the prompt's


# The plugin's metrics.

_CELL = {"engine", "batch", "speculative_tokens", "kind"}
_FAMILIES: dict[str, tuple[str, set[str]]] = {
    engine_metrics.DRAFT_TOKENS_PER_POS[0]: ("counter", {"engine", "position"}),
    engine_metrics.STEPS[0]: ("counter", _CELL),
    engine_metrics.STEP_SECONDS[0]: ("counter", _CELL),
    engine_metrics.STEP_SECONDS_SQUARED[0]: ("counter", _CELL),
    engine_metrics.STEP_REQUESTS[0]: ("counter", _CELL),
    engine_metrics.SCHEDULE_GENERATION[0]: ("gauge", {"engine"}),
    engine_metrics.SCHEDULE_INITIAL[0]: ("gauge", {"engine"}),
    engine_metrics.SCHEDULE_LEASE_SECONDS[0]: ("gauge", {"engine"}),
    engine_metrics.CONTROLLABLE[0]: ("gauge", {"engine"}),
    engine_metrics.LONGEST_STEP_SECONDS[0]: ("gauge", {"engine"}),
    engine_metrics.STALLS[0]: ("counter", {"engine"}),
    engine_metrics.STALL_SECONDS[0]: ("counter", {"engine"}),
    engine_metrics.SECONDS_SINCE_TOKEN[0]: ("gauge", {"engine"}),
}


@pytest.mark.parametrize("name", _FAMILIES)
def test_a_metric_has_its_type_and_labels(engine: EngineUnderTest, name: str) -> None:
    if not engine.metrics().sum(engine_metrics.STEPS[0]):
        grown(engine, 5)  # cells appear with the first step of their kind
    kind, labels = _FAMILIES[name]
    family = engine.families()[name.removesuffix("_total")]
    assert family.type == kind
    samples = [sample for sample in family.samples if sample.name == name]
    assert samples
    assert {frozenset(sample.labels) for sample in samples} == {frozenset(labels)}


def test_every_position_is_there_from_the_start(engine: EngineUnderTest) -> None:
    samples = engine.families()["outrider_engine_draft_tokens_per_pos"].samples
    positions = {sample.labels["position"] for sample in samples if sample.name.endswith("_total")}
    assert positions == {str(position) for position in range(MAX_SPECULATIVE_TOKENS)}


def test_batches_are_counted_by_powers_of_two(engine: EngineUnderTest) -> None:
    grown(engine, 30, 30, 30)
    samples = engine.families()["outrider_engine_steps"].samples
    batches = {int(sample.labels["batch"]) for sample in samples if sample.name.endswith("_total")}
    assert 4 in batches  # where steps of three requests go
    assert batches <= {2**power for power in range(MAX_NUM_SEQS.bit_length())}


def test_the_metrics_tell_what_the_admin_port_tells(engine: EngineUnderTest) -> None:
    engine.set_schedule([[1, 16, 2]], lease_s=500)
    state, metrics = engine.get().body, engine.metrics()
    assert metrics.sum("outrider_engine_schedule_generation") == state["generation"]
    assert metrics.sum("outrider_engine_schedule_initial") == 0
    assert metrics.sum("outrider_engine_controllable") == 1
    assert metrics.sum("outrider_engine_schedule_lease_seconds") == pytest.approx(state["leaseSecondsLeft"], abs=30)
    assert metrics.sum("outrider_engine_stalls_total") >= 0
