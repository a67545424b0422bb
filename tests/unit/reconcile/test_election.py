"""Taking, keeping and losing the lease, against an API server that fails in every way; in virtual time."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from outrider.errors import Conflict, Forbidden, KubeError, NotFound, Unavailable
from outrider.reconcile.election import Election, LeaseLost

from .virtual_time import in_virtual_time

PLACE = ("outrider-system", "outrider")
AWAY = Unavailable("APIServerUnreachable", "no answer")
DENIED = Forbidden("Forbidden", "may not update leases", 403)


class LeaseServer:
    """Keeps one lease; fails or hangs when told to."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.fault: KubeError | None = None
        self.hangs = False
        self.writes = self._version = 0

    @property
    def holder(self) -> str:
        return "" if self.lease is None else str(self.lease["spec"].get("holderIdentity", ""))

    async def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        assert (api_version, kind, namespace, name) == ("coordination.k8s.io/v1", "Lease", *PLACE)
        await self._answer()
        return copy.deepcopy(self.lease)

    async def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        await self._answer()
        if self.lease is not None:
            raise Conflict("Conflict", "exists", 409)
        return self._store(manifest)

    async def replace(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        await self._answer()
        if self.lease is None:
            raise NotFound("NotFound", "gone", 404)
        if manifest["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict("Conflict", "changed", 409)
        return self._store(manifest)

    def by_hand(self, **spec: Any) -> None:
        """Somebody who is no operator writes it."""
        assert self.lease is not None
        self._store({**self.lease, "spec": self.lease["spec"] | spec})

    def _store(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        self._version += 1
        self.writes += 1
        self.lease = copy.deepcopy(dict(manifest))
        self.lease["metadata"]["resourceVersion"] = str(self._version)
        return copy.deepcopy(self.lease)

    async def _answer(self) -> None:
        if self.hangs:
            await asyncio.sleep(3600.0)
        if self.fault is not None:
            raise self.fault


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def leading(server: LeaseServer, name: str = "a") -> tuple[Election, asyncio.Task[Any]]:
    """An operator that has taken the lease, and keeps it."""
    election = Election(server, PLACE, name)
    await election.acquire()
    return election, asyncio.create_task(election.keep())


async def ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class TestAcquire:
    @in_virtual_time
    async def test_the_first_one_makes_the_lease_and_acts_at_once(self) -> None:
        server = LeaseServer()
        election = Election(server, PLACE, "a")
        await election.acquire()
        assert (server.holder, now_s()) == ("a", 0.0)
        assert election.acts_until_s == 10.0
        assert election.sentence == "active: a holds the lease outrider-system/outrider"

    @in_virtual_time
    async def test_the_second_waits_and_says_for_whom(self) -> None:
        server = LeaseServer()
        _, first = await leading(server)
        second = Election(server, PLACE, "b")
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(600.0)
        assert not waiting.done()
        assert second.sentence == "waits: a holds the lease outrider-system/outrider"
        assert second.acts_until_s < now_s()
        await ended(first)
        await ended(waiting)

    @in_virtual_time
    async def test_after_a_death_it_acts_when_the_lease_has_run_out(self) -> None:
        server = LeaseServer()
        _, first = await leading(server)
        second = Election(server, PLACE, "b")
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(60.5)
        await ended(first)  # without giving it back
        died_s = now_s()
        await waiting
        assert server.holder == "b"
        assert 13.0 <= now_s() - died_s <= 17.0

    @in_virtual_time
    async def test_a_lease_that_is_given_back_is_taken_at_the_next_look(self) -> None:
        server = LeaseServer()
        election, first = await leading(server)
        second = Election(server, PLACE, "b")
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(60.5)
        await ended(first)
        stopped_s = now_s()
        await election.release()
        assert server.holder == ""
        assert election.acts_until_s < stopped_s
        await waiting
        assert now_s() - stopped_s <= 2.0
        assert server.lease is not None
        assert server.lease["spec"]["leaseTransitions"] == 1

    @in_virtual_time
    async def test_the_same_name_goes_on_without_waiting_for_itself(self) -> None:
        """A container that is started again in its pod: what ran there before has ended."""
        server = LeaseServer()
        _, first = await leading(server)
        await ended(first)
        again = Election(server, PLACE, "a")
        began_s = now_s()
        await again.acquire()
        assert now_s() == began_s

    @in_virtual_time
    async def test_of_two_that_find_no_lease_one_gets_it(self) -> None:
        server = LeaseServer()
        both = [Election(server, PLACE, name) for name in ("a", "b")]
        tasks = [asyncio.create_task(one.acquire()) for one in both]
        await asyncio.sleep(1.0)
        assert [task.done() for task in tasks] == [True, False]
        await ended(tasks[1])

    @pytest.mark.parametrize("fault", [AWAY, DENIED], ids=["API server away", "no right"])
    def test_what_keeps_it_from_looking_is_told_once_and_waited_for(
        self, fault: KubeError, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)

        @in_virtual_time
        async def story() -> None:
            server = LeaseServer()
            server.fault = fault
            election = Election(server, PLACE, "a")
            waiting = asyncio.create_task(election.acquire())
            await asyncio.sleep(61.0)
            assert election.sentence == "waits: the lease outrider-system/outrider cannot be read or written"
            server.fault = None
            await waiting

        story()
        assert [record.reason for record in caplog.records] == [fault.reason, "Active"]  # type: ignore[attr-defined]
        assert fault.message in caplog.records[0].message


class TestKeep:
    @in_virtual_time
    async def test_it_renews_every_two_seconds(self) -> None:
        server = LeaseServer()
        election, keeping = await leading(server)
        await asyncio.sleep(61.0)
        assert server.writes == 31
        assert election.acts_until_s == 70.0
        await ended(keeping)

    @pytest.mark.parametrize("fault", [AWAY, DENIED, None], ids=["API server away", "no right", "no answer at all"])
    def test_what_cannot_be_renewed_is_lost_ten_seconds_after_the_last_time(self, fault: KubeError | None) -> None:
        @in_virtual_time
        async def story() -> None:
            server = LeaseServer()
            election, keeping = await leading(server)
            await asyncio.sleep(61.0)
            server.fault, server.hangs = fault, fault is None
            with pytest.raises(LeaseLost, match="could not be renewed for 10 s") as lost:
                await keeping
            assert lost.value.reason == "LeaseNotRenewed"
            assert (fault.message if fault else "no answer") in lost.value.message
            assert now_s() == election.acts_until_s == 70.0

        story()

    @in_virtual_time
    async def test_a_short_outage_is_outlived(self) -> None:
        server = LeaseServer()
        _, keeping = await leading(server)
        await asyncio.sleep(61.0)
        server.fault = AWAY
        await asyncio.sleep(6.0)
        server.fault = None
        await asyncio.sleep(60.0)
        assert not keeping.done()
        await ended(keeping)

    @in_virtual_time
    async def test_one_that_is_stolen_ends_its_holder_at_the_next_renewal(self) -> None:
        server = LeaseServer()
        _, keeping = await leading(server)
        await asyncio.sleep(61.0)
        server.by_hand(holderIdentity="thief")
        stolen_s = now_s()
        with pytest.raises(LeaseLost, match="thief has taken the lease outrider-system/outrider from a, which ends"):
            await keeping
        assert now_s() - stolen_s <= 2.0
        assert server.holder == "thief"

    @pytest.mark.parametrize("harm", ["deleted", "emptied", "annotated"])
    def test_what_nobody_else_holds_is_taken_up_again(self, harm: str) -> None:
        @in_virtual_time
        async def story() -> None:
            server = LeaseServer()
            _, keeping = await leading(server)
            await asyncio.sleep(61.0)
            if harm == "deleted":
                server.lease = None
            else:
                server.by_hand(**({"holderIdentity": ""} if harm == "emptied" else {}))
            await asyncio.sleep(3.0)
            assert server.holder == "a"
            assert not keeping.done()
            await ended(keeping)

        story()


class TestRelease:
    @in_virtual_time
    async def test_another_ones_lease_is_left_alone(self) -> None:
        server = LeaseServer()
        election, keeping = await leading(server)
        await ended(keeping)
        server.by_hand(holderIdentity="b")
        await election.release()
        assert server.holder == "b"

    @in_virtual_time
    async def test_a_renewal_that_arrived_meanwhile_does_not_keep_it(self) -> None:
        server = LeaseServer()
        election, keeping = await leading(server)
        await ended(keeping)
        server.by_hand(renewTime="2026-01-01T12:00:00.000000Z")
        await election.release()
        assert server.holder == ""

    @in_virtual_time
    async def test_one_that_waits_has_nothing_to_give_back(self) -> None:
        server = LeaseServer()
        _, keeping = await leading(server)
        await Election(server, PLACE, "b").release()
        assert server.holder == "a"
        await ended(keeping)

    def test_an_api_server_that_is_away_does_not_keep_it_from_ending(self, caplog: pytest.LogCaptureFixture) -> None:
        @in_virtual_time
        async def story() -> None:
            server = LeaseServer()
            election, keeping = await leading(server)
            await ended(keeping)
            server.fault = AWAY
            await election.release()

        story()
        assert "was not given back: no answer" in caplog.text
