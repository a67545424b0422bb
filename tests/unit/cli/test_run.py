"""What `outrider run` does before and around the operator: names in the Lease, the page of one that waits, signals.

The rest of it is shown on a cluster, `tests/testbed/test_leader.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket

import aiohttp
import pytest

from outrider.cli import leading, run
from outrider.cli.leading import NAMESPACE, Leadership, identity, place
from outrider.cli.waiting import PATH, probes_answered
from outrider.core.leadership import Terms
from tests.unit.reconcile.builders import settings


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


class TestNames:
    def test_the_lease_is_where_the_operator_is_told_that_it_runs(self) -> None:
        assert place(settings(operator_namespace="serving", leader_lease="team-a")) == ("serving", "team-a")

    def test_one_that_is_started_by_hand_looks_where_the_clusters_own_is(self) -> None:
        assert place(settings()) == (NAMESPACE, "outrider")

    def test_a_pod_goes_by_its_name_so_that_it_knows_its_own_lease_after_a_restart(self) -> None:
        assert identity(settings(pod_name="outrider-5d-abc")) == "outrider-5d-abc"

    def test_without_a_pod_two_on_one_host_have_different_names(self) -> None:
        assert identity(settings()) != identity(settings())
        assert identity(settings()).startswith(socket.gethostname())


class TestLeadership:
    def test_before_it_has_the_lease_it_may_not_act(self) -> None:
        leadership = Leadership(settings())
        assert not leadership.leads()
        assert leadership.sentence() == "starts"

    def test_one_that_was_never_started_can_be_closed(self) -> None:
        Leadership(settings()).close()

    def test_a_call_that_hangs_leaves_time_for_another(self) -> None:
        terms = Terms()
        assert terms.retry_s + leading.CALL_S + terms.retry_s < terms.renew_within_s


class TestWaiting:
    async def test_probes_hear_what_it_waits_for(self) -> None:
        port = free_port()
        async with probes_answered("127.0.0.1", port, lambda: "waits: a holds the lease"), aiohttp.ClientSession() as s:
            answer = await s.get(f"http://127.0.0.1:{port}{PATH}")
            assert answer.status == 200
            assert await answer.json() == {"leader": "waits: a holds the lease"}

    async def test_the_port_is_free_afterwards(self) -> None:
        port = free_port()
        for _ in range(2):
            async with probes_answered("127.0.0.1", port, str):
                pass

    async def test_port_0_turns_it_off(self) -> None:
        async with probes_answered("no such address", 0, str):
            pass


class TestSignals:
    async def test_a_signal_ends_the_wait(self) -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        try:
            waiting = asyncio.create_task(run._until(stop, asyncio.sleep(3600.0)))
            await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGTERM)
            assert not await waiting
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)

    async def test_what_is_done_before_goes_on(self) -> None:
        assert await run._until(asyncio.Event(), asyncio.sleep(0))

    async def test_what_goes_wrong_is_raised(self) -> None:
        async def wrong() -> None:
            raise ValueError("no definition")

        with pytest.raises(ValueError, match="no definition"):
            await run._until(asyncio.Event(), wrong())
