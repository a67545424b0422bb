"""An engine container's two listeners, over HTTP on the loopback interface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from outrider.simulator.behaviour import NORMAL, Behaviour
from outrider.simulator.live import LiveEngine
from outrider.simulator.server import EngineServer
from outrider.simulator.settings import Plugin
from tests.unit.simulator.builders import free_port, profile, request, settings

ADDRESS = "127.0.0.1"
KEY = {"Authorization": "Bearer second"}
SCHEDULE = {"generation": 4, "schedule": [[1, 256, 1]], "leaseSeconds": 60}

Start = Callable[..., Awaitable["Client"]]


class Client:
    """Calls one engine."""

    def __init__(self, live: LiveEngine, server: EngineServer, session: aiohttp.ClientSession) -> None:
        self.live, self.server, self._session = live, server, session
        plugin = live.settings.plugin
        self._ports = {"http": live.settings.port, "admin": plugin.admin_port if plugin else 0}

    async def call(self, method: str, path: str, *, port: str = "http", **options: Any) -> tuple[int, Any]:
        async with self._session.request(method, f"http://{ADDRESS}:{self._ports[port]}{path}", **options) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith(("{", "[")) else text

    async def complete(self, **body: object) -> tuple[int, Any]:
        return await self.call("POST", "/v1/completions", json={"model": "chat", "prompt": "a b c"} | body)

    async def metric(self, name: str) -> float:
        _, page = await self.call("GET", "/metrics")
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith((f"{name} ", f"{name}{{"))
        )


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts an engine; ``files`` and settings as the test needs them."""
    servers: list[EngineServer] = []
    async with aiohttp.ClientSession() as session:

        async def begin(
            files: dict[str, str] | None = None, dilation: float = 1.0, behaviour: Behaviour = NORMAL, **changes: Any
        ) -> Client:
            plugin = Plugin(free_port(), key_file="/key", schedule_file="/schedule.json")
            chosen: dict[str, Any] = {"port": free_port(), "plugin": plugin, "max_model_len": 4096} | changes
            live = LiveEngine(
                settings(3, **chosen),
                profile().slowed(dilation),
                seed=1,
                files={"/key": "first\nsecond\n"} if files is None else files,
                behaviour=behaviour,
            )
            server = EngineServer(live)
            servers.append(server)
            await server.start(ADDRESS)
            return Client(live, server, session)

        yield begin
        for server in servers:
            await server.close()


async def test_open_routes(start: Start) -> None:
    engine = await start()
    assert await engine.call("GET", "/health") == (200, "")
    assert await engine.call("GET", "/version") == (200, {"version": "0.33.0"})
    assert (await engine.call("GET", "/v1/models"))[1]["data"][0]["id"] == "chat"
    assert (await engine.call("GET", "/ready"))[0] == 404  # a real engine has it on the admin port alone
    assert (await engine.call("GET", "/ready", port="admin")) == (200, {"ready": True, "reason": ""})


async def test_a_completion_has_the_tokens_that_were_asked_for(start: Start) -> None:
    engine = await start()
    status, body = await engine.complete(max_tokens=12, ignore_eos=True)
    assert status == 200
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 12, "total_tokens": 15}
    assert len(body["choices"][0]["text"].split()) == 12
    assert body["choices"][0]["finish_reason"] == "length"
    assert await engine.metric("vllm:generation_tokens_total") == 12


async def test_a_chat_without_a_limit_ends_by_itself(start: Start) -> None:
    engine = await start()
    message = {"role": "user", "content": "how are you"}
    status, body = await engine.call("POST", "/v1/chat/completions", json={"model": "chat", "messages": [message]})
    assert status == 200
    assert (body["object"], body["choices"][0]["finish_reason"]) == ("chat.completion", "stop")
    assert body["usage"]["prompt_tokens"] == 7


async def test_a_stream_has_one_part_a_step_and_no_more_tokens_than_were_drafted(start: Start) -> None:
    engine = await start()
    status, text = await engine.complete(max_tokens=40, stream=True, stream_options={"include_usage": True})
    assert status == 200
    *parts, done = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert done == "[DONE]"
    documents = [json.loads(part) for part in parts]
    assert documents[-1]["usage"]["completion_tokens"] == 40
    sizes = [len(one["choices"][0]["text"].split()) for one in documents[:-2]]
    assert sum(sizes) == 40
    assert sizes[0] == 1
    assert max(sizes) <= 4
    assert documents[-2]["choices"][0]["finish_reason"] == "length"


