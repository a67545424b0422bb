"""The engine of a service: what its container runs, and what a controller may ask of it."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.api.defaults import Resolved
from outrider.api.resource import SpeculativeInferenceService
from outrider.core.schedule import Schedule
from outrider.engine import command_line
from outrider.engine.config import EngineConfig
from outrider.manifests import storage, weights
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


def build(resource: SpeculativeInferenceService, resolved: Resolved, config: EngineConfig) -> EngineContainer:
    """Render an admitted engine.

    Raises:
        InvalidSpec: a variable is set in two places.
    """
    sizes = command_line.capture_sizes(config)
    image = resource.spec.engine.image or IMAGE.format(version=resolved.engine_version)
    return EngineContainer(
        config=config,
        image=image,
        args=command_line.engine_args(config),
        env=_environment(resource, config, image),
        values=command_line.speculative_tokens_values(config),
        capture_size=max(sizes),
        initial_schedule=command_line.initial_schedule(config),
        controllable=resource.spec.engine.image is None,
    )


def _environment(resource: SpeculativeInferenceService, config: EngineConfig, image: str) -> list[Manifest]:
    ours = command_line.engine_env(config) | storage.variables(resource, config, image) | weights.variables(resource)
    env: list[Manifest] = [{"name": name, "value": command_line.escape(value)} for name, value in ours.items()]
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
