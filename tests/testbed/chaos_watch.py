"""What must hold of Outrider on a cluster at every moment, and what must come true once nothing more happens.

Everything is read from outside: from the API server, the engines' own ports, the process table and the log.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import time
import urllib.error
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.testbed import operator
from tests.testbed.chaos import CEILING, NAMESPACE, Stage, Wish
from tests.testbed.errors import ClusterError

MOST_MIB = 300.0
"""Memory of the operator: some 140 MiB at start, and never this much with three services."""
BLIND_AFTER_S = 24.0
"""KEDA polls every 3 s, the HPA looks every 3 s and remembers for 10 s: what was measured before may take a replica
this long, where one of them stands still for a while."""
NARROWED_S = 30.0
"""From the user's last word to engines within its bounds, where nothing hinders it: a control pass every 2 s, 10 s in
which Prometheus may answer, and a delivery."""
HEARD_S = 60.0
"""From the user's last word to a look at it, on a machine on which the operator may stand still for a while."""
CONVERGED_S = 360.0
"""From the last fault to a service whose every word is true again: engines that crashed start again after up to 16 s, a
roll-out takes two starts of an engine, the HPA gives replicas up after 10 s, KEDA connects again within 30 s, and a
Secret that somebody deleted is looked for every five minutes."""
NOTED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
"""A ReplicaSet's annotation by which the Deployment's controller tells a scaling from a roll-out."""
WORDS_OF_FAULTS = ("internal error", "Traceback", "never retrieved", "never awaited")
"""In the operator's log: a fault of ours."""
SILENT = (OSError, http.client.HTTPException, ValueError, KeyError, TypeError)
"""An engine that goes, or a key that has just been deleted: there is nothing to be read."""


