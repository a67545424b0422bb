"""Take the lease, keep it, give it back.

    acquire   look every two seconds; take it when it is free, or has not changed for as long as its holder asked
    keep      renew every two seconds, until that has not succeeded for too long or somebody else has it
    release   leave it without a holder, so that the next one need not wait

`outrider.core.leadership` says who may; this module asks and writes. Each write carries the version that was read, so
that of two operators one is refused.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn, Protocol

from outrider.core.leadership import Sight, Terms, acts_until_s, free_from_s, see
from outrider.errors import Conflict, KubeError, NotFound, OperatorError
from outrider.manifests import lease
from outrider.manifests.meta import Manifest

logger = logging.getLogger(__name__)


class LeaseLost(OperatorError):
    """Another operator is, or may soon be, the active one: end at once."""


class LeaseApi(Protocol):
    """What of the API server the election needs."""

    async def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Manifest | None:
        """The object, or None."""

    async def create(self, manifest: Mapping[str, Any]) -> Manifest:
        """Create an object that must not exist."""

    async def replace(self, manifest: Mapping[str, Any]) -> Manifest:
        """Replace an object that is of the version that the manifest bears."""


def wall_clock() -> str:
    """Now, as a Lease has it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Election:
    """One operator's part in it; all methods belong on one event loop, whose clock they read."""

    def __init__(
        self,
        kube: LeaseApi,
        place: tuple[str, str],
        me: str,
        terms: Terms | None = None,
        wall: Callable[[], str] = wall_clock,
    ) -> None:
        self._kube, self._place, self._me, self._wall = kube, place, me, wall
        self._terms = terms or Terms()
        self._lease: Manifest | None = None
        self._sight: Sight | None = None
        self.acts_until_s = -math.inf
        """Until when this operator may act, on the monotonic clock."""
        self.sentence = f"looks for the lease {self.name}"
        """How it stands, for people."""

    @property
    def name(self) -> str:
        """Namespace and name of the lease."""
        return "/".join(self._place)

    async def acquire(self) -> None:
        """Wait for the lease, however long that takes, and take it."""
        while True:
            try:
                if await self._taken():
                    self._say(f"active: {self._me} holds the lease {self.name}", "Active")
                    return
            except Conflict:
                pass  # somebody was faster; the next look tells who
            except KubeError as error:
                # One sentence for all of an outage, though each attempt may fail in other words.
                self._say(f"waits: the lease {self.name} cannot be read or written", error.reason, error.message)
            await asyncio.sleep(self._terms.retry_s)

    async def keep(self) -> NoReturn:
        """Renew for as long as that is possible.

        Raises:
            LeaseLost: somebody else has the lease, or may have it soon.
        """
        why = "no answer from the API server"
        while True:
            try:
                async with asyncio.timeout_at(self.acts_until_s):
                    await asyncio.sleep(self._terms.retry_s)
                    await self._renew()
            except KubeError as error:
                why = error.message
                logger.warning("the lease %s was not renewed: %s", self.name, why, extra={"reason": error.reason})
            except TimeoutError:
                waited = f"for {self._terms.renew_within_s:g} s ({why})"
                sentence = (
                    f"the lease {self.name} could not be renewed {waited}: {self._me} ends before another takes it"
                )
                raise LeaseLost("LeaseNotRenewed", sentence) from None

    async def release(self) -> None:
        """Give the lease back, if it is held; call it after the last write."""
        self.acts_until_s = -math.inf
        if self._lease is None:
            return
        try:
            try:
                await self._kube.replace(lease.released(self._lease, self._wall()))
            except Conflict:  # a renewal that was under way was carried out after all
                found = await self._look()
                if found is not None and lease.record(found).holder == self._me:
                    await self._kube.replace(lease.released(found, self._wall()))
            self._say(f"ended: the lease {self.name} is given back", "Released")
        except KubeError as error:
            logger.warning("the lease %s was not given back: %s", self.name, error.message)

    async def _taken(self) -> bool:
        found = await self._look()
        record = None if found is None else lease.record(found)
        self._sight = see(self._sight, record, self._now_s())
        if self._now_s() < free_from_s(self._sight, self._me, self._terms):
            assert self._sight is not None
            self._say(f"waits: {self._sight.record.holder} holds the lease {self.name}", "Waiting")
            return False
        await self._write(found)
        return True

    async def _renew(self) -> None:
        try:
            await self._write(self._lease)
        except (Conflict, NotFound):
            found = await self._look()
            holder = "" if found is None else lease.record(found).holder
            if holder not in ("", self._me):
                sentence = f"{holder} has taken the lease {self.name} from {self._me}, which ends"
                raise LeaseLost("LeaseTaken", sentence) from None
            await self._write(found)  # deleted, emptied or annotated by somebody who is no operator

    async def _write(self, found: Manifest | None) -> None:
        asked_s = self._now_s()
        wanted = lease.held(found, self._place, self._me, self._terms.lease_s, self._wall())
        self._lease = await (self._kube.create(wanted) if found is None else self._kube.replace(wanted))
        self.acts_until_s = acts_until_s(asked_s, self._terms)

    async def _look(self) -> Manifest | None:
        return await self._kube.get(lease.API_VERSION, lease.KIND, *self._place)

    def _say(self, sentence: str, reason: str, more: str = "") -> None:
        """Log it once for as long as it stays so."""
        if sentence != self.sentence:
            self.sentence = sentence
            logger.info("%s", f"{sentence}: {more}" if more else sentence, extra={"reason": reason})

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
