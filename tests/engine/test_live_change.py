"""K changes while requests stream, on a real vLLM: at the next step, unseen in the text, and for as long as one likes.

The engine is the one of the protocol suite. What is measured goes to ``build/engine/live-change.json``; the tests hold
it to generous bounds alone, since the machine is shared.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import quantiles
from typing import Any

import pytest

from tests.engine import server
from tests.engine.client import EngineUnderTest, Generation, Readings, wait_until
from tests.engine.conftest import MAX_WAITING
from tests.engine.load import Load
from tests.engine.server import MAX_NUM_SEQS, MAX_SPECULATIVE_TOKENS

pytestmark = pytest.mark.engine

RESULTS = server.LOGS / "live-change.json"
STREAMS = 8
PROMPTS = [[20 + number, 7, 3 * number + 1] for number in range(STREAMS)]
NUM_TOKENS = 160
CHANGES = 5
CHANGES_UNDER_STREAMS = 100
SETTLE_S = 0.4  # several steps; the page is behind the engine by the outputs on their way
BEHIND_S = 0.002
ROUND_TRIPS = 200
LONGEST_ROUND_TRIP_S = 2.0
RANDOM_CHANGES = 10_000
_DRAFTED = "outrider_engine_draft_tokens_per_pos_total"


@pytest.fixture(scope="module")
def engine(real_engine: EngineUnderTest) -> EngineUnderTest:
    """The real one."""
    return real_engine


@pytest.fixture(scope="module")
def texts(engine: EngineUnderTest) -> list[list[int]]:
    """Each prompt's greedy text: asked for alone, in one piece, under one schedule."""
    engine.set_schedule([[1, MAX_NUM_SEQS, 3]])
    return [engine.generate(prompt, NUM_TOKENS).token_ids for prompt in PROMPTS]


@pytest.fixture(scope="module")
def record() -> Iterator[dict[str, Any]]:
    """What was measured, by name; written at the end."""
    measured: dict[str, Any] = {}
    yield measured
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(measured, indent=2) + "\n")


def random_schedule(rng: random.Random) -> list[list[int]]:
    """Rows over all batch sizes, with any K."""
    ends = sorted({*rng.sample(range(1, MAX_NUM_SEQS), rng.randint(0, 4)), MAX_NUM_SEQS})
    starts = [1, *(end + 1 for end in ends[:-1])]
    return [[first, last, rng.randint(0, MAX_SPECULATIVE_TOKENS)] for first, last in zip(starts, ends, strict=True)]


def deliver(engine: EngineUnderTest, generation: int, rows: list[list[int]]) -> float:
    """Put a schedule; returns the seconds until the answer was there."""
    began = time.perf_counter()
    answer = engine.put({"generation": generation, "schedule": rows, "leaseSeconds": 3600})
    took_s = time.perf_counter() - began
    assert (answer.status, answer.body["generation"]) == (200, generation), answer.body
    return took_s


def change_and_scrape(engine: EngineUnderTest, k: int) -> Readings:
    """Deliver one K; returns the metrics of the step boundary at which it was taken over, as nearly as can be had.

    Both calls wait for the engine core, which answers between two steps. So the scrape goes out behind the delivery,
    not after its answer: a step later the drafts that this is about would be counted already.
    """
    generation = engine.next_generation()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(deliver, engine, generation, [[1, MAX_NUM_SEQS, k]])
        time.sleep(BEHIND_S)
        scraped = engine.metrics()
        answer.result()
    overtook = scraped.sum("outrider_engine_schedule_generation") != generation
    return engine.metrics() if overtook else scraped


def summary(seconds: list[float]) -> dict[str, float]:
    """Percentiles in milliseconds."""
    hundredths = quantiles(seconds, n=100)
    return {
        "p50": round(hundredths[49] * 1000, 2),
        "p99": round(hundredths[98] * 1000, 2),
        "max": round(max(seconds) * 1000, 2),
    }


@pytest.mark.parametrize(("before", "after"), [(4, 1), (4, 0), (3, 2), (1, 0), (2, 4)])
def test_a_change_takes_effect_at_the_next_step(
    engine: EngineUnderTest, record: dict[str, Any], before: int, after: int
) -> None:
    """The step that runs when the answer comes still verifies what was drafted: one draft a request, never two."""
    gone = [str(position) for position in range(after, MAX_SPECULATIVE_TOKENS)]
    stale = []
    with Load(engine, PROMPTS, 700) as load:
        for _ in range(CHANGES):
            engine.set_schedule([[1, MAX_NUM_SEQS, before]])
            time.sleep(SETTLE_S)
            at_once = change_and_scrape(engine, after)
            time.sleep(SETTLE_S)
            settled = engine.metrics()
            time.sleep(SETTLE_S)
            growth = engine.metrics().since(settled)
            drafted = growth.by(_DRAFTED, "position")
            assert growth.sum("vllm:generation_tokens_total") > 0
            assert sorted(drafted) == [str(position) for position in range(after)]
            late = settled.since(at_once)
            stale.append(max((late.sum(_DRAFTED, position=position) for position in gone), default=0.0))
    assert load.faults == []
    assert max(stale) <= STREAMS
    record.setdefault("stale_drafts_per_request", {})[f"{before} to {after}"] = [drafts / STREAMS for drafts in stale]


