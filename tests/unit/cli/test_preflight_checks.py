"""The list of what to look at before a service is deployed: for each, one resource that is fine and one that is not."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.cli.preflight_examination import DEPLOYMENT_CHECKS, Knowledge, examined
from outrider.cli.preflight_outcome import Outcome, Workload
from outrider.cli.preflight_reading import Document
from tests.unit.api.bodies import changed, example
from tests.unit.engine.builders import model

GIB = 2**30
COMMIT = "0123456789abcdef0123456789abcdef01234567"
PINNED = {"spec.model.revision": COMMIT, "spec.speculation.draft.revision": COMMIT}
NGRAM = {"spec.speculation": {"method": "ngram", "maxSpeculativeTokens": 4}}
H100 = {"spec.placement": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}}
L4 = {"spec.placement": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}}}
A10 = {"spec.placement": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A10G"}}}
FP8 = {"spec.model.quantization": "fp8"}
NVL = {"spec.placement": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-NVL"}}}
TRIGGER = {"name": "gateway", "query": "sum(gateway_queue)", "metricType": "AverageValue", "target": 20}
BUCKET: dict[str, Any] = {"spec.model.source": {"objectStore": {"uri": "s3://models/llama"}}}
LIMITED: dict[str, Any] = {"allowFrom": [{"podSelector": {}}]}
KEY = {"name": "VLLM_API_KEY", "secret": {"name": "clients", "key": "key"}}


def outcome(name: str, changes: dict[str, Any], knowledge: Knowledge | None = None) -> Outcome:
    outcomes, _ = examined(Document("service.yaml", changed(example(), changes)), knowledge or Knowledge())
    return next(one for _, one in outcomes if one.name == name)


def tensor(size: int) -> dict[str, Any]:
    return {"spec.parallelism": {"tensor": size}, "spec.resources": {"gpus": size}}


def known(workload: Workload | None = None, **changes: Any) -> Knowledge:
    return Knowledge(workload=workload, **changes)


CASES: list[Any] = [
    ("quantization-fit", {}, None, "ok", "not quantised"),
    ("quantization-fit", {"spec.model.quantization": "fp8"} | H100, None, "ok", "fp8, 8 bits"),
    ("quantization-fit", {"spec.model.quantization": "fp8"} | A10, None, "warning", "does not compute in 8-bit floats"),
    (
        "quantization-fit",
        {"spec.model.quantization": "awq", "spec.model.id": "org/model-3B"},
        None,
        "warning",
        "a model of 3.0 billion parameters gains little",
    ),
    ("quantization-fit", {"spec.model.quantization": "awq"}, known("chat"), "ok", "awq, 4 bits"),
    ("quantization-fit", {"spec.model.quantization": "awq"}, known("math"), "warning", "the workload is math"),
    ("quantization-fit", {"spec.model.quantization": "awq"}, known("code"), "warning", "the workload is code"),
    (
        "quantization-fit",
        {},
        known(target=model(quantization_config={"quant_method": "gptq", "bits": 4})),
        "ok",
        "gptq, 4 bits",
    ),
    ("quantization-fit", {"spec.model.quantization": "experimental"}, None, "refused", "does not know"),
    ("quantization-fit", {"spec.model.quantization": "torchao"}, None, "ok", "of unknown width"),
    ("draft-compatibility", {}, None, "notChecked", "the model's config.json is not known"),
    ("draft-compatibility", {}, known(target=model()), "notChecked", "the drafter's config.json is not known"),
    ("draft-compatibility", {}, known(target=model(), drafter=model()), "ok", "both fit"),
    ("draft-compatibility", NGRAM, None, "ok", "has no draft model"),
    ("draft-compatibility", {"spec.speculation.tuning": {"mode": "Off"}}, None, "notChecked", "without speculation"),
    (
        "draft-compatibility",
        {"spec.speculation.method": "draft_model"},
        known(target=model(), drafter=model(vocab_size=5)),
        "refused",
        "the drafter's vocabulary has 5 entries",
    ),
    ("workload-fit", {}, None, "notChecked", "name it with --workload"),
    ("workload-fit", {}, known("chat"), "ok", "eagle3 suits chat"),
    ("workload-fit", {}, known("creative"), "warning", "few drafts are accepted"),
    ("workload-fit", NGRAM, known("chat"), "warning", "answers of chat repeat little"),
    ("workload-fit", NGRAM, known("translate"), "warning", "use a trained drafter"),
    ("workload-fit", NGRAM, known("summarise"), "ok", "ngram suits summarise"),
    ("workload-fit", {}, known("summarise"), "ok", "worth a comparison"),
    ("workload-fit", NGRAM, known("agent"), "warning", "promptLookupMin is 5"),
    (
        "workload-fit",
        {"spec.speculation": NGRAM["spec.speculation"] | {"ngram": {"promptLookupMin": 8, "promptLookupMax": 9}}},
        known("agent"),
        "ok",
        "ngram suits agent",
    ),
    ("workload-fit", {"spec.speculation.tuning": {"mode": "Off"}}, known("chat"), "notChecked", "without speculation"),
    ("memory-fit", {}, None, "notChecked", "the memory of the GPUs is not known: give --gpu-memory"),
    ("memory-fit", H100, None, "ok", "8 billion parameters by name at 16 bits"),
    (
        "memory-fit",
        H100 | FP8,
        known(gpu_memory_bytes=7 * GIB),
        "refused",
        "the engine may take 6.4 GiB of it",
    ),
    ("memory-fit", H100, known(gpu_memory_bytes=12 * GIB), "warning", "little or nothing is left for the KV cache"),
    (
        "memory-fit",
        {"spec.placement": {"nodeSelector": {"nvidia.com/gpu.memory": "7168"}}} | FP8,
        None,
        "refused",
        "the engine may take 6.4 GiB of it",
    ),
    ("memory-fit", {"spec.model.id": "org/x"} | H100, None, "notChecked", "how large org/x is: give --model-config"),
    ("interconnect", {}, None, "ok", "each layer is on one GPU"),
    ("interconnect", tensor(2), None, "notChecked", "select nodes by nvidia.com/gpu.product"),
    ("interconnect", tensor(2) | H100, None, "ok", "linked by NVLink"),
    ("interconnect", tensor(2) | L4, None, "warning", "NVIDIA-L4 is linked by PCIe"),
    ("interconnect", tensor(2) | NVL, None, "ok", "NVLink in pairs"),
    ("interconnect", tensor(4) | NVL, None, "warning", "beyond 2 every layer waits for PCIe"),
    ("pinned-revisions", {}, None, "warning", "spec.model.revision is not set"),
    ("pinned-revisions", PINNED, None, "ok", "are pinned"),
    ("pinned-revisions", PINNED | {"spec.model.revision": "main"}, None, "warning", "is main, which can move"),
    (
        "pinned-revisions",
        {"spec.model.id": "/models/a", "spec.speculation.draft.id": "/models/b"},
        None,
        "ok",
        "pinned",
    ),
    (
        "pinned-revisions",
        PINNED | {"spec.engine": {"image": "registry.example.com/vllm:latest"}},
        None,
        "warning",
        "pin it by digest",
    ),
    (
        "pinned-revisions",
        PINNED | {"spec.engine": {"image": f"registry.example.com/vllm@sha256:{'a' * 64}"}},
        None,
        "ok",
        "pinned",
    ),
    ("cold-start", {"spec.autoscaling.scaleDownStabilizationSeconds": 600}, None, "ok", "about 8 min: 14.9 GiB"),
    ("cold-start", {}, None, "warning", "scaleDownStabilizationSeconds is 300"),
    ("cold-start", {"spec.autoscaling": {"minReplicas": 5, "maxReplicas": 6}}, None, "warning", "is 300"),
    ("cold-start", {"spec.autoscaling": {"minReplicas": 6, "maxReplicas": 6}}, None, "ok", "about 8 min: 14.9 GiB"),
    ("cold-start", BUCKET | {"spec.startup": {"budgetSeconds": 350}}, None, "warning", "scaleDownStabilizationSeconds"),
    (
        "cold-start",
        BUCKET | {"spec.autoscaling.scaleDownStabilizationSeconds": 600},
        None,
        "ok",
        "after about 1 min for the copy of the bucket, within 1800 s",
    ),
    ("cold-start", {"spec.startup": {"budgetSeconds": 400}}, None, "warning", "budgetSeconds is 400"),
    ("cold-start", {"spec.model.id": "org/x"}, None, "notChecked", "give --model-config"),
    ("tail-latency", {}, None, "ok", "steps of up to 256 requests"),
    ("tail-latency", {"spec.objectives": {}}, None, "notChecked", "there are no objectives"),
    ("tail-latency", {"spec.engine": {"maxNumBatchedTokens": 32768}}, None, "warning", "8192 is usual"),
    ("tail-latency", {"spec.engine": {"maxNumBatchedTokens": 16384}}, None, "ok", "16384 tokens"),
    ("tail-latency", {"spec.engine": {"chunkedPrefill": False}}, None, "warning", "computed in one piece"),
    ("tail-latency", {"spec.engine": {"maxNumSeqs": 528}}, None, "ok", "steps of up to 528 requests"),
    ("tail-latency", {"spec.engine": {"maxNumSeqs": 529}}, None, "warning", "run without CUDA graphs"),
    ("drain", {}, None, "ok", "15 s to leave the endpoints, 60 s to finish, 90 s in all"),
    ("drain", {"spec.drain": {"shutdownTimeoutSeconds": 29}}, None, "warning", "shutdownTimeoutSeconds is 29"),
    ("drain", {"spec.drain": {"preStopSeconds": 4}}, None, "warning", "preStopSeconds is 4"),
    ("drain", {"spec.engine": {"version": "0.17.1"}}, None, "warning", "no drain in this version"),
    ("disruption", {}, None, "warning", "minReplicas is 1: at low load every drained node"),
    ("disruption", {"spec.autoscaling": {"mode": "Off"}}, None, "warning", "minReplicas is 1: every drained node"),
    ("disruption", {"spec.autoscaling.minReplicas": 2}, None, "ok", "at least 2 replicas"),
    (
        "disruption",
        {"spec.autoscaling.minReplicas": 2, "spec.disruption": {"maxUnavailable": 2}},
        None,
        "warning",
        "all may be evicted at once",
    ),
    (
        "disruption",
        {"spec.autoscaling.minReplicas": 2, "spec.disruption": {"maxUnavailable": 0}},
        None,
        "warning",
        "no node with a replica can be drained",
    ),
    ("rollout", {}, None, "ok", "RollingUpdate: at most 1 missing"),
    ("rollout", {"spec.rollout": {"strategy": "Recreate"}}, None, "warning", "an outage of a cold start"),
    ("rollout", {"spec.rollout": {"maxSurge": 2}} | tensor(4), None, "warning", "until 2 x 4 further GPUs are free"),
    ("gpu-budget", tensor(2), None, "ok", "up to 6 x 2 = 12 GPUs"),
    ("gpu-budget", tensor(2) | {"spec.rollout": {"maxSurge": 1}}, None, "ok", "and 2 in a rollout"),
    ("gpu-budget", {"spec.autoscaling": None}, None, "ok", "up to 1 x 1 = 1 GPUs"),
    ("shared-memory", {}, None, "ok", "up to 8Gi"),
    (
        "shared-memory",
        {"spec.parallelism": {"tensor": 2}, "spec.resources": {"gpus": 2, "sharedMemory": "512Mi"}},
        None,
        "warning",
        "sharedMemory is 512Mi",
    ),
    ("shared-memory", {"spec.resources": {"sharedMemory": "512Mi"}}, None, "ok", "up to 0.5Gi"),
    ("shared-memory", {"spec.resources": {"memory": "4Gi"}}, None, "warning", "8Gi, is more than memory, 4Gi"),
    ("cache-volume", {}, None, "warning", "downloads the weights again"),
    ("cache-volume", {"spec.autoscaling": None}, None, "ok", "no claims are used"),
    (
        "cache-volume",
        {"spec.storage": {"modelCache": {"claimName": "weights"}}},
        None,
        "notChecked",
        "weights (spec.storage.modelCache.claimName) can be mounted by 6 replicas",
    ),
    (
        "cache-volume",
        {"spec.speculation.draft.source": {"volume": {"claimName": "drafters"}}},
        None,
        "notChecked",
        "drafters (spec.speculation.draft.source.volume.claimName) can be mounted by 6 replicas",
    ),
    (
        "cache-volume",
        {
            "spec.speculation.draft.source": {"volume": {"claimName": "drafters"}},
            "spec.speculation.tuning": {"mode": "Off"},
            "spec.autoscaling": None,
        },
        None,
        "ok",
        "no claims are used",
    ),
    (
        "cache-volume",
        {"spec.model.source": {"volume": {"claimName": "models"}}, "spec.autoscaling": None},
        None,
        "ok",
        "there is one replica",
    ),
    ("cache-volume", {"spec.model.source": {"image": {"reference": "r.example.com/m:1"}}}, None, "ok", "no claims"),
    ("monitoring", {}, None, "warning", "labels is empty"),
    ("monitoring", {"spec.monitoring": {"labels": {"release": "prometheus"}}}, None, "ok", "are asked for"),
    ("monitoring", {"spec.monitoring": {"podMonitor": False}}, None, "warning", "nothing is tuned"),
    ("triggers", {}, None, "ok", "there are none"),
    ("triggers", {"spec.autoscaling.triggers": [TRIGGER]}, None, "ok", "divide once"),
    (
        "triggers",
        {"spec.autoscaling.triggers": [TRIGGER | {"query": "avg(gateway_queue)"}]},
        None,
        "warning",
        "divided",
    ),
    ("secrets", {}, None, "warning", "the download may be refused"),
    ("secrets", {"spec.model.tokenSecret": {"name": "hub", "key": "token"}}, None, "ok", "no secret stands"),
    ("secrets", {"spec.model.id": "org/model-8B"}, None, "ok", "no secret stands"),
    (
        "secrets",
        {"spec.model.id": "org/model-8B", "spec.engine": {"env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "x"}]}},
        None,
        "warning",
        "AWS_SECRET_ACCESS_KEY has its value in the resource",
    ),
    (
        "secrets",
        {"spec.model.id": "org/model-8B", "spec.engine": {"env": [{"name": "VLLM_LOGGING_LEVEL", "value": "INFO"}]}},
        None,
        "ok",
        "no secret stands",
    ),
    ("access", {}, None, "warning", "whoever reaches the Service"),
    ("access", {"spec.networkPolicy": {"enabled": True}}, None, "warning", "whoever reaches the Service"),
    ("access", {"spec.networkPolicy": LIMITED | {"enabled": False}}, None, "warning", "whoever reaches the Service"),
    ("access", {"spec.networkPolicy": LIMITED}, None, "ok", "limited by a policy"),
    ("access", {"spec.engine": {"env": [KEY]}}, None, "ok", "need a key"),
    (
        "access",
        {"spec.networkPolicy": LIMITED, "spec.service": {"type": "LoadBalancer"}},
        None,
        "warning",
        "from outside the cluster without a key",
    ),
    (
        "access",
        {"spec.networkPolicy": LIMITED, "spec.security": {"trustRemoteCode": True}},
        None,
        "warning",
        "set the commit that you have read",
    ),
    (
        "access",
        {"spec.networkPolicy": LIMITED, "spec.security": {"trustRemoteCode": True}} | PINNED,
        None,
        "ok",
        "limited by a policy",
    ),
    ("prefix-caching", {}, None, "ok", "are kept"),
    ("prefix-caching", {"spec.engine": {"prefixCaching": False}}, None, "warning", "computed again for each request"),
    ("prefix-caching", {"spec.engine": {"prefixCaching": False}}, known("creative"), "ok", "are kept"),
    ("prefix-caching", {}, known("chat"), "warning", "sessionAffinitySeconds is not set"),
    ("prefix-caching", {"spec.service": {"sessionAffinitySeconds": 600}}, known("chat"), "ok", "are kept"),
]


@pytest.mark.parametrize(
    ("name", "changes", "knowledge", "state", "words"),
    [pytest.param(*case, id=f"{case[0]}-{position}") for position, case in enumerate(CASES)],
)
def test_checks(name: str, changes: dict[str, Any], knowledge: Knowledge | None, state: str, words: str) -> None:
    found = outcome(name, changes, knowledge)
    assert found.state == state, found.verdicts
    assert any(words in verdict.message for verdict in found.verdicts), found.verdicts


def test_every_check_is_tried_when_all_is_well_and_when_not() -> None:
    for check in DEPLOYMENT_CHECKS:
        states = {case[3] for case in CASES if case[0] == check.name}
        assert states & {"ok"}, check.name
        assert states & {"warning", "refused"} or check.name == "gpu-budget", check.name


def test_every_check_says_why_what_to_do_and_where_it_can_be_read() -> None:
    assert len({check.name for check in DEPLOYMENT_CHECKS}) == len(DEPLOYMENT_CHECKS) >= 14
    for check in DEPLOYMENT_CHECKS:
        assert check.why.endswith(".")
        assert check.remedy.endswith(".")
        assert check.source


def test_what_cannot_be_put_together_is_not_looked_at_twice() -> None:
    assert outcome("Rendering", {}).state == "ok"
    assert outcome("Rendering", {"spec.engine": {"extraArgs": ["--swap-space=4"]}}).state == "notChecked"
