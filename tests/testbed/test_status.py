"""What status says when something is the matter: on a real control plane, with the simulator as kubelet.

Each case is mended in the end, and the condition has to clear by itself.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from tests.failures import Failure
from tests.testbed import operator, rights
from tests.testbed.alerting import alerted, quiet
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.kstatus import verdict
from tests.testbed.load import Load
from tests.testbed.policy import denied
from tests.testbed.service import ServiceView
from tests.testbed.test_operator import example

FEW, ONE_PAIR, TOO_FEW = "example.com/few", "example.com/one-pair", "example.com/too-few"
"""GPU resources that one node alone has, so that no other test of the module runs short of its GPUs."""
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
A_POD = """
apiVersion: v1
kind: Pod
metadata: {name: attempt}
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: attempt
      image: attempt
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
"""
"""One that the strictest level of Pod Security admits."""
TOKEN = "hf_" + "aBcDeFgHiJkLmNoPqR"
GATED = (
    "exit 1: Traceback (most recent call last):\n"
    "  File \"/usr/lib/python3/site-packages/huggingface_hub/utils/_http.py\", line 402\n"
    "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url"
    f" https://huggingface.co/org/target/resolve/main/config.json?token={TOKEN}\n"
    "OSError: You are trying to access a gated repo."
)  # fmt: skip


@pytest.fixture(scope="module")
def outrider(start_cluster: StartCluster) -> Iterator[Cluster]:
    """A cluster with Outrider on it."""
    cluster = start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5, nodes=3)
    operator.install(cluster)
    operator.start(cluster)
    yield cluster
    operator.stop(cluster)


def created(cluster: Cluster, namespace: str, **changes: Any) -> ServiceView:
    """Apply the example in a namespace of its own."""
    if not cluster.kubectl("get", "namespace", namespace, "--ignore-not-found").stdout:
        cluster.kubectl("create", "namespace", namespace)
    view = ServiceView(cluster, namespace, "chat")
    view.apply(example(namespace, **changes))
    return view


def simulated(**wishes: str) -> dict[str, Any]:
    """An engine of whose pods the simulator is asked something."""
    return {"env": [{"name": f"SIMULATOR_{name.upper()}", "value": value} for name, value in wishes.items()]}


def told(view: ServiceView, type_: str) -> str:
    """The message of a condition; empty if it is not there."""
    return next((one["message"] for one in view.status().get("conditions", []) if one["type"] == type_), "")


def becomes(view: ServiceView, type_: str, status: str, reason: str, *words: str) -> None:
    """Wait for a condition, by a pass that has seen the last edit, and for words of its message."""
    view.cluster.wait_until(f"{type_} {status} {reason}", lambda: view.is_told(type_, status, reason))
    for each in words:
        view.says(type_, each)


def becomes_ready(view: ServiceView) -> None:
    """Wait until it serves, and see that nobody would call it otherwise."""
    view.cluster.wait_until("ready service", lambda: view.is_told("Ready", "True"))
    view.cluster.wait_until("current", lambda: verdict(view.resource()) == "Current")
    assert view.ready_addresses()


def goes(view: ServiceView, type_: str) -> None:
    """Wait for the end of a condition."""
    view.cluster.wait_until(f"end of {type_}", lambda: view.condition(type_) == ("", ""))


def events(view: ServiceView, which: str, words: str) -> None:
    """Wait for an event of the namespace that has these words; one that tells of a status comes after it."""
    asked = ("get", "events", "-n", view.namespace, f"--field-selector={which}")
    view.cluster.wait_until(f"event with {words}", lambda: words in view.cluster.kubectl(*asked).stdout)


def restarts(view: ServiceView) -> list[int]:
    return [pod["status"]["containerStatuses"][0]["restartCount"] for pod in view.pods()]


def told_restarts(view: ServiceView) -> int:
    found = re.search(r"after (\d+) restart", told(view, "EngineReady"))
    return int(found[1]) if found else 0


class TestEnginesThatEnd:
    def test_c15_a_gated_repository_is_told_in_the_engines_own_words_without_its_token(self, outrider: Cluster) -> None:
        view = created(outrider, "c15-gated", engine=simulated(crash=GATED))
        said = ("exit status 1", "set spec.model.tokenSecret", "You are trying to access a gated repo.")
        becomes(view, "EngineReady", "False", "EngineCrashLoop", *said)
        # Numbers in sentences are written twice a minute at most, so some may never be shown.
        outrider.wait_until("count of restarts", lambda: 2 <= told_restarts(view) <= max(restarts(view)))
        becomes(view, "Ready", "False", "EngineCrashLoop")
        assert verdict(view.resource()) == "InProgress"
        everything = (
            json.dumps(view.status()) + outrider.kubectl("get", "events", "-n", "c15-gated", "-o", "json").stdout
        )
        assert TOKEN not in everything
        assert TOKEN not in operator.log(outrider)
        view.apply(example("c15-gated"))
        becomes_ready(view)

    def test_c06_of_a_version_that_nobody_knows_the_last_line_of_the_log_is_passed_on(self, outrider: Cluster) -> None:
        engine = {"image": "example.test/engine:latest", **simulated(crash="exit 1: ValueError: unknown method eagle3")}
        view = created(outrider, "c06-unknown", engine=engine)
        becomes(view, "EngineReady", "False", "EngineCrashLoop", "ValueError: unknown method eagle3")

    def test_c11_an_engine_that_loads_for_800_s_is_left_in_peace_and_one_of_5_s_is_not_kept_waiting(
        self, outrider: Cluster
    ) -> None:
        slow = created(outrider, "c11-slow", engine=simulated(load_seconds="800", speed="100"))
        fast = created(outrider, "c11-fast", engine=simulated(load_seconds="5"))
        becomes_ready(fast)  # is waited for a tenth of the budget that the slow one may use
        becomes_ready(slow)
        assert restarts(slow) == restarts(fast) == [0]

    def test_c11_an_engine_that_outlives_its_budget_names_the_field_to_raise(self, outrider: Cluster) -> None:
        engine = simulated(load_seconds="800", speed="20")
        view = created(outrider, "c11-late", engine=engine, startup={"budgetSeconds": 60})
        said = "not healthy within 60 s; raise spec.startup.budgetSeconds"
        becomes(view, "EngineReady", "False", "StartupTimeout", said)
        outrider.wait_until("second restart", lambda: restarts(view) > [1])
        becomes(view, "EngineReady", "False", "StartupTimeout")
        view.apply(example("c11-late", engine=simulated(load_seconds="800", speed="100")))
        becomes_ready(view)


def claim(name: str) -> Mapping[str, Any]:
    """A claim for one pod alone that nobody makes a volume for."""
    spec = {"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def volume(namespace: str, claim: str) -> Mapping[str, Any]:
    """A volume for a claim."""
    spec = {
        "accessModes": ["ReadWriteOncePod"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/srv"},
        "claimRef": {"namespace": namespace, "name": claim},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": namespace}, "spec": spec}


class TestWhatIsMissing:
    def test_c15_a_missing_secret_is_named_with_key_and_field_and_clears_by_itself(self, outrider: Cluster) -> None:
        model = {"id": "org/gated", "servedName": "chat", "tokenSecret": {"name": "hub", "key": "token"}}
        view = created(outrider, "c15-secret", model=model)
        said = 'Secret "hub" (spec.model.tokenSecret) is not there: create it with key "token"'
        becomes(view, "EngineReady", "False", "SecretNotFound", said)
        becomes(view, "Ready", "False", "SecretNotFound")
        outrider.kubectl("create", "secret", "generic", "hub", "-n", "c15-secret", "--from-literal=token=t")
        becomes_ready(view)

    def test_c15_a_missing_key_is_named_with_secret_and_field_and_clears_by_itself(self, outrider: Cluster) -> None:
        outrider.kubectl("create", "namespace", "c15-key")
        outrider.kubectl("create", "secret", "generic", "licence", "-n", "c15-key", "--from-literal=other=t")
        variables = [{"name": "LICENCE", "secret": {"name": "licence", "key": "text"}}]
        view = created(outrider, "c15-key", engine={"env": variables})
        said = 'Secret "licence" has no key "text" (spec.engine.env[0].secret)'
        becomes(view, "EngineReady", "False", "SecretNotFound", said)
        outrider.kubectl("patch", "secret", "licence", "-n", "c15-key", "-p", '{"stringData": {"text": "t"}}')
        becomes_ready(view)

    def test_c15_secrets_of_users_are_never_read(self, outrider: Cluster) -> None:
        made = rights.calls(outrider.logs / "audit.log")
        read = {call.right.name for call in made if call.right.resource == "secrets"}
        assert read == {"chat-admin"}

    def test_an_image_that_cannot_be_pulled(self, outrider: Cluster) -> None:
        view = created(outrider, "no-image", engine={"image": "registry.invalid/engine:1"})
        becomes(view, "EngineReady", "False", "ImageNotPulled", "registry.invalid/engine:1", "spec.engine.image")
        view.apply(example("no-image"))
        becomes_ready(view)

    def test_a_quota_that_has_no_room(self, outrider: Cluster) -> None:
        outrider.kubectl("create", "namespace", "quota")
        outrider.kubectl("create", "quota", "none", "-n", "quota", "--hard=pods=0")
        attempt = ("create", "-n", "quota", "--dry-run=server", "-f", "-")
        words = "exceeded quota: none"
        outrider.wait_until(words, lambda: words in outrider.kubectl(*attempt, input=A_POD, check=False).stderr)
        view = created(outrider, "quota")
        becomes(view, "EngineReady", "False", "QuotaExceeded", words)
        becomes(view, "Ready", "False", "QuotaExceeded")
        outrider.kubectl("delete", "quota", "none", "-n", "quota")
        becomes_ready(view)

    def test_pods_that_a_policy_of_the_cluster_denies(self, outrider: Cluster) -> None:
        """What the operator makes is fine in a namespace of the strictest Pod Security level; other policies differ."""
        outrider.kubectl("create", "namespace", "strict")
        outrider.kubectl("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
        with denied(outrider, "strict", PODS, "engines need a cost centre", "create", "-f", "-", input=A_POD):
            view = created(outrider, "strict")
            becomes(view, "EngineReady", "False", "PodsRefused", "engines need a cost centre")
        becomes_ready(view)

    def test_a_claim_that_is_not_there_and_then_has_no_volume(self, outrider: Cluster) -> None:
        storage = {"modelCache": {"claimName": "weights"}}
        view = created(outrider, "claims", storage=storage, autoscaling={"mode": "Off", "minReplicas": 2})
        said = 'PersistentVolumeClaim "weights" (spec.storage.modelCache.claimName) is not there'
        becomes(view, "EngineReady", "False", "VolumeClaimNotFound", said)
        outrider.kubectl("apply", "-n", "claims", "-f", "-", input=yaml.safe_dump(claim("weights")))
        becomes(view, "EngineReady", "False", "VolumeClaimNotBound", "storage class")
        outrider.kubectl("apply", "-f", "-", input=yaml.safe_dump(volume("claims", "weights")))
        becomes_ready(view)
        said = "share a claim only with access mode ReadWriteMany or ReadOnlyMany"
        becomes(view, "CapacityLimited", "True", "CacheNotShareable", said)

    def test_a_node_selector_that_no_node_meets_is_told_in_the_schedulers_words(self, outrider: Cluster) -> None:
        view = created(outrider, "nowhere", placement={"nodeSelector": {"disk": "fast"}})
        said = ("node affinity/selector", "spec.placement.nodeSelector")
        becomes(view, "EngineReady", "False", "Unschedulable", *said)
        view.apply(example("nowhere"))
        becomes_ready(view)


@pytest.fixture(scope="module")
def scarce(outrider: Cluster) -> Cluster:
    """A node with four GPUs of a kind that no other has, and two each of two more kinds."""
    amounts = {FEW: "4", ONE_PAIR: "2", TOO_FEW: "2"}
    status = {"status": {"capacity": amounts, "allocatable": amounts}}
    outrider.kubectl("patch", "node", "gpu-0", "--subresource=status", "-p", json.dumps(status))
    created(outrider, "c28", **using(TOO_FEW, 2))  # here, so that tests wait for its patience to end only once
    return outrider


def using(resource: str, replicas: int = 1, **more: Any) -> dict[str, Any]:
    """A fixed number of replicas of two GPUs that stop at once."""
    return {
        "resources": {"gpus": 2, "gpuResource": resource},
        "drain": {"preStopSeconds": 0, "shutdownTimeoutSeconds": 0},
        "autoscaling": {"mode": "Off", "minReplicas": replicas},
        **more,
    }


def squatter(namespace: str) -> list[Mapping[str, Any]]:
    """A pod of somebody else that takes two GPUs as soon as they are free, before any other."""
    meta = {"name": "squatter"}
    container = {
        "name": "train",
        "image": "example.test/train:1",
        "resources": {"limits": {FEW: "2"}},
    }
    return [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": 1000,
         "preemptionPolicy": "Never"},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "namespace": namespace},
         "spec": {"containers": [container], "priorityClassName": "squatter", "terminationGracePeriodSeconds": 0}},
    ]  # fmt: skip


class TestNoFreeGPU:
    def test_c12_an_update_without_a_spare_gpu_goes_through_and_says_that_it_interrupts_the_service(
        self, scarce: Cluster
    ) -> None:
        view = created(scarce, "c12-one", **using(ONE_PAIR))
        becomes_ready(view)
        view.says("EngineReady", "an update interrupts the service")
        before = {pod["metadata"]["uid"] for pod in view.pods()}
        view.apply(example("c12-one", **using(ONE_PAIR, engine={"maxNumSeqs": 128})))
        scarce.wait_until("another pod", lambda: {pod["metadata"]["uid"] for pod in view.pods()}.isdisjoint(before))
        becomes_ready(view)
        events(view, "reason=EnginesRolling", "interrupts the service")
        goes(view, "RolloutProgressing")

    def test_c12_a_rollout_that_waits_for_a_gpu_says_so_while_the_old_engine_serves(self, scarce: Cluster) -> None:
        view = created(scarce, "c12-two", **using(FEW, 2))
        scarce.wait_until("two engines", lambda: len(view.ready_addresses()) == 2)
        scarce.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(squatter("c12-two")))
        view.apply(example("c12-two", **using(FEW, 2, engine={"maxNumSeqs": 128})))
        said = (f"Insufficient {FEW}", "spec.resources.gpus (2 a replica)")
        becomes(view, "RolloutProgressing", "False", "NoFreeGPU", *said)
        assert view.condition("Ready")[0] == "True"
        assert verdict(view.resource()) == "InProgress"
        events(view, "type=Warning", "NoFreeGPU")
        scarce.kubectl("delete", "pod", "squatter", "-n", "c12-two", "--now")
        goes(view, "Reconciling")
        goes(view, "RolloutProgressing")
        becomes_ready(view)

    @pytest.mark.failure(
        "The cluster and its people",
        "no GPU is free",
        replicas="the others serve and scale",
        conditions=["CapacityLimited True NoFreeGPU"],
        alerts=["OutriderCapacityLimited"],
        ends="with the GPU",
        guard="reconcile/conditions.py:capacity_limited",
    )
    def test_c28_a_replica_that_finds_no_gpu_is_told_and_the_others_serve_on(
        self, scarce: Cluster, failure: Failure
    ) -> None:
        view = ServiceView(scarce, "c28", "chat")
        said = ("1 of 2 engines serves", f"Insufficient {TOO_FEW}")
        becomes(view, "CapacityLimited", *failure.condition("CapacityLimited"), *said)
        alerted(view, failure.alerts)
        assert view.condition("Ready")[0] == "True"
        assert verdict(view.resource()) == "Current"
        view.apply(example("c28", **using(TOO_FEW, 1)))
        goes(view, "CapacityLimited")
        quiet(view, failure.alerts)
        assert view.condition("Ready")[0] == "True"


def test_c16_an_argument_that_would_rename_the_model_in_its_metrics_is_refused(outrider: Cluster) -> None:
    engine = {"extraArgs": ["--served-model-name", "t32"]}
    done = outrider.kubectl("apply", "-f", "-", input=yaml.safe_dump(example("default", engine=engine)), check=False)
    assert done.returncode != 0
    assert "extraArgs" in done.stderr


@pytest.mark.failure(
    "Prometheus",
    "labels are not ours",
    k="held",
    conditions=["MetricsAvailable False NoSeries"],
    status="with the query",
    guard="reconcile/conditions.py:metrics_available",
)
def test_c16_metrics_without_our_labels_are_told_with_the_query_and_nothing_is_decided(outrider: Cluster) -> None:
    path = outrider.run_dir / "data" / "prometheus.yaml"
    before = path.read_text()
    config = yaml.safe_load(before)
    label = {
        "source_labels": ["namespace"],
        "regex": "c16",
        "target_label": "serving_outrider_dev_service",
        "replacement": "another",
    }
    config["scrape_configs"][0]["relabel_configs"].append(label)
    outrider.stop_process("prometheus")
    path.write_text(yaml.safe_dump(config))
    outrider.restart_process("prometheus")
    try:
        view = created(outrider, "c16")
        becomes_ready(view)
        generation = view.status()["tuning"]["generation"]
        with Load(outrider, "c16", "chat", concurrency=32, acceptance=0.2):
            said = ('namespace="c16",serving_outrider_dev_service="chat"', "vllm:num_requests_running")
            becomes(view, "MetricsAvailable", "False", "NoSeries", *said)
            time.sleep(6.0)
        assert view.status()["tuning"]["generation"] == generation
        assert view.condition("Ready")[0] == "True"
    finally:
        outrider.stop_process("prometheus")
        path.write_text(before)
        outrider.restart_process("prometheus")
    becomes(view, "MetricsAvailable", "True", "Fresh")


class TestGenericTools:
    def test_a_resource_that_nobody_has_looked_at_yet_is_not_called_current(self, outrider: Cluster) -> None:
        outrider.kubectl("create", "namespace", "new")
        done = outrider.kubectl("create", "-f", "-", "-o", "json", input=yaml.safe_dump(example("new")))
        assert verdict(json.loads(done.stdout)) == "InProgress"

    def test_what_cannot_work_as_it_stands_has_failed_until_it_is_changed(self, outrider: Cluster) -> None:
        view = created(outrider, "refused", engine={"extraArgs": ["--max-num-seq=8"]})
        outrider.wait_until("refusal", lambda: verdict(view.resource()) == "Failed")
        assert view.condition("Stalled")[0] == "True"
        assert view.condition("Ready")[0] == "False"
        view.apply(example("refused"))
        becomes_ready(view)
        assert view.condition("Stalled") == ("", "")

    def test_what_is_being_deleted_is_terminating(self, outrider: Cluster) -> None:
        view = created(outrider, "leaving")
        becomes_ready(view)
        hold = {"metadata": {"finalizers": ["example.com/hold"]}}
        outrider.kubectl("patch", "sis", "chat", "-n", "leaving", "--type=merge", "-p", json.dumps(hold))
        outrider.kubectl("delete", "sis", "chat", "-n", "leaving", "--wait=false")
        assert verdict(view.resource()) == "Terminating"
        hold["metadata"]["finalizers"] = []
        outrider.kubectl("patch", "sis", "chat", "-n", "leaving", "--type=merge", "-p", json.dumps(hold))
        outrider.wait_until("end", lambda: not view.resource())
