"""Two operators on one cluster: one acts, the other waits, and a change between them changes nothing else."""

from __future__ import annotations

import http.client
import json
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from outrider.cli.exits import REPLACED, WELL
from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.load import Load
from tests.testbed.numbers import Numbers
from tests.testbed.processes import Process
from tests.testbed.service import ServiceView
from tests.testbed.test_operator import serve

ANNA, BERT = "outrider-anna", "outrider-bert"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{operator.NAMESPACE}/leases/outrider"
LEASE_S, RETRY_S, START_S = 15.0, 2.0, 90.0
"""The terms of the lease, and what a process may need on a busy machine to see them through: against hanging alone."""
ANSWER_S = 60.0
"""A process that listens may be slow to answer; one that does not refuses at once."""
INITIAL = "[[1, 256, 3]]"
"""What engines run before anybody has decided."""


class Pair:
    """Two operators that are started again when they have ended, as a kubelet does."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.processes: dict[str, Process] = {}

    def start(self, name: str) -> None:
        self.processes[name] = operator.start(self.cluster, name=name)

    def health(self, name: str) -> dict[str, Any]:
        """What it answers to probes; nothing while it starts."""
        try:
            url = f"http://127.0.0.1:{self.cluster.port(f'{name}-health')}/healthz"
            with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
                document: dict[str, Any] = json.load(answer)
        except (OSError, http.client.HTTPException, ValueError):  # it ends, perhaps in the middle of its answer
            return {}
        return document

    def says(self, name: str) -> str:
        return str(self.health(name).get("leader", ""))

    def metric(self, name: str, series: str) -> float | None:
        """A series of an operator's own, if it has it."""
        url = f"http://127.0.0.1:{self.cluster.port(f'{name}-metrics')}/metrics"
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            lines = answer.read().decode().splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"{series} ")), None)

    def idle_passes(self) -> float:
        """Control passes of the active one that saw no load; with one service, those of that service."""
        return self.metric(self.holder(), 'outrider_holds_total{reason="Idle"}') or 0.0

    def lease(self) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.api.get(LEASE)["spec"]
        return found

    def holder(self) -> str:
        return str(self.lease().get("holderIdentity", ""))

    def acts(self, name: str) -> bool:
        """Whether it holds the lease and has looked at the fleet."""
        return self.says(name).startswith("active") and "control_pass_age_seconds" in self.health(name)

    def wait(self, what: str, condition: Callable[[], bool], timeout_s: float) -> None:
        self.cluster.wait_until(what, condition, timeout_s)

    def in_order(self, first: str, second: str) -> None:
        """The first acts, and the second waits, whatever was before."""
        if second in self.processes and self.processes[second].alive and self.says(second).startswith("active"):
            operator.stop(self.cluster, second)
        for name in (first, second):
            if name not in self.processes or not self.processes[name].alive:
                self.start(name)
                self.wait(f"word of {name}", lambda name=name: bool(self.says(name)), START_S)  # type: ignore[misc]
        self.wait(f"active {first}", lambda: self.acts(first), START_S)
        self.wait(f"waiting {second}", lambda: self.says(second).startswith(f"waits: {first} holds"), START_S)


@pytest.fixture(scope="module")
def pair(start_cluster: StartCluster) -> Iterator[Pair]:
    """A cluster on which Anna acts."""
    cluster = start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, nodes=2)
    operator.install(cluster)
    pair = Pair(cluster)
    pair.in_order(ANNA, BERT)
    yield pair
    for name in (BERT, ANNA):
        operator.stop(cluster, name)


@pytest.fixture(scope="module")
def tuned(pair: Pair) -> ServiceView:
    """A service of two replicas that was tuned away from where it began, and now rests."""
    view = serve(pair.cluster, "tuned", autoscaling={"minReplicas": 2, "maxReplicas": 4})
    pair.wait("two engines", lambda: len(view.ready_addresses()) == 2 and schedules(view) == {INITIAL}, 2 * START_S)
    with Load(pair.cluster, "tuned", "chat", concurrency=32, acceptance=0.2):
        pair.wait("short drafts", lambda: schedules(view) != {INITIAL}, 2 * START_S)
    before = pair.idle_passes()  # those that still see the load may decide once more
    pair.wait("passes without load", lambda: pair.idle_passes() >= before + 2, 2 * START_S)
    pair.wait("rest", lambda: view.condition("ScheduleApplied")[0] == "True", 2 * START_S)
    return view


def schedules(view: ServiceView) -> set[str]:
    """What the ready engines run."""
    return {str(view.engine(address)["schedule"]) for address in view.ready_addresses()}


def identity(view: ServiceView) -> dict[str, Any]:
    """What a change of operators must leave: pods, their template, the autoscaler and its target."""
    return {
        "pods": {pod["metadata"]["uid"] for pod in view.pods()},
        "templates": {one["metadata"]["labels"]["pod-template-hash"] for one in view.list("replicaset")},
        "autoscaler": view.get("hpa", "keda-hpa-chat")["metadata"]["uid"],
        "target": view.target(),
    }


class Unmoved:
    """Watches that neither K nor replicas nor pods change for as long as it is open, and a while longer."""

    def __init__(self, view: ServiceView) -> None:
        self._view, self._numbers = view, Numbers(view.cluster, view.namespace, view.name)
        self._before = identity(view), schedules(view)

    def __enter__(self) -> None:
        self._numbers.__enter__()

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        try:
            if kind is None:
                for _ in range(12):  # three control periods of the next operator
                    assert (identity(self._view), schedules(self._view)) == self._before
                    time.sleep(0.5)
                assert set(self._numbers.seen) == {2}
        finally:
            self._numbers.__exit__(None, None, None)


