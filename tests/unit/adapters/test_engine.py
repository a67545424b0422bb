"""The admin port of an engine: what is sent, and what each answer becomes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import SystemRandom
from typing import Any

import pytest

from outrider.adapters.engine import ADMIN_PORT, MAX_BODY, Acknowledgement, EngineAdmin, schedule_document
from outrider.core.schedule import parse_text
from outrider.errors import (
    EngineError,
    EngineUnreachable,
    KeyRefused,
    NotControllable,
    ScheduleRefused,
    StaleGeneration,
)
from outrider.manifests import config_maps

from .servers import Answer, Server, answer, hang, hang_up, pieces, serving

SCHEDULE = parse_text("1-24:5 25-64:3 65-256:1")
TAKEN = {"generation": 17, "schedule": SCHEDULE.as_lists(), "effective": [5] * 24 + [3] * 40 + [1] * 192}


def address() -> str:
    """A loopback address of its own, as a pod has: the port is always the same."""
    numbers = SystemRandom()
    return f"127.{numbers.randint(64, 127)}.{numbers.randint(0, 255)}.{numbers.randint(1, 254)}"


@asynccontextmanager
async def engine(give: Answer, timeout_s: float = 60.0) -> AsyncIterator[tuple[EngineAdmin, str, Server]]:
    """An engine that gives this answer, and a client."""
    where = address()
    client = EngineAdmin(timeout_s=timeout_s)
    try:
        async with serving(give, where, ADMIN_PORT) as server:
            yield client, where, server
    finally:
        await client.close()


async def put(give: Answer, timeout_s: float = 60.0) -> Acknowledgement:
    async with engine(give, timeout_s) as (client, where, _):
        return await client.put_schedule(where, "secret-key", 17, SCHEDULE, 3600)


async def refused(give: Answer, timeout_s: float = 60.0) -> tuple[EngineError, str]:
    """The error that an answer becomes, and its message without the engine's address."""
    async with engine(give, timeout_s) as (client, where, _):
        with pytest.raises(EngineError) as caught:
            await client.put_schedule(where, "secret-key", 17, SCHEDULE, 3600)
    assert caught.value.message.startswith(f"engine {where}: ")
    return caught.value, caught.value.message.removeprefix(f"engine {where}: ")


async def test_the_schedule_goes_out_as_the_contract_has_it() -> None:
    async with engine(answer(body=TAKEN)) as (client, where, server):
        await client.put_schedule(where, "secret-key", 17, SCHEDULE, 3600)
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("PUT", "/schedule")
    assert asked.headers["Authorization"] == "Bearer secret-key"
    assert asked.body == {"generation": 17, "schedule": [[1, 24, 5], [25, 64, 3], [65, 256, 1]], "leaseSeconds": 3600}


def test_put_and_mounted_document_are_the_same() -> None:
    assert schedule_document(17, SCHEDULE, 3600) == config_maps.schedule_document(17, SCHEDULE, 3600)


async def test_an_acknowledgement() -> None:
    taken = await put(answer(body=TAKEN))
    assert taken.generation == 17
    assert 0.0 < taken.seconds < 5.0


async def test_an_answer_may_come_in_several_packets() -> None:
    """An effective table of 1024 batch sizes fills three of them."""
    text = json.dumps({**TAKEN, "effective": [5] * 1024}).encode()
    assert (await put(pieces(text[:1400], text[1400:2800], text[2800:]))).generation == 17


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        pytest.param(401, {"error": "unknown key"}, KeyRefused, "unknown key", id="another key"),
        pytest.param(
            409, {"error": "generation 18 is newer", "generation": 18}, StaleGeneration, "generation 18 is newer",
            id="it has a later schedule",
        ),
        pytest.param(
            422, {"error": "not a schedule", "faults": ["row 1", "row 2"]}, ScheduleRefused, "not a schedule",
            id="it cannot run this one",
        ),
        pytest.param(
            503, {"error": "not controllable", "reason": "vLLM 0.34 is not known"}, NotControllable,
            "vLLM 0.34 is not known", id="it takes none",
        ),
        pytest.param(503, {"error": "starting"}, EngineUnreachable, "starting", id="it is not up yet"),
        pytest.param(500, {}, EngineUnreachable, "HTTP 500", id="it is broken"),
        pytest.param(404, {}, EngineUnreachable, "HTTP 404", id="it is no plugin of ours"),
    ],
)  # fmt: skip
async def test_a_refusal(status: int, body: dict[str, Any], error: type[EngineError], message: str) -> None:
    caught, sentence = await refused(answer(status, body))
    assert type(caught) is error
    assert sentence == message


