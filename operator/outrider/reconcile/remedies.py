"""Sentences that tell a user which field mends what the scheduler, the kubelet or the engine complained of."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import BaseModel

from outrider.api.defaults import Resolved
from outrider.api.fields import SecretKey
from outrider.api.resource import Spec

_GATED = re.compile(r"gated repo|gatedrepo|\bis restricted\b|awaiting a review", re.I)
_NOT_FOUND = re.compile(r"repository.?not.?found|valid model identifier|\b404 client error", re.I)
_NO_ACCESS = re.compile(r"\b40[13] client error|\b(?:unauthorized|forbidden) for url", re.I)
# vLLM takes a folder that is not there for a repository with an odd name.
_NO_FOLDER = re.compile(r"repo id must be in the form .*?'(/[^']*)'", re.I)
_FULL_DISK = "its disk is full: free space on the node, or give the weights a claim in spec.storage.modelCache"
_ENGINE = (
    (
        re.compile(r"unrecognized arguments|no such option|invalid choice", re.I),
        "the engine does not know an argument: look at spec.engine.extraArgs, and that spec.engine.version is the"
        " version in spec.engine.image",
    ),
    (
        re.compile(r"max(?:imum)? seq(?:uence)? len|max_model_len", re.I),
        "the context is longer than the model or its KV cache allows: lower spec.model.maxLength",
    ),
    (
        re.compile(r"free memory on device .* is less than", re.I),
        "something else uses the GPU's memory: lower spec.engine.gpuMemoryUtilizationPercent, or keep it off the node",
    ),
    (
        re.compile(r"cuda out of memory|outofmemoryerror|no available memory for the cache", re.I),
        "the model does not fit the GPU's memory: lower spec.model.maxLength or spec.engine.maxNumSeqs, or raise"
        " spec.resources.gpus",
    ),
    (re.compile(r"no space left on device", re.I), _FULL_DISK),
)


def for_last_words(words: str, spec: Spec | None) -> str:
    """What mends an engine that ended with these words; empty if they tell nothing that we know."""
    if _GATED.search(words):
        return _token(spec)
    folder = _NO_FOLDER.search(words)
    if folder is not None:
        return f"there are no weights in {folder[1]}: look at {' and '.join(_places(spec))}"
    if _NOT_FOUND.search(words):
        return (
            "the hub has no such repository, or hides it: look at spec.model.id and spec.speculation.draft.id; a"
            " private one wants spec.model.tokenSecret"
        )
    if _NO_ACCESS.search(words):
        return _token(spec)
    return next((remedy for pattern, remedy in _ENGINE if pattern.search(words)), "")


def for_eviction(words: str) -> str:
    """What mends that a kubelet ended a pod; empty if its words tell of nothing of ours."""
    if 'EmptyDir volume "model-cache" exceeds' in words:
        return "its weights do not fit their cache: raise spec.storage.modelCache.sizeLimit"
    return _FULL_DISK if re.search(r"ephemeral-storage|ephemeral local storage|DiskPressure", words) else ""


def _places(spec: Spec | None) -> list[str]:
    """Fields that say where weights are: sources, or else the ids, which may be folders."""
    draft = spec.speculation.draft if spec is not None else None
    sources = {
        "spec.model.source": spec is not None and spec.model.source,
        "spec.speculation.draft.source": draft and draft.source,
    }
    return [path for path, source in sources.items() if source] or ["spec.model.id", "spec.speculation.draft.id"]


def _token(spec: Spec | None) -> str:
    secret = spec.model.token_secret if spec is not None else None
    if secret is None:
        return "the repository wants a token: set spec.model.tokenSecret to a Secret with one that has access to it"
    return (
        f'the token in Secret "{secret.name}", key "{secret.key}" (spec.model.tokenSecret) has no access to the'
        " repository: ask for it at the hub, or name another token"
    )


def for_scheduler(words: str, resolved: Resolved) -> str:
    """Which fields may let a node take the pod; empty if the scheduler's words name none of ours."""
    found = []
    if no_gpu(words, resolved):
        found.append(f"free GPUs or add nodes, or lower spec.resources.gpus ({resolved.gpus} a replica)")
    if re.search(r"Insufficient (cpu|memory)", words):
        found.append("lower spec.resources.cpu or spec.resources.memory")
    if "untolerated taint" in words:
        found.append("tolerate the taint in spec.placement.tolerations")
    if "node affinity/selector" in words:
        found.append("look at spec.placement.nodeSelector and spec.placement.affinity")
    if re.search(r"pod (anti-)?affinity", words):
        found.append("look at spec.placement.affinity")
    if "topology spread" in words:
        found.append("look at spec.placement.topologySpreadConstraints")
    if "cannot allocate all claims" in words:
        found.append("free devices, or look at spec.resources.resourceClaims")
    return "; ".join(found)


def no_gpu(words: str, resolved: Resolved) -> bool:
    """Whether the scheduler misses GPUs."""
    return f"Insufficient {resolved.gpu_resource}" in words


def secret_fields(spec: Spec | None, name: str) -> list[tuple[str, str | None]]:
    """Path of each field that names this Secret, and the key that it wants; None if it wants all of it."""
    found: list[tuple[str, str | None]] = []
    for path, value in _fields(spec):
        if isinstance(value, SecretKey) and value.name == name:
            found.append((path, value.key))
        elif path.endswith("Secret") and value == name:
            found.append((path, None))
    return found


def claim_fields(spec: Spec | None, name: str) -> list[str]:
    """Path of each field that names this PersistentVolumeClaim."""
    return [path for path, value in _fields(spec) if path.endswith(".claimName") and value == name]


def _fields(part: BaseModel | None, path: str = "spec") -> Iterator[tuple[str, object]]:
    """All fields of the spec by path, those of models inside it too; a key of a Secret counts as one value."""
    for name, field in () if part is None else type(part).model_fields.items():
        value, here = getattr(part, name), f"{path}.{field.alias or name}"
        for index, one in enumerate(value if isinstance(value, list) else [value]):
            place = f"{here}[{index}]" if isinstance(value, list) else here
            if isinstance(one, BaseModel) and not isinstance(one, SecretKey):
                yield from _fields(one, place)
            else:
                yield place, one
