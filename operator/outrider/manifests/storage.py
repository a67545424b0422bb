"""Folders that outlive a pod, or are bounded: downloaded weights and compiled kernels."""

from __future__ import annotations

import hashlib

from outrider.api.resource import SpeculativeInferenceService
from outrider.engine.command_line import CACHE_PATH
from outrider.engine.config import EngineConfig
from outrider.manifests.volumes import Mount, claim

MODEL_CACHE_PATH = "/var/cache/models"
COMPILE_CACHE_PATH = "/var/cache/compile"


def model_cache(resource: SpeculativeInferenceService) -> Mount | None:
    """The folder of downloaded weights, where the user has a say in it; otherwise they lie in the engine's cache."""
    storage = resource.spec.storage
    cache = None if storage is None else storage.model_cache
    if cache is None:
        return None
    if cache.claim_name is not None:
        return Mount("model-cache", claim(cache.claim_name), MODEL_CACHE_PATH)
    return Mount("model-cache", {"emptyDir": {"sizeLimit": cache.size_limit}}, MODEL_CACHE_PATH)


def compile_cache(resource: SpeculativeInferenceService) -> Mount | None:
    """The folder of compiled kernels, where the user wants to keep it."""
    storage = resource.spec.storage
    cache = None if storage is None else storage.compile_cache
    return None if cache is None else Mount("compile-cache", claim(cache.claim_name), COMPILE_CACHE_PATH)


def downloads_path(resource: SpeculativeInferenceService) -> str:
    """Where weights that are not from a hub are copied to."""
    return f"{CACHE_PATH}/models" if model_cache(resource) is None else MODEL_CACHE_PATH


def variables(resource: SpeculativeInferenceService, config: EngineConfig, image: str) -> dict[str, str]:
    """What of the engine's environment these folders change."""
    found: dict[str, str] = {}
    if model_cache(resource) is not None:
        found["HF_HOME"] = f"{MODEL_CACHE_PATH}/huggingface"
    if compile_cache(resource) is not None:
        folder = f"{COMPILE_CACHE_PATH}/{_kernels_key(config, image)}"
        found |= {
            "VLLM_CACHE_ROOT": f"{folder}/vllm",
            "TRITON_CACHE_DIR": f"{folder}/triton",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        }
    return found


def _kernels_key(config: EngineConfig, image: str) -> str:
    """A folder for each image and way to share a model: kernels of one are of no use to another, and would only grow
    the claim of services that never load them. The kind of GPU is part of the keys that the compilers use themselves.
    """
    parts = (image, str(config.tensor_parallel_size), str(config.pipeline_parallel_size))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
