"""The half of the plugin that lives in vLLM's API server: admin port, readiness, warm-up, metrics, and refusal of work
that the engine cannot take.

Nothing here may reach vLLM as an exception: whatever fails is said once in the log, and vLLM serves on.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from pathlib import Path
from typing import Any

from outrider_runtime import admin_server, exposition, settings, vllm_adapter
from outrider_runtime.middleware import Door, Gate
from outrider_runtime.progress import Progress
from outrider_runtime.protocol import Reply, not_controllable, parse_json
from outrider_runtime.warm_up import warm_up

logger = logging.getLogger("vllm.outrider")

ANSWER_S = 30.0
"""How long a PUT or GET waits for the engine core, which answers between two steps."""
SCRAPE_S = 0.5
"""How long a scrape waits: a hanging engine must not cost its metrics."""
PROBE_S = 0.8
"""How long a readiness probe waits; the kubelet gives it a second."""
FILE_PERIOD_S = 2.0
"""How often the mounted document is looked at; the kubelet itself takes up to a minute to change it."""


class FrontDoor(Door):
    """One API server's part, from `start` to the end of the process."""

    def __init__(self, chosen: settings.Settings) -> None:
        self._settings = chosen
        self._client: Any = None
        self._exposition: exposition.Exposition | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._numbers = itertools.count()
        self._warm = False
        self._document: str | None = None
        self._fault = ""

    def now_s(self) -> float:
        """A monotonic clock."""
        return time.monotonic()

    async def start(self, engine_client: Any, host: str) -> None:
        """Open the admin port and begin the warm-up; vLLM opens its own port meanwhile, and the probe on `/ready`
        keeps traffic away."""
        self._client, self._fault = engine_client, vllm_adapter.fault()
        max_num_seqs, _, _ = vllm_adapter.limits(engine_client)
        self.progress = Progress(max_num_seqs, self._settings.max_waiting, self._settings.no_progress_s)
        self.progress.heard(self.now_s(), tokens=True)
        self._exposition = exposition.Exposition(self.progress)
        exposition.register(self._exposition)
        app = admin_server.application(self._settings.key_file, self.put, self.get, self.ready, self.measure)
        listener = admin_server.listen(host, self._settings.port)
        for work in (admin_server.server(app).serve(sockets=[listener]), self._prepare(), self._keep_warm()):
            self._tasks.append(asyncio.create_task(_logged(work)))
        if not self._settings.key_file:
            logger.warning("Outrider: %s is not set, so nobody can change the schedule", settings.KEY_FILE)

    async def put(self, document: object) -> Reply:
        """``PUT /schedule``."""
        return await self._ask("put", document)

    async def get(self) -> Reply:
        """``GET /schedule``."""
        return await self._ask("get")

    async def measure(self, document: object) -> Reply:
        """``PUT /measuring``: switch the measuring of steps off and on again, to find out what it costs."""
        enabled = document.get("enabled") if isinstance(document, dict) else None
        if not isinstance(enabled, bool):
            return Reply(422, {"error": "the document is not of the form", "faults": ['{"enabled": true or false}']})
        return await self._ask("measure", enabled)

    async def ready(self) -> Reply:
        """``GET /ready``: 200 after the warm-up, while the engine answers or was heard of a moment ago."""
        if self._fault:  # no half answers in the engine core, which serves all the same
            return Reply(200, {"ready": True, "reason": f"not controllable: {self._fault}"})
        if not self._warm:
            return Reply(503, {"ready": False, "reason": "the engine warms up"})
        assert self.progress is not None
        try:
            _, state = await asyncio.wait_for(vllm_adapter.call(self._client, "state"), PROBE_S)
        except TimeoutError:
            silent_s = self.now_s() - self.progress.heard_s
            if silent_s <= self._settings.no_progress_s:
                return Reply(200, {"ready": True, "reason": ""})
            return Reply(503, {"ready": False, "reason": f"the engine has not answered for {silent_s:.0f} s"})
        except Exception as error:
            return Reply(503, {"ready": False, "reason": _sentence(error)})
        self.progress.heard(self.now_s())
        silent_s = state.get("silent_s", 0.0)
        if silent_s > self._settings.no_progress_s:
            return Reply(503, {"ready": False, "reason": f"no step ended for {silent_s:.0f} s while requests wait"})
        return Reply(200, {"ready": True, "reason": ""})

    async def refresh(self) -> None:
        """Fetch the figures that a scrape shows; those of the scrape before stay where the engine does not answer."""
        if self._exposition is None or self._fault:
            return
        try:
            status, body = await asyncio.wait_for(vllm_adapter.call(self._client, "snapshot"), SCRAPE_S)
        except Exception as error:
            logger.debug("Outrider: no new figures for this scrape: %s", error)
            return
        self._heard()
        if status == 200:
            self._exposition.snapshot = body

    def reported(self, *, tokens: bool, waiting: int | None) -> None:
        """A step's statistics arrived from the engine."""
        if self.progress is not None:
            self.progress.heard(self.now_s(), tokens=tokens, waiting=waiting)

    async def _ask(self, method: str, *arguments: object) -> Reply:
        if self._fault:
            return not_controllable(self._fault)
        try:
            status, body = await asyncio.wait_for(vllm_adapter.call(self._client, method, *arguments), ANSWER_S)
        except TimeoutError:
            return Reply(504, {"error": f"the engine did not answer within {ANSWER_S:.0f} s"})
        except Exception as error:
            return not_controllable(_sentence(error))
        self._heard()
        return Reply(status, body)

    def _heard(self) -> None:
        if self.progress is not None:
            self.progress.heard(self.now_s())

    async def _prepare(self) -> None:
        """Take over the mounted document, warm up, then watch the document."""
        await self._read_document()
        if self._settings.warm_up_s and not self._fault:
            await self._warm_up()
        self._warm = True
        while True:
            await asyncio.sleep(FILE_PERIOD_S)
            await self._read_document()

    async def _warm_up(self) -> None:
        status, body = await vllm_adapter.call(self._client, "warm", None)
        if status != 200:  # not controllable: there is one K, and vLLM warms up by itself
            return
        started_s = self.now_s()
        max_num_seqs, max_model_len, vocabulary = vllm_adapter.limits(self._client)
        try:
            await asyncio.wait_for(
                warm_up(
                    body["speculativeTokens"],
                    self._generate,
                    self._set_k,
                    max_num_seqs=max_num_seqs,
                    max_model_len=max_model_len,
                    vocabulary=vocabulary,
                ),
                self._settings.warm_up_s,
            )
        except TimeoutError:
            logger.warning(
                "Outrider: the warm-up was cut short after %.0f s (%s)", self._settings.warm_up_s, settings.WARM_UP
            )
        except Exception as error:
            logger.warning("Outrider: the warm-up failed: %s", _sentence(error))
        await vllm_adapter.call(self._client, "end_warm_up")
        logger.info("Outrider: warmed up in %.1f s", self.now_s() - started_s)

    async def _set_k(self, k: int) -> None:
        await vllm_adapter.call(self._client, "warm", k)

    async def _generate(self, prompt: list[int], tokens: int) -> None:
        async for _ in vllm_adapter.generate(self._client, prompt, tokens, f"outrider-{next(self._numbers)}"):
            pass

    async def _read_document(self) -> None:
        """Take over the mounted document if it changed, as if it had been put."""
        if not self._settings.schedule_file:
            return
        try:
            text = await asyncio.to_thread(Path(self._settings.schedule_file).read_text)
        except (OSError, ValueError):
            return
        if text != self._document:
            reply = await self.put(parse_json(text))
            if reply.status != 200:
                logger.warning("Outrider: the mounted schedule was not taken over: %s", reply.body)
            # One that met a busy engine is tried again.
            self._document = None if reply.status == 504 else text

    async def _keep_warm(self) -> None:
        """Generate one token whenever the engine was idle for so long."""
        period_s = self._settings.heartbeat_s
        while period_s:
            await asyncio.sleep(period_s / 4)
            assert self.progress is not None
            if self._warm and not self.progress.in_flight and self.now_s() - self.progress.token_s > period_s:
                await self._generate([0], 1)


class OutriderEndpoints:
    """vLLM's endpoint plugin."""

    name = "outrider"
    required_tasks = ("generate",)

    def __init__(self) -> None:
        self._door: FrontDoor | None = None

    def attach_router(self, app: Any) -> None:
        """Put the gate in front of vLLM's routes."""
        global the_door
        try:
            self._door = the_door = FrontDoor(settings.read())
            app.add_middleware(Gate, door=self._door)
        except Exception as error:
            logger.warning("Outrider: no admin port: %s", _sentence(error))

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:  # noqa: ARG002 (vLLM's signature)
        """Start once the engine is there."""
        if self._door is None or engine_client is None:
            return
        try:
            await self._door.start(engine_client, args.host or "0.0.0.0")
        except Exception as error:
            logger.warning("Outrider: no admin port: %s", _sentence(error))


the_door: FrontDoor | None = None
"""The door of this process: vLLM builds stat loggers and endpoints apart, and hands neither to the other."""


async def _logged(work: Any) -> None:
    try:
        await work
    except Exception:
        logger.exception("Outrider: a task of the admin port ended")


def _sentence(error: Exception) -> str:
    return str(error) or type(error).__name__
