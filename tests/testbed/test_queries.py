"""KEDA's queries, and the operator's own, answered by a real Prometheus that scrapes engines of every kind at once.

Each case is a namespace with engines of its own; a small server plays all of their metrics pages.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import pytest

from outrider.adapters.prometheus import Prometheus
from outrider.core.observation import Observation, observe
from outrider.core.series import Missing
from outrider.manifests import queries
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.pages import Pages
from tests.testbed.startup import TIMEOUT_S
from tests.unit.core.exposition import V0_6_3, V0_8_5, V0_9_2, V0_11, V0_33

SERVICE = "chat"
INTERVAL_S = 0.5
REPLICAS = ({"prometheus_replica": "a"}, {"prometheus_replica": "b"})
"""What two replicas of Prometheus add to every series; behind a querier that keeps doubles all of them come twice."""


def page(running: float, waiting: float, cache: float, engines: int = 1) -> str:
    """Gauges of a pod of a present version; each of its engines shows the same."""
    return "".join(
        f'vllm:num_requests_running{{engine="{engine}"}} {running}\n'
        f'vllm:num_requests_waiting{{engine="{engine}"}} {waiting}\n'
        f'vllm:kv_cache_usage_perc{{engine="{engine}"}} {cache}\n'
        for engine in range(engines)
    )


@dataclass(frozen=True, slots=True)
class Pod:
    """An engine pod as Prometheus finds it."""

    text: str
    """Its metrics page; empty while the engine does not answer yet."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the pod, in place of the usual ones."""
    scrapes: tuple[Mapping[str, str], ...] = ({},)
    """Labels of each scrape that finds it."""


@dataclass(frozen=True, slots=True)
class Case:
    """A fleet, and what each query answers: None for nothing at all."""

    name: str
    pods: tuple[Pod, ...]
    in_flight: float | None
    waiting: float | None
    cache_percent: float | None


ONE = Pod(page(5, 2, 0.4))
TWO_ENGINES = Pod(page(5, 2, 0.4, engines=2))
TRACK, SERVICE_LABEL = "serving_outrider_dev_track", "serving_outrider_dev_service"
CASES = (
    Case("no-pod", (), None, None, None),
    Case("loading", (Pod(""),), None, None, None),
    Case("one", (ONE,), 7, 2, 40),
    Case("idle", (Pod(page(0, 0, 0)),), 0, 0, 0),
    Case("three", (ONE, ONE, Pod(page(10, 0, 0.1))), 24, 4, 90),
    Case("one-with-two-engines", (TWO_ENGINES,), 14, 4, 40),
    Case("three-with-two-engines", (TWO_ENGINES,) * 3, 42, 12, 120),
    Case("c18-v0-6-3", (Pod(V0_6_3),), 5, 0, 12),
    Case("c18-v0-8-5-with-the-old-name", (Pod(V0_8_5),), 5, 0, 12),
    Case("c18-v0-9-2-with-both-names", (Pod(V0_9_2),), 5, 0, 12),
    Case("c18-v0-11-with-two-processes", (Pod(V0_11),), 5, 0, 12),
    Case("c18-v0-33-with-the-new-name", (Pod(V0_33),), 15, 4, 71),
    Case("c18-mixed-fleet", (Pod(V0_8_5), Pod(V0_33)), 20, 4, 83),
    Case("rollout-old-new-and-loading", (ONE, Pod(page(1, 0, 0.02)), Pod("")), 8, 2, 42),
    Case("candidate-is-no-replica", (ONE, Pod(page(50, 50, 1), {TRACK: "candidate"})), 7, 2, 40),
    Case("another-service", (ONE, Pod(page(50, 50, 1), {SERVICE_LABEL: "code"})), 7, 2, 40),
    Case("c28-one-of-two-does-not-answer", (ONE, Pod("")), 7, 2, 40),
    Case("two-replicas-of-prometheus", (Pod(page(5, 2, 0.4), scrapes=REPLICAS),), 7, 2, 40),
    Case("two-replicas-and-two-engines", (Pod(page(5, 2, 0.4, 2), scrapes=REPLICAS),) * 3, 42, 12, 120),
    Case("two-jobs", (Pod(page(5, 2, 0.4), scrapes=({}, {"endpoint": "admin"})),), 7, 2, 40),
)


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    """The server of all pages."""
    with Pages() as found:
        yield found


