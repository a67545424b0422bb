"""What keeps an engine from serving, in the words of scheduler, kubelet, API server or the engine itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outrider.api.defaults import resolve
from outrider.api.resource import Spec
from outrider.reconcile import troubles
from outrider.reconcile.engine_pod import Ending, EnginePod
from outrider.reconcile.troubles import PATIENCE_S, Trouble
from tests.unit.api.bodies import resource

from .fakes import NOW_S, Manifest

BUCKET = {"objectStore": {"uri": "s3://models/llama"}}
NO_FOLDER = (
    "HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name':"
    " '/var/cache/engine/models/f3'. Use `repo_type` argument if needed."
)
"""As vLLM 0.32 ends."""
TOKEN = {"spec.model.tokenSecret": {"name": "hub", "key": "token"}}
POD = EnginePod(
    name="chat-a", uid="u", address="10.0.0.1", ready=False, terminating=False, revision="r1", startup_budget_s=1800.0
)
SERVES = replace(POD, name="chat-s", ready=True)
LONG_AGO_S = NOW_S - 1000.0


def found(*pods: EnginePod, changes: dict[str, Any] | None = None, live: Manifest | None = None) -> list[Trouble]:
    spec: Spec = resource(changes or {}).spec
    return troubles.find(pods, live, spec, resolve(spec), NOW_S)


def only(*pods: EnginePod, changes: dict[str, Any] | None = None, live: Manifest | None = None) -> Trouble:
    (trouble,) = found(*pods, changes=changes, live=live)
    return trouble


def ended(words: str = "", exit_code: int = 1, reason: str = "Error", ran_s: float = 60.0, life: int = 2) -> Ending:
    return Ending(exit_code, reason, words, ran_s, life)


def unscheduled(words: str, since_s: float = LONG_AGO_S) -> EnginePod:
    return replace(POD, unscheduled=words, pending_since_s=since_s)


def held_back(words: str = "", **changes: Any) -> EnginePod:
    """An engine that waits for its next life, its third."""
    return replace(POD, waiting_reason="CrashLoopBackOff", restarts=2, ending=ended(words, **changes))


def refused(message: str, reason: str = "CreateContainerConfigError") -> EnginePod:
    return replace(POD, waiting_reason=reason, waiting_message=message)


class TestEnginesThatEnd:
    @pytest.mark.parametrize(
        ("one", "reason"),
        [
            pytest.param(held_back(), "EngineCrashLoop", id="it is held back"),
            pytest.param(replace(POD, restarts=2, ending=ended(life=1)), "EngineCrashLoop", id="it loads once more"),
            pytest.param(replace(POD, restarts=1, ending=ended(life=0)), "EngineCrashed", id="it has ended once"),
            pytest.param(replace(POD, ending=ended(life=0)), "EngineCrashed", id="and is to start again"),
            pytest.param(
                replace(POD, waiting_reason="CrashLoopBackOff"), "EngineCrashLoop", id="nobody told how it ended"
            ),
            pytest.param(held_back(exit_code=137, reason="OOMKilled"), "EngineOutOfMemory", id="for want of memory"),
            pytest.param(held_back(exit_code=137, ran_s=1801.0), "StartupTimeout", id="by its start-up probe"),
        ],
    )
    def test_c15_how_it_ended(self, one: EnginePod, reason: str) -> None:
        assert only(one).reason == reason

    @pytest.mark.parametrize(
        "one",
        [
            pytest.param(POD, id="it loads for the first time"),
            pytest.param(replace(POD, waiting_reason="ContainerCreating"), id="its container is being made"),
            pytest.param(SERVES, id="it serves"),
            pytest.param(replace(SERVES, restarts=2, ending=ended(life=1)), id="it serves again"),
            pytest.param(
                replace(POD, restarts=2, ending=ended(life=1), served_life=2), id="it runs again and is not ready"
            ),
            pytest.param(replace(held_back(), terminating=True), id="it is on its way out"),
        ],
    )
    def test_what_is_no_trouble(self, one: EnginePod) -> None:
        assert found(one) == []

    def test_c15_restarts_exit_status_and_last_words_are_told(self) -> None:
        assert only(held_back("ValueError: boom", exit_code=3)).message == (
            "pod chat-a after 2 restarts: the engine ended with exit status 3. Its last words: ValueError: boom"
        )
        assert only(held_back()).message == "pod chat-a after 2 restarts: the engine ended with exit status 1."

    @pytest.mark.parametrize(
        ("words", "changes", "remedy"),
        [
            pytest.param("OSError: You are trying to access a gated repo.", {}, "set spec.model.tokenSecret",
                         id="gated, no token"),
            pytest.param(
                "GatedRepoError: 403 Client Error.", TOKEN,
                'the token in Secret "hub", key "token" (spec.model.tokenSecret) has no access', id="gated, a token",
            ),
            pytest.param("Access to model org/x is restricted.", {}, "spec.model.tokenSecret", id="restricted"),
            pytest.param("RepositoryNotFoundError: 401 Client Error. Repository Not Found for url", {},
                         "look at spec.model.id", id="wrong id, as the hub tells strangers"),
            pytest.param("org/x is not a local folder and is not a valid model identifier", {}, "spec.model.id",
                         id="wrong id"),
            pytest.param("requests.HTTPError: 401 Client Error: Unauthorized", {}, "spec.model.tokenSecret",
                         id="no access"),
            pytest.param("api_server.py: error: unrecognized arguments: --x", {}, "spec.engine.extraArgs", id="a flag"),
            pytest.param("ValueError: User-specified max_model_len (9) is greater", {}, "lower spec.model.maxLength",
                         id="context"),
            pytest.param("torch.OutOfMemoryError: CUDA out of memory.", {}, "raise spec.resources.gpus", id="memory"),
            pytest.param("ValueError: Free memory on device (1/79 GiB) on startup is less than desired", {},
                         "spec.engine.gpuMemoryUtilizationPercent", id="a GPU in use"),
            pytest.param(NO_FOLDER, {"spec.model.source": BUCKET},
                         "there are no weights in /var/cache/engine/models/f3: look at spec.model.source",
                         id="an empty bucket"),
            pytest.param(NO_FOLDER, {"spec.model.source": BUCKET, "spec.speculation.draft.source": BUCKET},
                         "look at spec.model.source and spec.speculation.draft.source", id="one of two buckets"),
            pytest.param(NO_FOLDER, {}, "look at spec.model.id and spec.speculation.draft.id",
                         id="a folder that the image does not have"),
            pytest.param("OSError: [Errno 28] No space left on device", {}, "its disk is full", id="disk"),
        ],
    )  # fmt: skip
    def test_c15_known_words_bring_their_remedy(self, words: str, changes: dict[str, Any], remedy: str) -> None:
        message = only(held_back(words), changes=changes).message
        assert f"; {remedy}" in message or f"{remedy}" in message.split("Its last words")[0]
        assert message.endswith(f"Its last words: {words}")

    def test_c11_the_budget_is_the_pods_own_and_the_field_is_named(self) -> None:
        late = replace(held_back("Loading shards: 40%", ran_s=605.0), startup_budget_s=600.0)
        assert only(late).message == (
            "pod chat-a after 2 restarts: the engine was killed since it was not healthy within 600 s; raise"
            " spec.startup.budgetSeconds, or see what it waits for. Its last words: Loading shards: 40%"
        )

    def test_want_of_memory_names_both_fields(self) -> None:
        message = only(held_back(reason="OOMKilled")).message
        assert "raise spec.resources.memory, of which spec.resources.sharedMemory is a part" in message

    def test_an_init_container_is_named(self) -> None:
        trouble = only(replace(held_back("Failed to copy: AccessDenied"), container="download"))
        assert trouble.reason == "InitContainerFailed"
        assert trouble.message == (
            "pod chat-a, init container download, after 2 restarts: it ended with exit status 1. Its last words:"
            " Failed to copy: AccessDenied"
        )

    @pytest.mark.parametrize("reason", ["Error", "OOMKilled"])
    def test_a_container_beside_the_engine_is_named_and_nothing_of_the_engine_blamed(self, reason: str) -> None:
        stopped = replace(held_back("401 Client Error", reason=reason), container="guard", beside=True)
        trouble = only(stopped)
        assert trouble.reason == "SidecarFailed"
        assert trouble.message == (
            "pod chat-a, container guard, after 2 restarts: it ended with exit status 1. Its last words:"
            " 401 Client Error"
        )

    def test_of_a_container_beside_the_engine_whose_end_is_not_told(self) -> None:
        stopped = replace(held_back(), container="guard", beside=True, ending=None)
        assert only(stopped).reason == "SidecarFailed"


class TestContainersThatAreRefused:
    @pytest.mark.parametrize(
        ("message", "changes", "sentence"),
        [
            pytest.param(
                'secret "hub" not found', TOKEN,
                'Secret "hub" (spec.model.tokenSecret) is not there: create it with key "token"', id="no Secret",
            ),
            pytest.param(
                "couldn't find key token in Secret ml/hub", TOKEN,
                'Secret "hub" has no key "token" (spec.model.tokenSecret): add the key, or name another one',
                id="no such key",
            ),
            pytest.param(
                'secret "own" not found',
                {"spec.engine": {"env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "secret": {"name": "own", "key": "b"}},
                    {"name": "C", "secret": {"name": "own", "key": "c"}},
                ]}},
                'Secret "own" (spec.engine.env[1].secret, spec.engine.env[2].secret) is not there: create it with key'
                ' "b", "c"',
                id="a Secret of two variables",
            ),
            pytest.param(
                'secret "reader" not found',
                {"spec.model.source": {"objectStore": {"uri": "s3://a/b", "credentialsSecret": "reader"}}},
                'Secret "reader" (spec.model.source.objectStore.credentialsSecret) is not there: create it;',
                id="all of a Secret",
            ),
            pytest.param(
                'secret "other" not found', TOKEN, 'Secret "other" is not there: create it;',
                id="one that no field names",
            ),
        ],
    )  # fmt: skip
    def test_c15_a_missing_secret_is_named_with_key_and_field(
        self, message: str, changes: dict[str, Any], sentence: str
    ) -> None:
        trouble = only(refused(message), changes=changes)
        assert trouble.reason == "SecretNotFound"
        assert trouble.message.startswith(f"pod chat-a: {sentence}")
        assert trouble.message.endswith("; the engine then starts by itself")

    @pytest.mark.parametrize(
        ("message", "reason"),
        [
            ('configmap "chat-schedule" not found', "ConfigurationMissing"),
            ("couldn't find key schedule.json in ConfigMap ml/chat-schedule", "ConfigurationMissing"),
            ("container has runAsNonRoot and image will run as root", "ContainerRefused"),
        ],
    )
    def test_what_else_the_kubelet_refuses(self, message: str, reason: str) -> None:
        assert only(refused(message)).reason == reason

    def test_without_a_sentence_its_word_is_told(self) -> None:
        assert only(refused("", "RunContainerError")).message == "pod chat-a: RunContainerError"

    @pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"])
    def test_images(self, reason: str) -> None:
        trouble = only(refused("no such host", reason))
        assert trouble.reason == "ImageNotPulled"
        assert trouble.message.startswith("pod chat-a: no such host. Look at the image in the spec (spec.engine.image")


GPU = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."


class TestPodsThatNoNodeTakes:
    @pytest.mark.parametrize(
        ("words", "reason", "remedy"),
        [
            pytest.param(GPU, "NoFreeGPU", "free GPUs or add nodes, or lower spec.resources.gpus (1 a replica)",
                         id="c12: GPUs"),
            pytest.param("0/4 nodes are available: 1 node(s) had untolerated taint {x: y}, 3 Insufficient"
                         " nvidia.com/gpu.", "NoFreeGPU", "tolerate the taint in spec.placement.tolerations",
                         id="GPUs, or a taint"),
            pytest.param("0/4 nodes are available: 4 node(s) had untolerated taint {x: y}.", "Unschedulable",
                         "spec.placement.tolerations", id="a taint"),
            pytest.param("0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector.",
                         "Unschedulable", "spec.placement.nodeSelector", id="a selector"),
            pytest.param("0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector.",
                         "Unschedulable", "spec.placement.affinity", id="affinity to nodes"),
            pytest.param("0/4 nodes are available: 4 node(s) didn't match pod anti-affinity rules.",
                         "Unschedulable", "spec.placement.affinity", id="affinity to pods"),
            pytest.param("0/4 nodes are available: 4 node(s) didn't match pod topology spread constraints.",
                         "Unschedulable", "spec.placement.topologySpreadConstraints", id="a spread"),
            pytest.param("0/4 nodes are available: 4 cannot allocate all claims.",
                         "Unschedulable", "spec.resources.resourceClaims", id="claims of devices"),
            pytest.param("0/4 nodes are available: 4 Insufficient memory.", "Unschedulable", "spec.resources.memory",
                         id="memory"),
            pytest.param("Scheduling is blocked due to non-empty scheduling gates", "Unschedulable", "gates",
                         id="in words that we do not know"),
            pytest.param('persistentvolumeclaim "weights" not found', "VolumeClaimNotFound", '"weights"', id="a claim"),
            pytest.param("0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
                         "VolumeClaimNotBound", "storage class", id="a claim without a volume"),
            pytest.param("0/4 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name and"
                         " ReadWriteOncePod access mode.", "CacheNotShareable", "ReadWriteMany", id="a claim in use"),
        ],
    )  # fmt: skip
    def test_the_schedulers_words_and_the_field(self, words: str, reason: str, remedy: str) -> None:
        trouble = only(unscheduled(words))
        assert trouble.reason == reason
        assert remedy in trouble.message
        assert not trouble.passing

    def test_a_claim_is_named_with_the_field_that_asks_for_it(self) -> None:
        changes = {"spec.storage": {"modelCache": {"claimName": "weights"}}}
        trouble = only(unscheduled('persistentvolumeclaim "weights" not found'), changes=changes)
        assert trouble.message == (
            'pod chat-a: PersistentVolumeClaim "weights" (spec.storage.modelCache.claimName) is not there: create it;'
            " the engine then starts by itself"
        )

    def test_what_it_says_of_preemption_is_left_out(self) -> None:
        words = f"{GPU} no new claims to deallocate, preemption: 0/4 nodes are available: 4 No preemption victims."
        assert only(unscheduled(words)).message.startswith(f"pod chat-a: {GPU} To mend it, free GPUs")

    def test_another_kind_of_gpu_counts_as_the_one_that_is_asked_for(self) -> None:
        words = "0/4 nodes are available: 4 Insufficient amd.com/gpu."
        assert only(unscheduled(words), changes={"spec.resources.gpuResource": "amd.com/gpu"}).reason == "NoFreeGPU"
        assert only(unscheduled(words)).reason == "Unschedulable"

    @pytest.mark.parametrize(("waited_s", "passing"), [(PATIENCE_S - 1, True), (PATIENCE_S, False)])
    def test_a_moment_is_no_cause_for_alarm(self, waited_s: float, passing: bool) -> None:
        assert only(unscheduled(GPU, NOW_S - waited_s)).passing == passing

    @pytest.mark.parametrize(("waited_s", "reason"), [(PATIENCE_S + 89, "Replacing"), (PATIENCE_S + 90, "NoFreeGPU")])
    def test_c12_an_engine_that_drains_has_its_time_to_give_its_gpu_back(self, waited_s: float, reason: str) -> None:
        old = replace(SERVES, name="chat-old", terminating=True)
        trouble = only(replace(unscheduled(GPU, NOW_S - waited_s), grace_s=90.0), old)
        assert (trouble.reason, trouble.passing) == (reason, reason == "Replacing")
        if trouble.passing:
            assert trouble.message.startswith("pod chat-a starts when pod chat-old has finished")

    def test_a_drain_does_not_excuse_a_taint(self) -> None:
        old = replace(SERVES, terminating=True)
        assert only(unscheduled("0/1 nodes are available: 1 node(s) had untolerated taint {x: y}."), old).reason == (
            "Unschedulable"
        )


def failing(message: str, status: str = "True") -> Manifest:
    """A Deployment whose pods cannot be made."""
    failure = {"type": "ReplicaFailure", "status": status, "reason": "FailedCreate", "message": message}
    return {"spec": {}, "status": {"conditions": [failure]}}


class TestPodsThatAreRefused:
    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            ("exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: 4, limited: 4", "QuotaExceeded"),
            ("failed quota: all: must specify memory for: engine", "QuotaExceeded"),
            ('violates PodSecurity "restricted:latest": seccompProfile', "PodSecurityRefused"),
            ("admission webhook \"policy.example.com\" denied the request: no label", "PodsRefused"),
        ],
    )  # fmt: skip
    def test_the_api_servers_words_without_a_pods_name_that_is_another_each_time(self, words: str, reason: str) -> None:
        trouble = only(live=failing(f'pods "chat-5d9-x7k2p" is forbidden: {words}'))
        assert trouble.reason == reason
        assert words in trouble.message
        assert "x7k2p" not in trouble.message

    @pytest.mark.parametrize(
        ("words", "ending"),
        [
            ('pods "chat-5d9-x7k2p" is forbidden: no PriorityClass with name nosuch was found',
             "nosuch was found. Look at spec.placement.priorityClassName"),
            ('pods "chat-5d9-x7k2p" is forbidden: pod rejected: RuntimeClass "nosuch" not found',
             '"nosuch" not found. Look at spec.placement.runtimeClassName'),
            ('pods "chat-5d9-x7k2p" is forbidden: admission webhook "x" denied the request', "denied the request"),
        ],
    )  # fmt: skip
    def test_a_class_that_is_not_there_is_told_with_its_field(self, words: str, ending: str) -> None:
        assert only(live=failing(words)).message.endswith(ending)

    def test_what_is_over_is_no_trouble(self) -> None:
        assert found(live=failing("exceeded quota", "False")) == []


class TestOrder:
    def test_pods_of_the_present_template_come_first_then_by_name(self) -> None:
        live = {"spec": {"template": {"metadata": {"labels": {"serving.outrider.dev/revision": "r2"}}}}}
        pods = [replace(held_back(), name=name, revision=revision) for name, revision in (
            ("chat-a", "r1"), ("chat-d", "r2"), ("chat-b", "r2"))]  # fmt: skip
        assert [one.revision for one in found(*pods, live=live)] == ["r2", "r2", "r1"]
        assert "chat-b" in found(*pods, live=live)[0].message

    def test_a_pod_that_ended_for_good_counts_only_where_no_other_is(self) -> None:
        gone = replace(POD, name="chat-0", failed="Evicted: low on memory")
        assert only(gone).message == ("pod chat-0 ended for good (Evicted: low on memory); another one takes its place")
        assert found(gone, POD) == []

    def test_before_the_spec_was_read_nothing_is_named_that_is_not_known(self) -> None:
        (trouble,) = troubles.find([refused('secret "hub" not found')], None, None, resolve(resource().spec), NOW_S)
        assert trouble.reason == "SecretNotFound"
