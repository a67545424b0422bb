"""Bodies of resources for tests: the examples, and small changes to them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from outrider.api.resource import SpeculativeInferenceService, parse

ROOT = Path(__file__).parents[3]
TIERS = sorted((ROOT / "examples" / "tiers").glob("*.yaml"))
EXAMPLES = [*sorted((ROOT / "examples").glob("*.yaml")), *TIERS]
"""One resource a file, all to be applied together. Overlays are tested where kubectl is, in ``tests/testbed``."""
Body = dict[str, Any]


def example(name: str = "01-minimal") -> Body:
    """An example as a user would apply it."""
    body: Body = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text(encoding="utf-8"))
    return body


def changed(body: Mapping[str, Any], changes: Mapping[str, Any]) -> Body:
    """A copy with values set at dotted paths; None removes one."""
    result = copy.deepcopy(dict(body))
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = copy.deepcopy(value)
    return result


def resource(changes: Mapping[str, Any] | None = None, name: str = "01-minimal") -> SpeculativeInferenceService:
    """A parsed example with changes."""
    return parse(changed(example(name), {"metadata.uid": "5f0c", "metadata.generation": 3} | dict(changes or {})))


def refused() -> list[Body]:
    """The table of changes that must be refused."""
    table: list[Body] = yaml.safe_load((Path(__file__).parent / "refused.yaml").read_text(encoding="utf-8"))
    return table


ADMITTED: dict[str, Body] = {
    "no tuning block at all": {"spec.speculation.tuning": None},
    "speculation off": {"spec.speculation.tuning": {"mode": "Off"}},
    "one fixed K without a schedule": {"spec.speculation.tuning": {"mode": "Fixed", "initialSpeculativeTokens": 3}},
    "a schedule with a hole, which the row before it fills": {
        "spec.speculation.tuning": {
            "mode": "Fixed",
            "schedule": [
                {"first": 1, "last": 16, "speculativeTokens": 3},
                {"first": 64, "last": 128, "speculativeTokens": 2},
                {"first": 256, "last": 4096, "speculativeTokens": 0},
            ],
        }
    },
    "ngram without a drafter": {"spec.speculation.method": "ngram", "spec.speculation.draft": None},
    "mtp, whose drafter is in the model": {"spec.speculation.method": "mtp", "spec.speculation.draft": None},
    "mtp with a drafter of its own": {"spec.speculation.method": "mtp"},
    "no objectives": {"spec.objectives": None},
    "no autoscaling": {"spec.autoscaling": None},
    "a fixed number of replicas": {"spec.autoscaling": {"mode": "Off", "minReplicas": 3}},
    "tensor parallelism alone": {"spec.resources": None, "spec.parallelism": {"tensor": 4}},
    "both numbers of GPUs, equal": {"spec.resources.gpus": 2, "spec.parallelism": {"tensor": 2}},
    "a drafter on as many GPUs as the model": {
        "spec.resources.gpus": 4,
        "spec.speculation.draft.tensorParallelSize": 4,
    },
    "processors as a bare number": {"spec.resources.cpu": 8, "spec.resources.memory": "64Gi"},
    "a grace period just long enough": {"spec.drain": {"terminationGraceSeconds": 86}},
    "a grace period under a short drain": {
        "spec.drain": {"preStopSeconds": 0, "shutdownTimeoutSeconds": 0, "terminationGraceSeconds": 30}
    },
    "the user's own arguments and variables": {
        "spec.engine": {
            "extraArgs": ["--enable-prefix-caching", "--seed", "-1", "--model-impl=auto"],
            "env": [
                {"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"},
                {"name": "VLLM_API_KEY", "secret": {"name": "chat-clients", "key": "key"}},
            ],
        }
    },
    "the public hub, by name": {"spec.model.source": {"hub": {}}},
    "one mirror for model and drafter": {
        "spec.model.source": {"hub": {"endpoint": "https://hub.example.com:8443/mirror"}},
        "spec.speculation.draft.source": {"hub": {"endpoint": "https://hub.example.com:8443/mirror"}},
    },
    "a mirror of the model, and a drafter from it without a word": {
        "spec.model.source": {"hub": {"endpoint": "https://hub.example.com"}},
        "spec.speculation.draft.source": {"hub": {}},
    },
    "a model in a volume and a drafter from a mirror": {
        "spec.model.source": {"volume": {"claimName": "models", "path": "org/llama..v2/.hidden"}},
        "spec.speculation.draft.source": {"hub": {"endpoint": "https://hub.example.com"}},
    },
    "a model and a drafter in images": {
        "spec.model.source": {"image": {"reference": "example.com/llama@sha256:0a1b", "pullPolicy": "IfNotPresent"}},
        "spec.speculation.draft.source": {"image": {"reference": "example.com/eagle:1", "path": "model"}},
    },
    "models in buckets": {
        "spec.model.source": {"objectStore": {"uri": "s3://models/llama", "credentialsSecret": "reader"}},
        "spec.speculation.draft.source": {
            "objectStore": {
                "uri": "gs://models",
                "endpoint": "https://minio.example.com/a@b",
                "image": "example.com/rclone",
            }
        },
    },
    "ngram without bounds": {"spec.speculation": {"method": "ngram", "maxSpeculativeTokens": 4}},
    "ngram with equal bounds": {
        "spec.speculation": {
            "method": "ngram",
            "maxSpeculativeTokens": 4,
            "ngram": {"promptLookupMin": 4, "promptLookupMax": 4},
        }
    },
    "suffix with bounds": {
        "spec.speculation": {
            "method": "suffix",
            "maxSpeculativeTokens": 8,
            "suffix": {
                "maxTreeDepth": 32,
                "maxCachedRequests": 0,
                "maxSpecFactorPercent": 200,
                "minTokenProbabilityPercent": 0,
            },
        }
    },
    "another vocabulary": {
        "spec.speculation.method": "draft_model",
        "spec.speculation.heterogeneousVocab": True,
        "spec.speculation.draftSampling": "Greedy",
    },
    "the same vocabulary, in words, and probabilities": {
        "spec.speculation.method": "draft_model",
        "spec.speculation.heterogeneousVocab": False,
        "spec.speculation.draftSampling": "Probabilistic",
    },
    "adaptive verification": {"spec.speculation.method": "dspark", "spec.speculation.adaptiveVerification": True},
    "a quantised head": {"spec.speculation.draftHeadQuantization": "nvfp4"},
    "probabilities of mtp": {
        "spec.speculation": {"method": "mtp", "maxSpeculativeTokens": 2, "draftSampling": "Probabilistic"}
    },
    "Fly with two speculative tokens": {
        "spec.speculation.maxSpeculativeTokens": 2,
        "spec.speculation.rejectionSampling": {"method": "Fly"},
    },
    "Fly with all its numbers": {
        "spec.speculation.rejectionSampling": {
            "method": "Fly",
            "flyWindowSize": 4,
            "flyEntropyThresholdPercent": 0,
            "flyEntropyTopK": 3,
        }
    },
    "block verification of one token": {
        "spec.speculation.maxSpeculativeTokens": 1,
        "spec.speculation.rejectionSampling": {"method": "Block"},
    },
    "the whole cache as a target": {"spec.autoscaling.kvCacheTargetPercent": 100},
    "triggers of the user's own": {
        "spec.autoscaling.triggers": [
            {
                "name": "waiting-outside",
                "query": 'sum(queue{service="chat"})',
                "metricType": "AverageValue",
                "target": 1,
            },
            {"name": "hour", "query": "hour() > bool 8", "metricType": "Value", "target": 1},
        ]
    },
    "a budget of GPUs of just the fewest replicas": {
        "spec.autoscaling": {"minReplicas": 2, "maxReplicas": 6, "gpuBudget": 4},
        "spec.resources": {},
        "spec.parallelism": {"tensor": 2},
    },
    "eight pull secrets": {"spec.engine": {"imagePullSecrets": list("abcdefgh")}},
    "an adapter by the id of a model with another name": {
        "spec.model": {"id": "org/chat", "servedName": "chat"},
        "spec.engine": {"lora": {"modules": [{"name": "org/chat", "id": "org/legal-lora"}]}},
    },
    "all of the engine's further settings": {
        "spec.engine": {
            "imagePullPolicy": "Always",
            "imagePullSecrets": ["registry", "mirror"],
            "prefixCaching": False,
            "chunkedPrefill": True,
            "lora": {"maxAdapters": 4, "maxRank": 32, "modules": [{"name": "org/legal", "id": "org/legal-lora"}]},
            "structuredOutputBackend": "xgrammar",
            "maxQueuedRequests": 512,
            "maxQueuedTokens": 200_000,
            "kvTransfer": {
                "connector": "NixlConnector",
                "role": "Both",
                "loadFailurePolicy": "Recompute",
                "extraConfig": {"backends": ["UCX"], "deep": {"er": [1, 2.5, None, True]}},
            },
        }
    },
    "GPUs for each stage of each copy": {
        "spec.resources.gpus": 8,
        "spec.parallelism": {"tensor": 2, "pipeline": 2, "data": 2},
    },
    "GPUs that stages share": {"spec.resources.gpus": 6, "spec.parallelism": {"pipeline": 2, "data": 3}},
    "as many GPUs as a node has": {"spec.resources": None, "spec.parallelism": {"tensor": 8, "pipeline": 2}},
    "a drafter on the GPUs of one stage": {
        "spec.resources.gpus": 4,
        "spec.parallelism": {"pipeline": 2},
        "spec.speculation.draft.tensorParallelSize": 2,
    },
    "GPUs by claims": {
        "spec.resources": {
            "gpus": 2,
            "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "two-h100", "request": "gpu"}],
        }
    },
    "a GPU resource and an empty list of claims": {
        "spec.resources": {"gpuResource": "amd.com/gpu", "resourceClaims": []}
    },
    "placement that is passed on": {
        "spec.placement": {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
                    }
                }
            },
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
            "priorityClassName": "serving",
            "runtimeClassName": "nvidia",
            "schedulerName": "volcano",
        }
    },
    "caches on claims": {
        "spec.storage": {"modelCache": {"claimName": "weights"}, "compileCache": {"claimName": "kernels"}}
    },
    "a cache with a limit": {"spec.storage": {"modelCache": {"sizeLimit": "200Gi"}}},
    "a surge and nobody missing": {"spec.rollout": {"maxSurge": 1, "maxUnavailable": 0}},
    "all stop first": {"spec.rollout": {"strategy": "Recreate"}},
    "all stop first and say so twice": {"spec.rollout": {"strategy": "Recreate", "policy": "Rolling"}},
    "a canary of a narrow margin": {"spec.rollout": {"policy": "Canary", "marginPercent": 3, "maxMinutes": 60}},
    "a revision that was approved": {"spec.rollout": {"policy": "Manual", "approve": "3f9c2a71b0"}},
    "a rolling update, by name": {"spec.rollout": {"strategy": "RollingUpdate", "maxUnavailable": 2}},
    "nobody evicted": {"spec.disruption": {"maxUnavailable": 0}},
    "a service for others": {
        "spec.service": {
            "type": "LoadBalancer",
            "annotations": {"example.com/load-balancer": "internal"},
            "sessionAffinitySeconds": 86_400,
        }
    },
    "a policy for one team": {
        "spec.networkPolicy": {"enabled": True, "allowFrom": [{"namespaceSelector": {"matchLabels": {"team": "chat"}}}]}
    },
    "a user of one's own": {
        "spec.security": {"runAsUser": 1, "runAsGroup": 2_147_483_647, "fsGroup": 2000, "trustRemoteCode": True}
    },
    "further parts of the pod": {
        "spec.podTemplate": {
            "metadata": {"labels": {"team": "chat"}, "annotations": {"example.com/note": "x" * 4096}},
            "spec": {"containers": [{"name": "sidecar", "image": "example.com/sidecar"}], "hostNetwork": False},
        }
    },
    "names of everything that is printable": {
        "spec.model.servedName": 'it\'s "chat" {x} $(HOME)',
        "spec.placement": {
            "nodeSelector": {"example.com/pool": "gpu_large.1"},
            "tolerations": [
                {"operator": "Exists"},
                {"key": "gpu", "value": "true", "effect": "NoExecute", "tolerationSeconds": 60},
            ],
        },
        "spec.service": {"annotations": {"example.com/note": "any text, even \U0001f600"}},
        "spec.resources.gpuResource": "example.com/gpu.shared",
    },
    "a name of 54 characters": {"metadata.name": "n23456789012345678901234567890123456789012345678901234"},
}
"""Changes to the minimal example that must be admitted."""