async def test_a_request_that_fails_in_the_engine_is_a_fault_of_the_server(start: Start) -> None:
    engine = await start(behaviour=Behaviour(error=1.0))
    status, body = await engine.complete(max_tokens=40)
    assert (status, body["error"]["type"]) == (500, "InternalServerError")
    status, text = await engine.complete(max_tokens=40, stream=True)
    assert status == 200  # it was sent before the fault
    assert '"code":500' in text
    assert text.endswith("data: [DONE]\n\n")
    _, page = await engine.call("GET", "/metrics")
    assert 'vllm:request_success_total{engine="0",finished_reason="error",model_name="chat"} 2.0' in page
    assert engine.live.answered == 2


async def test_an_answer_that_is_empty_has_one_token(start: Start) -> None:
    engine = await start(behaviour=Behaviour(empty=1.0))
    _, body = await engine.complete(max_tokens=40)
    assert (body["usage"]["completion_tokens"], body["choices"][0]["finish_reason"]) == (1, "stop")
    _, page = await engine.call("GET", "/metrics")
    assert 'vllm:request_generation_tokens_bucket{engine="0",le="1.0",model_name="chat"} 1.0' in page


async def test_acceptance_travels_with_the_request(start: Start) -> None:
    engine = await start()
    await engine.complete(max_tokens=50, vllm_xargs={"simulated_acceptance": "0,0,0"})
    assert await engine.metric("vllm:spec_decode_num_accepted_tokens_total") == 0
    await engine.complete(max_tokens=51, vllm_xargs={"simulated_acceptance": "1,1,1"})
    accepted = await engine.metric("vllm:spec_decode_num_accepted_tokens_total")
    assert accepted == await engine.metric("vllm:spec_decode_num_draft_tokens_total") - 3 * 49


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        pytest.param({"model": "other"}, 404, "does not exist", id="another model"),
        pytest.param({"prompt": ""}, 400, "prompt", id="no prompt"),
        pytest.param({"prompt": ["a", "b"]}, 400, "one prompt", id="several prompts"),
        pytest.param({"max_tokens": 0}, 400, "at least 1", id="no tokens"),
        pytest.param({"max_tokens": "many"}, 400, "at least 1", id="a word for a number"),
        pytest.param({"max_tokens": 4096}, 400, "maximum context length", id="more than the model holds"),
        pytest.param({"min_p": 0.1}, 400, "not supported while speculative", id="min_p"),
        pytest.param({"n": 2}, 400, "n above 1", id="several samples"),
        pytest.param({"vllm_xargs": {"simulated_acceptance": "x"}}, 400, "numbers", id="acceptance in words"),
        pytest.param({"vllm_xargs": {"simulated_acceptance": "0.1,0.2"}}, 400, "not increase", id="rising acceptance"),
    ],
)
async def test_bad_requests(start: Start, body: dict[str, object], status: int, words: str) -> None:
    answer = await (await start()).complete(**body)
    assert answer[0] == status
    assert words in answer[1]["error"]["message"]
    assert answer[1]["error"]["code"] == status


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"{", id="broken"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(b"[" * 100_000, id="deeper than a parser goes"),
        pytest.param(b"9" * 5000, id="more digits than a parser takes"),
    ],
)
async def test_a_body_that_is_no_json_is_a_fault_of_the_sender(start: Start, data: bytes) -> None:
    engine = await start()
    assert (await engine.call("POST", "/v1/completions", data=data))[0] == 400
    assert (await engine.call("PUT", "/schedule", port="admin", headers=KEY, data=data))[0] == 422


async def test_an_api_key_guards_v1_and_nothing_else(start: Start) -> None:
    engine = await start(api_keys=("user-key",))
    assert (await engine.complete())[0] == 401
    assert (await engine.call("GET", "/metrics"))[0] == 200
    allowed = {"Authorization": "Bearer user-key"}
    assert (await engine.call("GET", "/v1/models", headers=allowed))[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 401, id="no key"),
        pytest.param({"Authorization": "Bearer wrong"}, 401, id="another key"),
        pytest.param({"Authorization": "Bearer first"}, 200, id="the first line of the file"),
        pytest.param({"Authorization": "Bearer second"}, 200, id="the second line"),
        pytest.param({"Authorization": "Bearer "}, 401, id="an empty key"),
        pytest.param({"Authorization": "Bearer \udcff"}, 401, id="a key that is no text"),
    ],
)
async def test_the_admin_port_is_guarded_by_its_own_keys(start: Start, headers: dict[str, str], status: int) -> None:
    engine = await start()
    assert (await engine.call("GET", "/schedule", port="admin", headers=headers))[0] == status


async def test_without_a_mounted_key_nobody_gets_in(start: Start) -> None:
    engine = await start(files={})
    assert (await engine.call("GET", "/schedule", port="admin", headers=KEY))[0] == 401


