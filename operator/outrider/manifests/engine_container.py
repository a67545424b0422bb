"""The engine of a service: what its container runs, and what a controller may ask of it."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.api.defaults import Resolved
from outrider.api.fields import quantity_value
from outrider.api.resource import SpeculativeInferenceService
from outrider.core.schedule import Row, Schedule
from outrider.engine import command_line
from outrider.engine.config import Drafter, EngineConfig
from outrider.manifests.meta import Manifest

IMAGE = "ghcr.io/outrider-dev/engine:vllm-{version}"
"""Our runtime image: vLLM of that version with the plugin. It names vLLM's version and not ours, so that a new operator
restarts nothing."""


@dataclass(frozen=True, slots=True)
class EngineContainer:
    """Rendered, and the facts that control needs."""

    config: EngineConfig
    image: str
    args: list[str]
    env: list[Manifest]
    values: tuple[int, ...]
    """The K that the engine is started with."""
    capture_size: int
    """Largest captured CUDA graph, tokens."""
    initial_schedule: Schedule
    controllable: bool
    """The image has our plugin, as far as one can tell."""


def engine_config(resource: SpeculativeInferenceService, resolved: Resolved) -> EngineConfig:
    """The engine as admission and rendering take it."""
    spec, speculation, engine = resource.spec, resource.spec.speculation, resource.spec.engine
    draft, percent = speculation.draft, engine.gpu_memory_utilization_percent
    memory = spec.resources.memory
    return EngineConfig(
        version=None if engine.image is not None and engine.version is None else resolved.engine_version,
        model=spec.model.id,
        revision=spec.model.revision,
        served_name=resolved.served_name,
        quantization=spec.model.quantization,
        kv_cache_dtype=spec.model.kv_cache_dtype,
        max_length=spec.model.max_length,
        method=speculation.method,
        drafter=None
        if draft is None
        else Drafter(
            model=draft.id,
            revision=draft.revision,
            quantization=draft.quantization,
            tensor_parallel_size=draft.tensor_parallel_size,
            max_length=draft.max_length,
        ),
        mode=resolved.mode,
        max_speculative_tokens=resolved.max_speculative_tokens,
        min_speculative_tokens=resolved.min_speculative_tokens,
        initial_speculative_tokens=resolved.initial_speculative_tokens,
        rows=tuple(Row(row.first, row.last, row.speculative_tokens) for row in speculation.tuning.schedule or ()),
        gpus=resolved.gpus,
        tensor_parallel_size=resolved.tensor_parallel_size,
        max_num_seqs=resolved.max_num_seqs,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        gpu_memory_utilization=None if percent is None else percent / 100,
        shutdown_timeout_s=resolved.shutdown_timeout_s,
        startup_budget_s=resolved.startup_budget_s,
        memory_bytes=None if memory is None else quantity_value(memory),
        shared_memory_bytes=quantity_value(resolved.shared_memory),
        extra_args=tuple(engine.extra_args),
        extra_env=tuple(variable.name for variable in engine.env),
    )


def build(resource: SpeculativeInferenceService, resolved: Resolved, config: EngineConfig) -> EngineContainer:
    """Render an admitted engine."""
    sizes = command_line.capture_sizes(config)
    return EngineContainer(
        config=config,
        image=resource.spec.engine.image or IMAGE.format(version=resolved.engine_version),
        args=command_line.engine_args(config),
        env=_environment(resource, config),
        values=command_line.speculative_tokens_values(config),
        capture_size=max(sizes),
        initial_schedule=command_line.initial_schedule(config),
        controllable=resource.spec.engine.image is None,
    )


def _environment(resource: SpeculativeInferenceService, config: EngineConfig) -> list[Manifest]:
    env: list[Manifest] = [{"name": name, "value": value} for name, value in command_line.engine_env(config).items()]
    token = resource.spec.model.token_secret
    if token is not None:
        env.append(_from_secret("HF_TOKEN", token.name, token.key))
    for variable in resource.spec.engine.env:
        if variable.secret is not None:
            env.append(_from_secret(variable.name, variable.secret.name, variable.secret.key))
        else:
            env.append({"name": variable.name, "value": command_line.escape(variable.value or "")})
    return env


def _from_secret(name: str, secret: str, key: str) -> Manifest:
    """Not optional: a pod that starts without its token fails later and less clearly."""
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key, "optional": False}}}
