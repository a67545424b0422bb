"""Probes of a kubelet: one GET, and what a row of them means."""

from __future__ import annotations

import aiohttp

from outrider.simulator.pods import Probe


async def passes(session: aiohttp.ClientSession, address: str | None, probe: Probe) -> bool:
    """Whether one probe is answered in time with a status below 400; never less than a second of time."""
    url = f"http://{address}:{probe.port}{probe.path}"
    try:
        timeout = aiohttp.ClientTimeout(total=max(1.0, probe.timeout_s))
        async with session.get(url, timeout=timeout) as response:
            return response.status < 400
    except (TimeoutError, aiohttp.ClientError, OSError):
        return False


class ProbeCounts:
    """Whether a probe counts as passing, by its thresholds."""

    def __init__(self, probe: Probe | None) -> None:
        self._success = 1 if probe is None else probe.success_threshold
        self._failure = 1 if probe is None else probe.failure_threshold
        self._passing = False
        self._run = 0

    def after(self, passed: bool) -> bool:
        """The verdict after one more probe."""
        self._run = self._run + 1 if passed != self._passing else 0
        if self._run >= (self._success if passed else self._failure):
            self._passing, self._run = passed, 0
        return self._passing