@pytest.mark.failure(
    "Ourselves",
    "a second operator",
    k="only the one with the Lease acts",
    status="its probe says that it waits",
    guard="reconcile/election.py:Election.acquire",
)
def test_the_second_waits_and_says_so(pair: Pair) -> None:
    pair.in_order(ANNA, BERT)
    assert pair.holder() == ANNA
    assert pair.health(BERT) == {"leader": f"waits: {ANNA} holds the lease {operator.NAMESPACE}/outrider"}
    assert pair.says(ANNA) == f"active: {ANNA} holds the lease {operator.NAMESPACE}/outrider"
    assert (pair.metric(ANNA, "outrider_leader"), pair.metric(BERT, "outrider_leader")) == (1, 0)
    pair.wait("log", lambda: f"waits: {ANNA} holds the lease" in operator.log(pair.cluster, BERT), START_S)


@pytest.mark.failure(
    "Ourselves",
    "stopped, while a second waits",
    k="nothing moves",
    replicas="nothing moves",
    ends="handed over",
    guard="reconcile/election.py:Election.release",
)
def test_one_that_is_stopped_hands_over_and_nothing_moves(pair: Pair, tuned: ServiceView) -> None:
    pair.in_order(ANNA, BERT)
    with Unmoved(tuned):
        assert operator.stop(pair.cluster, ANNA) == WELL
        # Not by waiting for the lease to run out: the record has no holder any more, or the next one already.
        assert pair.holder() in ("", BERT)
        pair.wait("active second", lambda: pair.acts(BERT), START_S)
    assert "is given back" in operator.log(pair.cluster, ANNA)


def test_one_that_waits_ends_when_told_to_and_touches_no_lease(pair: Pair) -> None:
    pair.in_order(BERT, ANNA)
    assert operator.stop(pair.cluster, ANNA) == WELL
    assert pair.holder() == BERT
    assert pair.acts(BERT)


@pytest.mark.failure(
    "Ourselves",
    "killed, while a second waits",
    k="nothing moves",
    replicas="nothing moves",
    ends="when its Lease has run out",
    guard="core/leadership.py:free_from_s",
)
def test_one_that_is_killed_is_followed_when_its_lease_has_run_out(pair: Pair, tuned: ServiceView) -> None:
    pair.in_order(BERT, ANNA)
    with Unmoved(tuned):
        renewed = pair.lease()
        operator.kill(pair.cluster, BERT)
        pair.wait("active second", lambda: pair.acts(ANNA), LEASE_S + RETRY_S + START_S)
        followed = pair.lease()
    assert (renewed["holderIdentity"], followed["holderIdentity"]) == (BERT, ANNA)
    # By what either wrote: the second saw a renewal no earlier than it was made, and waited from then on.
    took, last = (datetime.fromisoformat(text) for text in (followed["acquireTime"], renewed["renewTime"]))
    assert (took - last).total_seconds() >= LEASE_S


@pytest.mark.failure(
    "Ourselves",
    "stood still while another took over",
    k="it ends instead of going on",
    guard="core/leadership.py:acts_until_s",
)
def test_one_that_stood_still_meanwhile_ends_instead_of_going_on(pair: Pair, tuned: ServiceView) -> None:
    pair.in_order(ANNA, BERT)
    with Unmoved(tuned):
        pair.processes[ANNA].signal(signal.SIGSTOP)
        pair.wait("active second", lambda: pair.acts(BERT), LEASE_S + RETRY_S + START_S)
        pair.processes[ANNA].signal(signal.SIGCONT)
        assert ended(pair, ANNA) == REPLACED
    assert pair.holder() == BERT


@pytest.mark.failure(
    "Ourselves",
    "cannot renew its Lease, since the API server does not answer",
    k="it ends",
    ends="the next follows when the server answers",
    guard="core/leadership.py:acts_until_s",
)
def test_one_that_the_api_server_does_not_answer_ends_and_the_next_follows_when_it_does(
    pair: Pair, tuned: ServiceView
) -> None:
    pair.in_order(BERT, ANNA)
    (server,) = (one for one in pair.cluster.processes() if one.name == "kube-apiserver")
    with Unmoved(tuned):
        server.signal(signal.SIGSTOP)
        try:
            assert ended(pair, BERT) == REPLACED
            pair.wait("word of the outage", lambda: "cannot be read or written" in pair.says(ANNA), START_S)
        finally:
            server.signal(signal.SIGCONT)
        pair.wait("active second", lambda: pair.acts(ANNA), LEASE_S + RETRY_S + START_S)
    assert "could not be renewed for 10 s" in operator.log(pair.cluster, BERT)


def test_one_whose_lease_is_taken_ends_and_says_who_took_it(pair: Pair) -> None:
    pair.in_order(BERT, ANNA)
    # For so long that nobody follows while we look.
    patch = json.dumps({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 600}})
    pair.cluster.kubectl("patch", "lease", "outrider", "-n", operator.NAMESPACE, "--type=merge", "-p", patch)
    assert ended(pair, BERT) == REPLACED
    assert f"thief has taken the lease {operator.NAMESPACE}/outrider from {BERT}" in operator.log(pair.cluster, BERT)
    assert pair.holder() == "thief"
    pair.wait("waiting for the thief", lambda: "thief" in pair.says(ANNA), START_S)


def ended(pair: Pair, name: str) -> int | None:
    """How an operator ended by itself; waits for it to do so."""
    until_s = time.monotonic() + START_S
    while pair.cluster.exit_status(name) is None and time.monotonic() < until_s:
        time.sleep(0.1)
    status = pair.cluster.exit_status(name)
    pair.cluster.stop_process(name)  # it is expected to be gone
    return status