async def test_what_a_refusal_carries() -> None:
    stale, _ = await refused(answer(409, {"error": "newer", "generation": 18}))
    assert isinstance(stale, StaleGeneration)
    assert stale.generation == 18
    faulty, _ = await refused(answer(422, {"error": "no", "faults": ["row 1: K 9", "row 2: K 8"]}))
    assert isinstance(faulty, ScheduleRefused)
    assert faulty.faults == ("row 1: K 9", "row 2: K 8")


@pytest.mark.parametrize(
    "give",
    [
        pytest.param(answer(text="<html>hello</html>"), id="a page"),
        pytest.param(answer(text=""), id="nothing"),
        pytest.param(answer(text="\xff\xfe"), id="bytes"),
        pytest.param(answer(302, text="", Location="http://127.0.0.1:1/"), id="the way to somebody else"),
        pytest.param(answer(text=json.dumps({"padding": "x" * MAX_BODY})), id="far too much"),
        pytest.param(answer(text="[" * 100_000), id="brackets without end"),
        pytest.param(hang_up, id="a closed connection"),
        pytest.param(answer(body={"status": "ok"}), id="somebody else's yes"),
        pytest.param(answer(body=[17]), id="a list"),
        pytest.param(answer(body={"generation": None}), id="no generation"),
        pytest.param(answer(body={"generation": "many"}), id="a generation that is none"),
        pytest.param(answer(text='{"generation": Infinity}'), id="a generation without end"),
        pytest.param(answer(409, {"generation": 10**30}), id="a generation that status could not hold"),
        pytest.param(answer(409, {"generation": 2**52}), id="a generation that leaves no room for later ones"),
        pytest.param(answer(409, {"generation": [18]}), id="a conflict with nothing that can be overtaken"),
    ],
)
async def test_garbage_is_no_answer(give: Answer) -> None:
    """Whatever listens on the port of a pod: it must not end a pass."""
    caught, _ = await refused(give)
    assert type(caught) is EngineUnreachable


async def test_faults_in_another_form_are_a_refusal_still() -> None:
    caught, _ = await refused(answer(422, {"error": "no", "faults": None}))
    assert isinstance(caught, ScheduleRefused)
    assert caught.faults == ()


async def test_a_stalled_engine_is_given_up() -> None:
    caught, message = await refused(hang, timeout_s=0.1)
    assert type(caught) is EngineUnreachable
    assert message.startswith("no answer on its admin port")


async def test_nobody_listens() -> None:
    client = EngineAdmin()
    with pytest.raises(EngineUnreachable, match="no answer on its admin port"):
        await client.put_schedule(address(), "secret-key", 17, SCHEDULE, 3600)
    await client.close()


async def test_the_key_is_in_no_message() -> None:
    for give in (answer(401, {"error": "unknown key"}), answer(text="<html>"), hang_up, answer(500)):
        caught, _ = await refused(give)
        assert "secret-key" not in f"{caught.message} {caught!r} {caught.__cause__!r}"


async def test_one_that_is_not_the_active_operator_any_more_tells_an_engine_nothing() -> None:
    where = address()
    client = EngineAdmin(may_write=lambda: False)
    async with serving(answer(body=TAKEN), where, ADMIN_PORT) as server:
        with pytest.raises(EngineUnreachable, match="not told, for this operator's lease has run out") as caught:
            await client.put_schedule(where, "secret-key", 17, SCHEDULE, 3600)
    await client.close()
    assert caught.value.reason == "NotActive"
    assert server.asked == []