async def test_a_schedule_is_put_and_read_back(start: Start) -> None:
    engine = await start()
    status, body = await engine.call("PUT", "/schedule", port="admin", headers=KEY, json=SCHEDULE)
    assert (status, body["effective"]) == (200, [1] * 256)
    stale = SCHEDULE | {"generation": 3}
    assert (await engine.call("PUT", "/schedule", port="admin", headers=KEY, json=stale))[0] == 409
    status, body = await engine.call("PUT", "/schedule", port="admin", headers=KEY, data=b"{nonsense")
    assert (status, bool(body["faults"])) == (422, True)
    _, state = await engine.call("GET", "/schedule", port="admin", headers=KEY)
    assert (state["generation"], state["schedule"], state["vllmVersion"]) == (4, [[1, 256, 1]], "0.33.0")
    assert await engine.metric("outrider_engine_schedule_generation") == 4


async def test_a_lease_without_end_is_refused_with_its_name(start: Start) -> None:
    engine = await start()
    endless = json.dumps(SCHEDULE | {"leaseSeconds": float("inf")})
    status, body = await engine.call("PUT", "/schedule", port="admin", headers=KEY, data=endless)
    assert status == 422
    assert body["faults"] == ["leaseSeconds is inf; it must be a number above 0, at most 604800"]
    assert await engine.metric("outrider_engine_schedule_initial") == 1


async def test_a_lease_that_runs_out_between_two_looks_is_over_in_the_metrics(start: Start) -> None:
    engine = await start()
    await engine.call("PUT", "/schedule", port="admin", headers=KEY, json=SCHEDULE | {"leaseSeconds": 0.01})
    async with asyncio.timeout(60):
        while await engine.metric("outrider_engine_schedule_initial") == 0:
            pass
    assert await engine.metric("outrider_engine_schedule_generation") == 4
    assert engine.live.engine.schedule.at(1) == 3


async def test_the_mounted_document_is_taken_at_the_start_and_when_it_changes(start: Start) -> None:
    files = {"/key": "second", "/schedule.json": json.dumps(SCHEDULE)}
    engine = await start(files=files)
    assert engine.live.admin.generation == 4
    files["/schedule.json"] = "{half a document"
    engine.live.refresh()
    assert engine.live.admin.generation == 4
    files["/schedule.json"] = json.dumps(SCHEDULE | {"generation": 5})
    engine.live.refresh()
    assert engine.live.admin.generation == 5


async def test_while_draining_new_requests_get_an_empty_success_and_running_ones_finish(start: Start) -> None:
    engine = await start(dilation=2.0)
    running = asyncio.create_task(engine.complete(max_tokens=100))
    while not engine.live.in_flight:  # noqa: ASYNC110 - the request is on its way through the socket
        await asyncio.sleep(0)
    engine.live.draining = True
    status, body = await engine.complete()
    assert (status, body["choices"][0]["finish_reason"], body["usage"]["completion_tokens"]) == (200, "abort", 0)
    assert await engine.complete(stream=True) == (200, "data: [DONE]\n\n")
    assert (await engine.call("PUT", "/schedule", port="admin", headers=KEY, json=SCHEDULE))[0] == 503
    assert (await engine.call("GET", "/health"))[0] == 200
    assert (await running)[1]["usage"]["completion_tokens"] == 100
    await engine.live.idle.wait()


async def test_a_client_that_hangs_up_frees_its_place(start: Start) -> None:
    engine = await start(dilation=50.0)
    running = asyncio.create_task(engine.complete(max_tokens=3000))
    while not engine.live.in_flight:  # noqa: ASYNC110
        await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(60):
        await engine.live.idle.wait()
    assert engine.live.engine.counters.finished["abort"] == 0  # as in vLLM: nobody is there to be answered


async def test_a_plain_engine_has_no_admin_port(start: Start) -> None:
    engine = await start(plugin=None)
    assert (await engine.call("GET", "/health"))[0] == 200
    assert await engine.metric("outrider_engine_controllable") == 0
    assert len(engine.server._runners) == 1


async def test_an_engine_d_times_slower_reports_times_d_times_longer(start: Start) -> None:
    engine = await start(dilation=4.0)
    await engine.complete(prompt=[1] * 512, max_tokens=1)
    ttft_s = await engine.metric("vllm:time_to_first_token_seconds_sum")
    passes_s = 3 * profile().draft_pass_s
    assert ttft_s == pytest.approx(4 * (profile().prefill_time_s(512) + passes_s), rel=0.01)


async def test_a_late_loop_does_not_show_in_the_metrics() -> None:
    now_s = 100.0
    live = LiveEngine(settings(3), profile(), seed=1, files={}, now=lambda: now_s)
    live.engine.submit(request(at=now_s, output=1500), now_s)
    now_s = 105.0  # as if the loop had been busy for five seconds
    live.poke()
    assert live.engine.counters.histograms["vllm:inter_token_latency_seconds"].sum < 5
    assert live.engine.counters.generation_tokens == 1500
    assert live.engine.counters.stalls == 0
    live.close()
