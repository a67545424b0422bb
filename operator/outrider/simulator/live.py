"""An engine in real time: the virtual one, driven by the event loop's clock.

The profile is slowed by the dilation, so the engine's seconds are wall seconds and everything it reports is what a card
so many times slower would report. A late loop catches up step by step: metrics do not depend on its jitter.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from random import Random

from outrider.simulator.admin import AdminPort
from outrider.simulator.behaviour import NORMAL, Behaviour
from outrider.simulator.engine import SimulatedEngine
from outrider.simulator.metrics import Exposition
from outrider.simulator.profile import Profile
from outrider.simulator.request import Listener, Request
from outrider.simulator.settings import EngineSettings
from outrider_runtime.protocol import Reply, parse_json

logger = logging.getLogger(__name__)


class LiveEngine:
    """The process inside an engine container. Lives on one event loop; `close` ends it."""

    def __init__(
        self,
        settings: EngineSettings,
        profile: Profile,
        *,
        seed: int,
        files: Mapping[str, str],
        behaviour: Behaviour = NORMAL,
        now: Callable[[], float] | None = None,
    ) -> None:
        """``profile`` is already slowed; ``files`` are the mounted documents by path, kept fresh by the owner."""
        self.settings = settings
        self.files = files
        self.draining = False
        self.idle = asyncio.Event()
        """Set while nothing is in flight."""
        self._loop = asyncio.get_running_loop()
        self._now = now or self._loop.time
        self._timer: asyncio.TimerHandle | None = None
        self._numbers = 0
        self.behaviour = behaviour
        self._ceiling, self._rng = settings.max_speculative_tokens, Random(seed)
        own = behaviour.profile(profile, self._ceiling)
        self.engine = SimulatedEngine(settings, own, seed=seed, start_s=self._now())
        self.admin = AdminPort(self.engine)
        self._exposition = Exposition(self.engine, self.admin if settings.plugin else None, time.time())
        self._document: str | None = None
        self.poke()
        self.refresh()

    @property
    def answered(self) -> int:
        """Requests that ended, however."""
        return sum(self.engine.counters.finished.values())

    @property
    def in_flight(self) -> int:
        """Requests running or waiting."""
        return self.engine.num_running + self.engine.num_waiting

    def new_id(self) -> str:
        """A number for a request, unique in this process."""
        self._numbers += 1
        return f"{self._numbers:x}"

    def now_s(self) -> float:
        """The engine's clock."""
        return self._now()

    def submit(self, request: Request, listener: Listener) -> None:
        """Put a request into the queue; raises `RequestTooLong` as the engine does."""
        self.engine.submit(self.behaviour.request(request, self._ceiling, self._rng), self._now(), listener)
        self.poke()

    def abort(self, request_id: str) -> None:
        """The client is gone."""
        self.engine.abort(request_id, self._now())
        self.poke()

    def hang(self) -> None:
        """No step ends from now on."""
        self.poke()
        self.engine.hang()

    def put(self, document: object) -> Reply:
        """A schedule from outside."""
        self.poke()
        return self.admin.put(document, self._now())

    def get(self) -> Reply:
        """The state of the admin port."""
        self.poke()
        return self.admin.get(self._now())

    def ready(self) -> Reply:
        """Whether the engine makes progress."""
        self.poke()
        return self.admin.ready(self._now())

    def scrape(self) -> bytes:
        """The metrics page."""
        self.poke()
        return self._exposition.text(self._now())

    def refresh(self) -> None:
        """Look at the mounted schedule again; one that changed is taken as if it had been put."""
        plugin = self.settings.plugin
        if plugin is None:
            return
        text = self.files.get(plugin.schedule_file)
        if text is None or text == self._document:
            return
        self._document = text
        reply = self.put(parse_json(text))
        if reply.status != 200:
            logger.warning("mounted schedule not taken over: %s", reply.body)

    def admin_keys(self) -> list[str]:
        """The keys that open the admin port, from the mounted file: one a line."""
        plugin = self.settings.plugin
        lines = self.files.get(plugin.key_file, "").splitlines() if plugin is not None else []
        return [line.strip() for line in lines if line.strip()]

    def poke(self) -> None:
        """Bring the engine to the present, and wake again when its step ends."""
        now_s = self._now()
        self.admin.expire(now_s)
        self.engine.advance(now_s)
        if self.in_flight:
            self.idle.clear()
        else:
            self.idle.set()
        if self._timer is not None:
            self._timer.cancel()
        next_s = self.engine.next_event_s
        self._timer = None if next_s is None else self._loop.call_later(max(0.0, next_s - now_s), self.poke)

    def close(self) -> None:
        """End: whatever runs is aborted."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for request_id in self.engine.request_ids():
            self.engine.abort(request_id, self._now())
