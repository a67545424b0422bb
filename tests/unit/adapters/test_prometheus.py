"""Queries to Prometheus, and what its answers become: samples with their own times, or an error that says what is
wrong."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from email.utils import formatdate
from typing import Any

import pytest
from aiohttp import web

from outrider.adapters.prometheus import COMPARED, GLANCES, GROUPS, Prometheus, comparison_queries, queries
from outrider.core import engine_metrics as names
from outrider.core.glance import GLANCED
from outrider.core.series import Series
from outrider.errors import Malformed, MetricsError, Unreachable
from tests.failures import Failure

from .servers import Answer, Server, answer, hang, hang_up, pieces, serving

AT_S = 1_800_000_000.0
LABELS = {
    "__name__": "vllm:generation_tokens_total",
    "namespace": "ml",
    "pod": "chat-a",
    "engine": "0",
    "serving_outrider_dev_service": "chat",
    "serving_outrider_dev_track": "stable",
}


def matrix(*rows: tuple[dict[str, str], list[list[Any]]]) -> Any:
    """An answer in the form of a range vector."""
    result: list[dict[str, Any]] = [{"metric": LABELS | labels, "values": values} for labels, values in rows]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def other(result_type: str, result: Any) -> Any:
    return {"status": "success", "data": {"resultType": result_type, "result": result}}


def first_only(body: Any) -> Answer:
    """The first query gets this answer, the others find nothing."""
    empty = iter([answer(body=body)])

    async def give(request: Any) -> Any:
        return await next(empty, answer(body=matrix()))(request)

    return give


async def ask(
    give: Answer, window_s: float = 40.0, timeout_s: float = 60.0
) -> tuple[dict[tuple[str, str], list[Series]], Server]:
    async with serving(give) as server:
        return await Prometheus(server.url, timeout_s=timeout_s).engine_series(window_s, AT_S), server


class TestQueries:
    def test_there_is_one_for_each_family_and_none_for_a_service(self) -> None:
        assert len(queries(40.0)) == len(GROUPS) == 3

    @pytest.mark.parametrize("query", queries(40.0))
    def test_they_ask_for_raw_samples_of_stable_engines_of_all_services(self, query: str) -> None:
        assert re.fullmatch(
            r'\{__name__=~"[a-z_:|]+",serving_outrider_dev_service!="",namespace!="",'
            r'serving_outrider_dev_track="stable"\}\[40s\]',
            query,
        )

    @pytest.mark.parametrize(
        "name",
        [
            *names.NUM_DRAFTS, *names.NUM_DRAFT_TOKENS, *names.NUM_ACCEPTED_TOKENS_PER_POS, *names.DRAFT_TOKENS_PER_POS,
            *names.GENERATION_TOKENS, *names.PROMPT_TOKENS, *names.NUM_PREEMPTIONS, *names.NUM_REQUESTS_RUNNING,
            *names.NUM_REQUESTS_WAITING, *names.KV_CACHE_USAGE, *names.CACHE_CONFIG, *names.PROCESS_START,
            *names.STEPS, *names.STEP_SECONDS, *names.STEP_REQUESTS,
            *(name + suffix for name in names.TPOT + names.TTFT for suffix in ("_bucket", "_sum", "_count")),
        ],
    )  # fmt: skip
    def test_every_metric_that_an_observation_reads_is_asked_for_once(self, name: str) -> None:
        asked = [part for query in queries(40.0) for part in query.split('"')[1].split("|")]
        assert asked.count(name) == 1

    def test_windows_are_whole_seconds_and_never_too_short(self) -> None:
        assert all(query.endswith("[31s]") for query in queries(30.2))

    def test_of_some_services_these_alone_are_asked_for_by_their_whole_names(self) -> None:
        found = queries(40.0, [("ml", "chat"), ("ml", "code.v2"), ("dev", "chat")])
        assert len(found) == len(GROUPS)
        for query in found:
            assert 'namespace=~"dev|ml"' in query
            assert 'serving_outrider_dev_service=~"chat|code[.]v2"' in query

    async def test_a_glance_is_few_calls_at_one_moment_for_the_few_families_that_it_needs(self) -> None:
        async with serving(answer(body=matrix())) as server:
            await Prometheus(server.url).glance(10.0, AT_S)
        asked = [one.query["query"] for one in server.asked]
        assert len(asked) == len(GLANCES)
        assert all(query.endswith('serving_outrider_dev_track="stable"}[10s]') for query in asked)
        assert sorted(name for query in asked for name in query.split('"')[1].split("|")) == sorted(GLANCED)
        assert {one.query["time"] for one in server.asked} == {"1800000000.000"}

    async def test_a_fetch_is_that_many_calls_all_at_one_moment(self) -> None:
        _, server = await ask(answer(body=matrix()))
        assert [(one.method, one.path) for one in server.asked] == [("POST", "/api/v1/query")] * len(GROUPS)
        assert {one.query["time"] for one in server.asked} == {"1800000000.000"}
        assert sorted(one.query["query"] for one in server.asked) == sorted(queries(40.0))


class TestComparisons:
    SERVICES = (("ml", "chat"), ("ml", "code"), ("team.b", "chat.v2"))

    @pytest.mark.parametrize("services", [SERVICES[:1], SERVICES])
    def test_there_are_as_many_queries_for_many_services_as_for_one(self, services: list[tuple[str, str]]) -> None:
        assert len(comparison_queries(services, 40.0)) == len(COMPARED) == len(GROUPS) + 1

    def test_they_ask_for_both_tracks_of_these_services_alone(self) -> None:
        for query in comparison_queries(self.SERVICES, 40.0):
            assert query.endswith(
                r'serving_outrider_dev_service=~"chat|chat[.]v2|code",namespace=~"ml|team[.]b",'
                'serving_outrider_dev_track!=""}[40s]'
            )

    @pytest.mark.parametrize(
        "name",
        [
            *names.FINISHED,
            *names.HTTP_REQUESTS,
            *(name + suffix for name in names.ANSWER_TOKENS for suffix in ("_bucket", "_sum")),
            *names.GENERATION_TOKENS,
        ],
    )
    def test_every_metric_that_a_comparison_reads_is_asked_for_once(self, name: str) -> None:
        queries = comparison_queries(self.SERVICES, 40.0)
        assert [part for query in queries for part in query.split('"')[1].split("|")].count(name) == 1

    async def test_services_of_the_same_name_elsewhere_are_left_out(self) -> None:
        rows = matrix(*(({"namespace": space}, [[AT_S - 5, "1"], [AT_S, "2"]]) for space in ("ml", "other")))
        async with serving(first_only(rows)) as server:
            found = await Prometheus(server.url).compared_series([("ml", "chat"), ("other", "code")], 40.0, AT_S)
        assert list(found) == [("ml", "chat")]
        assert len(server.asked) == len(COMPARED)


class TestAnswers:
    async def test_samples_come_by_service_with_their_own_times(self) -> None:
        found, _ = await ask(
            first_only(
                matrix(
                    ({}, [[AT_S - 5.5, "10"], [AT_S - 0.5, "12.5"]]),
                    ({"serving_outrider_dev_service": "code", "pod": "code-a"}, [[AT_S, "1e3"]]),
                    ({"namespace": "other"}, [[AT_S, "7"]]),
                )
            )
        )
        assert set(found) == {("ml", "chat"), ("ml", "code"), ("other", "chat")}
        (series,) = found["ml", "chat"]
        assert series.name == "vllm:generation_tokens_total"
        assert series.labels["pod"] == "chat-a"
        assert series.samples == ((AT_S - 5.5, 10.0), (AT_S - 0.5, 12.5))

    @pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "1e150", "-9.1e15"])
    async def test_values_that_are_no_numbers_stop_here(self, text: str) -> None:
        found, _ = await ask(first_only(matrix(({}, [[AT_S - 5, "1"], [AT_S, text]]))))
        assert found["ml", "chat"][0].samples == ((AT_S - 5, 1.0),)

    async def test_a_series_of_nothing_else_is_no_series(self) -> None:
        found, _ = await ask(first_only(matrix(({}, [[AT_S, "NaN"]]))))
        assert found == {}

    async def test_no_series_at_all_is_an_answer(self) -> None:
        found, _ = await ask(answer(body=matrix()))
        assert found == {}


class TestErrors:
    @pytest.mark.parametrize(
        ("give", "error"),
        [
            pytest.param(answer(503, text="Service Unavailable"), Unreachable, id="it is overloaded"),
            pytest.param(answer(500, text=""), Unreachable, id="it is broken"),
            pytest.param(hang_up, Unreachable, id="it hangs up"),
            pytest.param(answer(text="<html>Please log in</html>"), Malformed, id="a proxy's page"),
            pytest.param(answer(text=""), Malformed, id="nothing"),
            pytest.param(answer(body={"status": "error", "error": "bad"}), Malformed, id="an error in a success"),
            pytest.param(answer(body=["a list"]), Malformed, id="another form"),
            pytest.param(answer(body={"data": None}), Malformed, id="no data"),
            pytest.param(answer(body=other("matrix", None)), Malformed, id="no result"),
            pytest.param(
                answer(body=other("vector", [{"metric": LABELS, "value": [AT_S, "1"]}])),
                Malformed,
                id="an instant vector",
            ),
            pytest.param(answer(body=other("scalar", [AT_S, "1"])), Malformed, id="a scalar"),
            pytest.param(answer(body=other("string", [AT_S, "one"])), Malformed, id="a string"),
            pytest.param(answer(body=matrix(({}, [[AT_S, "many"]]))), Malformed, id="a value that is none"),
            pytest.param(answer(body=matrix(({}, [[AT_S]]))), Malformed, id="half a sample"),
            pytest.param(
                answer(body=other("matrix", [{"metric": {"__name__": "up"}, "values": [[AT_S, "1"]]}])),
                Malformed,
                id="a series without the labels that were asked for",
            ),
        ],
    )  # fmt: skip
    async def test_each_becomes_what_the_caller_should_do(self, give: Answer, error: type[MetricsError]) -> None:
        with pytest.raises(MetricsError) as caught:
            await ask(give)
        assert type(caught.value) is error
        assert caught.value.message.startswith("Prometheus at http://127.0.0.1:")

    @pytest.mark.failure(
        "Prometheus",
        "answers one of three questions with nonsense",
        k="held",
        replicas="held",
        conditions=["MetricsAvailable False PrometheusMalformed"],
        alerts=["OutriderMetricsMissing"],
        ends="next pass",
        guard="adapters/prometheus.py:_row",
    )
    async def test_one_bad_answer_of_several_spoils_the_fetch(self) -> None:
        """Half of the families would look like engines that do nothing."""
        with pytest.raises(Malformed):
            await ask(first_only(other("scalar", [AT_S, "1"])))

    async def test_nobody_listens(self) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            with pytest.raises(Unreachable) as caught:
                await Prometheus(url).engine_series(40.0, AT_S)
        assert caught.value.reason == "PrometheusUnreachable"
        assert "object at 0x" not in caught.value.message

    @pytest.mark.failure(
        "Prometheus",
        "slow, or its answer trickles",
        k="held",
        conditions=["MetricsAvailable False PrometheusUnreachable"],
        status="the question is given up",
        alerts=["OutriderMetricsMissing"],
        ends="next pass",
        guard="adapters/prometheus.py:Prometheus._query",
    )
    @pytest.mark.parametrize(
        "give",
        [
            pytest.param(hang, id="no answer"),
            pytest.param(pieces(*[b"x"] * 1200, pause_s=0.05), id="an answer that trickles for a minute"),
        ],
    )
    async def test_a_slow_answer_is_given_up(self, give: Answer) -> None:
        async with serving(give) as server, asyncio.timeout(30):
            with pytest.raises(Unreachable):
                await Prometheus(server.url, timeout_s=0.2).engine_series(40.0, AT_S)


def dated(seconds: float | None) -> Answer:
    """An answer whose sender's clock is so far from ours; None: it does not tell."""

    async def give(_: web.Request) -> web.StreamResponse:
        response = web.json_response(matrix(({}, [[AT_S, "1"]])))
        if seconds is not None:
            response.headers["Date"] = formatdate(time.time() + seconds, usegmt=True)
        else:
            response.headers["Date"] = "today"
        return response

    return give


class TestClock:
    @pytest.mark.failure(
        "Prometheus",
        "its clock, or ours, is ahead",
        k="held",
        replicas="held",
        conditions=["MetricsAvailable False PrometheusClock"],
        alerts=["OutriderMetricsMissing"],
        ends="with the clocks, at the next pass",
        guard="adapters/prometheus.py:Prometheus._same_time",
    )
    @pytest.mark.parametrize(
        ("seconds", "words"),
        [
            pytest.param(3600.0, "s ahead of the operator's", id="its own is: the last minute would be an hour old"),
            pytest.param(-40.0, "s behind the operator's", id="ours is"),
        ],
    )
    async def test_a_store_that_lives_in_another_time_is_not_believed(
        self, seconds: float, words: str, failure: Failure
    ) -> None:
        with pytest.raises(MetricsError, match=words) as caught:
            await ask(dated(seconds))
        assert caught.value.reason == failure.condition("MetricsAvailable")[1]

    @pytest.mark.parametrize("seconds", [-20.0, 0.0, 20.0, None])
    async def test_a_few_seconds_or_no_word_of_time_are_no_fault(self, seconds: float | None) -> None:
        found, _ = await ask(dated(seconds))
        assert list(found) == [("ml", "chat")]
