"""Whether this process is the active operator: the election beside it, in a thread and a connection of its own.

Its own thread, because a pass over thousands of services may keep the event loop busy for longer than a renewal can
wait. It ends the whole process, at once, when the lease is lost, whatever the passes are in the middle of: a decision
is on record before it is delivered, so the next operator completes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from outrider.cli.exits import NO, REPLACED

if TYPE_CHECKING:
    from outrider.reconcile.election import Election
    from outrider.settings import Settings

logger = logging.getLogger(__name__)

NAMESPACE = "outrider-system"
"""Where the Lease is for operators outside of a pod: as deploy/ installs it, so that one that was started by hand waits
for the cluster's own."""
CALL_S = 4.0
"""An API server that hangs is asked twice before the lease counts as lost."""


class Leadership:
    """Waits for the lease, keeps it and gives it back; start it once, and close it last."""

    def __init__(self, settings: Settings, end: Callable[[int], object] = os._exit) -> None:
        self._settings, self._end = settings, end
        self._won: Future[None] = Future()
        self._election: Election | None = None
        self._ended = threading.Event()
        self._cancel: Callable[[], object] | None = None
        self._thread = threading.Thread(target=self._run, name="leadership", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    async def won(self) -> None:
        """Return when this operator is the active one."""
        await asyncio.wrap_future(self._won)

    def leads(self) -> bool:
        """Whether this operator may act, at this moment."""
        return self._election is not None and time.monotonic() < self._election.acts_until_s

    def sentence(self) -> str:
        """How it stands, for people."""
        return "starts" if self._election is None else self._election.sentence

    def close(self) -> None:
        """Give the lease back, if it is held. Nothing may be written any more."""
        self._ended.set()
        if self._cancel is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself meanwhile
                self._cancel()
        if self._thread.is_alive():
            self._thread.join(2.0 * CALL_S)  # with what Kopf takes to end, within the grace period of 30 s

    def _run(self) -> None:
        try:
            asyncio.run(self._elect())
        except Exception:
            logger.critical("the election ended", exc_info=True)
            self._end(NO)

    async def _elect(self) -> None:
        # Here and not above: the command line's help would wait for it.
        from outrider.adapters.kube import Kube
        from outrider.reconcile.election import Election, LeaseLost
        from outrider.telemetry import LEADER

        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        kube = await Kube.connect(timeout_s=CALL_S)
        self._election = Election(kube, place(self._settings), identity(self._settings))
        try:
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            if self._ended.is_set():
                return
            await self._election.acquire()
            LEADER.set(1)
            self._won.set_result(None)
            await self._election.keep()
        except asyncio.CancelledError:  # by `close`
            await self._election.release()
        except LeaseLost as lost:
            logger.critical("%s", lost.message, extra={"reason": lost.reason})
            self._end(REPLACED)
        finally:
            LEADER.set(0)
            await kube.close()


def place(settings: Settings) -> tuple[str, str]:
    """Namespace and name of the Lease."""
    from outrider.adapters.kubeconfig import own_namespace

    return settings.operator_namespace or own_namespace() or NAMESPACE, settings.leader_lease


def identity(settings: Settings) -> str:
    """What this operator is called in the Lease.

    The name of its pod, so that a container which is started again goes on without waiting for itself; a name that
    nobody else can have where there is no pod.
    """
    return settings.pod_name or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