@pytest.mark.parametrize("streams", [0, STREAMS], ids=["idle", "8 streams"])
def test_a_round_trip_is_short(engine: EngineUnderTest, record: dict[str, Any], streams: int) -> None:
    rng = random.Random(5)
    first = engine.next_generation()
    if streams:
        with Load(engine, PROMPTS[:streams], 300) as load:
            seconds = [deliver(engine, first + number, random_schedule(rng)) for number in range(ROUND_TRIPS)]
        assert load.faults == []
    else:
        seconds = [deliver(engine, first + number, random_schedule(rng)) for number in range(ROUND_TRIPS)]
    record[f"put_ms_{streams}_streams"] = summary(seconds)
    assert max(seconds) < LONGEST_ROUND_TRIP_S


def test_streamed_text_under_constant_changes_is_the_text_without_any(
    engine: EngineUnderTest, texts: list[list[int]]
) -> None:
    """No token is lost, sent twice or another one, however K changes meanwhile; asked again until it changed often."""
    rng, first, changes = random.Random(6), engine.next_generation(), 0
    with ThreadPoolExecutor(STREAMS) as pool:
        while changes < CHANGES_UNDER_STREAMS:
            answers = [pool.submit(engine.generate, prompt, NUM_TOKENS, stream=True) for prompt in PROMPTS]
            while not all(answer.done() for answer in answers):
                deliver(engine, first + changes, random_schedule(rng))
                changes += 1
                time.sleep(0.005)
            assert [answer.result().token_ids for answer in answers] == texts


@pytest.mark.parametrize("k", range(MAX_SPECULATIVE_TOKENS + 1))
def test_text_does_not_depend_on_k(engine: EngineUnderTest, texts: list[list[int]], k: int) -> None:
    engine.set_schedule([[1, MAX_NUM_SEQS, k]])
    assert engine.generate(PROMPTS[0], NUM_TOKENS, stream=True).token_ids == texts[0]
    assert engine.generate(PROMPTS[1], NUM_TOKENS).token_ids == texts[1]


def test_a_client_that_hangs_up_frees_its_place(engine: EngineUnderTest) -> None:
    engine.set_schedule([[1, MAX_NUM_SEQS, 1]])
    before = engine.settled()
    answer = engine.generate(PROMPTS[0], 1000, stream=True, stop_after_parts=3)
    assert len(answer.parts) == 3
    wait_until(lambda: engine.metrics().sum("vllm:num_requests_running") == 0, 5, "the place is free")
    growth = engine.settled().since(before)
    assert growth.sum("vllm:request_success_total") == 0  # vLLM counts no finish for a client that left
    assert 3 <= growth.sum("vllm:generation_tokens_total") < 500


def test_requests_beyond_the_longest_queue_are_refused_at_once(engine: EngineUnderTest, record: dict[str, Any]) -> None:
    engine.set_schedule([[1, MAX_NUM_SEQS, 0]])
    before = engine.settled()
    room, asked = MAX_NUM_SEQS + MAX_WAITING, MAX_NUM_SEQS + MAX_WAITING + 20
    began = time.monotonic()
    refused_after_s: list[float] = []

    def ask(number: int) -> Generation:
        answer = engine.generate([30 + number, 5], NUM_TOKENS)
        if answer.status == 503:
            refused_after_s.append(time.monotonic() - began)
        return answer

    with ThreadPoolExecutor(asked) as pool:
        answers = list(pool.map(ask, range(asked)))
    took_s = time.monotonic() - began
    served = [answer for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status == 503]
    assert len(served) + len(refused) == asked
    assert MAX_NUM_SEQS < len(served) <= room
    assert {len(answer.token_ids) for answer in served} == {NUM_TOKENS}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert max(refused_after_s) < took_s / 2  # not after a place in the queue was waited for
    growth = engine.settled().since(before)
    assert growth.sum("outrider_engine_rejected_total") == len(refused)
    assert growth.sum("vllm:request_success_total") == len(served)
    assert engine.generate(PROMPTS[0], 5).status == 200  # closed by itself
    record["refused_at_once"] = {"asked": asked, "served": len(served), "refused": len(refused)}


def test_ten_thousand_random_changes_are_survived(
    engine: EngineUnderTest, texts: list[list[int]], record: dict[str, Any]
) -> None:
    """As fast as they are answered, while eight streams run; every text is still the one without changes."""
    rng = random.Random(8)
    first = engine.next_generation()
    with Load(engine, PROMPTS, NUM_TOKENS) as load:
        began = time.monotonic()
        seconds = [deliver(engine, first + number, random_schedule(rng)) for number in range(RANDOM_CHANGES)]
        took_s = time.monotonic() - began
    record["random_changes"] = {
        "changes": RANDOM_CHANGES,
        "seconds": round(took_s, 1),
        "put_ms": summary(seconds),
        "answers": sum(map(len, load.answers)),
    }
    assert engine.alive()
    assert load.faults == []
    assert all(load.answers)
    assert [
        number for number, answers in enumerate(load.answers) if any(each != texts[number] for each in answers)
    ] == []
    assert engine.get().body["generation"] == first + RANDOM_CHANGES - 1
    assert quantiles(seconds, n=100)[98] < LONGEST_ROUND_TRIP_S  # one in 10,000 may meet the machine's other work
