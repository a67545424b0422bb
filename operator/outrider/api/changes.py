"""What a change of a spec asks: which parts take effect at once, and which question the rest raises.

| what changes                                                                     | question  |
|----------------------------------------------------------------------------------|-----------|
| the model, its served name, adapters, GPUs, parallelism, speculation switched off | none: not comparable |
| the image or version, a quantisation, another setting of the engine or the model | `NotWorse` |
| the draft, the method, the ceiling of K, another setting of speculation          | `Better`  |
| anything else: environment, secrets, sources, placement, labels, memory          | none      |

The first row that fits decides.
"""

from __future__ import annotations

from typing import Any

from outrider.api.resource import Spec
from outrider.core.revisions.analysis import Question

AT_ONCE = (
    "objectives",
    "autoscaling",
    "rollout",
    "disruption",
    "service",
    "network_policy",
    "monitoring",
    "paused",
)
"""Fields of the spec that no engine is started with."""
_ENGINE = frozenset(("env", "image_pull_policy", "image_pull_secrets", "lora"))
_MODEL = frozenset(("id", "served_name", "source", "token_secret"))
"""Fields that raise no question of speed."""


def question(before: Spec, after: Spec) -> Question | None:
    """What is asked of engines of the one spec beside those of the other; None if nothing is."""
    if _other_service(before) != _other_service(after) or _switched_off(before, after):
        return None
    if _settings(before) != _settings(after):
        return "NotWorse"
    return "Better" if _speculation(before) != _speculation(after) else None


def kept(stable: Spec, asked: Spec, *, tuning: bool) -> Spec:
    """The spec of stable engines while another one is asked for: theirs, with all that takes effect at once.

    ``tuning`` takes how the number of speculative tokens is chosen from what is asked, too.
    """
    update: dict[str, Any] = {name: getattr(asked, name) for name in AT_ONCE}
    if tuning:
        update["speculation"] = stable.speculation.model_copy(update={"tuning": asked.speculation.tuning})
    return stable.model_copy(update=update)


def _other_service(spec: Spec) -> tuple[Any, ...]:
    """By what clients know it, and what one replica is."""
    resources = spec.resources
    return (
        spec.model.id,
        spec.model.served_name,
        spec.engine.lora,
        spec.parallelism,
        (resources.gpus, resources.gpu_resource, resources.resource_claims),
    )


def _switched_off(before: Spec, after: Spec) -> bool:
    return _off(after) and not _off(before)


def _off(spec: Spec) -> bool:
    return spec.speculation.tuning.mode == "Off"


def _settings(spec: Spec) -> tuple[Any, ...]:
    return spec.engine.model_dump(exclude=set(_ENGINE)), spec.model.model_dump(exclude=set(_MODEL))


def _speculation(spec: Spec) -> tuple[Any, ...]:
    return spec.speculation.model_dump(exclude={"tuning": True, "draft": {"source"}}), _off(spec)