@pytest.fixture(scope="module")
def store(start_cluster: StartCluster, pages: Pages) -> Cluster:
    """A Prometheus that has scraped every pod of every case."""
    cluster = start_cluster({"prometheus"}, scrape_interval_s=INTERVAL_S)
    for case in CASES:
        for index, pod in enumerate(case.pods):
            scraped(cluster, pages, case.name, f"{SERVICE}-{index}", pod)
    wanted = sum(len(pod.scrapes) for case in CASES for pod in case.pods)
    cluster.wait_until("scrape of every pod", lambda: len(asked(cluster, "up{pod!=''} + 1")) == wanted)
    return cluster


def scraped(
    cluster: Cluster, pages: Pages, namespace: str, name: str, pod: Pod, text: Callable[[], str] | None = None
) -> None:
    """Have a pod scraped, with the labels that the PodMonitor gives it."""
    path = f"/{namespace}/{name}"
    pages.texts[path] = text or (lambda: pod.text)
    for number, extra in enumerate(pod.scrapes):
        labels = {
            "namespace": namespace, "pod": name, SERVICE_LABEL: SERVICE, TRACK: "stable", "__metrics_path__": path,
        }  # fmt: skip
        cluster.add_scrape_target(f"{namespace}-{name}-{number}", pages.address, {**labels, **pod.labels, **extra})