class Watch:
    """Looks at a stage after every step; raises AssertionError with what it saw."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.counts: Counter[str] = Counter()
        """What was looked at, and how often: a run that saw nothing has shown nothing."""
        self.most_mib = 0.0
        self.longest_s = 0.0
        """From the last fault to the end of all its consequences."""
        self._read = 0

    def look(self) -> None:
        """Once at everything."""
        self.counts["looks"] += 1
        self._process()
        for name, wish in self.stage.wishes.items():
            resource = wish.view.resource()
            self._resource(name, wish, resource)
            deployment = wish.view.get("deployment")
            self._template(name, wish, resource, deployment)
            self._replicas(name, wish, resource, deployment)
            self._narrow(wish, resource, deployment)
            if not self.stage.frozen:
                self._engines(name, wish)
            if not wish.sabotaged:
                restarts = {pod["metadata"]["name"]: _restarts(pod) for pod in wish.view.pods()}
                assert not any(restarts.values()), f"{name}: engines started again, and nobody asked for it: {restarts}"

    def _process(self) -> None:
        table = {one.name: one for one in self.stage.cluster.processes()}
        process = table.get(operator.PROCESS)
        assert not self.stage.running or process is not None, "the operator has ended by itself"
        log = self.stage.cluster.logs / f"{operator.PROCESS}.log"
        with log.open(encoding="utf-8", errors="replace") as text:
            text.seek(self._read)
            fresh = text.read()
            self._read = text.tell()
        for line in fresh.splitlines():
            assert not any(word in line for word in WORDS_OF_FAULTS), f"a fault of ours in the log: {line[:2000]}"
        if process is not None:
            mib = _resident_mib(process.pid)
            self.most_mib = max(self.most_mib, mib)
            assert mib < MOST_MIB, f"the operator holds {mib:.0f} MiB"

    def _resource(self, name: str, wish: Wish, resource: Mapping[str, Any]) -> None:
        meta, was = resource["metadata"], wish.body["metadata"]
        assert resource["spec"] == wish.body["spec"], f"{name}: the spec is not what its user left"
        for field in ("uid", "generation", "labels", "annotations", "finalizers", "ownerReferences"):
            assert meta.get(field) == was.get(field), f"{name}: {field} is {meta.get(field)}, and was {was.get(field)}"
        for entry in meta.get("managedFields", []):
            if entry["manager"].startswith("outrider") and entry["manager"] != "outrider-testbed":
                owned = set(entry["fieldsV1"])
                assert owned == {"f:status"}, f"{name}: {entry['manager']} owns {owned} of the resource"
        json.dumps(resource, allow_nan=False)

    def _template(self, name: str, wish: Wish, resource: Mapping[str, Any], deployment: Mapping[str, Any]) -> None:
        """One template a generation of the resource, whatever was tuned meanwhile."""
        generation = resource["metadata"]["generation"]
        if not deployment or resource.get("status", {}).get("observedGeneration") != generation:
            return
        if not any(one["type"] == "Ready" and one["status"] == "True" for one in resource["status"]["conditions"]):
            return  # a resource that was refused keeps the template that it had
        seen = wish.templates.setdefault(generation, set())
        seen.add(_digest(deployment["spec"]["template"]))
        self.counts["templates"] += 1
        assert len(seen) == 1, f"{name}: generation {generation} has had {len(seen)} pod templates"

    def _replicas(self, name: str, wish: Wish, resource: Mapping[str, Any], deployment: Mapping[str, Any]) -> None:
        if not deployment:
            wish.held, wish.reached = None, False
            return
        number, least = deployment["spec"]["replicas"], min(_least(spec) for spec in wish.lately)
        wish.reached |= number >= least
        assert number >= least or not wish.reached, f"{name}: {number} replicas, and the least is {least}"
        if resource.get("status", {}).get("observedGeneration") != resource["metadata"]["generation"]:
            # The operator was away: what its user asked for may still take a replica.
            wish.unheard_s, wish.held = time.monotonic(), None
        quiet_s = time.monotonic() - max(self.stage.blind_s, wish.edited_s, wish.unheard_s)
        if not self.stage.store.lie or quiet_s < BLIND_AFTER_S:
            return
        self.counts["replicas without metrics"] += 1
        assert wish.held is None or number >= wish.held, (
            f"{name}: {number} replicas of {wish.held} while Prometheus is {self.stage.store.lie}"
        )
        wish.held = number

    def _narrow(self, wish: Wish, resource: Mapping[str, Any], deployment: Mapping[str, Any]) -> None:
        """Earlier specs count no longer once the last had its time, nobody meddled, and all pods are of its kind."""
        quiet_s = time.monotonic() - max(self.stage.calm_s, wish.edited_s)
        hindered = wish.sabotaged or wish.spec.keys() & {"paused", "engine"} or not self.stage.running
        if hindered or self.stage.frozen or quiet_s < NARROWED_S or len(wish.lately) == 1:
            return
        generation = resource["metadata"]["generation"]
        if resource["status"].get("observedGeneration") != generation:
            name = resource["metadata"]["name"]
            assert quiet_s < HEARD_S, f"{name}: generation {generation} was not looked at for {quiet_s:.0f} s"
            return
        status, number = deployment.get("status", {}), deployment.get("spec", {}).get("replicas")
        counts = {status.get(field) for field in ("replicas", "updatedReplicas", "readyReplicas")}
        if counts == {number} and status.get("observedGeneration") == deployment["metadata"]["generation"]:
            wish.lately = [wish.spec]
            self.counts["bounds narrowed"] += 1

    def _engines(self, name: str, wish: Wish) -> None:
        allowed = set[int]().union(*(_allowed(spec) for spec in wish.lately))
        for address in wish.view.ready_addresses():
            try:
                document = wish.view.engine(address)
            except SILENT:
                self.counts["engines that did not answer"] += 1
                continue
            self.counts["engines"] += 1
            drafts = {row[2] for row in document["schedule"]}
            assert drafts <= allowed, f"{name}: {address} runs {document['schedule']}, and K may be {sorted(allowed)}"

    def settle(self) -> None:
        """Wait until every service is what its user asked for, and says so; from now on only that may be seen.

        Raises:
            AssertionError: that took longer than `CONVERGED_S`.
        """
        began_s, open_faults = time.monotonic(), ["not looked at yet"]
        while open_faults:
            self.look()
            self._free_rollouts()
            open_faults = [fault for name, wish in self.stage.wishes.items() for fault in self._open(name, wish)]
            waited_s = time.monotonic() - began_s
            assert not open_faults or waited_s < CONVERGED_S, f"after {waited_s:.0f} s: {'; '.join(open_faults)}"
            if open_faults:
                time.sleep(0.5)
        self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        self.counts["times converged"] += 1
        for wish in self.stage.wishes.values():
            wish.lately = [wish.spec]

    def _free_rollouts(self) -> None:
        """Do what a person does about kubernetes/kubernetes#138036: a roll-out stops for good where replicas were
        scaled down in the midst of it to just as many as the old ReplicaSet has left: its annotation is not written."""
        for name, wish in self.stage.wishes.items():
            wanted = wish.view.get("deployment").get("spec", {}).get("replicas")
            for one in wish.view.list("replicaset"):
                noted = one["metadata"].get("annotations", {}).get(NOTED_REPLICAS, "")
                if wanted and one["spec"]["replicas"] == wanted and noted not in ("", str(wanted)):
                    self.counts["roll-outs that hung in Kubernetes"] += 1
                    self.stage.note(f"frees the roll-out of {name}")
                    found, value = one["metadata"]["name"], f"{NOTED_REPLICAS}={wanted}"
                    self.stage.cluster.kubectl("annotate", "rs", found, "-n", NAMESPACE, "--overwrite", value)

    def _open(self, name: str, wish: Wish) -> list[str]:
        """What is not yet as it should be."""
        resource, spec = wish.view.resource(), wish.spec
        status = resource.get("status", {})
        wanted = {"Ready": "True", "MetricsAvailable": "True", "ScheduleApplied": "True"}
        if _scaled(spec) and not spec.get("paused"):
            wanted["AutoscalingReady"] = "True"
        if spec.get("tuning", {}).get("mode") == "Off":
            del wanted["ScheduleApplied"]
        told = {one["type"]: (one["status"], one["reason"]) for one in status.get("conditions", [])}
        found = [
            f"{name}: {type_} is {told.get(type_)}"
            for type_, expected in wanted.items()
            if told.get(type_, ("",))[0] != expected
        ]
        found += [f"{name}: {type_} {told[type_]}" for type_ in ("Reconciling", "Stalled") if type_ in told]
        if status.get("observedGeneration") != resource["metadata"]["generation"]:
            found.append(f"{name}: generation {status.get('observedGeneration')} was observed")
        return found or self._disagreements(name, wish)

    def _disagreements(self, name: str, wish: Wish) -> list[str]:
        """Engines that run something else than was decided."""
        if wish.spec.get("tuning", {}).get("mode") == "Off" or wish.spec.get("paused"):
            return []
        try:
            memory, addresses = wish.view.memory(), wish.view.ready_addresses()
            running = {address: wish.view.engine(address) for address in addresses}
        except (*SILENT, ClusterError) as error:
            return [f"{name}: {error!r}"]
        wrong = {
            address: (document["generation"], document["schedule"])
            for address, document in running.items()
            if (document["generation"], document["schedule"]) != (memory["generation"], memory["schedule"])
            or not {row[2] for row in document["schedule"]} <= _allowed(wish.spec)
        }
        decided = memory["generation"], memory["schedule"]
        return [f"{name}: {wrong} run, and {decided} was decided"] if wrong or not running else []

    def gone(self) -> None:
        """Every child of a deleted resource has gone."""
        left = self.stage.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        names = [pod["metadata"]["name"] for pod in left]
        assert not names, f"pods outlive their resource: {names}"


def _scaled(spec: Mapping[str, Any]) -> bool:
    return bool(spec.get("autoscaling", {}).get("mode") != "Off")


def _least(spec: Mapping[str, Any]) -> int:
    return int(spec["autoscaling"]["minReplicas"])


def _allowed(spec: Mapping[str, Any]) -> set[int]:
    """The K that the spec allows."""
    tuning = spec.get("tuning", {})
    mode = tuning.get("mode", "Adaptive")
    if mode == "Off":
        return {0}
    if mode == "Fixed":
        return {tuning["initialSpeculativeTokens"]}
    return set(range(tuning.get("minSpeculativeTokens", 0), CEILING + 1))


def _restarts(pod: Mapping[str, Any]) -> int:
    return sum(one.get("restartCount", 0) for one in pod.get("status", {}).get("containerStatuses", []))


def _digest(template: Any) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()


def _resident_mib(pid: int) -> float:
    """Memory in use, MiB; nothing for a process that has just ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as numbers:
            return int(numbers.read().split()[1]) * 4096 / 2**20
    except (OSError, urllib.error.URLError):
        return 0.0
