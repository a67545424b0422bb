"""The admin port of an engine pod: put a schedule, read it back."""

from __future__ import annotations

import asyncio
import json
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

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))

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
        document = schedule_document(generation, schedule, lease_s)
        started = asyncio.get_running_loop().time()
        status, body = await self._call("PUT", address, key, document)
        seconds = asyncio.get_running_loop().time() - started
        sentence = f"engine {address}: {body.get('error') or body.get('reason') or f'HTTP {status}'}"
        if status == 200:
            return Acknowledgement(int(body.get("generation", generation)), seconds)
        if status == 401:
            raise KeyRefused("AdminKeyRefused", sentence)
        if status == 409:
            raise StaleGeneration("StaleGeneration", sentence, int(body.get("generation", generation)))
        if status == 422:
            raise ScheduleRefused("ScheduleRefused", sentence, [str(fault) for fault in body.get("faults", [])])
        if status == 503 and body.get("reason"):
            raise NotControllable("NotControllable", f"engine {address}: {body['reason']}")
        raise EngineUnreachable("EngineUnreachable", sentence)

    async def _call(self, method: str, address: str, key: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{ADMIN_PORT}/schedule"
        headers = {"Authorization": f"Bearer {key}"}
        try:
            async with self._session.request(
                method, url, json=body, headers=headers, allow_redirects=False
            ) as response:
                data = await response.content.read(MAX_BODY)
                document = json.loads(data)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            message = f"engine {address}: no answer on its admin port ({error or type(error).__name__})"
            raise EngineUnreachable("EngineUnreachable", message) from error
        return response.status, document if isinstance(document, dict) else {}


def schedule_document(generation: int, schedule: Schedule, lease_s: int) -> dict[str, Any]:
    """The document that engines take, by PUT and as a mounted file alike."""
    return {"generation": generation, "schedule": schedule.as_lists(), "leaseSeconds": lease_s}