def asked(cluster: Cluster, query: str) -> list[dict[str, Any]]:
    """The elements of an instant query, asked as KEDA asks it."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1))
    text = urllib.parse.urlencode({"query": query, "time": moment})
    with urllib.request.urlopen(f"{cluster.prometheus_url}/api/v1/query?{text}", timeout=TIMEOUT_S) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def wait_for(store: Cluster, query: str, expected: float | None) -> None:
    """Wait for an answer of one element without labels and this value; None for an empty one.

    A scrape of a busy machine may miss an engine once.
    """

    def told() -> bool:
        elements = asked(store, query)
        values = [float(one["value"][1]) for one in elements]
        return not any(one["metric"] for one in elements) and values == pytest.approx(wanted)

    wanted = [] if expected is None else [expected]
    store.wait_until(f"{expected} in answer to {query}", told)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_each_query_answers_with_one_element_or_none(store: Cluster, case: Case) -> None:
    """None, and never zero, when no engine tells: KEDA then keeps the replicas."""
    for query, expected in (
        (queries.in_flight_requests, case.in_flight),
        (queries.waiting_requests, case.waiting),
        (queries.kv_cache_percent, case.cache_percent),
    ):
        wait_for(store, query(case.name, SERVICE), expected)


def test_a_fleet_whose_scrapes_begin_to_fail_is_no_idle_one(store: Cluster, pages: Pages) -> None:
    """C20: the series end at the next scrape, and the answer is empty."""
    scraped(store, pages, "lost", "chat-0", ONE)
    query = queries.in_flight_requests("lost", SERVICE)
    store.wait_until("answer", lambda: bool(asked(store, query)))
    pages.texts["/lost/chat-0"] = str
    store.wait_until("empty answer", lambda: asked(store, query) == [])


def test_a_pod_that_goes_takes_its_load_along(store: Cluster, pages: Pages) -> None:
    scraped(store, pages, "shrinking", "chat-0", ONE)
    scraped(store, pages, "shrinking", "chat-1", ONE)
    query = queries.in_flight_requests("shrinking", SERVICE)
    store.wait_until("both", lambda: [one["value"][1] for one in asked(store, query)] == ["14"])
    pages.texts["/shrinking/chat-1"] = str
    store.wait_until("one", lambda: [one["value"][1] for one in asked(store, query)] == ["7"])


OPERATOR = "outrider-system"
HELD = (None, "1", "1000", "NaN", "1000", None)
"""What the operator holds of every case, one after the other: NaN is a number that it has not told for minutes."""


def seen(in_flight: float | None, held: str | None) -> float | None:
    """What the main trigger is to see."""
    if not in_flight or held in (None, "NaN"):
        return in_flight
    return max(in_flight, float(held or 0))


def all_say(store: Cluster, turn: int) -> bool:
    """Whether each replica of the operator was scraped since it tells of this turn."""
    return len(asked(store, f"turn == {turn}")) == len(REPLICAS)


def test_the_main_trigger_sees_one_element_whatever_the_operator_holds(store: Cluster, pages: Pages) -> None:
    """The load alone without the operator or with an old number, and nothing where no engine tells."""
    texts = [""]
    scraped(store, pages, OPERATOR, "operator", Pod("", scrapes=REPLICAS), lambda: texts[-1])
    for turn, held in enumerate(HELD):
        lines = [f'outrider_held_requests{{namespace="{case.name}",service="{SERVICE}"}} {held}' for case in CASES]
        texts.append("\n".join([f"turn {turn}", *([] if held is None else lines), ""]))
        store.wait_until("its scrape", partial(all_say, store, turn))
        for case in CASES:
            wait_for(store, queries.in_flight_or_held(case.name, SERVICE), seen(case.in_flight, held))


SCRAPES = 10
"""Length of the window."""
RATE = 1000.0
"""Tokens a second of the busy engine below."""


def busy(began_s: float) -> str:
    """An engine at work: 8 requests, drafts of 3 tokens of which 2 are accepted."""
    count = RATE * (time.time() - began_s)
    drafts, steps = count / 3, count / 24
    lines = [
        'vllm:num_requests_running{engine="0"} 8', 'vllm:num_requests_waiting{engine="0"} 1',
        'vllm:kv_cache_usage_perc{engine="0"} 0.5', f'vllm:generation_tokens_total{{engine="0"}} {count}',
        f'vllm:spec_decode_num_drafts_total{{engine="0"}} {drafts}',
        f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {3 * drafts}',
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {2 * drafts}',
        *(f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{position}"}} {accepted}'
          for position, accepted in enumerate((drafts, drafts * 0.6, drafts * 0.4))),
        *(f'outrider_engine_draft_tokens_per_pos_total{{engine="0",position="{position}"}} {drafts}'
          for position in range(3)),
        *(f'{name}{{engine="0",batch="8",speculative_tokens="3",kind="decode"}} {value}' for name, value in (
            ("outrider_engine_steps_total", steps), ("outrider_engine_step_seconds_total", steps * 0.024),
            ("outrider_engine_step_requests_total", steps * 8))),
        f'vllm:request_time_per_output_token_seconds_bucket{{engine="0",le="0.05"}} {count / 100}',
        f'vllm:request_time_per_output_token_seconds_bucket{{engine="0",le="+Inf"}} {count / 100}',
        f'vllm:request_time_per_output_token_seconds_count{{engine="0"}} {count / 100}',
        f'vllm:request_time_per_output_token_seconds_sum{{engine="0"}} {count / 3000}',
        f"process_start_time_seconds {began_s}",
    ]  # fmt: skip
    return "\n".join(lines)


@pytest.fixture(scope="module")
def observed(store: Cluster, pages: Pages) -> dict[str, Observation]:
    """What the control loop sees of two pods, each found once, and of the same found by two replicas."""
    began_s = time.time()
    for (namespace, scrapes), pod in product({"single": ({},), "double": REPLICAS}.items(), ("chat-a", "chat-b")):
        scraped(store, pages, namespace, pod, Pod("", scrapes=scrapes), lambda: busy(began_s))
    scrapes_so_far = 'min(count_over_time(vllm:generation_tokens_total{namespace=~"single|double"}[1m]))'

    def enough() -> bool:
        return any(float(one["value"][1]) > SCRAPES + 4 for one in asked(store, scrapes_so_far))

    store.wait_until("scrapes for a window", enough)
    found: dict[str, Observation] = {}

    def whole() -> bool:
        """Whether the store keeps doubles, and what is observed now misses no engine: it may have stood still."""
        now_s = time.time()
        series = asyncio.run(Prometheus(store.prometheus_url).engine_series((SCRAPES + 4) * INTERVAL_S, now_s))
        if len(series["double", SERVICE]) != 2 * len(series["single", SERVICE]):
            return False
        for name in ("single", "double"):
            one = observe(series[name, SERVICE], now_s - SCRAPES * INTERVAL_S, now_s)
            if isinstance(one, Missing) or one.left_out:
                return False
            found[name] = one
        return True

    store.wait_until("observations", whole)
    return found


def test_control_sees_what_two_replicas_of_prometheus_tell_once(observed: dict[str, Observation]) -> None:
    """Two scrapes are never at one moment, so counters differ a little; counted twice they would be twice as high."""
    single, double = observed["single"], observed["double"]
    assert len(double.engines) == len(single.engines) == 2
    assert (double.running, double.waiting, double.kv_cache_usage) == (16, 2, 0.5)
    for one in (single, double):
        assert one.batch == pytest.approx(8.0)
        assert one.acceptance_rate == pytest.approx(2 / 3)
        assert len(one.cells) == 1
    for name in ("generation_tokens", "num_drafts", "num_draft_tokens", "num_accepted_tokens"):
        assert getattr(double, name) == pytest.approx(getattr(single, name), rel=0.5)
    assert double.cells[0].steps == pytest.approx(single.cells[0].steps, rel=0.5)
    assert double.drafted_per_pos == pytest.approx(single.drafted_per_pos, rel=0.5)
    assert double.tpot.count == pytest.approx(single.tpot.count, rel=0.5)
