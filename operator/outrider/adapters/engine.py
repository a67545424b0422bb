"""The admin port of an engine pod: put a schedule, read it back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from outrider.core.schedule import Schedule
from outrider.errors import (
    EngineUnreachable,
    KeyRefused,
    NotControllable,
    ScheduleRefused,
    StaleGeneration,
)

ADMIN_PORT = 8001
TIMEOUT_S = 3.0
"""An engine answers between two steps, within tens of milliseconds; one that needs longer is stalled and is asked again
later."""
MAX_GENERATION = 2**53
"""A larger number comes from something else, and no JSON reader could hold it."""
MAX_AHEAD = 2**40
"""The latest generation that an engine may claim to hold; decisions take ages to get there. Far below the other, so
that one engine's lie leaves room for all that is decided afterwards."""
MAX_BODY = 256 * 1024
"""An answer is a few KiB; more comes from something that is not our plugin."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """An engine runs this generation."""

    generation: int
    seconds: float
    """From the call to the answer."""


class EngineAdmin:
    """Calls engines' admin ports; close it with `close`."""

    def __init__(self, *, timeout_s: float = TIMEOUT_S, may_write: Callable[[], bool] = lambda: True) -> None:
        """``may_write`` is asked before every delivery; an operator that is not the active one any more must not."""
        self._may_write = may_write
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_s))

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def put_schedule(
        self, address: str, key: str, generation: int, schedule: Schedule, lease_s: int
    ) -> Acknowledgement:
        """Deliver a schedule to the engine at an IP address; the same generation again renews the lease.

        Raises:
            EngineUnreachable, KeyRefused, StaleGeneration, ScheduleRefused, NotControllable: as `outrider.errors` says.
        """
        if not self._may_write():
            raise EngineUnreachable("NotActive", f"engine {address}: not told, for this operator's lease has run out")
        document = schedule_document(generation, schedule, lease_s)
        started = asyncio.get_running_loop().time()
        status, data = await self._call("PUT", address, key, document)
        seconds = asyncio.get_running_loop().time() - started
        return Acknowledgement(acknowledged(address, status, data), seconds)

    async def _call(self, method: str, address: str, key: str, body: dict[str, Any]) -> tuple[int, bytes]:
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{ADMIN_PORT}/schedule"
        headers = {"Authorization": f"Bearer {key}"}
        try:
            async with self._session.request(
                method, url, json=body, headers=headers, allow_redirects=False
            ) as response:
                return response.status, await _content(response)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise _no_answer(address, error) from error


def acknowledged(address: str, status: int, data: bytes) -> int:
    """The generation that an engine's answer to a schedule acknowledges.

    Raises:
        EngineUnreachable, KeyRefused, StaleGeneration, ScheduleRefused, NotControllable: as `outrider.errors` says.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _no_answer(address, error) from error
    body: dict[str, Any] = document if isinstance(document, dict) else {}
    sentence = f"engine {address}: {body.get('error') or body.get('reason') or f'HTTP {status}'}"
    if status == 200:
        return _generation(address, body)
    if status == 401:
        raise KeyRefused("AdminKeyRefused", sentence)
    if status == 409:
        raise StaleGeneration("StaleGeneration", sentence, _generation(address, body, MAX_AHEAD))
    if status == 422:
        faults = body.get("faults")
        raise ScheduleRefused(
            "ScheduleRefused", sentence, [str(one) for one in faults] if isinstance(faults, list) else ()
        )
    if status == 503 and body.get("reason"):
        raise NotControllable("NotControllable", f"engine {address}: {body['reason']}")
    raise EngineUnreachable("EngineUnreachable", sentence)


def _no_answer(address: str, error: Exception) -> EngineUnreachable:
    message = f"engine {address}: no answer on its admin port ({str(error) or type(error).__name__})"
    return EngineUnreachable("EngineUnreachable", message)


async def _content(response: aiohttp.ClientResponse) -> bytes:
    data = b""
    async for packet in response.content.iter_any():
        data += packet
        if len(data) > MAX_BODY:
            raise ValueError(f"more than {MAX_BODY} bytes")
    return data


def _generation(address: str, body: dict[str, Any], most: int = MAX_GENERATION) -> int:
    generation = body.get("generation")
    if type(generation) is not int or generation > most:
        raise EngineUnreachable("EngineUnreachable", f"engine {address}: its answer names no generation")
    return generation


def schedule_document(generation: int, schedule: Schedule, lease_s: int) -> dict[str, Any]:
    """The document that engines take, by PUT and as a mounted file alike."""
    return {"generation": generation, "schedule": schedule.as_lists(), "leaseSeconds": lease_s}
